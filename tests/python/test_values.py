"""Every kind of value, appended and extended, is read back unchanged by object and in each library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class Point:
    x: fb.float32


an: Any = fb
"""The package, for annotations made at run time, which type checkers cannot follow."""

OID = fb.Oid(1, 1, 0)
POINT = Point(x=1)
LINK = {"database": 1, "container": 1, "entry": 0}

KINDS: list[tuple[Any, Any, Any]] = [
    (an.array[list[int], 2], [[1], [2]], [[1], [2]]),
    (Point | None, None, None),
    (Point | None, POINT, {"x": 1.0}),
    (list[Point | None], [None, POINT], [None, {"x": 1.0}]),
    (list[list[Point]], [[POINT]], [[{"x": 1.0}]]),
    (list[Point] | None, [POINT], [{"x": 1.0}]),
    (list[Point] | None, None, None),
    (an.link["Point"], OID, LINK),
    (an.link["Point"] | None, None, None),
    (an.link["Point"], None, None),
    (list[an.link["Point"]], [None, OID], [None, LINK]),
    (an.element_link["Point"], None, None),
    (an.variant[int, an.link["Point"]], None, None),
    (list[an.variant[int, an.link["Point"]]], [OID, None, 3], [LINK, None, 3]),
    (list[an.element_link["Point"]], [(OID, 1)], [LINK | {"element": 1}]),
    (an.variant[int, str], 3, 3),
    (an.variant[int, str], "x", "x"),
    (an.variant[int, str], None, None),
    (an.variant[int, list[float]], [0.5], [0.5]),
    (an.variant[int, Point], POINT, {"x": 1.0}),
    (str | None, "x", "x"),
    (str | None, None, None),
    (list[int] | None, [1], [1]),
    (list[int] | None, None, None),
    (list[an.array[int, 2] | None], [None, [1, 2]], [None, [1, 2]]),
    (list[str], ["a", ""], ["a", ""]),
    (an.array[str, 2], ["a", "b"], ["a", "b"]),
    (an.array[int, 2] | None, [1, 2], [1, 2]),
    (bytes | None, b"a", b"a"),
    (list[bytes], [b"a", b""], [b"a", b""]),
    (list[an.char], b"ab", [97, 98]),
    (an.bitset(9), [True, False] * 4 + [True], [True, False] * 4 + [True]),
    (an.char, 65, 65),
    (list[bool], [True, False], [True, False]),
    (an.float16, 0.25, 0.25),
    (an.truncated(12), 0.5, 0.5),
    (an.quantised(8, 0, 255), 3.0, 3.0),
    (an.array[an.array[int, 2], 2], [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
]


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[fb.Federation]:
    with fb.create(tmp_path / "lhc.fed") as federation:
        yield federation


def store(fed: fb.Federation, annotation: Any, value: Any) -> fb.View:
    """Return a container of three objects that hold the value, one of them appended alone."""
    declared = fb.persistent(type("Probe", (), {"__annotations__": {"x": annotation}}))
    with fed.transaction() as txn:
        probes = txn.database("d", create=True).container("probes", declared, create=True)
        probes.append({"x": value})
        probes.extend([{"x": value}, {"x": value}])
    return fed["d/probes"]


@pytest.mark.parametrize(("annotation", "value", "expected"), KINDS)
def test_value_is_read_back(fed: fb.Federation, annotation: Any, value: Any, expected: Any) -> None:
    view = store(fed, annotation, value)
    assert view.arrays().x.to_list() == [expected] * 3
    for library in ("np", "pa", "pd"):
        assert view.arrays(library=library) is not None
    if not isinstance(expected, dict) and "database" not in str(expected):
        assert view[0].to_dict() == {"x": expected}


@pytest.mark.parametrize("value", [2.0, -1.0, float("nan")])
def test_quantised_numbers_stay_in_their_range(fed: fb.Federation, value: float) -> None:
    with pytest.raises(fb.InvalidError, match="range"):
        store(fed, an.quantised(8, 0, 1), value)
    assert list(fed) == []


@pytest.mark.parametrize(
    ("kind", "large", "too_large"),
    [("float16", 65519.0, -65520.0), ("float16", 65519.0, 1e300), ("double32", 3.4028235e38, 1e300)],
)
def test_no_finite_number_becomes_infinite(
    fed: fb.Federation, kind: str, large: float, too_large: float
) -> None:
    """70000 became infinite in half precision, and 1e300 in a double that is stored as a float."""
    fields = [{"name": "x", "type": kind}, {"name": "l", "type": {"list": kind}}]
    with fed.transaction() as txn:
        probes = txn.database("d", create=True).container(
            "probes", {"name": "Probe", "fields": fields}, create=True
        )
        for value in (large, float("inf"), float("nan")):
            probes.append({"x": value, "l": [value]})
            probes.extend({"x": [value], "l": [np.array([value])]})
        for row in (
            {"x": too_large, "l": []},
            {"x": 0, "l": [too_large]},
            {"x": 0, "l": np.array([too_large])},
        ):
            with pytest.raises(
                fb.InvalidError, match=r"field '[xl]' of class Probe: .* is not within the range"
            ):
                probes.append(row)
        for columns in ({"x": [too_large], "l": [[]]}, {"x": [0.0], "l": [[too_large]]}):
            with pytest.raises(fb.InvalidError, match=r"too large for|does not fit into"):
                probes.extend(columns)
        assert len(probes) == 6
        with pytest.raises(fb.InvalidError, match=r"too large for|does not fit into|within the range"):
            probes.update([0], x=np.array([too_large]))
    assert np.isfinite(fed["d/probes"].arrays("x").x).to_list() == [True, True] + [False] * 4


SINGLE, DOUBLE = np.float32(0.1), 0.1


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (an.variant[an.float32, an.float64], DOUBLE, DOUBLE),
        (an.variant[an.float64, an.float32], SINGLE, float(SINGLE)),
        (an.variant[an.float16, an.float64], SINGLE, float(SINGLE)),
        (an.variant[an.float16, an.float32], DOUBLE, 0.0999755859375),
        (an.variant[list[an.float32], list[an.float64]], [DOUBLE], [DOUBLE]),
        (an.variant[list[an.float32], list[an.float64]], np.array([DOUBLE]), [DOUBLE]),
        (an.variant[an.int32, bool], True, True),
        (an.variant[an.int32, an.float64], 3, 3),
        (an.variant[an.int8, an.int32], 300, 300),
    ],
)
def test_a_variant_takes_a_value_in_its_own_type(
    fed: fb.Federation, annotation: Any, value: Any, expected: Any
) -> None:
    """The first alternative took the value, and rounded it."""
    declared = fb.persistent(type("Probe", (), {"__annotations__": {"x": annotation}}))
    with fed.transaction() as txn:
        probes = txn.database("d", create=True).container("probes", declared, create=True)
        probes.append({"x": value})
        probes.extend({"x": [value]})
        probes.extend({"x": ak.Array([value])})
    stored = [probe.to_dict()["x"] for probe in fed["d/probes"]]
    assert stored == [expected] * 3
    assert [type(each) for each in stored] == [type(expected)] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-45, 3.4e38])
def test_special_numbers_are_kept(fed: fb.Federation, value: float) -> None:
    view = store(fed, fb.float64, value)
    assert str(view[0].x) == str(value)
    assert str(float(view.arrays().x[1])) == str(value)


def test_huge_and_empty_collections_are_kept(fed: fb.Federation) -> None:
    huge = list(range(1_000_000))
    view = store(fed, list[an.int32], huge)
    assert view[2].x.tolist() == huge
    with fed.transaction() as txn:
        txn.database("d").container("probes").append({"x": []})
    assert fed["d/probes"][3].x.tolist() == []

"""Views in an order, parts of them, descriptions, joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_runs import numbers, with_runs

import femtobarn as fb


@pytest.fixture
def runs(fed: fb.Federation) -> fb.Federation:
    """Three runs of four events, the second of run 2 deleted, and objects of another class."""
    return with_runs(fed)


def test_objects_in_the_order_of_fields(fed: fb.Federation) -> None:
    random = np.random.default_rng(3)
    fields = [
        {"name": "a", "type": "uint64"},
        {"name": "b", "type": {"optional": "float32"}},
        {"name": "c", "type": "string"},
        {"name": "d", "type": "bool"},
    ]
    rows = [
        {
            "a": int(random.integers(3)) + (1 << 63),
            "b": [None, float("nan"), 1.5, -2.0, float("inf")][random.integers(5)],
            "c": str(random.choice(["x", "yy", "é"])),
            "d": bool(random.integers(2)),
        }
        for _ in range(300)
    ]
    with fed.transaction() as txn:
        form = {"name": "N", "fields": fields}
        container = txn.database("d", create=True).container("c", form, create=True)
        for row in rows:
            container.append(row)
    view = fed["d/c"]
    for keys in (("a",), ("b",), ("c", "a"), ("d", "b", "c"), ("b", "d")):
        for descending in (False, True):
            found = view.sort_by(*keys, descending=descending).entries().tolist()
            assert found == sorted(range(300), key=lambda i: _key(rows[i], keys, descending))


def _key(row: dict[str, Any], keys: tuple[str, ...], descending: bool) -> list[tuple[bool, Any]]:
    """Return what Python orders rows by: descending values as negative ones."""
    found: list[tuple[bool, Any]] = []
    for key in keys:
        value = row[key]
        if value is None or value != value:
            found.append((True, 0))
        elif isinstance(value, str):
            place = ["x", "yy", "é"].index(value)
            found.append((False, -place if descending else place))
        else:
            found.append((False, -value if descending else value))
    return found


@pytest.mark.parametrize(
    ("keys", "told"),
    [((), "such as sort_by"), (("muons",), "has members, which"), (("muons.pt",), "has several values")],
)
def test_sorting_by_unordered_keys_is_refused(runs: fb.Federation, keys: tuple[str, ...], told: str) -> None:
    with pytest.raises(fb.InvalidError, match=told):
        runs["run1/events"].sort_by(*keys)


def test_some_objects(runs: fb.Federation) -> None:
    view = runs["run2/events"]  # Without its second event.
    assert view.head(2)["name"].to_list() == ["a", "c"]
    assert view.head()["name"].to_list() == ["a", "c", "d"]
    assert view.head(-1)["name"].to_list() == ["a", "c"], "all but the last"
    assert len(view.head(-9)) == 0
    sample = view.sample(2, seed=5)
    assert sample["name"].to_list() == view.sample(2, seed=5)["name"].to_list()
    assert set(sample["name"].to_list()) < set("acd")
    assert view.sample(100)["name"].to_list() == ["a", "c", "d"]
    oids = [view[2].oid, view[0].oid]
    assert view[oids]["name"].to_list() == ["d", "a"]
    assert view[view.oids[2:]]["name"].to_list() == ["c", "d"]
    assert view[oids[0]].name == "d"
    with pytest.raises(fb.InvalidError, match="use the container that it is in"):
        view[runs["run1/events"][0].oid]
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        view[view.oids[1]]


def test_descriptions(fed: fb.Federation) -> None:
    random = np.random.default_rng(5)
    values = random.normal(1000.0, 0.01, 5000)
    values[7] = np.nan
    fields = [
        {"name": "x", "type": "float64"},
        {"name": "many", "type": {"list": {"optional": "int32"}}},
        {"name": "name", "type": "string"},
    ]
    many = [[1, None, 3]] * 5000
    with fed.transaction() as txn:
        form = {"name": "N", "fields": fields}
        container = txn.database("d", create=True).container("c", form, create=True)
        container.extend({"x": values, "many": many, "name": ["a"] * 5000})
    x, numbers, names = fed["d/c"].describe()
    assert (x.count, x.missing, x.least, x.most) == (4999, 1, np.nanmin(values), np.nanmax(values))
    assert x.mean == pytest.approx(np.nanmean(values), rel=1e-12)
    assert x.deviation == pytest.approx(np.nanstd(values), rel=1e-9)
    assert (numbers.count, numbers.missing, numbers.least, numbers.mean) == (10000, 5000, 1, 2.0)
    assert (names.count, names.missing, names.mean) == (5000, 0, None)
    assert str(fed["d/c"].describe("x", where="x > 2000")).splitlines()[1].split() == [
        "x",
        "float64",
        "0",
        "0",
    ]
    assert "<td>many</td>" in fed["d/c"].describe()._repr_html_()


def test_joins_equal_those_by_dictionaries(fed: fb.Federation) -> None:
    random = np.random.default_rng(11)
    types = {"a": "int32", "b": {"optional": "float32"}, "c": "string", "u": "uint64"}
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    names = ["x", "yy", "é"]

    def row() -> dict[str, Any]:
        real = [None, float("nan"), 0.5, -2.0][random.integers(4)]
        text, number = names[random.integers(3)], int(random.integers(4))
        return {"a": int(random.integers(5)), "b": real, "c": text, "u": number}

    rows = [row() for _ in range(300)]
    # One of each key, in any order; the greatest number has no partner among signed ones.
    by_a_c = {(each["a"], each["c"]): each for each in (row() | {"u": 1 << 63} for _ in range(40))}
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        form = {"name": "N", "fields": fields}
        database.container("ours", form, create=True).extend([*rows])
        others = database.container("theirs", form, create=True)
        for each in by_a_c.values():
            others.append(each)
    ours, theirs = fed["d/ours"], fed["d/theirs"]
    joined = ours.join(
        theirs, ["a", "c"], expressions=["a", "c"], other_expressions=["a", "c", "u"], where="a != 1"
    )
    wanted = [by_a_c.get((each["a"], each["c"])) for each in rows if each["a"] != 1]
    assert [each["other"] and each["other"]["u"] for each in joined.to_list()] == [
        each and 1 << 63 for each in wanted
    ]
    for own, other in zip(joined.to_list(), wanted, strict=True):
        assert other is None or (own["a"], own["c"]) == (own["other"]["a"], own["other"]["c"]) == (
            other["a"],
            other["c"],
        )
    halves = theirs.sort_by("b")[:1]  # The least real number, which is no NaN and not missing.
    [half] = halves["b"].to_list()
    found = ours.join(halves, "b", name="half", expressions="b", other_expressions="b")
    assert [each is not None for each in found.half.to_list()] == [each["b"] == half for each in rows]
    assert ours.join(theirs[:1], {"a": "u"}, expressions="a").other.to_list() == [None] * 300
    assert list(ours.join(theirs, ["a", "c"], expressions="a", other_expressions="b", library="pd")) == [
        "a",
        "other.b",
    ]


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ({"run": "name"}, "'run' is int32, and 'name' is string: these are never equal"),
        ("muons.pt", "has several values per object"),
        ("run", "several objects of run1/events have run 1; call join"),
        ({}, "join takes names of fields"),
    ],
)
def test_impossible_joins_are_refused(runs: fb.Federation, on: Any, told: str) -> None:
    with pytest.raises(fb.FemtobarnError, match=told):
        runs["run1/events"].join(runs["run1/events"], on)


def test_oids_of_other_objects_are_refused(runs: fb.Federation) -> None:
    view = runs["run2/events"]  # Without its second event.
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        view[view.oids]
    with pytest.raises(fb.NotFoundError, match="is not in this view of run2/events"):
        view[2:][[view[0].oid]]
    with pytest.raises(fb.NotFoundError, match="is not in this view"):
        view[2:][view[0].oid]
    with pytest.raises(fb.NotFoundError, match="does not exist"):
        view[[fb.Oid(view.oids.database, view.oids.container, 77)]]


def test_long_texts_and_bytes(fed: fb.Federation) -> None:
    names = ["b" * 3_000_000, *(f"a{i:05}" for i in range(20_000)), "a\0"]
    view = numbers(
        fed, "d/e", {"name": "string", "raw": {"list": "byte"}}, {"name": names, "raw": [b"x"] * len(names)}
    )
    assert view.sort_by("name").head(2)["name"].to_list() == ["a\0", "a00000"]
    assert [each.name for each in view.describe()] == ["name"]
    with pytest.raises(fb.InvalidError, match="have no order"):
        view.sort_by("raw")


def test_chains_of_aliases_are_bounded(fed: fb.Federation) -> None:
    view = numbers(fed, "d/e", {"x": "int32"}, {"x": [1]})
    aliases = {"a0": "x + 1"} | {f"a{i}": f"a{i - 1} + a{i - 1}" for i in range(1, 40)}
    with pytest.raises(fb.InvalidError, match="too many parts"):
        view.arrays("a39", aliases=aliases)

"""Leaving out clusters by their statistics: never one that holds a match, and most that hold none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import femtobarn as fb
from femtobarn._query.pruning import ClusterBounds, excluded_ranges
from femtobarn._query.selection import COUNT, Selection


@fb.persistent
class Muon:
    pt: fb.float32


@fb.persistent
class Event:
    i8: fb.int8
    i32: fb.int32
    u32: fb.uint32
    i64: fb.int64
    u64: fb.uint64
    f32: fb.float32
    f64: fb.float64
    good: bool
    Muon: list[Muon]


EVENT = fb.definition_of(Event)
DTYPES = {
    "i8": np.int8, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f32": np.float32, "f64": np.float64, "good": np.bool_, COUNT + "Muon": np.int64,
}  # fmt: skip


def bounds_of(values: Any, sizes: list[int]) -> ClusterBounds:
    """The statistics of a column that is cut into clusters."""
    stops = np.cumsum(np.array(sizes, np.int64))
    parts = np.split(np.asarray(values), stops[:-1])
    numbers = [part[~np.isnan(part)] if part.dtype.kind == "f" else part for part in parts]
    return ClusterBounds(
        stops - sizes,
        stops,
        np.array([float(part.min()) if len(part) else np.inf for part in numbers]),
        np.array([float(part.max()) if len(part) else -np.inf for part in numbers]),
        np.array([len(part) > len(kept) for part, kept in zip(parts, numbers, strict=True)]),
    )


def excluded(text: str, sizes: list[int], **columns: Any) -> list[range]:
    named = {path.replace("count_", COUNT): values for path, values in columns.items()}
    known = {path: bounds_of(np.asarray(v, DTYPES[path]), sizes) for path, v in named.items()}
    return excluded_ranges(Selection.parse(text, EVENT), EVENT, known.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("u32 == 5", [range(4)]),
        ("u32 == 7", [range(6)]),
        ("u32 in (5, 7)", [range(4)]),
        ("any(Muon.pt > 3) and u32 == 5", [range(4)]),
        ("any(Muon.pt > 3) or u32 == 5", []),
        ("u32 < 3 or u32 > 100", [range(4, 6)]),
        ("not u32 < 3", [range(2)]),
        ("2 <= u32 < 5", [range(2), range(4, 6)]),
        ("u32 * 2 - 1 > 8", [range(4)]),
        ("abs(u32 - 3.5) > 2", [range(2, 4)]),
        ("u32 ** 2 > 30", [range(4)]),
        ("sqrt(u32) > 2.1", [range(4)]),
        ("10 / (u32 + 1) < 2", [range(2)]),
        ("-u32 < -4.5", [range(4)]),
        ("u32 != u32 + 1", []),
        ("u32 % 2 == 7", []),
        ("exp(u32) < 0", []),
        ("(u32 & 1) == 5", []),
        ("u32 > 2 and f32 > 0", [range(2)]),
    ],
)
def test_clusters_that_cannot_match_are_excluded(text: str, expected: list[range]) -> None:
    assert excluded(text, [2, 2, 2], u32=[0, 1, 2, 3, 5, 6]) == expected


def test_nan_is_respected_in_pruning() -> None:
    odd = [np.nan, 1.0, np.nan, np.nan, 5.0, 6.0]
    assert excluded("f64 > 2", [2, 2, 2], f64=odd) == [range(4)]
    assert excluded("not f64 > 2", [2, 2, 2], f64=odd) == [range(4, 6)]
    assert excluded("f64 != 5", [2, 2, 2], f64=odd) == []
    infinite = [np.inf, 1.0, 1.0, 2.0, 3.0, 4.0]
    assert excluded("not f64 - f64 < 10", [2, 2, 2], f64=infinite) == [range(2, 6)]


def test_truth_values_and_counts_are_pruned() -> None:
    assert excluded("good", [2, 2], good=[False, False, True, False]) == [range(2)]
    assert excluded("not good", [2, 2], good=[True, True, True, False]) == [range(2)]
    assert excluded("nMuon == 2", [2, 2], count_Muon=[0, 1, 2, 2]) == [range(2)]


def test_rounding_is_respected_in_pruning() -> None:
    assert excluded("f32 > 0.1", [1], f32=[0.1]) == []
    assert excluded("f32 <= 0.1", [1], f32=[0.1]) == [range(1)]
    assert excluded("f64 + 0.2 == 0.3", [1], f64=[0.1]) == []
    assert excluded("i64 > f32", [1], i64=[2**53 + 1], f32=[float(2**53)]) == []


def test_integer_overflow_is_respected_in_pruning() -> None:
    assert excluded("i64 + 1 < 0", [1], i64=[2**63 - 1]) == []
    assert excluded("i64 * i64 == 1", [1], i64=[2**63 - 1]) == []
    assert excluded("-i64 < 0", [1], i64=[-(2**63)]) == []
    assert excluded("i64 + 1 < 0", [1], i64=[2**62]) == [range(1)]
    assert excluded("i32 + 1 < 0", [1], i32=[2**31 - 1]) == [range(1)]
    assert excluded("u64 < 1", [1], u64=[2**63]) == []


NUMBERS = ["i8", "i32", "u32", "i64", "f32", "f64", "nMuon", "0", "1", "-3", "2.5", "1e-3", "100000"]
EXTREMES = [0, 1, -1, 2, 100, -128, 127, 2**31 - 1, -(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.0, 0.1, -2.5, 1e38, -1e38, 1e-45, 3e38, np.inf, -np.inf, np.nan]

terms = st.recursive(
    st.sampled_from(NUMBERS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["abs", "sqrt", "-", "floor"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
        inner.map(lambda t: f"({t}) ** 2"),
    ),
    max_leaves=4,
)
comparisons = st.one_of(
    st.tuples(terms, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), terms).map(" ".join),
    st.just("good"),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"not ({t})"),
    ),
    max_leaves=3,
)


def column(dtype: Any, length: int) -> Any:
    if np.dtype(dtype).kind == "f":
        width = np.dtype(dtype).itemsize * 8
        reals = st.sampled_from([float(np.float32(x)) for x in REALS]) | st.floats(-10, 10, width=width)
        return st.lists(reals, min_size=length, max_size=length)
    low, high = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    extremes = [each for each in EXTREMES if low <= each <= high]
    numbers = st.sampled_from(extremes) | st.integers(max(low, -5), min(high, 5))
    return st.lists(numbers, min_size=length, max_size=length)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    columns: dict[str, Any] = {
        path: np.array(draw(column(of, sum(sizes))), of) for path, of in DTYPES.items() if path != "u64"
    }
    columns[COUNT + "Muon"] = np.abs(columns[COUNT + "Muon"]) % 5
    return sizes, columns


@settings(max_examples=300, deadline=None)
@given(tables(), conditions)
@example(([1], {path: np.zeros(1, of) for path, of in DTYPES.items()}), "i32 / i32 != 1")
def test_pruning_never_excludes_a_match(table: tuple[list[int], dict[str, Any]], text: str) -> None:
    sizes, columns = table
    selection = Selection.parse(text, EVENT)
    known = {path: bounds_of(values, sizes) for path, values in columns.items()}
    ranges = excluded_ranges(selection, EVENT, known.get)
    try:
        selected = selection.evaluate(columns, sum(sizes))
    except fb.InvalidError:
        # Such as a constant that is too large: refused whatever the data are.
        return
    wrong = [entry for part in ranges for entry in part if selected[entry]]
    assert wrong == [], (text, {path: columns[path][wrong] for path in selection.variables.values()})

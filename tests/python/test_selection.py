"""Conditions on entries: the expressions that they may use, and the errors for others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numexpr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femtobarn as fb
from femtobarn._query.comparisons import comparison_of
from femtobarn._query.selection import Selection


@fb.persistent
class Raw:
    number: int


@fb.persistent
class Particle:
    pt: fb.float32
    hits: list[fb.uint16]


@fb.persistent
class Event:
    run: fb.uint32
    event: fb.uint64
    weight: float
    name: str
    good: bool
    cov: fb.array[fb.float32, Literal[3]]
    Muon: list[Particle]
    best: Particle
    raw: fb.link[Raw]


EVENT = fb.definition_of(Event)


def select(text: str, **columns: Any) -> list[bool]:
    values = {path.replace("__", ".").replace("count_", "#"): np.asarray(v) for path, v in columns.items()}
    length = len(next(iter(values.values())))
    selected: list[bool] = Selection.parse(text, EVENT).evaluate(values, length).tolist()
    return selected


def test_comparisons_chain_and_combine_as_in_python() -> None:
    run = np.array([1, 2, 3], np.uint32)
    assert select("1 < run <= 3", run=run) == [False, True, True]
    assert select("run == 1 or not run < 3", run=run) == [True, False, True]
    assert select("run % 2 == 1 and sqrt(weight) > 1", run=run, weight=[4.0, 4.0, 0.0]) == [
        True,
        False,
        False,
    ]
    assert select("good", good=[True, False]) == [True, False]
    assert select("event == 5", event=np.array([5, 2**62], np.uint64)) == [True, False]


def test_conditions_use_numbers_of_items() -> None:
    for text in ("nMuon == 2", "len(Muon) == 2"):
        selection = Selection.parse(text, EVENT)
        assert selection.collections == ["Muon"]
        assert selection.fields == []
    assert select("len(best.hits) > best.pt", count_best__hits=[2, 1], best__pt=np.ones(2, np.float32)) == [
        True,
        False,
    ]


def test_conditions_use_dotted_names() -> None:
    assert Selection.parse("best.pt > 20", EVENT).fields == ["best.pt"]
    assert Selection.parse("raw.entry > 20", EVENT).fields == ["raw.entry"]


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("Muon.pt > 1", fb.InvalidError, r"several values per entry; write any\(Muon\.pt > 0\)"),
        ("cov > 1", fb.InvalidError, "several values per entry"),
        ("name == 1", fb.InvalidError, "is string"),
        ("best > 1", fb.InvalidError, "name one of its members"),
        ("wieght > 1", fb.NotFoundError, "did you mean 'weight'"),
        ("best.tp > 1", fb.NotFoundError, "'tp' does not exist in best"),
        ("nBest > 1", fb.NotFoundError, "'nBest' does not exist"),
        ("sqr(weight) > 1", fb.NotFoundError, "did you mean 'sqrt'"),
        ("run in [weight]", fb.InvalidError, "in is followed by a list"),
        ("__import__('os')", fb.NotFoundError, "function '__import__'"),
        ("(lambda: 1)()", fb.NotFoundError, "does not exist"),
        ("'text'", fb.InvalidError, "it may use fields"),
        ("run =", fb.InvalidError, "not an expression"),
        ("len(run) > 1", fb.InvalidError, "no number of items"),
        ("len(Muon.hits) > 1", fb.InvalidError, "no number of items"),
        ("len(1) > 1", fb.InvalidError, "uses no field"),
    ],
)
def test_invalid_conditions_are_refused_with_advice(text: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Selection.parse(text, EVENT)


def test_condition_that_gives_numbers_is_refused() -> None:
    with pytest.raises(fb.InvalidError, match="compare them"):
        select("run + 1", run=[1])
    with pytest.raises(fb.InvalidError, match="2\\^63"):
        select("event > 1", event=np.array([2**63], np.uint64))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(-2, 2, width=32)), min_size=1),
    st.sampled_from(
        [
            "run > 2 and weight < 1",
            "not (run == 1 or weight >= 0)",
            "0 <= weight < 1 or run == 5",
            "run * 2 - 1 > weight ** 2",
            "abs(weight) > 1",
        ]
    ),
)
def test_selection_agrees_with_python(rows: list[tuple[int, float]], text: str) -> None:
    run, weight = (np.array(column) for column in zip(*rows, strict=True))
    expected = [bool(eval(text, {"run": int(r), "weight": float(w), "abs": abs})) for r, w in rows]
    assert select(text, run=run.astype(np.uint32), weight=weight) == expected


LIMITS = [
    0.1,
    -0.1,
    0.5,
    0,
    -0.0,
    7,
    -7,
    1e-46,
    -1e-46,
    1e40,
    3.4028235677973366e38,
    2**24,
    2**24 + 1,
    2**24 + 0.5,
]
"""Numbers that single precision has, rounds up, rounds down, and is too small for."""


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_comparisons_by_numpy_equal_those_by_numexpr(limit: float, dtype: type[Any]) -> None:
    with np.errstate(over="ignore"):
        around = np.array(
            [limit if dtype in (np.float32, np.float64) else int(min(limit, 2**30)), 0, 1]
        ).astype(dtype)
    if around.dtype.kind == "f":
        special = np.array([*around, np.nan, np.inf, -np.inf], dtype)
        values = np.concatenate(
            [special, np.nextafter(special, dtype(1e30)), np.nextafter(special, dtype(-1e30))]
        )
    else:
        values = np.concatenate([around, around + dtype(1), around - dtype(1), -around])
    for sign in ("<", "<=", ">", ">="):
        for text in (
            f"v0 {sign} {limit!r}",
            f"{limit!r} {sign} v0",
            f"(v0 {sign} {limit!r}) | (v0 > 0.5)",
            f"abs(v0) {sign} {limit!r}",
            f"{limit!r} {sign} abs(v0)",
        ):
            holds = comparison_of(text)
            wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
            expected = numexpr.evaluate(text, local_dict={"v0": wide}, global_dict={})
            assert holds is not None, text
            assert holds({"v0": values}).tolist() == expected.tolist(), text


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("run = 3", "instead of =, compare with =="),
        ("run > 1 && weight < 2", "instead of &&, write and"),
        ("run > 1 || weight < 2", "instead of ||, write or"),
        ("!good", "instead of !, write not"),
        ("run == ", "invalid syntax"),
        ("run > 1 | weight < 2", "(a > 1) | (b > 2)"),
        ("weight > 1 | weight < 2", "(a > 1) | (b > 2)"),
        ("run > 1 & good", "(a > 1) & (b > 2)"),
        ("good & run > 1", "(a > 1) & (b > 2)"),
        ("run > 1 & run < 5", "(a > 1) & (b > 2)"),
        ("nMuon > 1 ^ weight", "(a > 1) ^ (b > 2)"),
        ("run == 1 and (good | nMuon > 2)", "(a > 1) | (b > 2)"),
        ("(run == 1 and\n (1 < good | weight))", "(a > 1) | (b > 2)"),
    ],
)
def test_operators_of_other_languages_are_refused_with_the_right_one(text: str, advice: str) -> None:
    """`=` and `&&` were just invalid syntax; `good & run > 1` was `(good & run) > 1`, which is never true."""
    with pytest.raises(fb.InvalidError, match=re.escape(advice)):
        Selection.parse(text, EVENT)


def test_bits_of_integers_are_compared_as_python_reads_them() -> None:
    run = np.array([1, 2, 3, 4])
    assert select("run & 1 == 1", run=run) == select("(run & 1) == 1", run=run) == [True, False, True, False]
    assert select("0 < (run & 6) < 4", run=run) == [False, True, True, False]
    assert select("(run > 1) & (run < 4) | (run == 4)", run=run) == [False, True, True, True]
    assert select("(run > 1 and\n 0 < ( run & 6 ) < 4)", run=run) == [False, True, True, False]


def test_conditions_on_optional_values_leave_missing_ones_out(tmp_path: Path) -> None:
    """They compared the placeholder of a missing value; members of null links are 0."""
    form = {"name": "Inner", "fields": [{"name": "n", "type": "int32"}, {"name": "k", "type": {"link": "A"}}]}
    record = {"record": {"class": "Inner", "fields": form["fields"]}}
    outer = {"name": "Outer", "fields": [{"name": "r", "type": {"optional": record}}]}
    with fb.create(tmp_path / "lhc.fed") as fed:
        with fed.transaction() as txn:
            outers = txn.database("d", create=True).container("outers", outer, create=True)
            first = outers.append({"r": {"n": 5, "k": None}})
            outers.extend([{"r": None}, {"r": {"n": 0, "k": first}}, {"r": {"n": -5, "k": None}}])
        view = fed["d/outers"]
        assert view.entries("r.n >= 0").tolist() == [0, 2]
        assert view.entries("r.n < 5").tolist() == [2, 3]
        assert view.entries("r.k.container > 0").tolist() == [2]
        assert view.entries("r.k.container == 0").tolist() == [0, 3]
        assert view.entries("r.k.container != 0").tolist() == [2]


SOME_MISSING = [
    {"run": 1, "r": {"n": 5, "big": 2**53, "flags": 4, "ok": True}},
    {"run": 2, "r": None},
    {"run": 3, "r": {"n": 0, "big": 2**53 + 1, "flags": 6, "ok": False}},
    {"run": 4, "r": None},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r.n != 5", [2]),
        ("not (r.n == 5)", [2]),
        ("r.n == 5 or not r.n == 5", [0, 2]),
        ("r.n == 5 or run == 2", [0, 1]),
        ("not (r.n == 5 and run < 4)", [2, 3]),
        ("not (r.n == 5 or run == 3)", []),
        ("not not r.ok", [0]),
        ("not r.ok", [2]),
        ("r.ok ^ (run > 0)", [2]),
        ("r.big == 9007199254740993", [2]),
        ("r.flags & 4 == 4", [0, 2]),
        ("r.flags & 2 != 0 and r.big > r.n", [2]),
    ],
)
def test_missing_values_match_neither_a_comparison_nor_its_not(
    tmp_path: Path, text: str, expected: list[int]
) -> None:
    """`r.n != 5` selected missing values; integers became real numbers, without bits and the last digit."""
    kinds = {"n": "int32", "big": "int64", "flags": "uint32", "ok": "bool"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    optional = {"optional": {"record": {"class": "Inner", "fields": fields}}}
    outer = {"name": "Outer", "fields": [{"name": "run", "type": "int32"}, {"name": "r", "type": optional}]}
    with fb.create(tmp_path / "lhc.fed") as fed:
        with fed.transaction() as txn:
            txn.database("d", create=True).container("o", outer, create=True).extend(SOME_MISSING)
        assert fed["d/o"].entries(text).tolist() == expected

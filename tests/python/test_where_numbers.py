"""Numbers in conditions: the results of NumPy with 64 bits; and the reads of a condition's parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femtobarn as fb
from femtobarn._query.selection import Selection

COLUMNS: dict[str, Any] = {
    "i8": np.array([0, 1, -1, 127, -128, 5], np.int8),
    "u16": np.array([0, 1, 7, 65535, 300, 5], np.uint16),
    "i32": np.array([2**24 + 1, 1, -7, 2**31 - 1, -(2**31), 5], np.int32),
    "u32": np.array([2**24 + 1, 1, 7, 2**32 - 1, 0, 5], np.uint32),
    "i64": np.array([2**53 + 1, 3, -7, 2**62, -(2**62), 5], np.int64),
    "u64": np.array([2**53 + 1, 3, 7, 2**62, 0, 5], np.uint64),
    "f32": np.array([2**24, 0.1, -2.5, np.nan, np.inf, 5], np.float32),
    "f64": np.array([2.0**53, 0.1, -2.5, np.nan, -np.inf, 5], np.float64),
}
FORM = {"name": "Number", "fields": [{"name": name, "type": str(of.dtype)} for name, of in COLUMNS.items()]}

numbers: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(st.sampled_from(sorted(COLUMNS)), sums, quotients, calls)
)
constants = st.sampled_from(["0", "1", "-3", "7", "16777217", "0.1", "2.5", "-1e3", "1e-3"])
others = st.one_of(constants, numbers)
sums: st.SearchStrategy[str] = st.builds(
    "({} {} {})".format, numbers, st.sampled_from(["+", "-", "*", "/"]), others
)
quotients: st.SearchStrategy[str] = st.builds(
    "({} {})".format, numbers, st.sampled_from(["// 3", "% 7", "% 2.5", "** 2"])
)
calls: st.SearchStrategy[str] = st.builds("{}({})".format, st.sampled_from(["sqrt", "abs", "floor"]), numbers)
signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
comparisons = st.builds("{} {} {}".format, numbers, signs, others)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds("(({}) {} ({}))".format, inner, st.sampled_from(["and", "or", "&", "|"]), inner),
        inner.map("(not ({}))".format),
    ),
    max_leaves=4,
)


def by_numpy(text: str) -> list[bool]:
    """Evaluate a condition by NumPy, on columns of 64 bits."""
    wide = {name: of.astype(np.float64 if of.dtype.kind == "f" else np.int64) for name, of in COLUMNS.items()}
    functions = {name: _of_reals(getattr(np, name)) for name in ("sqrt", "floor", "abs")}
    for word, sign in (("(not (", "(~("), (") and (", ") & ("), (") or (", ") | (")):
        text = text.replace(word, sign)
    with np.errstate(all="ignore"):
        found = eval(text, {"__builtins__": {}}, wide | functions)
    return [bool(each) for each in np.broadcast_to(found, (6,))]


def _of_reals(function: Any) -> Any:
    return lambda values: function(np.float64(values))


@settings(max_examples=200, deadline=None)
@given(conditions)
def test_conditions_agree_with_numpy_in_64_bits(text: str) -> None:
    selection = Selection.parse(text, fb.definition_of(FORM))
    columns = COLUMNS | (selection.computed(ak.Array(COLUMNS)) if selection.terms else {})
    assert selection.evaluate(columns, 6).tolist() == by_numpy(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32 == i32", [5]),  # Single precision has no 2^24 + 1.
        ("f32 * 1 == u32 - 1", [0]),
        ("f32 == 0.1", []),
        ("f32 < 0.1", [2]),
        ("f32 * 10 <= 1", [2]),
        ("i32 + i32 > 4294967290", [3]),
        ("i8 * i8 == 16384", [4]),
        ("u16 - 1 < 0", [0]),
        ("i64 * 2 + 1 == 18014398509481987", [0]),
    ],
)
def test_numbers_are_computed_with_in_64_bits(text: str, expected: list[int]) -> None:
    selection = Selection.parse(text, fb.definition_of(FORM))
    assert np.flatnonzero(selection.evaluate(COLUMNS, 6)).tolist() == expected


def test_functions_in_terms_take_real_numbers() -> None:
    text = "abs(i64) // 3 % 2.5 > 0"  # The quotient is a term.
    selection = Selection.parse(text, fb.definition_of(FORM))
    assert selection.terms
    columns = COLUMNS | selection.computed(ak.Array(COLUMNS))
    assert selection.evaluate(columns, 6).tolist() == by_numpy(text)


def test_later_parts_of_a_condition_are_read_only_near_entries_that_meet_earlier_ones(tmp_path: Path) -> None:
    """The texts of the container are damaged, so that reading them fails."""
    fed = fb.create(tmp_path / "lhc.fed")
    fields: list[Any] = [{"name": "n", "type": "int32"}, {"name": "tag", "type": "string"}]
    fields.append({"name": "xs", "type": {"list": "int32"}})
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        tags = database.container("tags", {"name": "Tag", "fields": fields}, create=True, compression="none")
        tags.extend({"n": range(100), "tag": ["damaged"] * 100, "xs": [[n] for n in range(100)]})
    file = Path(fed.databases()[0]["path"])
    fed.close()
    file.write_bytes(file.read_bytes().replace(b"damageddamaged", b"damagedDamaged"))
    view = fb.open(tmp_path / "lhc.fed")["d/tags"]
    for text in ("tag == 'a' and n % 7 == 9", "n % 7 == 2 and tag == 'a' and len(xs) % 2 == 0"):
        assert view.entries(text).tolist() == []
    assert view.entries("any(xs == 5) and n % 7 == 5 and len(xs) == 1").tolist() == [5]
    with pytest.raises(fb.CorruptError):
        view.entries("n % 7 == 2 and tag == 'a'")
    told = view.explain("n", "tag == 'a' and n % 7 == 9")
    assert (told.condition, told.later) == (("n", "tag"), ("tag",))
    assert "reads n of 100 entries; if that can hold, tag" in str(told)

"""Arrays of each library to columns and back: values, names, types and memory."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import awkward as ak
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femtobarn as fb
from femtobarn._data.arrays import columns_of, tree_length
from femtobarn._data.layouts import BLOCK_BYTES, named_parts
from femtobarn._data.results import as_library, awkward_of, tree_nbytes
from femtobarn._schema.types import Field, List, Node, Optional, Primitive, Record, String

INTEGER = Primitive("int64")

an: Any = fb
"""The package, for annotations made at run time, which type checkers cannot follow."""


@fb.persistent
class Raw:
    number: int


@fb.persistent
class Numbers:
    x: fb.float32


@fb.persistent
class Track:
    pt: fb.float32
    hits: list[fb.uint16]


@fb.persistent
class Event:
    run: fb.uint32
    weight: float
    name: str
    blob: bytes
    cov: fb.array[fb.float32, Literal[3]]
    tracks: list[Track]
    best: Track
    charge: fb.int8 | None
    raw: fb.link[Raw]
    others: list[fb.link[Raw]]
    hit: fb.element_link[Raw]
    either: fb.variant[fb.int32, str]
    coarse: Annotated[float, fb.truncated(12)]
    good: fb.bool_


EVENT = fb.definition_of(Event).record
OID = fb.Oid(1, 2, 3)
LINK = {"database": 1, "container": 2, "entry": 3}

ROWS: list[dict[str, Any]] = [
    {
        "run": 1, "weight": 1.5, "name": "é", "blob": b"\0\1", "cov": [1, 2, 3],
        "tracks": [{"pt": 1.5, "hits": [1, 2]}], "best": {"pt": 1, "hits": []}, "charge": None,
        "raw": None, "others": [OID, OID], "hit": (OID, 7), "either": 3, "coarse": 0.5, "good": True,
    },
    {
        "run": 2, "weight": 2.5, "name": "", "blob": b"", "cov": [1, 2, 4],
        "tracks": [], "best": {"pt": 2, "hits": [5]}, "charge": 3,
        "raw": OID, "others": [], "hit": (OID, 8), "either": "x", "coarse": 2.0, "good": False,
    },
]  # fmt: skip
BACK = [
    ROWS[0] | {"raw": None, "others": [LINK, LINK], "hit": LINK | {"element": 7}},
    ROWS[1] | {"raw": LINK, "hit": LINK | {"element": 8}},
]


def one(annotation: Any) -> Record:
    """Return a class with the one field ``x``."""
    declared = fb.persistent(type("Probe", (), {"__annotations__": {"x": annotation}}))
    return fb.definition_of(declared).record


def there_and_back(data: Any, record: Record) -> ak.Array:
    return awkward_of(columns_of(data, record), record)


def test_every_type_survives_a_round_trip() -> None:
    array = there_and_back(ROWS, EVENT)
    assert array.to_list() == BACK
    assert there_and_back(array, EVENT).to_list() == BACK
    assert there_and_back(array[::-1], EVENT).to_list() == BACK[::-1]
    assert there_and_back(array[1:], EVENT).to_list() == BACK[1:]
    assert there_and_back(array[[1, 0, 1]], EVENT).to_list() == [BACK[1], BACK[0], BACK[1]]


def test_records_have_the_names_of_their_classes() -> None:
    array = there_and_back(ROWS, EVENT)
    assert ak.parameters(array)["__record__"] == "Event"
    assert ak.parameters(array.tracks[0])["__record__"] == "Track"


def test_arrays_without_entries_are_stored() -> None:
    tree = columns_of([], EVENT)
    assert tree_length(tree) == 0
    assert awkward_of(tree, EVENT).to_list() == []
    assert awkward_of(tree, EVENT).fields == list(EVENT.by_name)


def test_matching_layout_is_not_copied() -> None:
    pt = np.arange(6, dtype=np.float32)
    tracks = ak.Array(
        ak.contents.ListOffsetArray(
            ak.index.Index64(np.array([0, 2, 6])),
            ak.contents.RecordArray([ak.contents.NumpyArray(pt)], ["pt"]),
        )
    )
    tree = columns_of({"x": tracks}, one(list.__class_getitem__(type_with(pt=fb.float32))))
    buffer = tree[3][0][2][3][0][2]
    assert np.shares_memory(buffer, pt)
    assert np.shares_memory(
        np.asarray(awkward_of(tree, one(list[int])).x.layout.content.contents[0].data), pt
    )


def type_with(**annotations: Any) -> Any:
    return fb.persistent(type("Inner", (), {"__annotations__": annotations}))


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (an.uint8, np.array([0, 255], np.int64)),
        (an.int64, np.array([1, 2], np.uint8)),
        (an.float64, np.array([1.5, np.nan], np.float32)),
        (an.float32, np.array([1, 2**24], np.int32)),
        (an.float32, np.array([2**40, -(2**63)])),
        (an.float64, np.array([2**63], np.uint64)),
        (an.float32, np.array([1.5], np.float16)),
        (an.float16, np.array([1.5, 2.0])),
        (an.int32, np.array([1, 2], ">i4")),
        (an.int32, np.arange(10, dtype=np.int32)[::2]),
        (an.uint8, np.array([True, False])),
        (an.array[an.float64, 2], np.ones((3, 2))),
        (list[an.float64], np.ones((3, 2))),
        (an.array[an.array[an.int8, 2], 3], np.ones((4, 3, 2), np.int8)),
        (an.float64 | None, np.array([1.0])),
        (str, np.array(["a", "bc"])),
    ],
)
def test_numbers_are_converted_where_nothing_is_lost(annotation: Any, values: Any) -> None:
    array = there_and_back({"x": values}, one(annotation))
    np.testing.assert_array_equal(ak.to_numpy(array.x), values)


@pytest.mark.parametrize(
    ("annotation", "values", "reason"),
    [
        (an.uint8, np.array([1, 256]), r"256 \(value 1\) does not fit into uint8 \(0 to 255\)"),
        (an.uint32, np.array([-1]), "does not fit"),
        (an.float32, np.array([1.0, 1e300]), r"1e\+300 \(value 1\) does not fit"),
        (an.float32, np.array([2**24 + 1]), "exactly"),
        (an.float64, np.array([1, 2**53 + 1]), r"9007199254740993 \(value 1\) exactly"),
        (an.float64, np.array([2**63 - 1]), "exactly"),
        (an.float64, np.array([2**64 - 1], np.uint64), "exactly"),
        (an.float32, [2**24 + 1], "exactly"),
        (an.int32, np.array([1.0]), "round and convert"),
        (an.bool_, np.array([1]), "compare first"),
        (an.int64, np.array(["2020-01-01"], "M8[s]"), "convert to numbers"),
        (an.float32, ["a"], "cannot hold values of type string"),
        (an.float32, [1e300], "does not fit"),
        (str, [1], "is string"),
        (list[float], [1.0], r"is list\[float64\]"),
        (an.array[float, 2], [[1.0, 2.0], [3.0]], "takes 2 items, but value 1 has 1"),
        (float, [1.0, None], "1 values are missing"),
        (an.link["A"], [1], "give OIDs"),
        (an.variant[an.int32, an.float32], ["x"], "is variant"),
        (bytes, ["text"], "is bytes"),
        (float, [[1.0]], "is float64"),
        (float, 1.0, "float is not an array"),
    ],
)
def test_values_that_a_field_cannot_hold_are_refused(annotation: Any, values: Any, reason: str) -> None:
    with pytest.raises(fb.InvalidError, match=reason):
        columns_of({"x": values}, one(annotation))


@pytest.mark.parametrize(
    "values", [[0.1], np.array([0.1]), ak.Array([0.1]), pd.Series([0.1]), pa.array([0.1])]
)
def test_real_numbers_are_rounded_to_the_precision_of_their_field(values: Any) -> None:
    """Objects and lists were rounded, arrays wanted narrow=True."""
    assert there_and_back({"x": values}, one(an.float32)).x[0] == np.float32(0.1)
    special = there_and_back({"x": np.array([np.inf, -np.inf, np.nan])}, one(an.float32)).x
    np.testing.assert_array_equal(special, [np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("value", [np.array(0.1), np.array(2), np.float32(0.1), np.int64(2)])
def test_zero_dimensional_numbers_are_stored(tmp_path: Path, value: Any) -> None:
    """Real ones were refused with a TypeError, since their `__index__` fails."""
    with fb.create(tmp_path / "f.fed") as fed, fed.transaction() as txn:
        numbers = txn.database("d", create=True).container("n", Numbers, create=True)
        numbers.append({"x": value})
        assert numbers.view()["x"].to_list() == [np.float32(value)]
        with pytest.raises(fb.InvalidError, match="exactly a float32"):
            numbers.append({"x": np.array(2**24 + 1)})


class Stream:
    """A table of another library: it exports an Arrow stream, and nothing else."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """As :class:`Stream`, of one batch or array."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("of", [Stream, Batch, pa.Table.to_reader, pa.Table.to_batches])
def test_extend_takes_any_object_with_the_arrow_stream_interface(of: Any) -> None:
    """A reader of batches was taken for objects, a data frame of polars for no array."""
    record = fb.definition_of(Track).record
    table = pa.table({"hits": [[1], [2, 3]], "pt": [1.0, 2.0]})
    given = of(table.combine_chunks().to_batches()[0]) if of is Batch else of(table)
    rows = [{"pt": 1.0, "hits": [1]}, {"pt": 2.0, "hits": [2, 3]}]
    assert there_and_back(given[0] if isinstance(given, list) else given, record).to_list() == rows
    if of in (Stream, Batch):
        column = table["pt"] if of is Stream else table["pt"].chunk(0)
        assert there_and_back({"pt": of(column), "hits": [[1], [2, 3]]}, record).to_list() == rows
        with pytest.raises(fb.InvalidError, match="cannot be read as an Arrow table of named columns"):
            columns_of(of(column), record)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1], [2, 3]], pa.list_view(pa.int32())),
        ([(1, 2, 3)], pa.month_day_nano_interval()),
        ([Decimal("1.5")], pa.decimal128(3, 1)),
    ],
)
def test_unreadable_arrow_types_are_named_in_the_error(values: list[Any], kind: Any) -> None:
    """A list view was an AssertionError without text."""
    column = pa.array(values, kind)
    for data in ({"x": column}, {"x": pa.chunked_array([column])}, pa.table({"x": column})):
        with pytest.raises(fb.InvalidError, match=re.escape(f"type {kind} cannot be read; cast them first")):
            columns_of(data, one(an.int32))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_arrow_texts_of_every_layout_are_read(kind: Any) -> None:
    texts = ["a", "", "long enough not to be kept within a view"]
    column = pa.array(texts).cast(kind)
    assert there_and_back(pa.table({"x": column}), one(str)).x.to_list() == texts
    views = pa.DictionaryArray.from_arrays(
        pa.array([2, 0], pa.uint32()), pa.array(texts).cast(pa.string_view())
    )
    assert there_and_back({"x": views}, one(str)).x.to_list() == [texts[2], texts[0]]
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3]), column)
    assert there_and_back(pa.table({"x": nested}), one(list[str])).x.to_list() == [texts[:1], texts[1:]]


def test_null_links_are_missing_values() -> None:
    """They were records of zeros, so that `ak.is_none` was false for all."""
    record = one(list[an.link["Raw"]])
    array = there_and_back({"x": [[OID, None], [], [None]]}, record)
    assert array.x.to_list() == [[LINK, None], [], [None]]
    assert ak.is_none(array.x, axis=1).to_list() == [[False, True], [], [True]]
    whole = there_and_back({"x": [[OID], [], [OID]]}, record)
    assert array.type == whole.type, "of whatever values it is"
    assert there_and_back(array, record).x.to_list() == array.x.to_list()
    for library in ("pa", "pd"):
        assert there_and_back(as_library(array, record, library), record).to_list() == array.to_list()
    numbers = as_library(there_and_back({"x": [None, OID]}, one(an.link["Raw"])), one(an.link["Raw"]), "np")
    assert numbers["x"].tolist() == [(0, 0, 0), (1, 2, 3)]
    assert there_and_back(numbers, one(an.link["Raw"])).x.to_list() == [None, LINK]


def test_links_without_missing_values_are_not_copied() -> None:
    record = one(an.link["Raw"])
    links = columns_of({"x": [OID, OID]}, record)
    entries = awkward_of(links, record).x.entry
    assert np.shares_memory(ak.to_numpy(entries), links[3][0][3][2][2])
    again = columns_of(awkward_of(links, record), record)
    assert np.shares_memory(again[3][0][3][2][2], links[3][0][3][2][2])


def test_unknown_names_of_fields_are_refused_with_near_misses() -> None:
    record = fb.definition_of(Track).record
    with pytest.raises(fb.InvalidError, match=r"class Track has no field 'hist'; did you mean 'hits'?"):
        columns_of({"pt": [1.0], "hist": [[1]]}, record)
    with pytest.raises(fb.InvalidError, match="class Track needs field 'hits'"):
        columns_of({"pt": [1.0]}, record)
    with pytest.raises(fb.InvalidError, match=r"class Track \(field 'tracks'\) needs field 'pt'"):
        columns_of({"tracks": [[{"hits": [1]}]]}, Record("", (fb.definition_of(Event).fields[5],)))
    with pytest.raises(fb.InvalidError, match="pt has 1, hits has 2"):
        columns_of({"pt": [1.0], "hits": [[], []]}, record)


def test_extend_takes_pandas_and_arrow() -> None:
    array = there_and_back(ROWS, EVENT)
    table = as_library(array, EVENT, "pa")
    assert isinstance(table, pa.Table)
    assert there_and_back(table, EVENT).to_list() == BACK
    frame = pd.DataFrame({"pt": np.ones(2, np.float32), "hits": [[1], [2, 3]]})
    assert there_and_back(frame, fb.definition_of(Track).record).hits.to_list() == [[1], [2, 3]]
    flat = pd.DataFrame({"x": ["a", "b"]})
    assert there_and_back(flat, one(str)).x.to_list() == ["a", "b"]


@pytest.mark.parametrize("step", [1, -1, 3])
def test_many_rows_of_a_structured_array_have_the_fields_of_the_array(step: int) -> None:
    """Beyond some hundred KB the rows are divided into fields block by block."""
    link = [("database", "u4"), ("container", "u4"), ("entry", "u8")]
    types = [
        ("n", "u1"),
        ("x", ">f8"),
        ("hits", "u2", (2, 3)),
        ("to", link),
        ("name", "U2"),
        ("when", "M8[ns]"),
    ]
    rows = np.zeros(3 * BLOCK_BYTES // np.dtype(types).itemsize, np.dtype(types, align=True))
    raw = rows.view(np.uint8)
    raw[...] = np.random.default_rng(1).integers(0, 100, len(raw), np.uint8)
    rows["name"] = "ab"
    given = rows[::step]
    parts = named_parts(given) or {}
    assert tuple(parts) == rows.dtype.names
    for name, values in parts.items():
        assert (values.dtype, values.shape) == (given[name].dtype, given[name].shape)
        assert np.array_equal(values, given[name])


def test_many_rows_of_a_masked_structured_array_keep_their_mask() -> None:
    types = [("n", "i4"), ("x", "f8")]
    rows: Any = np.ma.zeros(3 * BLOCK_BYTES // np.dtype(types).itemsize, types)
    rows["x"][3] = np.ma.masked
    parts = named_parts(rows) or {}
    assert np.ma.getmaskarray(parts["x"]).nonzero()[0].tolist() == [3]
    assert not np.ma.getmaskarray(parts["n"]).any()


def test_extend_takes_structured_numpy_arrays_and_oid_ranges() -> None:
    oids = fb.OidRange(1, 2, 3, 5)
    array = there_and_back({"x": oids}, one(an.link["A"]))
    assert array.x.to_list() == [LINK, LINK | {"entry": 4}]
    assert there_and_back(np.array([(1.5,)], [("x", "f4")]), one(an.float32)).x.to_list() == [1.5]


def test_extend_takes_objects_of_persistent_classes() -> None:
    rows = [{"x": [Track(pt=1.0, hits=[1])]}, {"x": []}]
    assert there_and_back(rows, one(list[Track])).x.to_list() == [[{"pt": 1.0, "hits": [1]}], []]


def test_numpy_library_returns_columns_by_dotted_names() -> None:
    columns = as_library(there_and_back(ROWS, EVENT), EVENT, "np")
    assert columns["run"].tolist() == [1, 2]
    assert columns["cov"].shape == (2, 3)
    assert columns["best.pt"].tolist() == [1.0, 2.0]
    assert columns["tracks.pt"][0].tolist() == [1.5]
    assert columns["tracks.hits"][0][0].tolist() == [1, 2]
    assert columns["charge"].mask.tolist() == [True, False]
    assert columns["raw"]["entry"].tolist() == [0, 3]
    assert columns["either"].tolist() == [3, "x"]
    assert columns["blob"].tolist() == [b"\0\1", b""]


def test_pandas_library_returns_one_row_per_entry() -> None:
    frame = as_library(there_and_back(ROWS, EVENT)[["run", "tracks", "charge", "name"]], EVENT, "pd")
    assert frame["run"].dtype == np.uint32
    assert frame["tracks.pt"].tolist() == [[1.5], []]
    assert frame["charge"].isna().tolist() == [True, False]
    assert frame["name"].tolist() == ["é", ""]


def test_unknown_library_names_near_misses() -> None:
    with pytest.raises(fb.InvalidError, match="did you mean 'pandas'"):
        as_library(there_and_back(ROWS, EVENT), EVENT, "panda")


def test_size_of_a_tree_is_that_of_its_buffers() -> None:
    tree = columns_of({"x": np.ones(3)}, one(float))
    assert tree_nbytes(tree) == 24


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.one_of(st.none(), st.lists(st.integers(-100, 100))))))
def test_any_nesting_survives_a_round_trip(values: list[Any]) -> None:
    record = one(list[list[an.int8] | None])
    assert there_and_back({"x": values}, record).x.to_list() == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1), st.text(max_size=5))))
def test_any_variant_survives_a_round_trip(values: list[Any]) -> None:
    record = one(an.variant[an.int32, str])
    assert there_and_back({"x": values}, record).x.to_list() == values


@pytest.mark.parametrize(
    ("node", "values"),
    [
        (Optional(INTEGER), [1, 2, None, 4, None, 6]),
        (Optional(String()), ["a", "bb", None, "c", None, ""]),
        (Optional(List(Optional(INTEGER))), [[1], None, [3, None], [4], [], None]),
        (
            Optional(Record("", (Field("x", Optional(INTEGER)),))),
            [{"x": 1}, {"x": None}, None, {"x": 4}, None],
        ),
    ],
)
def test_slices_of_arrow_arrays_keep_their_own_missing_values(node: Node, values: list[Any]) -> None:
    """Awkward takes them from the beginning of the whole, so that other values were stored as 0."""
    table, record = pa.table({"a": pa.array(values)}), Record("", (Field("a", node),))
    for start in range(len(values)):
        array = awkward_of(columns_of(table.slice(start), record), record)
        assert array.a.to_list() == values[start:]

"""Views and what they read are tables for every program that knows Arrow, without a copy, batch by batch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="the extra `io` is not installed")

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import femtobarn as fb
from femtobarn._data.results import as_library
from femtobarn._schema.types import Record

COUNT = 5000


@fb.persistent
class Muon:
    pt: fb.float32
    charge: fb.int8


@fb.persistent
class Event:
    number: fb.uint64
    weight: float
    name: str
    best: fb.float32 | None
    pt: list[fb.float32]
    muons: list[Muon]


@pytest.fixture
def view(fed: fb.Federation) -> fb.View[Event]:
    counts = np.arange(COUNT) % 4
    flat = np.arange(counts.sum(), dtype=np.float32)
    muons = ak.zip({"pt": flat, "charge": np.ones(len(flat), np.int8)})
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container("events", Event, create=True)
        events.extend(
            {
                "number": np.arange(COUNT),
                "weight": np.arange(COUNT) / 2,
                "name": [f"n{number}" for number in range(COUNT)],
                "best": [None if number % 3 else number for number in range(COUNT)],
                "pt": ak.unflatten(flat, counts),
                "muons": ak.unflatten(muons, counts),
            }
        )
        events.delete([7])
    return fed["d/events"].of(Event)


READERS = {
    "pyarrow": lambda stream: pa.table(stream).to_pylist(),
    "polars": lambda stream: pl.DataFrame(stream).to_dicts(),
    "pandas": lambda stream: pa.Table.from_pandas(pd.DataFrame.from_arrow(stream)).to_pylist(),
    "duckdb": lambda stream: duckdb.sql("SELECT * FROM stream").to_arrow_table().to_pylist(),
}


@pytest.mark.parametrize("reader", READERS)
def test_views_selections_and_collections_are_read_by_other_programs(view: fb.View, reader: str) -> None:
    read: Any = READERS[reader]
    expected = view.arrays().to_list()
    assert read(view) == expected
    assert read(view[10:20]) == expected[10:20]
    assert read(view[[30, 4]]) == [expected[30], expected[4]]
    both = fb.concat([view[:3], view[20:22]])
    assert read(both) == both.arrays().to_list()
    aliases = {"double": "2 * number"}
    chosen: dict[str, Any] = {"where": "number > 4990 and npt > 1", "aliases": aliases}
    assert (
        read(view.to_arrow(["double", "muons.pt"], **chosen))
        == view.arrays(["double", "muons.pt"], **chosen).to_list()
    )
    assert read(view.to_arrow(where="number < 0")) == []


def test_a_stream_is_read_batch_by_batch_and_as_often_as_it_is_taken(view: fb.View) -> None:
    stream = view.to_arrow(["number", "name"], step_size=1000)
    assert "number, name" in repr(stream)
    for _ in range(2):
        batches = list(pa.RecordBatchReader.from_stream(stream))
        assert [batch.num_rows for batch in batches] == [999, 1000, 1000, 1000, 1000]
        assert pa.table(batches[0])["number"].to_pylist() == [n for n in range(1000) if n != 7]
    assert pa.schema(stream) == pa.schema(view.to_arrow(["number", "name"]))
    first = stream.to_reader().read_next_batch()
    assert first.num_rows == 999, "the rest is not read"
    again = duckdb.sql("SELECT a.name FROM stream a JOIN stream b USING (number) WHERE number = 9")
    assert again.fetchall() == [("n9",)]


def test_memory_of_a_stream_does_not_grow_with_the_view(fed: fb.Federation) -> None:
    """The peak of a process that reads 160 MB in batches of 2 MB."""
    form = {"name": "Number", "fields": [{"name": "n", "type": "float64"}]}
    with fed.transaction() as txn:
        numbers = txn.database("d", create=True).container("numbers", form, create=True)
        numbers.extend({"n": np.arange(20_000_000, dtype=np.float64)})
    script = f"""
import resource, femtobarn as fb, pyarrow as pa
fed = fb.open({str(fed.path)!r}, threads=1)
stream = fed["d/numbers"].to_arrow(step_size="2 MB")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
reader = pa.RecordBatchReader.from_stream(stream)
reader.read_next_batch(), reader.read_next_batch()
before = peak()
total = sum(len(batch) for batch in reader)
assert total > 19_000_000, total
assert peak() - before < 60, (before, peak())
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_numbers_and_texts_are_handed_over_in_the_memory_they_were_read_into(view: fb.View) -> None:
    array = view.arrays(["number", "name", "pt"], entry_start=8)
    table = view.to_arrow(["number", "name", "pt"], entry_start=8).schema
    made = as_library(array, Record("", tuple(view.definition.record.fields[i] for i in (0, 2, 4))), "pa")
    assert made.schema.equals(table)

    def place(values: Any) -> int:
        return int(np.asarray(values).__array_interface__["data"][0])

    column = {name: made[name].chunk(0) for name in array.fields}
    assert column["number"].buffers()[1].address == place(array.number.layout.data)
    assert column["name"].buffers()[2].address == place(array.name.layout.content.data)
    assert column["pt"].values.buffers()[1].address == place(array.pt.layout.content.data)


def test_a_wrong_field_or_condition_is_an_error_at_once(view: fb.View) -> None:
    with pytest.raises(fb.NotFoundError, match="did you mean 'number'"):
        view.to_arrow("numbr")
    with pytest.raises(fb.InvalidError, match="is not an expression"):
        view.to_arrow(where="number >")
    with pytest.raises(fb.InvalidError, match="step_size"):
        view.to_arrow(step_size=0).to_reader().read_next_batch()

"""Copies a container to a file of a peer.

    convert.py FEDERATION CONTAINER parquet|lance none|lz4|zstd TARGET

Parquet has row groups of 122,880 rows, DuckDB's recommendation, and of a hundredth of that for objects of
10 KB. Lists of bytes become binary values, which both formats have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

ROWS = 122_880
BLOBS = 1_200


def main() -> None:
    """Run one conversion."""
    federation, container, kind, compression, target = sys.argv[1:]
    import femtobarn as fb

    view = fb.open(federation)[container]
    rows = BLOBS if "blob" in view.fields else ROWS
    batches = (stored(each) for each in view.iterate(step_size=rows, library="pa"))
    first = next(batches)
    {"parquet": to_parquet, "lance": to_lance}[kind](target, compression, first, batches)


def stored(table: pa.Table) -> pa.Table:
    """The table with binary columns in the place of lists of bytes."""
    for at, field in enumerate(table.schema):
        if pa.types.is_large_list(field.type) and field.type.value_type == pa.uint8():
            lists = table.column(at).combine_chunks()
            lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
            buffers = [None, lists.buffers()[1], lists.values.buffers()[1]]
            blobs = pa.Array.from_buffers(pa.large_binary(), len(lists), buffers)
            table = table.set_column(at, pa.field(field.name, blobs.type, nullable=False), blobs)
    return table


def to_parquet(target: str, compression: str, first: pa.Table, rest: Iterator[pa.Table]) -> None:
    """Write a Parquet file, without dictionaries, which do not help with random values."""
    from pyarrow import parquet

    writer = parquet.ParquetWriter(target, first.schema, compression=compression, use_dictionary=False)
    with writer:
        for table in chain([first], rest):
            writer.write_table(table, row_group_size=len(table))


def to_lance(target: str, compression: str, first: pa.Table, rest: Iterator[pa.Table]) -> None:
    """Write a Lance data set in one file, with Lance's choice of encodings and the given compression."""
    import lance

    schema = pa.schema([compressed(field, compression) for field in first.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        for table in chain([first], rest):
            yield from table.cast(schema).to_batches()

    lance.write_dataset(
        pa.RecordBatchReader.from_batches(schema, batches()),
        target,
        max_rows_per_file=2**31,
        data_storage_version="2.1",
    )


def compressed(field: pa.Field, compression: str) -> pa.Field:
    """The field, or for lists the field of its items, with metadata that makes Lance compress it."""
    if pa.types.is_large_list(field.type):
        field = field.with_type(pa.large_list(compressed(field.type.value_field, compression)))
    return field.with_metadata({"lance-encoding:compression": compression})


if __name__ == "__main__":
    main()

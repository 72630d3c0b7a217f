"""Objects as streams of Arrow record batches, which other engines read batch by batch.

A stream reads nothing before another program takes it, and can be taken any number of times. Numbers and
texts, also those in lists, are handed over in the memory that they were read into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._data.results import as_library

if TYPE_CHECKING:
    from .._lazy import ak
    from .._schema.types import Record
    from .requests import Request

__all__ = ["ArrowStream"]


class ArrowStream:
    """A view's columns as a stream of Arrow, read on demand; see :meth:`femtobarn.View.to_arrow`."""

    def __init__(
        self, request: Request, empty: ak.Array, batches: Callable[[], Iterator[ak.Array]], name: str
    ) -> None:
        self._request = request
        self._empty = empty
        self._batches = batches
        self._name = name

    @cached_property
    def _record(self) -> Record:
        return self._request.type_of(self._empty, self._batches())

    @cached_property
    def schema(self) -> Any:
        """The types of the columns, as a schema of pyarrow."""
        return self._table(self._empty).schema

    def _table(self, batch: ak.Array) -> Any:
        return as_library(self._request.as_type(batch, self._record), self._record, "pa")

    def to_reader(self) -> Any:
        """Return a reader of pyarrow, which reads the batches once."""
        import pyarrow as pa

        schema = self.schema
        tables = (self._table(batch).cast(schema) for batch in self._batches())
        return pa.RecordBatchReader.from_batches(
            schema, (batch for table in tables for batch in table.to_batches())
        )

    def __arrow_c_schema__(self) -> Any:
        """Return the types of the columns, as Arrow's PyCapsule interface wants them. Nothing is read."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a stream of Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        columns = ", ".join(self._record.by_name)
        return f"<ArrowStream of {self._name}: {columns}>"

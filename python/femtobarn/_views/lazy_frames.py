"""Lazy frames of Polars over views: a query's projection and conditions are pushed down to the read.

Polars hands a source the columns, the number of rows and the conditions of a query. The conditions that
:mod:`femtobarn._views.polars_conditions` can say in the words of ``where`` select objects as those do; Polars
then applies all conditions, so that its own rules for missing values, NaN and rounding decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
from polars.io.plugins import register_io_source

from .polars_conditions import where_of

if TYPE_CHECKING:
    from .columns import Columns

__all__ = ["lazy_frame"]

BATCH_SIZE = "64 MB"
"""Memory of a batch. The number of rows that Polars suggests may be any size."""


def lazy_frame(view: Columns) -> pl.LazyFrame:
    """Return the objects of a view as a lazy frame; see :meth:`femtobarn.View.lazy`."""
    schema = pl.DataFrame(view.to_arrow(entry_stop=0)).schema
    return register_io_source(partial(_frames, view), schema=schema, is_pure=True)


def _frames(
    view: Columns,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield the columns and objects that a query needs, batch by batch."""
    # Polars counts rows before it applies a condition.
    where = where_of(predicate, view) if predicate is not None and n_rows is None else None
    stream = view.to_arrow(with_columns, where, step_size=BATCH_SIZE)
    left = n_rows
    for batch in stream.to_reader():
        frame = pl.DataFrame(batch).head(batch.num_rows if left is None else left)
        left = None if left is None else left - len(frame)
        yield frame if predicate is None else frame.filter(predicate)
        if left == 0:
            return

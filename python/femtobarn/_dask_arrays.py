"""Arrays of dask-awkward over partitions: a computation reads the columns that it uses.

dask-awkward needs a Dask from before 2025.4, so it is not installed with :mod:`femtobarn.dask`, which needs a
later one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._data.plain_layouts import as_plain
from ._lazy import ak
from ._objects.behaviours import array_behavior
from ._query.paths import Expressions
from ._query.selection import Where
from ._views.partitions import Partition

if TYPE_CHECKING:
    from ._views.view import View

try:
    from dask_awkward.lib.io.columnar import ColumnProjectionMixin
except ModuleNotFoundError:  # Then no array is made, but the module can be looked at.
    ColumnProjectionMixin = object

__all__ = ["to_awkward"]


class _ReadArrays(ColumnProjectionMixin):  # type: ignore[misc]
    """Reads a partition; dask-awkward selects the columns of a computation by :meth:`project_columns`."""

    use_optimization = True
    attrs = None

    def __init__(self, form: Any, expressions: Expressions, where: Where, original_form: Any = None) -> None:
        self.form = form
        self.original_form = original_form
        self.expressions = expressions
        self.where = where

    @property
    def behavior(self) -> Any:
        return array_behavior()

    def project_columns(self, columns: Iterable[str]) -> _ReadArrays:
        # Something has to be read for the number of objects.
        chosen = sorted(columns) or self.form.columns()[:1]
        return _ReadArrays(
            self.form.select_columns(chosen), chosen, self.where, self.original_form or self.form
        )

    def __call__(self, part: Partition) -> Any:
        from dask_awkward.lib.unproject_layout import unproject_layout

        found = part.arrays(self.expressions, self.where)
        # A computation may name fields of which it needs nothing.
        whole = unproject_layout(self.original_form, as_plain(found.layout))
        return ak.Array(whole, behavior=found.behavior, attrs=found.attrs)

    def __dask_tokenize__(self) -> Any:
        return "femtobarn.arrays", self.expressions, self.where


def to_awkward(view: View, expressions: Expressions, where: Where, size: int | str) -> Any:
    """Return a view as an array of dask-awkward; see :meth:`femtobarn.View.to_dask_awkward`."""
    import dask_awkward

    empty = view.arrays(expressions, entry_stop=0)
    parts = view.partitions(size, expressions)
    if not parts:
        return dask_awkward.from_awkward(empty, npartitions=1)
    layout = as_plain(empty.layout)
    read = _ReadArrays(layout.form, expressions, where)
    meta = ak.Array(layout.to_typetracer(forget_length=True), behavior=array_behavior())
    return dask_awkward.from_map(read, parts, label="femtobarn", meta=meta)

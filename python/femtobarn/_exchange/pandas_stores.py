"""Data frames and series in the HDF5 files of pandas: the parts of datasets that are their columns.

The fixed format has a dataset for all columns of one type; the format ``table`` has a compound dataset, of
which a member may be several columns.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .hdf5_values import Column

if TYPE_CHECKING:
    import h5py

__all__ = ["frame_columns", "is_frame"]

KINDS = ("frame", "series", "frame_table", "series_table")


def is_frame(group: h5py.Group) -> bool:
    """Whether pandas stored a data frame or a series in a group."""
    return _text(group.attrs.get("pandas_type")) in KINDS


def frame_columns(group: h5py.Group) -> list[Column]:
    """Return the columns of a data frame or a series, the index first."""
    kind = _text(group.attrs["pandas_type"])
    if kind.endswith("_table"):
        return list(_of_table(group["table"]))
    if kind == "series":
        name = _text(group.attrs.get("name"))
        parts = [("index", "index"), ("values", name if name and name != "N." else "values")]
        return [
            Column(name, group[part], stands_for=_type_of(group[part]))
            for part, name in parts
            if part in group
        ]
    index = [Column("index", group["axis1"], stands_for=_type_of(group["axis1"]))] if "axis1" in group else []
    found = {}
    for number in range(int(group.attrs["nblocks"])):
        values = group[f"block{number}_values"]
        names = [f"block{number}_{item}" for item in range(values.shape[-1])]
        if f"block{number}_items" in group:  # Names of several levels are elsewhere.
            names = _texts(group[f"block{number}_items"])
        for item, name in enumerate(names):
            part = None if values.ndim == 1 else item
            found[name] = Column(name, values, item=part, stands_for=_type_of(values))
    names = _texts(group["axis0"]) if "axis0" in group else []
    order = {name: number for number, name in enumerate(names)}
    return index + sorted(found.values(), key=lambda column: order.get(column.name, len(order)))


def _of_table(table: h5py.Dataset) -> Iterator[Column]:
    for member in table.dtype.names:
        kind = _text(table.attrs.get(f"{member}_kind"))
        dtype = _text(table.attrs.get(f"{member}_dtype")) or kind
        meta = _text(table.attrs.get(f"{member}_meta"))
        meant = meta if meta == "category" else _meant_by(dtype)
        names = _pickled_names(table.attrs.get(f"{member}_kind"))
        if table.dtype[member].subdtype is None:
            yield Column(names[0] if names else member, table, member, stands_for=meant)
            continue
        for item in range(table.dtype[member].shape[0]):
            name = names[item] if item < len(names) else f"{member}_{item}"
            yield Column(name, table, member, item, meant)


def _type_of(dataset: h5py.Dataset) -> str | None:
    """Return NumPy's name of the type that the numbers of a dataset stand for, if it is another one."""
    import h5py

    if dataset.id.get_type().get_class() == h5py.h5t.BITFIELD:
        return "bool"
    return _meant_by(_text(dataset.attrs.get("value_type")) or _text(dataset.attrs.get("kind")))


def _meant_by(text: str) -> str | None:
    if text == "bool":
        return text
    if not text.startswith("datetime64"):
        return None
    return f"{text.partition(',')[0].rstrip(']')}]" if "[" in text else "datetime64[ns]"


def _texts(dataset: h5py.Dataset) -> list[str]:
    return [_text(each) if isinstance(each, bytes) else str(each) for each in dataset[:].tolist()]


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


class _NamesOnly(pickle.Unpickler):
    """Reads lists of texts and numbers, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not a name of a column")


def _pickled_names(value: Any) -> list[str]:
    """Return the names that pandas pickled into an attribute; none if it has others."""
    if isinstance(value, bytes):
        with contextlib.suppress(Exception):
            found = _NamesOnly(io.BytesIO(value)).load()
            return [str(each) for each in found] if isinstance(found, list) else []
    return []

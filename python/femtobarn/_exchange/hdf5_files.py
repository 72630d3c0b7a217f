"""HDF5 files as sources of an import: a compound dataset, or the datasets of one length in a group.

h5py reads them in slices. The first dimension of a dataset counts the objects; the others are fixed arrays,
or lists where the items are not numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._exceptions import (
    BusyError,
    CorruptError,
    DeniedError,
    FemtobarnError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
    near_misses,
)
from .._schema.names import identifier
from .._schema.types import Definition, Field
from .file_kinds import stem_of
from .file_source import FileSource
from .hdf5_values import Column, NotStoredError
from .pandas_stores import frame_columns, is_frame

if TYPE_CHECKING:
    import h5py

__all__ = ["open_hdf5"]

BATCH_BYTES = 16_000_000
BATCH_ROWS = 1 << 16
"""Size of a slice, and the most rows that it has, since the sizes of texts and lists are not known before."""

SHOWN_TABLES_MAX = 10
"""Names of tables that an error shows."""


@contextmanager
def open_hdf5(path: Path, name: str | None) -> Iterator[FileSource]:
    """Open a table of an HDF5 file.

    Parameters
    ----------
    name
        The compound dataset, or the group with datasets of one length; the only one if not given.

    Raises
    ------
    BusyError
        If another program is writing the file.
    CorruptError
        If the file is damaged or is not an HDF5 file.
    DeniedError
        If the file may not be read.
    InvalidError
        If no name is given and the file has several tables, or the datasets of the group have unlike lengths.
    NotFoundError
        If there is no dataset or group of this name; near misses are named.
    UnsupportedError
        If h5py is not installed.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "HDF5 files are read by h5py, which is not installed: pip install 'femtobarn[io]'"
        ) from error
    with _reading(path):
        file = h5py.File(path, "r")
    with file:
        with _reading(path):
            source = _source(path, *_Tables(path, file).chosen(name))
        yield source


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Translate the errors of HDF5."""
    try:
        yield
    except FemtobarnError:
        raise
    except PermissionError as error:
        raise DeniedError(f"{path} may not be read: {error}") from error
    except BlockingIOError as error:
        raise BusyError(f"{path} is being written by another program: {error}") from error
    except (OSError, RuntimeError) as error:
        raise CorruptError(f"{path} is not an HDF5 file, or is damaged: {error}") from error


class _Tables:
    """The tables of a file, by their names.

    Datasets of one length that are in one group are a table; others are tables by themselves.
    """

    def __init__(self, path: Path, file: h5py.File) -> None:
        import h5py

        self._path = path
        self._groups: dict[str, dict[str, Any]] = {}
        self._columns: dict[str, list[Column]] = {}
        frames: list[str] = []

        def visit(name: str, item: Any) -> None:
            if any(name.startswith(f"{frame}/") for frame in frames) or "/_i_" in f"/{name}":
                return  # A part of a data frame, or an index of PyTables.
            if isinstance(item, h5py.Dataset):
                parent, _, own = name.rpartition("/")
                self._groups.setdefault(parent, {})[own] = item
            elif is_frame(item):
                frames.append(name)
                self._columns[name] = frame_columns(item)

        file.visititems(visit)
        for group, members in self._groups.items():
            datasets = {own: each for own, each in members.items() if each.shape}
            if len(datasets) > 1 and len({each.shape[0] for each in datasets.values()}) == 1:
                self._columns[group] = [Column(own, each) for own, each in datasets.items()]
            else:
                self._columns |= {
                    f"{group}/{own}".lstrip("/"): _columns_of(own, each) for own, each in datasets.items()
                }

    def chosen(self, name: str | None) -> tuple[str, list[Column], dict[str, str]]:
        """Return the name of the requested table, its columns, and the other members of its group."""
        if name is None:
            if len(self._columns) != 1:
                raise InvalidError(self._several() if self._columns else f"{self._path} has no tables")
            name = next(iter(self._columns))
        name = name.strip("/")
        group, _, own = name.rpartition("/")
        if name in self._columns:
            single = {key: each for key, each in self._groups.get(name, {}).items() if not each.shape}
            return name, self._columns[name], dict.fromkeys(single, "it is a single value")
        if own in self._groups.get(group, {}):
            if not self._groups[group][own].shape:
                raise InvalidError(f"{name!r} in {self._path} is a single value, not a table")
            return name, _columns_of(own, self._groups[group][own]), {}
        if name in self._groups:
            lengths = ", ".join(
                f"{key} has {each.shape[0]:,}" for key, each in self._groups[name].items() if each.shape
            )
            raise InvalidError(
                f"the datasets of {name!r} in {self._path} have unlike lengths: {lengths}; name one"
            )
        raise NotFoundError(
            f"{self._path} has no table {name!r}{near_misses(name, [each or '/' for each in self._columns])}"
        )

    def _several(self) -> str:
        names = [name or "/" for name in self._columns]
        shown = ", ".join(names[:SHOWN_TABLES_MAX]) + (", ..." if len(names) > SHOWN_TABLES_MAX else "")
        return f"{self._path} has tables {shown}; name one, as in {self._path.name}:{names[0]}"


def _columns_of(name: str, dataset: Any) -> list[Column]:
    """Return the members of a compound dataset as columns, or another dataset as one."""
    if dataset.dtype.names is None or dataset.ndim > 1:
        return [Column(name, dataset)]
    return [Column(member, dataset, member) for member in dataset.dtype.names]


def _source(path: Path, tree: str, columns: list[Column], skipped: dict[str, str]) -> FileSource:
    fields: dict[str, Field] = {}
    stored: dict[str, Column] = {}
    for column in columns:
        name = identifier(column.name)
        try:
            field = Field(name, column.node)
        except NotStoredError as error:
            skipped[column.name] = str(error)
            continue
        if name in fields:
            raise InvalidError(f"{path} has columns of the same name {name!r}; rename them")
        fields[name], stored[name] = field, column
    if not fields:
        raise InvalidError(f"{path} has no column that can be stored in {tree or '/'!r}: {skipped}")
    rows = len(next(iter(stored.values())).dataset)
    datasets = {column.dataset.name: column for column in stored.values()}
    row_bytes = max(1, sum(column.row_bytes for column in datasets.values()))
    step = min(BATCH_ROWS, max(1, BATCH_BYTES // row_bytes))

    def batches(chosen: list[str]) -> Iterator[Any]:
        for start in range(0, rows, step):
            slices: dict[str, Any] = {}
            for name in chosen:
                dataset = stored[name].dataset
                if dataset.name not in slices:
                    with _reading(path):
                        slices[dataset.name] = dataset[start : start + step]
            yield {name: stored[name].layout(slices[stored[name].dataset.name]) for name in chosen}

    own = identifier(tree.rpartition("/")[2] or stem_of(path))
    return FileSource(own, Definition(own, 1, tuple(fields.values())), rows, tree, batches, skipped=skipped)

"""Partitions: ranges of a container's objects, which other processes read.

A partition has less than 2 KB when pickled, and opens the federation where it is first read from, in whatever
thread or process that is. A process keeps the last divided views open, so that only the first partition of a
view opens anything there.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .._exceptions import InvalidError
from .._query.paths import Expressions
from .._query.projections import Projection
from .._sizes import bytes_of_size

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .view import View

__all__ = ["Partition", "divided", "ranges"]

VIEWS_MAX = 8
"""Divided views that a process keeps open."""


class Partition:
    """A range of the objects of a view, to be read anywhere; see :meth:`femtobarn.View.partitions`."""

    __slots__ = ("_data", "_snapshot", "_window", "key", "nbytes")

    def __init__(
        self, data: bytes, window: range, key: str, nbytes: int, snapshot: Snapshot | None = None
    ) -> None:
        self._data = data
        self._window = window
        # Keeps vacuum from deleting data that are still to be read, in the process that made the partition.
        self._snapshot = snapshot
        self.key = key
        """A text that no other range of a container of the snapshot has."""
        self.nbytes = nbytes
        """Stored bytes of the columns that the partitions were made for."""

    @property
    def num_entries(self) -> int:
        """Number of entries, including those of deleted objects."""
        return len(self._window)

    @property
    def view(self) -> View:
        """The objects, as a view."""
        return _view_here(os.getpid(), self._data)._within(self._window)

    def arrays(self, expressions: Expressions = None, where: Any = None, **options: Any) -> Any:
        """Read fields as arrays; see :meth:`femtobarn.View.arrays`."""
        return self.view.arrays(expressions, where, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Partition, (self._data, self._window, self.key, self.nbytes)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "femtobarn.Partition", self._data, self._window.start, self._window.stop

    def __repr__(self) -> str:
        return f"<Partition {self.key}: {self.num_entries:,} entries>"


@lru_cache(maxsize=VIEWS_MAX)
def _view_here(process: int, data: bytes) -> View:
    """Return the view that was divided, opened in this process."""
    view: View = pickle.loads(data)
    return view


def divided(view: View, size: int | str, columns: Expressions) -> list[Partition]:
    """Return the partitions of a view; see :meth:`femtobarn.View.partitions`."""
    parts = ranges(view, size, columns)
    data = pickle.dumps(view) if parts else b""
    return [_partition(view, data, part, nbytes) for part, nbytes in parts]


def ranges(view: View, size: int | str, columns: Expressions = None) -> list[tuple[range, int]]:
    """Return the ranges of entries that partitions of a view have, with the stored bytes of each."""
    most_entries = size if isinstance(size, int) else None
    most_bytes = None if isinstance(size, int) else bytes_of_size(size)
    if (most_entries or most_bytes or 0) < 1:
        raise InvalidError(f"invalid size {size!r}: partitions have 1 or more entries or bytes")
    paths = Projection.of(columns, view.definition).paths
    window, clusters = view._window, view._handle.cluster_sizes(paths)
    parts: list[tuple[range, int]] = []
    for start, stop, nbytes in clusters:
        inside = range(max(start, window.start), min(stop, window.stop))
        if not inside:
            continue
        for piece, its_bytes in _pieces(inside, nbytes * len(inside) // (stop - start), most_entries):
            last, before = parts[-1] if parts else (range(0), 0)
            joined = range(last.start, piece.stop)
            is_room = len(joined) <= most_entries if most_entries else before + its_bytes <= (most_bytes or 0)
            if parts and is_room:
                parts[-1] = joined, before + its_bytes
            else:
                parts.append((piece, its_bytes))
    return parts


def _pieces(cluster: range, nbytes: int, most_entries: int | None) -> Sequence[tuple[range, int]]:
    """Return the parts of a cluster, each of at most `most_entries`, with their shares of its bytes."""
    step = min(most_entries or len(cluster), len(cluster))
    starts = range(cluster.start, cluster.stop, step)
    pieces = [range(start, min(start + step, cluster.stop)) for start in starts]
    return [(piece, nbytes * len(piece) // len(cluster)) for piece in pieces]


def _partition(view: View, data: bytes, part: range, nbytes: int) -> Partition:
    key = f"{view.name}[{part.start}:{part.stop}] as of {view.snapshot.csn}"
    return Partition(data, part, key, nbytes, view.snapshot)

"""Object identifiers: single, in ranges and in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ._femtobarn import Oid
from ._positions import checked_slice, is_number, positions_of

__all__ = ["OID_DTYPE", "Oid", "OidArray", "OidRange", "are_oids"]

Entries = np.ndarray[Any, np.dtype[np.uint64]]

OID_DTYPE = np.dtype([("database", np.uint32), ("container", np.uint32), ("entry", np.uint64)])
"""NumPy type of the record of an OID."""


class OidRange(Sequence[Oid]):
    """OIDs of consecutive entries of one container, such as a bulk append returns.

    Examples
    --------
    >>> oids = OidRange(3, 7, 100, 103)
    >>> oids[0], len(oids), oids[1:]
    (Oid(3, 7, 100), 3, OidRange(3, 7, 101, 103))
    """

    __slots__ = ("_entries", "container", "database", "start", "stop")

    def __init__(self, database: int, container: int, start: int, stop: int) -> None:
        self.database = database
        self.container = container
        self.start = start
        self.stop = max(start, stop)
        self._entries = range(self.start, self.stop)

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Oid: ...
    @overload
    def __getitem__(self, index: slice) -> OidRange | OidArray: ...
    @overload
    def __getitem__(self, index: Sequence[int] | np.ndarray[Any, Any]) -> OidArray: ...
    def __getitem__(self, index: Any) -> Oid | OidRange | OidArray:
        if type(index) is int or is_number(index):
            return Oid(self.database, self.container, self._entries[index])
        if isinstance(index, slice):
            part = self._entries[checked_slice(index, "the range of OIDs")]
            if part.step == 1:
                return OidRange(self.database, self.container, part.start, part.stop)
        positions = positions_of(index, len(self), "the range of OIDs")
        return OidArray(self.database, self.container, positions.astype(np.uint64) + np.uint64(self.start))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OidRange) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"OidRange({self.database}, {self.container}, {self.start}, {self.stop})"

    def _key(self) -> tuple[int, int, int, int]:
        return self.database, self.container, self.start, self.stop

    def to_numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the OIDs as a structured array, which can be stored in fields of links.

        Examples
        --------
        >>> OidRange(3, 7, 100, 102).to_numpy()["entry"]
        array([100, 101], dtype=uint64)
        """
        return _records(self.database, self.container, self.entries)

    @property
    def entries(self) -> Entries:
        """Entries of the objects in their container."""
        return np.arange(self.start, self.stop, dtype=np.uint64)


class OidArray(Sequence[Oid]):
    """OIDs of objects of one container, in any order.

    Examples
    --------
    >>> oids = OidRange(3, 7, 100, 110)[[2, -1]]
    >>> oids, oids[0], oids[[False, True]]
    (OidArray(3, 7, [102, 109]), Oid(3, 7, 102), OidArray(3, 7, [109]))
    """

    __slots__ = ("container", "database", "entries")

    def __init__(self, database: int, container: int, entries: Sequence[int] | Entries) -> None:
        self.database = database
        self.container = container
        self.entries: Entries = np.asarray(entries, np.uint64)
        """Entries of the objects in their container."""

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Oid: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | np.ndarray[Any, Any]) -> OidArray: ...
    def __getitem__(self, index: Any) -> Oid | OidArray:
        if is_number(index):
            return Oid(self.database, self.container, int(self.entries[index]))
        positions = positions_of(index, len(self), "the array of OIDs")
        return OidArray(self.database, self.container, self.entries[positions])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OidArray):
            return False
        is_there = (self.database, self.container) == (other.database, other.container)
        return is_there and np.array_equal(self.entries, other.entries)

    def __hash__(self) -> int:
        return hash((self.database, self.container, self.entries.tobytes()))

    def __repr__(self) -> str:
        shown = np.array2string(self.entries, separator=", ", threshold=8)
        return f"OidArray({self.database}, {self.container}, {shown})"

    def to_numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the OIDs as a structured array, which can be stored in fields of links."""
        return _records(self.database, self.container, self.entries)


def _records(database: int, container: int, entries: Entries) -> np.ndarray[Any, np.dtype[Any]]:
    oids = np.empty(len(entries), OID_DTYPE)
    oids["database"] = database
    oids["container"] = container
    oids["entry"] = entries
    return oids


def are_oids(index: object) -> bool:
    """Whether an index of objects is a list, range or array of OIDs."""
    return isinstance(index, OidRange | OidArray) or (
        isinstance(index, list | tuple) and bool(index) and all(isinstance(each, Oid) for each in index)
    )

"""Object ids, one by one and in ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from ._femtobarn import Oid

__all__ = ["OID_DTYPE", "Oid", "OidRange"]

OID_DTYPE = np.dtype([("database", np.uint32), ("container", np.uint32), ("entry", np.uint64)])
"""NumPy type of an array of OIDs."""


class OidRange(Sequence[Oid]):
    """OIDs of neighbouring objects of one container, such as those that a bulk append gave.

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
    def __getitem__(self, index: slice) -> OidRange: ...
    def __getitem__(self, index: int | slice) -> Oid | OidRange:
        if isinstance(index, slice):
            part = self._entries[index]
            if part.step != 1:
                raise IndexError("a range of OIDs has no gaps; take a slice without a step")
            return OidRange(self.database, self.container, part.start, part.stop)
        return Oid(self.database, self.container, self._entries[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OidRange) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"OidRange({self.database}, {self.container}, {self.start}, {self.stop})"

    def _key(self) -> tuple[int, int, int, int]:
        return self.database, self.container, self.start, self.stop

    def to_numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the OIDs as a structured array, to be stored in links.

        Examples
        --------
        >>> OidRange(3, 7, 100, 102).to_numpy()["entry"]
        array([100, 101], dtype=uint64)
        """
        oids = np.empty(len(self), OID_DTYPE)
        oids["database"] = self.database
        oids["container"] = self.container
        oids["entry"] = np.arange(self.start, self.stop, dtype=np.uint64)
        return oids

"""Links inside awkward arrays: each knows its OID and can fetch what it leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from ._exceptions import InvalidError
from ._femtobarn import oid_records
from ._oid import OID_DTYPE, Oid

if TYPE_CHECKING:
    from ._snapshots import Snapshot

__all__ = ["BEHAVIOR", "SNAPSHOT", "link_records"]

SNAPSHOT = "@femtobarn.snapshot"
"""Attribute of an awkward array: the snapshot that it was read from; not pickled with it."""


def _snapshot_of(array: Any) -> Snapshot:
    snapshot = array.attrs.get(SNAPSHOT)
    if snapshot is None:
        raise InvalidError("this array no longer knows its snapshot; use snapshot.fetch(links)")
    result: Snapshot = snapshot
    return result


class LinkRecord(ak.Record):  # type: ignore[misc]
    """One link in an awkward array."""

    @property
    def oid(self) -> Oid | None:
        """The OID that the link holds, or None if it is null."""
        members = [int(self[name]) for name in ("database", "container", "entry")]
        return Oid(*members) if members[1] else None

    def get(self) -> Any:
        """Return the object that the link leads to, or None if it is null."""
        oid = self.oid
        return None if oid is None else _snapshot_of(self).object(oid)


class LinkArray(ak.Array):  # type: ignore[misc]
    """Links in an awkward array, of any nesting."""

    def fetch(self, expressions: Any = None) -> ak.Array:
        """Return fields of the objects that the links lead to, nested as the links are."""
        snapshot = _snapshot_of(self)

        def replace(layout: Any, **_: Any) -> Any:
            if layout.is_record:
                return snapshot.fetch(link_records(ak.Array(layout)), expressions).layout
            return None

        return ak.transform(replace, self, behavior=BEHAVIOR, attrs=self.attrs)


BEHAVIOR: dict[Any, Any] = {
    "Link": LinkRecord,
    ("*", "Link"): LinkArray,
    "ElementLink": LinkRecord,
    ("*", "ElementLink"): LinkArray,
}
"""What awkward makes of records of links; given to each array, so that it changes no other library."""


def link_records(links: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return OIDs in any form as a structured array with ``database``, ``container`` and ``entry``."""
    if isinstance(links, ak.Array) and links.ndim == 1 and links.fields:
        return _filled(len(links), {name: ak.to_numpy(links[name]) for name in OID_DTYPE.names or ()})
    if isinstance(links, np.ndarray) and links.dtype.names is not None:
        return _filled(len(links), {name: links[name] for name in OID_DTYPE.names or ()})
    if hasattr(links, "to_numpy") and not isinstance(links, ak.Array):
        result: np.ndarray[Any, np.dtype[Any]] = links.to_numpy()
        return result
    return np.frombuffer(memoryview(oid_records(links)), OID_DTYPE)


def _filled(length: int, columns: dict[str, Any]) -> np.ndarray[Any, np.dtype[Any]]:
    records = np.empty(length, OID_DTYPE)
    for name, values in columns.items():
        records[name] = values
    return records

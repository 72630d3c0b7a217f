"""Links in awkward arrays: each has its OID, and fetches its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from .._exceptions import InvalidError, NotFoundError
from .._femtobarn import oid_records
from .._oid import OID_DTYPE, Oid

if TYPE_CHECKING:
    from .._snapshots import Snapshot

__all__ = ["LINKS", "SNAPSHOT", "link_records"]

SNAPSHOT = "@femtobarn.snapshot"
"""Attribute of an awkward array that holds the snapshot it was read from. It is not pickled."""


def _snapshot_of(array: Any) -> Snapshot:
    snapshot = array.attrs.get(SNAPSHOT)
    if snapshot is None:
        raise InvalidError(
            "this array has lost its snapshot, for example in a pickle; use snapshot.fetch(links)"
        )
    result: Snapshot = snapshot
    return result


class LinkRecord(ak.Record):  # type: ignore[misc]
    """A link in an awkward array; a null link is None instead."""

    @property
    def oid(self) -> Oid:
        """OID of the target."""
        return Oid(*(int(self[name]) for name in OID_DTYPE.names or ()))

    def get(self) -> Any:
        """Return the target of the link."""
        return _snapshot_of(self).object(self.oid)


class LinkArray(ak.Array):  # type: ignore[misc]
    """Links in an awkward array, nested to any depth."""

    def fetch(self, expressions: Any = None) -> ak.Array:
        """Return fields of the targets, nested as the links are."""
        snapshot = _snapshot_of(self)

        def replace(layout: Any, **_: Any) -> Any:
            if layout.is_record or (layout.is_option and layout.content.is_record):
                return snapshot.fetch(link_records(ak.Array(layout)), expressions).layout
            return None

        return ak.transform(replace, self, behavior=self.behavior, attrs=self.attrs)


class _LeadingToTargets:
    """Links to objects: an attribute that links lack is one of the target."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name.startswith("_") or SNAPSHOT not in self.attrs:
                raise
        return self._of_target(name)


class ObjectLinkRecord(_LeadingToTargets, LinkRecord):
    """A link to an object."""

    def _of_target(self, name: str) -> Any:
        return getattr(self.get(), name)


class ObjectLinkArray(_LeadingToTargets, LinkArray):
    """Links to objects, whose fields are read for all targets at once."""

    def _of_target(self, name: str) -> Any:
        try:
            return self.fetch(name)[name]
        except NotFoundError as error:
            raise AttributeError(str(error)) from None


LINKS: dict[Any, Any] = {
    "Link": ObjectLinkRecord,
    ("*", "Link"): ObjectLinkArray,
    "ElementLink": LinkRecord,
    ("*", "ElementLink"): LinkArray,
}
"""Behaviours of awkward for records of links."""


def link_records(links: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return OIDs in any form as a structured array with ``database``, ``container`` and ``entry``."""
    if isinstance(links, ak.Array) and links.ndim == 1 and links.fields:
        columns = {name: ak.to_numpy(links[name]) for name in OID_DTYPE.names or ()}
        return _filled(len(links), {name: np.ma.filled(column, 0) for name, column in columns.items()})
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

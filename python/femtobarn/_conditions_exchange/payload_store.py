"""Payloads as objects of a database's container ``payloads``, each stored once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._conditions.payloads import Payload
from .sources import Source, kinds_checked

if TYPE_CHECKING:
    from .._oid import Oid
    from .._snapshots import Snapshot
    from .._transactions import Transaction

__all__ = ["PayloadStore"]

CONTAINER = "payloads"
IDENTITY = ("sha256", "name", "media_type", "details")
"""Fields that are equal for two payloads only if they are the same."""


class PayloadStore:
    """The payloads of a database within the transaction of an import."""

    def __init__(self, txn: Transaction, snapshot: Snapshot, database: str) -> None:
        self._container = txn.database(database, create=True).container(CONTAINER, Payload, create=True)
        self._by_identity: dict[tuple[str, ...], Oid] = {}
        self._by_key: dict[str, Oid] = {}
        path = f"{database}/{CONTAINER}"
        if path in snapshot:
            view = snapshot[path]
            known = view.arrays(list(IDENTITY)).to_list()
            for position, row in enumerate(known):
                self._by_identity[tuple(row[name] for name in IDENTITY)] = view.oid(position)

    def link(self, source: Source, key: str) -> Oid:
        """Return the object with a payload of the source, stored now if it is not yet."""
        oid = self._by_key.get(key)
        if oid is None:
            with kinds_checked(f"{source.location}: payload {key}"):
                payload = source.payload(key)
            identity = tuple(getattr(payload, name) for name in IDENTITY)
            oid = self._by_identity.get(identity)
            if oid is None:
                oid = self._by_identity[identity] = self._container.append(payload)
            self._by_key[key] = oid
        return oid

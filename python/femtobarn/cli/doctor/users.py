"""Checks of the users of a federation: the rights of this user, locks, waits, and pinned snapshots."""

from __future__ import annotations

import fcntl
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..._exceptions import DeniedError, NotFoundError
from ..._federations import Federation
from .finding import Finding, note, ok

__all__ = ["look_at_pins", "look_at_rights", "look_at_waits"]

LOCK = struct.Struct("hhqqi4x")
"""The kernel's ``struct flock`` on 64-bit machines: kind, origin, start, length, process."""


def look_at_rights(federation: Federation) -> Finding:
    """Tell whether this user may change a federation."""
    try:
        # Takes no lock before it is given a database.
        federation.transaction().rollback()
    except DeniedError as error:
        return note("rights", f"this user may only read: {error}")
    return ok("rights", "this user may read and write")


def look_at_waits(federation: Federation) -> Finding:
    """Report how many locks are held, and the longest wait."""
    held, waits = federation.locks(), federation.waits()
    fact = f"{len(held):,} held"
    if not waits:
        return ok("locks", fact + ", nobody waits")
    longest = waits[0]
    of = longest["container"] or longest["database"] or longest["target"]
    holder = longest["holder"] or "several"
    fact += f", {len(waits):,} waited for; {longest['waiter']} waits for {of}, which {holder} holds"
    return note("locks", fact, "end the holder if it hangs; writers of different containers do not wait")


def look_at_pins(federation: Federation, folder: Path) -> Finding:
    """Tell whether a reader keeps a snapshot open that retention would give up."""
    pinned = _oldest_pin(folder / "locks" / "snapshots", federation.head())
    if pinned is None:
        return ok("snapshots", "none but the newest is open")
    fact = f"commit {pinned:,} is open, the newest is {federation.head():,}"
    kept_from = _kept_from(federation)
    if kept_from is None or pinned >= kept_from:
        return ok("snapshots", fact)
    return note(
        "snapshots",
        f"{fact}, and retention keeps from {kept_from:,} on: vacuum cannot free the versions that this "
        "reader needs",
        "end the reader; lsof locks/snapshots names processes, femtobarn top clients of a server",
    )


def _kept_from(federation: Federation) -> int | None:
    """Return the oldest commit that the retention keeps; None if it keeps all."""
    limits, kept = federation.retention(), []
    if limits["keep_commits"] is not None:
        kept.append(max(0, federation.head() - limits["keep_commits"] + 1))
    if limits["keep_days"] is not None:
        try:
            kept.append(federation.snapshot(time=datetime.now(UTC) - timedelta(limits["keep_days"])).csn)
        except NotFoundError:
            kept.append(0)
    return min(kept) if kept else None


def _oldest_pin(file: Path, head: int) -> int | None:
    """Return the oldest commit before the newest that a process has open; it locks a byte (docs/format.md).

    F_OFD_GETLK acquires no lock: it returns one that would conflict.
    """
    oldest: int | None = None
    try:
        with file.open("rb") as probe:
            end = head
            while end > 0:
                wanted = LOCK.pack(fcntl.F_WRLCK, 0, 0, end, 0)
                kind, _, start, _, _ = LOCK.unpack(fcntl.fcntl(probe, fcntl.F_OFD_GETLK, wanted))
                if kind == fcntl.F_UNLCK:
                    break
                oldest = end = start
    except OSError:
        return oldest
    return oldest

"""Merging a branch: its changes are put into the series that it is based on, in one transaction.

Three versions of a series are compared at every moment: its base (the version on which the branch is based),
the branch, and the series now. After a merge, the merged branch is the base of the next merge, so that a
second merge does nothing.

Invariants
----------
1. Where the branch equals its base, the series stays as it is. Where it differs, and the series equals the
   base or the branch, the series has the condition of the branch afterwards.
2. Elsewhere there is a conflict. Nothing at all is changed then, unless the caller chooses a side.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._data.casts import Values
from .._exceptions import DeniedError, ExistsError, InvalidError, MergeConflictError, NotFoundError
from .._femtobarn import SeriesHandle
from .clocks import BEGINNING, FOREVER, shown
from .comparisons import entries_or_gaps, is_same, same_entries
from .derived_series import cut
from .jobs import Job
from .series import Series
from .series_writers import SeriesWriter

if TYPE_CHECKING:
    from .._federations import Federation
    from .._snapshots import Snapshot
    from .._transactions import Transaction

__all__ = ["Conflict", "Merged", "OnConflict", "merge", "merges_of"]

OnConflict = Literal["refuse", "ours", "theirs"]
"""The side that wins where both have changed: none, the series, or the branch."""

DATABASE, CONTAINER = "conditions", "merges"
"""Where the merges are recorded."""

RECORD = {
    "name": "femtobarn::Merge",
    "fields": [
        {"name": "branch", "type": "string", "description": "the branch"},
        {"name": "into", "type": "string", "description": "the global tag; empty: the series themselves"},
        {"name": "csn", "type": "uint64", "description": "commit as of which the branch was merged"},
        {"name": "conflicts", "type": "uint64", "description": "number of ranges that both had changed"},
        {"name": "on_conflict", "type": "string", "description": "the side that was taken there"},
        {"name": "time", "type": "int64", "description": "time of the merge [ns since 1970]"},
        {"name": "user", "type": "string", "description": "user who merged"},
        {"name": "message", "type": "string", "description": "reason of the merge"},
    ],
}

CONFLICTS_SHOWN = 5
"""Conflicts that the text of an error lists."""


@dataclass(frozen=True)
class Conflict:
    """A range of a series' clock that both the branch and the series have changed, to different values."""

    series: str
    """Path of the series."""
    channel: int
    """The channel."""
    since: int
    """The first moment of the range."""
    until: int
    """The first moment after the range."""
    base: dict[str, Any] | None
    """The condition that the branch is based on; None in a gap."""
    ours: dict[str, Any] | None
    """The condition of the series."""
    theirs: dict[str, Any] | None
    """The condition of the branch."""
    clock: str
    """Clock of the series."""

    def __str__(self) -> str:
        ends = " to ".join(shown(moment, self.clock) for moment in (self.since, self.until))
        return (
            f"{self.series} channel {self.channel}, {ends}: {self.base} became {self.ours}, and "
            f"{self.theirs} in the branch"
        )


@dataclass(frozen=True)
class Merged:
    """The result of a merge."""

    csn: int | None
    """The commit of the merge; None if there was nothing to merge."""
    put: int
    """Number of ranges in which a series has other conditions than before."""
    conflicts: list[Conflict]
    """The ranges that both had changed, in the order of series, channels and time."""


def merge(
    federation: Federation, branch: str, into: str | None, on_conflict: OnConflict, message: str
) -> Merged:
    """Merge a branch; see :meth:`Conditions.merge`."""
    if on_conflict not in ("refuse", "ours", "theirs"):
        raise InvalidError(f"on_conflict must be 'refuse', 'ours' or 'theirs', not {on_conflict!r}")
    theirs = federation.conditions(branch)
    tag = theirs.global_tag
    assert tag is not None
    if not tag["is_branch"]:
        raise InvalidError(f"global tag {branch!r} is not a branch, so it has nothing to merge")
    csn = theirs._handle.resolved_at
    reason = f"merge {branch} into {into or 'the series'}" + (f": {message}" if message else "")
    with federation.transaction(message=reason) as txn:
        # The lock of the records is taken first: nobody else merges meanwhile.
        records = txn.database(DATABASE, create=True).container(CONTAINER, RECORD, create=True)
        last = _last_merge(txn, branch, into)
        base = None if last is None else federation.conditions(branch, csn=last)
        parts = [
            part
            for path in tag["changed"]
            for part in _parts_of(theirs[path], base, _writer(txn, path, into), on_conflict)
        ]
        conflicts = [each for part in parts for each in part.conflicts]
        if conflicts and on_conflict == "refuse":
            raise _refused(branch, into, conflicts)
        if not parts:
            txn.rollback()
            return Merged(None, 0, [])
        for part in parts:
            part.apply()
        _keep(federation, branch, csn)
        records.append(
            {
                "branch": branch,
                "into": into or "",
                "csn": csn,
                "conflicts": len(conflicts),
                "on_conflict": on_conflict if conflicts else "",
                "time": time.time_ns(),
                "user": _user(),
                "message": message,
            }
        )
    return Merged(txn.csn, sum(len(part.taken) for part in parts), conflicts)


def merges_of(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    """Return the merges of a branch or into a global tag, the oldest first."""
    if f"{DATABASE}/{CONTAINER}" not in snapshot:
        return []
    rows: list[dict[str, Any]] = snapshot[f"{DATABASE}/{CONTAINER}"].arrays().to_list()
    return [row for row in rows if name in (row["branch"], row["into"])]


def _last_merge(txn: Transaction, branch: str, into: str | None) -> int | None:
    """Return the commit as of which the branch was merged last; None if it never was."""
    rows = txn[f"{DATABASE}/{CONTAINER}"].arrays(["branch", "into", "csn"]).to_list()
    found = [row["csn"] for row in rows if (row["branch"], row["into"]) == (branch, into or "")]
    return found[-1] if found else None


def _writer(txn: Transaction, path: str, into: str | None) -> SeriesWriter:
    """Open the series into which the conditions of a branch are merged.

    Raises
    ------
    DeniedError
        If the global tag is locked or frozen.
    InvalidError
        If it would not show the merged conditions, because it reads the series as of a commit.
    """
    if into is None:
        return txn.series(path)
    tag = txn.federation.conditions.tag(into)
    if tag["is_branch"]:
        return txn.series(path, branch=into)
    if tag["state"] != "open":
        raise DeniedError(f"global tag {into!r} is {tag['state']}, so nothing can be merged into it")
    if tag["only_listed"] and path not in tag["series"]:
        raise NotFoundError(f"global tag {into!r} has no series {path!r}")
    commit, source = tag["series"].get(path, (None, None))
    if commit or tag["csn"] or path in tag["branches"]:
        raise InvalidError(
            f"global tag {into!r} reads {path} as of commit {commit or tag['csn']}, so it would not show the "
            "merged conditions; merge into the series themselves, and then change the commit of the tag"
        )
    return txn.series(source or path)


def _keep(federation: Federation, branch: str, csn: int) -> None:
    """Keep the branch as it is merged from vacuum: the next merge is based on it."""
    name = f"{branch}@{csn}"
    try:
        federation.tag(name, csn=csn, message="kept for a merge")
    except ExistsError:
        if federation.snapshot(tag=name).csn != csn:
            raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _refused(branch: str, into: str | None, conflicts: list[Conflict]) -> MergeConflictError:
    listed = "; ".join(map(str, conflicts[:CONFLICTS_SHOWN]))
    more = f"; and {len(conflicts) - CONFLICTS_SHOWN} more" if len(conflicts) > CONFLICTS_SHOWN else ""
    return MergeConflictError(
        f"branch {branch!r} and {into or 'the series'} have both changed: {listed}{more}. Choose a side with "
        "on_conflict='ours' or 'theirs'",
        conflicts,
    )


def _parts_of(
    theirs: Series, base: Job | None, writer: SeriesWriter, on_conflict: OnConflict
) -> Iterator[_Part]:
    """Return the changes to merge of a series, by channel."""
    if base is not None and theirs.path in (base.global_tag or {})["changed"]:
        before = base[theirs.path]
    else:
        behind = theirs.sources[:-1]
        before = Series(theirs.path, behind, SeriesHandle.open([view._handle for view in behind]))
    ours = writer.series()
    if (ours.clock, ours.definition) != (theirs.clock, theirs.definition):
        raise InvalidError(
            f"series {ours.path} has another class or clock than in the branch; put its conditions into the "
            "series again"
        )
    channels = np.unique(theirs.sources[-1].arrays("channel", library="np")["channel"])
    for channel in channels.tolist():
        part = _Part(theirs, ours, writer, channel)
        part.compare(before, on_conflict)
        if part.taken or part.conflicts:
            yield part


class _Part:
    """One channel of a series that is merged."""

    def __init__(self, theirs: Series, ours: Series, writer: SeriesWriter, channel: int) -> None:
        self.theirs, self.ours, self.writer, self.channel = theirs, ours, writer, channel
        self.taken: list[tuple[int, int, int]] = []
        """Ranges to take from the branch, in order, each with the entry of its condition or -1 for a gap."""
        self.conflicts: list[Conflict] = []

    def compare(self, before: Series, on_conflict: OnConflict) -> None:
        """Find the changes of the branch since `before`."""
        starts = self._starts((before, self.theirs, self.ours))
        stops = np.append(starts[1:], FOREVER)
        kept = np.flatnonzero(~same_entries(before, self.theirs, starts, self.channel))
        starts, stops = starts[kept], stops[kept]
        entries = entries_or_gaps(self.theirs, starts, self.channel).tolist()
        rows = [each.at(starts, channel=self.channel).to_list() for each in (before, self.ours, self.theirs)]
        for since, until, entry, base, ours, theirs in zip(
            starts.tolist(), stops.tolist(), entries, *rows, strict=True
        ):
            if is_same(base, theirs) or is_same(ours, theirs):
                continue
            if not is_same(base, ours):
                self._add(
                    Conflict(self.ours.path, self.channel, since, until, base, ours, theirs, self.ours.clock)
                )
                if on_conflict != "theirs":
                    continue
            self.taken.append((since, until, entry))

    def _starts(self, versions: tuple[Series, ...]) -> Values:
        """Return the moments at which a version has another condition than before, and the beginning."""
        edges = [np.array([BEGINNING], np.int64)]
        for version in versions:
            begins, ends, _ = version.segments(channel=self.channel)
            edges += [begins, ends]
        starts = np.unique(np.concatenate(edges))
        return starts[starts < FOREVER]

    def _add(self, conflict: Conflict) -> None:
        last = self.conflicts[-1] if self.conflicts else None
        if last is not None and last.until == conflict.since:
            pairs = ((last.base, conflict.base), (last.ours, conflict.ours), (last.theirs, conflict.theirs))
            if all(is_same(one, other) for one, other in pairs):
                values = (conflict.base, conflict.ours, conflict.theirs, conflict.clock)
                self.conflicts[-1] = Conflict(last.series, last.channel, last.since, conflict.until, *values)
                return
        self.conflicts.append(conflict)

    def apply(self) -> None:
        """Put the merged conditions into the series."""
        refuses = self.writer.overlap == "refuse"
        for since, until, entry in self.taken:
            if entry < 0 or refuses:
                cut(self.writer, self.channel, since, until)
        taken = np.array([each for each in self.taken if each[2] >= 0], np.int64).reshape(-1, 3)
        self._put(self.theirs, *taken.T)
        if self.writer.overlap == "open":
            self._put(self.ours, *self._continued())

    def _put(self, series: Series, since: Values, until: Values, entries: Values) -> None:
        if len(entries):
            conditions = series.fetch(entries)
            self.writer.extend(conditions, since=since, until=until, channel=self.channel)

    def _continued(self) -> tuple[Values, Values, Values]:
        """Return the conditions that have to begin anew behind the merged ranges.

        With ``open``, a condition is not valid any more after the next one.
        """
        ends = np.array([until for _, until, entry in self.taken if entry >= 0 and until < FOREVER], np.int64)
        ends = np.setdiff1d(ends, [since for since, _, _ in self.taken])
        begins, stops, entries = self.ours.segments(channel=self.channel)
        places = np.searchsorted(begins, ends, "right") - 1
        chosen = (places >= 0) & (begins[places] < ends) & (ends < stops[places]) if len(begins) else ends < 0
        return ends[chosen], stops[places[chosen]], entries[places[chosen]].astype(np.int64)

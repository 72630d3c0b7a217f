"""Checks of a federation in a folder: its catalogue, its files, and its users."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ... import _federations
from ..._exceptions import FemtobarnError
from ..._storage import Residence
from ..output import human_duration, human_size, human_time
from .disk import file_systems, look_at_space, look_at_type
from .finding import Finding, note, ok, refused, wrong
from .stores import look_at_stores
from .users import look_at_pins, look_at_rights, look_at_waits

__all__ = ["look_at_folder"]

LOG_LARGE_BYTES = 64 << 20
"""Four times the size at which SQLite moves the log into the tables."""

CLOCK_SECONDS = 60.0
"""Clocks of machines that differ by less are normal."""

LEADER_SECONDS = 5.0

REMEDIES = {
    "corrupt": "restore a backup, or make a new catalogue from the files: femtobarn rebuild-catalogue",
    "denied": "ask its owner for the right to read the folder",
}
"""Remedies for errors of opening a federation, by kind, for errors whose texts name none."""


def look_at_folder(path: str) -> Iterator[Finding]:
    """Look at the federation in a folder."""
    folder = Path(path)
    try:
        federation = _federations.open(path, stage=False)
    except FemtobarnError as error:
        yield refused("federation", error, REMEDIES.get(error.kind, ""))
        yield from map(look_at_type, file_systems([folder]).values())
        return
    with federation:
        settings = federation._handle.upkeep().settings()
        yield from _look_at_head(federation, settings)
        yield look_at_rights(federation)
        residences = federation.where()
        yield from _look_at_files(federation, residences)
        yield from _look_at_disks(folder, residences, settings)
        yield _look_at_log(folder)
        yield look_at_waits(federation)
        yield look_at_pins(federation, folder)
        yield from _look_at_leader(federation, settings)
        used = {copy.store for residence in residences for copy in residence.copies}
        yield from look_at_stores(folder, used)
    yield ok("pages", f"not read; femtobarn check --full {path} reads all of them")


def _look_at_head(federation: _federations.Federation, settings: dict[str, str]) -> Iterator[Finding]:
    version = f"format {settings['format']}"
    newest = federation.history(1)
    if not newest:
        yield ok("federation", f"{federation.name} at {federation.path}, {version}, without commits")
        return
    csn, made = newest[0]["csn"], newest[0]["time"]
    fact = f"{federation.name} at {federation.path}, {version}, commit {csn} of {human_time(made)}"
    yield ok("federation", fact)
    ahead = made.timestamp() - time.time()
    if ahead > CLOCK_SECONDS:
        fact = f"commit {csn} by {newest[0]['host']} is {human_duration(int(ahead))} in the future"
        yield note("clock", fact, "let NTP set the clocks of both machines; snapshots by time are wrong")


def _look_at_files(federation: _federations.Federation, residences: list[Residence]) -> Iterator[Finding]:
    """Compare the files with the catalogue: whether they are there, and hold what their versions use."""
    snapshot = federation.snapshot()
    names = {row["name"] for row in snapshot.databases()}
    missing, short, other, lost = [], [], [], []
    for residence in residences:
        if residence.state == "lost":
            lost.append(residence.database)
        # One that is not in the snapshot was made meanwhile.
        if residence.state not in ("online", "both", "migrating") or residence.database not in names:
            continue
        size = _size_of(residence)
        if size is None:
            missing.append(residence.path)
        elif size < sum(row["bytes"] for row in snapshot.containers(residence.database)):
            short.append(residence.path)
        elif any(copy.state == "complete" and copy.size != size for copy in residence.copies):
            other.append(residence.path)
    again = f"restore a backup of it, or femtobarn repair {federation.path}"
    yield from _damage(missing, "missing", f"mount the disk that has it; {again}")
    yield from _damage(short, "shorter than its objects in the catalogue", again)
    yield from _damage(other, "of another size than its copy in a store", again)
    yield from _damage(lost, "neither on the disk nor in a store", again)
    if not (missing or short or other or lost):
        kinds = Counter(residence.state for residence in residences)
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(kinds.items()))
        yield ok("files", f"{states}, none shorter than in the catalogue" if states else "no databases")


def _damage(files: list[str], what: str, remedy: str) -> Iterator[Finding]:
    if files:
        more = f", and {len(files) - 1:,} more are" if len(files) > 1 else " is"
        yield wrong("corrupt", "files", f"{files[0]}{more} {what}", remedy)


def _size_of(residence: Residence) -> int | None:
    try:
        return Path(residence.path).stat().st_size
    except OSError:
        return None


def _look_at_disks(folder: Path, residences: list[Residence], settings: dict[str, str]) -> Iterator[Finding]:
    systems = file_systems([folder, *sorted({Path(residence.path).parent for residence in residences})])
    for residence in residences:
        try:
            facts = Path(residence.path).stat()
        except OSError:
            continue
        if facts.st_dev in systems:
            # Files grow in advance, so the allocated space counts.
            systems[facts.st_dev].bytes += facts.st_blocks * 512
    created = int(settings["created_us"]) / 1e6 if "created_us" in settings else None
    for system in systems.values():
        yield look_at_type(system)
        yield look_at_space(system, created)


def _look_at_log(folder: Path) -> Finding:
    log = folder / "catalogue.sqlite-wal"
    size = log.stat().st_size if log.exists() else 0
    fact = f"the log of the catalogue has {human_size(size)}"
    if size > LOG_LARGE_BYTES:
        return note("log", fact, "a process reads the catalogue without a pause; femtobarn top names clients")
    return ok("log", fact)


def _look_at_leader(federation: _federations.Federation, settings: dict[str, str]) -> Iterator[Finding]:
    """Tell whom a copy follows, and how far it is behind."""
    if "successor" in settings:
        yield note("leader", f"{settings['successor']} leads the federation now", "make changes there")
    if "untold_leader" in settings:
        fact = f"{settings['untold_leader']} has not been notified that this copy leads"
        advice = (
            f"run femtobarn serve {federation.path}, which notifies it when it answers; "
            "if it will never return, "
        )
        yield note("leader", fact, f"{advice}femtobarn forget-leader {federation.path}")
    if "follows" not in settings:
        return
    if "incomplete" in settings:
        fact = "the last step of this copy has not ended, and until then it cannot be promoted"
        yield note("leader", fact, "let femtobarn follow finish it")
    url, here = settings["follows"], federation.head()
    try:
        with _federations.open(url, timeout=LEADER_SECONDS) as leader:
            behind = leader.head() - here
    except FemtobarnError as error:
        yield note("leader", f"{url}, which this copy follows: {error}", "start it, or promote the copy")
        return
    if behind > 0:
        fact = f"this copy lacks {behind:,} of the commits of {url}"
        yield note("leader", fact, f"femtobarn follow {url} {federation.path} must be running")
    else:
        yield ok("leader", f"this copy has all commits of {url}")

"""Looking after a federation: what is kept, what is locked, checking, backups, moving databases."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ._exceptions import InvalidError
from ._femtobarn import compact as _compact
from ._femtobarn import tidy as _tidy
from ._femtobarn import vacuum as _vacuum

if TYPE_CHECKING:
    from ._femtobarn import FederationHandle

__all__ = [
    "BackupReport",
    "CheckReport",
    "Compacted",
    "Problem",
    "Progress",
    "RepairReport",
    "Upkeep",
    "VacuumReport",
    "paths",
    "seconds",
]

Progress = Callable[[str, str, int, int], None]
"""Told what is being done, to what, and the bytes done and in all; what it raises stops the work."""


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be."""

    severity: str
    """``notice``, ``warning``, or ``damage``: something committed cannot be read."""
    kind: str
    """What is wrong, for programs, such as ``Page`` or ``DanglingLink``."""
    where: str
    """The database, container, commit and entries."""
    what: str
    """What is wrong."""
    advice: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}; {self.advice}"


@dataclass(frozen=True)
class CheckReport:
    """What a check looked at, and what it found."""

    sound: bool
    """Whether all that is committed can be read."""
    complete: bool
    """Whether the check went to its end."""
    problems: list[Problem]
    """What is wrong, the first thousand."""
    more_problems: int
    """Problems beyond those."""
    databases: int
    containers: int
    versions: int
    pages: int
    """Pages read and verified (full check)."""
    objects: int
    """Objects read (full check)."""
    links: int
    """Links followed (full check)."""
    bytes: int
    """Bytes of files dealt with."""
    unreferenced_bytes: int
    """Bytes of database files that no version needs (full check)."""
    orphan_bytes: int
    """Bytes of files that no database has."""


@dataclass(frozen=True)
class RepairReport:
    """What a repair did, or would do."""

    done: list[str]
    """What was mended, a sentence each."""
    left: list[Problem]
    """What is not as it should be still."""


@dataclass(frozen=True)
class BackupReport:
    """What a backup holds."""

    csn: int
    """The newest commit in it."""
    files: int
    bytes: int
    """Bytes of these files."""
    stored: int
    """Bytes of those that were stored."""
    left_out: list[str]
    """Attached files, which belong to somebody else."""


@dataclass(frozen=True)
class VacuumReport:
    """What a vacuum did, or would do."""

    horizon: int
    """The first commit from which on all snapshots are kept."""
    kept: list[int]
    """Snapshots before it that are kept, because they are tagged or being read."""
    versions: int
    """Versions of containers that went."""
    containers: int
    """Dropped containers that went altogether."""
    databases: int
    """Dropped databases that went altogether."""
    version_bytes: int
    """Bytes that only these versions had."""
    garbage_bytes: int
    """Bytes of transactions that were killed or rolled back."""
    files: list[str]
    """Files that were removed."""
    busy: list[str]
    """Databases that somebody writes to; what is nobody's in them was not looked for."""
    skipped: list[tuple[str, str]]
    """Databases that were left alone, with the reason."""
    complete: bool
    """Whether it went to its end."""


@dataclass(frozen=True)
class Compacted:
    """What became of a container."""

    path: str
    csn: int | None
    """The commit of its new version; none if there was nothing to gain."""
    clusters_before: int
    clusters: int
    bytes_before: int
    bytes: int
    forgotten: int
    """Deleted objects whose values were forgotten."""


class Upkeep:
    """What those who look after a federation do with it; a part of :class:`femtobarn.Federation`."""

    _handle: FederationHandle

    # What is kept.

    def tag(self, name: str, *, csn: int | None = None, message: str = "") -> int:
        """Give a snapshot a name, which holds it until the tag is taken away.

        Parameters
        ----------
        name
            A name such as ``winter26-v2``.
        csn
            The commit; the newest if not given.
        message
            What it is for.

        Returns
        -------
        int
            The commit.

        Raises
        ------
        ExistsError
            If there is a tag of that name.
        NotFoundError
            If there is no such commit, or its snapshot was given up.
        """
        return self._handle.upkeep().tag(name, csn, message)

    def untag(self, name: str) -> None:
        """Take a tag away; its snapshot may go with the next vacuum."""
        self._handle.upkeep().untag(name)

    def tags(self) -> list[dict[str, Any]]:
        """Return the tags in the order of their commits: name, csn, time, message and user."""
        tags = self._handle.upkeep().tags()
        return [
            {key: value for key, value in tag.items() if key != "time_us"} | {"time": _time(tag["time_us"])}
            for tag in tags
        ]

    def retention(self) -> dict[str, int | None]:
        """Return how many commits and how many days of history are kept; all if neither is given."""
        commits, days = self._handle.upkeep().retention()
        return {"keep_commits": commits, "keep_days": days}

    def set_retention(self, *, keep_commits: int | None = None, keep_days: int | None = None) -> None:
        """Say how much history is kept; what tags and open snapshots hold is kept besides.

        Parameters
        ----------
        keep_commits
            So many of the newest commits, at least 1.
        keep_days
            The commits of so many days. What either of the two asks for is kept; everything, if
            neither is given.
        """
        for name, number in (("keep_commits", keep_commits), ("keep_days", keep_days)):
            if number is not None and number < 0:
                raise InvalidError(f"{name} is {number}; give a number from 0 upwards, or nothing")
        self._handle.upkeep().set_retention(keep_commits, keep_days)

    def vacuum(
        self,
        *,
        keep_from: int | None = None,
        dry_run: bool = False,
        lock_timeout: float = 10.0,
        progress: Progress | None = None,
    ) -> VacuumReport:
        """Take away the versions that neither retention nor a tag nor a reader needs.

        Their space goes back to the file system, and to writers. Others may read and write meanwhile.

        Parameters
        ----------
        keep_from
            The first commit whose snapshot is kept, instead of what retention says.
        dry_run
            Change nothing, and only say what would be done.
        lock_timeout
            Seconds to wait for another vacuum or a backup.
        progress
            Told how far it is.
        """
        # Snapshots that Python has not cleared away yet would be taken for being read.
        gc.collect()
        handle = self._handle.upkeep()
        return VacuumReport(**_vacuum(handle, keep_from, dry_run, seconds(lock_timeout), progress))

    def compact(
        self,
        path: str,
        *,
        all: bool = False,
        compression: str | None = None,
        lock_timeout: float = 10.0,
        progress: Progress | None = None,
    ) -> list[Compacted]:
        """Merge the small clusters that many small commits leave; OIDs stay as they are.

        Parameters
        ----------
        path
            A container such as ``run7/events``, or a database: all its containers.
        all
            Write everything anew, also where nothing is to be gained but another compression.
        compression
            ``plain``, ``fast`` or ``archive``; that of the container if not given.
        lock_timeout
            Seconds to wait for a container that somebody writes.
        progress
            Told how far it is.
        """
        handle = self._handle.upkeep()
        done = _compact(handle, path, all, compression, seconds(lock_timeout), progress)
        return [Compacted(**container) for container in done]

    def tidy(
        self, database: str | None = None, *, lock_timeout: float = 10.0, progress: Progress | None = None
    ) -> tuple[list[Compacted], VacuumReport]:
        """Compact all containers of a database, or of all that take commits, and vacuum."""
        gc.collect()
        done = _tidy(self._handle.upkeep(), database, seconds(lock_timeout), progress)
        return [Compacted(**container) for container in done["containers"]], VacuumReport(**done["vacuum"])

    # Who does what.

    def locks(self) -> list[dict[str, Any]]:
        """Return the locks that are held: what, of which database and container, and by whom."""
        return self._handle.upkeep().locks()

    def waits(self) -> list[dict[str, Any]]:
        """Return who waits for which lock, the longest first, and who holds it."""
        return self._handle.upkeep().waits()

    # Damage.

    def check(self, *, full: bool = False, progress: Progress | None = None) -> CheckReport:
        """Check the federation; nothing is changed and nobody waits.

        Parameters
        ----------
        full
            Read every page, every index and every link, instead of comparing catalogue and files.
        progress
            Told how far it is.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> report = fed.check(full=True)
        >>> report.sound, report.problems
        (True, [])
        """
        facts = self._handle.upkeep().check(full, progress)
        problems = [Problem(**problem) for problem in facts.pop("problems")]
        return CheckReport(problems=problems, **facts)

    def repair(
        self,
        *,
        salvage: bool = False,
        dry_run: bool = False,
        lock_timeout: float = 10.0,
        progress: Progress | None = None,
    ) -> RepairReport:
        """Check in full, mend what can be mended without losing anything, and check again.

        Damaged indexes and statistics are made again or dropped, in a new version of their container;
        what older snapshots have of them stays as it is until a vacuum takes it away.

        Parameters
        ----------
        salvage
            Take containers whose newest version is damaged back to their newest whole version. Objects
            that came later are lost; their OIDs are given to no others.
        dry_run
            Change nothing, and only say what would be done.
        lock_timeout
            Seconds to wait for a vacuum, a backup, or writers.
        progress
            Told how far it is.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> fed.repair()
        RepairReport(done=[], left=[])
        """
        facts = self._handle.upkeep().repair(salvage, dry_run, seconds(lock_timeout), progress)
        return RepairReport(done=facts["done"], left=[Problem(**problem) for problem in facts["left"]])

    def backup(
        self,
        folder: str | os.PathLike[str],
        *,
        since: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy the federation with all of its history, while it is written to.

        Parameters
        ----------
        folder
            A new folder. Without ``since`` it is a federation that can be opened.
        since
            The folder of an earlier backup: only what differs from that is stored, and
            :func:`femtobarn.restore` needs both.
        progress
            Told how far it is.

        Raises
        ------
        ExistsError
            If there is something in the folder.
        BusyError
            If the federation is being vacuumed.
        """
        earlier = None if since is None else os.fspath(since)
        return BackupReport(**self._handle.upkeep().backup(os.fspath(folder), earlier, progress))

    # Moving.

    def detach(
        self, database: str, *, to: str | os.PathLike[str] | None = None, lock_timeout: float = 10.0
    ) -> str:
        """Take a database out of the federation with its file, as it is; return where the file is.

        Another federation attaches it with its classes, deletions, indexes and links.

        Parameters
        ----------
        database
            Name of the database.
        to
            A folder or a new file to move it to; it stays where it is if not given.
        lock_timeout
            Seconds to wait for its writers.
        """
        place = None if to is None else os.fspath(to)
        return self._handle.upkeep().detach(database, place, seconds(lock_timeout))


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def seconds(timeout: float) -> float:
    """Return a time to wait for a lock, if it is one."""
    if not 0 <= timeout < float("inf"):
        raise InvalidError(f"lock_timeout is {timeout}; give seconds from 0 upwards")
    return float(timeout)


def paths(folders: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return one or many folders as texts."""
    many = [folders] if isinstance(folders, str | os.PathLike) else folders
    return [os.fspath(folder) for folder in many]

"""Upkeep of a federation: tags and retention, locks, checks and repairs, backups, detaching databases."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ._exceptions import InvalidError, check_text
from ._femtobarn import compact as _compact
from ._femtobarn import tidy as _tidy
from ._femtobarn import vacuum as _vacuum

if TYPE_CHECKING:
    from ._femtobarn import FederationHandle

__all__ = [
    "Attached",
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
"""Called with the step, its subject, the bytes done and the bytes in all. An exception in it stops the
work."""


@dataclass(frozen=True)
class Attached:
    """The result of attaching a file."""

    name: str
    """Name of the file as a database."""
    containers: list[str]
    """Names of its containers."""
    ignored: list[str]
    """Fields whose types cannot be read, each with the reason."""
    renamed: dict[str, str]
    """New names of classes by their names in the file, such as ``"Events@dimuon"`` for ``"Events"``, where
    the federation has a class of the old name with other fields."""


@dataclass(frozen=True)
class Problem:
    """A problem that a check found."""

    severity: str
    """``notice``, ``warning``, or ``damage``, which means that committed data cannot be read."""
    kind: str
    """The kind of problem, for programs, such as ``Page`` or ``DanglingLink``."""
    where: str
    """The database, container, commit and entries."""
    what: str
    """Description of the problem."""
    advice: str
    """The remedy."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.what}; {self.advice}"


@dataclass(frozen=True)
class CheckReport:
    """The result of a check."""

    sound: bool
    """Whether all committed data can be read."""
    complete: bool
    """Whether the check reached its end."""
    problems: list[Problem]
    """The problems, at most 1000."""
    more_problems: int
    """Number of problems beyond these."""
    databases: int
    nearline: int
    """Databases that are in stores alone, and were not read."""
    elsewhere: int
    """Databases whose files are at other servers of the federation, and were not read."""
    containers: int
    versions: int
    pages: int
    """Pages read and verified (full check)."""
    objects: int
    """Objects read (full check)."""
    links: int
    """Links followed (full check)."""
    bytes: int
    """Bytes of files that were checked."""
    unreferenced_bytes: int
    """Bytes of database files that no version needs (full check)."""
    orphan_bytes: int
    """Bytes of files that belong to no database."""


@dataclass(frozen=True)
class RepairReport:
    """The result of a repair, or of its dry run."""

    done: list[str]
    """The repairs, one sentence each."""
    left: list[Problem]
    """Problems that remain."""


@dataclass(frozen=True)
class BackupReport:
    """The content of a backup."""

    csn: int
    """The newest commit in the backup."""
    files: int
    bytes: int
    """Size of these files."""
    stored: int
    """Bytes that this backup stores; the others are in the backup before it."""
    nearline: list[str]
    """Databases that are in stores alone; a restored federation reads them from there."""
    left_out: list[str]
    """Attached files outside the federation's folder, which are not backed up."""


@dataclass(frozen=True)
class VacuumReport:
    """The result of a vacuum, or of its dry run."""

    horizon: int
    """The oldest commit from which on all snapshots are kept."""
    kept: list[int]
    """Older snapshots that are kept because they are tagged or open."""
    versions: int
    """Versions of containers that were removed."""
    containers: int
    """Dropped containers that were removed."""
    databases: int
    """Dropped databases that were removed."""
    version_bytes: int
    """Bytes that only these versions used."""
    garbage_bytes: int
    """Bytes written by transactions that were killed or rolled back."""
    files: list[str]
    """Files that were removed."""
    busy: list[str]
    """Databases with a writer, which were not searched for unreferenced bytes."""
    skipped: list[tuple[str, str]]
    """Databases that were skipped and lock files that could not be removed, each with the reason."""
    complete: bool
    """Whether the vacuum reached its end."""


@dataclass(frozen=True)
class Compacted:
    """The result of compacting a container."""

    path: str
    csn: int | None
    """The commit of its new version; None if there was nothing to gain."""
    clusters_before: int
    clusters: int
    bytes_before: int
    bytes: int
    forgotten: int
    """Deleted objects whose values were removed."""


class Upkeep:
    """Methods for operators; a part of :class:`femtobarn.Federation`."""

    _handle: FederationHandle

    # Tags and retention.

    def tag(self, name: str, *, csn: int | None = None, message: str = "") -> int:
        """Tag a snapshot: it is kept until the tag is removed.

        Parameters
        ----------
        name
            Name of the tag, such as ``winter26-v2``.
        csn
            The commit; the newest if not given.
        message
            Purpose of the tag.

        Returns
        -------
        int
            Number of the commit.

        Raises
        ------
        ExistsError
            If the federation has a tag of that name.
        NotFoundError
            If the commit does not exist, or vacuum has given its snapshot up.
        """
        check_text(name, "tag")
        check_text(message, "message")
        return self._handle.upkeep().tag(name, csn, message)

    def untag(self, name: str) -> None:
        """Remove a tag; the next vacuum may give its snapshot up."""
        self._handle.upkeep().untag(name)

    def tags(self) -> list[dict[str, Any]]:
        """Return the tags in the order of their commits: name, csn, time, message and user."""
        tags = self._handle.upkeep().tags()
        return [
            {key: value for key, value in tag.items() if key != "time_us"} | {"time": _time(tag["time_us"])}
            for tag in tags
        ]

    def retention(self) -> dict[str, int | None]:
        """Return the number of commits and of days whose history is kept; if both are None, all of it."""
        commits, days = self._handle.upkeep().retention()
        return {"keep_commits": commits, "keep_days": days}

    def set_retention(self, *, keep_commits: int | None = None, keep_days: int | None = None) -> None:
        """Set the length of the history that is kept, in addition to tagged and open snapshots.

        A snapshot is kept if either limit keeps it. Without limits, all history is kept.

        Parameters
        ----------
        keep_commits
            Number of the newest commits to keep, 1 or more.
        keep_days
            Age in days up to which commits are kept.
        """
        for name, number in (("keep_commits", keep_commits), ("keep_days", keep_days)):
            if number is not None and not 0 <= number < 2**64:
                raise InvalidError(
                    f"invalid {name} {number}: must be an integer of 64 bits, 0 or more, or None"
                )
        self._handle.upkeep().set_retention(keep_commits, keep_days)

    def vacuum(
        self,
        *,
        keep_from: int | None = None,
        dry_run: bool = False,
        lock_timeout: float = 10.0,
        progress: Progress | None = None,
    ) -> VacuumReport:
        """Remove the versions that neither retention, nor a tag, nor an open snapshot keeps.

        Their space goes back to the file system and to writers. Readers and writers may work meanwhile.

        Parameters
        ----------
        keep_from
            The oldest commit whose snapshot is kept, instead of the retention settings.
        dry_run
            Change nothing, and only report.
        lock_timeout
            Seconds to wait for another vacuum or a backup.
        progress
            Called with the step, its subject, the bytes done and the bytes in all.
        """
        # A snapshot that the garbage collector has not freed yet counts as open.
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
            A container such as ``run7/events``, or a database for all its containers.
        all
            Whether to rewrite every cluster, also those that need no merging.
        compression
            ``none``, ``lz4`` or ``zstd``; that of the container if not given.
        lock_timeout
            Seconds to wait for the writer of a container.
        progress
            Called with the step, its subject, the bytes done and the bytes in all.
        """
        handle = self._handle.upkeep()
        done = _compact(handle, path, all, compression, seconds(lock_timeout), progress)
        return [Compacted(**container) for container in done]

    def tidy(
        self, database: str | None = None, *, lock_timeout: float = 10.0, progress: Progress | None = None
    ) -> tuple[list[Compacted], VacuumReport]:
        """Compact all containers of a database, or of every database that accepts commits, and vacuum."""
        gc.collect()
        done = _tidy(self._handle.upkeep(), database, seconds(lock_timeout), progress)
        return [Compacted(**container) for container in done["containers"]], VacuumReport(**done["vacuum"])

    # Locks.

    def locks(self) -> list[dict[str, Any]]:
        """Return the held locks: kind, database, container and holder."""
        return self._handle.upkeep().locks()

    def waits(self) -> list[dict[str, Any]]:
        """Return the waits for locks, the longest first, each with the lock and its holder."""
        return self._handle.upkeep().waits()

    # Damage.

    def check(self, *, full: bool = False, progress: Progress | None = None) -> CheckReport:
        """Check the federation. This changes nothing, and blocks no reader or writer.

        Parameters
        ----------
        full
            Whether to read every page, index, link, set and dictionary, instead of only comparing the
            catalogue with the files.
        progress
            Called with the step, its subject, the bytes done and the bytes in all.

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
        """Check in full, repair everything that can be repaired without loss, and check again.

        Damaged indexes and statistics are rebuilt or dropped, in a new version of their container. Older
        versions keep theirs until vacuum removes them.

        Parameters
        ----------
        salvage
            Whether to reset containers whose newest version is damaged to their newest sound version. Objects
            that were committed later are lost; their OIDs are not used again.
        dry_run
            Change nothing, and only report.
        lock_timeout
            Seconds to wait for a vacuum, a backup, or writers.
        progress
            Called with the step, its subject, the bytes done and the bytes in all.

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
        """Copy the federation with all of its history. It may be written to meanwhile.

        Parameters
        ----------
        folder
            A new folder. Without ``since`` it becomes a federation that can be opened.
        since
            Folder of an earlier backup. Only the differences from it are stored; :func:`femtobarn.restore`
            needs both.
        progress
            Called with the step, its subject, the bytes done and the bytes in all.

        Raises
        ------
        ExistsError
            If the folder is not empty.
        BusyError
            If the federation is being vacuumed.
        """
        earlier = None if since is None else os.fspath(since)
        return BackupReport(**self._handle.upkeep().backup(os.fspath(folder), earlier, progress))

    # Detaching.

    def detach(
        self, database: str, *, to: str | os.PathLike[str] | None = None, lock_timeout: float = 10.0
    ) -> str:
        """Remove a database from the federation, with its file as it is; return the path of the file.

        Another federation can attach the file, with its classes, deletions, indexes and links.

        Parameters
        ----------
        database
            Name of the database.
        to
            A folder, or the path of a new file, to move the file to; it is not moved if not given.
        lock_timeout
            Seconds to wait for the writers of the database.
        """
        place = None if to is None else os.fspath(to)
        return self._handle.upkeep().detach(database, place, seconds(lock_timeout))


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def seconds(timeout: float) -> float:
    """Return a timeout as a number of seconds, or raise an error if it is negative or not finite."""
    if not 0 <= timeout < float("inf"):
        raise InvalidError(f"invalid lock_timeout {timeout}: must be a finite number of seconds, 0 or more")
    return float(timeout)


def paths(folders: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return the paths of one or several folders as texts."""
    many = [folders] if isinstance(folders, str | os.PathLike) else folders
    return [os.fspath(folder) for folder in many]

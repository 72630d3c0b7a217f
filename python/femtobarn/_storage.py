"""Where a federation is: databases in stores and at servers, and the place of its catalogue."""

from __future__ import annotations

import fnmatch
import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from . import _femtobarn
from ._bars import bar
from ._exceptions import FemtobarnError, InvalidError, NotFoundError, near_misses
from ._upkeep import Progress, seconds

if TYPE_CHECKING:
    from ._femtobarn import FederationHandle

T = TypeVar("T")

__all__ = [
    "AppliedRules",
    "Copy",
    "MovedCatalogue",
    "Pin",
    "Residence",
    "Servers",
    "SiteServer",
    "Storage",
    "staging_bar",
]


@dataclass(frozen=True)
class Copy:
    """A copy of a database's file in a store."""

    store: str
    """Name of the store."""
    key: str
    """Name of the object in the store."""
    state: str
    """``migrating``, ``complete``, or ``lost`` if the store no longer has it or has other bytes."""
    size: int
    """Bytes."""
    checksum: str
    """Checksum of the file, such as ``adler32:0a1b2c3d``; empty until the copy is complete."""
    csn: int
    """The newest commit when it was copied."""
    time: datetime
    """When its state changed (UTC)."""


@dataclass(frozen=True)
class Pin:
    """A pin: its holder's wish that a file stay on the disk."""

    holder: str
    until: datetime | None
    """When it ends (UTC); None if it does not end by itself."""


@dataclass(frozen=True)
class Residence:
    """The residence of a database's file."""

    database: str
    state: str
    """``online``: on the disk alone; ``migrating``: being copied; ``both``: on the disk and in a store;
    ``nearline``: in a store alone; ``staging``: being staged; ``lost``: nowhere, as far as is known."""
    path: str
    """The path of its file on the disk, even while the file is not there."""
    sealed: bool
    """Whether it accepts no more commits; only then it can be copied to a store."""
    copies: list[Copy]
    pins: list[Pin]


@dataclass(frozen=True)
class AppliedRules:
    """The result of applying the rules of ``storage.toml``."""

    migrated: list[tuple[str, str]]
    """The copies that were made, each as database and store."""
    not_on_disk: list[tuple[str, str]]
    """Copies that are due of databases that are in stores alone, and must be staged first."""
    evicted: list[tuple[str, int]]
    """Databases that left the disk, with their bytes."""
    removed: int
    """Files that were removed from stores because the catalogue does not name them any more."""
    failed: list[tuple[str, str]]
    """Operations that failed, with the reason; they are tried again the next time."""


class Storage:
    """The part of a federation that moves databases between its disk and its stores.

    The stores and the rules are in the file ``storage.toml`` in the federation's folder. Opening a nearline
    database stages it, unless the federation was opened with ``stage=False``.
    """

    _handle: FederationHandle

    def where(self, *databases: str) -> list[Residence]:
        """Return where the files of databases are; of all databases if none is named.

        Parameters
        ----------
        databases
            Names; ``*``, ``?`` and ``[..]`` stand for others as in file names.

        Raises
        ------
        NotFoundError
            If there is no such database; near misses are named.
        """
        rows = _femtobarn.residences(self._handle.upkeep())
        known = {row["database"]: _residence(row) for row in rows}
        return [known[name] for name in _matching(known, databases)] if databases else list(known.values())

    def migrate(
        self, databases: str | Sequence[str], store: str, *, progress: Progress | None = None
    ) -> list[Copy]:
        """Copy sealed databases to a store; the files stay on the disk, too.

        A pattern stands for sealed databases only. A failure for one database does not stop the others; the
        first error is raised at the end.

        Parameters
        ----------
        databases
            Names, as in `where`.
        store
            Name of a store in ``storage.toml``.
        progress
            Called with the step, the database, the bytes done and the bytes in all.

        Returns
        -------
        list of Copy
            A copy of each database, in the order of the names; a complete one is not made again.

        Raises
        ------
        InvalidError
            If a database is not sealed or not on the disk, or ``storage.toml`` is wrong.
        NotFoundError
            If there is no such database or store.
        CorruptError
            If the store has other bytes afterwards. Then there is no copy.
        UnavailableError
            If the store does not answer.
        """
        handle = self._handle.upkeep()
        names = self._named(databases, only_sealed=True)
        return _each(names, lambda name: _copy(_femtobarn.migrate(handle, name, store, progress)))

    def stage(
        self,
        databases: str | Sequence[str],
        *,
        lock_timeout: float = 600.0,
        progress: Progress | None = None,
    ) -> None:
        """Stage databases: bring their files back to the disk. Files on the disk stay as they are.

        A copy that turns out to be damaged or gone is recorded as lost, and the next one is tried.

        Parameters
        ----------
        databases
            Names, as in `where`.
        lock_timeout
            Seconds to wait for another process that moves one of them.
        progress
            Called with the step, the database, the bytes done and the bytes in all.

        Raises
        ------
        NotFoundError, CorruptError
            If there is no such database, or no good copy of it is left.
        UnavailableError
            If the store does not answer, or not yet.
        """
        handle, wait = self._handle.upkeep(), seconds(lock_timeout)
        _each(self._named(databases), lambda name: _femtobarn.stage(handle, name, wait, progress))

    def evict(self, databases: str | Sequence[str]) -> int:
        """Remove files from the disk that have enough copies, and return the bytes that this freed.

        A pattern stands for sealed databases only. A failure for one database does not stop the others; the
        first error is raised at the end.

        Raises
        ------
        DeniedError
            If one is pinned, or has fewer complete copies than its rule wants, at least one.
        BusyError
            If a process has one open.
        """
        handle = self._handle.upkeep()
        names = self._named(databases, only_sealed=True)
        return sum(_each(names, lambda name: _femtobarn.evict(handle, name)))

    def discard_copy(self, database: str, store: str) -> None:
        """Give up the copy of a database in a store.

        Raises
        ------
        DeniedError
            If the file is not on the disk and there is no other copy.
        """
        _femtobarn.discard_copy(self._handle.upkeep(), database, store)

    def pin(
        self,
        databases: str | Sequence[str],
        *,
        holder: str | None = None,
        until: datetime | None = None,
    ) -> None:
        """Pin files to the disk: they are not evicted. Files that are not on the disk are not staged.

        Parameters
        ----------
        databases
            Names, as in `where`.
        holder
            The holder of the pin, by default the user. Each holder has one pin of a database.
        until
            When the pin ends, by default never; a time without a zone is local.
        """
        handle = self._handle.upkeep()
        end = None if until is None else int(until.timestamp() * 1e6)
        for name in self._named(databases):
            _femtobarn.pin_file(handle, name, holder or getpass.getuser(), end)

    def unpin(self, databases: str | Sequence[str], *, holder: str | None = None) -> None:
        """End the pins of a holder, by default those of the user.

        Raises
        ------
        NotFoundError
            If the holder has pinned none of the databases; the error names the actual holders.
        """
        handle, names, whose = self._handle.upkeep(), self._named(databases), holder or getpass.getuser()
        ended = [_femtobarn.unpin_file(handle, name, whose) for name in names]
        if not any(ended):
            others = {pin.holder for residence in self.where(*names) for pin in residence.pins}
            known = f"pinned by {', '.join(sorted(others))}" if others else "not pinned"
            raise NotFoundError(f"{whose} has pinned none of {', '.join(names)}: {known}")

    def apply_storage_rules(self, *, progress: Progress | None = None) -> AppliedRules:
        """Apply the rules of ``storage.toml`` once.

        Makes copies that are due, removes files from stores that the catalogue does not name, and evicts the
        least recently used files while the disk is fuller than its limit.
        """
        return AppliedRules(**_femtobarn.apply_storage_rules(self._handle.upkeep(), progress))

    def _named(self, databases: str | Sequence[str], *, only_sealed: bool = False) -> list[str]:
        wanted = [databases] if isinstance(databases, str) else list(databases)
        if not wanted:
            raise InvalidError("no database was named")
        known = {residence.database: residence for residence in self.where()}
        names = _matching(known, wanted)
        return [name for name in names if name in wanted or known[name].sealed or not only_sealed]


def _each(names: Sequence[str], move: Callable[[str], T]) -> list[T]:
    """Move databases one after the other; the first error is raised at the end, with the others as notes."""
    results, errors = [], []
    for name in names:
        try:
            results.append(move(name))
        except FemtobarnError as error:
            errors.append(error)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(str(other))
        raise errors[0]
    return results


def _matching(known: Mapping[str, Residence], wanted: Sequence[str]) -> list[str]:
    """Return the known names that the wanted ones stand for, each once."""
    found: dict[str, None] = {}
    for pattern in wanted:
        names = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not names:
            raise NotFoundError(f"database {pattern!r} does not exist{near_misses(pattern, known)}")
        found.update(dict.fromkeys(names))
    return list(found)


def _residence(row: dict[str, Any]) -> Residence:
    copies = [_copy(copy) for copy in row["copies"]]
    pins = [Pin(holder, None if until is None else _time(until)) for holder, until in row["pins"]]
    return Residence(row["database"], row["state"], row["path"], row["sealed"], copies, pins)


def _copy(row: dict[str, Any]) -> Copy:
    facts = {name: row[name] for name in ("store", "key", "state", "size", "checksum", "csn")}
    return Copy(**facts, time=_time(row["time_us"]))


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def staging_bar() -> Progress:
    """Return a function that shows the progress of staging while a reader waits for a database."""
    shown = bar(unit="B")

    def advance(doing: str, of: str, done: int, total: int) -> None:
        shown.total = total
        shown.set_description_str(f"{doing} {of}", refresh=False)
        shown.update(done - shown.n)

    return advance


MOVE_SECONDS = 0.2
"""Seconds between two questions for the progress of a move."""


@dataclass(frozen=True)
class SiteServer:
    """A server of a federation that has several."""

    name: str
    url: str
    """The federation there."""
    storage: str
    """Name of its disk. Servers with the same one see the same files, and take over from each other."""
    state: str
    """``active``; ``draining``: it gets no new databases; ``left``: it was stopped."""
    alive: bool
    """Whether it has renewed its lease in time."""
    free_bytes: int
    """Bytes free on its disk, as of its last renewal."""
    load: int
    """Requests for files in progress, as of its last renewal."""
    databases: int
    """Number of databases whose home it is."""


@dataclass(frozen=True)
class MovedCatalogue:
    """A catalogue that was moved."""

    rows: int
    """Rows that were copied; 0 if the catalogue was at its new place already."""
    csn: int
    """The newest commit."""
    origin: str
    """The old place of the catalogue."""
    place: str
    """The file ``catalogue.sqlite``, or the server and its database, which has the catalogue now."""


class Servers:
    """Operations on the servers of a federation, and on the place of its catalogue."""

    _handle: FederationHandle

    def servers(self) -> list[SiteServer]:
        """Return the servers, by name; none if the federation has one server, or no server at all."""
        return [SiteServer(**row) for row in _femtobarn.site_servers(self._handle.upkeep())]

    def home(self, database: str) -> str | None:
        """Return the name of the server that has a database's file; None if there are not several.

        Raises
        ------
        NotFoundError
            If there is no such database.
        """
        return _femtobarn.home_of(self._handle.upkeep(), database)

    def move_database(
        self, database: str, server: str, *, progress: Callable[[int], None] | None = None
    ) -> None:
        """Move a database's file to another server. It can be read all the time; writers wait at the end.

        Parameters
        ----------
        database
            Name of the database.
        server
            Name of the new home. A server that shares the disk with the old home copies nothing.
        progress
            Called again and again with the bytes that were copied so far.

        Raises
        ------
        NotFoundError
            If there is no such database or server.
        BusyError
            If transactions hold the database for too long.
        UnsupportedError
            If the federation was not opened at a server, or the file was attached.
        """
        while (copied := _femtobarn.move_database(self._handle.upkeep(), database, server)) is not None:
            if progress is not None:
                progress(copied)
            sleep(MOVE_SECONDS)

    def drain(self, server: str, *, undo: bool = False) -> None:
        """Stop giving a server new databases, or resume that. Its databases stay until they are moved.

        Raises
        ------
        NotFoundError
            If there is no such server.
        """
        _femtobarn.drain_server(self._handle.upkeep(), server, undo)

    def move_catalogue(self, to: str, *, progress: Progress | None = None) -> MovedCatalogue:
        """Move the catalogue between SQLite and PostgreSQL, while the federation is read and written.

        The rows are copied and compared. Commits wait for a moment at the end; then all processes that have
        the federation open, servers too, continue with the catalogue at its new place. If this process dies
        before, the catalogue stays where it is, and the call can be repeated. The old one accepts no changes
        any more: the file ``catalogue.sqlite`` stays in the folder, and the schema in PostgreSQL until it is
        dropped.

        Parameters
        ----------
        to
            URL of a database of PostgreSQL, as for `create`; or ``"sqlite"``, for a file in the federation's
            folder.
        progress
            Called with the step, the table, the rows done and the rows in all.

        Raises
        ------
        UnavailableError
            If another process moves the catalogue, or PostgreSQL does not answer.
        DeniedError
            If this is a copy that follows a leader, or PostgreSQL refuses.
        ExistsError
            If there is a catalogue at the new place that accepts changes.
        UnsupportedError
            If the catalogue has rows that cannot be kept there, or the federation was opened at a server.
        """
        url = None if to == "sqlite" else to
        return MovedCatalogue(**self._handle.upkeep().move_catalogue(url, progress))

"""A federation: databases that share one catalogue, one schema and one order of commits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from weakref import WeakValueDictionary

from ._exceptions import InvalidError, check_text
from ._exchange.import_plan import Wish
from ._exchange.imports import Files, Imported, expanded, import_trees, main_tree
from ._exchange.table_files import import_file
from ._femtobarn import FederationHandle, count_fork
from ._femtobarn import identify as _identify
from ._femtobarn import rebuild_catalogue as _rebuild_catalogue
from ._femtobarn import restore as _restore
from ._objects.objects import Object
from ._query.paths import Expressions
from ._schema.types import Definition
from ._snapshots import Snapshot
from ._transactions import Transaction
from ._upkeep import Progress, Upkeep, paths
from ._upkeep import seconds as _seconds
from ._views.view import View
from .datamodel import Model, load_model

__all__ = ["Attached", "Federation", "create", "identify", "open", "rebuild_catalogue", "restore"]


def create(path: str | os.PathLike[str], *, name: str | None = None) -> Federation:
    """Make a federation: a folder with a catalogue and the files of its databases.

    Parameters
    ----------
    path
        Folder to make; it must not exist, or be empty.
    name
        Name of the federation, by default that of the folder without its suffix.

    Raises
    ------
    ExistsError
        If there is something at that place already.

    Examples
    --------
    >>> import femtobarn as fb, tempfile, os
    >>> fed = fb.create(os.path.join(tempfile.mkdtemp(), "lhc.fed"))
    >>> fed.name, fed.head(), list(fed)
    ('lhc', 0, [])
    """
    text = _local_path(path)
    return Federation(FederationHandle.create(text, name or Path(text).stem))


def open(
    path: str | os.PathLike[str],
    *,
    cache_bytes: int | None = None,
    threads: int | None = None,
    streams: int | None = None,
    read_ahead_bytes: int | None = None,
    disk_cache: str | os.PathLike[str] | None = None,
    disk_cache_bytes: int | None = None,
    timeout: float | None = None,
) -> Federation:
    """Open a federation.

    Parameters
    ----------
    path
        Its folder, or ``root://host:port//name`` at a server (``roots://`` for TLS).
    cache_bytes
        Bytes of decoded pages that are kept for reading objects, 256 MiB by default.
    threads
        Threads that read a large array, by default as many as there are cores.
    streams
        Connections to a server, beside the first one, over which what will be needed is read ahead, 2 by
        default. More are of use where the way to the server is long.
    read_ahead_bytes
        Bytes that are read ahead from a server at once, 2 MiB by default, 64 MiB at most. More are of use
        where its disks seek slowly; reading one container in order holds up to two and a half times as
        much. With 0 nothing is read ahead.
    disk_cache
        Folder where what is read from a server is kept, also for other processes, by default nowhere.
    disk_cache_bytes
        Bytes that are kept there of each federation, 16 GiB by default; what was used least recently goes
        first.
    timeout
        Seconds to keep retrying a server that answered before and has stopped, for example while it
        restarts; 60 by default. A server that cannot be connected to here is an error at once.

    Raises
    ------
    NotFoundError
        If there is none at that place.
    UnavailableError
        If the server cannot be reached, or its certificate is not trusted.
    DeniedError
        If the server does not let the caller in, or the folder may not be read.
    UnsupportedError
        If it was made by a newer release.
    """
    handle = FederationHandle.open(
        _local_path(path),
        cache_bytes,
        threads,
        streams,
        read_ahead_bytes,
        disk_cache,
        disk_cache_bytes,
        timeout,
    )
    return Federation(handle)


def restore(
    backups: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> Federation:
    """Make a federation from a backup, or from a full one and the ones made since, in their order.

    Every byte is checked.

    Raises
    ------
    CorruptError
        If a backup is damaged.
    InvalidError
        If the backups do not follow each other.
    """
    return Federation(_restore(paths(backups), os.fspath(folder), progress))


def rebuild_catalogue(
    path: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Make the catalogue of a federation again from the files of its databases alone.

    Objects, OIDs, classes, names and commits come back; tags, retention and the users of commits do
    not, and files that were attached elsewhere have to be attached again. The old catalogue is moved
    away. Nobody else may have the federation open.

    Parameters
    ----------
    path
        Folder of the federation.
    name
        Name of the federation, by default that of the folder.
    progress
        Told how far it is.
    """
    return _rebuild_catalogue(os.fspath(path), name, progress)


def identify(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Say what a file is: a database, of which federation and in which state, or another ROOT file."""
    return _identify(os.fspath(path))


@dataclass(frozen=True)
class Attached:
    """A file that was attached."""

    name: str
    """Name of the database that it has become."""
    containers: list[str]
    """Names of its containers."""
    ignored: list[str]
    """Fields that cannot be read, with the reason."""
    renamed: dict[str, str]
    """Other names that classes of the file have in this federation, such as ``"Events@dimuon"`` for
    ``"Events"``, because it has a class of that name with other fields."""


class Federation(Upkeep):
    """A federation that is open.

    It may be used from many threads. It is pickled as its place, and opened again where it is
    unpickled; after a fork the child opens its own.
    """

    def __init__(self, handle: FederationHandle) -> None:
        self._handle = handle
        # Kept here so that they can still be told after closing and in a forked child.
        self.name = handle.name
        """Name of the federation."""
        self.path = os.fspath(handle.path)
        """Folder of the federation."""
        self.uuid = handle.uuid
        """What tells this federation from all others."""

    def head(self) -> int:
        """Return the number of the newest commit."""
        return self._handle.head()

    def snapshot(
        self,
        *,
        csn: int | None = None,
        time: datetime | str | float | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Return the federation as of a commit.

        Parameters
        ----------
        csn
            Number of the commit; the newest if not given.
        time
            Instead of a number: the newest commit at that time, as a datetime, ISO text, or seconds
            since 1970.
        tag
            Instead of a number: the name of a tagged snapshot.
        """
        if sum(given is not None for given in (csn, time, tag)) > 1:
            raise InvalidError("give one of csn, time and tag")
        if tag is not None:
            return Snapshot(self, self._handle.upkeep().tagged(tag))
        if time is not None:
            return Snapshot(self, self._handle.upkeep().at_time(_microseconds(time)))
        return Snapshot(self, self._handle.snapshot(csn))

    def transaction(
        self,
        *,
        message: str = "",
        lock_timeout: float = 10.0,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
    ) -> Transaction:
        """Begin a transaction; use it in a ``with`` block.

        Parameters
        ----------
        message
            What it is for; kept in the history.
        lock_timeout
            Seconds to wait for a container that another writer holds.
        isolation
            ``"snapshot"``: all that is read is of one commit, and what is changed nobody else has
            changed since. ``"serializable"``: also what is only read nobody has changed since.
        """
        if isolation not in ("snapshot", "serializable"):
            raise InvalidError(f"isolation {isolation!r} does not exist; there are snapshot and serializable")
        check_text(message, "message")
        is_serializable = isolation == "serializable"
        return Transaction(self, self._handle.begin(message, _seconds(lock_timeout), is_serializable))

    def databases(self) -> list[dict[str, Any]]:
        """Return name, number, state and file of each database."""
        return self.snapshot().databases()

    def __getitem__(self, name: str) -> View:
        """Return a container, such as ``fed["run7/events"]``, as of the newest commit."""
        return self.snapshot()[name]

    def __iter__(self) -> Any:
        """Iterate over the names of all containers as of the newest commit."""
        return iter(self.snapshot())

    def keys(self) -> list[str]:
        """Return the names of all containers as of the newest commit."""
        return list(self.snapshot())

    def find(self, name: str, /, **values: Any) -> Object:
        """Return the first object of a container whose fields have some values, as of the newest commit.

        Such as ``fed.find("run7/events", run=7, event=12345)``; see :meth:`View.find`.
        """
        return self.snapshot().find(name, **values)

    def classes(self) -> list[dict[str, Any]]:
        """Return the registered class definitions."""
        return [json.loads(text) for text in self._handle.classes()]

    def define(
        self,
        model: Model | str | os.PathLike[str] | Mapping[str, Any],
        *,
        upstream: Model | str | os.PathLike[str] | None = None,
    ) -> Model:
        """Register the classes of a data model written for podio, such as ``edm4hep.yaml``.

        Classes that are registered already stay as they are; those that differ become a new version,
        whose number is the model's ``schema_version``.

        Parameters
        ----------
        model
            A model, the path of its YAML file, or what one holds.
        upstream
            The model whose types this one uses, if it does.

        Returns
        -------
        Model
            The classes, with their versions.

        Raises
        ------
        InvalidError
            If it is no data model, or a class differs and the ``schema_version`` was not raised.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> model = fed.define({"datatypes": {"my::Hit": {"Members": ["float energy [GeV] // deposit"]}}})
        >>> with fed.transaction() as txn:
        ...     hits = txn.database("run7", create=True).container("hits", model.Hit, create=True)
        ...     oid = hits.append(model.Hit(energy=1.5))
        >>> fed["run7/hits"][0].energy
        1.5
        """
        read = model if isinstance(model, Model) else load_model(model, upstream=upstream)
        known = [Definition.from_json(form) for form in self.classes()]
        registered = read.registered(known)
        new = [each for each in registered.definitions.values() if each not in known]
        if new:
            with self.transaction(message=f"define {len(new)} classes") as txn:
                for definition in new:
                    txn.declare(definition)
        return registered

    def attach(self, path: str | os.PathLike[str], name: str | None = None) -> Attached:
        """Take a file with RNTuples into the federation without copying it.

        A class of the file that this federation has with the same fields is that class. If the federation has
        the name and version with other fields, the class gets the name of the database behind its own:
        ``"Events@dimuon"``. A persistent class ``Events`` with the same fields goes on meaning it.

        Parameters
        ----------
        path
            A sealed database of another federation, or any ROOT file with RNTuples.
        name
            Name as a database, by default that of the file without its suffix.

        Raises
        ------
        CorruptError
            If the file is truncated or damaged.
        InvalidError
            If it is no ROOT file or has no RNTuple.
        ExistsError
            If the file, or a database of its name, is in the federation already.
        """
        facts = self._handle.attach(os.fspath(path), name)
        return Attached(facts["name"], facts["containers"], facts["ignored"], facts["renamed"])

    def import_tree(
        self,
        path: str | os.PathLike[str],
        tree: str | None = None,
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        only: list[str] | None = None,
        grouping: bool = True,
        again: bool = False,
        jobs: int = 1,
        batch_bytes: int = 64_000_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Imported:
        """Copy a TTree of a ROOT file, or all that are in it, in one transaction.

        Parameters
        ----------
        path
            A ROOT file.
        tree
            Name of the tree; all trees of the file if not given.
        database, container, class_name, only, grouping, again, jobs, batch_bytes, progress
            As for :meth:`import_trees`.

        Returns
        -------
        Imported
            Of the tree that was named; else of the one with a usual name, such as ``Events``, or the largest.
        """
        wish = Wish(
            None if tree is None else [tree],
            database,
            container,
            class_name,
            only,
            grouping,
            again,
            jobs,
            batch_bytes,
        )
        return main_tree(import_trees(self, [(os.fspath(path), None)], wish, progress))

    def import_trees(
        self,
        files: Files,
        trees: Sequence[str] | None = None,
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        only: list[str] | None = None,
        grouping: bool = True,
        again: bool = False,
        jobs: int = 1,
        batch_bytes: int = 64_000_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Imported]:
        """Copy TTrees of ROOT files into containers: all files in one transaction, or nothing.

        Trees that go into one container become one class. A field that some of the files lack is optional
        in it, and missing in the objects of these: a trigger that is not in a file has not failed to fire.
        A container that is there takes a newer version of its class if a file has other fields.

        The container ``imports`` of a database says which files its objects came from, and which entries.

        Parameters
        ----------
        files
            ROOT files, patterns such as ``"dy/**/*.root"``, or ``FILE:TREE``; one, or a list.
        trees
            Names of the trees; all that can be imported if not given.
        database
            Database to import into, made if needed; by default one for each file, named as it is.
        container
            Container to append to, made if needed; by default named as the tree. ``{tree}`` in it stands for
            the name of the tree.
        class_name
            Class of the objects of a new container, by default named as the tree; ``{tree}`` as above.
        only
            Globs of branches to import; all if not given.
        grouping
            Whether branches that belong together by their names become collections and records.
        again
            Whether to import what was imported before, too.
        jobs
            Processes that read, beside this one, which writes. With 1 it is a thread; it is enough where
            branches hold numbers and lists of numbers, which all processors read in either case. A script
            that gives more has to have ``if __name__ == "__main__":``.
        batch_bytes
            Uncompressed bytes that are read at once; each job holds a few times as much.
        progress
            Called with the objects imported so far and the objects in all.

        Returns
        -------
        list
            What became of each tree, and what was left out.

        Raises
        ------
        ExistsError
            If a tree of a file was imported before, or is given twice: files are known by their UUIDs,
            which copies share.
        InvalidError
            If trees cannot be of one class; the text names the field.
        NotFoundError
            If there is no such file or tree, or a pattern matches nothing.
        """
        wish = Wish(trees, database, container, class_name, only, grouping, again, jobs, batch_bytes)
        return import_trees(self, expanded(files), wish, progress)

    def import_file(
        self,
        path: str | os.PathLike[str],
        *,
        database: str | None = None,
        container: str | None = None,
        class_name: str | None = None,
        ntuple: str | None = None,
        expressions: Expressions = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Imported:
        """Copy a Parquet or Arrow file, or an RNTuple of a ROOT file, into a container.

        Parameters
        ----------
        path
            A ``.parquet``, ``.arrow``, ``.feather`` or ``.root`` file.
        database
            Database to import into, made if needed; by default named as the file.
        container
            Container to append to, made if needed; by default named as the file or the RNTuple.
        class_name
            Class of the objects, by default named as the file or the RNTuple.
        ntuple
            Name of the RNTuple, if the file has more than one.
        expressions
            Fields to import, as for :meth:`View.arrays`; all if not given.
        again
            Whether to import the file even if it was imported before.
        progress
            Called with the objects imported so far and the objects in all.

        Raises
        ------
        ExistsError
            If the file was imported before.
        InvalidError
            If a column is of a type that cannot be stored; the text names it.

        Examples
        --------
        >>> import femtobarn as fb, pandas as pd, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> pd.DataFrame({"n": [1, 2, 3]}).to_parquet(folder + "/numbers.parquet")
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> fed.import_file(folder + "/numbers.parquet", database="d").container
        'd/numbers'
        >>> fed["d/numbers"][2].n
        3
        """
        return import_file(
            self,
            path,
            database=database,
            container=container,
            class_name=class_name,
            ntuple=ntuple,
            expressions=expressions,
            again=again,
            progress=progress,
        )

    def export(
        self,
        names: str | Sequence[str],
        path: str | os.PathLike[str],
        expressions: Expressions = None,
        where: str | None = None,
        *,
        format: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Write objects of containers to a file, as of the newest commit; see :meth:`Snapshot.export`."""
        return self.snapshot().export(names, path, expressions, where, format=format, progress=progress)

    def seal(self, database: str, *, lock_timeout: float = 10.0) -> int:
        """Make a database read-only for ever and its file a complete ROOT file.

        Parameters
        ----------
        database
            Name of the database.
        lock_timeout
            Seconds to wait for writers of its containers.

        Returns
        -------
        int
            Number of the commit.
        """
        return self._handle.seal(database, _seconds(lock_timeout))

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first: number, time, message, user, host and process."""
        return [
            commit | {"time": datetime.fromtimestamp(commit["time_us"] / 1e6, UTC)}
            for commit in self._handle.history(limit)
        ]

    def close(self) -> None:
        """Close the federation; views and snapshots of it can then no longer be read."""
        self._handle.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Federation {self.name!r} at {self.path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path,)


# A forked child must not touch its parent's locks and connections: handles refuse there.
os.register_at_fork(after_in_child=count_fork)

_OPENED: WeakValueDictionary[tuple[int, str], Federation] = WeakValueDictionary()
"""Federations opened by unpickling, so that many pickled views of one share it; by process and path."""


def _reopen(path: str) -> Federation:
    federation = _OPENED.get((os.getpid(), path))
    if federation is None:
        federation = _OPENED[os.getpid(), path] = open(path)
    return federation


def _local_path(path: str | os.PathLike[str]) -> str:
    return os.fspath(path)


def _microseconds(time: datetime | str | float) -> int:
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidError(f"{time!r} is not a time; write one such as 2026-11-21T18:30") from None
    if isinstance(time, datetime):
        # A time without a zone is meant as the user's own.
        time = time.astimezone().timestamp()
    return int(time * 1e6)

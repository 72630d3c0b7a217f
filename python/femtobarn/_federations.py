"""Federations: databases that share one catalogue, one schema and one order of commits.

The functions make and open a federation; :class:`Federation` is an open one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from ._bars import ProgressOption
from ._containers import Containers
from ._exceptions import InvalidError, check_text
from ._exchange.imports import Imports
from ._femtobarn import FederationHandle, count_fork
from ._lazy import LazyModule
from ._objects.objects import Object
from ._query.paths import Expressions
from ._query.selection import Where
from ._schema.types import Definition
from ._snapshots import Snapshot
from ._storage import Servers, Storage
from ._tiers import TierStatistics
from ._transactions import Transaction
from ._upkeep import Attached, Upkeep
from ._upkeep import seconds as _seconds

if TYPE_CHECKING:
    from . import _addresses as addresses
    from ._conditions.global_tags import Conditions
    from .datamodel import Model
else:
    addresses = LazyModule("femtobarn._addresses")

__all__ = ["Federation", "create", "open"]


def create(
    path: str | os.PathLike[str], *, name: str | None = None, catalogue: str | None = None
) -> Federation:
    """Make a federation: a folder with a catalogue and the files of databases.

    Parameters
    ----------
    path
        Folder to make. It must not exist, or be empty.
    name
        Name of the federation, by default that of the folder without its suffix.
    catalogue
        URL of a database of PostgreSQL, ``postgresql://user@host/database``, in which the catalogue gets
        a schema of its own; by default the catalogue is an SQLite file in the folder. The folder keeps the
        URL.

    Raises
    ------
    ExistsError
        If the folder is not empty.
    StorageError
        If the folder cannot be written.
    InvalidError
        If `catalogue` is not a URL of this form.
    UnavailableError
        If PostgreSQL does not answer.
    DeniedError
        If PostgreSQL refuses the log-in, or a new schema.

    Examples
    --------
    >>> import femtobarn as fb, tempfile, os
    >>> fed = fb.create(os.path.join(tempfile.mkdtemp(), "lhc.fed"))
    >>> fed.name, fed.head(), list(fed)
    ('lhc', 0, [])
    """
    text = os.fspath(path)
    check_text(text, "path")
    if catalogue is not None:
        check_text(catalogue, "catalogue")
    return Federation(FederationHandle.create(text, name or Path(text).stem, catalogue))


def open(
    path: str | os.PathLike[str] | Sequence[str],
    *,
    cache_bytes: int | None = None,
    metadata_bytes: int | None = None,
    threads: int | None = None,
    streams: int | None = None,
    read_ahead_bytes: int | None = None,
    disk_cache: str | os.PathLike[str] | None = None,
    disk_cache_bytes: int | None = None,
    memcached: str | Sequence[str] = (),
    timeout: float | None = None,
    stage: bool = True,
) -> Federation:
    """Open a federation.

    Parameters
    ----------
    path
        Folder of the federation, or ``root://host:port//name`` at a server (``roots://`` for TLS). Several of
        these, in a list or with commas between them, are servers that have copies of the federation: it is
        read from servers with little load, from the others if one fails, and cannot be changed.
    cache_bytes
        Size of the cache of decoded pages from which single objects are read, 256 MiB by default.
    metadata_bytes
        Size of what is kept of open containers and, up to two thirds, of conditions; 384 MiB by default.
    threads
        Threads that read one large array; one for each core by default.
    streams
        Connections to a server for read-ahead, beside the first; 2 by default. Raise it for distant servers.
    read_ahead_bytes
        Size of one read-ahead request, 2 MiB by default, 64 MiB at most; 0 turns read-ahead off. Raise it if
        the server's disks seek slowly. Reading in order needs up to 2.5 times as much memory.
    disk_cache
        Folder for a cache of the bytes read from a server, which processes share; no cache by default.
    disk_cache_bytes
        Size of that cache for each federation, 16 GiB by default; the least recently used bytes leave first.
    memcached
        ``host:port`` of a memcached server, or several, which jobs of a cluster share; they are asked after
        the disk cache. Everybody who can reach them can read the cached bytes.
    timeout
        Seconds to keep trying a server that stopped answering; 60 by default. Connecting is tried once.
    stage
        Whether reading a nearline database stages it, with a progress bar on a terminal; if not, reading
        raises `UnavailableError`.

    Raises
    ------
    InvalidError
        If an address of memcached has another form, or servers have different federations.
    NotFoundError
        If there is no federation at the path.
    UnavailableError
        If the server cannot be reached, or its certificate is not trusted.
    DeniedError
        If the server refuses the caller, or the folder may not be read.
    UnsupportedError
        If a newer release made it, in a format that this release does not know.
    """
    paths = addresses.paths_of(path)
    memory = (cache_bytes, metadata_bytes, threads, streams, read_ahead_bytes)
    hosts = [memcached] if isinstance(memcached, str) else list(memcached)
    handle = FederationHandle.open(
        ",".join(paths), *memory, disk_cache, disk_cache_bytes, hosts, timeout, stage
    )
    return Federation(handle)


class Federation(Containers, Upkeep, Servers, Storage, Imports):
    """An open federation.

    Threads may share it. A pickle of it holds its path, and opens it again where it is unpickled. After a
    fork the child has to open it again.
    """

    def __init__(self, handle: FederationHandle) -> None:
        self._handle = handle
        # Plain attributes, because the handle refuses after closing and in a forked child.
        self.name = handle.name
        """Name of the federation."""
        self.path = os.fspath(handle.path)
        """Folder of the federation."""
        self.uuid = handle.uuid
        """UUID of the federation."""

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
            Instead of a number: the newest commit at a time, which is a datetime, a text in ISO 8601, or
            seconds since 1970. A time without a zone is local.
        tag
            Instead of a number: the name of a tag.

        Raises
        ------
        NotFoundError
            If there is no such commit or tag, or vacuum has given the snapshot up.
        InvalidError
            If more than one of the three is given.
        """
        if sum(given is not None for given in (csn, time, tag)) > 1:
            raise InvalidError("give one of csn, time and tag")
        if tag is not None:
            check_text(tag, "tag")
            return Snapshot(self, self._handle.upkeep().tagged(tag))
        if time is not None:
            return Snapshot(self, self._handle.upkeep().at_time(addresses.microseconds(time)))
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
            Purpose of the transaction, recorded in the history.
        lock_timeout
            Seconds to wait for the lock of a container that another writer holds.
        isolation
            ``"snapshot"``: all reads are of one commit, and the commit fails if another transaction changed a
            container that this one writes. ``"serializable"``: it also fails if another transaction changed a
            container that this one read.
        """
        if isolation not in ("snapshot", "serializable"):
            raise InvalidError(f"isolation {isolation!r} does not exist; there are snapshot and serializable")
        check_text(message, "message")
        is_serializable = isolation == "serializable"
        return Transaction(self, self._handle.begin(message, _seconds(lock_timeout), is_serializable))

    @property
    def conditions(self) -> Conditions:
        """The conditions of the federation, as in ``fed.conditions("prod-2026")["tpc/gain"].at(time)``."""
        from ._conditions.global_tags import (
            Conditions,
        )  # Few programs need it.

        return Conditions(self)

    def find(self, name: str, /, **values: Any) -> Object:
        """Return the first object with the given values of fields, as of the newest commit.

        For example ``fed.find("run7/events", run=7, event=12345)``; see :meth:`View.find`.
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
        evolution: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> Model:
        """Register the classes of a data model written for podio, such as ``edm4hep.yaml``.

        A class that differs from its registered version gets a new version, whose number is the model's
        ``schema_version``; the other registered classes stay as they are.

        Parameters
        ----------
        model
            A model, the path of its YAML file, or the content of that file as a mapping.
        upstream
            The model that defines the types which this model uses but does not define.
        evolution
            Members that were renamed: the path of podio's YAML file of ``migrations``, or its content.

        Returns
        -------
        Model
            The classes, with their versions.

        Raises
        ------
        InvalidError
            If the data model is malformed, or a class differs though ``schema_version`` was not raised.
        UnsupportedError
            If `evolution` renames a class.

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
        from .datamodel import Model, load_model
        from .datamodel.evolution import Evolution

        read = model if isinstance(model, Model) else load_model(model, upstream=upstream)
        known = [Definition.from_json(form) for form in self.classes()]
        registered = read.registered(known, None if evolution is None else Evolution.read(evolution))
        new = [each for each in registered.definitions.values() if each not in known]
        if new:
            with self.transaction(message=f"define {len(new)} classes") as txn:
                for definition in new:
                    txn.declare(definition)
        return registered

    def attach(self, path: str | os.PathLike[str], name: str | None = None) -> Attached:
        """Add a file with RNTuples to the federation as a database, without copying it.

        A class of the file is the class of that name in this federation if their fields are the same. If the
        federation has the name and version with other fields, the class is renamed after the database:
        ``"Events@dimuon"``. A persistent class ``Events`` with the same fields still stands for it.

        Parameters
        ----------
        path
            A sealed database of another federation, or any ROOT file with RNTuples.
        name
            Name of the database, by default that of the file without its suffix.

        Raises
        ------
        CorruptError
            If the file is truncated or damaged.
        InvalidError
            If the file is not a ROOT file, or has no RNTuple.
        ExistsError
            If the file is attached already, or the federation has a database of that name.
        """
        facts = self._handle.attach(os.fspath(path), name)
        return Attached(facts["name"], facts["containers"], facts["ignored"], facts["renamed"])

    def export(
        self,
        names: str | Sequence[str],
        path: str | os.PathLike[str],
        expressions: Expressions = None,
        where: Where = None,
        *,
        format: str | None = None,
        layout: str | None = None,
        aliases: Mapping[str, str] | None = None,
        progress: ProgressOption = None,
    ) -> int:
        """Export objects of containers to a file, as of the newest commit; see :meth:`Snapshot.export`."""
        return self.snapshot().export(
            names, path, expressions, where, format=format, layout=layout, aliases=aliases, progress=progress
        )

    def seal(self, database: str, *, lock_timeout: float = 10.0) -> int:
        """Seal a database: it is read-only from then on, and its file is a complete ROOT file.

        Parameters
        ----------
        database
            Name of the database.
        lock_timeout
            Seconds to wait for the writers of its containers.

        Returns
        -------
        int
            Number of the commit.
        """
        return self._handle.seal(database, _seconds(lock_timeout))

    def read_statistics(self) -> list[TierStatistics]:
        """Return statistics of the reads from each cache and from the server, in the order in which they are
        asked.

        For a federation in a folder the list has the reads in stores, or is empty.
        """
        return [TierStatistics(*row) for row in self._handle.read_statistics()]

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the commits, newest first: number, time, message, user, host and process."""
        return [
            commit | {"time": datetime.fromtimestamp(commit["time_us"] / 1e6, UTC)}
            for commit in self._handle.history(limit)
        ]

    @staticmethod
    @contextmanager
    def _attached_alone(file: Path) -> Iterator[Snapshot]:
        """Attach a ROOT file to a temporary, otherwise empty federation."""
        with Federation._temporary() as federation:
            federation.attach(file.absolute(), "file")
            yield federation.snapshot()

    @staticmethod
    @contextmanager
    def _temporary(beside: Path | None = None) -> Iterator[Federation]:
        """Make a federation that is removed at the end, in a folder in which its files can be renamed."""
        import tempfile

        with (
            tempfile.TemporaryDirectory(prefix=".femtobarn-", dir=beside) as folder,
            create(Path(folder) / "temporary.fed") as federation,
        ):
            yield federation

    def close(self) -> None:
        """Close the federation; its views and snapshots can no longer be read."""
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
        return _reopen, (self.path, self.uuid)


# A forked child must not use its parent's locks and connections: the handles count forks, and refuse there.
os.register_at_fork(after_in_child=count_fork)

_OPENED: WeakValueDictionary[tuple[int, str, str | None], Federation] = WeakValueDictionary()
"""Federations opened by unpickling, by process, path and UUID: unpickled views of one federation share it."""


def _reopen(path: str, uuid: str | None = None) -> Federation:
    federation = _OPENED.get((os.getpid(), path, uuid))
    if federation is None:
        federation = _OPENED[os.getpid(), path, uuid] = open(path)
    if uuid not in (None, federation.uuid):
        raise InvalidError(f"{path} is not the federation that was pickled: its UUID is not {uuid}")
    return federation

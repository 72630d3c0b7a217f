"""Transactions: all that is written is committed at once, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._arrays import columns_of
from ._classes import definition_of
from ._oid import OidRange
from ._types import Definition
from ._views import bytes_of_size

if TYPE_CHECKING:
    from ._federations import Federation
    from ._femtobarn import TransactionHandle, WriterHandle

__all__ = ["ContainerWriter", "Database", "Transaction"]


class Transaction:
    """A change to the federation: committed at the end of its ``with`` block, undone by an exception.

    Nobody sees anything of it before, and everybody all of it after.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> @fb.persistent
    ... class Run:
    ...     number: fb.uint32
    >>> with fed.transaction(message="first run") as txn:
    ...     runs = txn.database("conditions", create=True).container("runs", Run, create=True)
    ...     runs.append(Run(number=7))
    Oid(1, 1, 0)
    >>> txn
    <Transaction on 'lhc': csn 1>
    """

    def __init__(self, federation: Federation, handle: TransactionHandle) -> None:
        self.federation = federation
        self._handle = handle
        self.csn: int | None = None
        """Number of the commit, once it is done."""

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._handle.active:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def database(self, name: str, *, create: bool = False) -> Database:
        """Return a database to write to.

        Parameters
        ----------
        create
            Whether to make it if it does not exist.
        """
        self._handle.database(name, create)
        return Database(self, name)

    def declare(self, cls: Any) -> None:
        """Register a class before there is a container of its objects.

        Raises
        ------
        ExistsError
            If the same version of it is registered with other fields; raise its version.
        """
        self._handle.declare_class(definition_json(definition_of(cls)))

    def commit(self) -> int:
        """Make all that was written durable and visible; return the number of the commit.

        Raises
        ------
        ConflictError
            If another transaction changed one of the same containers meanwhile; nothing is written.
        """
        self.csn = self._handle.commit()
        return self.csn

    def rollback(self) -> None:
        """Forget all that was written."""
        self._handle.rollback()

    def __repr__(self) -> str:
        state = "open" if self._handle.active else (f"csn {self.csn}" if self.csn else "rolled back")
        return f"<Transaction on {self.federation.name!r}: {state}>"


class Database:
    """A database within a transaction."""

    def __init__(self, transaction: Transaction, name: str) -> None:
        self.transaction = transaction
        self.name = name

    def container(
        self,
        name: str,
        cls: Any = None,
        *,
        create: bool = False,
        page_size: int | str | None = None,
        cluster_size: int | str | None = None,
        compression: str | None = None,
    ) -> ContainerWriter:
        """Return a container to append to, holding its write lock until the transaction ends.

        Parameters
        ----------
        cls
            The class of its objects: a persistent class, a definition or its JSON. May be left out
            for a container that exists.
        create
            Whether to make it if it does not exist.
        page_size, cluster_size
            Bytes before compression, such as ``"64 KiB"``, for a container that is made. Small pages
            are good for reading single objects, large ones for scans.
        compression
            ``"none"``, ``"lz4"`` or ``"zstd"``, for a container that is made.

        Raises
        ------
        BusyError
            If another writer holds the lock for longer than the transaction waits.
        """
        definition = definition_of(cls) if cls is not None else None
        handle = self.transaction._handle.container(
            self.name,
            name,
            definition_json(definition) if definition is not None else None,
            create,
            _bytes(page_size),
            _bytes(cluster_size),
            compression,
        )
        return ContainerWriter(self, name, handle)

    def __repr__(self) -> str:
        return f"<Database {self.name!r} in {self.transaction!r}>"


class ContainerWriter:
    """A container within a transaction: objects are appended, one by one or in bulk."""

    __slots__ = ("_definition", "_handle", "append", "database", "name")

    def __init__(self, database: Database, name: str, handle: WriterHandle) -> None:
        self.database = database
        self.name = name
        self._handle = handle
        self._definition: Definition | None = None
        self.append = handle.append
        """Append one object (of a persistent class, or a dictionary) and return its OID."""

    @property
    def definition(self) -> Definition:
        """The class of the objects."""
        if self._definition is None:
            self._definition = Definition.from_json(self._handle.definition)
        return self._definition

    @property
    def database_id(self) -> int:
        """Number of the database, as in OIDs."""
        return self._handle.database

    @property
    def container_id(self) -> int:
        """Number of the container, as in OIDs."""
        return self._handle.container

    @property
    def num_entries(self) -> int:
        """Number of objects, those of this transaction included."""
        return self._handle.entries

    def extend(self, data: Any, *, narrow: bool = False) -> OidRange:
        """Append many objects and return their OIDs.

        Parameters
        ----------
        data
            A record array of awkward, a structured NumPy array, a pandas data frame, an Arrow table,
            a mapping of fields to arrays, or objects of a persistent class.
        narrow
            Whether ``float64`` may be rounded to ``float32``.

        Raises
        ------
        InvalidError
            If names or values do not fit the class; nothing is appended.

        Examples
        --------
        >>> import awkward as ak, femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Jet:
        ...     pt: fb.float32
        >>> @fb.persistent
        ... class Event:
        ...     jets: list[Jet]
        >>> with fed.transaction() as txn:
        ...     events = txn.database("mc", create=True).container("events", Event, create=True)
        ...     events.extend(ak.Array([{"jets": [{"pt": 31.5}]}, {"jets": []}]), narrow=True)
        OidRange(1, 1, 0, 2)
        """
        first = self._handle.entries
        if _are_objects(data):
            for item in data:
                self._handle.append(item)
        else:
            self._handle.extend(columns_of(data, self.definition.record, narrow=narrow))
        return OidRange(self._handle.database, self._handle.container, first, self._handle.entries)

    def __len__(self) -> int:
        return self._handle.entries

    def __repr__(self) -> str:
        return f"<ContainerWriter {self.database.name}/{self.name}: {len(self):,} objects>"


def definition_json(definition: Definition) -> str:
    """Return a definition as the text that the engine takes."""
    return json.dumps(definition.to_json(), separators=(",", ":"))


def _bytes(size: int | str | None) -> int | None:
    return bytes_of_size(size) if isinstance(size, str) else size


def _are_objects(data: Any) -> bool:
    if isinstance(data, Iterator):
        return True
    return isinstance(data, list | tuple) and bool(data) and hasattr(type(data[0]), "__femtobarn__")

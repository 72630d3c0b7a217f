"""Databases and containers within a transaction: objects appended, updated and deleted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._data.arrays import Tree, columns_of
from ._data.arrow import is_arrow_stream
from ._exceptions import InvalidError, NotFoundError, check_text
from ._objects.changes import Chosen, entries_of, new_values
from ._oid import OidRange
from ._schema.classes import definition_of
from ._schema.types import Definition
from ._sizes import bytes_of_size
from ._views.view import View

if TYPE_CHECKING:
    from ._femtobarn import WriterHandle
    from ._transactions import Transaction

__all__ = ["ContainerWriter", "Database", "definition_json", "hint_to_create"]


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
        evolve: bool = False,
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
        evolve
            Whether to make its objects objects of ``cls`` if that is a newer version of their class:
            fields can be added, left out, renamed (``fb.field(was=...)``), widened and made lists.
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
        check_text(name, "container")
        with hint_to_create("the container", create):
            handle = self.transaction._handle.container(
                self.name,
                name,
                definition_json(definition) if definition is not None else None,
                create,
                evolve,
                _bytes(page_size),
                _bytes(cluster_size),
                compression,
            )
        return ContainerWriter(self, name, handle)

    def reserve(self, size: int | str) -> None:
        """Set space of the database's file aside for what this process writes to it.

        A disk that is too small tells so now, and not in the middle of a run; the file lies in one piece, if
        the disk has one. What is left in the end is given back. Without it, a file grows with what is
        written, by up to 64 MiB at a time.

        Parameters
        ----------
        size
            Bytes, such as ``"600 MB"``; at most 1 GB at once. What was set aside before and is still unused
            counts.

        Raises
        ------
        StorageError
            If the disk is full; the transaction can go on, or be rolled back.
        """
        self.transaction._handle.reserve(self.name, bytes_of_size(size) if isinstance(size, str) else size)

    def rename(self, new_name: str) -> None:
        """Give the database another name; snapshots from before keep the old one."""
        self.transaction.rename(self.name, new_name)
        self.name = new_name

    def drop(self) -> None:
        """Drop the database with all that is in it; snapshots from before keep it."""
        self.transaction.drop(self.name)

    def __repr__(self) -> str:
        return f"<Database {self.name!r} in {self.transaction!r}>"


class ContainerWriter:
    """A container within a transaction: objects are appended, changed and deleted, one or many."""

    __slots__ = ("_definition", "_handle", "append", "database", "name")

    def __init__(self, database: Database, name: str, handle: WriterHandle) -> None:
        self.database = database
        self.name = name
        self._handle = handle
        self._definition: Definition | None = None
        self.append = handle.append
        """Append one object (of a persistent class, or a dictionary) and return its OID.

        An object with a field that the class of the container has not is refused, with
        :class:`~femtobarn.InvalidError`.
        """

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
        """Number of entries, those of this transaction and of deleted objects included."""
        return self._handle.entries

    def extend(self, data: Any) -> OidRange:
        """Append many objects and return their OIDs.

        Values are taken as :attr:`append` takes them: real numbers are rounded to the precision of their
        field, integers are kept exactly or refused, and what would become infinite is refused.

        Parameters
        ----------
        data
            A record array of awkward, a structured NumPy array, a pandas data frame, what gives itself as
            Arrow data (a table or a reader of pyarrow, a data frame of polars, ...), a mapping of fields to
            arrays, or objects of a persistent class.

        Raises
        ------
        InvalidError
            If names or values do not fit the class; of arrays, nothing is appended.

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
        ...     events.extend(ak.Array([{"jets": [{"pt": 31.5}]}, {"jets": []}]))
        OidRange(1, 1, 0, 2)
        """
        first = self._handle.entries
        if _are_objects(data):
            for item in data:
                self._handle.append(item)
        else:
            self._handle.extend(columns_of(data, self.definition.record))
        return OidRange(self._handle.database, self._handle.container, first, self._handle.entries)

    def extend_columns(self, columns: Tree) -> None:
        """Append many objects whose columns have been matched against the class already."""
        self._handle.extend(columns)

    def update(self, objects: Chosen, values: Any = None, /, **fields: Any) -> None:
        """Replace fields of objects; earlier snapshots keep what they were.

        Parameters
        ----------
        objects
            One object or many: OIDs, objects, or numbers of entries.
        values
            New values by the dotted names of fields: one of each for a single object, as many as there
            are objects for several. An object of the class replaces all fields of a single one.
        fields
            Further fields with their new values.

        Raises
        ------
        NotFoundError
            If there is no such object or field, or it was deleted.
        ConflictError
            If another transaction changed the container since the first read of this one.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [1, 2, 3]})
        ...     numbers.update(oids[0], n=10)
        ...     numbers.update([1, 2], {"n": [20, 30]})
        >>> fed["d/numbers"]["n"].to_list()
        [10, 20, 30]
        """
        entries, single = entries_of(objects, self._place)
        tree = new_values(values, fields, self.definition, single)
        self._handle.update(entries.tobytes(), tree)

    def delete(self, objects: Chosen | None = None, *, where: str | None = None) -> int:
        """Delete objects and return their number; earlier snapshots keep them.

        Their OIDs stay theirs: no other object gets one of them.

        Parameters
        ----------
        objects
            One object or many: OIDs, objects, or numbers of entries.
        where
            Instead of naming them: a condition, as for :meth:`View.arrays`.

        Raises
        ------
        NotFoundError
            If there is no such object, or it was deleted already.
        ConflictError
            If another transaction changed the container since the first read of this one.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [1, 2, 3]})
        ...     numbers.delete(where="n >= 2")
        2
        """
        if (objects is None) == (where is None):
            raise InvalidError("say which objects to delete, or give a condition as where")
        entries = self.view().entries(where) if where is not None else entries_of(objects, self._place)[0]
        return self._handle.delete(entries.tobytes())

    def view(self) -> View:
        """Return the container as it is now, with what this transaction has changed."""
        return View(
            self.database.transaction.snapshot(), f"{self.database.name}/{self.name}", self._handle.view()
        )

    def create_index(self, name: str, fields: str | Sequence[str], *, unique: bool = False) -> None:
        """Make an index, over the objects that are there and all that will be.

        Parameters
        ----------
        fields
            Dotted names of the fields that make the key, in order: numbers, truth values, texts and
            links. If they lie in a list, an object has a key for each item.
        unique
            Whether a commit fails that would leave two objects with the same key.

        Raises
        ------
        ExistsError
            If there is an index of that name.
        """
        self._handle.create_index(name, [fields] if isinstance(fields, str) else list(fields), unique)

    def drop_index(self, name: str) -> None:
        """Take an index away; older snapshots keep it."""
        self._handle.drop_index(name)

    def rename(self, new_name: str) -> None:
        """Give the container another name; snapshots from before keep the old one."""
        self.database.transaction.rename(f"{self.database.name}/{self.name}", new_name)
        self.name = new_name

    def drop(self) -> None:
        """Drop the container with all its objects; snapshots from before keep it."""
        self.database.transaction.drop(f"{self.database.name}/{self.name}")

    @property
    def _place(self) -> tuple[int, int]:
        return self._handle.database, self._handle.container

    def __len__(self) -> int:
        return self._handle.entries

    def __repr__(self) -> str:
        return f"<ContainerWriter {self.database.name}/{self.name}: {len(self):,} objects>"


def definition_json(definition: Definition) -> str:
    """Return a definition as the text that the engine takes."""
    return json.dumps(definition.to_json(), separators=(",", ":"))


def _bytes(size: int | str | None) -> int | None:
    return bytes_of_size(size) if isinstance(size, str) else size


@contextlib.contextmanager
def hint_to_create(what: str, create: bool) -> Iterator[None]:
    """Say of what was not found how it is made."""
    try:
        yield
    except NotFoundError as error:
        if create:
            raise
        raise NotFoundError(f"{error}; pass create=True to make {what}") from None


def _are_objects(data: Any) -> bool:
    if isinstance(data, Iterator):
        return not is_arrow_stream(data)
    return isinstance(data, list | tuple) and bool(data) and hasattr(type(data[0]), "__femtobarn__")

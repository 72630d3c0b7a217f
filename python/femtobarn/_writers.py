"""Databases and containers within a transaction: objects appended, updated and deleted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._appending import append_all
from ._data.arrays import Tree, tree_length
from ._exceptions import ExistsError, InvalidError, NotFoundError, check_text
from ._objects.changes import Chosen, entries_of, entry_of, is_single, new_values, plain_values
from ._oid import OidRange
from ._schema.classes import definition_of, with_field
from ._schema.types import Definition, definition_from_text
from ._sizes import bytes_of_size
from ._views.view import View

if TYPE_CHECKING:
    from ._femtobarn import WriterHandle
    from ._objects.objects import Object
    from ._transactions import Transaction

__all__ = ["ContainerWriter", "Database", "definition_json", "with_hint_to_create"]


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
        _series: tuple[str, str] | None = None,
    ) -> ContainerWriter:
        """Return a container to write to; its write lock is held until the transaction ends.

        Parameters
        ----------
        cls
            The class of its objects: a persistent class, a definition, or its JSON. It may be left out for an
            existing container.
        create
            Whether to make the container if it does not exist.
        evolve
            Whether to convert the objects to ``cls``, if that is a newer version of their class. Fields can
            be added, left out, renamed (``fb.field(was=...)``), widened, and made lists.
        page_size, cluster_size
            Bytes before compression, such as ``"64 KiB"``, of a new container. Small pages suit reads of
            single objects, large pages suit scans.
        compression
            ``"none"``, ``"lz4"`` or ``"zstd"``, of a new container.

        Raises
        ------
        NotFoundError
            If the container does not exist and `create` is false.
        BusyError
            If another writer holds the lock for longer than `lock_timeout` of the transaction.
        InvalidError
            If the container has objects of another class, or of another version and `evolve` is false.
        """
        definition = definition_of(cls) if cls is not None else None
        check_text(name, "container")
        try:
            handle = self.transaction._handle.container(
                self.name,
                name,
                definition_json(definition) if definition is not None else None,
                create,
                evolve,
                _bytes(page_size),
                _bytes(cluster_size),
                compression,
                _series,
            )
        except NotFoundError as error:
            if create:
                raise
            raise with_hint_to_create(error, "the container") from None
        return ContainerWriter(self, name, handle)

    def reserve(self, size: int | str) -> None:
        """Reserve space in the file of the database for the writes of this process.

        A disk that is too small fails now, and not in the middle of a run, and the file is contiguous if the
        disk has such a range. Unused space is given back at the end. Without a reservation, the file grows
        with the writes, by up to 64 MiB at a time.

        Parameters
        ----------
        size
            Bytes, such as ``"600 MB"``; at most 1 GB. Unused space of earlier reservations counts.

        Raises
        ------
        StorageError
            If the disk is full; the transaction can continue, or be rolled back.
        """
        self.transaction._handle.reserve(self.name, bytes_of_size(size) if isinstance(size, str) else size)

    def rename(self, new_name: str) -> None:
        """Rename the database; earlier snapshots keep the old name."""
        self.transaction.rename(self.name, new_name)
        self.name = new_name

    def drop(self) -> None:
        """Drop the database with all its containers; earlier snapshots keep it."""
        self.transaction.drop(self.name)

    def __repr__(self) -> str:
        return f"<Database {self.name!r} in {self.transaction!r}>"


class ContainerWriter:
    """A container within a transaction, to append, update and delete objects, one or many."""

    __slots__ = ("_definition", "_handle", "append", "database", "name")

    def __init__(self, database: Database, name: str, handle: WriterHandle) -> None:
        self.database = database
        self.name = name
        self._handle = handle
        self._definition: Definition | None = None
        self.append = handle.append
        """Append an object (of a persistent class, or a dictionary), and return its OID.

        An object with a field that the class of the container lacks is refused with
        :class:`~femtobarn.InvalidError`.
        """

    @property
    def definition(self) -> Definition:
        """The class of the objects."""
        if self._definition is None:
            self._definition = definition_from_text(self._handle.definition)
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
        """Number of entries, including those of this transaction and of deleted objects."""
        return self._handle.entries

    def extend(self, data: Any) -> OidRange:
        """Append many objects, and return their OIDs.

        Values are converted as by :attr:`append`: real numbers are rounded to the precision of their field;
        an integer that would not be exact, or a finite number that would become infinite, is refused.

        Parameters
        ----------
        data
            A record array of awkward, a structured NumPy array, a pandas data frame, Arrow data (such as a
            table or a reader of pyarrow, or a data frame of polars), a mapping of fields to arrays, objects
            of a persistent class, or a view, which is copied batch by batch.

        Raises
        ------
        InvalidError
            If names or values do not fit the class. Of arrays nothing is appended then; of objects and views,
            those before the first refused one are.

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
        federation = self.database.transaction.federation
        append_all(data, self.definition.record, federation.uuid, self._handle.append, self._handle.extend)
        return OidRange(self._handle.database, self._handle.container, first, self._handle.entries)

    def extend_columns(self, columns: Tree) -> None:
        """Append many objects as columns, which have been matched against the class before."""
        self._handle.extend(columns)

    def update(self, objects: Chosen, values: Any = None, /, **fields: Any) -> None:
        """Replace the values of fields of objects; earlier snapshots keep the old values.

        Parameters
        ----------
        objects
            One object or many: OIDs, objects, or entries.
        values
            New values by dotted names of fields: a value for a single object, an array with one value for
            each of several objects. An object of the class replaces all fields of a single object.
        fields
            More fields with their new values.

        Raises
        ------
        NotFoundError
            If an object or a field does not exist, or an object was deleted.
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
        single = is_single(objects)
        given = plain_values(values, fields) if single else None
        if given and self._handle.update_values(entry_of(objects, self._place), given):
            return
        entries = entries_of(objects, self._place)
        tree = new_values(values, fields, self.definition, single)
        self._handle.update(entries.tobytes(), tree)

    def delete(self, objects: Chosen | None = None, *, where: str | None = None) -> int:
        """Delete objects, and return their number; earlier snapshots keep them.

        OIDs of deleted objects are not used again.

        Parameters
        ----------
        objects
            One object or many: OIDs, objects, or entries.
        where
            Instead of objects: a condition, as for :meth:`View.arrays`.

        Raises
        ------
        NotFoundError
            If an object does not exist, or was deleted before.
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
            raise InvalidError("give the objects to delete, or a condition as where, but not both")
        entries = self.view().entries(where) if where is not None else entries_of(objects, self._place)
        return self._handle.delete(entries.tobytes())

    def add_field(
        self, name: str, type: Any, values: Any = None, *, default: Any = None, description: str = ""
    ) -> None:
        """Add a field to all objects, in a newer version of their class; earlier snapshots do not have it.

        Other containers of the class may get the same field, and then have the same version.

        Parameters
        ----------
        type
            Its type, as in a persistent class: ``fb.float32``, ``list[int]``.
        values
            An array with a value for each object, or an expression that computes it, such as
            ``"sum(Jet.pt)"``; see the `aliases` of :meth:`View.arrays`.
        default
            Without `values`, a number or text that all objects have; zero, empty or missing if not given.
        description
            The meaning of the field, with its unit.

        Raises
        ------
        ExistsError
            If the objects have such a field.
        InvalidError
            If the values do not fit, or the type cannot be stored.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [1, 2, 3]})
        ...     numbers.add_field("square", fb.int64, "n * n")
        >>> fed["d/numbers"]["square"].to_list()
        [1, 4, 9]
        """
        newer = with_field(self.definition, name, type, default, description)
        tree, entries = None, self.view().entries()
        if isinstance(values, str):
            values = self.view().arrays("new_value", aliases={"new_value": values}).new_value
        if values is not None:
            tree = new_values({name: values}, {}, newer, single=False)
            if tree_length(tree) != len(entries):
                raise InvalidError(f"{tree_length(tree)} values were given for {len(entries)} objects")
        self._evolve(newer)
        if tree is not None and len(entries):
            self._handle.update(entries.tobytes(), tree)

    def _evolve(self, wanted: Definition) -> None:
        """Convert the objects to a newer version of their class, to an existing one if its fields are the
        same."""
        known = map(Definition.from_json, self.database.transaction.federation.classes())
        versions = {each.version: each.fields for each in known if each.name == wanted.name}
        newer = [number for number in versions if number > wanted.version]
        last = max([wanted.version, *newer])
        # Beyond those that are known, this transaction may have made some.
        for number in [
            *(each for each in newer if versions[each] == wanted.fields),
            *range(last + 1, last + 100),
        ]:
            with contextlib.suppress(ExistsError):
                made = Definition(wanted.name, number, wanted.fields)
                evolved = self.database.container(self.name, made, evolve=True)
                self._handle, self._definition, self.append = evolved._handle, None, evolved.append
                return
        raise InvalidError(
            f"class {wanted.name} has too many new versions in this transaction; commit it first"
        )

    def view(self) -> View[Object]:
        """Return the container with the changes of this transaction so far."""
        return View(
            self.database.transaction.snapshot(), f"{self.database.name}/{self.name}", self._handle.view()
        )

    def create_index(self, name: str, fields: str | Sequence[str], *, unique: bool = False) -> None:
        """Make an index over the existing objects and all later ones.

        Parameters
        ----------
        fields
            Dotted names of the fields of the key, in order: numbers, truth values, texts and links. Fields in
            a list give an object one key for each item.
        unique
            Whether keys are unique: a commit that would leave two objects with one key fails.

        Raises
        ------
        ExistsError
            If the container has an index of that name, or two objects have one key of a unique index.
        InvalidError
            If a field cannot be part of a key.
        """
        self._handle.create_index(name, [fields] if isinstance(fields, str) else list(fields), unique)

    def drop_index(self, name: str) -> None:
        """Drop an index; earlier snapshots keep it."""
        self._handle.drop_index(name)

    def rename(self, new_name: str) -> None:
        """Rename the container; earlier snapshots keep the old name."""
        self.database.transaction.rename(f"{self.database.name}/{self.name}", new_name)
        self.name = new_name

    def drop(self) -> None:
        """Drop the container with all its objects; earlier snapshots keep it."""
        self.database.transaction.drop(f"{self.database.name}/{self.name}")

    @property
    def _place(self) -> tuple[int, int]:
        return self._handle.database, self._handle.container

    def __len__(self) -> int:
        return self._handle.entries

    def __getitem__(self, index: Any) -> Any:
        """Return an object, a field or a view as :class:`View` does, with the changes so far."""
        return self.view()[index]

    def __iter__(self) -> Iterator[Object]:
        return iter(self.view())

    def __repr__(self) -> str:
        return f"<ContainerWriter {self.database.name}/{self.name}: {len(self):,} objects>"


def definition_json(definition: Definition) -> str:
    """Return a definition as JSON text, for the engine."""
    return json.dumps(definition.to_json(), separators=(",", ":"))


def _bytes(size: int | str | None) -> int | None:
    return bytes_of_size(size) if isinstance(size, str) else size


def with_hint_to_create(error: NotFoundError, what: str) -> NotFoundError:
    """Add the advice to pass create=True to the error of a database or container that does not exist."""
    return NotFoundError(f"{error}; pass create=True to make {what}")

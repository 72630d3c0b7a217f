"""Transactions: all that is written is committed at once, or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._exceptions import InvalidError, check_text
from ._schema.classes import definition_of
from ._snapshots import Snapshot, check_container_path
from ._views.view import View
from ._writers import Database, definition_json, hint_to_create

if TYPE_CHECKING:
    from ._federations import Federation
    from ._femtobarn import SavepointHandle, TransactionHandle

__all__ = ["Savepoint", "Transaction"]


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

    def database(self, name: str, *, create: bool = False, place: str | None = None) -> Database:
        """Return a database to write to.

        Parameters
        ----------
        create
            Whether to make it if it does not exist.
        place
            The folder in the federation's folder ``databases`` that the file of a new database goes to; made
            if it is not there. Mount a disk there before, and what is in the database lies on that disk.

        Raises
        ------
        InvalidError
            If the place has other characters than letters, digits, ``.``, ``_`` and ``-``.
        """
        check_text(name, "database")
        with hint_to_create("the database", create):
            self._handle.database(name, create, place)
        return Database(self, name)

    def __getitem__(self, name: str) -> View:
        """Return a container, such as ``txn["run7/events"]``, with what was changed in it so far.

        What is not changed by this transaction is read as of its first read, whatever others commit.
        What is changed later, the view does not show.
        """
        return self.snapshot()[name]

    def snapshot(self) -> Snapshot:
        """Return the federation as this transaction sees it, its own changes included."""
        return _OwnSnapshot(self)

    def savepoint(self) -> Savepoint:
        """Remember everything as it is now, to be able to go back to it.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [1, 2]})
        ...     before = txn.savepoint()
        ...     numbers.delete(oids)
        ...     before.rollback()
        2
        >>> len(fed["d/numbers"])
        2
        """
        return Savepoint(self, self._handle.savepoint())

    def checkpoint(self) -> int:
        """Commit and go on, with all locks kept; return the number of the commit.

        The next read is of a new snapshot; savepoints made before cannot be gone back to.
        """
        self.csn = self._handle.checkpoint()
        return self.csn

    def rename(self, name: str, new_name: str) -> None:
        """Give a database (``"run7"``) or a container (``"run7/events"``) another name.

        The new name of a container is that within its database. Snapshots from before keep the old one.
        """
        database, slash, container = name.partition("/")
        if slash:
            self._handle.rename_container(database, container, new_name.removeprefix(f"{database}/"))
        else:
            self._handle.rename_database(name, new_name)

    def drop(self, name: str) -> None:
        """Drop a database (``"run7"``) or a container (``"run7/events"``) with all that is in it.

        Snapshots from before keep it, until vacuum gives up the last that shows it.
        """
        database, slash, container = name.partition("/")
        if slash:
            self._handle.drop_container(database, container)
        else:
            self._handle.drop_database(name)

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


class Savepoint:
    """A moment within a transaction that it can go back to."""

    def __init__(self, transaction: Transaction, handle: SavepointHandle) -> None:
        self.transaction = transaction
        self._handle = handle

    def rollback(self) -> None:
        """Undo everything that the transaction has changed since; it then goes on.

        Raises
        ------
        InvalidError
            If the transaction has gone back to an earlier savepoint, or has committed since.
        """
        self.transaction._handle.rollback_to(self._handle)


class _OwnSnapshot(Snapshot):
    """The federation as a transaction sees it. Its views are made anew each time: they show more later."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction.federation, transaction._handle.snapshot())
        self._transaction = transaction

    def __getitem__(self, name: str) -> View:
        check_container_path(name)
        return View(self, name, self._transaction._handle.view(name))

    def _view_of(self, database: int, container: int) -> View:
        handle = self._transaction._handle.view_by_id(database, container)
        return View(self, handle.name, handle)

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidError("what a transaction has not committed cannot be passed to another process")

"""Transactions: their changes are committed together, or not at all."""

from __future__ import annotations

import json
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._containers import check_container_path
from ._exceptions import InvalidError, NotFoundError, check_text
from ._femtobarn import open_branch, series_definition
from ._forks import Forking
from ._schema.classes import definition_of
from ._snapshots import Snapshot
from ._views.view import View
from ._writers import Database, definition_json, with_hint_to_create

if TYPE_CHECKING:
    from ._conditions.series_writers import SeriesWriter
    from ._federations import Federation
    from ._femtobarn import SavepointHandle, TransactionHandle
    from ._friend_writers import FriendWriter
    from ._objects.objects import Object

__all__ = ["Savepoint", "Transaction"]

CLUSTER_SIZE = 2 << 20
"""Bytes of a cluster of a series, the unit that a look-up reads."""


class Transaction(Forking):
    """Changes to the federation, committed at the end of a ``with`` block, or rolled back by an exception.

    Readers see none of the changes before the commit, and all of them in snapshots from the commit on.

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
        """Number of the commit, after it; None before."""

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
            Whether to make the database if it does not exist.
        place
            Name of a folder, in the folder ``databases`` of the federation, for the file of a new database.
            It is made if it does not exist. To put the database on a disk of its own, mount the disk there
            first.

        Raises
        ------
        InvalidError
            If the place has characters other than letters, digits, ``.``, ``_`` and ``-``.
        NotFoundError
            If the database does not exist and `create` is false.
        """
        check_text(name, "database")
        try:
            self._handle.database(name, create, place)
        except NotFoundError as error:
            if create:
                raise
            raise with_hint_to_create(error, "the database") from None
        return Database(self, name)

    def series(
        self,
        path: str,
        cls: Any = None,
        *,
        create: bool = False,
        evolve: bool = False,
        clock: Literal["time", "run"] | None = None,
        overlap: Literal["newest", "open", "refuse"] | None = None,
        place: str | None = None,
        branch: str | None = None,
    ) -> SeriesWriter:
        """Return a series of conditions to write to; its write lock is held until the transaction ends.

        Parameters
        ----------
        path
            Path of the series: a database and a container, such as ``"tpc/gain"``.
        cls
            The class of its conditions, without their validity: a persistent class, a definition, or its
            JSON. It may be left out for an existing series.
        create
            Whether to make the series, and its database, if it does not exist.
        evolve
            Whether to convert the conditions to ``cls``, if that is a newer version of their class. Earlier
            snapshots keep the older one.
        clock
            Of a new series: ``"time"``, nanoseconds UTC (the default), or ``"run"``, runs and luminosity
            blocks.
        overlap
            Of a new series: the meaning of two conditions of a channel that are valid at the same time.
            ``"newest"``: the one that was put last hides the other (the default). ``"open"``: each is valid
            until the next one begins. ``"refuse"``: it is an error.
        place
            Of a new database: the folder for its file, as for :meth:`database`.
        branch
            A global tag that is a branch. Only jobs that name it see the conditions that are put, ended and
            corrected. No other argument is given then: the series is as it is where the branch begins.

        Raises
        ------
        NotFoundError
            If the series does not exist and `create` is false.
        InvalidError
            If the container is not a series, has another class, clock or meaning of overlaps, or the class
            has a field named ``since``, ``until`` or ``channel``; or if `branch` is not a branch.
        DeniedError
            If the branch is locked or frozen.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Gain:
        ...     value: fb.float32
        >>> with fed.transaction(message="gains of January") as txn:
        ...     gains = txn.series("tpc/gain", Gain, create=True)
        ...     gains.extend({"value": [1.5, 1.6]}, since=[0, 100], until=[100, 200], channel=7)
        OidRange(1, 1, 0, 2)
        """
        wanted = (clock, overlap)
        if branch is None:
            return self._series(path, cls, create, evolve, wanted, place)
        if cls is not None or create or evolve or (*wanted, place) != (None, None, None):
            raise InvalidError(
                f"series {path} of a branch has the class and options of the series; leave them out"
            )
        return self._series_of_branch(path, branch)

    def _series(
        self,
        path: str,
        cls: Any,
        create: bool,
        evolve: bool,
        wanted: tuple[str | None, str | None],
        place: str | None,
    ) -> SeriesWriter:
        database, name = _split_path(path, "series", "tpc/gain")
        form = None
        if cls is not None:
            form = json.loads(series_definition(definition_json(definition_of(cls))))
        settings = (wanted[0] or "time", wanted[1] or "newest")
        container = self.database(database, create=create, place=place).container(
            name, form, create=create, evolve=evolve, cluster_size=CLUSTER_SIZE, _series=settings
        )
        if container._handle.is_branch:
            raise InvalidError(
                f"{path} has only the changes of a branch to a series; open the series, with branch= and the "
                "name of the branch"
            )
        settings = _checked_settings(path, wanted, container._handle.series)
        return _series_writer(path, container, settings)

    def _series_of_branch(self, path: str, branch: str) -> SeriesWriter:
        check_text(branch, "branch")
        own, handles = open_branch(self._handle, branch, path)
        behind = [View(Snapshot(self.federation, each.snapshot), each.name, each) for each in handles]
        database, name = _split_path(own, "series", "tpc/gain")
        container = self.database(database).container(name)
        settings = _checked_settings(own, (None, None), container._handle.series)
        return _series_writer(path, container, settings, behind)

    def friend(self, path: str, cls: Any = None, *, of: str, create: bool = False) -> FriendWriter:
        """Return a friend of a container to write to: a container with more columns for its objects.

        Parameters
        ----------
        path
            Path of the friend: a database, which may be another one, and a container: ``"ml/scores"``.
        cls
            The class of its objects, as for :meth:`Database.container`; not needed for an existing one.
        of
            Its partner: the container for whose objects the friend has columns.
        create
            Whether to make the friend, and its database, if it does not exist.

        Raises
        ------
        NotFoundError
            If the partner does not exist, or the friend does not and `create` is false.
        InvalidError
            If the friend is the partner, or has more entries than that, or objects of another class.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        >>> with fed.transaction() as txn:
        ...     numbers = txn.database("run1", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 6, 7]})
        >>> with fed.transaction() as txn:
        ...     squares = txn.friend("run1/squares", form, of="run1/numbers", create=True)
        ...     squares.extend({"n": squares.missing["n"] ** 2})
        >>> fed.friend("run1/numbers", "run1/squares")["squares.n"].to_list()
        [25, 36, 49]
        """
        from ._friend_writers import FriendWriter

        database, name = _split_path(path, "friend", "ml/scores")
        container = self.database(database, create=create).container(name, cls, create=create)
        return FriendWriter(container, of)

    def __getitem__(self, name: str) -> View[Object]:
        """Return a container, such as ``txn["run7/events"]``, with the changes of this transaction so far.

        Everything else is read as of the first read of the transaction. The view does not show later changes.
        """
        return self.snapshot()[name]

    def snapshot(self) -> Snapshot:
        """Return the federation as of the first read of this transaction, with its own changes."""
        return _OwnSnapshot(self)

    def savepoint(self) -> Savepoint:
        """Return a savepoint, to which the transaction can be rolled back.

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
        """Commit, and continue with all locks held; return the number of the commit.

        The next read is of a new snapshot. Earlier savepoints are no longer valid.
        """
        self.csn = self._handle.checkpoint()
        return self.csn

    def rename(self, name: str, new_name: str) -> None:
        """Rename a database (``"run7"``) or a container (``"run7/events"``).

        The new name of a container is its name within the database. Earlier snapshots keep the old name.
        """
        check_text(name, "name")
        check_text(new_name, "name")
        database, slash, container = name.partition("/")
        if slash:
            self._handle.rename_container(database, container, new_name.removeprefix(f"{database}/"))
        else:
            self._handle.rename_database(name, new_name)

    def drop(self, name: str) -> None:
        """Drop a database (``"run7"``) or a container (``"run7/events"``), with all objects in it.

        Earlier snapshots keep it, until vacuum gives up the last of them.
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
            If this version of the class is registered with other fields; raise the version.
        """
        self._handle.declare_class(definition_json(definition_of(cls)))

    def commit(self) -> int:
        """Make all changes durable and visible; return the number of the commit.

        Raises
        ------
        ConflictError
            If another transaction has changed a container that this one changed, or read if it is
            serializable; nothing is committed.
        UnavailableError
            If the server does not answer; the text states whether the outcome is known.
        StorageError
            If the disk is full or fails; nothing is committed.
        """
        self.csn = self._handle.commit()
        return self.csn

    def rollback(self) -> None:
        """Undo all changes."""
        self._handle.rollback()

    def __repr__(self) -> str:
        state = "open" if self._handle.active else (f"csn {self.csn}" if self.csn else "rolled back")
        return f"<Transaction on {self.federation.name!r}: {state}>"


class Savepoint:
    """A state of a transaction, to which it can be rolled back."""

    def __init__(self, transaction: Transaction, handle: SavepointHandle) -> None:
        self.transaction = transaction
        self._handle = handle

    def rollback(self) -> None:
        """Undo all changes since the savepoint; the transaction continues.

        Raises
        ------
        InvalidError
            If the transaction was rolled back to an earlier savepoint, or has committed since.
        """
        self.transaction._handle.rollback_to(self._handle)


class _OwnSnapshot(Snapshot):
    """The federation with the changes of a transaction. Views are not cached: later views show more."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction.federation, transaction._handle.snapshot())
        self._transaction = transaction

    def _opened(self, name: str) -> View[Object]:
        check_container_path(name)
        return View(self, name, self._transaction._handle.view(name))

    def _cached(self, view: View[Object]) -> View[Object]:
        return view

    def _view_of(self, place: int) -> View:
        handle = self._transaction._handle.view_by_id(place >> 32, place & 0xFFFFFFFF)
        return View(self, handle.name, handle)

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidError("uncommitted changes cannot be passed to another process; commit first")


def _series_writer(*parts: Any) -> SeriesWriter:
    from ._conditions.series_writers import SeriesWriter  # Few programs need it.

    return SeriesWriter(*parts)


def _split_path(path: str, kind: str, example: str) -> tuple[str, str]:
    """Return the database and the container of a path."""
    check_container_path(path)
    database, slash, name = path.partition("/")
    if not slash:
        raise InvalidError(f"{path!r} is not the path of a {kind}, which is like {example}")
    return database, name


def _checked_settings(
    path: str, wanted: tuple[str | None, str | None], found: tuple[str, str] | None
) -> tuple[str, str]:
    """Return the clock and the meaning of overlaps of an existing series, if they are as requested."""
    if found is None:
        raise InvalidError(
            f"{path} is not a series of conditions but an ordinary container; choose another path"
        )
    for name, asked, actual in zip(("clock", "overlap"), wanted, found, strict=True):
        if asked not in (None, actual):
            raise InvalidError(f"series {path} has {name} {actual!r}, not {asked!r}, which cannot be changed")
    return found

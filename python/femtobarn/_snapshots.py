"""Snapshots: a federation as of one commit."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ._bars import ProgressOption
from ._containers import check_container_path
from ._data.casts import Values
from ._data.results import as_library
from ._exceptions import (
    ClosedError,
    NotFoundError,
    WrongTypeError,
    is_text,
    near_misses,
)
from ._html import html_table
from ._lazy import LazyModule, ak
from ._objects.behaviours import array_behavior
from ._objects.objects import Object
from ._oid import Oid, OidRange
from ._query.paths import Expressions, links_to
from ._query.projections import Projection
from ._query.selection import Where
from ._schema.types import Record, plain_name
from ._views.picked import PickedView
from ._views.requests import Request
from ._views.view import View

if TYPE_CHECKING:
    from ._exchange import exports
    from ._federations import Federation
    from ._femtobarn import SnapshotHandle
    from ._views import podio
    from ._views.collection import Collection
else:  # Few programs write files.
    exports, podio = LazyModule("femtobarn._exchange.exports"), LazyModule("femtobarn._views.podio")

__all__ = ["Snapshot"]

SHOWN_CONTAINERS = 50
"""Containers that a notebook shows."""

VIEWS_MAX = 4096
"""Limit of the views that a snapshot caches, and so of its memory."""


class Snapshot(Mapping[str, View[Object]]):
    """The federation as of a commit: containers by ``"database/container"``.

    A snapshot does not change with later commits. Reading takes no lock.
    """

    def __init__(self, federation: Federation, handle: SnapshotHandle) -> None:
        self.federation = federation
        self._handle = handle
        self._views: dict[int, View[Object]] = {}
        """Views by the container of their OIDs, :attr:`Oid._place`."""

    @property
    def csn(self) -> int:
        """Number of the commit."""
        return self._handle.csn

    @property
    def array_settings(self) -> dict[str, Any]:
        """Arguments for `ak.Array` that let the links in an array find their targets in this snapshot."""
        from ._objects.link_arrays import SNAPSHOT  # This imports awkward.

        return {"behavior": array_behavior(), "attrs": {SNAPSHOT: self}}

    def databases(self) -> list[dict[str, Any]]:
        """Return the name, number, state and file of each database."""
        return self._handle.databases()

    def containers(self, database: str) -> list[dict[str, Any]]:
        """Return the name, number, class, number of objects and bytes of each container of a database."""
        return self._handle.containers(database)

    def keys(self) -> Any:
        """Return the names of all containers, each ``"database/container"``."""
        return super().keys()

    def __getitem__(self, name: str) -> View[Object]:
        return self._cached(self._opened(name))

    def collection(self, *names: str, source: str = "source") -> Collection:
        """Return the containers with some names as one.

        Parameters
        ----------
        names
            Names of containers, or globs such as ``"run*/events"``.
        source
            Name of a further field, which has the name of the container of each object.

        Raises
        ------
        NotFoundError
            If a name or glob matches no container; near misses are named.
        InvalidError
            If a field has types that cannot be merged.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     for name in ("run1", "run2"):
        ...         numbers = txn.database(name, create=True).container("numbers", form, create=True)
        ...         oids = numbers.extend({"n": [1, 2]})
        >>> fed.collection("run*/numbers").arrays(where="n > 1").to_list()
        [{'n': 2, 'source': 'run1/numbers'}, {'n': 2, 'source': 'run2/numbers'}]
        """
        from ._views.collection import concat

        return concat([self[each] for each in self._matching(names)], source=source)

    def _matching(self, names: Iterable[str]) -> list[str]:
        """Return the containers with some names, or that match globs."""
        known = list(self)
        found: dict[str, None] = {}
        for name in names:
            check_container_path(name)
            matching = [each for each in known if fnmatch.fnmatchcase(each, name)]
            if not matching:
                raise NotFoundError(f"no container matches {name!r}{near_misses(name, known)}")
            found |= dict.fromkeys(matching)
        return list(found)

    def friend(self, name: str, /, *friends: str, **named: str) -> View[Object]:
        """Return a container with its friends: containers that have more columns for its objects.

        Entry n of a friend belongs to entry n of the container, and the columns that are used of either are
        read by position. The view has all objects of the container, and for each friend a field with the
        fields of its object. :meth:`Transaction.friend` writes friends.

        Parameters
        ----------
        name
            The container.
        friends
            Names of its friends. The field of a friend has the name of its container: `scores` for
            ``"ml/scores"``.
        named
            Further friends, by other names for their fields.

        Raises
        ------
        NotFoundError
            If a container does not exist; near misses are named.
        InvalidError
            If a friend is the container itself, lacks values for some objects, has more entries than the
            container, or would have the name of another field.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> def form(name, **types):
        ...     return {"name": name, "fields": [{"name": n, "type": types[n]} for n in types]}
        >>> with fed.transaction() as txn:
        ...     run1 = txn.database("run1", create=True)
        ...     oids = run1.container("events", form("E", n="int32"), create=True).extend({"n": [5, 6, 7]})
        ...     scores = txn.friend("ml/scores", form("S", bdt="float32"), of="run1/events", create=True)
        ...     scores.extend({"bdt": [0.5, 0.75, 1]})
        >>> fed.friend("run1/events", "ml/scores").arrays(where="n > 5 and scores.bdt < 1").to_list()
        [{'n': 6, 'scores': {'bdt': 0.75}}]
        """
        from ._views.friends import fields_of_friends, with_friends

        for path in (*friends, *named.values()):
            check_container_path(path)
        fields = fields_of_friends(friends, named)
        return with_friends(self._opened(name), {field: self[path] for field, path in fields.items()})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        """Return a table of the containers for notebooks."""
        try:
            rows = [
                (f"{database['name']}/{each['name']}", each["class"], f"{each['entries']:,}")
                for database in self.databases()
                for each in self.containers(database["name"])
            ]
            caption = f"{self.federation.name} as of csn {self.csn}: {len(rows):,} containers"
        except ClosedError:
            return f"<pre>{escape(repr(self))}</pre>"
        return html_table(caption, ("container", "class", "objects"), rows[:SHOWN_CONTAINERS])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and is_text(name) and self._handle.has(name)

    def __iter__(self) -> Iterator[str]:
        for database in self.databases():
            for container in self.containers(database["name"]):
                yield f"{database['name']}/{container['name']}"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        try:
            return f"<Snapshot of {self.federation.name!r} as of csn {self.csn}>"
        except ClosedError:
            return f"<Snapshot of {self.federation.name!r}, which is closed>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        return _snapshot_at, (self.federation, self.csn)

    def _identity(self) -> tuple[str, int]:
        return self.federation.uuid, self.csn

    def object(self, oid: Oid) -> Object:
        """Return the object with an OID.

        Raises
        ------
        NotFoundError
            If the object does not exist as of this snapshot, or was deleted.
        """
        try:
            place = oid._place
        except AttributeError:
            raise WrongTypeError(f"{oid!r} is not an OID, such as Oid(3, 7, 12)") from None
        view = self._views.get(place)
        if view is None:
            view = self._view_of(place)
        found: Object | None = view._handle.object_at(view, oid)
        return view.object_at(oid.entry) if found is None else found  # It raises the error.

    def find(self, name: str, /, **values: Any) -> Object:
        """Return the first object of a container with the given values of fields; see :meth:`View.find`."""
        return self[name].find(**values)

    def referrers(self, target: Oid | Object) -> list[Object]:
        """Return all objects with a link to the given object.

        An index over the links, made by ``writer.create_index("by_raw", "raw")``, makes this fast. Without
        one, the links of all objects that may refer to the class are read.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Node:
        ...     next: fb.link["Node"] = None
        >>> with fed.transaction() as txn:
        ...     nodes = txn.database("d", create=True).container("nodes", Node, create=True)
        ...     first = nodes.append(Node())
        ...     second = nodes.append(Node(next=first))
        >>> [node.oid for node in fed.snapshot().referrers(first)]
        [Oid(1, 1, 1)]
        """
        oid = target.oid if isinstance(target, Object) else target
        # Links name their target class as it was declared, without the database that an attached class is
        # renamed after.
        class_name = plain_name(self._view_of(oid._place).definition.name)
        known = {plain_name(each["name"]) for each in self.federation.classes()}
        found: dict[Oid, Object] = {}
        for name in self:
            view = self[name]
            for path in links_to(view.definition, class_name, known):
                found.update((each.oid, each) for each in view.find_all(**{path: oid}))
        return list(found.values())

    def fetch(
        self,
        oids: Sequence[Oid] | OidRange | np.ndarray[Any, Any] | ak.Array,
        expressions: Expressions = None,
        *,
        library: str = "ak",
    ) -> Any:
        """Read fields of many objects by OID, in the order given; the reads are coalesced.

        Parameters
        ----------
        oids
            OIDs, links, a range of OIDs, or a structured array or awkward array of links. A null link gives a
            missing value.
        expressions
            Fields, as for :meth:`View.arrays`; all if not given.
        library
            As for :meth:`View.arrays`.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [10, 11, 12]})
        >>> fed.snapshot().fetch([oids[2], None, oids[0]], "n").to_list()
        [{'n': 12}, None, {'n': 10}]
        """
        from ._objects.link_arrays import link_records  # This imports awkward.

        chosen_fields = list(expressions) if isinstance(expressions, Iterator) else expressions
        records = link_records(oids)
        parts: list[ak.Array] = []
        positions = np.full(len(records), -1, np.int64)
        merged = None
        for place, chosen in _by_container(records):
            view = self._view_of(place)
            merged = merged or Projection.of(chosen_fields, view.definition).record
            positions[chosen] = sum(len(part) for part in parts) + np.arange(len(chosen))
            parts.append(view.fetch(records["entry"][chosen], chosen_fields))
        return as_library(self._in_order(parts, positions), merged or Record("", ()), library)

    def views_of(self, oids: Any) -> list[View]:
        """Return the objects with some OIDs as views: one for each container, in the order of the OIDs.

        Parameters
        ----------
        oids
            As for :meth:`fetch`; null links are left out.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [10, 11, 12]})
        >>> [view] = fed.snapshot().views_of([oids[2], None, oids[0]])
        >>> view["n"].to_list()
        [12, 10]
        """
        from ._objects.link_arrays import link_records  # This imports awkward.

        records = link_records(oids)
        places = _by_container(records)
        return [PickedView(self._view_of(place), records["entry"][chosen]) for place, chosen in places]

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
        """Export the objects of containers to a file, and return their number.

        Parameters
        ----------
        names
            A container such as ``"run7/events"``, a database, or a list of these. Several containers become
            one ``.root`` file, each as an RNTuple of its name, with the database's name in front if two
            containers have the same name. In podio's layout each is a category of events.
        path, expressions, where, format, layout, aliases, progress
            As for :meth:`View.export`; they apply to every container.
        """
        wanted = [names] if isinstance(names, str) else list(names)
        paths = list(dict.fromkeys(each for name in wanted for each in self._container_paths(name)))
        plain = [each.rpartition("/")[2] for each in paths]
        unique = len(set(plain)) == len(plain)
        chosen = list(expressions) if isinstance(expressions, Iterator) else expressions
        if layout is not None:
            podio.check_layout(layout, path, format, aliases)
            events = podio.categories({each: self[each] for each in paths})
            return podio.export_podio(events, path, chosen, where, progress=progress)
        exported = {}
        for name, each in zip(plain, paths, strict=True):
            view = self[each]
            request = Request.of(view.definition, chosen, where, aliases=aliases)
            exported[name if unique else each.replace("/", "_")] = view._exported(request, view._window)
        return exports.export_objects(exported, path, format=format, progress=progress)

    def _container_paths(self, name: str) -> list[str]:
        """Return the path of a container, or of all containers of a database."""
        if "/" in name:
            return [name]
        return [f"{name}/{container['name']}" for container in self.containers(name)]

    def _in_order(self, parts: list[ak.Array], positions: np.ndarray[Any, Any]) -> ak.Array:
        """Return the items of all parts at the given positions; a position of -1 gives a missing value."""
        if not parts:
            return ak.Array([None] * len(positions))
        array = parts[0] if len(parts) == 1 else ak.concatenate(parts)
        if np.array_equal(positions, np.arange(len(array))):
            return array
        index = ak.index.Index64(positions)
        picked = (
            ak.contents.IndexedOptionArray.simplified(index, array.layout)
            if (positions < 0).any()
            else array.layout[positions]
        )
        return ak.Array(picked, **self.array_settings)

    def _view_of(self, place: int) -> View[Object]:
        """Return the container of OIDs with this :attr:`Oid._place`."""
        view = self._views.get(place)
        if view is None:
            handle = self._handle.view_by_id(place >> 32, place & 0xFFFFFFFF)
            view = self._cached(View(self, handle.name, handle))
        return view

    def _opened(self, name: str) -> View[Object]:
        """Return a view of a container that no other part of the program has."""
        check_container_path(name)
        return View(self, name, self._handle.view(name))

    def _cached(self, view: View[Object]) -> View[Object]:
        """Return the cached view of the same container, or cache this one."""
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        return self._views.setdefault(view.oid(0)._place, view)


def _by_container(records: Values) -> Iterator[tuple[int, Values]]:
    """Yield each container, as :attr:`Oid._place`, and the positions of its OIDs."""
    places = records["database"].astype(np.uint64) << np.uint64(32) | records["container"]
    for place in np.unique(places[records["container"] != 0]).tolist():
        yield place, np.flatnonzero(places == place)


def _snapshot_at(federation: Federation, csn: int) -> Snapshot:
    return federation.snapshot(csn=csn)

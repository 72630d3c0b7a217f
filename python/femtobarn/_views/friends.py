"""A container and its friends, which have more columns for its objects, read as one view.

A friend is a container, too. Its entry n belongs to entry n of its partner, so no key is looked up: columns
of either container are read by position, if they are used.

Invariants
----------
1. Every object of the partner has one in each friend, or the view is refused. Both are of one snapshot.
2. Deleted objects of the partner are not seen in its friends, which may still have theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._data.arrays import Tree
from .._data.casts import Values
from .._data.rows import rows_of
from .._exceptions import InvalidError, UnsupportedError
from .._objects.friend_objects import class_with_friends
from .._objects.live_entries import LiveEntries
from .._schema.meanings import ELEMENT
from .._schema.types import Definition, Field
from .view import T, View

if TYPE_CHECKING:
    from .._femtobarn import ViewHandle
    from .._snapshots import Snapshot
    from .advice import Advice

__all__ = ["FriendView", "check_friend", "fields_of_friends", "with_friends"]


class FriendHandle:
    """A container with friends: the methods of the extension module's `ViewHandle` that views use.

    Entries, deletions, indexes and objects are those of the partner. The fields of a friend are members of a
    record of its name.
    """

    def __init__(self, partner: View, friends: Mapping[str, View]) -> None:
        self.partner = partner
        """A view of its own: the extension module caches the class of the objects with its handle."""
        self.friends = friends
        own = partner.definition
        beside = (Field(name, each.definition.record, f"of {each.name}") for name, each in friends.items())
        fields = [_leading_within(field.to_json(), field.name) for field in beside]
        whole = Definition(own.name, own.version, own.fields).to_json()
        self.definition = json.dumps(whole | {"fields": [*whole["fields"], *fields]})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.partner._handle, name)

    def read(self, paths: list[str], start: int, stop: int) -> Tree:
        """Return columns of a range of entries."""

        def rows_beside(friend: View, wanted: list[str]) -> Tree:
            end = min(stop, friend._handle.entries)
            tree = friend._handle.read(wanted, min(start, end), end)
            positions = self._positions_beside(friend, start, stop)
            return tree if positions is None else rows_of(tree, positions)

        return self._joined(paths, rows_beside, lambda own: self.partner._handle.read(own, start, stop))

    def fetch(self, entries: bytes, paths: list[str]) -> Tree:
        """Return columns of entries (`uint64`, as bytes), in the order given."""

        def rows_beside(friend: View, wanted: list[str]) -> Tree:
            return friend._handle.fetch(entries, wanted)

        return self._joined(paths, rows_beside, lambda own: self.partner._handle.fetch(entries, own))

    def counts(self, path: str, start: int, stop: int) -> Any:
        """Return the numbers of items of a collection in a range of entries."""
        name, inner = self._place_of(path)
        if not name:
            return self.partner._handle.counts(path, start, stop)
        friend = self.friends[name]
        end = min(stop, friend._handle.entries)
        found = np.frombuffer(memoryview(friend._handle.counts(inner, min(start, end), end)), np.int64)
        positions = self._positions_beside(friend, start, stop)
        return found if positions is None else found[positions]

    def statistics(self, path: str) -> Any:
        """Return the bounds of a field in each cluster of its container, or None."""
        name, inner = self._place_of(path)
        return self.friends.get(name, self.partner)._handle.statistics(inner)

    def find(self, wanted: dict[str, Any]) -> int | None:
        """Return the first entry whose object has these values of fields."""
        if any(self._place_of(path)[0] for path in wanted):
            return next(iter(self.find_all(wanted).tolist()), None)
        return self.partner._handle.find(wanted)

    def find_all(self, wanted: dict[str, Any]) -> Values:
        """Return all entries whose objects have these values of fields."""
        by_name: dict[str, dict[str, Any]] = {}
        for path, value in wanted.items():
            name, inner = self._place_of(path)
            if name and not inner:
                raise InvalidError(f"{name!r} is a friend; give values of its fields, such as {name}.n")
            by_name.setdefault(name, {})[inner] = value
        views = [(self.friends.get(name, self.partner), values) for name, values in by_name.items()]
        found = [_entries(view._handle.find_all(values)) for view, values in views]
        if "" not in by_name:
            found.append(self.partner._entries_within(0, self.partner._handle.entries))
        return reduce(np.intersect1d, found)

    def cluster_sizes(self, paths: Sequence[str]) -> list[tuple[int, int, int]]:
        """Return the entries of the partner's clusters, and the stored bytes of fields in them: those of
        friends by their mean."""
        own, wanted = self._divided(paths)
        mean = 0.0
        for name, inner in wanted.items():
            sizes = self.friends[name]._handle.cluster_sizes(inner)
            mean += sum(nbytes for _, _, nbytes in sizes) / max(sizes[-1][1] if sizes else 0, 1)
        clusters = self.partner._handle.cluster_sizes(own)
        return [(start, stop, nbytes + int(mean * (stop - start))) for start, stop, nbytes in clusters]

    def as_class(self, version: Any) -> FriendHandle:
        """Return the same with the partner's objects as objects of another version of their class."""
        return FriendHandle(self.partner.as_class(version), self.friends)

    def _place_of(self, path: str) -> tuple[str, str]:
        """Return the name of the friend that has a field, "" if the partner has it, and the path there."""
        name, _, inner = path.partition(".")
        return (name, inner) if name in self.friends else ("", path)

    def _divided(self, paths: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
        """Return the paths of the partner, and those of each friend within it."""
        own, wanted = [], dict[str, list[str]]()
        for path in paths:
            name, inner = self._place_of(path)
            if name:
                wanted.setdefault(name, []).extend([inner] if inner else self.friends[name].fields)
            else:
                own.append(path)
        return own, wanted

    def _joined(
        self,
        paths: Iterable[str],
        read_beside: Callable[[View, list[str]], Tree],
        read_own: Callable[[list[str]], Tree],
    ) -> Tree:
        """Return columns of the partner, and a record of them for each friend that has some of the paths."""
        own, wanted = self._divided(paths)
        beside = {name: read_beside(self.friends[name], inner) for name, inner in wanted.items()}
        length = next((tree[1] for tree in beside.values()), 0)
        kind, length, names, contents = read_own(own) if own or not beside else ("record", length, (), ())
        return (kind, length, (*names, *beside), (*contents, *beside.values()))

    def _positions_beside(self, friend: View, start: int, stop: int) -> Values | None:
        """Return where the objects of the partner in a range of entries are among those of a friend; None if
        they are the same."""
        ours, theirs = self.partner._handle, friend._handle
        if not ours.has_deletions and not theirs.has_deletions:
            return None
        end = min(stop, theirs.entries)
        own, others = (_entries(handle.live_runs(min(start, end), end)) for handle in (ours, theirs))
        if np.array_equal(own, others):
            return None
        return LiveEntries(own).positions_among(LiveEntries(others))


class FriendView(View[T]):
    """The objects of a container, each with those of the container's friends."""

    def __init__(self, friends: FriendHandle, window: range | None = None) -> None:
        partner = friends.partner
        super().__init__(partner.snapshot, partner.name, cast("ViewHandle", friends), window)
        self._recast_to = partner._recast_to
        self._friends = friends

    def as_class(self, version: Any) -> View:
        """Return a view of the same objects as objects of another version of their class."""
        return FriendView(self._friends.as_class(version), self._window)

    def advise(self, *, bandwidth: str = "200 MB", sample: str = "1 MB") -> Advice:
        """Refuse: the container and each of its friends have a compression of their own.

        Raises
        ------
        UnsupportedError
            Always.
        """
        raise UnsupportedError("friends have compressions of their own; ask the view of each container")

    def _within(self, window: range) -> View[T]:
        return FriendView(self._friends, window)

    def _object_class(self) -> type[Any]:
        return class_with_friends(self._friends.partner._object_class(), tuple(self._friends.friends))

    def __reduce__(self) -> tuple[Any, ...]:
        named = {name: each.name for name, each in self._friends.friends.items()}
        window = (self._window.start, self._window.stop)
        return _friend_view_at, (self.snapshot, self.name, named, *window, self._recast_to)


def fields_of_friends(paths: Iterable[str], named: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of friends by the names of their fields, which are those of the containers or given.

    Raises
    ------
    InvalidError
        If two would have one name.
    """
    fields: dict[str, str] = {}
    for field, path in [*((each.rpartition("/")[2], each) for each in paths), *named.items()]:
        if field in fields:
            raise InvalidError(
                f"{fields[field]} and {path} would both be {field!r}; name one: {field}_2={path!r}"
            )
        fields[field] = path
    return fields


def with_friends(partner: View, friends: Mapping[str, View]) -> View:
    """Return a view of a container with friends; see :meth:`Snapshot.friend`.

    Parameters
    ----------
    partner
        The whole container, a view of its own that has not been read from.
    friends
        The friends as of the same snapshot, by the names of the fields that they become.

    Raises
    ------
    InvalidError
        If a name cannot be one, or is that of a field, or a friend does not fit the container.
    """
    for name, friend in friends.items():
        if not name or "." in name:
            raise InvalidError(f"{name!r} cannot be the name of a field for {friend.name}; give another one")
        if name in partner.definition.record.by_name:
            raise InvalidError(
                f"{name!r} is a field of {partner.name}; give the friend another name, such as "
                f"{name}_2={friend.name!r}"
            )
        check_friend(friend.name, friend._handle.entries, partner)
        _check_complete(friend, partner)
    return FriendView(FriendHandle(partner, friends))


def check_friend(name: str, entries: int, partner: View) -> None:
    """Refuse a friend that is its partner, or has entries that the partner does not have."""
    if name == partner.name:
        raise InvalidError(f"{name} cannot be a friend of itself: a friend is another container")
    if entries > partner._handle.entries:
        raise InvalidError(
            f"{name} has {entries:,} entries, and {partner.name} only {partner._handle.entries:,}: it is a "
            "friend of another container"
        )


def _check_complete(friend: View, partner: View) -> None:
    """Refuse a friend that lacks values for objects of its partner."""
    ours, theirs = partner._handle, friend._handle
    late = len(partner._within(range(theirs.entries, ours.entries)))
    if late:
        raise InvalidError(
            f"{friend.name} lacks the last {late:,} of the {len(partner):,} objects of {partner.name}; write "
            f"them in a transaction: new = txn.friend({friend.name!r}, of={partner.name!r}), and then "
            "new.extend(...) with a value of each field for each object of new.missing"
        )
    if theirs.has_deletions:
        runs = (LiveEntries(_entries(handle.live_runs(0, theirs.entries))) for handle in (ours, theirs))
        lost = next(runs).first_outside(next(runs))
        if lost is not None:
            raise InvalidError(
                f"object {friend.oid(lost)} of {friend.name} was deleted, but not that of {partner.name}, "
                f"{partner.oid(lost)}: delete this one, too, or read an earlier snapshot"
            )


def _leading_within(form: Any, name: str) -> Any:
    """Return the JSON form of a friend's field, whose links by indices lead to collections of the friend."""
    if isinstance(form, list):
        return [_leading_within(each, name) for each in form]
    if not isinstance(form, dict):
        return form
    if form.get("is") != ELEMENT:
        return {key: _leading_within(each, name) for key, each in form.items()}
    if "members" in form:  # The name is that of the member with the key.
        return form | {"members": [[f"{name}.{collection}", key] for collection, key in form["members"]]}
    return form | {"name": f"{name}.{form.get('name', '')}"}


def _entries(buffer: Any) -> Values:
    return np.frombuffer(memoryview(buffer), np.uint64)


def _friend_view_at(
    snapshot: Snapshot, name: str, friends: dict[str, str], start: int, stop: int, version: int | None
) -> View:
    view = snapshot.friend(name, **friends)._within(range(start, stop))
    return view if version is None else view.as_class(version)

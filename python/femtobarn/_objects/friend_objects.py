"""Objects of a container with friends: ``event.scores`` is the object that the friend has for this one."""

from __future__ import annotations

from functools import partial
from typing import Any

from .._femtobarn import Object
from .behaviours import YIELDING

__all__ = ["class_with_friends"]

_made: dict[tuple[type[Any], tuple[str, ...]], type[Any]] = {}
"""Classes that were made, by the class without friends and the names of friends."""


class ObjectWithFriends(Object):
    """An object whose view has friends: it is one of their partner, and they are attributes and items."""

    _friends: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return _object_beside(name, self) if name in self._friends else super().__getitem__(name)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain Python values, those of a friend as a dictionary."""
        beside = {name: _object_beside(name, self).to_dict() for name in self._friends}
        return super().to_dict() | beside


def class_with_friends(base: type[Any], friends: tuple[str, ...]) -> type[Any]:
    """Return the class of objects that have friends of some names, and are of class `base` without them."""
    known = _made.get((base, friends))
    if known is not None:
        return known
    reserved = {*dir(ObjectWithFriends)} - YIELDING
    beside = {name: property(partial(_object_beside, name)) for name in friends if name not in reserved}
    namespace = {"__module__": base.__module__, "__doc__": base.__doc__, "_friends": friends}
    bases = (ObjectWithFriends,) if base is Object else (ObjectWithFriends, base)
    return _made.setdefault((base, friends), type(base.__name__, bases, namespace | beside))


def _object_beside(name: str, found: Object) -> Any:
    """Return the object of a friend for an object of its partner."""
    return found._view._handle.friends[name].object_at(found.entry)  # type: ignore[attr-defined]

"""The interface by which the extension module makes a view's objects, with values that only Python knows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from .._data.arrays import Tree
from .._exceptions import near_misses
from .._femtobarn import Object
from .._objects.behaviours import object_class
from .._objects.objects import Layouts, LinkRef, value_of
from .._objects.owned_collections import OwnedCollections, owned_collections
from .._objects.plain_values import plain_value
from .._oid import Oid
from .summaries import Summaries

__all__ = ["ObjectValues"]


class ObjectValues(Summaries):
    """A container as of a snapshot, whose objects the extension module makes."""

    _layouts: Layouts | None = None
    """While a loop goes over the objects, layouts of the columns of the block that it is at."""

    @cached_property
    def _collections(self) -> OwnedCollections | None:
        """The collections of an object, if some lead to each other."""
        return owned_collections(self.definition.record)

    def _object_class(self) -> type[Any]:
        """Return the class of the objects."""
        return object_class(self.definition)

    def _value_of(self, name: str, tree: Tree, index: int, owner: Object) -> Any:
        """Return the value of a field of an object, of a type that the extension module does not convert."""
        value = value_of(tree, self.definition.record.by_name[name], index, self.snapshot, self._layouts)
        return value if self._collections is None else self._collections.owned(value, owner, name)

    def _plain_value(self, name: str, value: Any) -> Any:
        """Return a value in Python's own types."""
        return plain_value(value, self.definition.record.by_name[name])

    def _link_to(self, oid: Oid) -> LinkRef:
        """Return a link to an object."""
        return LinkRef(oid, self.snapshot)

    def _linked(self, owner: Object, name: str) -> Any:
        """Return the target of an attribute that is neither a field nor one of the object's class."""
        if self._collections is None:
            raise AttributeError(self._no_field(name))
        return self._collections.linked(owner, name)

    def _no_field(self, name: str) -> str:
        """Return the error text for a field that the class lacks."""
        hint = near_misses(name, self.definition.record.by_name)
        return f"class {self.definition.name} has no field {name!r}{hint}"

"""Objects and arrays have the methods and properties of their class, if this program declares the class.

- An object is an instance of the class, and so is a record inside an object.
- Records and lists of them in awkward arrays get the class as their behaviour, so a method that is written
  with operations of arrays works on one object, on a list, and on a whole container.

Invariants
----------
1. Stored fields take precedence over attributes of the class: a default value, or a property of a newer
   version, does not hide a stored field.
2. Attributes that all objects, records or arrays have, such as ``fields``, take precedence over those of the
   class; only a method ``display`` of the class overrides that of objects.
3. A declared class applies to stored objects with its name, if it has the same fields or another version.
   Arrays know only names: if several classes have one, the last that was declared counts.
4. Nothing is registered with awkward: each array carries its behaviours.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from .._exceptions import InvalidError, NotFoundError
from .._femtobarn import Object, note_declaration
from .._schema.classes import (
    classes_called,
    declared_classes,
    definition_of,
    on_declaration,
    written_names,
)
from .._schema.types import Definition, Record, plain_name
from .vectors import check_components, forwarded, vector

__all__ = [
    "array_behavior",
    "derived",
    "field_names",
    "object_class",
    "own_names",
    "record_class",
]

OURS = frozenset(
    f"__{name}__"
    for name in [
        *("init", "new", "init_subclass", "class_getitem", "post_init", "abstractmethods", "femtobarn"),
        *("module", "qualname", "doc", "annotations", "annotate", "annotate_func", "match_args"),
        *("slots", "dict", "weakref", "orig_bases", "parameters", "static_attributes", "firstlineno"),
        *("getattr", "getattribute", "getitem", "setattr", "delattr", "dir"),
        *("reduce", "reduce_ex", "getstate", "setstate", "copy", "deepcopy"),
    ]
)
"""Special names that objects and arrays have from this package, whatever the class defines."""

YIELDING = frozenset({"display"})
"""Methods of objects that those of a class go before: classes could have them before objects did."""

_derived: dict[tuple[type[Any], type[Any]], type[Any]] = {}
"""Classes made so far, by the base class and the declared class."""

_behavior: dict[Any, Any] | None = None
"""Behaviours of all declared classes, until another one is declared."""


class _Quiet:
    """A base of the classes made here: ``__init_subclass__`` of a declared class is for programs' classes."""

    __slots__ = ()

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def object_class(definition: Definition) -> type[Any]:
    """Return the class of objects that are read: :class:`Object`, or one of it and the declared class."""
    declared = _class_for(definition.name, definition.version, [field.name for field in definition.fields])
    return Object if declared is None else derived(Object, declared)


def record_class(base: type[Any], node: Record) -> type[Any]:
    """Return the class of a record inside an object: `base`, or one that derives from it."""
    declared = _class_for(node.class_name, None, node.by_name)
    return base if declared is None else derived(base, declared)


def _class_for(name: str, version: int | None, fields: Iterable[str]) -> type[Any] | None:
    """Return the class that is declared for stored objects: the last with its fields, or else of another
    version, if its own is known."""
    stored, others = set(fields), []
    for declared in classes_called(plain_name(name)):
        try:
            here = definition_of(declared)
        except (InvalidError, NotFoundError):
            continue  # It refers to a class that is not declared, or cannot be stored.
        if stored == {field.name for field in here.fields}:
            return declared
        if version not in (None, here.version):
            others.append(declared)
    return others[0] if others else None


def derived(base: type[Any], declared: type[Any], **attributes: Any) -> type[Any]:
    """Return the class of objects that are read: first `base`, then a declared class.

    It is `base` alone if Python can derive no class from both, as if the declared one has ``__slots__``.

    Parameters
    ----------
    attributes
        Attributes of the class beside those that all have.
    """
    made = _derived.get((base, declared))
    return made or _derived.setdefault((base, declared), _made(base, declared, attributes))


def _made(base: type[Any], declared: type[Any], attributes: dict[str, Any]) -> type[Any]:
    namespace: dict[str, Any] = {"__module__": declared.__module__, "__doc__": declared.__doc__}
    if base.__module__.startswith("femtobarn."):
        # `type(self)(...)` makes an object of values, as it does in the declared class.
        namespace |= {"__new__": lambda _, *values, **named: declared(*values, **named)}
        namespace |= _of_vector(declared) | _hidden_methods(declared)
    if not issubclass(base, Object):
        namespace |= _stored_fields(base, declared)
    namespace |= attributes
    try:
        made = type(namespace.get("__qualname__", declared.__name__), (base, _Quiet, declared), namespace)
    except TypeError:
        return base
    # awkward gives its arrays another class, which must be as large.
    is_larger = made.__basicsize__ > base.__basicsize__
    return base if is_larger and not base.__module__.startswith("femtobarn.") else made


def _of_vector(declared: type[Any]) -> dict[str, Any]:
    """Return the methods of vector for a class that derives from it; arrays have those of vector itself."""
    if not issubclass(declared, vector):
        return {}
    taken = own_names(declared).union(field_names(declared))
    return {name: get for name, get in forwarded(field_names(declared)).items() if name not in taken}


def own_names(declared: type[Any]) -> set[str]:
    """Return the names that the texts of a class and of its bases define, without those of vector."""
    classes = [each for each in declared.__mro__[:-1] if each is not vector]
    return {name for each in classes for name in written_names(each)}


def _hidden_methods(declared: type[Any]) -> dict[str, Any]:
    """Return methods that a class and its bases define, and that those of objects would hide."""
    names = own_names(declared) | (written_names(vector) if issubclass(declared, vector) else set())
    special = {name for name in names if name.startswith("__") and name.endswith("__") and name not in OURS}
    return {name: inspect.getattr_static(declared, name) for name in special | (names & YIELDING)}


def _stored_fields(base: type[Any], declared: type[Any]) -> dict[str, Any]:
    """Return properties for fields that an attribute would hide: a default, or one of vector's."""
    is_record = base.__module__.startswith("femtobarn.")

    def stored(name: str) -> property:
        other = inspect.getattr_static(declared if is_record else base, name, None)

        def get(value: Any) -> Any:
            if name in value.fields:
                return value[name]
            if is_record:  # Of a version without the field.
                return other
            if other is None:  # It was not read.
                raise AttributeError(f"no field named {name!r}")
            return other.__get__(value, type(value))

        return property(get)

    plain = next((each for each in base.__mro__ if each.__module__.startswith("awkward.")), base)
    hidden = (name for name in field_names(declared) if hasattr(declared, name) or hasattr(base, name))
    return {name: stored(name) for name in hidden if not hasattr(plain, name)}


def field_names(declared: type[Any]) -> list[str]:
    """Return the names of the fields of a declared class."""
    return [field.name for field in definition_of(declared).fields]


def array_behavior() -> dict[Any, Any]:
    """Return the behaviours of links and of all declared classes, for awkward arrays."""
    global _behavior
    if _behavior is None:
        from .array_classes import behavior_of  # This imports awkward.

        _behavior = behavior_of(declared_classes())
    return _behavior


def _forget() -> None:
    global _behavior
    _behavior = None
    note_declaration()


on_declaration(check_components, _forget)

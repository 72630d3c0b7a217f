"""The fields that a Python class declares, and the other attributes of its objects.

Invariants
----------
1. An object is stored with all fields that its class declares, or refused.
2. Setting an attribute that the class does not declare is refused, because a misspelt name would leave the
   old value in the field. Names that begin with ``_`` are free for the program, and so are the attributes of
   derived classes that are not persistent themselves.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

from .._exceptions import near_misses

__all__ = ["declare_strictly", "surplus_of"]


def surplus_of(value: Any, stored: Sequence[str], class_name: str) -> tuple[str | None, bool]:
    """Return the error text for an object with fields that the stored class lacks. The extension module calls
    this.

    Parameters
    ----------
    value
        An object of a dataclass, an object or record that was read, or anything with the fields as
        attributes.
    stored
        Names of the fields that are stored.
    class_name
        Name of the stored class.

    Returns
    -------
    tuple
        The text, or None if no field would be lost; and whether the answer is the same for every object of
        the value's class, so that it can be cached.
    """
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        declared = [each.name for each in dataclasses.fields(kind) if not each.name.startswith("_")]
        info = vars(kind).get("__femtobarn__")
        given, is_of_class = kind.__name__ if info is None else str(info.name), True
    elif kind.__module__.partition(".")[0] == "femtobarn" and hasattr(kind, "fields"):
        declared, given, is_of_class = list(value.fields), getattr(value, "class_name", kind.__name__), False
    else:
        return None, True
    lost = [name for name in declared if name not in stored]
    if not lost:
        return None, is_of_class
    return _refusal(lost, given, class_name or "of the record"), is_of_class


def _refusal(lost: list[str], given: str, stored: str) -> str:
    names = ", ".join(map(repr, lost))
    fields = f"field {names}" if len(lost) == 1 else f"fields {names}"
    if given == stored:
        advice = "open the container with the newer version of the class and evolve=True"
    else:
        advice = f"store {given} in a container of its own class, or make an object of class {stored} of it"
    return f"{fields} of class {given} would be lost, since class {stored} as stored has none; {advice}"


def declare_strictly(cls: type[Any], *, has_own_init: bool) -> None:
    """Make objects of a dataclass refuse attributes that it does not declare.

    Parameters
    ----------
    cls
        The dataclass. One with a ``__setattr__`` of its own is left alone.
    has_own_init
        Whether its ``__init__`` was written by hand.
    """
    setter: Any = cls.__setattr__
    if setter is not object.__setattr__ and not hasattr(setter, "is_strict"):
        return
    names = frozenset(each.name for each in dataclasses.fields(cls))
    set_any = object.__setattr__

    def set_declared(self: Any, name: str, value: Any) -> None:
        kind = type(self)
        if name not in names and not name.startswith("_") and not hasattr(kind, name):
            declared = {each.name for each in dataclasses.fields(kind)}
            if name not in declared and "__femtobarn__" in vars(kind):
                hint = near_misses(name, declared)
                end = "" if hint.endswith("?") else "."
                raise AttributeError(
                    f"class {kind.__name__} declares no field {name!r}{hint}{end} "
                    "Names of your own begin with _"
                )
        set_any(self, name, value)

    set_declared.is_strict = True  # type: ignore[attr-defined]
    cls.__setattr__ = set_declared  # type: ignore[assignment]
    if not has_own_init:
        _set_init(cls)


def _set_init(cls: type[Any]) -> None:
    """Give a dataclass an ``__init__`` that does not check names: its parameters are the fields.

    With the check, an object of five fields takes 3 times as long to make as one of a plain dataclass; with
    this ``__init__``, 1.4 times. A dataclass with descriptors, or with parameters that are not fields, keeps
    its own.
    """
    fields = dataclasses.fields(cls)
    parameters = list(inspect.signature(cls.__init__).parameters)
    described = [each for each in fields if hasattr(getattr(cls, each.name, None), "__set__")]
    if described or parameters != ["self", *(each.name for each in fields)]:
        return
    scope: dict[str, Any] = {"_fields": {each.name: each for each in fields}, "_MADE": _MADE}
    lines = ["_values = self.__dict__"]
    for each in fields:
        made = f"_fields[{each.name!r}].default_factory() if {each.name} is _MADE else {each.name}"
        value = each.name if each.default_factory is dataclasses.MISSING else made
        lines.append(f"_values[{each.name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = ", ".join(["self", "*", *map(_parameter, fields)] if fields else ["self"])
    exec(f"def __init__({given}):\n  " + "\n  ".join(lines), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = cls.__init__.__annotations__
    cls.__init__ = init


_MADE = object()
"""Default of a parameter whose value the field's factory makes."""


def _parameter(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"{field.name}=_fields[{field.name!r}].default"
    return field.name if field.default_factory is dataclasses.MISSING else f"{field.name}=_MADE"

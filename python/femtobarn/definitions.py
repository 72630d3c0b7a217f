"""Functions for writing class definitions as plain data.

A class definition is the JSON that the engine, the catalogue and the importers exchange::

    {"name": "Event", "version": 1, "fields": [{"name": "run", "type": "uint32"}, ...]}

Each function returns a part of one, so that a data model can be written as a table.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Definition", "Type", "array_of", "define", "element_link", "field", "link", "list_of", "record"]

Type = str | dict[str, Any]
"""The name of a primitive type, or a dictionary with one key for a composed one."""

Definition = dict[str, Any]
"""A whole class definition."""


def field(name: str, type_: Type, description: str = "") -> dict[str, Any]:
    """One field; an empty description is left out."""
    entry: dict[str, Any] = {"name": name, "type": type_}
    if description:
        entry["description"] = description
    return entry


def define(name: str, *fields: tuple[str, Type, str] | tuple[str, Type], version: int = 1) -> Definition:
    """A class of the given fields, each (name, type) or (name, type, description).

    >>> define("Point", ("x", "float32", "m"))["fields"]
    [{'name': 'x', 'type': 'float32', 'description': 'm'}]
    """
    return {"name": name, "version": version, "fields": [field(*entry) for entry in fields]}


def record(class_name: str, *fields: tuple[str, Type, str] | tuple[str, Type]) -> Type:
    """A record type, which is stored within its owner."""
    return {"record": {"class": class_name, "fields": [field(*entry) for entry in fields]}}


def list_of(type_: Type) -> Type:
    """A list of any length."""
    return {"list": type_}


def array_of(type_: Type, size: int) -> Type:
    """A list of one fixed length."""
    return {"array": {"of": type_, "size": size}}


def link(class_name: str) -> Type:
    """A reference to an object of the class."""
    return {"link": class_name}


def element_link(class_name: str) -> Type:
    """A reference to one element of the collection in an object of the class."""
    return {"element_link": class_name}

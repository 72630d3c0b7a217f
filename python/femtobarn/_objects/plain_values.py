"""Values of objects in Python's own types, and as a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._femtobarn import Object
from .._html import html_table
from .._schema.meanings import times_of
from .._schema.types import Fixed, List, Node, Optional, Record
from .objects import ElementRef, LinkList, LinkRef, RecordValue, has_python_values

__all__ = ["_object_html", "plain_value"]


def _object_html(found: Object) -> str:
    """Return a table of the fields of an object."""
    view = found._view
    rows = (
        (field.name, field.type, _shown(found[field.name]), field.description)
        for field in view.definition.fields
    )
    return html_table(
        f"{found.class_name} {found.oid} of {view.name}", ("field", "type", "value", "meaning"), rows
    )


def _shown(value: Any) -> Any:
    return value if isinstance(value, float | str) else repr(value)


def plain_value(value: Any, node: Node | None = None) -> Any:
    """Return a value in Python's own types, with links as OIDs.

    Parameters
    ----------
    node
        Its type, which gives items of arrays their meaning.
    """
    if isinstance(value, LinkRef):
        return value.oid
    if isinstance(value, ElementRef):
        return value.oid, value.element
    if isinstance(value, RecordValue | Object):
        return value.to_dict()
    if isinstance(value, LinkList | list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain_value, value))
    if isinstance(value, np.ndarray):
        return times_of(value) if value.dtype.kind == "M" else value.tolist()
    if not hasattr(value, "to_list"):
        return value
    return (
        _meant_items(value.to_list(), node) if has_python_values(node, in_records=True) else value.to_list()
    )


def _meant_items(value: Any, node: Node | None) -> Any:
    """Return the plain values that awkward has made of an array, with their meanings."""
    if value is None or node is None:
        return value
    meaning = getattr(node, "meaning", None)
    if isinstance(node, Optional):
        return _meant_items(value, node.item)
    if isinstance(node, List | Fixed):
        items = [_meant_items(item, node.item) for item in value]
        if isinstance(node, List) and node.is_map:
            return dict(items)
        return items if meaning is None else meaning.to_python(items)
    if isinstance(node, Record):
        members = {name: _meant_items(item, node.by_name.get(name)) for name, item in value.items()}
        return tuple(members.values()) if node.is_tuple else members
    # awkward has dates of Python, and integers of times.
    return value if meaning is None or not isinstance(value, int | str) else meaning.to_python(value)

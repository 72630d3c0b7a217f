"""Values of classes as JSON and back, without loss.

Floats that JSON lacks are the texts ``NaN``, ``Infinity`` and ``-Infinity``; bytes are hexadecimal. Links and
variants are refused: a link leads nowhere in another federation.
"""

from __future__ import annotations

import json
import math
from typing import Any

from .._conditions.payloads import Payload
from .._exceptions import CorruptError, UnsupportedError
from .._schema.classes import definition_of
from .._schema.types import (
    Definition,
    ElementLink,
    Field,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    String,
    Variant,
)
from .checksums import check_sum

__all__ = ["check_exportable", "columns_from", "from_json", "from_text", "inferred", "to_json"]

INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def check_exportable(node: Node, path: str) -> None:
    """Refuse a class with a link or a variant."""
    if isinstance(node, Link | ElementLink | Variant):
        raise UnsupportedError(
            f"{path} cannot be exported: {node} has no form outside the federation; export other series"
        )
    if isinstance(node, Record):
        for name, member in node.by_name.items():
            check_exportable(member, f"{path}.{name}")
    elif isinstance(node, List | Fixed | Optional):
        check_exportable(node.item, path)


def to_json(value: Any) -> Any:
    """Return a value as JSON can have it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [to_json(each) for each in value]
    if isinstance(value, dict):
        return {name: to_json(each) for name, each in value.items()}
    return value


def from_json(value: Any, node: Node, place: str) -> Any:
    """Return the value of a type that JSON stands for.

    Raises
    ------
    CorruptError
        If it does not fit the type.
    """
    if isinstance(node, Optional):
        return None if value is None else from_json(value, node.item, place)
    if isinstance(node, Record) and isinstance(value, dict):
        missing = [name for name in node.by_name if name not in value]
        if missing:
            raise CorruptError(f"{place} has no value of {', '.join(missing)}")
        return {name: from_json(value[name], member, place) for name, member in node.by_name.items()}
    if isinstance(node, List) and node.is_bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            raise CorruptError(f"{place}: {value[:40]!r} is not hexadecimal") from None
    if isinstance(node, List | Fixed) and isinstance(value, list):
        return [from_json(each, node.item, place) for each in value]
    return _scalar(value, node, place)


def _scalar(value: Any, node: Node, place: str) -> Any:
    kind = node.dtype.kind if isinstance(node, Primitive) else "f" if isinstance(node, Reduced) else ""
    if isinstance(node, String) and isinstance(value, str):
        return value
    if kind == "f" and isinstance(value, str) and value in INFINITIES:
        return INFINITIES[value]
    if kind == "f" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in ("i", "u") and type(value) is int:
        return value
    if kind == "b" and isinstance(value, bool):
        return value
    if isinstance(value, list) and not kind and not isinstance(node, String | Record):
        return value
    raise CorruptError(f"{place}: {value!r} is not a value of type {node}")


def from_text(text: str, node: Node, place: str) -> Any:
    """Return the value of a type that a cell of CSV stands for; lists and records are JSON."""
    if isinstance(node, Optional):
        return None if text == "" else from_text(text, node.item, place)
    if isinstance(node, String):
        return text
    if isinstance(node, Primitive) and node.dtype.kind == "f":
        try:
            return float(text)
        except ValueError:
            raise CorruptError(f"{place}: {text!r} is not a number") from None
    if isinstance(node, List) and node.is_bytes:
        return from_json(text, node, place)
    try:
        value = json.loads(text.lower() if text in ("True", "False", "TRUE", "FALSE") else text)
    except (ValueError, RecursionError):
        raise CorruptError(f"{place}: {text!r} is not a value of type {node}") from None
    return from_json(value, node, place)


def columns_from(objects: list[dict[str, Any]], definition: Definition, place: str) -> dict[str, list[Any]]:
    """Return the columns of objects; the hashes of payloads among them are checked."""
    if (
        definition.name == definition_of(Payload).name
        and {"data", "sha256"} <= definition.record.by_name.keys()
    ):
        for each in objects:
            if each["sha256"]:
                check_sum(each["data"], each["sha256"], f"{place}: payload {each.get('name')!r}")
    return {name: [each[name] for each in objects] for name in definition.record.by_name}


def inferred(objects: list[dict[str, Any]], name: str, place: str) -> Definition:
    """Return a class that all objects fit, from their values in JSON.

    Raises
    ------
    CorruptError
        If the values of a field have no type in common.
    """
    fields = dict.fromkeys(name for each in objects for name in each)
    for field in fields:
        values = [each[field] for each in objects if field in each]
        if len(values) < len(objects):
            raise CorruptError(f"{place}: {len(objects) - len(values)} conditions have no value of {field}")
    types = (
        Field(field, _inferred_type([each[field] for each in objects], f"{place}, field {field}"))
        for field in fields
    )
    return Definition(name, 1, tuple(types))


def _inferred_type(values: list[Any], place: str) -> Node:
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return Optional(_inferred_type(present, place))
    if present and all(isinstance(value, bool) for value in present):
        return Primitive("bool")
    if present and all(type(value) is int for value in present):
        is_small = all(-(2**63) <= value < 2**63 for value in present)
        return Primitive("int64" if is_small else "uint64")
    is_number = [
        type(value) in (int, float) or value in INFINITIES for value in present if not _is_nested(value)
    ]
    if present and len(is_number) == len(present) and all(is_number):
        return Primitive("float64")
    if all(isinstance(value, str) for value in present):
        return String()
    if all(isinstance(value, list) for value in present):
        return List(_inferred_type([item for value in present for item in value], place))
    raise CorruptError(f"{place}: the values are of several types or are records; give the class (--class)")


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | dict)

"""Checks of the meanings in a class definition that is written as JSON.

Definitions that are read from a federation are not checked: stored values can be read whatever they mean. For
the same reason unknown meanings are those of a later release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._exceptions import InvalidError, near_misses
from .meanings import ELEMENT, INTEGERS, Meaning
from .references import BEGIN, END, link_name
from .types import Definition, Field, List, Optional, Primitive, Record, innermost, paths_of

__all__ = ["check_elements", "check_meanings"]


def check_meanings(form: Any) -> None:
    """Check that the meanings in the JSON form of a definition, or of a part of one, can be read.

    Raises
    ------
    InvalidError
        If one is malformed.
    """
    if isinstance(form, list):
        for part in form:
            check_meanings(part)
    if not isinstance(form, Mapping):
        return
    for kind, body in form.items():
        if kind == "meaning":
            _check_form(body)
        check_meanings(body)


def _check_form(body: Any) -> None:
    if not isinstance(body, Mapping) or not {"of", "is"} <= set(body):
        raise InvalidError(
            f"meaning {body!r} must have the keys 'of', the type of its values, and 'is', its kind"
        )
    members = body.get("members", [])
    if not isinstance(members, list) or not all(map(_is_member, members)):
        raise InvalidError(f"members of a meaning are pairs of a name and a value, not {members!r}")
    if not isinstance(body.get("name", ""), str):
        raise InvalidError(f"the name of a meaning must be a string, not {body['name']!r}")
    if body["is"] == ELEMENT and body["of"] not in INTEGERS:
        raise InvalidError(f"the index of an element is an integer, not {body['of']!r}")


def _is_member(member: Any) -> bool:
    return isinstance(member, list | tuple) and len(member) == 2 and isinstance(member[0], str)


def check_elements(definition: Definition) -> None:
    """Check that the links of a class to elements lead to collections of the same class.

    Raises
    ------
    InvalidError
        If one does not, has no name, or lacks the member beside it that it needs; the text names the field.

    Examples
    --------
    >>> index = {"meaning": {"of": "int16", "is": "element", "name": "Jett"}}
    >>> form = {"name": "Event", "fields": [{"name": "jetIdx", "type": index}]}
    >>> check_elements(Definition.from_json(form))
    Traceback (most recent call last):
    femtobarn.InvalidError: field 'jetIdx' leads to 'Jett', which is not a field; there is jetIdx
    """
    for path, record, field in _members(definition.record):
        node = innermost(field.type)
        meaning = node.meaning if isinstance(node, Primitive) else None
        if meaning is not None and meaning.is_element:
            _check_element(f"field {path + field.name!r}", field, meaning, record, definition.record)


def _members(top: Record) -> Iterator[tuple[str, Record, Field]]:
    """Yield each field with the record that it is a member of, and the path to that."""
    inner = ((f"{path}.", innermost(node)) for path, node in paths_of(top))
    for path, record in [("", top), *inner]:
        if isinstance(record, Record):
            yield from ((path, record, field) for field in record.fields)


def _check_element(where: str, field: Field, meaning: Meaning, record: Record, top: Record) -> None:
    for name in [name for name, _ in meaning.members] or [meaning.name]:
        node = top.by_name.get(name)
        if node is None:
            raise InvalidError(
                f"{where} leads to {name!r}, which is not a field{near_misses(name, top.by_name)}"
            )
        if not isinstance(node.item if isinstance(node, Optional) else node, List):
            raise InvalidError(f"{where} leads to {name!r}, which is {node} and not a list")
    if meaning.members:
        if not all(isinstance(key, int) for _, key in meaning.members):
            raise InvalidError(f"{where}: keys of collections are integers")
        _require_integer(f"{where} has its key in", meaning.name, record)
    elif field.name.endswith(BEGIN):
        _require_integer(f"{where} needs", field.name.removesuffix(BEGIN) + END, record)
    elif not link_name(field.name):
        raise InvalidError(
            f"{where} has no name for its link; call it {field.name}Idx, or {field.name}{BEGIN}"
        )


def _require_integer(where: str, name: str, record: Record) -> None:
    """Refuse a record that lacks an integer of a name."""
    node = record.by_name.get(name)
    if not isinstance(node, Primitive) or node.name not in INTEGERS:
        raise InvalidError(f"{where} {name!r}, which is not an integer field beside it")

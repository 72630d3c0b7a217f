"""Schema evolution of a data model: renamed members, as podio's YAML files declare them.

::

    migrations:
      my::Hit:
        - from_version: 1
          to_version: 2
          rename_member: {from: e, to: energy}

A member is renamed to the name that it has in the newest model. All other changes that podio knows need no
declaration: members that were added, dropped, or got another type are found by their names.

Source: podio, ``python/podio_gen/schema_evolution.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._exceptions import InvalidError, UnsupportedError, near_misses
from .._schema.types import Definition, Field, List, Node, Record
from .outline import read_yaml, section

__all__ = ["Evolution", "Rename"]

RENAME_MEMBER, RENAME_DATATYPE = "rename_member", "rename_datatype"

VERSIONS = ("from_version", "to_version")


@dataclass(frozen=True)
class Rename:
    """A member of a datatype or a component that was renamed."""

    to_version: int
    """The first version of the model that lacks the old name."""
    old: str
    new: str


@dataclass(frozen=True)
class Evolution:
    """The renamed members of a data model.

    Examples
    --------
    >>> form = {"from_version": 1, "to_version": 2, "rename_member": {"from": "e", "to": "energy"}}
    >>> Evolution.read({"migrations": {"my::Hit": [form]}}).renames
    {'my::Hit': (Rename(to_version=2, old='e', new='energy'),)}
    """

    renames: Mapping[str, tuple[Rename, ...]]
    """By the name of the datatype or component."""

    @classmethod
    def read(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Evolution:
        """Read a schema evolution.

        Parameters
        ----------
        source
            Path of the YAML file, or its content as a mapping.

        Raises
        ------
        InvalidError
            If it is malformed; the text names the datatype and the migration.
        NotFoundError
            If the file does not exist.
        UnsupportedError
            If it renames a datatype.
        """
        body = read_yaml(source)
        if not isinstance(body, Mapping) or list(body) != ["migrations"]:
            found = ", ".join(map(str, body)) if isinstance(body, Mapping) else repr(body)
            raise InvalidError(f"a schema evolution has the section 'migrations' and no other, not {found}")
        every = section(body, "migrations", "the schema evolution", dict)
        return cls({name: tuple(_renames(name, forms)) for name, forms in every.items()})

    def check(self, records: Iterable[Record], schema_version: int) -> None:
        """Check that the renamed members are those of a model.

        Parameters
        ----------
        records
            Its datatypes and components.
        schema_version
            Its version.

        Raises
        ------
        InvalidError
            If the model has no such class, lacks the new name, has the old one, or is of an older version.
        """
        known = {record.class_name: record.by_name for record in records}
        for name, renames in self.renames.items():
            if name not in known:
                raise InvalidError(
                    f"migrations of {name!r}: the model has no such class{near_misses(name, known)}"
                )
            for each in renames:
                where = f"migrations of {name!r}: {each.old!r} is renamed to {each.new!r}"
                if each.new not in known[name]:
                    raise InvalidError(f"{where}, which is not a member{near_misses(each.new, known[name])}")
                if each.old in known[name]:
                    raise InvalidError(f"{where}, but is still a member")
                if each.to_version > schema_version:
                    raise InvalidError(
                        f"{where} in version {each.to_version}, but the schema_version of the model is "
                        f"{schema_version}"
                    )

    def applied(self, definition: Definition, older: Definition) -> Definition:
        """Return a definition with the names that its fields have in an older one, which it will follow."""
        record = self._renamed(Record(definition.name, definition.fields), older.record, older.version)
        return replace(definition, fields=record.fields)

    def _renamed(self, record: Record, older: Record, version: int) -> Record:
        known, renames = older.by_name, self.renames.get(record.class_name, ())

        def field(each: Field) -> Field:
            found = (
                it for it in renames if it.new == each.name and it.to_version > version and it.old in known
            )
            was = next((it.old for it in found), "")
            node = known.get(was or each.name)
            return replace(
                each, was=was, type=each.type if node is None else self._within(each.type, node, version)
            )

        return Record(record.class_name, tuple(map(field, record.fields)))

    def _within(self, node: Node, older: Node, version: int) -> Node:
        """Return a type with the old names of the members of records in it."""
        if isinstance(node, List) and isinstance(older, List):
            return List(self._within(node.item, older.item, version))
        if isinstance(node, Record) and isinstance(older, Record):
            return self._renamed(node, older, version)
        return node


def _renames(name: str, forms: Any) -> Iterator[Rename]:
    if not isinstance(forms, list):
        raise InvalidError(f"migrations of {name!r} must be a list, not {forms!r}")
    for number, form in enumerate(forms, 1):
        where = f"migration {number} of {name!r}"
        if not isinstance(form, Mapping):
            raise InvalidError(f"{where} must be a mapping, not {form!r}")
        kinds = [key for key in form if key not in VERSIONS]
        if len(kinds) != 1:
            raise InvalidError(f"{where} must have one change, such as {RENAME_MEMBER}, not {len(kinds)}")
        if kinds[0] == RENAME_DATATYPE:
            raise UnsupportedError(
                f"{where}: a class cannot be renamed, because its name is what objects and links know it by; "
                f"keep the name {name!r} in the model"
            )
        if kinds[0] != RENAME_MEMBER:
            hint = near_misses(str(kinds[0]), [RENAME_MEMBER])
            raise InvalidError(f"{where}: change {kinds[0]!r} does not exist{hint}")
        yield Rename(_last_version(form, where), *_names(form[RENAME_MEMBER], where))


def _last_version(form: Mapping[str, Any], where: str) -> int:
    first, last = (form.get(key) for key in VERSIONS)
    if type(first) is not int or type(last) is not int or first >= last:
        raise InvalidError(
            f"{where}: from_version must be less than to_version, both integers, not {first}, {last}"
        )
    return last


def _names(form: Any, where: str) -> tuple[str, str]:
    if not isinstance(form, Mapping) or set(form) != {"from", "to"} or not all(map(_is_name, form.values())):
        raise InvalidError(f"{where}: {RENAME_MEMBER} must have the names 'from' and 'to', not {form!r}")
    return form["from"], form["to"]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()

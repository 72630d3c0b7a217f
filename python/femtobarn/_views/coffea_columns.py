"""The columns of containers under the names that coffea's schemas expect, and their forms.

Each schema knows one layout of files: NanoAOD, ATLAS's PHYSLITE, or podio's trees of EDM4hep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
from coffea.nanoevents.util import quote

from .._data.plain_layouts import as_plain
from .._exceptions import InvalidError, NotFoundError
from .._exchange.podio_files import PodioMetadata
from .._query.projections import Projection
from .._schema.types import Definition, Fixed, List, Record
from .podio import metadata_of

if TYPE_CHECKING:
    from .view import View

__all__ = ["NANOAOD", "PHYSLITE", "PODIO", "Column", "Naming", "columns_and_form", "podio_types"]


@dataclass(frozen=True)
class Column:
    """A column of a schema: the field that it is, or ``nX`` for the number of items of X."""

    path: str
    description: str
    definition: Definition
    is_count: bool = False

    @cached_property
    def projection(self) -> Projection:
        """The fields to read; all partitions of a container share this projection."""
        return Projection.of(self.path, self.definition)

    def read(self, view: View) -> ak.Array:
        """Return the column of all objects of a view."""
        return self.member(view._array_of(self.projection, None, view._part(None, None)))

    def member(self, array: ak.Array) -> ak.Array:
        """Return the column of an array of objects."""
        layout = array.layout
        for name in self.path.split("."):
            layout = layout[name]
        return ak.values_astype(layout, np.int64) if self.is_count else ak.Array(as_plain(layout))


@dataclass(frozen=True)
class Naming:
    """How a schema names the members of a collection."""

    layout: str
    collection: str
    """The prefix of members' names, with ``{}`` for the name of the collection."""
    joint: str
    """The separator between the names of members."""
    has_counts: bool = True
    """Whether the number of items of X is the column ``nX``."""
    has_sizes: bool = False
    """Whether the name of a member that is an array of 6 numbers ends in ``[6]``."""


NANOAOD = Naming("NanoAOD", "{}_", "_")
PHYSLITE = Naming("PHYSLITE", "{}.", ".")
PODIO = Naming("podio's layout", "{0}/{0}.", ".", has_counts=False, has_sizes=True)

OF_PODIO = ("LinkData", "ObjectID")
"""Classes that podio has for all data models."""

FORMS_MAX = 64
"""Classes whose columns a process remembers."""
_known_forms: dict[tuple[int, Naming], tuple[Definition, dict[str, Column], str]] = {}
"""By the identity of the class, which lives as long as its entry: to hash many fields takes long."""


def _columns(definition: Definition, naming: Naming) -> dict[str, Column]:
    """Return the columns of a class by a schema's names."""
    columns: dict[str, Column] = {}

    def add(name: str, path: str, description: str, is_count: bool = False) -> None:
        if columns.setdefault(name, Column(path, description, definition, is_count)).path != path:
            raise InvalidError(
                f"fields {columns[name].path!r} and {path!r} would both be {name!r} in {naming.layout}"
            )

    def add_members(record: Record, prefix: str, path: str) -> None:
        for member in record.fields:
            name, below = f"{prefix}{member.name}", f"{path}.{member.name}"
            if isinstance(member.type, Record):
                add_members(member.type, f"{name}{naming.joint}", below)
            elif isinstance(member.type, Fixed) and naming.has_sizes:
                add(f"{name}[{member.type.size}]", below, member.description)
            else:
                add(name, below, member.description)

    for field in definition.record.fields:
        node = field.type
        if naming.has_counts and isinstance(node, List) and not (node.is_map or node.is_bytes):
            add(f"n{field.name}", f"n{field.name}", f"number of items of {field.name}", is_count=True)
        inner = node.item if isinstance(node, List) and not node.is_map else node
        if isinstance(inner, Record):
            add_members(inner, naming.collection.format(field.name), field.name)
        else:
            add(field.name, field.name, field.description)
    return columns


def columns_and_form(view: View, naming: Naming) -> tuple[dict[str, Column], str]:
    """Return the columns of a view and their form as JSON, for which a process remembers those of a class.

    Raises
    ------
    InvalidError
        If two fields would have one name.
    """
    definition = view.definition
    key = id(definition), naming
    known = _known_forms.get(key)
    if known is None:
        columns = _columns(definition, naming)
        known = definition, columns, json.dumps(_base_form(view, columns))
        if len(_known_forms) >= FORMS_MAX:
            _known_forms.clear()
        _known_forms[key] = known
    return known[1:]


def podio_types(view: View) -> dict[str, Any]:
    """Return the types of collections as the schema of EDM4hep asks for them beside the form.

    A link does not name the types that it connects; only podio's metadata do. Without them coffea raises an
    error, unless a schema names the types of such collections itself (``extra_mixins``).

    Raises
    ------
    InvalidError
        If a collection is not as podio stores it: it has whole objects of a data model.
    UnsupportedError
        If the metadata were written by a version of podio before 1.3.
    """
    names, has_links = {}, False
    for field in view.definition.record.fields:
        if isinstance(field.type, List) and isinstance(field.type.item, Record):
            name = field.type.item.class_name.rpartition("::")[2]
            if not (field.name.startswith("_") or name.endswith(("Data", "ObjectID"))):
                raise InvalidError(
                    f"collection {field.name!r} of {view.name} has objects of {field.type.item}, not what "
                    "podio stores of them; use BaseSchema"
                )
            has_links |= name == "LinkData"
            names[field.name] = f"vector<{'podio' if name in OF_PODIO else 'edm4hep'}::{name}>"
    types: dict[str, Any] = {"typenames": names}
    if has_links:
        with suppress(NotFoundError):
            infos = PodioMetadata.of(metadata_of(view)).collections.get(view.name.rpartition("/")[2], {})
            types["podio_collection_types"] = {name: info.dataType for name, info in infos.items()}
    return types


def _base_form(view: View, columns: Mapping[str, Column]) -> dict[str, Any]:
    """Return the form of all columns in coffea's terms."""
    forms = {}
    empty, counted = view.arrays(entry_stop=0), ak.Array(np.empty(0, np.int64))
    for name, column in columns.items():
        array = counted if column.is_count else column.member(empty)
        form = json.loads(array.layout.form.to_json())
        loaded = _with_keys(form, f"{name},!load")
        if loaded is not None:
            loaded["parameters"] = {**loaded.get("parameters", {}), "__doc__": column.description}
            forms[name] = loaded
    return {"class": "RecordArray", "fields": list(forms), "contents": list(forms.values()), "form_key": None}


def _with_keys(form: Any, prefix: str) -> dict[str, Any] | None:
    """Return a form with the keys by which coffea asks for its buffers; None if it cannot have them."""
    kind = form["class"]
    if kind not in ("NumpyArray", "ListOffsetArray", "RegularArray", "IndexedOptionArray", "RecordArray"):
        return None
    keyed = {**form, "form_key": None if kind in ("RegularArray", "RecordArray") else quote(prefix)}
    if kind == "IndexedOptionArray":
        keyed["form_key"] = quote(f"{prefix},!index")  # coffea adds the names of other buffers itself.
    if "content" in form:
        keyed["content"] = _with_keys(form["content"], f"{prefix},!content")
        return keyed if keyed["content"] is not None else None
    if kind == "RecordArray":
        names = form["fields"] or [str(number) for number in range(len(form["contents"]))]
        members = [
            _with_keys(each, f"{prefix},{name},!item")
            for name, each in zip(names, form["contents"], strict=True)
        ]
        return None if None in members else {**keyed, "contents": members}
    return keyed

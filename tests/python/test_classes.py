"""Persistent classes: the types that annotations stand for, and errors for those that cannot be stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pytest

import femtobarn as fb
from femtobarn._schema.types import type_from_json

an: Any = fb
"""The package, for annotations made at run time, which type checkers cannot follow."""


def stored_type(annotation: Any) -> Any:
    """Return the JSON of a field declared with an annotation."""
    declared = fb.persistent(type("Probe", (), {"__annotations__": {"x": annotation}}))
    return fb.definition_of(declared).to_json()["fields"][0]["type"]


@fb.persistent
class Raw:
    number: int


@fb.persistent
class Hit:
    """A point."""

    x: fb.float32
    y: fb.float32 = fb.field(default=0.0, description="height [mm]")


HIT = {
    "record": {
        "class": "Hit",
        "fields": [
            {"name": "x", "type": "float32"},
            {"name": "y", "type": "float32", "description": "height [mm]"},
        ],
    }
}


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (str, "string"),
        (bytes, {"list": "byte"}),
        (Sequence[int], {"list": "int64"}),
        (np.float32, "float32"),
        (np.dtype("u2"), "uint16"),
        *(
            (getattr(fb, name), name)
            for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
        ),
        *((getattr(fb, name), name) for name in ["float16", "float32", "float64", "string", "byte", "char"]),
        (an.bool_, "bool"),
        (list[an.int8], {"list": "int8"}),
        (list[list[float]], {"list": {"list": "float64"}}),
        (an.array[an.float32, 15], {"array": {"of": "float32", "size": 15}}),
        (an.float64 | None, {"optional": "float64"}),
        (an.array[int, 2] | None, {"optional": {"array": {"of": "int64", "size": 2}}}),
        (an.link["Raw"], {"link": "Raw"}),
        (an.link["Raw"] | None, {"link": "Raw"}),
        (an.link[Hit], {"link": "Hit"}),
        (list[an.link["Raw"]], {"list": {"link": "Raw"}}),
        (an.element_link["Raw"], {"element_link": "Raw"}),
        (Hit, HIT),
        (list[Hit], {"list": HIT}),
        ("list['Hit']", {"list": HIT}),
        (fb.truncated(16), {"truncated": {"bits": 16}}),
        (Annotated[float, fb.truncated(16)], {"truncated": {"bits": 16}}),
        (fb.quantised(12, 0, 100), {"quantised": {"bits": 12, "min": 0.0, "max": 100.0}}),
        (an.variant[an.int32, str], {"variant": ["int32", "string"]}),
        (an.int32 | str, {"variant": ["int32", "string"]}),
        (fb.bitset(8), {"bitset": 8}),
    ],
)
def test_annotation_stands_for_its_type(annotation: Any, form: Any) -> None:
    assert stored_type(annotation) == form
    assert type_from_json(form).to_json() == form


@pytest.mark.parametrize(
    ("annotation", "advice"),
    [
        (complex, "two fb.float64"),
        (list, "name the type of its items"),
        (np.ndarray, "list"),
        (object, "name a type"),
        (json.JSONDecoder, "decorate JSONDecoder with @fb.persistent"),
        (an.array[Hit, 2], r"use list\[Hit\]"),
        (an.array[an.link[Hit], 2], r"use list"),
        ("1 +", "fails"),
    ],
)
def test_annotations_that_cannot_be_stored_are_refused_with_advice(annotation: Any, advice: str) -> None:
    with pytest.raises(fb.InvalidError, match=advice) as caught:
        stored_type(annotation)
    assert "field 'x' of class Probe" in str(caught.value)


def test_objects_are_dataclasses_with_keyword_arguments() -> None:
    assert Hit(x=1.0) == Hit(x=1.0, y=0.0)
    assert repr(Hit(x=1.0)) == "Hit(x=1.0, y=0.0)"
    with pytest.raises(TypeError):
        Hit(1.0)  # type: ignore[call-arg]


def test_definition_carries_version_name_and_docs() -> None:
    @fb.persistent(version=3, name="edm::Cluster")
    class Cluster:
        """Energy found together."""

        energy: Annotated[an.float32, "in GeV"]

    assert fb.definition_of(Cluster).to_json() == {
        "name": "edm::Cluster",
        "version": 3,
        "fields": [{"name": "energy", "type": "float32", "description": "in GeV"}],
    }
    definition = fb.definition_of(Cluster)
    assert fb.Definition.from_json(json.dumps(definition.to_json())) == definition


def test_base_class_fields_come_first() -> None:
    @fb.persistent
    class Timed(Hit):
        t: an.float64

    assert [field.name for field in fb.definition_of(Timed).fields] == ["x", "y", "t"]
    assert fb.definition_of(Timed).name == "Timed"


def test_forward_reference_is_looked_up_on_first_use() -> None:
    @fb.persistent
    class Parent:
        children: list[Child]

    with pytest.raises(fb.NotFoundError, match="'Child', which is not defined"):
        fb.definition_of(Parent)

    @fb.persistent
    class Child:
        age: an.uint8

    assert str(fb.definition_of(Parent).fields[0].type) == "list[Child]"


def test_class_that_contains_itself_is_refused() -> None:
    with pytest.raises(fb.InvalidError, match=r'fb.link\["Node"\]'):
        fb.persistent(type("Node", (), {"__annotations__": {"next": "list[Node]"}}))


@pytest.mark.parametrize("name", ["_private", "oid"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(fb.InvalidError, match=name):
        fb.persistent(type("Probe", (), {"__annotations__": {name: int}}))


def test_class_without_fields_is_refused() -> None:
    with pytest.raises(fb.InvalidError, match="has no field"):
        fb.persistent(type("Probe", (), {}))


@pytest.mark.parametrize("version", [0, -1, True, "1"])
def test_versions_below_one_are_refused(version: Any) -> None:
    with pytest.raises(fb.InvalidError, match="must be an integer of 1 or more"):
        fb.persistent(version=version)(type("Probe", (), {"__annotations__": {"x": int}}))


def test_plain_class_has_no_definition() -> None:
    with pytest.raises(fb.InvalidError, match="decorate it"):
        fb.definition_of(dict)


@pytest.mark.parametrize("bits", [9, 32])
def test_truncated_keeps_ten_to_thirty_one_bits(bits: int) -> None:
    with pytest.raises(fb.InvalidError, match="10 to 31"):
        fb.truncated(bits)


def test_path_that_does_not_exist_names_near_misses() -> None:
    definition = fb.definition_of(Hit)
    with pytest.raises(fb.NotFoundError, match=r"field 'z' does not exist; there are x, y"):
        definition.resolve("z")


def test_field_keeps_its_former_name_and_its_default_for_older_objects() -> None:
    @fb.persistent(version=2)
    class Cluster:
        energy: fb.float32 = fb.field(was="e")
        kind: fb.int8 = fb.field(default=-1)
        label: str = "none"
        count: fb.uint32 = 0
        weight: float = float("inf")
        cells: list[fb.uint16] = fb.field(default_factory=list)

    definition = fb.definition_of(Cluster)
    assert definition.to_json()["fields"] == [
        {"name": "energy", "type": "float32", "was": "e"},
        {"name": "kind", "type": "int8", "default": -1},
        {"name": "label", "type": "string", "default": "none"},
        {"name": "count", "type": "uint32"},
        {"name": "weight", "type": "float64"},
        {"name": "cells", "type": {"list": "uint16"}},
    ]
    assert fb.Definition.from_json(definition.to_json()) == definition
    with pytest.raises(fb.InvalidError, match="its present name; leave was out"):

        @fb.persistent
        class Same:
            x: int = fb.field(was="x")


@fb.persistent
class Trail:
    hits: Sequence[fb.link[Raw]]


def test_a_sequence_of_links_takes_a_list_of_oids() -> None:
    # Type checkers accept list[Oid] as a Sequence of links, but not as a list of links.
    oids: list[fb.Oid] = [fb.Oid(1, 1, 0)]
    assert Trail(hits=oids).hits == oids
    assert stored_type(Sequence[an.link["Raw"]]) == {"list": {"link": "Raw"}}

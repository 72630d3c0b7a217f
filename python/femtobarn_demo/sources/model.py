"""The classes of raw events, after the object model of GIOD.

A raw event is a header object and six parts, each an object in a container of its own, so that a job
reads only the detectors that it needs. The header links to its parts. The label `particle` of a hit or a
cell is the simulated particle that made it, -1 for noise; real data have no such label.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from femtobarn.definitions import Definition, Type, define, link, list_of, record

__all__ = ["CONTAINERS", "PARTS", "RAW_CLASSES", "collection_of", "columns_of", "element_class"]

_PIXEL_HIT = record(
    "PixelHit",
    ("module", "uint32", "layer (8 bits), sector (12), ring (12)"),
    ("x", "float32", "m"),
    ("y", "float32", "m"),
    ("z", "float32", "m"),
    ("charge", "uint16", "ADC counts"),
    ("size", "uint8", "pixels in the cluster"),
    ("flags", "uint8", "1: in a disk, 8: noise"),
    ("particle", "int32", "label of the simulation"),
)

_STRIP_HIT = record(
    "StripHit",
    ("module", "uint32", "layer (8 bits), sector (12), ring (12)"),
    ("x", "float32", "m"),
    ("y", "float32", "m"),
    ("z", "float32", "m"),
    ("charge", "uint16", "ADC counts"),
    ("width", "uint8", "strips in the cluster"),
    ("flags", "uint8", "1: in a disk, 8: noise"),
    ("particle", "int32", "label of the simulation"),
)

_ECAL_CELL = record(
    "EcalCell",
    ("cell", "uint32", "index in pseudorapidity * 1024 + index in azimuth"),
    ("energy", "float32", "GeV"),
    ("time", "float32", "ns"),
    ("gain", "uint16", "amplifier range"),
    ("flags", "uint16", "quality bits"),
    ("particle", "int32", "label of the simulation"),
)

_HCAL_CELL = record(
    "HcalCell",
    ("cell", "uint32", "index in pseudorapidity * 1024 + index in azimuth"),
    ("energy", "float32", "GeV"),
    ("time", "float32", "ns"),
    ("depth", "uint16", "segment along the shower"),
    ("flags", "uint16", "quality bits"),
    ("particle", "int32", "label of the simulation"),
)

_MUON_HIT = record(
    "MuonHit",
    ("chamber", "uint32", "station (16 bits), sublayer (4), sector (12)"),
    ("x", "float32", "m"),
    ("y", "float32", "m"),
    ("z", "float32", "m"),
    ("slope", "float32", "rad"),
    ("time", "float32", "drift time, ns"),
    ("particle", "int32", "label of the simulation"),
)

_TRIGGER_TOWER = record(
    "TriggerTower",
    ("tower", "uint16", "index in pseudorapidity * 72 + index in azimuth"),
    ("em", "uint16", "electromagnetic transverse energy, 0.5 GeV"),
    ("had", "uint16", "hadronic transverse energy, 0.5 GeV"),
    ("fine_grain", "uint16", "1: a narrow deposit"),
)


def _part(name: str, collection: str, element: Type) -> Definition:
    """The class of one detector's part of an event."""
    return define(
        name,
        ("run", "uint32"),
        ("event", "uint64"),
        (collection, list_of(element)),
    )


_PART_CLASSES: tuple[Definition, ...] = (
    _part("PixelHits", "hits", _PIXEL_HIT),
    _part("StripHits", "hits", _STRIP_HIT),
    _part("EcalCells", "cells", _ECAL_CELL),
    _part("HcalCells", "cells", _HCAL_CELL),
    _part("MuonHits", "hits", _MUON_HIT),
    _part("TrigTowers", "towers", _TRIGGER_TOWER),
)

_RAW_EVENT = define(
    "RawEvent",
    ("run", "uint32"),
    ("event", "uint64"),
    ("time", "uint64", "ns since 1970, UTC"),
    ("bunch_crossing", "uint16"),
    ("interactions", "uint16", "simultaneous collisions that were simulated"),
    ("momentum_scale", "float32", "transverse momentum of the hard process, GeV"),
    ("pixels", link("PixelHits")),
    ("strips", link("StripHits")),
    ("ecal", link("EcalCells")),
    ("hcal", link("HcalCells")),
    ("muons", link("MuonHits")),
    ("trigger", link("TrigTowers")),
)

RAW_CLASSES: tuple[Definition, ...] = (*_PART_CLASSES, _RAW_EVENT)
"""All classes of a raw event, targets of links first."""

PARTS: dict[str, str] = {
    "PixelHits": "pixels",
    "StripHits": "strips",
    "EcalCells": "ecal",
    "HcalCells": "hcal",
    "MuonHits": "muons",
    "TrigTowers": "trigger",
}
"""Class of each part, and the field of `RawEvent` that links to it."""

CONTAINERS: dict[str, str] = {
    "PixelHits": "pixel_hits",
    "StripHits": "strip_hits",
    "EcalCells": "ecal_cells",
    "HcalCells": "hcal_cells",
    "MuonHits": "muon_hits",
    "TrigTowers": "trigger_towers",
    "RawEvent": "raw_events",
}
"""The container that holds the objects of each class in a database."""

_BY_NAME = {definition["name"]: definition for definition in _PART_CLASSES}


def collection_of(part: str) -> str:
    """The name of the collection field of a part, such as "hits"."""
    return str(_BY_NAME[part]["fields"][-1]["name"])


def _element(part: str) -> dict[str, Any]:
    element: dict[str, Any] = _BY_NAME[part]["fields"][-1]["type"]["list"]["record"]
    return element


def element_class(part: str) -> str:
    """The class name of the elements of a part, such as "PixelHit"."""
    return str(_element(part)["class"])


def columns_of(part: str) -> dict[str, np.dtype[Any]]:
    """The columns of a part's elements and their NumPy types, in the order of the class."""
    return {entry["name"]: np.dtype(entry["type"]) for entry in _element(part)["fields"]}

"""Two events of GIOD's model, made by hand, for the tests of the event display.

The hits of a track lie on the helix of its momentum, as the demo computes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import femtobarn as fb
from femtobarn_demo.reconstruction.model import CONTAINERS, RECONSTRUCTED_CLASSES
from femtobarn_demo.sources.detector.geometry import CURVATURE_PER_MOMENTUM, ECAL
from femtobarn_demo.sources.model import CONTAINERS as RAW_CONTAINERS
from femtobarn_demo.sources.model import RAW_CLASSES

EVENTS = 2
TRACKS = ((10.0, 0.5, 1.0, 1), (2.0, -0.8, -2.0, -1))
"""Transverse momentum, pseudorapidity, azimuth and charge of each track."""

RADII = (0.2, 0.5, 0.9)
"""Radii of the hits of each track (m)."""

CELL = (300 << 10) + 57
"""A cell of the electromagnetic calorimeter: its row in pseudorapidity, and its column in azimuth."""


def store(fed: fb.Federation) -> fb.View:
    """Store the events, and return their tags."""
    classes = {definition["name"]: definition for definition in (*RAW_CLASSES, *RECONSTRUCTED_CLASSES)}
    names = {**RAW_CONTAINERS, **CONTAINERS}
    with fed.transaction() as txn:
        database = txn.database("run1", create=True)

        def put(name: str, **values: Any) -> Any:
            numbers = {"run": [1] * EVENTS, "event": [*range(EVENTS)]}
            empty: dict[str, Any] = {
                field["name"]: [[] if "list" in str(field["type"]) else 0] * EVENTS
                for field in classes[name]["fields"]
                if "link" not in str(field["type"]) or "list" in str(field["type"])
            }
            writer = database.container(names[name], classes[name], create=True)
            return writer.extend({**empty, **numbers, **values})

        pixels = put("PixelHits", hits=[_hits()] * EVENTS)
        strips = put("StripHits")
        ecal = put("EcalCells", cells=[_cells()] * EVENTS)
        rest = {name: put(name) for name in ("HcalCells", "MuonHits", "TrigTowers")}
        raw = put(
            "RawEvent", pixels=pixels, strips=strips, ecal=ecal, hcal=rest["HcalCells"],
            muons=rest["MuonHits"], trigger=rest["TrigTowers"],
        )  # fmt: skip
        vertices = [[{"z": 0.0, "tracks": 2}]] * EVENTS
        tracks = put(
            "Tracks", raw=raw, pixel_hits=pixels, strip_hits=strips, vertices=vertices,
            tracks=[_tracks()] * EVENTS,
        )  # fmt: skip
        clusters = put(
            "Clusters",
            raw=raw,
            ecal_cells=ecal,
            hcal_cells=rest["HcalCells"],
            clusters=[_clusters()] * EVENTS,
        )
        jets = put("Jets", raw=raw, jets=[_jets(tracks, clusters, entry) for entry in range(EVENTS)])
        put(
            "Tag", met=[33.0, 44.0], met_phi=[2.5, -2.5], n_tracks=[len(TRACKS)] * EVENTS, raw=raw,
            tracks=tracks, clusters=clusters, jets=jets,
        )  # fmt: skip
    return fed["run1/tags"]


def _hits() -> list[dict[str, Any]]:
    found = []
    for pt, eta, phi, charge in TRACKS:
        curvature = charge * CURVATURE_PER_MOMENTUM / pt
        for radius in RADII:
            turn = np.arcsin(curvature * radius)
            x, y, z = (
                radius * np.cos(phi - turn),
                radius * np.sin(phi - turn),
                np.sinh(eta) * turn / curvature,
            )
            found.append(
                {"module": 1, "x": x, "y": y, "z": z, "charge": 9, "size": 1, "flags": 0, "particle": 1}
            )
    return found


def _cells() -> list[dict[str, Any]]:
    cell = {"energy": 20.0, "time": 0.0, "gain": 1, "flags": 0, "particle": 1}
    return [{"cell": CELL, **cell}, {"cell": CELL + 1, **cell}]


def _tracks() -> list[dict[str, Any]]:
    common = {"d0": 0.0, "z0": 0.0, "covariance": [0.0] * 15, "chi2": 1.0, "freedom": 4, "vertex": 0}
    return [
        {"pt": pt, "eta": eta, "phi": phi, "charge": charge, **common, "muon": False,
         "pixels": [*range(3 * number, 3 * number + 3)], "strips": []}
        for number, (pt, eta, phi, charge) in enumerate(TRACKS)
    ]  # fmt: skip


def _clusters() -> list[dict[str, Any]]:
    eta, phi = cell_direction()
    return [
        {"energy": 40.0, "em": 40.0, "had": 0.0, "eta": eta, "phi": phi, "width": 0.1, "towers": 2,
         "ecal": [0, 1], "hcal": []}
    ]  # fmt: skip


def _jets(tracks: fb.OidRange, clusters: fb.OidRange, entry: int) -> list[dict[str, Any]]:
    to_track, to_cluster = (
        {"database": oids.database, "container": oids.container, "entry": oids.start + entry, "element": 0}
        for oids in (tracks, clusters)
    )
    hard = {"pt": 120.0 + entry, "eta": 0.5, "phi": 1.0, "mass": 9.0, "tracks": [to_track]}
    soft = {"pt": 25.0, "eta": -0.5, "phi": -2.0, "mass": 3.0, "tracks": [], "clusters": []}
    return [{**hard, "clusters": [to_cluster]}, soft]


def cell_direction() -> tuple[float, float]:
    """Pseudorapidity and azimuth of the first cell, by the geometry of the demo's detector."""
    row, column = CELL >> 10, CELL & 1023
    return (row + 0.5) * ECAL.pitch - ECAL.eta_max, (column + 0.5) * ECAL.pitch

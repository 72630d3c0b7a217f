"""Reconstruction of a batch of events: from raw objects to the objects that are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import awkward as ak
import numpy as np

from femtobarn.jagged import Array, Jagged, offsets_of
from femtobarn.linking import Target, element_links, links
from femtobarn_demo.reconstruction.clusters import Clusters, find_clusters
from femtobarn_demo.reconstruction.constants import Constants
from femtobarn_demo.reconstruction.jets import Jets, find_jets
from femtobarn_demo.reconstruction.muons import find_muons
from femtobarn_demo.reconstruction.space_points import Points
from femtobarn_demo.reconstruction.track_finding import FoundTracks, find_tracks
from femtobarn_demo.reconstruction.track_fitting import FittedTracks, fit_tracks
from femtobarn_demo.reconstruction.vertices import Vertices, find_vertices
from femtobarn_demo.sources.model import collection_of

__all__ = ["NEEDED", "Reconstruction", "reconstruct"]

NEEDED = ("PixelHits", "StripHits", "EcalCells", "HcalCells", "MuonHits")
"""The parts of a raw event that reconstruction reads."""

TAG_JET_MOMENTUM = 20.0
"""Least transverse momentum of a jet that a tag counts (GeV)."""


@dataclass(frozen=True)
class Reconstruction:
    """The result of a batch; its methods return the objects to be written.

    Parameters
    ----------
    headers
        The `RawEvent` objects, whose numbers and links are copied.
    raw
        Shape (events,): links to those objects.
    bytes_read
        Bytes of the headers and of the parts.
    """

    headers: ak.Array
    raw: ak.Array
    bytes_read: int
    points: Points
    found: FoundTracks
    fitted: FittedTracks
    muon: Array
    vertices: Vertices
    found_clusters: Clusters
    found_jets: Jets

    def __len__(self) -> int:
        return len(self.headers)

    def objects(self, class_name: str, targets: Mapping[str, Target]) -> ak.Array:
        """Return the objects of a class, given where those of the classes before it were written."""
        if class_name == "Tracks":
            return self.tracks()
        if class_name == "Clusters":
            return self.clusters()
        if class_name == "Jets":
            return self.jets(targets["Tracks"], targets["Clusters"])
        return self.tags(targets["Tracks"], targets["Clusters"], targets["Jets"])

    def tracks(self) -> ak.Array:
        """The `Tracks` objects."""
        rows, fitted = self._track_offsets(), self.fitted
        columns: dict[str, Array | ak.contents.Content] = {
            "pt": fitted.momentum.astype(np.float32),
            "eta": fitted.eta.astype(np.float32),
            "phi": fitted.phi.astype(np.float32),
            "charge": fitted.charge.astype(np.int8),
            "d0": fitted.d0.astype(np.float32),
            "z0": fitted.z0.astype(np.float32),
            "covariance": fitted.covariance,
            "chi2": fitted.chi2.astype(np.float32),
            "freedom": fitted.freedom.astype(np.uint16),
            "vertex": self.vertices.of_track,
            "muon": self.muon,
            "pixels": _index_lists(self._points_of_tracks(0)),
            "strips": _index_lists(self._points_of_tracks(1)),
        }
        vertices = {
            "z": self.vertices.z.astype(np.float32),
            "tracks": self.vertices.tracks.astype(np.uint16),
        }
        return self._objects(
            {
                "pixel_hits": self.headers.pixels.layout,
                "strip_hits": self.headers.strips.layout,
                "vertices": _lists(self.vertices.offsets, _record(vertices)),
                "tracks": _lists(rows, _record(columns)),
            }
        )

    def clusters(self) -> ak.Array:
        """The `Clusters` objects."""
        found = self.found_clusters
        columns: dict[str, Array | ak.contents.Content] = dict(_narrow(found.rows))
        columns |= {"ecal": _index_lists(found.ecal), "hcal": _index_lists(found.hcal)}
        return self._objects(
            {
                "ecal_cells": self.headers.ecal.layout,
                "hcal_cells": self.headers.hcal.layout,
                "clusters": _lists(found.rows.offsets, _record(columns)),
            }
        )

    def jets(self, tracks: Target, clusters: Target) -> ak.Array:
        """The `Jets` objects, with links to the tracks and clusters that were written for the batch."""
        found = self.found_jets
        columns: dict[str, Array | ak.contents.Content] = dict(_narrow(found.rows))
        for name, members, target in (
            ("tracks", found.tracks, tracks),
            ("clusters", found.clusters, clusters),
        ):
            event = found.rows.owners[members.owners]
            columns[name] = element_links(target, event, members["index"], members.offsets).layout
        return self._objects({"jets": _lists(found.rows.offsets, _record(columns))})

    def tags(self, tracks: Target, clusters: Target, jets: Target) -> ak.Array:
        """The `Tag` objects, with links to the other objects that were written for the batch."""
        count = len(self)
        columns: dict[str, Array | ak.contents.Content] = {
            "run": ak.to_layout(self.headers.run),
            "event": ak.to_layout(self.headers.event),
            **self._counts(),
            **self._jet_summary(),
            **self._missing_momentum(),
            "raw": self.raw.layout,
            "tracks": links(tracks, count).layout,
            "clusters": links(clusters, count).layout,
            "jets": links(jets, count).layout,
        }
        return ak.Array(_record(columns))

    def _objects(self, columns: Mapping[str, Array | ak.contents.Content]) -> ak.Array:
        """Objects of the given columns after the event's numbers and the link to its header."""
        start = {
            "run": ak.to_layout(self.headers.run),
            "event": ak.to_layout(self.headers.event),
            "raw": self.raw.layout,
        }
        return ak.Array(_record(start | dict(columns)))

    def _track_offsets(self) -> Array:
        return offsets_of(self.fitted.event, len(self))

    def _points_of_tracks(self, detector: int) -> Jagged:
        """Indices of every track's points in the collection of one detector."""
        track, surface = np.nonzero(self.found.point >= 0)
        point = self.found.point[track, surface]
        chosen = self.points.detector[point] == detector
        index = self.points.index[point[chosen]].astype(np.uint32)
        return Jagged(offsets_of(track[chosen], len(self.found)), {"index": index})

    def _counts(self) -> dict[str, Array]:
        jets = self.found_jets.rows
        counted = jets.owners[jets["pt"] > TAG_JET_MOMENTUM]
        numbers = {
            "n_tracks": np.diff(self._track_offsets()),
            "n_vertices": np.diff(self.vertices.offsets),
            "n_clusters": self.found_clusters.rows.counts,
            "n_jets": np.bincount(counted, minlength=len(self)),
            "n_muons": np.bincount(self.fitted.event[self.muon], minlength=len(self)),
        }
        return {name: number.astype(np.uint16) for name, number in numbers.items()}

    def _jet_summary(self) -> dict[str, Array]:
        jets, count = self.found_jets.rows, len(self)
        lead_track = np.zeros(count)
        np.maximum.at(lead_track, self.fitted.event, self.fitted.momentum)
        counted = jets["pt"] > TAG_JET_MOMENTUM
        summary = {
            "lead_track_pt": lead_track,
            "lead_jet_pt": np.where(jets.counts > 0, _nth(jets, jets["pt"], 0), 0.0),
            "dijet_mass": _dijet_mass(jets),
            "ht": np.bincount(jets.owners[counted], jets["pt"][counted], count),
        }
        return {name: values.astype(np.float32) for name, values in summary.items()}

    def _missing_momentum(self) -> dict[str, Array]:
        candidates, count = self.found_jets.candidates, len(self)
        px = -np.bincount(candidates.owners, candidates["px"], count)
        py = -np.bincount(candidates.owners, candidates["py"], count)
        return {"met": np.hypot(px, py).astype(np.float32), "met_phi": np.arctan2(py, px).astype(np.float32)}


def reconstruct(
    headers: ak.Array, raw: ak.Array, parts: Mapping[str, ak.Array], constants: Constants | None = None
) -> Reconstruction:
    """Find tracks, vertices, muons, clusters and jets.

    Parameters
    ----------
    headers
        `RawEvent` objects of the batch.
    raw
        Links to them.
    parts
        The objects of each class in `NEEDED` that the headers link to, in the same order.
    constants
        The constants of calibration; those of a perfect detector if not given.
    """
    constants = constants or Constants.perfect(len(headers))
    hits = {name: Jagged.from_awkward(parts[name][collection_of(name)]) for name in NEEDED}
    events = len(headers)
    points = Points.from_hits(hits["PixelHits"], constants.correct_position(hits["StripHits"]))
    found = find_tracks(points)
    fitted = fit_tracks(points, found)
    vertices = find_vertices(fitted, events)
    clusters = find_clusters(constants.correct_energy(hits["EcalCells"]), hits["HcalCells"])
    return Reconstruction(
        headers=headers,
        raw=raw,
        bytes_read=sum(int(array.nbytes) for array in (headers, *parts.values())),
        points=points,
        found=found,
        fitted=fitted,
        muon=find_muons(fitted, hits["MuonHits"]),
        vertices=vertices,
        found_clusters=clusters,
        found_jets=find_jets(fitted, vertices, clusters, events),
    )


def _nth(rows: Jagged, values: Array, n: int) -> Array:
    """The n-th value of every event, 0 for events with fewer values; shape (events,)."""
    present = rows.counts > n
    result = np.zeros(len(rows))
    result[present] = values[rows.offsets[:-1][present] + n]
    return result


def _dijet_mass(jets: Jagged) -> Array:
    """Mass of the two hardest jets (GeV), 0 where there are fewer."""
    (p1, e1, f1), (p2, e2, f2) = (
        [_nth(jets, jets[name], n) for name in ("pt", "eta", "phi")] for n in (0, 1)
    )
    squared = 2.0 * p1 * p2 * (np.cosh(e1 - e2) - np.cos(f1 - f2))
    mass: Array = np.sqrt(np.maximum(squared, 0.0))
    return mass


def _narrow(rows: Jagged) -> dict[str, Array]:
    """Floating-point columns in single precision."""
    return {
        name: column.astype(np.float32) if column.dtype.kind == "f" else column
        for name, column in rows.columns.items()
    }


def _index_lists(members: Jagged) -> ak.contents.Content:
    return _lists(members.offsets, ak.contents.NumpyArray(members["index"]))


def _lists(offsets: Array, content: ak.contents.Content) -> ak.contents.Content:
    return ak.contents.ListOffsetArray(ak.index.Index64(np.asarray(offsets, np.int64)), content)


def _record(columns: Mapping[str, Array | ak.contents.Content]) -> ak.contents.RecordArray:
    contents = [
        ak.from_numpy(column, highlevel=False, regulararray=True)
        if isinstance(column, np.ndarray)
        else column
        for column in columns.values()
    ]
    return ak.contents.RecordArray(contents, list(columns))

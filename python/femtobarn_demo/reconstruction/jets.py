"""Jets: the anti-kT algorithm with radius 0.4 on tracks and the neutral energy of clusters.

FastJet clusters if it is installed, otherwise `anti_kt` does, which finds the same jets more slowly.

The neutral energy of a cluster is its energy minus that of the tracks that point to it. Tracks of pile-up
vertices are excluded from jets, but their energy is subtracted from clusters, too.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from itertools import pairwise

import awkward as ak
import numpy as np

from femtobarn.jagged import Array, Jagged, offsets_of
from femtobarn_demo.reconstruction.anti_kt import anti_kt
from femtobarn_demo.reconstruction.clusters import Clusters
from femtobarn_demo.reconstruction.space_points import wrap
from femtobarn_demo.reconstruction.track_fitting import FittedTracks
from femtobarn_demo.reconstruction.vertices import Vertices
from femtobarn_demo.sources.detector.geometry import CALORIMETER_RADIUS, bending

__all__ = ["Jets", "find_jets"]

RADIUS = 0.4
MOMENTUM_MIN = 10.0
NEUTRAL_MIN = 0.5
"""Least neutral energy of a cluster (GeV)."""

NEUTRAL_SIGNIFICANCE = 0.8
"""Factor of the square root of the tracks' energy that is added to `NEUTRAL_MIN` (GeV ** 0.5)."""

MOMENTA = {"px": "px", "py": "py", "pz": "pz", "E": "energy"}
"""The components of a momentum as FastJet names them, and as candidates do."""


@dataclass(frozen=True)
class Jets:
    """Jets by event, the hardest first.

    Parameters
    ----------
    rows
        Columns ``pt``, ``eta``, ``phi``, ``mass`` (GeV, 1, rad, GeV).
    tracks, clusters
        Indices of every jet's tracks and clusters within the event.
    candidates
        The particles that were clustered: columns ``px``, ``py``, ``pz``, ``energy`` (GeV).
    """

    rows: Jagged
    tracks: Jagged
    clusters: Jagged
    candidates: Jagged


def find_jets(tracks: FittedTracks, vertices: Vertices, clusters: Clusters, events: int) -> Jets:
    """Cluster the tracks and neutral energies of a batch of events."""
    candidates = _candidates(tracks, vertices, clusters, events)
    jets, members = _cluster(candidates)
    source = candidates["source"][members["candidate"]]
    return Jets(
        rows=jets,
        tracks=_split(members, candidates, source == _TRACK),
        clusters=_split(members, candidates, source == _CLUSTER),
        candidates=candidates,
    )


_TRACK, _CLUSTER = 0, 1


def _candidates(tracks: FittedTracks, vertices: Vertices, clusters: Clusters, events: int) -> Jagged:
    """Tracks of the primary vertex, and neutral energies."""
    primary = vertices.of_track <= 0
    charged = _momenta(tracks.momentum, tracks.eta, tracks.phi, tracks.energy)
    first = offsets_of(tracks.event, events)[tracks.event]
    charged["index"] = np.arange(len(tracks)) - first
    charged["source"] = np.full(len(tracks), _TRACK, np.uint8)
    rows = clusters.rows
    neutral_energy = _neutral_energy(tracks, clusters)
    neutral = _momenta(neutral_energy / np.cosh(rows["eta"]), rows["eta"], rows["phi"], neutral_energy)
    neutral["index"] = rows.positions
    neutral["source"] = np.full(rows.rows, _CLUSTER, np.uint8)
    keep = neutral_energy > 0.0
    columns = {name: np.concatenate([charged[name][primary], neutral[name][keep]]) for name in charged}
    owners = np.concatenate([tracks.event[primary], rows.owners[keep]])
    return Jagged.from_rows(owners, events, columns)


def _momenta(transverse: Array, eta: Array, phi: Array, energy: Array) -> dict[str, Array]:
    return {
        "px": transverse * np.cos(phi),
        "py": transverse * np.sin(phi),
        "pz": transverse * np.sinh(eta),
        "energy": energy,
    }


def _neutral_energy(tracks: FittedTracks, clusters: Clusters) -> Array:
    """Neutral energy of each cluster, 0 if it is not significant (GeV); shape (clusters,)."""
    rows = clusters.rows
    azimuth = tracks.phi - bending(tracks.momentum, tracks.charge, CALORIMETER_RADIUS)
    hit = clusters.at(tracks.event, tracks.eta, azimuth)
    arrived = hit >= 0
    cluster = rows.offsets[tracks.event[arrived]] + hit[arrived]
    explained = np.bincount(cluster, tracks.energy[arrived], rows.rows)
    rest = rows["energy"] - explained
    significant = rest > NEUTRAL_MIN + NEUTRAL_SIGNIFICANCE * np.sqrt(explained)
    return np.where(significant, rest, 0.0)


def _cluster(candidates: Jagged) -> tuple[Jagged, Jagged]:
    """Cluster all events; return the jets, and the candidates of each, numbered over all events."""
    find = _with_fastjet if importlib.util.find_spec("fastjet") else _with_numpy
    jets, members = find(candidates)
    order = ak.argsort(jets.px**2 + jets.py**2, ascending=False)
    jets, members = jets[order], members[order]
    counts = ak.to_numpy(ak.num(jets))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    sizes = ak.to_numpy(ak.flatten(ak.num(members, axis=2)))
    event = np.repeat(np.repeat(np.arange(len(candidates)), counts), sizes)
    candidate = candidates.offsets[event] + ak.to_numpy(ak.flatten(members, axis=None))
    member_offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Jagged(offsets, _kinematics(ak.flatten(jets))), Jagged(member_offsets, {"candidate": candidate})


def _with_fastjet(candidates: Jagged) -> tuple[ak.Array, ak.Array]:
    """The momenta of the jets of each event, and the indices of their candidates, by FastJet."""
    import fastjet

    # The banner would go to standard output, where a client may write JSON.
    fastjet._swig.ClusterSequence.set_fastjet_banner_stream(None)
    momenta = Jagged(candidates.offsets, {name: candidates[source] for name, source in MOMENTA.items()})
    definition = fastjet.JetDefinition(fastjet.antikt_algorithm, RADIUS)
    sequence = fastjet.ClusterSequence(momenta.to_awkward("Momentum4D"), definition)
    return sequence.inclusive_jets(min_pt=MOMENTUM_MIN), sequence.constituent_index(min_pt=MOMENTUM_MIN)


def _with_numpy(candidates: Jagged) -> tuple[ak.Array, ak.Array]:
    """The same with NumPy, event by event."""
    momenta = np.column_stack([candidates[source] for source in MOMENTA.values()])
    jets, members, counts = [], [], []
    for start, stop in pairwise(candidates.offsets):
        found, indices = anti_kt(momenta[start:stop], RADIUS)
        hard = np.flatnonzero(np.hypot(found[:, 0], found[:, 1]) >= MOMENTUM_MIN)
        jets.append(found[hard])
        members += [indices[jet] for jet in hard]
        counts.append(len(hard))
    columns = dict(zip(MOMENTA, np.concatenate(jets).T, strict=True))
    lists = ak.unflatten(np.concatenate([[], *members]).astype(np.int64), [len(each) for each in members])
    return ak.unflatten(ak.zip(columns), counts), ak.unflatten(lists, counts)


def _kinematics(jets: ak.Array) -> dict[str, Array]:
    px, py, pz, energy = (ak.to_numpy(jets[name]) for name in ("px", "py", "pz", "E"))
    momentum = np.hypot(px, py)
    return {
        "pt": momentum,
        "eta": np.arcsinh(pz / momentum),
        "phi": wrap(np.arctan2(py, px)),
        "mass": np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0.0)),
    }


def _split(members: Jagged, candidates: Jagged, chosen: Array) -> Jagged:
    """The members of one source, as indices within the event."""
    kept = members.select(chosen)
    return Jagged(kept.offsets, {"index": candidates["index"][kept["candidate"]].astype(np.uint32)})

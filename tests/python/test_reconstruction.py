"""Reconstruction against the simulation's truth: efficiency, fakes, resolution, and whole links."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("pythia8mc", reason="the extra `demo` is not installed")
pytest.importorskip("fastjet", reason="the extra `demo` is not installed")

from femtobarn.jagged import Array, Jagged
from femtobarn.linking import Target, links
from femtobarn_demo.reconstruction import NEEDED, RECONSTRUCTED_CLASSES, Reconstruction, reconstruct
from femtobarn_demo.sources import PARTS, EventPool, RawEvents
from femtobarn_demo.sources.model import columns_of

EVENTS = 30
TRACKS, CLUSTERS, JETS = Target(2, 1, 500), Target(2, 2, 600), Target(2, 3, 700)


def run(events: RawEvents) -> Reconstruction:
    headers = events.headers({part: Target(1, 1 + i, 40) for i, part in enumerate(PARTS)})
    parts = {part: events.part(part) for part in NEEDED}
    return reconstruct(headers, links(Target(1, 7, 40), len(events)), parts)


@dataclass(frozen=True)
class Case:
    pool: EventPool
    found: Reconstruction


@pytest.fixture(scope="module")
def case() -> Case:
    pool = EventPool.generate(events=EVENTS, seed=11)
    return Case(pool, run(pool.events))


def particle_of_tracks(case: Case) -> Array:
    """The particle that made at least 3/4 of a track's points, as a row of the truth; -1 for a fake."""
    parts, truth, found = case.pool.events.parts, case.pool.particles, case.found
    label = np.concatenate([parts["PixelHits"]["particle"], parts["StripHits"]["particle"]])
    row = np.where(label >= 0, truth.offsets[found.points.event] + label, -1)
    particle = np.full(len(found.found), -1)
    for track, points in enumerate(found.found.point):
        rows, counts = np.unique(row[points[points >= 0]], return_counts=True)
        if counts.max() >= 0.75 * counts.sum():
            particle[track] = rows[counts.argmax()]
    return particle


def truth_momentum(truth: Jagged) -> tuple[Array, Array]:
    momentum = np.hypot(truth["px"], truth["py"])
    return momentum, np.arcsinh(truth["pz"] / momentum)


def test_track_finding_is_efficient_with_few_fakes(case: Case) -> None:
    particle = particle_of_tracks(case)
    momentum, eta = truth_momentum(case.pool.particles)
    found = np.zeros(case.pool.particles.rows, bool)
    found[particle[particle >= 0]] = True
    charged = case.pool.particles["charge"] != 0
    central = found[charged & (momentum > 1.0) & (np.abs(eta) < 1.2)].mean()
    forward = found[charged & (momentum > 1.0) & (np.abs(eta) > 1.2) & (np.abs(eta) < 2.4)].mean()
    fakes = (particle < 0).mean()
    assert central > 0.93, f"central efficiency {central:.3f}"
    assert forward > 0.80, f"forward efficiency {forward:.3f}"
    assert fakes < 0.02, f"fake rate {fakes:.3f}"


def test_each_particle_is_found_once(case: Case) -> None:
    particle = particle_of_tracks(case)
    particle = particle[particle >= 0]
    assert len(np.unique(particle)) > 0.99 * len(particle)


def test_fitted_parameters_agree_with_the_particle_within_errors(case: Case) -> None:
    particle, fitted = particle_of_tracks(case), case.found.fitted
    real = particle >= 0
    truth = case.pool.particles
    momentum, eta = truth_momentum(truth)
    of = particle[real]
    relative = fitted.momentum[real] / momentum[of] - 1.0
    assert np.median(np.abs(relative)) < 0.01
    assert np.median(np.abs(fitted.eta[real] - eta[of])) < 1e-3
    assert (fitted.charge[real] == truth["charge"][of]).mean() > 0.999
    pull = fitted.d0[real] / np.sqrt(fitted.covariance[real, 0])
    assert 0.8 < pull.std() < 1.2
    assert 0.5 < np.median(fitted.chi2 / fitted.freedom) < 1.2


def test_simulated_muons_are_identified(case: Case) -> None:
    truth = case.pool.particles
    momentum, eta = truth_momentum(truth)
    particle = particle_of_tracks(case)
    muons = (np.abs(truth["pdg"]) == 13) & (momentum > 5.0) & (np.abs(eta) < 2.0)
    found = np.isin(np.flatnonzero(muons), particle[case.found.muon])
    assert found.sum() >= 0.7 * muons.sum()
    assert case.found.muon.sum() < 3 * EVENTS


def test_vertices_match_the_collisions(case: Case) -> None:
    vertices = np.diff(case.found.vertices.offsets)
    assert abs(vertices.mean() / case.pool.events.interactions.mean() - 1.0) < 0.3


def test_clusters_have_the_energy_of_their_cells(case: Case) -> None:
    clusters = case.found.found_clusters
    rows, total = clusters.rows, np.zeros(clusters.rows.rows)
    for part, members in (("EcalCells", clusters.ecal), ("HcalCells", clusters.hcal)):
        cells = case.pool.events.parts[part]
        owner = rows.owners[members.owners]
        assert (members["index"] < cells.counts[owner]).all()
        energy = cells["energy"][cells.offsets[owner] + members["index"]]
        total += np.bincount(members.owners, energy, rows.rows)
    np.testing.assert_allclose(total, rows["energy"], rtol=1e-5)
    np.testing.assert_allclose(rows["em"] + rows["had"], rows["energy"], rtol=1e-5)


def test_the_hardest_jet_has_the_momentum_of_the_hard_process(case: Case) -> None:
    tags = case.found.tags(TRACKS, CLUSTERS, JETS)
    ratio = ak.to_numpy(tags.lead_jet_pt) / case.pool.events.momentum_scale
    assert 0.8 < np.median(ratio) < 1.3


def test_a_jet_is_the_sum_of_its_constituents(case: Case) -> None:
    jets, candidates = case.found.found_jets, case.found.found_jets.candidates
    assert (np.diff(jets.rows["pt"])[np.diff(jets.rows.owners) == 0] <= 0.0).all()
    members = jets.tracks.counts + jets.clusters.counts
    assert (members > 0).all()
    assert members.sum() <= candidates.rows


def test_objects_have_the_fields_and_types_of_their_classes(case: Case) -> None:
    found = case.found
    made = {
        "Tracks": found.tracks(),
        "Clusters": found.clusters(),
        "Jets": found.jets(TRACKS, CLUSTERS),
        "Tag": found.tags(TRACKS, CLUSTERS, JETS),
    }
    for definition in RECONSTRUCTED_CLASSES:
        array = made[definition["name"]]
        assert len(array) == EVENTS
        assert_fields(array, definition["fields"])


def assert_fields(array: ak.Array, fields: list[dict[str, Any]]) -> None:
    """Compare a record array with the fields of a class definition, at any depth."""
    assert array.fields == [entry["name"] for entry in fields]
    for entry in fields:
        declared, column = entry["type"], array[str(entry["name"])]
        while isinstance(declared, dict) and "list" in declared:
            declared, column = declared["list"], ak.flatten(column)
        if isinstance(declared, str):
            assert column.type.content.primitive == declared, entry["name"]
        elif "record" in declared:
            assert_fields(column, declared["record"]["fields"])
        elif "link" in declared or "element_link" in declared:
            assert column.fields[:3] == ["database", "container", "entry"]


def test_links_lead_to_written_objects(case: Case) -> None:
    found = case.found
    tracks, jets = found.tracks(), found.jets(TRACKS, CLUSTERS)
    assert tracks.pixel_hits.entry.to_list() == list(range(40, 40 + EVENTS))
    pixels = case.pool.events.parts["PixelHits"]
    assert ak.all(ak.max(ak.flatten(tracks.tracks.pixels, axis=2), axis=1) < pixels.counts)
    entry = ak.flatten(jets.jets.tracks.entry, axis=2) - 500
    assert ak.all(entry == np.arange(EVENTS))
    assert ak.all(ak.flatten(jets.jets.tracks.element, axis=2) < ak.num(tracks.tracks))


def test_event_without_hits_gives_empty_objects() -> None:
    parts = {part: Jagged(np.zeros(3, np.int64), _empty(part)) for part in PARTS}
    ones = np.ones(2)
    found = run(RawEvents(1, 0, ones.astype(np.uint16), ones.astype(np.float32), parts))
    assert ak.num(found.tracks().tracks).to_list() == [0, 0]
    assert ak.num(found.jets(TRACKS, CLUSTERS).jets).to_list() == [0, 0]
    assert found.tags(TRACKS, CLUSTERS, JETS).n_clusters.to_list() == [0, 0]


def _empty(part: str) -> dict[str, Array]:
    return {name: np.zeros(0, dtype) for name, dtype in columns_of(part).items()}


def test_batch_and_single_events_give_equal_results(case: Case) -> None:
    alone = run(case.pool.events.slice(3, 4))
    together = case.found.tracks()[3]
    assert ak.num(alone.tracks().tracks).to_list() == [len(together.tracks)]
    np.testing.assert_allclose(alone.tracks().tracks[0].pt, together.tracks.pt, rtol=1e-6)


def test_jets_without_fastjet_are_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastjet", None)
    with_numpy, with_fastjet = run(case.pool.events).found_jets, case.found.found_jets
    for name in ("pt", "eta", "phi"):
        np.testing.assert_allclose(with_numpy.rows[name], with_fastjet.rows[name], rtol=1e-6, atol=1e-6)
    for name in ("tracks", "clusters"):
        ours, theirs = (getattr(jets, name).to_awkward()["index"] for jets in (with_numpy, with_fastjet))
        assert ak.sort(ours).to_list() == ak.sort(theirs).to_list()

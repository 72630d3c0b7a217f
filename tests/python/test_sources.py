"""The event source: sizes, labels, determinism, and the shape of the data for writers."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("pythia8mc", reason="the extra `demo` is not installed")

from femtobarn.jagged import Jagged, ranges
from femtobarn.linking import Target, element_links, links
from femtobarn_demo.sources import CONTAINERS, PARTS, RAW_CLASSES, EventPool, GeneratorSettings
from femtobarn_demo.sources.detector.geometry import PIXEL, STRIP
from femtobarn_demo.sources.model import collection_of, columns_of
from femtobarn_demo.sources.pythia import tables_of_this_version, write_tables

EVENTS = 20


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> EventPool:
    return EventPool.load(tmp_path_factory.mktemp("pool"), events=EVENTS, seed=3, progress=False)


def test_an_event_has_the_size_of_giod(pool: EventPool) -> None:
    assert 150e3 < pool.events.nbytes / EVENTS < 350e3


def test_equal_seeds_give_equal_events(tmp_path: Path) -> None:
    settings = GeneratorSettings(pileup=0.0)
    first = EventPool.generate(events=2, seed=5, settings=settings)
    again = EventPool.load(tmp_path, events=2, seed=5, settings=settings, progress=False)
    other = EventPool.generate(events=2, seed=6, settings=settings)
    for part in PARTS:
        for name, column in first.events.parts[part].columns.items():
            np.testing.assert_array_equal(column, again.events.parts[part][name])
    assert first.particles.rows != other.particles.rows


def test_pool_is_read_from_the_cache_when_it_exists(tmp_path: Path) -> None:
    settings = GeneratorSettings(pileup=0.0)
    EventPool.load(tmp_path, events=1, settings=settings, progress=False)
    (path,) = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    EventPool.load(tmp_path, events=1, settings=settings, progress=False)
    assert path.stat().st_mtime_ns == written


def test_the_installed_version_of_pythia_has_its_tables() -> None:
    assert tables_of_this_version().exists(), "write_tables of femtobarn_demo.sources.pythia makes the file"


@pytest.mark.long
def test_tables_are_what_pythia_computes(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables.txt")
    computed, kept = (
        (path.read_text()).split() for path in (tmp_path / "tables.txt", tables_of_this_version())
    )
    assert len(computed) == len(kept)
    for one, other in zip(computed, kept, strict=True):
        assert one == other or float(one) == pytest.approx(float(other), rel=1e-3)


def test_parts_have_the_columns_that_their_classes_declare(pool: EventPool) -> None:
    for part in PARTS:
        rows = pool.events.parts[part]
        assert {name: column.dtype for name, column in rows.columns.items()} == columns_of(part)
        assert len(rows) == EVENTS


def test_labels_name_particles_of_the_same_event(pool: EventPool) -> None:
    for part in set(PARTS) - {"TrigTowers"}:
        rows = pool.events.parts[part]
        assert (rows["particle"] >= -1).all()
        assert (rows["particle"] < pool.particles.counts[rows.owners]).all()
        share = (rows["particle"] >= 0).mean()
        assert share > 0.5 or part == "MuonHits", "only the muon stations see more noise than particles"


def test_hits_lie_on_the_layers(pool: EventPool) -> None:
    for part, tracker in (("PixelHits", PIXEL), ("StripHits", STRIP)):
        hits = pool.events.parts[part]
        radius, layer = np.hypot(hits["x"], hits["y"]), hits["module"] >> 24
        for barrel in tracker.barrels:
            np.testing.assert_allclose(radius[layer == barrel.number], barrel.radius, rtol=0.005)
        for disk in tracker.disks:
            z = hits["z"][(layer == disk.number)]
            np.testing.assert_allclose(z[np.sign(z) == np.sign(disk.z)], disk.z, atol=1e-4)


def test_batches_renumber_the_pool_and_share_its_memory(pool: EventPool) -> None:
    batches = list(pool.batches(run=7, first=5, events=50, size=12))
    assert sum(len(batch) for batch in batches) == 50
    numbers = np.concatenate([ak.to_numpy(batch.part("MuonHits").event) for batch in batches])
    np.testing.assert_array_equal(numbers, np.arange(5, 55))
    x = batches[0].part("PixelHits").hits.x
    assert np.shares_memory(ak.to_numpy(ak.flatten(x)), pool.events.parts["PixelHits"]["x"])
    assert ak.all(batches[0].part("EcalCells").run == 7)


def test_batches_beyond_the_pool_repeat_its_events(pool: EventPool) -> None:
    first, *_, last = pool.batches(run=1, events=EVENTS + 5, size=5)
    for part in PARTS:
        assert first.parts[part].counts.tolist() == last.parts[part].counts.tolist()
        assert ak.array_equal(first.part(part)[collection_of(part)], last.part(part)[collection_of(part)])


def test_headers_link_to_their_parts(pool: EventPool) -> None:
    batch = next(pool.batches(run=7, events=3, size=3))
    targets = {part: Target(2, 1 + i, 100) for i, part in enumerate(PARTS)}
    headers = batch.headers(targets)
    assert headers.muons.entry.to_list() == [100, 101, 102]
    assert headers.trigger.container.to_list() == [6, 6, 6]
    declared = next(d for d in RAW_CLASSES if d["name"] == "RawEvent")
    assert headers.fields == [entry["name"] for entry in declared["fields"]]


def test_every_class_has_a_container() -> None:
    assert set(CONTAINERS) == {definition["name"] for definition in RAW_CLASSES}


def test_element_links_are_grouped_in_lists() -> None:
    made = element_links(Target(1, 2, 10), np.array([0, 0, 1]), np.array([5, 6, 7]), np.array([0, 2, 2, 3]))
    assert made.entry.to_list() == [[10, 10], [], [11]]
    assert made.element.to_list() == [[5, 6], [], [7]]
    assert links(Target(1, 2, 10), np.array([3])).entry.to_list() == [13]


def test_jagged_survives_conversion_to_awkward_and_back() -> None:
    rows = Jagged(np.array([0, 2, 2, 3]), {"a": np.array([1, 2, 3], np.int32), "b": np.ones((3, 2))})
    again = Jagged.from_awkward(rows.to_awkward("Row")[1:])
    np.testing.assert_array_equal(again.counts, [0, 1])
    np.testing.assert_array_equal(again["a"], [3])
    assert again["b"].shape == (1, 2)
    np.testing.assert_array_equal(rows.take(np.array([2, 0]))["a"], [3, 1, 2])
    np.testing.assert_array_equal(rows.select(rows["a"] > 1).offsets, [0, 1, 1, 2])
    np.testing.assert_array_equal(rows.slice(1, 3).offsets, [0, 0, 1])
    np.testing.assert_array_equal(ranges(np.array([], int), np.array([], int)), [])

"""Objects read as arrays: by columns, by condition, by range, in batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb
from events import Raw, fill


def test_columns_and_rows_agree(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    arrays = events.arrays()
    for event, record in zip(events, arrays, strict=True):
        assert event.event == record.event
        assert event.met == record.met
        assert event.name == record.name
        assert event.tracks.pt.to_list() == record.tracks.pt.to_list()


def test_extend_takes_arrays_and_returns_oids(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)
        first = raw.append({"number": 1, "hits": []})
        oids = raw.extend(
            {"number": np.arange(3, dtype=np.uint64), "hits": [[], [{"x": 1.0, "charge": 1}], []]}
        )
        last = raw.append(Raw(number=9, hits=[]))
        more = raw.extend([Raw(number=10, hits=[]), Raw(number=11, hits=[])])
    assert (first.entry, oids[0].entry, len(oids), last.entry) == (0, 1, 3, 4)
    assert fed["d/raw"].arrays("number").number.to_list() == [1, 0, 1, 2, 9, 10, 11]
    assert fed.snapshot().fetch(more, "number").number.to_list() == [10, 11]


def test_extend_takes_arrays_of_links(fed: fb.Federation) -> None:
    fill(fed)
    raw = fed["raw/objects"]

    @fb.persistent
    class Tag:
        raw: fb.link[Raw]

    with fed.transaction() as txn:
        tags = txn.database("tags", create=True).container("tags", Tag, create=True)
        tags.extend({"raw": raw.oids})
        tags.extend({"raw": fed["reco/events"].arrays("raw").raw})
        tags.extend({"raw": [None, raw.oid(3)]})
    numbers = fed["tags/tags"].arrays().raw.fetch("number")
    assert [n and n["number"] for n in numbers.to_list()] == [*range(10), *range(10), None, 3]


def test_selection_returns_only_selected_entries(fed: fb.Federation) -> None:
    fill(fed, 100)
    events = fed["reco/events"]
    assert events.arrays("event", "met > 40").event.to_list() == list(range(81, 100))
    assert events.arrays("event", "ntracks == 3 and met < 5").event.to_list() == [3, 7]
    assert events.arrays("event", "met < 0").event.to_list() == []
    assert events.arrays(["event"], "len(tracks) > 0", entry_start=10, entry_stop=14).event.to_list() == [
        10,
        11,
        13,
    ]
    assert len(events.arrays(where="met >= 0")) == 100
    assert events.arrays("name", "event == 50").name.to_list() == ["e50"]
    assert events.arrays("event", "raw.entry == 5").event.to_list() == [5]
    database = fed["raw/objects"].oids.database
    assert len(events.arrays("event", f"raw.database == {database}")) == 100
    assert events["raw.database"].to_list() == [database] * 100


@pytest.mark.parametrize("cores", [1, 3])
def test_scan_in_chunks_selects_the_same_as_one_chunk(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr("femtobarn._views.scans.CHUNK_ENTRIES", 1000)
    x = np.random.default_rng(5).random(10_500)
    form = {"name": "Point", "fields": [{"name": "n", "type": "uint32"}, {"name": "x", "type": "float64"}]}
    with fed.transaction() as txn:
        points = txn.database("d", create=True).container("points", form, create=True)
        points.extend({"n": np.arange(len(x)), "x": x})
    for deleted in (None, "n % 7 == 3"):
        if deleted is not None:
            with fed.transaction() as txn:
                assert txn.database("d").container("points").delete(where=deleted) == 1500
        there = np.ones(len(x), bool) if deleted is None else np.arange(len(x)) % 7 != 3
        for where, wanted in (("x < 0.5", x < 0.5), ("x < 0.0002", x < 0.0002), ("x < 0", x < 0)):
            for conditions in (where, f"{where} and n + 0 >= 0"):
                arrays = fed["d/points"].arrays(["x", "n"], conditions)
                assert arrays.n.to_list() == np.flatnonzero(wanted & there).tolist()
                assert arrays.x.to_list() == x[wanted & there].tolist()
                assert fed["d/points"].entries(conditions).tolist() == np.flatnonzero(wanted & there).tolist()


def test_few_large_entries_are_seeked_and_many_small_ones_read_through(fed: fb.Federation) -> None:
    @fb.persistent
    class Image:
        number: fb.uint32
        pixels: list[fb.float32]

    with fed.transaction() as txn:
        images = txn.database("d", create=True).container("images", Image, create=True)
        for number in range(300):
            images.append(Image(number=number, pixels=np.full(3000, number, np.float32).tolist()))
    view = fed["d/images"]
    for where, expected in (("number % 100 == 7", [7, 107, 207]), ("number % 2 == 0", range(0, 300, 2))):
        for paths in (["number"], ["number", "pixels"]):
            arrays = view.arrays(paths, where)
            assert arrays.number.to_list() == list(expected)
        assert arrays.pixels[:, 0].to_list() == list(expected)


def test_iteration_covers_every_entry_once(fed: fb.Federation) -> None:
    fill(fed, 100)
    events = fed["reco/events"]
    for step in (1, 7, 100, 1000, "1 kB", "1 MB"):
        batches = list(events.iterate("event", step_size=step))
        assert ak.concatenate(batches).event.to_list() == list(range(100))
    sizes = [len(batch) for batch in events.iterate("event", step_size=7)]
    assert sizes == [7] * 14 + [2]
    selected = events.iterate("event", "met > 40", step_size=10, library="np")
    assert np.concatenate([batch["event"] for batch in selected]).tolist() == list(range(81, 100))
    with pytest.raises(fb.InvalidError):
        list(events.iterate(step_size="lots"))
    with pytest.raises(fb.InvalidError):
        list(events.iterate(step_size=0))


def test_views_are_indexed_by_ranges_slices_and_names(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    assert events.arrays("event", entry_start=-3).event.to_list() == [7, 8, 9]
    part = events[2:5]
    assert (len(part), part[0].event, part[-1].event) == (3, 2, 4)
    assert part.arrays("event").event.to_list() == [2, 3, 4]
    assert part.oids == fb.OidRange(part.oids.database, part.oids.container, 2, 5)
    assert events["tracks.pt"][7].to_list() == [0.0, 10.0, 20.0]
    assert events.arrays("t*").fields == ["tracks"]
    assert events.arrays("/(run|met)/").fields == ["run", "met"]
    assert events.arrays(lambda name: name.endswith("t")).fields == ["event", "met", "tracks"]
    with pytest.raises(IndexError):
        events[10]
    assert events[::2].arrays("event").event.to_list() == [0, 2, 4, 6, 8]


def test_unknown_names_are_refused_with_near_misses(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    with pytest.raises(fb.NotFoundError, match="did you mean 'tracks'"):
        events.arrays("track")
    with pytest.raises(fb.NotFoundError, match="no field matches 'zz\\*'"):
        events.arrays("zz*")
    with pytest.raises(AttributeError, match="did you mean 'event'"):
        _ = events[0].evnt
    with pytest.raises(fb.NotFoundError, match="events"):
        fed["reco/event"]
    with pytest.raises(fb.InvalidError, match="invalid container path"):
        fed["reco"]
    assert not hasattr(events[0], "__array__")


def test_arrays_are_returned_in_every_library(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    assert events.arrays("met", library="np")["met"].tolist() == [n / 2 for n in range(10)]
    assert events.arrays(["met", "tracks.pt"], library="pd").shape == (10, 2)
    assert events.arrays(["met", "tracks"], library="pa").num_rows == 10
    with pytest.raises(fb.InvalidError, match="did you mean"):
        events.arrays("met", library="numpi")


def test_arrays_share_memory_with_the_engine_and_are_read_only(fed: fb.Federation) -> None:
    fill(fed)
    met = fed["reco/events"].arrays("met", library="np")["met"]
    assert not met.flags.writeable
    assert not met.flags.owndata


def test_fetch_keeps_the_order_of_oids_across_containers(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    raw, reco = snapshot["raw/objects"], snapshot["reco/events"]
    oids = [raw.oid(3), None, raw.oid(1), raw.oid(3)]
    assert [n and n["number"] for n in snapshot.fetch(oids, "number").to_list()] == [3, None, 1, 3]
    assert raw.fetch([5, 2, 5], "number").number.to_list() == [5, 2, 5]
    assert snapshot.fetch([], "number").to_list() == []
    assert snapshot.fetch(oids, (name for name in ["number"])).to_list()[0] == {"number": 3}
    with pytest.raises(fb.InvalidError, match="must be an OID, an object or None"):
        snapshot.fetch([7])
    with pytest.raises(fb.NotFoundError):
        raw.fetch([100])
    assert len(snapshot.fetch([raw.oid(0), reco.oid(0)])) == 2


def test_threads_read_one_view(fed: fb.Federation) -> None:
    fill(fed, 100)
    events = fed["reco/events"]
    sums: list[Any] = []

    def read() -> None:
        sums.extend(int(ak.sum(events.arrays("event").event)) for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [4950] * 80


def test_interrupt_ends_a_long_selection(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)
        raw.extend({"number": np.arange(400_000, dtype=np.uint64), "hits": [[]] * 400_000})
    view = fed["d/raw"]
    scattered = np.random.default_rng(1).permutation(400_000)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    # Shells let what they start in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            _repeat(lambda: view.fetch(scattered))
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(view.arrays("number")) == 400_000


def _repeat(action: Callable[[], object]) -> None:
    while True:
        action()

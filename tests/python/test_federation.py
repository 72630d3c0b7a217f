"""Federations from Python: what is written is read back, by columns, by condition, by link."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class Hit:
    x: fb.float32
    charge: fb.int16


@fb.persistent
class Raw:
    number: fb.uint64
    hits: list[Hit]


@fb.persistent
class Track:
    pt: fb.float32
    seed: fb.element_link[Raw] = None


@fb.persistent
class Event:
    run: fb.uint32
    event: fb.uint64
    met: float
    name: str
    tracks: list[Track]
    raw: fb.link[Raw] = None
    all_raw: list[fb.link[Raw]] = fb.field(default_factory=list)
    note: str | None = None


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[fb.Federation]:
    with fb.create(tmp_path / "lhc.fed") as federation:
        yield federation


def fill(fed: fb.Federation, events: int = 10) -> list[fb.Oid]:
    """Write raw objects into one database, and events that link to them into another."""
    with fed.transaction(message="fill") as txn:
        raw = txn.database("raw", create=True).container("objects", Raw, create=True)
        reco = txn.database("reco", create=True).container("events", Event, create=True)
        oids = []
        for number in range(events):
            hits = [Hit(x=number + 0.5 * k, charge=k) for k in range(number % 4)]
            link = raw.append(Raw(number=number, hits=hits))
            tracks = [Track(pt=10.0 * k, seed=(link, k)) for k in range(number % 4)]
            event = Event(run=7, event=number, met=number / 2, name=f"e{number}", tracks=tracks)
            event.raw, event.all_raw = link, [link] * (number % 3)
            event.note = "odd" if number % 2 else None
            oids.append(reco.append(event))
    return oids


def test_objects_come_back_as_they_were(fed: fb.Federation) -> None:
    oids = fill(fed)
    events = fed["reco/events"]
    assert len(events) == 10
    assert [event.oid for event in events] == oids
    event = events[7]
    assert (event.run, event.event, event.met, event.name, event.note) == (7, 7, 3.5, "e7", "odd")
    assert events[6].note is None
    assert event.tracks.pt.to_list() == [0.0, 10.0, 20.0]
    assert events[-1].event == 9
    assert repr(event).startswith(f"<Event {event.oid}: run, event")
    assert "met" in dir(event)


def test_attributes_of_all_objects_are_not_hidden_by_fields(fed: fb.Federation) -> None:
    names = ["entry", "fields", "to_dict", "mro", "class", "x"]
    form = {"name": "Odd", "fields": [{"name": name, "type": "int32"} for name in names]}
    with fed.transaction() as txn:
        odd = txn.database("d", create=True).container("odd", form, create=True)
        odd.extend({name: [-1, number] for number, name in enumerate(names)})
    found = fed["d/odd"][1]
    assert (found.entry, found.fields, found.mro, found.x) == (1, names, 3, 5)
    assert [found[name] for name in names] == [*range(6)]
    assert getattr(found, "".join(["cl", "ass"])) == 4
    assert found.to_dict() == dict(zip(names, range(6), strict=True))
    assert (found == fed["d/odd"][1], found != fed["d/odd"][0], len({found, fed["d/odd"][1]})) == (
        True,
        True,
        1,
    )
    with pytest.raises(AttributeError, match="class Odd has no field 'y'"):
        _ = found.y
    with pytest.raises(fb.NotFoundError, match="class Odd has no field 'mroo'"):
        _ = found["mroo"]
    with pytest.raises(AttributeError):
        setattr(found, names[-1], 3)


def test_links_are_followed_when_used(fed: fb.Federation) -> None:
    fill(fed)
    event = fed["reco/events"][7]
    assert event.raw.number == 7
    assert event.raw.hits.x.to_list() == [7.0, 7.5, 8.0]
    assert event.raw.get().oid == event.raw.oid
    assert [raw.number for raw in event.all_raw] == [7]
    assert event.all_raw.fetch("number").number.to_list() == [7]
    seed = event.tracks[2].seed
    assert seed.get().number == 7


def test_what_links_and_records_lead_to_does_not_change_and_says_so(fed: fb.Federation) -> None:
    """`event.raw.number = 1` was answered by Python: 'LinkRef' object has no attribute 'number'."""
    form: Any = {"name": "Inner", "fields": [{"name": "n", "type": "int32"}]}
    record = {"record": {"class": "Inner", "fields": form["fields"]}}
    hits = {
        "name": "Hits",
        "fields": [{"name": "hits", "type": {"list": "int32"}}, {"name": "r", "type": record}],
    }
    element = {"name": "first", "type": {"element_link": "Hits.hits"}}
    leads = {"name": "Leads", "fields": [{"name": "raw", "type": {"link": "Hits"}}, element]}
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        oid = database.container("hits", hits, create=True).append({"hits": [4, 5], "r": {"n": 1}})
        database.container("leads", leads, create=True).append({"raw": oid, "first": (oid, 1)})
    found = fed["d/leads"][0]
    update = re.escape(
        f"do not change; give a new value in a transaction, with container.update({oid!r}, x=...)"
    )
    with pytest.raises(AttributeError, match=update):
        found.raw.x = 1
    with pytest.raises(AttributeError, match="class Hits that are stored do not change"):
        found.raw.oid = oid
    with pytest.raises(AttributeError, match=r"with container.update\(Oid\(\d+, \d+, 0\), hits=...\)"):
        found.first.x = 1
    with pytest.raises(AttributeError, match=r"records of class Inner do not change.*container\.update"):
        found.raw.r.n = 2
    assert copy.copy(found.raw) == pickle.loads(pickle.dumps(found.raw)) == found.raw
    assert copy.copy(found.first) == found.first


def test_element_links_are_the_element(tmp_path: Path) -> None:
    @fb.persistent
    class Pointer:
        hit: fb.element_link[Raw]

    with fb.create(tmp_path / "a.fed") as fed:
        with fed.transaction() as txn:
            database = txn.database("d", create=True)
            raw = database.container("raw", Raw, create=True)
            oid = raw.append(Raw(number=1, hits=[Hit(x=1, charge=-1), Hit(x=2, charge=5)]))
            database.container("pointers", Pointer, create=True).append(Pointer(hit=(oid, 1)))
        pointer = fed["d/pointers"][0]
        assert (pointer.hit.oid, pointer.hit.element) == (oid, 1)
        assert pointer.hit.x == 2.0
        assert pointer.hit.charge == 5
        assert pointer.hit.get().number == 1


def test_null_links_are_none(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container("events", Event, create=True)
        events.append(Event(run=1, event=1, met=0.0, name="", tracks=[]))
    assert fed["d/events"][0].raw is None
    assert list(fed["d/events"][0].all_raw) == []


def test_link_to_what_is_not_there_is_not_found(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    with pytest.raises(fb.NotFoundError):
        snapshot.object(fb.Oid(1, 1, 1000))
    with pytest.raises(fb.NotFoundError):
        snapshot.object(fb.Oid(77, 1, 0))


def test_columns_and_rows_agree(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    arrays = events.arrays()
    for event, record in zip(events, arrays, strict=True):
        assert event.event == record.event
        assert event.met == record.met
        assert event.name == record.name
        assert event.tracks.pt.to_list() == record.tracks.pt.to_list()


def test_extend_takes_arrays_and_gives_their_oids(fed: fb.Federation) -> None:
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


def test_links_go_in_as_arrays(fed: fb.Federation) -> None:
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


def test_selection_reads_only_what_is_selected(fed: fb.Federation) -> None:
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
def test_scan_in_chunks_finds_what_all_at_once_does(
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


def test_few_large_entries_are_sought_and_many_small_ones_read(fed: fb.Federation) -> None:
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


def test_ranges_slices_and_names(fed: fb.Federation) -> None:
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


def test_names_that_do_not_exist_have_near_misses(fed: fb.Federation) -> None:
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
    with pytest.raises(fb.InvalidError, match="path of a container"):
        fed["reco"]
    assert not hasattr(events[0], "__array__")


def test_libraries(fed: fb.Federation) -> None:
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


def test_exception_rolls_everything_back(fed: fb.Federation) -> None:
    txn = fed.transaction()
    with suppress(RuntimeError), txn:
        txn.database("d", create=True).container("raw", Raw, create=True).append(Raw(number=1, hits=[]))
        raise RuntimeError
    assert list(fed) == []
    assert fed.head() == 0
    with pytest.raises(fb.ClosedError):
        txn.database("d", create=True)


def test_refused_object_leaves_nothing_behind(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)
        raw.append(Raw(number=1, hits=[]))
        with pytest.raises(
            fb.InvalidError, match=r"field 'hits.charge' of class Raw: 40000 is not within the range"
        ):
            raw.append(Raw(number=2, hits=[Hit(x=1, charge=1), Hit(x=1, charge=40000)]))
        with pytest.raises(fb.InvalidError, match="field 'number' of class Raw: 'x' is not of type uint64"):
            raw.append(Raw(number="x", hits=[]))  # type: ignore[arg-type]
        with pytest.raises(fb.InvalidError, match="has no key 'hits'"):
            raw.append({"number": 1})
        with pytest.raises(fb.InvalidError, match="there is no field 'more'"):
            raw.append({"number": 1, "hits": [], "more": 1})
        with pytest.raises(fb.InvalidError, match="the int has no attribute 'number'"):
            raw.append(1)
        with pytest.raises(fb.InvalidError, match="class Raw has no field"):
            raw.extend({"number": [1], "hits": [[]], "x": [1]})
        assert raw.append(Raw(number=3, hits=[])).entry == 1
    assert fed["d/raw"].arrays("number").number.to_list() == [1, 3]


@fb.persistent
class Wide:
    flag: bool
    byte: fb.uint8
    short: fb.int16
    single: fb.float32
    half: fb.float16
    numbers: list[fb.float32]
    pair: list[list[fb.int32]]
    blob: bytes
    either: fb.variant[fb.int32, str, list[float]]
    maybe: fb.float64 | None


def test_appended_values_of_every_kind_come_back(fed: fb.Federation) -> None:
    eithers: Any = [lambda n: n, str, lambda n: [0.5] * n]
    objects = [
        Wide(
            flag=bool(n % 2), byte=n, short=-n, single=n / 3, half=n / 2,
            numbers=cast(Any, np.arange(n, dtype=np.float32)) if n % 2 else [float(k) for k in range(n)],
            pair=[[1] * n, []], blob=bytes(range(n)),
            either=eithers[n % 3](n), maybe=None if n % 4 else n / 8,
        )
        for n in range(50)
    ]  # fmt: skip
    with fed.transaction() as txn:
        wide = txn.database("d", create=True).container("wide", Wide, create=True)
        for item in objects:
            wide.append(item)
    for stored, item in zip(fed["d/wide"], objects, strict=True):
        assert (stored.flag, stored.byte, stored.short) == (item.flag, item.byte, item.short)
        assert stored.single == np.float32(item.single)
        assert stored.half == item.half
        assert stored.numbers.tolist() == list(item.numbers)
        assert stored.pair.to_list() == item.pair
        assert stored.blob == item.blob
        either = stored.either
        assert (either.tolist() if isinstance(either, np.ndarray) else either) == item.either
        assert stored.maybe == item.maybe


def test_many_small_objects_flush_in_between(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)
        for number in range(10_000):
            assert raw.append({"number": number, "hits": []}).entry == number
        assert len(raw) == 10_000
    assert fed["d/raw"].arrays("number").number.to_list() == list(range(10_000))


def test_snapshots_never_change(fed: fb.Federation) -> None:
    fill(fed)
    before = fed.snapshot()
    with fed.transaction(message="more") as txn:
        raw = txn.database("raw").container("objects")
        raw.append(Raw(number=99, hits=[]))
        assert len(before["raw/objects"]) == 10
    assert txn.csn == fed.head() == before.csn + 1
    assert len(before["raw/objects"]) == 10
    assert len(fed["raw/objects"]) == 11
    assert len(fed.snapshot(csn=before.csn)["raw/objects"]) == 10
    assert [commit["message"] for commit in fed.history()] == ["more", "fill"]
    moment = fed.history()[1]["time"]
    assert fed.snapshot(time=moment).csn == before.csn
    assert fed.snapshot(time=moment.isoformat()).csn == before.csn
    with pytest.raises(fb.NotFoundError):
        fed.snapshot(csn=1000)
    with pytest.raises(fb.InvalidError):
        fed.snapshot(csn=1, time=0)


def test_snapshot_is_a_mapping(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    assert list(snapshot) == ["raw/objects", "reco/events"]
    assert "raw/objects" in snapshot
    assert "raw/none" not in snapshot
    assert len(snapshot) == 2
    assert dict(snapshot)["reco/events"].num_entries == 10
    assert [database["name"] for database in snapshot.databases()] == ["raw", "reco"]
    assert snapshot.containers("raw")[0]["entries"] == 10


def test_a_database_lies_in_its_place(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        hits = txn.database("raw", create=True, place="disk1").container("hits", Hit, create=True)
        hits.append(Hit(x=1.5, charge=2))
        with pytest.raises(fb.InvalidError, match="invalid place name"):
            txn.database("reco", create=True, place="a/b")
    with fb.open(fed.path) as again:
        assert again["raw/hits"][0].charge == 2
        [row] = again.databases()
        assert Path(row["path"]) == Path(fed.path) / "databases" / "disk1" / "raw.root"
    fed.seal("raw")
    assert fed["raw/hits"][0].charge == 2
    assert fed.check(full=True).sound


def test_space_is_set_aside_and_what_is_left_is_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "lhc.fed"
    with fb.create(folder) as fed, fed.transaction() as txn:
        database = txn.database("raw", create=True)
        database.reserve("5 MB")
        file = folder / "databases" / "raw.root"
        assert file.stat().st_size > 5_000_000
        with pytest.raises(fb.InvalidError, match="at most 1 GB"):
            database.reserve(2_000_000_000)
        database.container("hits", Hit, create=True).append(Hit(x=1.5, charge=2))
    assert file.stat().st_size < 100_000
    with fb.open(folder) as fed:
        assert len(fed["raw/hits"]) == 1


def test_wrong_class_is_refused(fed: fb.Federation) -> None:
    fill(fed)
    with fed.transaction() as txn:
        raw = txn.database("raw")
        with pytest.raises(fb.InvalidError, match="holds objects of class Raw, not Event"):
            raw.container("objects", Event)
        with pytest.raises(fb.InvalidError, match="say which class"):
            raw.container("new", create=True)
        with pytest.raises(fb.NotFoundError):
            raw.container("objekts")
        with pytest.raises(fb.NotFoundError):
            txn.database("rwa")


def test_second_writer_is_busy(fed: fb.Federation) -> None:
    fill(fed)
    with fed.transaction() as first:
        first.database("raw").container("objects")
        with fed.transaction(lock_timeout=0.1) as second, pytest.raises(fb.BusyError, match=str(os.getpid())):
            second.database("raw").container("objects")


def test_fetch_in_any_order_over_containers(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    raw, reco = snapshot["raw/objects"], snapshot["reco/events"]
    oids = [raw.oid(3), None, raw.oid(1), raw.oid(3)]
    assert [n and n["number"] for n in snapshot.fetch(oids, "number").to_list()] == [3, None, 1, 3]
    assert raw.fetch([5, 2, 5], "number").number.to_list() == [5, 2, 5]
    assert snapshot.fetch([], "number").to_list() == []
    assert snapshot.fetch(oids, (name for name in ["number"])).to_list()[0] == {"number": 3}
    with pytest.raises(fb.InvalidError, match="not an OID"):
        snapshot.fetch([7])
    with pytest.raises(fb.NotFoundError):
        raw.fetch([100])
    assert len(snapshot.fetch([raw.oid(0), reco.oid(0)])) == 2


def test_pickles_open_the_same_place(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"][2:8]
    for thing in (fed, fed.snapshot(), events, events[0], events[0].oid):
        again = pickle.loads(pickle.dumps(thing))
        assert type(again) is type(thing)
    assert pickle.loads(pickle.dumps(events)).arrays("event").event.to_list() == [2, 3, 4, 5, 6, 7]
    assert pickle.loads(pickle.dumps(events[1])).event == 3


def test_workers_of_other_processes_read_views(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        parts = pool.map(operator.methodcaller("arrays", "event"), [events[:5], events[5:]])
    assert ak.concatenate(parts).event.to_list() == list(range(10))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_refuses_what_its_parent_opened(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    txn = fed.transaction()
    txn.database("raw").container("objects").append(Raw(number=10, hits=[]))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            events.arrays("event")
        except fb.ClosedError:
            with fb.open(fed.path) as again:
                code = 0 if len(again["reco/events"]) == 10 else 2
            del txn, events
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    txn.commit()
    assert len(fed["raw/objects"]) == 11


def test_closed_federation_says_so(tmp_path: Path) -> None:
    fed = fb.create(tmp_path / "a.fed", name="alice")
    fill(fed)
    view = fed["reco/events"]
    assert repr(fed) == f"<Federation 'alice' at {tmp_path / 'a.fed'}>"
    fed.close()
    for attempt in (fed.head, fed.snapshot, fed.transaction, lambda: view.arrays("event")):
        with pytest.raises(fb.ClosedError):
            attempt()


def test_create_and_open_where_they_cannot(tmp_path: Path) -> None:
    fb.create(tmp_path / "a.fed").close()
    with pytest.raises(fb.ExistsError):
        fb.create(tmp_path / "a.fed")
    with pytest.raises(fb.NotFoundError):
        fb.open(tmp_path / "b.fed")
    with pytest.raises(KeyError):
        fb.open(tmp_path / "b.fed")


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


def test_long_selection_hears_an_interrupt(fed: fb.Federation) -> None:
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


def test_threads_append_to_one_container(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)

        def write() -> None:
            for number in range(5000):
                raw.append({"number": number, "hits": []})

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert int(ak.sum(fed["d/raw"].arrays("number").number)) == 4 * sum(range(5000))


def test_sealed_database_is_read_as_before_and_takes_no_more(fed: fb.Federation) -> None:
    fill(fed)
    fed.seal("raw")
    assert fed["raw/objects"].arrays("number").number.to_list() == list(range(10))
    states = {row["name"]: row["state"] for row in fed.databases()}
    assert states == {"raw": "sealed", "reco": "open"}
    with fed.transaction() as txn, pytest.raises(fb.ClosedError):
        txn.database("raw").container("objects")


def test_sealed_file_is_attached_elsewhere_with_its_links(fed: fb.Federation, tmp_path: Path) -> None:
    fill(fed)
    for database in ("raw", "reco"):
        fed.seal(database)
    with fb.create(tmp_path / "other.fed") as other:
        attached = [other.attach(row["path"]) for row in fed.databases()]
        assert [item.name for item in attached] == ["raw", "reco"]
        assert attached[1].containers == ["events"]
        assert other["reco/events"][7].raw.number == 7
        with pytest.raises(fb.ExistsError):
            other.attach(fed.databases()[0]["path"], "again")


def test_uproot_reads_a_sealed_file(fed: fb.Federation) -> None:
    uproot = pytest.importorskip("uproot")
    fill(fed)
    fed.seal("reco")
    path = next(row["path"] for row in fed.databases() if row["name"] == "reco")
    with uproot.open(path) as file:
        events = file["events"].arrays(["event", "met"])
    assert events.event.to_list() == list(range(10))
    assert events.met.to_list() == [n / 2 for n in range(10)]


@pytest.mark.parametrize("content", [b"", b"not a ROOT file at all" * 100, b"root" + b"\0" * 1000])
def test_foreign_files_are_refused(fed: fb.Federation, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.root"
    path.write_bytes(content)
    with pytest.raises((fb.InvalidError, fb.CorruptError)):
        fed.attach(path)
    with pytest.raises(fb.NotFoundError):
        fed.attach(tmp_path / "none.root")
    assert fed.head() == 0

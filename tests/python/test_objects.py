"""Objects one by one: appended, read back, and followed by their links."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import femtobarn as fb
from events import Event, Hit, Raw, fill


def test_appended_objects_are_read_back_unchanged(fed: fb.Federation) -> None:
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


def test_fields_do_not_hide_attributes_of_objects(fed: fb.Federation) -> None:
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


@pytest.mark.parametrize("count", [0, 3, 5000])
def test_arrays_of_an_object_outlive_it_and_cannot_be_written_to(fed: fb.Federation, count: int) -> None:
    """Few numbers are copied and many shared; the interface for C makes both arrays of NumPy's own."""
    kinds = ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"]
    lists = [{"name": kind, "type": {"list": kind}} for kind in kinds]
    values = {kind: (np.arange(count) % 100).astype(kind) for kind in kinds}
    with fed.transaction() as txn:
        form = {"name": "Lists", "fields": lists}
        txn.database("d", create=True).container("lists", form, create=True).append(values)
    read = [getattr(fed["d/lists"][0], kind) for kind in kinds]
    fed.close()
    for kind, array in zip(kinds, read, strict=True):
        assert (type(array), array.dtype, array.flags.writeable) == (np.ndarray, np.dtype(kind), False)
        assert array.flags.aligned
        assert np.array_equal(array, values[kind])
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


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


def test_setting_attributes_of_links_and_records_is_refused_with_advice(fed: fb.Federation) -> None:
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
        f"are read-only; set a new value in a transaction with container.update({oid!r}, x=...)"
    )
    with pytest.raises(AttributeError, match=update):
        found.raw.x = 1
    with pytest.raises(AttributeError, match="stored objects of class Hits are read-only"):
        found.raw.oid = oid
    with pytest.raises(AttributeError, match=r"with container.update\(Oid\(\d+, \d+, 0\), hits=...\)"):
        found.first.x = 1
    with pytest.raises(
        AttributeError, match=r"stored records of class Inner are read-only.*container\.update"
    ):
        found.raw.r.n = 2
    assert copy.copy(found.raw) == pickle.loads(pickle.dumps(found.raw)) == found.raw
    assert copy.copy(found.first) == found.first


def test_element_links_have_the_attributes_of_the_element(tmp_path: Path) -> None:
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


def test_null_links_are_read_as_none(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container("events", Event, create=True)
        events.append(Event(run=1, event=1, met=0.0, name="", tracks=[]))
    assert fed["d/events"][0].raw is None
    assert list(fed["d/events"][0].all_raw) == []


def test_following_a_dangling_link_is_not_found(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    with pytest.raises(fb.NotFoundError):
        snapshot.object(fb.Oid(1, 1, 1000))
    with pytest.raises(fb.NotFoundError):
        snapshot.object(fb.Oid(77, 1, 0))


def test_refused_object_leaves_no_values_behind(fed: fb.Federation) -> None:
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
        with pytest.raises(fb.InvalidError, match="unknown field 'more'"):
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


def test_appended_values_of_every_type_are_read_back(fed: fb.Federation) -> None:
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


def test_appending_many_small_objects_flushes_clusters(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)
        for number in range(10_000):
            assert raw.append({"number": number, "hits": []}).entry == number
        assert len(raw) == 10_000
    assert fed["d/raw"].arrays("number").number.to_list() == list(range(10_000))

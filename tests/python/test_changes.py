"""Changes to stored data: updates, deletions, names, savepoints, isolation, newer classes, indexes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class Track:
    pt: fb.float32
    charge: fb.int8


@fb.persistent
class Event:
    run: fb.uint32
    number: fb.uint64
    name: str
    tracks: list[Track]
    best: Track
    previous: fb.link[Event]


ENTRIES = 10


def an_event(number: int, previous: Any = None) -> Event:
    tracks = [Track(pt=number + i, charge=1) for i in range(number % 3)]
    best = Track(pt=number, charge=-1)
    return Event(run=7, number=number, name=f"n{number}", tracks=tracks, best=best, previous=previous)


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    fed = fb.create(tmp_path / "c.fed")
    with fed.transaction() as txn:
        events = txn.database("run", create=True).container("events", Event, create=True)
        oid = None
        for number in range(ENTRIES):
            oid = events.append(an_event(number, oid))
    return fed


def events_of(txn: fb.Transaction) -> fb.ContainerWriter:
    return txn.database("run").container("events")


def test_update_changes_only_the_given_objects_and_fields(fed: fb.Federation) -> None:
    before = fed["run/events"]
    with fed.transaction() as txn:
        events = events_of(txn)
        events.update(before[3], {"best.pt": 99.5}, name="new")
        events.update([5, fb.Oid(1, 1, 4)], {"number": np.array([50, 40])})
        events.update(fb.OidRange(1, 1, 6, 8), run=[8, 9], tracks=[[], [{"pt": 1.5, "charge": 0}]])
        events.update(before[8].previous, previous=None)
    after = fed["run/events"]
    assert (after[3].name, after[3].best.pt, after[3].best.charge, after[3].number) == ("new", 99.5, -1, 3)
    assert after["number"].to_list() == [0, 1, 2, 3, 40, 50, 6, 7, 8, 9]
    assert after["run"].to_list() == [7] * 6 + [8, 9, 7, 7]
    assert after["tracks"].pt.to_list()[5:9] == [[5.0, 6.0], [], [1.5], [8.0, 9.0]]
    assert (after[7].previous, after[8].previous.number) == (None, 7)
    assert before["number"].to_list() == list(range(ENTRIES))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", 2**32 - 1),
        ("run", np.uint8(3)),
        ("number", 2**63),
        ("name", "é"),
        ("best.pt", 0.1),
        ("best.pt", 2),
        ("best.charge", True),
        ("best.charge", 300),
        ("run", -1),
        ("run", 1.5),
        ("name", 5),
        ("tracks", 1),
        ("tracks.pt", 1.0),
        ("best", 1),
        ("nothing", 1),
    ],
)
def test_one_value_is_stored_or_refused_as_an_array_of_one_is(
    fed: fb.Federation, field: str, value: Any
) -> None:
    """But for integers that only lists of Python cannot have."""

    def outcome(*arguments: Any) -> Any:
        try:
            with fed.transaction() as txn:
                events_of(txn).update(*arguments)
        except fb.FemtobarnError as error:
            return type(error)
        return fed["run/events"].arrays(field)[3].to_list()

    of_one = outcome(3, {field: value})
    many = np.array([value], np.uint64) if value == 2**63 else [value]
    assert of_one == outcome([3], {field: many})


def test_updates_one_by_one_are_in_every_read_and_the_commit(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = events_of(txn)
        for number in (5, 3, 4):
            events.update(number, number=100 + number)
        events.update(3, number=203)
        assert events["number"].to_list() == [0, 1, 2, 203, 104, 105, 6, 7, 8, 9]
        events.update(0, number=300)
        events.update(1, number=301, run=8)
        oid = events.append(an_event(10))
        events.update(oid, number=310)
        with pytest.raises(fb.NotFoundError, match="no entry 99"):
            events.update(99, number=399)
        before = txn.savepoint()
        events.update(6, number=406)
        before.rollback()
        events.update(7, number=407)
        events.delete([7])
        with pytest.raises(fb.NotFoundError, match="was deleted"):
            events.update(7, number=507)
        events.update(8, number=408)
    after = fed["run/events"]
    assert after["number"].to_list() == [300, 301, 2, 203, 104, 105, 6, 408, 9, 310]
    assert after["run"].to_list() == [7, 8] + [7] * 8


def test_container_read_twice_in_a_transaction_is_opened_once_until_it_changes(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = events_of(txn)
        first = events.view()
        assert events.view()._handle is first._handle
        events.update(0, run=9)
        changed = events.view()
        assert (first[0].run, changed[0].run) == (7, 9)
        txn.checkpoint()
        assert (events[0].run, events.view().snapshot.csn) == (9, txn.csn)


def test_update_replaces_a_whole_object(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events_of(txn).update(fb.Oid(1, 1, 2), an_event(77))
    assert (fed["run/events"][2].name, fed["run/events"][2].tracks.pt.tolist()) == ("n77", [77.0, 78.0])


@pytest.mark.parametrize(
    ("objects", "fields", "error", "reason"),
    [
        (99, {"run": 1}, fb.NotFoundError, "no entry 99"),
        (1, {"rum": 1}, fb.NotFoundError, "did you mean 'run'"),
        (1, {}, fb.InvalidError, "no fields to change"),
        (1, {"run": -1}, fb.InvalidError, "-1"),
        ([1, 1], {"run": [1, 2]}, fb.InvalidError, "duplicate entry"),
        ([1, 2], {"run": [1]}, fb.InvalidError, "1 values given for 2"),
        ("x", {"run": 1}, fb.InvalidError, "'x' does not name an object"),
        (fb.Oid(1, 2, 0), {"run": 1}, fb.InvalidError, "the object is in container 1-2, not in this one"),
        ([[1]], {"run": [1]}, fb.InvalidError, "does not name an object"),
        (np.array([-1]), {"run": [1]}, fb.InvalidError, "must be integers of 0 or more"),
    ],
)
def test_update_that_fails_changes_nothing(
    fed: fb.Federation, objects: Any, fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    before = fed["run/events"].arrays().to_list()
    with fed.transaction() as txn:
        with pytest.raises(error, match=reason):
            events_of(txn).update(objects, fields)
        assert txn["run/events"].arrays().to_list() == before


def test_deleted_objects_are_left_out_of_every_read(fed: fb.Federation) -> None:
    before = fed["run/events"]
    with fed.transaction() as txn:
        assert events_of(txn).delete([0, 4, 9]) == 3
        assert events_of(txn).delete(where="number >= 6 and number < 8") == 2
    view, left = fed["run/events"], [1, 2, 3, 5, 8]
    assert (len(view), len(before)) == (5, ENTRIES)
    assert [event.number for event in view] == left
    assert [view[position].entry for position in range(-5, 5)] == left * 2
    assert view.arrays("number").number.to_list() == left
    assert view.entries().tolist() == left
    assert view.entries("number > 2").tolist() == [3, 5, 8]
    assert view.arrays(["number", "tracks"], "number > 2").number.to_list() == [3, 5, 8]
    assert view.arrays("number", entry_start=4, entry_stop=9).number.to_list() == [5, 8]
    assert [n for batch in view.iterate("number", step_size=2) for n in batch.number.to_list()] == left
    assert [event.number for event in view[1:4]] == [2, 3, 5]
    assert view[3:][0].number == 5
    assert len(view[5:]) == 0
    assert (view.num_entries, f"{view!r}".split(":")[1].split()[0]) == (5, "5")
    assert len(pickle.loads(pickle.dumps(view[1:]))) == 4
    with pytest.raises(IndexError, match=r"position 5 is out of range: .* has 5 objects here"):
        _ = view[5]


def test_deleted_object_is_not_found_by_its_oid(fed: fb.Federation) -> None:
    oid = fb.Oid(1, 1, 4)
    with fed.transaction() as txn:
        events_of(txn).delete(oid)
    snapshot = fed.snapshot()
    with pytest.raises(fb.NotFoundError, match=r"1-1-4 of run/events was deleted"):
        snapshot.object(oid)
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        _ = snapshot["run/events"].object_at(5).previous.number
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        snapshot.fetch([oid], "number")
    with fed.transaction() as txn, pytest.raises(fb.NotFoundError, match="was deleted"):
        events_of(txn).delete(4)


def test_delete_takes_objects_or_a_condition_but_not_both(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        with pytest.raises(fb.InvalidError, match="give the objects to delete"):
            events_of(txn).delete()
        with pytest.raises(fb.InvalidError, match="give the objects to delete"):
            events_of(txn).delete([1], where="number > 1")


def test_a_transaction_reads_its_own_changes(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = events_of(txn)
        events.delete(0)
        events.update(1, name="mine")
        oid = events.append(an_event(10, fb.Oid(1, 1, 1)))
        view = txn["run/events"]
        assert len(view) == ENTRIES
        assert (view[0].name, view[-1].previous.name) == ("mine", "mine")
        assert txn.snapshot().object(oid).number == 10
        assert events.view().entries("number > 8").tolist() == [9, 10]
        with pytest.raises(fb.InvalidError, match="cannot be passed"):
            pickle.dumps(view)
        assert len(fed["run/events"]) == ENTRIES
        assert fed["run/events"][1].name == "n1"


def test_snapshots_keep_names_that_are_renamed_or_dropped_later(fed: fb.Federation) -> None:
    before = fed.snapshot()
    with fed.transaction() as txn:
        database = txn.database("run")
        database.container("events").rename("collisions")
        database.rename("run7")
        assert len(txn["run7/collisions"]) == ENTRIES
    assert fed.keys() == ["run7/collisions"]
    assert before.keys() == {"run/events"}
    assert len(before["run/events"]) == ENTRIES
    with pytest.raises(fb.NotFoundError):
        _ = fed["run/events"]
    with fed.transaction() as txn:
        txn.database("run7").container("collisions").drop()
    assert fed.keys() == []
    with fed.transaction() as txn:
        txn.database("run7").drop()
    assert fed.databases() == []
    assert before["run/events"][3].name == "n3"


def test_rollback_to_a_savepoint_undoes_later_changes(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = events_of(txn)
        events.append(an_event(10))
        kept = txn.savepoint()
        events.append(an_event(11))
        events.delete(0)
        other = txn.database("other", create=True).container("events", Event, create=True)
        other.append(an_event(0))
        kept.rollback()
        assert len(txn["run/events"]) == ENTRIES + 1
        assert events.append(an_event(12)).entry == ENTRIES + 1
        with pytest.raises(fb.ClosedError):
            other.append(an_event(1))
    assert fed["run/events"]["number"].to_list() == [*range(ENTRIES + 1), 12]
    assert fed.keys() == ["run/events"]


def test_checkpoint_commits_and_continues_the_transaction(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = events_of(txn)
        events.append(an_event(10))
        assert txn.checkpoint() == fed.head()
        assert len(fed["run/events"]) == ENTRIES + 1
        events.append(an_event(11))
        txn.rollback()
    assert len(fed["run/events"]) == ENTRIES + 1


def test_commit_fails_when_another_changed_the_container(fed: fb.Federation) -> None:
    with fed.transaction() as first:
        assert len(first["run/events"]) == ENTRIES
        with fed.transaction() as second:
            events_of(second).update(0, name="second")
        with pytest.raises(fb.ConflictError):
            events_of(first).update(1, name="first")
    assert fed["run/events"][0].name == "second"


def test_serializable_commit_fails_when_a_container_it_read_changed(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        txn.database("out", create=True).container("sums", Track, create=True)

    def write_sum(isolation: Any) -> None:
        with fed.transaction(isolation=isolation) as txn:
            total = txn["run/events"].arrays("number").number.to_numpy().sum()
            with fed.transaction() as other:
                events_of(other).append(an_event(5))
            txn.database("out").container("sums").append(Track(pt=float(total), charge=0))

    write_sum("snapshot")
    with pytest.raises(fb.ConflictError):
        write_sum("serializable")
    assert len(fed["out/sums"]) == 1
    with pytest.raises(fb.InvalidError, match="isolation 'none' does not exist"):
        fed.transaction(isolation="none")  # type: ignore[arg-type]


@fb.persistent(version=2, name="Event")
class Event2:
    run: fb.uint64
    title: str = fb.field(was="name")
    number: fb.uint64
    tracks: list[Track]
    weight: fb.float32 = fb.field(default=1.5)
    previous: fb.link[Event]


def test_evolve_converts_a_container_to_a_newer_version_of_its_class(fed: fb.Federation) -> None:
    before = fed["run/events"]
    with fed.transaction() as txn:
        with pytest.raises(fb.InvalidError, match="pass evolve=True"):
            txn.database("run").container("events", Event2)
        old = events_of(txn)
        old.append(an_event(10))
        events = txn.database("run").container("events", Event2, evolve=True)
        events.append(Event2(run=2**40, title="new", number=11, tracks=[], weight=2.5, previous=None))
    after = fed["run/events"]
    assert after.fields == ["run", "title", "number", "tracks", "weight", "previous"]
    assert after["run"].to_list() == [7] * (ENTRIES + 1) + [2**40]
    assert after["title"].to_list()[-3:] == ["n9", "n10", "new"]
    assert after["weight"].to_list() == [1.5] * (ENTRIES + 1) + [2.5]
    assert after[4].previous.title == "n3"
    assert before[4].name == "n4"
    assert before.fields == ["run", "number", "name", "tracks", "best", "previous"]


def test_find_returns_objects_with_the_given_values(fed: fb.Federation) -> None:
    def check() -> None:
        assert fed.find("run/events", run=7, number=5).name == "n5"
        view = fed["run/events"]
        assert view.find(name="n3").entry == 3
        assert [event.entry for event in view.find_all(previous=view[2])] == [3]
        assert [event.entry for event in view.find_all(**{"tracks.pt": 5.0})] == [5]
        assert [event.entry for event in view[4:].find_all(run=7)] == [4, 5, 6, 7, 8, 9]
        assert view[4:].find(run=7).entry == 4
        with pytest.raises(fb.NotFoundError, match=r"no object with number=99"):
            view.find(number=99)
        with pytest.raises(fb.InvalidError, match="must be a number, a string or an OID"):
            view.find(number=[1])

    check()
    with fed.transaction() as txn:
        events = events_of(txn)
        events.create_index("event", ["run", "number"], unique=True)
        events.create_index("tracks", "tracks.pt")
        events.create_index("links", "previous")
        with pytest.raises(fb.ExistsError):
            events.create_index("links", "name")
    check()
    indexes = {index["name"]: index for index in fed["run/events"].indexes()}
    assert indexes["event"]["fields"] == ["run", "number"]
    assert (indexes["event"]["unique"], indexes["links"]["unique"]) == (True, False)
    with pytest.raises(fb.ExistsError), fed.transaction() as txn:
        events_of(txn).append(an_event(5))
    with fed.transaction() as txn:
        events_of(txn).drop_index("event")
    assert {index["name"] for index in fed["run/events"].indexes()} == {"tracks", "links"}
    check()


def test_as_class_reads_objects_as_another_version(fed: fb.Federation) -> None:
    before = fed["run/events"]
    with fed.transaction() as txn:
        txn.database("run").container("events", Event2, evolve=True)
    old = before.as_class(Event2)
    assert (old[3].title, old[3].weight, old[3].run) == ("n3", 1.5, 7)
    assert (len(old[2:]), pickle.loads(pickle.dumps(old[2:]))[0].title) == (ENTRIES - 2, "n2")
    assert before.as_class(1).fields == before.fields
    with pytest.raises(fb.NotFoundError):
        before.as_class(9)


def test_referrers_returns_all_objects_with_a_link_to_the_target(fed: fb.Federation) -> None:
    @fb.persistent
    class Tag:
        near: list[fb.link[Event]]
        other: fb.link[Tag]

    def referrers(entry: int) -> list[str]:
        return [str(each.oid) for each in fed.snapshot().referrers(fb.Oid(1, 1, entry))]

    with fed.transaction() as txn:
        tags = txn.database("tags", create=True).container("tags", Tag, create=True)
        tags.append(Tag(near=[fb.Oid(1, 1, 3), fb.Oid(1, 1, 3), fb.Oid(1, 1, 5)], other=None))
        tags.append(Tag(near=[], other=fb.Oid(1, 1, 3)))
    assert referrers(3) == ["1-1-4", "2-2-0"]
    with fed.transaction() as txn:
        txn.database("tags").container("tags").create_index("near", "near")
        events_of(txn).create_index("previous", "previous")
    assert referrers(3) == ["1-1-4", "2-2-0"]
    with fed.transaction() as txn:
        events_of(txn).delete(4)
    assert referrers(3) == ["2-2-0"]
    assert referrers(9) == []


def test_statistics_do_not_change_selections(tmp_path: Path) -> None:
    """Clusters that cannot match are not read; the selected objects are the same."""
    fed = fb.create(tmp_path / "s.fed")
    with fed.transaction() as txn:
        events = txn.database("run", create=True).container(
            "events", Event, create=True, page_size="4 KiB", cluster_size="4 KiB"
        )
        for number in range(2000):
            events.append(an_event(number, fb.Oid(1, 1, number - 1) if number else None))
    with fed.transaction() as txn:
        events_of(txn).update(150, number=5_000)
        events_of(txn).delete([1700, 1800])
    view = fed["run/events"]
    for text in ("number > 1600", "best.pt < 30", "ntracks == 2 and number < 50", "previous.entry == 7"):
        expected = view.arrays(["number", "best", "tracks", "previous"])
        chosen = {
            "number > 1600": expected.number > 1600,
            "best.pt < 30": expected.best.pt < 30,
            "ntracks == 2 and number < 50": (ak.num(expected.tracks) == 2) & (expected.number < 50),
            "previous.entry == 7": ak.fill_none(expected.previous.entry == 7, False),
        }[text]
        assert view.arrays("number", text).number.to_list() == expected.number[chosen].to_list()
        skipped = sum(map(len, view._excluded_by[text]))
        assert skipped > 1000 or text.startswith("previous")

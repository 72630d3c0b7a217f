"""Friends: columns beside a container, read with it by position, and kept up with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from server_settings import QUICK_STOP

import femtobarn as fb


@fb.persistent
class Muon:
    pt: float


@fb.persistent
class Collision:
    run: fb.int32
    name: str
    muons: list[Muon]

    def next_run(self) -> Any:
        return self.run + 1


@fb.persistent
class Scores:
    bdt: fb.float32
    label: str
    weights: list[fb.float32]

    def percent(self) -> Any:
        return 100 * self.bdt


EVERY = {
    "name": "Every",
    "fields": [
        {"name": "number", "type": "int16"},
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": {"optional": "float64"}},
        {"name": "pair", "type": {"array": {"of": "string", "size": 2}}},
        {"name": "lists", "type": {"list": {"list": "int8"}}},
        {"name": "either", "type": {"variant": ["int64", "string"]}},
        {
            "name": "inner",
            "type": {"record": {"class": "In", "fields": [{"name": "is_good", "type": "bool"}]}},
        },
    ],
}

COUNT = 40


def events(numbers: Any) -> dict[str, Any]:
    """Values of events with some numbers."""
    return {
        "run": numbers,
        "name": [f"e{n}" for n in numbers],
        "muons": [[{"pt": 10.0 * n + m} for m in range(n % 3)] for n in numbers],
    }


def scores(numbers: Any) -> dict[str, Any]:
    """Values of the scores of these events."""
    return {
        "bdt": [n / COUNT for n in numbers],
        "label": [f"s{n}" for n in numbers],
        "weights": [[float(n)] * (n % 4) for n in numbers],
    }


def every(numbers: Any) -> dict[str, Any]:
    """Values of each type for these events."""
    return {
        "number": numbers,
        "text": ["x" * n for n in numbers],
        "maybe": [None if n % 3 else n for n in numbers],
        "pair": [[str(n), ""] for n in numbers],
        "lists": [[[n]] * (n % 3) for n in numbers],
        "either": [n if n % 2 else str(n) for n in numbers],
        "inner": [{"is_good": bool(n % 2)} for n in numbers],
    }


def add_scores(fed: fb.Federation, values: Callable[[Any], Any] = scores, **options: Any) -> None:
    """Write what the friend lacks, in steps."""
    with fed.transaction() as txn:
        new = txn.friend("ml/scores", **options, of="run1/events")
        for batch in new.missing.iterate("run", step_size=7):
            new.extend(values(batch.run.to_list()))


@pytest.fixture
def run1(fed: fb.Federation) -> fb.Federation:
    """Events, some of which were deleted before they had scores, and scores of the others."""
    with fed.transaction() as txn:
        container = txn.database("run1", create=True).container("events", Collision, create=True)
        container.extend(events(range(COUNT)))
    with fed.transaction() as txn:
        txn.database("run1").container("events").delete([0, 8, 9, 20, COUNT - 1])
    add_scores(fed, cls=Scores, create=True)
    return fed


KEPT = [n for n in range(COUNT) if n not in (0, 8, 9, 20, COUNT - 1)]
"""Numbers of the events that have scores."""


def test_container_and_friend_are_read_as_one(run1: fb.Federation) -> None:
    both = run1.friend("run1/events", "ml/scores")
    assert len(both) == len(KEPT) == len(run1["ml/scores"])
    assert both.fields == ["run", "name", "muons", "scores"]
    array = both.arrays(["muons.pt", "scores.bdt", "nmuons"])
    assert array.scores.bdt.to_list() == pytest.approx([n / COUNT for n in KEPT])
    assert array.nmuons.to_list() == [n % 3 for n in KEPT]
    assert both["scores.label"].to_list() == [f"s{n}" for n in KEPT]
    chosen = both.arrays(
        ["run", "scores"], where="scores.bdt > 0.5 and nmuons == 2 and len(scores.weights) > 1"
    )
    assert chosen.run.to_list() == [n for n in KEPT if n > COUNT // 2 and n % 3 == 2 and n % 4 > 1]
    assert chosen.scores.label.to_list() == [f"s{n}" for n in chosen.run]
    batches = both.iterate(["run", "scores.weights"], where="any(scores.weights > 10)", step_size=9)
    assert [n for batch in batches for n in batch.run] == [n for n in KEPT if n > 10 and n % 4]
    assert both.arrays("run", lambda event: event.scores.label == "s7").run.to_list() == [7]
    doubled = both.arrays("twice", aliases={"twice": "2 * scores.bdt"}, entry_start=-3).twice
    assert doubled.to_list() == pytest.approx([2 * n / COUNT for n in KEPT[-2:]])


def test_views_of_both_are_picked_sorted_and_counted(run1: fb.Federation) -> None:
    both = run1.friend("run1/events", "ml/scores")
    picked = both[both["scores.bdt"] > 0.75]
    assert picked["run"].to_list() == [n for n in KEPT if n > 30]
    assert picked[[-1, 0]]["scores.label"].to_list() == ["s38", "s31"]
    assert both.sort_by("scores.bdt", descending=True).head(2)["run"].to_list() == KEPT[:-3:-1]
    sample = both[3:9].sample(3, seed=1)
    assert sample["scores.label"].to_list() == [f"s{n}" for n in sample["run"]]
    hist = both.hist({"scores.bdt": (2, 0, 1)}, where="nmuons > 0")
    assert hist.values().tolist() == [
        sum(1 for n in KEPT if n % 3 and (n >= 20) == half) for half in (False, True)
    ]
    [bdt] = both.describe("scores.bdt")
    assert (bdt.count, bdt.most) == (len(KEPT), pytest.approx(38 / COUNT))
    assert both.as_class(1)[5:7]["scores.label"].to_list() == ["s6", "s7"]
    rows = fb.concat([both[:2], run1["run1/events"][:1]]).arrays(["run", "scores.label"]).to_list()
    assert [row["scores"] for row in rows] == [{"label": "s1"}, {"label": "s2"}, None]


def test_objects_have_their_methods_and_the_friend(run1: fb.Federation) -> None:
    both, plain = run1.friend("run1/events", "ml/scores"), run1["run1/events"]
    found: Any
    for found in (both[4], next(iter(both[4:])), both[[4]][0], pickle.loads(pickle.dumps(both[4]))):
        assert (found.next_run(), found.oid) == (6, plain[4].oid)
        assert (found.scores.label, found["scores"].percent()) == ("s5", pytest.approx(12.5))
        assert found.to_dict()["scores"] == run1["ml/scores"][4].to_dict()
        assert dict(found)["scores"].oid == run1["ml/scores"][4].oid
        assert isinstance(found, Collision)
    assert [each.scores.bdt for each in both] == both["scores.bdt"].to_list()
    assert both.of(Collision)[0].next_run() == 2
    assert "&lt;Scores" in both[4]._repr_html_()
    assert "s1" in both._repr_html_()
    assert not hasattr(plain[4], "scores")
    assert plain[4].next_run() == 6


def test_objects_are_found_by_fields_of_both(run1: fb.Federation) -> None:
    with run1.transaction() as txn:
        txn.database("ml").container("scores").create_index("by_label", "label")
    both = run1.friend("run1/events", "ml/scores")
    assert both.find(run=7).scores.label == "s7"
    assert both.find(**{"scores.label": "s10"}).run == 10
    assert [each.run for each in both.find_all(**{"scores.label": "s11", "name": "e11"})] == [11]
    assert both.find_all(**{"scores.label": "s11", "name": "e12"}) == []
    assert both[:3].find_all(**{"scores.label": "s11"}) == []
    with pytest.raises(fb.InvalidError, match="'scores' is a friend; give values of its fields"):
        both.find(scores=1)
    with run1.transaction() as txn:
        txn.database("run1").container("events").delete([11])
    assert run1.friend("run1/events", "ml/scores").find_all(**{"scores.label": "s11"}) == []


def test_deleted_objects_of_the_partner_are_not_seen(run1: fb.Federation) -> None:
    with run1.transaction() as txn:
        txn.friend("run1/every", EVERY, of="run1/events", create=True).extend(every(KEPT))
    whole = run1["run1/every"].arrays()
    gone = [1, 10, 11, 38]
    with run1.transaction() as txn:
        txn.database("run1").container("events").delete(gone)
    for _ in range(2):
        both = run1.friend("run1/events", "run1/every", "ml/scores")
        left = [n for n in KEPT if n not in gone]
        assert both["run"].to_list() == both["every.number"].to_list() == left
        expected = whole[~np.isin(KEPT, gone)]
        assert both["every"].to_list() == expected.to_list()
        assert both.arrays("every", "run > 5").every.to_list() == expected[expected.number > 5].to_list()
        assert both.arrays("run", "len(every.lists) == 2").run.to_list() == [n for n in left if n % 3 == 2]
        assert both[both["every.either"].to_list().index("12")].scores.label == "s12"
        for name in ("run1/events", "run1/every"):
            run1.compact(name, all=True)


def test_friend_that_lacks_objects_is_refused_with_the_remedy(run1: fb.Federation) -> None:
    before = run1.snapshot()
    with run1.transaction() as txn:
        txn.database("run1").container("events").extend(events(range(50, 53)))
    with pytest.raises(
        fb.InvalidError, match="ml/scores lacks the last 3 of the 38 objects of run1/events"
    ) as told:
        run1.friend("run1/events", "ml/scores")
    assert "new = txn.friend('ml/scores', of='run1/events')" in str(told.value)
    assert len(before.friend("run1/events", "ml/scores")) == len(KEPT)
    add_scores(run1)
    both = run1.friend("run1/events", "ml/scores")
    assert both["scores.label"].to_list() == [f"s{n}" for n in [*KEPT, 50, 51, 52]]


def test_events_and_scores_of_one_transaction_are_never_seen_apart(run1: fb.Federation) -> None:
    with run1.transaction() as txn:
        txn.database("run1").container("events").extend(events(range(50, 53)))
        new = txn.friend("ml/scores", of="run1/events")
        assert new.missing["run"].to_list() == [50, 51, 52]
        new.extend(scores([50, 51]))
        assert new.missing["run"].to_list() == [52]
        with pytest.raises(fb.InvalidError, match="lacks the last 1 of the 38"):
            txn.snapshot().friend("run1/events", "ml/scores")
        new.extend(scores([52]))
        assert txn.snapshot().friend("run1/events", "ml/scores")[-1].scores.label == "s52"
        assert len(run1.friend("run1/events", "ml/scores")) == len(KEPT)
    assert run1.friend("run1/events", "ml/scores")[-1].scores.label == "s52"


def test_objects_deleted_at_the_end_need_no_friend(run1: fb.Federation) -> None:
    with run1.transaction() as txn:
        container = txn.database("run1").container("events")
        container.delete(container.extend(events([50, 51])))
    both = run1.friend("run1/events", "ml/scores")
    assert both.arrays(["run", "scores.bdt"], "scores.bdt >= 0").run.to_list() == KEPT
    assert both.arrays("run", "len(scores.weights) == 3").run.to_list() == [n for n in KEPT if n % 4 == 3]


@pytest.mark.parametrize(
    ("names", "named", "told"),
    [
        (
            ["ml/scores", "run1/events"],
            {},
            "run1/events has 40 entries, and ml/scores only 39: it is a friend of",
        ),
        (
            ["run1/events", "ml/scores"],
            {"name": "ml/scores"},
            "'name' is a field of run1/events; give .* name_2=",
        ),
        (["run1/events", "ml/scores", "old/scores"], {}, "ml/scores and old/scores would both be 'scores'"),
        (
            ["run1/events"],
            {"old": "old/scores"},
            "object .* of old/scores was deleted, but not that of run1/events",
        ),
        (["run1/events"], {"old.bdt": "ml/scores"}, "'old.bdt' cannot be the name of a field for ml/scores"),
        (["run1/events", "run1/events"], {}, "run1/events cannot be a friend of itself"),
        (["run1/events"], {"again": "run1/events"}, "run1/events cannot be a friend of itself"),
        (["run1/events"], {"": "ml/scores"}, "'' cannot be the name of a field for ml/scores"),
    ],
)
def test_containers_that_are_no_friends_are_refused(
    run1: fb.Federation, names: list[str], named: dict[str, str], told: str
) -> None:
    with run1.transaction() as txn:
        old = txn.friend("old/scores", Scores, of="run1/events", create=True)
        old.extend(scores(KEPT))
        old.container.delete(where="label == 's30'")
    with pytest.raises(fb.InvalidError, match=told):
        run1.friend(*names, **named)


def test_views_are_not_taken_for_names_of_friends(run1: fb.Federation) -> None:
    view: Any = run1["ml/scores"]
    with pytest.raises(fb.WrongTypeError, match="names of containers must be strings"):
        run1.friend("run1/events", view)


def test_friend_has_the_name_of_an_attribute_of_all_objects(run1: fb.Federation) -> None:
    found: Any = run1.friend("run1/events", entry="ml/scores", to_dict="ml/scores", display="ml/scores")[3]
    plain = run1["run1/events"][3]
    assert (found.entry, found.to_dict()["to_dict"]) == (plain.entry, found["to_dict"].to_dict())
    assert found["entry"].bdt == found.display.bdt == run1["ml/scores"][3].bdt


def test_wrong_values_are_refused(run1: fb.Federation) -> None:
    with run1.transaction() as txn:
        new = txn.friend("ml/scores", of="run1/events")
        for values, told in (
            (scores([1]), "1 values were given for 0 objects of run1/events"),
            ({}, "needs field"),
        ):
            with pytest.raises(fb.InvalidError, match=told):
                new.extend(values)
        new.extend(scores([]))
        with pytest.raises(fb.InvalidError, match="'scores' is not the path of a friend"):
            txn.friend("scores", of="run1/events")
        with pytest.raises(fb.InvalidError, match="friend of another container"):
            txn.friend("run1/events", of="ml/scores")
        with pytest.raises(fb.InvalidError, match="cannot be a friend of itself"):
            txn.friend("run1/events", of="run1/events")
        with pytest.raises(fb.NotFoundError, match='did you mean "events"'):
            txn.friend("ml/scores", of="run1/event")


def test_statistics_of_both_leave_clusters_out(fed: fb.Federation) -> None:
    """The clusters of a friend end elsewhere than those of its partner."""
    one = {"name": "One", "fields": [{"name": "n", "type": "int32"}]}
    with fed.transaction() as txn:
        run1, count = txn.database("run1", create=True), 30_000
        partner, friend = (
            run1.container(name, one, create=True, page_size="4 KiB", cluster_size=size)
            for name, size in (("a", "16 KiB"), ("b", "28 KiB"))
        )
        partner.extend({"n": np.arange(count)})
        assert friend.num_entries == 0
        txn.friend("run1/b", of="run1/a").extend({"n": count - np.arange(count)})
    both = fed.friend("run1/a", "run1/b")
    for where, entries in (("n < 100", 4096), ("b.n < 100", 7168), ("n < 20000 and b.n <= 11000", 6144)):
        told = both.explain("n", where)
        assert told.entries - told.excluded <= entries, (where, str(told))
    for low in (5, 4095, 4096, 9_999, 19_001, 19_007, 29_990):
        numbers = both.arrays("n", f"n >= {low} and b.n > {count - low - 10}", library="np")["n"]
        assert numbers.tolist() == list(range(low, min(low + 10, count)))


def test_only_the_containers_that_are_used_are_read(
    run1: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = run1.friend("run1/events", "ml/scores")

    class Unreadable:
        """A handle that knows how many entries there are."""

        def __init__(self, handle: Any) -> None:
            self.entries, self.has_deletions = handle.entries, handle.has_deletions
            self.live_runs = handle.live_runs

    of_friends: Any = both
    partner, friends = of_friends._friends.partner, of_friends._friends.friends
    monkeypatch.setattr(friends["scores"], "_handle", Unreadable(friends["scores"]._handle))
    assert both.arrays("muons.pt", "run > 30 and nmuons == 2").muons.pt.to_list()
    monkeypatch.undo()
    monkeypatch.setattr(partner, "_handle", Unreadable(partner._handle))
    assert both.arrays("scores.label", "scores.bdt > 0.9").scores.label.to_list() == ["s37", "s38"]


@pytest.fixture
def far(run1: fb.Federation) -> Iterator[fb.Federation]:
    """The same federation through a server."""
    with (
        fb.serve(run1.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server,
        fb.open(server.url("/lhc.fed")) as federation,
    ):
        yield federation


def test_friends_are_read_from_a_server_and_pickled(run1: fb.Federation, far: fb.Federation) -> None:
    here, there = (each.friend("run1/events", s="ml/scores") for each in (run1, far))
    for view in (there, pickle.loads(pickle.dumps(there))):
        for part, same in (
            (here, view),
            (here[3:20], view[3:20]),
            (here[here["run"] > 9], view[view["run"] > 9]),
        ):
            copy = pickle.loads(pickle.dumps(same))
            assert copy.arrays(where="s.bdt > 0.3").to_list() == part.arrays(where="s.bdt > 0.3").to_list()
            assert [each.s.label for each in copy] == part["s.label"].to_list()


def test_view_of_both_becomes_a_file(run1: fb.Federation, tmp_path: Path) -> None:
    both = run1.friend("run1/events", "ml/scores")
    assert both.to_parquet(tmp_path / "both.parquet", ["run", "scores"]) == len(KEPT)
    read = ak.from_parquet(tmp_path / "both.parquet")
    assert read.scores.label.to_list() == [f"s{n}" for n in read.run]
    assert both.to_root(tmp_path / "both.root", ["run", "scores.bdt"], "scores.bdt > 0.9") == 2


def test_partitions_of_both_have_the_bytes_of_both(fed: fb.Federation) -> None:
    layout: dict[str, Any] = {"create": True, "page_size": "4 KiB", "cluster_size": "16 KiB"}
    with fed.transaction() as txn:
        for name in ("own", "other"):
            form = {"name": name, "fields": [{"name": "n", "type": "int64"}]}
            txn.database("d", create=True).container(name, form, **layout).extend({"n": range(20_000)})
    both = fed.friend("d/own", "d/other")
    own, other, all_of_it = (both.partitions("40 kB", paths) for paths in ("n", "other.n", None))
    assert len(own) == len(other) > 1
    total = sum(part.nbytes for part in own)
    for parts, expected in ((other, total), (all_of_it, 2 * total)):
        assert abs(sum(part.nbytes for part in parts) - expected) < 100
        assert sum(part.num_entries for part in parts) == 20_000

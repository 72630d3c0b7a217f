"""Collections: conditions on the source, objects that are picked, ordered and found, of all containers."""

from __future__ import annotations

import pickle
from typing import Any

import awkward as ak
import numpy as np
import pytest
from small_runs import with_runs

import femtobarn as fb
from femtobarn._query.selection import Selection


@pytest.fixture
def runs(fed: fb.Federation) -> fb.Federation:
    """Three runs of four events, the second of run 2 deleted, and objects of another class."""
    return with_runs(fed)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("source == 'run1/events'", lambda row: row["run"] == 1),
        ("source != 'run1/events' and name == 'a'", lambda row: row["run"] > 1 and row["name"] == "a"),
        ("(source == 'run2/events') | (run == 3)", lambda row: row["run"] > 1),
        ("not (source in ('run1/events', 'x'))", lambda row: row["run"] > 1),
        ("'run3/events' == source and len(muons) > 1", lambda row: row["run"] == 3 and len(row["muons"]) > 1),
        ("source not in ('run2/events',) or run > 5", lambda row: row["run"] != 2),
        ("source == 'none'", lambda row: False),
        (lambda event: event.source == "run2/events", lambda row: row["run"] == 2),
    ],
)
def test_conditions_may_name_the_source(runs: fb.Federation, where: Any, kept: Any) -> None:
    events = runs.collection("run*/events")
    rows = events.arrays().to_list()
    expected = [row for row in rows if kept(row)]
    assert events.arrays(where=where).to_list() == expected
    assert [row for batch in events.iterate(where=where, step_size=3) for row in batch.to_list()] == expected
    assert events[::-1].arrays(where=where).to_list() == expected[::-1]


def test_containers_of_another_source_are_not_read(runs: fb.Federation) -> None:
    both = runs.collection("run3/events", "other/*")
    assert both.arrays("run", "source == 'other/things' and extra > 1").run.to_list() == [9]
    told = both.explain("run", "source == 'other/things' and extra > 1")
    assert (told.entries, told.excluded, told.condition) == (6, 4, ("extra",))
    assert both.hist({"run": (2, 0, 10)}, where="source != 'other/things'").values().tolist() == [4, 0]


def test_errors_of_a_condition_name_the_container(runs: fb.Federation) -> None:
    both = runs.collection("other/*", "run3/events")
    for where in ("extra > 1", lambda event: event.extra > 1):
        for read in (both.arrays, both[[5, 0]].arrays):
            with pytest.raises(fb.FemtobarnError, match=r"^run3/events: .*extra"):
                read("run", where)


def picks(count: int) -> list[Any]:
    """Every kind of index that picks several objects."""
    mask = np.arange(count) % 3 == 1
    return [
        mask,
        mask.tolist(),
        ak.Array(mask),
        [7, 0, 7, -1],
        [],
        range(2, 9),
        slice(None, None, -2),
        slice(3, 8),
    ]


def test_collections_are_indexed_like_numpy_arrays(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    rows = events.arrays()
    for pick in picks(len(events)):
        part = events[pick]
        expected = rows[pick if isinstance(pick, slice) else np.asarray(pick, None if len(pick) else int)]
        assert len(part) == len(expected)
        assert part.arrays().to_list() == expected.to_list()
        assert [each.to_dict()["name"] for each in part] == expected.name.to_list()
        assert part[1:3].arrays().to_list() == expected[1:3].to_list()
        assert part.arrays("name", "run > 1").name.to_list() == expected.name[expected.run > 1].to_list()
        steps = part.iterate("run", step_size=2)
        assert [run for batch in steps for run in batch.run] == expected.run.to_list()
        assert pickle.loads(pickle.dumps(part)).arrays().to_list() == expected.to_list()
    part = events[[7, 0, 7]]
    assert (part[0].run, part[-2].name, part[[1, 1]]["name"].to_list()) == (3, "a", ["a", "a"])
    assert "run1/events and 2 more: 3 objects" in part._repr_html_()
    with pytest.raises(IndexError, match="position 3 is out of range: there are 3 objects"):
        part[3]
    with pytest.raises(IndexError, match="a mask of 2 values does not fit"):
        events[[True, False]]


def test_collections_are_ordered_across_containers(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    ordered = events.sort_by("name", "source", descending=True)
    names = [(each.name, each.run) for each in ordered]
    assert names == sorted(names, reverse=True)
    assert ordered.head(2).arrays(["name", "run"]).to_list() == [
        {"name": "d", "run": 3},
        {"name": "d", "run": 2},
    ]
    heavy = events.sort_by("ht", descending=True, aliases={"ht": "sum(muons.pt)"})
    assert heavy[0].name == "d"
    assert sorted(heavy["name"].to_list()) == sorted(events["name"].to_list())
    assert len(events.sample(5, seed=1)) == 5
    assert ordered.hist({"run": (3, 1, 4)}).values().tolist() == [4, 3, 4]


def test_objects_are_found_in_all_containers(runs: fb.Federation) -> None:
    events, both = runs.collection("run*/events"), runs.collection("run3/events", "other/*")
    assert events.find(name="b").run == 1
    assert [each.run for each in events.find_all(name="b")] == [1, 3]
    assert events.find(name="a", source="run2/events").run == 2
    assert (both.find(extra=2).run, both.find(run=9).extra) == (9, 1)
    ordered = events.sort_by("run", descending=True)
    assert [each.run for each in ordered.find_all(name="c")] == [3, 2, 1]
    assert ordered.find(name="c").run == 3
    for view in (events, ordered, events[:2]):
        with pytest.raises(fb.NotFoundError, match=r"no object of run1/events.* has name='z'"):
            view.find(name="z")
        with pytest.raises(fb.NotFoundError, match="did you mean 'name'"):
            view.find(nam="z")


def test_join_evaluates_its_condition_once(runs: fb.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[int] = []
    evaluate = Selection.evaluate

    def counted(self: Selection, columns: Any, length: int) -> Any:
        evaluated.append(length)
        return evaluate(self, columns, length)

    monkeypatch.setattr(Selection, "evaluate", counted)
    events, run2 = runs.collection("run*/events"), runs["run2/events"]
    for view, count in ((run2, 3), (run2[[2, 0]], 3), (events, 11), (events[::-1], 11)):
        evaluated.clear()
        found = view.join(run2, on="name", where="name != 'a'", expressions="name", name="same")
        assert [row["name"] for row in found.to_list()] == view.arrays("name", "name != 'a'").name.to_list()
        assert [same or "b" for same in found.same.name.to_list()] == found.name.to_list()
        assert sum(evaluated) == 2 * count

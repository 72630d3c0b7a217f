"""Several containers read as one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import Event, numbers, with_runs

import femtobarn as fb

an: Any = fb
"""The package, for arguments of wrong types."""


@pytest.fixture
def runs(fed: fb.Federation) -> fb.Federation:
    """Three runs of four events, the second of run 2 deleted, and objects of another class."""
    return with_runs(fed)


def parts(fed: fb.Federation) -> list[fb.View]:
    return [fed[f"run{run}/events"] for run in (1, 2, 3)]


def test_a_collection_has_the_objects_of_all_containers(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    assert len(events) == 11
    assert events.fields == ["run", "name", "muons", "source"]
    assert events["run"].to_list() == [1] * 4 + [2] * 3 + [3] * 4
    assert [each.name for each in events] == list("abcdacdabcd")
    assert (events[4].name, events[5].name, events[-1].run, events[0].run) == ("a", "c", 3, 1)
    array = events.arrays(["source", "muons.pt"], where="run >= 2 and any(muons.pt > 12)")
    wanted = [part.arrays("muons.pt", where="any(muons.pt > 12)") for part in parts(runs)[1:]]
    assert array.muons.pt.to_list() == ak.concatenate(wanted).muons.pt.to_list()
    assert array.source.to_list() == ["run2/events"] * 1 + ["run3/events"] * 1
    with pytest.raises(IndexError):
        events[11]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"where": "run != 2"},
        {"where": lambda event: ak.num(event.muons) > 1},
        {"expressions": ["nmuons", "run"]},
        {"expressions": "muons.pt"},
        {"expressions": ["run", "ht"], "aliases": {"ht": "sum(muons.pt)"}},
        {"where": "run > 7"},
    ],
)
def test_every_read_of_a_collection_equals_that_of_its_containers(
    runs: fb.Federation, arguments: dict[str, Any]
) -> None:
    events = runs.collection("run*/events")
    whole = ak.concatenate([part.arrays(**arguments) for part in parts(runs)])
    found = events.arrays(**arguments)
    assert found[whole.fields].to_list() == whole.to_list()
    for step in (1, 3, 100, "1 kB"):
        batches = list(events.iterate(step_size=step, **arguments))
        assert ak.concatenate(batches)[whole.fields].to_list() == whole.to_list()
    assert len(events.arrays(library="pd", **arguments)) == len(whole)
    assert events.arrays(library="pa", **arguments).num_rows == len(whole)


def test_parts_of_collections(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    assert events[3:6].arrays(["run", "name"]).to_list() == events.arrays(["run", "name"])[3:6].to_list()
    assert events.arrays("run", entry_start=2, entry_stop=-3).run.to_list() == [1, 1, 2, 2, 2, 3]
    assert len(events[20:]) == 0
    assert pickle.loads(pickle.dumps(events))["name"].to_list() == events["name"].to_list()
    assert events.hist({"muons.pt": (3, 0, 30)}).values().sum() == len(ak.flatten(events["muons.pt"]))
    assert str(events.explain("run", where="run > 2")).startswith("left out by statistics  8 of 12 entries")
    assert "run1/events and 2 more: 11 objects" in events._repr_html_()
    [run] = events.describe("run")
    assert (run.count, run.least, run.most) == (11, 1, 3)


def test_the_source_is_never_missing(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    assert len(events.arrays(where="source is None")) == 0
    assert len(events.arrays(where="source is not None and run == 3")) == len(events.arrays(where="run == 3"))


def test_classes_may_differ(runs: fb.Federation) -> None:
    both = runs.collection("run3/events", "other/*", source="where_from")
    array = both.arrays(["run", "extra", "where_from", "muons"])
    assert array.run.to_list() == [3, 3, 3, 3, 9, 9]
    assert str(array.run.type) == "6 * int64"
    assert array.extra.to_list() == [None] * 4 + [1.0, 2.0]
    assert array.muons.to_list()[3:] == [[{"pt": 3.0}, {"pt": 13.0}, {"pt": 23.0}], None, None]
    assert array.where_from.to_list()[3:5] == ["run3/events", "other/things"]
    with pytest.raises(fb.NotFoundError, match="run3/events: where 'extra > 1': field 'extra' does not"):
        both.arrays(where="extra > 1")


@pytest.mark.parametrize(
    ("act", "error", "told"),
    [
        (lambda fed: fed.collection("none*"), fb.NotFoundError, "no container matches 'none\\*'; there are"),
        (lambda fed: fed.collection(), fb.InvalidError, "at least one container"),
        (lambda fed: fed.collection("run1/events", source="run"), fb.InvalidError, "'run' is a field"),
        (lambda fed: fed.collection("run*/events")[[[1], [2]]], fb.WrongTypeError, "a mask of truth values"),
    ],
)
def test_impossible_collections_are_refused(
    runs: fb.Federation, act: Callable[[fb.Federation], Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        act(runs)


def test_federations_are_concatenated_and_copied(runs: fb.Federation, tmp_path: Path) -> None:
    with fb.create(tmp_path / "copy.fed") as copy:
        with copy.transaction() as txn:
            container = txn.database("all", create=True).container("events", Event, create=True)
            container.extend(runs.collection("run*/events"))
            container.extend(runs["run1/events"][[3, 1]])
            assert [each.name for each in container][-2:] == ["d", "b"]
            assert (len(container), container[-1].name, container["run"].to_list()[0]) == (13, "b", 1)
        both = fb.concat([runs["run3/events"], copy["all/events"][:2]])
        assert both.arrays(["run", "source"]).to_list()[3:] == [
            {"run": 3, "source": "run3/events"},
            {"run": 1, "source": "all/events"},
            {"run": 1, "source": "all/events"},
        ]


def test_links_are_not_copied_to_another_federation(fed: fb.Federation, tmp_path: Path) -> None:
    fields = [{"name": "next", "type": {"link": "Node"}}]
    form = {"name": "Node", "fields": fields}
    with fed.transaction() as txn:
        nodes = txn.database("d", create=True).container("nodes", form, create=True)
        first = nodes.append({"next": None})
        nodes.append({"next": first})
    with fed.transaction() as txn:
        copies = txn.database("d").container("copies", form, create=True)
        copies.extend(fed["d/nodes"])
    assert fed["d/copies"][1].next.oid == first
    with fb.create(tmp_path / "copy.fed") as copy, copy.transaction() as txn:
        container = txn.database("d", create=True).container("nodes", form, create=True)
        with pytest.raises(fb.InvalidError, match="'next' has links, which lead to objects of another"):
            container.extend(fed["d/nodes"])


def test_other_programs_take_views_as_tables(runs: fb.Federation, tmp_path: Path) -> None:
    for of in (runs["run2/events"], runs.collection("run*/events"), runs["run1/events"][:0]):
        table = pa.table(of)
        assert table.schema.names == of.fields
        assert table["name"].to_pylist() == of["name"].to_list()
    pq.write_table(pa.table(runs["run3/events"]), tmp_path / "run3.parquet")
    assert pq.read_table(tmp_path / "run3.parquet")["muons"].to_pylist()[1] == [{"pt": 1.0}]


def test_a_federation_is_a_mapping_of_its_containers(runs: fb.Federation) -> None:
    assert len(runs) == len(list(runs)) == 4
    assert runs
    assert "run1/events" in runs
    assert "run7/events" not in runs
    assert runs._ipython_key_completions_() == runs.keys()
    assert "<td>run3/events</td><td>Event</td><td>4</td>" in runs._repr_html_()


def test_parts_have_the_types_of_the_collection(fed: fb.Federation) -> None:
    one = numbers(
        fed, "a/e", {"f": "float32", "i": "uint8", "x": "int32"}, {"f": [1], "i": [1], "x": [1]}, name="A"
    )
    two = numbers(
        fed,
        "b/e",
        {"f": "float64", "i": "int64", "x": {"optional": "int32"}, "late": {"list": "string"}},
        {"f": [0.1], "i": [-(1 << 40)], "x": [None], "late": [["z"]]},
        name="B",
    )
    for views in ((one, two), (two, one), (one[:0], two), (two, one[:0])):
        both = fb.concat(views)
        rows = both.arrays().to_list()
        assert (
            str(both.arrays().type).partition("*")[2] == str(both.arrays(entry_stop=0).type).partition("*")[2]
        )
        assert pa.table(both).to_pylist() == rows
        assert [row for batch in both.iterate(step_size=1) for row in batch.to_list()] == rows
        assert both.arrays(library="pa").to_pylist() == rows
        assert [row["f"] for row in rows if row["source"] == "b/e"] == [0.1]
    assert [each.fields for each in (fb.concat((one, two))[:1], fb.concat((one, two)))] == [
        ["f", "i", "x", "late", "source"]
    ] * 2
    assert "<small>list[string] | None</small>" in fb.concat((one, two))[:1]._repr_html_()


def test_classes_of_one_shape_and_members_that_some_lack(fed: fb.Federation) -> None:
    def jets(name: str, *members: str) -> Any:
        fields = [{"name": each, "type": "float32"} for each in members]
        return {"jets": {"list": {"record": {"class": name, "fields": fields}}}}

    one = numbers(fed, "a/e", jets("Jet", "pt"), {"jets": [[{"pt": 1}, {"pt": 2}]]}, name="A")
    two = numbers(fed, "b/e", jets("Jet2", "pt", "eta"), {"jets": [[{"pt": 3, "eta": 4}]]}, name="B")
    both = fb.concat([one, two])
    assert "union" not in str(both.arrays().type)
    assert both.arrays("jets.eta").jets.eta.to_list() == [[None, None], [4.0]]
    assert [len(each) for each in both.arrays("jets.eta", library="np")["jets.eta"]] == [2, 1]


def test_times_and_numbers_do_not_mix(fed: fb.Federation) -> None:
    day = {"meaning": {"of": "int32", "is": "date"}}
    one = numbers(fed, "a/e", {"d": day}, {"d": np.array(["2026-01-01"], "M8[D]")}, name="A")
    two = numbers(fed, "b/e", {"d": "int32"}, {"d": [1]}, name="B")
    with pytest.raises(fb.InvalidError, match="'d' is date in a/e and int32 in b/e; they cannot be"):
        fb.concat([one, two])


def test_links_of_any_view_and_in_variants_are_noticed(fed: fb.Federation, tmp_path: Path) -> None:
    form = {"to": {"variant": [{"link": "N"}, "int32"]}}
    with fb.create(tmp_path / "other.fed") as other:
        here, there = (numbers(each, "d/e", form, {"to": [1, 2]}) for each in (fed, other))
        for data in (there, fb.concat([here, there])):
            with fed.transaction() as txn, pytest.raises(fb.InvalidError, match="another federation"):
                txn.database("d").container("e").extend(data)


def test_views_of_other_classes_are_not_copied(runs: fb.Federation) -> None:
    with runs.transaction() as txn:
        container = txn.database("run1").container("events")
        with pytest.raises(fb.InvalidError, match="has no field 'extra'"):
            container.extend(runs["other/things"])


@pytest.mark.parametrize(
    ("act", "error", "told"),
    [
        (lambda _: an.concat(["run1/events"]), fb.WrongTypeError, "takes a list of views"),
        (lambda view: an.concat([fb.concat([view])]), fb.WrongTypeError, "takes a list of views"),
        (lambda view: fb.concat([view], source="a.b"), fb.InvalidError, "cannot be the name of a field"),
        (lambda view: fb.concat([view]).fetch([0]), fb.UnsupportedError, "entries of its own"),
        (lambda view: view.sample(-1), fb.InvalidError, "must be 0 or more"),
        (lambda view: view.sort_by("r*"), fb.InvalidError, "is not the name of one field"),
        (lambda view: view.arrays(aliases=["x"]), fb.WrongTypeError, "aliases must map names to expressions"),
    ],
)
def test_wrong_arguments_are_named(
    runs: fb.Federation, act: Callable[[fb.View], Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        act(runs["run1/events"])


def test_closed_federations_in_notebooks(runs: fb.Federation) -> None:
    events = runs.collection("run*/events")
    runs.close()
    for shown in (runs._repr_html_(), events._repr_html_(), repr(events)):
        assert "closed" in shown


def test_picked_parts_are_explained(runs: fb.Federation) -> None:
    picked = fb.concat([runs["run1/events"][[3, 0]], runs["run3/events"]])
    told = picked.explain("run", where="run > 2")
    assert told.entries - told.excluded == 4
    assert picked.arrays("name").name.to_list() == ["d", "a", "a", "b", "c", "d"]

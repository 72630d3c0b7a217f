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

import femtobarn as fb

an: Any = fb
"""The package, for arguments of wrong types."""


@fb.persistent
class Muon:
    pt: float


@fb.persistent
class Event:
    run: fb.int32
    name: str
    muons: list[Muon]


OTHER = {"name": "Other", "fields": [{"name": "run", "type": "int64"}, {"name": "extra", "type": "float32"}]}


@pytest.fixture
def runs(fed: fb.Federation) -> fb.Federation:
    """Three runs of four events, the second of run 2 deleted, and objects of another class."""
    with fed.transaction() as txn:
        for run in (1, 2, 3):
            container = txn.database(f"run{run}", create=True).container("events", Event, create=True)
            for i in range(4):
                container.append(
                    Event(run=run, name="abcd"[i], muons=[Muon(pt=10.0 * j + i) for j in range(i)])
                )
        txn.database("other", create=True).container("things", OTHER, create=True).extend(
            {"run": [9, 9], "extra": [1, 2]}
        )
    with fed.transaction() as txn:
        txn.database("run2").container("events").delete(1)
    return fed


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
def test_every_read_gives_what_the_containers_give(runs: fb.Federation, arguments: dict[str, Any]) -> None:
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
        (lambda fed: fed.collection("run*/events")[[1, 2]], fb.InvalidError, "a slice without steps"),
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


def test_objects_in_the_order_of_fields(fed: fb.Federation) -> None:
    random = np.random.default_rng(3)
    fields = [
        {"name": "a", "type": "uint64"},
        {"name": "b", "type": {"optional": "float32"}},
        {"name": "c", "type": "string"},
        {"name": "d", "type": "bool"},
    ]
    rows = [
        {
            "a": int(random.integers(3)) + (1 << 63),
            "b": [None, float("nan"), 1.5, -2.0, float("inf")][random.integers(5)],
            "c": str(random.choice(["x", "yy", "é"])),
            "d": bool(random.integers(2)),
        }
        for _ in range(300)
    ]
    with fed.transaction() as txn:
        form = {"name": "N", "fields": fields}
        container = txn.database("d", create=True).container("c", form, create=True)
        for row in rows:
            container.append(row)
    view = fed["d/c"]
    for keys in (("a",), ("b",), ("c", "a"), ("d", "b", "c"), ("b", "d")):
        for descending in (False, True):
            found = view.sort_by(*keys, descending=descending).entries().tolist()
            assert found == sorted(range(300), key=lambda i: _key(rows[i], keys, descending))


def _key(row: dict[str, Any], keys: tuple[str, ...], descending: bool) -> list[tuple[bool, Any]]:
    """Return what Python orders rows by: descending values as negative ones."""
    found: list[tuple[bool, Any]] = []
    for key in keys:
        value = row[key]
        if value is None or value != value:
            found.append((True, 0))
        elif isinstance(value, str):
            place = ["x", "yy", "é"].index(value)
            found.append((False, -place if descending else place))
        else:
            found.append((False, -value if descending else value))
    return found


@pytest.mark.parametrize(
    ("keys", "told"),
    [((), "such as sort_by"), (("muons",), "has members, which"), (("muons.pt",), "has several values")],
)
def test_what_has_no_order_is_refused(runs: fb.Federation, keys: tuple[str, ...], told: str) -> None:
    with pytest.raises(fb.InvalidError, match=told):
        runs["run1/events"].sort_by(*keys)


def test_some_objects(runs: fb.Federation) -> None:
    view = runs["run2/events"]  # Without its second event.
    assert view.head(2)["name"].to_list() == ["a", "c"]
    assert view.head()["name"].to_list() == ["a", "c", "d"]
    sample = view.sample(2, seed=5)
    assert sample["name"].to_list() == view.sample(2, seed=5)["name"].to_list()
    assert set(sample["name"].to_list()) < set("acd")
    assert view.sample(100)["name"].to_list() == ["a", "c", "d"]
    oids = [view[2].oid, view[0].oid]
    assert view[oids]["name"].to_list() == ["d", "a"]
    assert view[view.oids[2:]]["name"].to_list() == ["c", "d"]
    assert view[oids[0]].name == "d"
    with pytest.raises(fb.InvalidError, match="use the container that it is in"):
        view[runs["run1/events"][0].oid]
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        view[view.oids[1]]


def test_descriptions(fed: fb.Federation) -> None:
    random = np.random.default_rng(5)
    values = random.normal(1000.0, 0.01, 5000)
    values[7] = np.nan
    fields = [
        {"name": "x", "type": "float64"},
        {"name": "many", "type": {"list": {"optional": "int32"}}},
        {"name": "name", "type": "string"},
    ]
    many = [[1, None, 3]] * 5000
    with fed.transaction() as txn:
        form = {"name": "N", "fields": fields}
        container = txn.database("d", create=True).container("c", form, create=True)
        container.extend({"x": values, "many": many, "name": ["a"] * 5000})
    x, numbers, names = fed["d/c"].describe()
    assert (x.count, x.missing, x.least, x.most) == (4999, 1, np.nanmin(values), np.nanmax(values))
    assert x.mean == pytest.approx(np.nanmean(values), rel=1e-12)
    assert x.deviation == pytest.approx(np.nanstd(values), rel=1e-9)
    assert (numbers.count, numbers.missing, numbers.least, numbers.mean) == (10000, 5000, 1, 2.0)
    assert (names.count, names.missing, names.mean) == (5000, 0, None)
    assert str(fed["d/c"].describe("x", where="x > 2000")).splitlines()[1].split() == [
        "x",
        "float64",
        "0",
        "0",
    ]
    assert "<td>many</td>" in fed["d/c"].describe()._repr_html_()


def test_joins_give_what_dictionaries_give(fed: fb.Federation) -> None:
    random = np.random.default_rng(11)
    types = {"a": "int32", "b": {"optional": "float32"}, "c": "string", "u": "uint64"}
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    names = ["x", "yy", "é"]

    def row() -> dict[str, Any]:
        real = [None, float("nan"), 0.5, -2.0][random.integers(4)]
        text, number = names[random.integers(3)], int(random.integers(4))
        return {"a": int(random.integers(5)), "b": real, "c": text, "u": number}

    rows = [row() for _ in range(300)]
    # One of each key, in any order; the greatest number has no partner among signed ones.
    by_a_c = {(each["a"], each["c"]): each for each in (row() | {"u": 1 << 63} for _ in range(40))}
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        form = {"name": "N", "fields": fields}
        database.container("ours", form, create=True).extend([*rows])
        others = database.container("theirs", form, create=True)
        for each in by_a_c.values():
            others.append(each)
    ours, theirs = fed["d/ours"], fed["d/theirs"]
    joined = ours.join(
        theirs, ["a", "c"], expressions=["a", "c"], other_expressions=["a", "c", "u"], where="a != 1"
    )
    wanted = [by_a_c.get((each["a"], each["c"])) for each in rows if each["a"] != 1]
    assert [each["other"] and each["other"]["u"] for each in joined.to_list()] == [
        each and 1 << 63 for each in wanted
    ]
    for own, other in zip(joined.to_list(), wanted, strict=True):
        assert other is None or (own["a"], own["c"]) == (own["other"]["a"], own["other"]["c"]) == (
            other["a"],
            other["c"],
        )
    halves = theirs.sort_by("b")[:1]  # The least real number, which is no NaN and not missing.
    [half] = halves["b"].to_list()
    found = ours.join(halves, "b", name="half", expressions="b", other_expressions="b")
    assert [each is not None for each in found.half.to_list()] == [each["b"] == half for each in rows]
    assert ours.join(theirs[:1], {"a": "u"}, expressions="a").other.to_list() == [None] * 300
    assert list(ours.join(theirs, ["a", "c"], expressions="a", other_expressions="b", library="pd")) == [
        "a",
        "other.b",
    ]


@pytest.mark.parametrize(
    ("on", "told"),
    [
        ({"run": "name"}, "'run' is int32, and 'name' is string: these are never equal"),
        ("muons.pt", "has several values per object"),
        ("run", "several objects of run1/events have run 1; join"),
        ({}, "join takes names of fields"),
    ],
)
def test_impossible_joins_are_refused(runs: fb.Federation, on: Any, told: str) -> None:
    with pytest.raises(fb.FemtobarnError, match=told):
        runs["run1/events"].join(runs["run1/events"], on)


def numbers(fed: fb.Federation, path: str, form: Any, values: Any, *, name: str = "N") -> fb.View:
    """Return a new container of a class with the given fields."""
    fields = [{"name": each, "type": type_} for each, type_ in form.items()]
    database, container = path.split("/")
    with fed.transaction() as txn:
        made = txn.database(database, create=True).container(
            container, {"name": name, "fields": fields}, create=True
        )
        made.extend(values)
    return fed[path]


def test_oids_of_other_objects_are_refused(runs: fb.Federation) -> None:
    view = runs["run2/events"]  # Without its second event.
    with pytest.raises(fb.NotFoundError, match="was deleted"):
        view[view.oids]
    with pytest.raises(fb.NotFoundError, match="is not in this view of run2/events"):
        view[2:][[view[0].oid]]
    with pytest.raises(fb.NotFoundError, match="is not in this view"):
        view[2:][view[0].oid]
    with pytest.raises(fb.NotFoundError, match="does not exist"):
        view[[fb.Oid(view.oids.database, view.oids.container, 77)]]


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
        (lambda view: view.arrays(aliases=["x"]), fb.WrongTypeError, "aliases are texts by names"),
    ],
)
def test_wrong_arguments_are_named(
    runs: fb.Federation, act: Callable[[fb.View], Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        act(runs["run1/events"])


def test_long_texts_and_bytes(fed: fb.Federation) -> None:
    names = ["b" * 3_000_000, *(f"a{i:05}" for i in range(20_000)), "a\0"]
    view = numbers(
        fed, "d/e", {"name": "string", "raw": {"list": "byte"}}, {"name": names, "raw": [b"x"] * len(names)}
    )
    assert view.sort_by("name").head(2)["name"].to_list() == ["a\0", "a00000"]
    assert [each.name for each in view.describe()] == ["name"]
    with pytest.raises(fb.InvalidError, match="have no order"):
        view.sort_by("raw")


def test_chains_of_aliases_are_bounded(fed: fb.Federation) -> None:
    view = numbers(fed, "d/e", {"x": "int32"}, {"x": [1]})
    aliases = {"a0": "x + 1"} | {f"a{i}": f"a{i - 1} + a{i - 1}" for i in range(1, 40)}
    with pytest.raises(fb.InvalidError, match="too many parts"):
        view.arrays("a39", aliases=aliases)


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

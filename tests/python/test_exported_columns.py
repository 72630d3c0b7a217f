"""Files with the result of `arrays`: computed columns, fields behind links, and dictionaries as maps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import femtobarn as fb
from femtobarn.cli import main

EVENTS = 40
ALIASES = {"ht": "sum(muons.pt)", "lead": "muons.pt[0]", "is_large": "ht > 20", "best": "muons[0]"}


@fb.persistent
class Raw:
    number: int
    hits: list[float]


@fb.persistent
class Muon:
    pt: float
    eta: float


@fb.persistent
class Event:
    run: int
    tag: str
    muons: list[Muon]
    raw: fb.link[Raw]


@fb.persistent
class Module:
    gains: dict[int, fb.float32]
    names: dict[str, list[int]] | None


@fb.persistent
class Detector:
    counts: dict[str, int]
    modules: list[Module]
    nested: dict[int, dict[int, int]]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> fb.Federation:
    """Event `i` has `i % 4` muons, and from the tenth on a link to a raw event."""
    fed = fb.create(tmp_path_factory.mktemp("columns") / "e.fed")
    with fed.transaction() as txn:
        database = txn.database("run1", create=True)
        raw = database.container("raw", Raw, create=True)
        oids = [raw.append(Raw(number=10 * i, hits=[0.5] * i)) for i in range(4)]
        events = database.container("events", Event, create=True)
        for i in range(EVENTS):
            muons = [Muon(pt=10.0 * j + i, eta=0.5 * j) for j in range(i % 4)]
            events.append(Event(run=i, tag=f"t{i}", muons=muons, raw=oids[i % 4] if i >= 10 else None))
        more = txn.database("run2", create=True).container("events", Event, create=True)
        more.append(Event(run=EVENTS, tag="", muons=[], raw=None))
    return fed


@pytest.mark.parametrize("step_size", [7, "64 MB"])
def test_parquet_files_equal_the_arrays_of_the_view(
    fed: fb.Federation, tmp_path: Path, step_size: int | str
) -> None:
    view, path = fed["run1/events"], tmp_path / "e.of-any-name"
    for options in (
        {"aliases": ALIASES, "where": "is_large or run == 1"},
        {"expressions": ["tag", "lead", "raw.number", "raw.hits"], "aliases": ALIASES},
        {"expressions": ["raw.number"], "where": "run < 10"},
        {"filter_name": "run", "cut": "run > 3", "entry_start": 2, "entry_stop": -3},
    ):
        expected = view.arrays(library="pa", **options).to_pylist()
        assert view.to_parquet(path, step_size=step_size, **options) == len(expected)
        assert pq.read_table(path).to_pylist() == expected
        path.unlink()


def test_a_type_is_that_of_all_batches_though_links_of_the_first_are_null(
    fed: fb.Federation, tmp_path: Path
) -> None:
    view = fed["run1/events"]
    wanted = ["run", "raw.number", "twice"]
    for step_size in (7, EVENTS):
        path = tmp_path / f"{step_size}.root"
        view.to_root(path, wanted, aliases={"twice": "2 * raw.number"}, step_size=step_size)
        with uproot.open(path) as file:
            assert file["events"].typenames() == {
                "run": "std::int64_t",
                "raw": "",
                "raw.number": "std::optional<std::int64_t>",
                "twice": "std::optional<std::int64_t>",
            }
            assert file["events"].arrays().twice.to_list() == [
                20 * (i % 4) if i >= 10 else None for i in range(EVENTS)
            ]


def test_root_files_have_computed_columns_of_every_kind(fed: fb.Federation, tmp_path: Path) -> None:
    view = fed["run1/events"]
    assert view.to_root(tmp_path / "e.root", ["run", *ALIASES], "ht > 5", aliases=ALIASES, step_size=9) == 28
    expected = view.arrays(["run", "ht", "lead", "is_large"], "ht > 5", aliases=ALIASES)
    with uproot.open(tmp_path / "e.root") as file:
        read = file["events"].arrays()
        assert read[["run", "ht", "lead", "is_large"]].to_list() == expected.to_list()
        # In an RNTuple an optional record becomes a list of at most one.
        assert read.best[:2].to_list() == [[{"pt": 2.0, "eta": 0.0}], [{"pt": 3.0, "eta": 0.0}]]


def test_collections_and_picked_views_are_exported(fed: fb.Federation, tmp_path: Path) -> None:
    runs = fed.collection("run*/events")
    wanted = ["run", "source", "lead"]
    for suffix, written in (("parquet", runs.to_parquet), ("root", runs.to_root)):
        assert written(tmp_path / f"all.{suffix}", wanted, "run > 38", aliases=ALIASES) == 2
    expected = runs.arrays(wanted, "run > 38", aliases=ALIASES).to_list()
    assert pq.read_table(tmp_path / "all.parquet").to_pylist() == expected
    with uproot.open(tmp_path / "all.root") as file:
        assert file["events"].arrays().to_list() == expected
    fed["run1/events"][[5, 3, 5]].to_parquet(tmp_path / "picked.parquet", "run")
    assert pq.read_table(tmp_path / "picked.parquet")["run"].to_pylist() == [5, 3, 5]


def test_dictionaries_are_maps_in_parquet_and_arrow(fed: fb.Federation, tmp_path: Path) -> None:
    other = fb.create(tmp_path / "d.fed")
    modules = [Module(gains={1: 0.5}, names=None), Module(gains={}, names={"a": [1, 2], "b": []})]
    rows = [
        Detector(counts={"hits": 3}, modules=modules, nested={1: {2: 3}, 4: {}}),
        Detector(counts={}, modules=[], nested={}),
    ]
    with other.transaction() as txn:
        txn.database("d", create=True).container("detectors", Detector, create=True).extend(rows)
    view = other["d/detectors"]
    view.to_parquet(tmp_path / "d.parquet", step_size=1)
    view.export(tmp_path / "d.arrow")
    assert view.arrays("counts._1", library="pa").to_pylist()[0] == {"counts": [{"_1": 3}]}
    for suffix in ("parquet", "arrow"):
        imported = other.import_file(tmp_path / f"d.{suffix}", database=suffix)
        assert other[imported.container][0].to_dict() == view[0].to_dict()
    table = pq.read_table(tmp_path / "d.parquet")
    assert pa.types.is_map(table.schema.field("counts").type)
    assert (
        table.to_pylist()
        == view.arrays(library="pa").to_pylist()
        == [
            {
                "counts": [("hits", 3)],
                "modules": [
                    {"gains": [(1, 0.5)], "names": None},
                    {"gains": [], "names": [("a", [1, 2]), ("b", [])]},
                ],
                "nested": [(1, [(2, 3)]), (4, [])],
            },
            {"counts": [], "modules": [], "nested": []},
        ]
    )


def test_histograms_and_descriptions_know_computed_columns(fed: fb.Federation) -> None:
    view = fed["run1/events"]
    found = view.hist({"ht": (4, 0, 100)}, where="is_large", weight="lead", aliases=ALIASES)
    columns = view.arrays(["ht", "lead"], "is_large", aliases=ALIASES, library="np")
    expected, _ = np.histogram(columns["ht"], 4, (0, 100), weights=columns["lead"])
    assert found.values().tolist() == expected.tolist()
    assert view.hist("raw.number").sum() == EVENTS - 10
    described = {each.name: each for each in view.describe(["ht", "best", "raw.number"], aliases=ALIASES)}
    assert list(described) == ["ht", "best.pt", "best.eta", "raw.number"]
    assert (described["raw.number"].type, described["raw.number"].missing) == ("int64 | None", 10)
    assert described["ht"].most == max(view.arrays("ht", aliases=ALIASES).ht)


def test_the_command_exports_computed_columns(
    fed: fb.Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[Any] = ["export", fed.path, "run1/events", str(tmp_path / "e.parquet"), "--json"]
    chosen = ["--field", "run", "--field", "ht", "--where", "twice > 100"]
    aliases = ["--alias", "ht=sum(muons.pt)", "--alias", "twice = 2 * ht"]
    assert main([*arguments, *chosen, *aliases]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    table = pq.read_table(tmp_path / "e.parquet")
    assert (table.column_names, table.num_rows) == (["run", "ht"], entries)
    assert main(["export", fed.path, "run1/events", str(tmp_path / "f.parquet"), "--alias", "ht"]) == 2
    assert "NAME=EXPRESSION" in capsys.readouterr().err

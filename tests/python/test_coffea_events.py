"""Containers as coffea's events: NanoAOD's names, columns that are read when they are touched, executors."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from packages_apart import installed

pytest.importorskip("coffea", reason="the extra `judge` is not installed")

import uproot
from coffea.dataset_tools.filespec import DatasetSpec
from coffea.nanoevents import BaseSchema, EDM4HEPSchema, NanoAODSchema, NanoEventsFactory, PHYSLITESchema
from coffea.processor import FuturesExecutor, IterativeExecutor, ParslExecutor, ProcessorABC, Runner

import femtobarn as fb

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def view(files: Samples, tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.View]:
    """Simulated events of CMS, imported."""
    with fb.create(tmp_path_factory.mktemp("nano") / "lhc.fed") as fed:
        fed.import_tree(files.path("nano_dy.root"), "Events", database="nano")
        yield fed["nano/Events"]


@pytest.fixture(scope="module")
def original(files: Samples) -> ak.Array:
    """The events as coffea reads them in the file that was imported."""
    source = {str(files.path("nano_dy.root")): "Events"}
    return NanoEventsFactory.from_root(source, schemaclass=NanoAODSchema).events()


def test_events_of_an_imported_file_are_those_of_the_file(view: fb.View, original: ak.Array) -> None:
    events = fb.coffea.events(view)
    assert set(original.fields) <= set(events.fields)
    for name in ("run", "event"):
        assert events[name].to_list() == original[name].to_list()
    for name in ("Muon", "Jet", "Electron", "GenPart"):
        assert set(original[name].fields) <= set(events[name].fields)
        for member in ("pt", "eta", "phi", "mass", "charge", "pdgId"):
            if member in original[name].fields:
                assert ak.array_equal(events[name][member], original[name][member], check_parameters=False)
    pairs = events.Muon[ak.num(events.Muon) >= 2]
    theirs = original.Muon[ak.num(original.Muon) >= 2]
    np.testing.assert_allclose((pairs[:, 0] + pairs[:, 1]).mass, (theirs[:, 0] + theirs[:, 1]).mass)
    assert events.Muon.matched_jet.pt.to_list() == original.Muon.matched_jet.pt.to_list()
    assert events.GenPart.parent.pdgId.to_list() == original.GenPart.parent.pdgId.to_list()
    assert events.MET.pt.to_list() == original.MET.pt.to_list()
    assert events.LHEPdfWeight.to_list() == original.LHEPdfWeight.to_list()


def test_events_of_atlas_have_the_collections_that_their_schema_makes(
    files: Samples, fed: fb.Federation
) -> None:
    path = files.path("PHYSLITE_example.root")
    fed.import_tree(path, database="lite")
    source = {str(path): "CollectionTree"}
    theirs = NanoEventsFactory.from_root(source, schemaclass=PHYSLITESchema).events()
    events = fb.coffea.events(fed["lite/CollectionTree"], PHYSLITESchema)
    for name, members in {"Electrons": "pt eta phi m", "Muons": "pt eta charge", "Jets": "pt m"}.items():
        for member in members.split():
            assert ak.array_equal(events[name][member], theirs[name][member], check_parameters=False)
    pairs, expected = ak.combinations(events.Jets, 2), ak.combinations(theirs.Jets, 2)
    np.testing.assert_allclose(
        ak.flatten((pairs["0"] + pairs["1"]).mass), ak.flatten((expected["0"] + expected["1"]).mass)
    )


def test_events_of_edm4hep_have_the_collections_and_relations_that_their_schema_makes(
    files: Samples, fed: fb.Federation
) -> None:
    path = files.path("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root")
    fed.import_trees(path, database="ild")
    schema = EDM4HEPSchema.version("01-00")
    theirs = NanoEventsFactory.from_root({str(path): "events"}, schemaclass=schema).events()
    events = fb.coffea.events(fed["ild/events"], schema)
    assert set(events.fields) == set(theirs.fields)
    for name in events.fields:
        assert set(events[name].fields) == set(theirs[name].fields), name
    # Vector members, components, relations to one and to many, links, parts of other collections.
    compared = (
        "EventHeader MCParticles SiTracks_Refitted BuildUpVertices_V0_RP VertexJets_PID_yth RecoMCTruthLink "
        "PFOsFromJets_objIdx GPStringValues"
    )
    for name in compared.split():
        ours, expected = events[name], theirs[name]
        assert ak.parameters(ours).get("__record__") == ak.parameters(expected).get("__record__")
        for member in ours.fields:
            assert ak.array_equal(ours[member], expected[member], check_parameters=False), (name, member)
    parents = events.MCParticles.Map_Relation("parents", "MCParticles")
    assert parents.PDG.to_list() == theirs.MCParticles.Map_Relation("parents", "MCParticles").PDG.to_list()
    linked = events.RecoMCTruthLink.Link_to_MCParticles.index
    assert linked.to_list() == theirs.RecoMCTruthLink.Link_to_MCParticles.index.to_list()
    log: list[Any] = []
    ak.sum(fb.coffea.events(fed["ild/events"][2:7], schema, access_log=log).MCParticles.mass)
    assert {each.branch for each in log} <= {"MCParticles/MCParticles.mass", "MCParticles/MCParticles.PDG"}


def test_objects_of_a_data_model_are_not_podio_events(fed: fb.Federation) -> None:
    model = fed.define({"datatypes": {"edm4hep::Hit": {"Members": ["float energy"]}}})
    form = {
        "name": "Event",
        "fields": [{"name": "hits", "type": {"list": model.Hit.__femtobarn__.record().to_json()}}],
    }
    with fed.transaction() as txn:
        writer = txn.database("d", create=True).container("events", form, create=True)
        writer.extend({"hits": [[{"energy": 1.5}]]})
    assert fb.coffea.events(fed["d/events"], BaseSchema).hits_energy.to_list() == [[1.5]]
    with pytest.raises(fb.InvalidError, match="collection 'hits' of d/events has objects of edm4hep::Hit"):
        fb.coffea.events(fed["d/events"], EDM4HEPSchema)


def test_columns_that_are_not_touched_are_not_read(view: fb.View) -> None:
    log: list[Any] = []
    events = fb.coffea.events(view, access_log=log)
    assert log == []
    ak.sum(events.Muon.pt)
    assert {each.branch for each in log} == {"nMuon", "Muon_pt"}
    log.clear()
    ak.sum(events.MET.pt)
    assert {each.branch for each in log} == {"MET_pt"}


class Counter(ProcessorABC):  # type: ignore[misc]
    """Counts events and muons."""

    def process(self, events: ak.Array) -> dict[str, Any]:
        count = int(ak.sum(ak.num(events.Muon)))
        return {events.metadata["dataset"]: {"events": len(events), "muons": count, "pt": {1}}}

    def postprocess(self, accumulator: Any) -> Any:
        return {**accumulator, "ended": True}


def test_processors_fail_at_the_partitions_that_are_listed(view: fb.View) -> None:
    parts = view.partitions(10)
    bad = {int(part.arrays("event").event[0]) for part in parts[1:3]}

    def count(events: ak.Array) -> int:
        if int(events.event[0]) in bad or events.metadata["dataset"] == "none":
            raise ZeroDivisionError("of the test")
        return len(events)

    for executor in (None, FuturesExecutor(workers=2, status=False)):
        failed: list[Any] = []
        options: dict[str, Any] = {"executor": executor, "schemaclass": BaseSchema, "failed": failed}
        assert fb.coffea.run(count, {"dy": parts}, **options) == len(view) - 20
        assert [(each.dataset, each.partition.key) for each in failed] == [
            ("dy", part.key) for part in parts[1:3]
        ]
        assert all("ZeroDivisionError: of the test" in each.error for each in failed)
    with pytest.raises(fb.InvalidError, match="failed at all 2 partitions"):
        fb.coffea.run(count, {"none": parts[:2]}, schemaclass=BaseSchema, failed=[])
    with pytest.raises(fb.InvalidError, match="returned None"):
        fb.coffea.run(lambda events: None, {"dy": parts[:1]}, schemaclass=BaseSchema)


def test_parsl_runs_over_partitions(
    view: fb.View, original: ak.Array, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed("parsl", ["parsl==2026.10.26"], project)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    import parsl

    threads = parsl.ThreadPoolExecutor(max_threads=2)
    config = parsl.Config(executors=[threads], run_dir=str(tmp_path), initialize_logging=False)
    # coffea cannot load a configuration with this version of parsl: it is loaded before.
    with parsl.load(config):
        executor = ParslExecutor(status=False)
        found = fb.coffea.run(Counter(), {"dy": view}, executor=executor, size=15)
    parsl.clear()
    assert found["dy"]["muons"] == int(ak.sum(ak.num(original.Muon)))
    assert found["ended"]


def test_runners_of_coffea_read_a_fileset_of_a_server_without_preprocessing(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {
        "name": "Event",
        "fields": [{"name": "n", "type": "int64"}, {"name": "pt", "type": {"list": "float32"}}],
    }

    def write(count: int) -> None:
        with fed.transaction() as txn:
            for run in ("run7", "run8"):
                events = txn.database(run, create=True).container(
                    "events", form, create=True, page_size="4 KiB", cluster_size="16 KiB"
                )
                numbers = np.arange(count)
                pt = ak.unflatten(np.ones(int((numbers % 3).sum()), np.float32), numbers % 3)
                events.extend({"n": numbers, "pt": pt})

    def total(events: ak.Array) -> dict[tuple[str, Any], Any]:
        sums = {"n": int(ak.sum(events.n)), "pt": float(ak.sum(events.pt)), "parts": 1}
        return {(events.metadata["dataset"], events.metadata.get("year")): sums}

    write(6000)
    with fb.serve(fed.path, port=0, address="127.0.0.1") as server, fb.open(server.url("/lhc.fed")) as far:
        with monkeypatch.context() as patch:
            patch.setattr("uproot.open", None)
            names = {"both": "run*/events", "one": ["run7/events"]}
            files = fb.coffea.fileset(far.snapshot(), names, size="32 kB", metadata={"one": {"year": 2026}})
            items = fb.coffea.work_items(files)
        write(10)  # The fileset is of the commit before.
        runner = Runner(IterativeExecutor(status=False), schema=BaseSchema)
        found = runner.run(items, total)["out"]
        expected: dict[str, Any] = {"n": 6000 * 5999 // 2, "pt": 6000.0}
        parts = len(files["one"]["files"][f"{server.url('/lhc.fed')}/run7.root?fb.csn=1"]["steps"])
        assert parts > 2
        assert found == {
            ("both", None): {name: 2 * value for name, value in (*expected.items(), ("parts", parts))},
            ("one", 2026): expected | {"parts": parts},
        }
        for url, file in DatasetSpec(**files["both"]).files.items():
            with uproot.open(url) as opened:
                assert (opened[file.object_path].num_entries, str(opened.file.uuid)) == (6000, file.uuid)
                clusters = {cluster.num_first_entry for cluster in opened["events"].cluster_summaries}
                assert {start for start, _ in file.steps} <= clusters


def test_filesets_that_coffea_could_not_read_are_refused(fed: fb.Federation) -> None:
    form = {"name": "Event", "fields": [{"name": "n", "type": "int64"}]}
    with fed.transaction() as txn:
        for name in ("a", "b"):
            txn.database("run7", create=True).container(name, form, create=True)
    with pytest.raises(fb.InvalidError, match="give url='root://"):
        fb.coffea.fileset(fed.snapshot(), "run7/a")
    url = "root://host//lhc.fed"
    with pytest.raises(fb.InvalidError, match="make two datasets"):
        fb.coffea.fileset(fed.snapshot(), {"both": "run7/*"}, url=url)
    with pytest.raises(fb.NotFoundError, match=r"no container matches 'run8/a'.* did you mean 'run7/a'"):
        fb.coffea.fileset(fed.snapshot(), "run8/a", url=url)
    empty = fb.coffea.fileset(fed.snapshot(), "run7/*", url=url)
    assert [next(iter(each["files"].values()))["steps"] for each in empty.values()] == [[[0, 0]]] * 2


@pytest.mark.parametrize(
    "executor", [None, IterativeExecutor(status=False), FuturesExecutor(workers=2, status=False)]
)
def test_executors_of_coffea_run_over_partitions(view: fb.View, original: ak.Array, executor: Any) -> None:
    datasets = {"dy": view, "half": view[: len(view) // 2].partitions(7)}
    found = fb.coffea.run(Counter(), datasets, executor=executor, size=15)
    assert found["ended"]
    assert found["dy"]["events"] == len(original)
    assert found["dy"]["muons"] == int(ak.sum(ak.num(original.Muon)))
    assert found["half"]["events"] == len(original) // 2


def test_garbage_collections_in_a_run_leave_out_earlier_objects(view: fb.View) -> None:
    def frozen(events: ak.Array) -> set[bool]:
        return {gc.get_freeze_count() > 0}

    gc.unfreeze()  # Of the tests.
    try:
        assert fb.coffea.run(frozen, {"dy": view}, schemaclass=BaseSchema, size=10) == {True}
        with pytest.raises(ZeroDivisionError):
            fb.coffea.run(lambda events: 1 / 0, {"dy": view}, schemaclass=BaseSchema)
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
    assert fb.coffea.run(frozen, {"dy": view}, schemaclass=BaseSchema) == {True}
    assert gc.get_freeze_count() > 0, "what the program froze stays so"


def test_a_processor_that_fails_is_an_error_of_its_own(view: fb.View) -> None:
    with pytest.raises(ZeroDivisionError):
        fb.coffea.run(lambda events: 1 / 0, {"dy": view}, executor=IterativeExecutor(status=False))
    with pytest.raises(fb.InvalidError, match="no events"):
        fb.coffea.run(len, {"dy": view[:0]})


def test_classes_of_any_kind_are_shown_with_the_names_of_nanoaod(fed: fb.Federation) -> None:
    form = {
        "name": "Event",
        "fields": [
            {"name": "run", "type": "uint32"},
            {"name": "luminosityBlock", "type": "uint32"},
            {"name": "event", "type": "uint64"},
            {"name": "name", "type": "string"},
            {"name": "best", "type": {"optional": "float32"}},
            {"name": "axes", "type": {"array": {"of": "float32", "size": 2}}},
            {"name": "weights", "type": {"list": "float32"}},
            {
                "name": "vertex",
                "type": {"record": {"class": "V", "fields": [{"name": "x", "type": "float64"}]}},
            },
            {
                "name": "hits",
                "type": {
                    "list": {
                        "record": {
                            "class": "Hit",
                            "fields": [
                                {"name": "x", "type": "float32"},
                                {"name": "cells", "type": {"list": "uint16"}},
                            ],
                        }
                    }
                },
            },
        ],
    }
    rows: list[dict[str, Any]] = [
        {
            "run": n,
            "luminosityBlock": 1,
            "event": n,
            "name": f"n{n}",
            "best": None if n % 2 else n,
            "axes": [n, n],
            "weights": [0.5] * n,
            "vertex": {"x": n},
            "hits": [{"x": n, "cells": [1] * n}] * (n % 3),
        }
        for n in range(20)
    ]
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container("events", form, create=True)
        events.extend(ak.Array(rows))
        events.delete([4])
    kept = [row for row in rows if row["run"] != 4]
    for part, expected in ((fed["d/events"], kept), (fed["d/events"][5:15], kept[5:15])):
        found = fb.coffea.events(part, BaseSchema)
        assert found["nhits"].to_list() == [len(row["hits"]) for row in expected]
        assert found["nweights"].to_list() == [len(row["weights"]) for row in expected]
        assert found["hits_cells"].to_list() == [[hit["cells"] for hit in row["hits"]] for row in expected]
        assert found["hits_x"].to_list() == [[hit["x"] for hit in row["hits"]] for row in expected]
        assert found["vertex_x"].to_list() == [row["vertex"]["x"] for row in expected]
        for name in ("run", "name", "best", "axes", "weights"):
            assert found[name].to_list() == [row[name] for row in expected]
    nano = fb.coffea.events(fed["d/events"])
    assert nano.hits.x.to_list() == [[hit["x"] for hit in row["hits"]] for row in kept]

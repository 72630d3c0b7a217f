"""Containers as coffea's events: NanoAOD's names, columns that are read when they are touched, executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("coffea", reason="the extra `judge` is not installed")

from coffea.nanoevents import BaseSchema, NanoAODSchema, NanoEventsFactory
from coffea.processor import FuturesExecutor, IterativeExecutor, ProcessorABC

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

"""Projections: the columns that a read returns, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb

FORM = {
    "name": "Event",
    "fields": [
        {"name": "run", "type": "uint32"},
        {
            "name": "Muon",
            "type": {
                "list": {
                    "record": {
                        "class": "Muon",
                        "fields": [
                            {"name": "pt", "type": "float32"},
                            {"name": "eta", "type": "float32"},
                            {"name": "hits", "type": {"list": "int32"}},
                        ],
                    }
                }
            },
        },
        {"name": "nJet", "type": "int8"},
        {"name": "Jet", "type": {"list": "float32"}},
        {"name": "met", "type": "float64"},
    ],
}
MUONS = [[{"pt": 1.5, "eta": 0.5, "hits": [1, 2]}, {"pt": 2.5, "eta": -0.5, "hits": []}], [], []]
ROWS = [
    {"run": n, "Muon": muons, "nJet": -n, "Jet": [0.5] * n, "met": n / 2} for n, muons in enumerate(MUONS)
]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.View]:
    with fb.create(tmp_path_factory.mktemp("projections") / "lhc.fed") as fed:
        with fed.transaction() as txn:
            txn.database("d", create=True).container("events", FORM, create=True).extend(ROWS)
        yield fed["d/events"]


def test_columns_come_in_the_order_asked_for_or_in_that_of_the_class(view: fb.View) -> None:
    """They came in the order in which they are stored, whatever was asked for."""
    assert view.arrays().fields == ["run", "Muon", "nJet", "Jet", "met"]
    asked = ["met", "Muon.eta", "run", "Muon.pt"]
    assert list(view.arrays(asked, library="np")) == ["met", "Muon.eta", "Muon.pt", "run"]
    for options in ({}, {"where": "run < 2"}, {"where": "run == 1"}):
        array = view.arrays(asked, **options)  # type: ignore[arg-type]
        assert array.fields == ["met", "Muon", "run"]
        assert array.Muon.fields == ["eta", "pt"]
    assert view.arrays(["met", "run"], where="run > 0").to_list() == [
        {"met": 0.5, "run": 1},
        {"met": 1.0, "run": 2},
    ]
    assert view.fetch([2, 0], ["met", "run"]).fields == ["met", "run"]
    assert list(view.arrays(["met", "r*", "/.*Jet/"], library="pa").column_names) == [
        "met", "run", "nJet", "Jet",
    ]  # fmt: skip
    assert next(view.iterate(["met", "run"], step_size=1)).fields == ["met", "run"]


def test_columns_of_an_older_class_come_in_its_order(tmp_path: Path) -> None:
    new = {"name": "A", "version": 2, "fields": [{"name": n, "type": "int32"} for n in ("c", "b", "a")]}
    old = {"name": "A", "fields": [{"name": n, "type": "int32"} for n in ("a", "b")]}
    with fb.create(tmp_path / "lhc.fed") as fed:
        with fed.transaction() as txn:
            txn.database("d", create=True).container("a", old, create=True).extend({"a": [1], "b": [2]})
        with fed.transaction() as txn:
            txn.database("d").container("a", new, evolve=True)
        assert fed["d/a"].arrays().to_list() == [{"c": 0, "b": 2, "a": 1}]
        assert fed["d/a"].arrays().fields == fed["d/a"].fields == ["c", "b", "a"]
        assert fed["d/a"].as_class(1).arrays().fields == ["a", "b"]


@pytest.mark.parametrize("options", [{}, {"where": "run < 2"}, {"where": "run == 0"}, {"entry_stop": 0}])
def test_counts_are_read_where_conditions_can_use_them(view: fb.View, options: dict[str, Any]) -> None:
    """`where="nMuon == 2"` was understood, `arrays("nMuon")` was not."""
    rows = {"run < 2": ROWS[:2], "run == 0": ROWS[:1]}.get(options.get("where", ""), ROWS)
    rows = rows[: options.get("entry_stop")]
    array = view.arrays(["nMuon", "run"], **options)
    assert array.fields == ["nMuon", "run"]
    assert array.nMuon.to_list() == [len(row["Muon"]) for row in rows]  # type: ignore[arg-type]
    assert view.arrays("nMuon", library="np", **options)["nMuon"].dtype == np.int64
    nested = view.arrays(["Muon.nhits", "Muon.pt", "nMuon"], **options)
    assert nested.Muon.fields == ["nhits", "pt"]
    assert nested.Muon.nhits.to_list() == [[len(m["hits"]) for m in row["Muon"]] for row in rows]  # type: ignore[attr-defined]


def test_field_named_like_a_count_is_the_field(view: fb.View) -> None:
    assert view.arrays(["nJet", "Jet"]).nJet.to_list() == [0, -1, -2]


def test_counts_are_read_by_every_method(view: fb.View, tmp_path: Path) -> None:
    assert view["nMuon"].to_list() == [2, 0, 0]
    assert view.fetch([2, 0], "nMuon").nMuon.to_list() == [0, 2]
    oids = view.oids[[2, 0]]
    assert view.snapshot.fetch(oids, ["run", "nMuon"], library="np")["nMuon"].tolist() == [0, 2]
    assert view[[0, 2]]["nMuon"].to_list() == [2, 0]
    assert [batch.nMuon.to_list() for batch in view.iterate("nMuon", step_size=2)] == [[2, 0], [0]]
    with fb.create(tmp_path / "other.fed") as other:
        for name in ("e.root", "e.parquet"):
            assert view.export(tmp_path / name, ["nMuon", "Muon.pt"]) == 3
            there = other[other.import_file(tmp_path / name, database=name).container]
            assert there.arrays("nMuon").nMuon.to_list() == [2, 0, 0]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("Muon_pt", "'Muon.pt'"), ("Muon_ptt", "'Muon.pt'"), ("nMoun", "'Muon'"), ("Muon.ptt", "'pt'")],
)
def test_name_of_a_flat_branch_is_answered_with_the_field(view: fb.View, wrong: str, meant: str) -> None:
    """The error for `Muon_pt` suggested the whole of `Muon`."""
    for expressions, where in ((wrong, None), ("run", f"{wrong} > 1"), (["run", wrong], None)):
        with pytest.raises(fb.NotFoundError, match=f"did you mean {meant}"):
            view.arrays(expressions, where)


def test_no_similar_names_are_looked_for_while_all_exist(
    view: fb.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nMuon` is no field: the error that says so was made, with its suggestions, and thrown away."""
    monkeypatch.setattr("femtobarn._schema.types.near_misses", None)
    assert view.arrays(["nMuon", "run"], "nMuon == 2 and len(Muon) > 1").to_list() == [{"nMuon": 2, "run": 0}]

"""Exports in podio's layout: read by real ROOT with podio's calls, by uproot, and by imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import pytest

pytest.importorskip("uproot", reason="the extra `io` is not installed")

import uproot

import femtobarn as fb
from femtobarn.cli import main
from femtobarn.definitions import array_of, define, list_of, record

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

MODEL = {
    "schema_version": 2,
    "components": {"my::Point": {"Members": ["float x [mm]", "float y{1.5} [mm]"]}},
    "datatypes": {
        "my::Hit": {"Members": ["my::Point at", "std::array<float, 2> cov", "bool good"]},
        "my::Track": {
            "Members": ["float pt"],
            "VectorMembers": ["my::Point states"],
            "OneToManyRelations": ["my::Hit hits"],
            "OneToOneRelations": ["my::Track seed"],
        },
    },
}

COLLECTIONS = [
    (11, "my::HitCollection", False, 2, "Hits", "std::vector<my::HitData>"),
    (12, "my::TrackCollection", False, 2, "Tracks", "std::vector<my::TrackData>"),
    (13, "my::TrackCollection", True, 2, "Good", "std::vector<my::TrackData>"),
    (14, "podio::LinkCollection<my::Track,my::Hit>", False, 1, "Links", "std::vector<podio::LinkData>"),
    (15, "podio::UserDataCollection<float>", False, 1, "Times", "std::vector<float>"),
]
INFO = {
    "collectionID": "uint32",
    "dataType": "string",
    "isSubset": "bool",
    "schemaVersion": "uint32",
    "name": "string",
    "storageType": "string",
}

IDS = list_of(record("ObjectID", ("index", "int32"), ("collectionID", "uint32")))
POINT = record("HitData_at", ("x", "float32"), ("y", "float32"))
HIT = record("HitData", ("at", POINT), ("cov", array_of("float32", 2)), ("good", "bool"))
ENDS = [(f"{name}_{end}", "uint32") for name in ("states", "hits") for end in ("begin", "end")]
FIELDS: dict[str, Any] = {
    "Hits": list_of(HIT),
    "Tracks": list_of(record("TrackData", ("pt", "float32"), *ENDS)),
    "_Tracks_states": list_of(POINT),
    "_Tracks_hits": IDS,
    "_Tracks_seed": IDS,
    "Good_objIdx": IDS,
    "Links": list_of(record("LinkData", ("weight", "float32"))),
    "_Links_from": IDS,
    "_Links_to": IDS,
    "Times": list_of("float32"),
    "GPIntKeys": list_of("string"),
    "GPIntValues": list_of(list_of("int32")),
}
"""An event as an import of a tree of podio makes it."""


def event(number: int) -> dict[str, Any]:
    """An event with as many hits and tracks as its number."""
    hits = [{"at": {"x": n + 0.5, "y": -n}, "cov": [n, 2 * n], "good": n % 2 == 0} for n in range(number)]
    track = {"states_begin": 0, "states_end": 1, "hits_begin": 0}
    return {
        "Hits": hits,
        "Tracks": [track | {"pt": 10.0 * n, "hits_end": number} for n in range(number)],
        "_Tracks_states": [{"x": 7.0, "y": 8.0}],
        "_Tracks_hits": [{"index": n, "collectionID": 11} for n in range(number)],
        "_Tracks_seed": number * [{"index": -2, "collectionID": 0}],
        "Good_objIdx": [{"index": number - 1, "collectionID": 12}],
        "Links": [{"weight": 0.25}],
        "_Links_from": [{"index": 0, "collectionID": 12}],
        "_Links_to": [{"index": 0, "collectionID": 11}],
        "Times": [0.5 * number],
        "GPIntKeys": ["run"],
        "GPIntValues": [[number, 5]],
    }


def metadata(**changes: Any) -> dict[str, Any]:
    """An entry of the metadata, as an import of a tree of podio makes it."""
    return {
        "events___CollectionTypeInfo": [dict(zip(INFO, each, strict=True)) for each in COLLECTIONS],
        "PodioBuildVersion": {"major": 1, "minor": 7, "patch": 0},
        "EDMDefinitions": [{"_1": json.dumps(MODEL), "_0": "my"}],
        "my___Version": {"major": 3, "minor": 2, "patch": 1},
    } | changes


VERSION = record("Version", ("major", "uint16"), ("minor", "uint16"), ("patch", "uint16"))
METADATA = {
    "events___CollectionTypeInfo": list_of(record("CollectionWriteInfo", *INFO.items())),
    "PodioBuildVersion": VERSION,
    "EDMDefinitions": list_of(record("Pair", ("_1", "string"), ("_0", "string"))),
    "my___Version": VERSION,
}


def store(fed: fb.Federation, entries: list[dict[str, Any]], **fields: Any) -> None:
    """Store events, perhaps with further fields, and the metadata of files."""
    events = [event(number) | {name: number * [1.0] for name in fields} for number in (1, 3, 2)]
    with fed.transaction() as txn:
        run = txn.database("run", create=True)
        form = define("events", *(FIELDS | fields).items())
        run.container("events", form, create=True).extend(events)
        run.container("podio_metadata", define("metadata", *METADATA.items()), create=True).extend(entries)


@pytest.fixture
def events(fed: fb.Federation) -> Any:
    store(fed, [metadata()])
    return fed["run/events"]


def read_by_podio(path: Path, project: Path, category: str = "events") -> tuple[Any, list[Any]]:
    """The metadata and the entries, as ROOT reads them with podio's calls, in a process of its own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(project / "tests/judges/podio_read.py"),
        str(path),
        category,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    head, *lines = map(json.loads, done.stdout.splitlines())
    return head, lines


@pytest.mark.judge
def test_podio_reads_each_kind_of_collection(events: Any, tmp_path: Path, project: Path) -> None:
    path = tmp_path / "run.root"
    assert events.to_root(path, layout="podio") == 3
    head, read = read_by_podio(path, project)
    assert head["PodioBuildVersion"] == [1, 7, 0]
    assert json.loads(dict(head["EDMDefinitions"])["my"]) == MODEL
    assert (head["availableCategories"], head["entries"]) == (["events"], 1)
    assert [tuple(each[name] for name in INFO) for each in head["events___CollectionTypeInfo"]] == COLLECTIONS
    assert [{name: each[name] for name in FIELDS} for each in read] == [event(1), event(3), event(2)]
    assert [each["GPStringValues"] for each in read] == [[], [], []]


@pytest.mark.judge
def test_podio_reads_events_of_its_own_that_were_imported_and_selected(
    fed: fb.Federation, files: Samples, tmp_path: Path, project: Path
) -> None:
    path = files.path("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root")
    fed.import_trees(path, database="ild")
    wanted = ["EventHeader", "MCParticles", "EfficientMCParticles", "SiTracks", "RecoMCTruthLink"]
    where = "nSiTracks > 5"
    count = fed["ild/events"].to_root(tmp_path / "skim.root", wanted, where, layout="podio")
    head, read = read_by_podio(tmp_path / "skim.root", project)
    expected = fed["ild/events"].arrays(list(read[0]), where)
    assert 0 < count == len(read) == len(expected) < 10
    for name in read[0]:
        assert are_equal([each[name] for each in read], expected[name].to_list()), name
    assert {each["name"] for each in head["events___CollectionTypeInfo"]} == set(wanted)


def are_equal(ours: Any, theirs: Any) -> bool:
    """Whether values are equal; NaN equals itself."""
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(are_equal, ours, theirs))
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(are_equal(ours[name], theirs[name]) for name in ours)
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def test_records_have_their_classes_on_disk(events: Any, tmp_path: Path) -> None:
    events.to_root(tmp_path / "run.root", layout="podio")
    with uproot.open(tmp_path / "run.root") as file:
        assert file.classnames() == {"events;1": "ROOT::RNTuple", "podio_metadata;1": "ROOT::RNTuple"}
        types = {name: file["events"].typenames()[name] for name in ("Tracks", "_Tracks_hits", "Times")}
        assert types == {
            "Tracks": "std::vector<my::TrackData>",
            "_Tracks_hits": "std::vector<podio::ObjectID>",
            "Times": "std::vector<float>",
        }
        assert file["events"].arrays().Tracks.pt.to_list() == events["Tracks.pt"].to_list()
        entry = file["podio_metadata"].arrays()[0]
    assert entry["my___Version"].to_list() == [3, 2, 1]


def test_exported_events_are_attached_and_exported_again(
    fed: fb.Federation, events: Any, tmp_path: Path
) -> None:
    events.to_root(tmp_path / "first.root", layout="podio")
    fed.attach(tmp_path / "first.root", "first")
    assert fed["first/events"].arrays(list(FIELDS)).to_list() == events.arrays().to_list()
    fed["first/events"].to_root(tmp_path / "second.root", layout="podio")
    fed.attach(tmp_path / "second.root", "second")
    assert fed["second/events"].arrays().to_list() == fed["first/events"].arrays().to_list()
    assert fed["second/podio_metadata"].arrays().to_list() == fed["first/podio_metadata"].arrays().to_list()


def test_exported_collections_bring_their_states_and_relations(events: Any, tmp_path: Path) -> None:
    events.export(tmp_path / "t.root", ["Tracks", "Good", "Times"], "nTracks > 1", layout="podio")
    with uproot.open(tmp_path / "t.root") as file:
        names = [name for name in file["events"].keys(recursive=False) if not name.startswith("GP")]
        infos = file["podio_metadata"]["events___CollectionTypeInfo"].array()[0]
        assert file["events"].num_entries == 2
    assert names == ["Tracks", "_Tracks_states", "_Tracks_hits", "_Tracks_seed", "Good_objIdx", "Times"]
    assert infos.name.to_list() == ["Tracks", "Good", "Times"]


def test_a_database_is_a_file_with_a_category_for_each_container_of_events(
    fed: fb.Federation, events: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.root")
    main(["export", str(fed.path), "run", path, "--layout", "podio", "--where", "nHits > 2"])
    assert "exported 1 objects" in capsys.readouterr().out
    with uproot.open(path) as file:
        assert file["podio_metadata"].arrays().availableCategories.to_list() == [["events"]]


def test_files_of_one_model_go_together(fed: fb.Federation, tmp_path: Path) -> None:
    store(fed, [metadata(), metadata(PodioBuildVersion={"major": 1, "minor": 8, "patch": 0})])
    events = fb.concat([fed["run/events"][:1], fed["run/events"]])
    assert events.export(tmp_path / "all.root", layout="podio") == 4
    with uproot.open(tmp_path / "all.root") as file:
        assert ak.num(file["events"].arrays().Hits).to_list() == [1, 1, 3, 2]
        assert file["podio_metadata"]["PodioBuildVersion"].array().to_list() == [[1, 8, 0]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "'Mine' belongs to no collection of 'events' that run/podio_metadata knows"),
        ({"expressions": "Tracks.pt"}, "whole collections; name 'Tracks' instead of 'Tracks.pt'"),
        ({"layout": "poodio"}, "'poodio' does not exist; did you mean 'podio'"),
        ({"format": "parquet"}, "that of ROOT files"),
        ({"aliases": {"a": "nHits"}}, "no computed columns"),
    ],
)
def test_export_refuses_fields_that_podio_cannot_store(
    fed: fb.Federation, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    store(fed, [metadata()], Mine=list_of("float32"))
    with pytest.raises(fb.InvalidError, match=reason):
        fed["run/events"].export(tmp_path / "x.root", **{"layout": "podio"} | options)
    assert not (tmp_path / "x.root").exists()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            '"float pt"',
            '"double pt"',
            "field 'Tracks' is .*TrackData.*, but list.my::TrackData. in the data model",
        ),
        ('"float pt"', '"float p"', "field 'Tracks' is"),
        ('"my::Hit hits"', '"my::Hit hits", "my::Hit more"', "field 'Tracks' is"),
        ('"my::Track seed"', '"my::Track seed", "my::Track last"', "'Tracks' needs the field '_Tracks_last'"),
        ("my::Track", "my::Trick", "no class 'my::Track'"),
        ('"std::array<float, 2> cov"', '"std::array<my::Point, 2> cov"', "'cov' is an array of components"),
    ],
)
def test_events_that_differ_from_the_data_model_are_refused(
    fed: fb.Federation, tmp_path: Path, before: str, after: str, reason: str
) -> None:
    text = json.dumps(MODEL)
    assert before in text
    text = text.replace(before, after)
    store(fed, [metadata(EDMDefinitions=[{"_0": "my", "_1": text}])])
    with pytest.raises(fb.FemtobarnError, match=reason):
        fed["run/events"].to_root(tmp_path / "x.root", layout="podio")


def test_events_without_metadata_or_with_contradicting_ones_are_refused(
    fed: fb.Federation, tmp_path: Path
) -> None:
    store(fed, [metadata(), metadata(EDMDefinitions=[{"_0": "my", "_1": "{}"}])])
    with pytest.raises(fb.InvalidError, match="files that differ in the data model 'my'"):
        fed.export("run/events", tmp_path / "x.root", layout="podio")
    with fed.transaction() as txn:
        txn.drop("run/podio_metadata")
    with pytest.raises(fb.NotFoundError, match=r"needs the container run/podio_metadata.*import_trees"):
        fed.export("run/events", tmp_path / "x.root", layout="podio")

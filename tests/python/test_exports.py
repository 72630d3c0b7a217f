"""Exports and imports: other programs read the exported files, and importing them gives equal objects."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import uproot

import femtobarn as fb

ENTRIES = 2500


@fb.persistent
class Hit:
    x: fb.float32
    cells: list[fb.uint16]


@fb.persistent
class Event:
    number: fb.uint32 = fb.field(description="of the event")
    name: str
    weight: float
    hits: list[Hit]
    best: fb.float32 | None
    first: Hit | None
    axes: fb.array[fb.float32, Literal[3]]
    raw: bytes
    previous: fb.link[Event]
    near: list[fb.link[Event]]
    half: fb.float16


@fb.persistent
class Links:
    previous: fb.link[Event]
    near: list[fb.link[Event]]


@fb.persistent
class Either:
    value: fb.variant[fb.int32, str]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> fb.Federation:
    fed = fb.create(tmp_path_factory.mktemp("exports") / "e.fed")
    with fed.transaction() as txn:
        database = txn.database("run", create=True)
        events = database.container("events", Event, create=True, cluster_size="64 KiB")
        oids: list[Any] = []
        for number in range(ENTRIES):
            oids.append(events.append(event(number, oids)))
        database.container("either", Either, create=True).extend([Either(value=1), Either(value="a")])
        database.container("empty", Hit, create=True)
    return fed


def event(number: int, oids: list[Any]) -> Event:
    hits = [Hit(x=number + i, cells=list(range(i))) for i in range(number % 4)]
    return Event(
        number=number,
        name=f"event {number}",
        weight=number / 7,
        hits=hits,
        best=None if number % 3 else number / 2,
        first=hits[0] if hits else None,
        axes=[number, 0, -number],
        raw=b"ab"[: number % 3],
        previous=oids[-1] if oids else None,
        near=oids[-2:],
        half=1.5,
    )


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".arrow", ".feather"])
def test_exported_objects_are_imported_unchanged(fed: fb.Federation, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events{suffix}"
    seen: list[tuple[int, int]] = []
    assert fed["run/events"].export(path, step_size=700, progress=lambda *at: seen.append(at)) == ENTRIES
    assert seen[-1] == (ENTRIES, ENTRIES)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    other = fb.create(tmp_path / "o.fed")
    imported = other.import_file(path, progress=lambda *at: seen.append(at))
    assert (imported.container, imported.entries) == ("events/events", ENTRIES)
    assert seen[-1] == (ENTRIES, ENTRIES)
    before, after = fed["run/events"].arrays(), other["events/events"].arrays()
    if suffix == ".root":
        # In an RNTuple an optional record becomes a list of at most one.
        before = ak.with_field(before, ak.fill_none(ak.singletons(before.first), []), "first")
        # Links become records of numbers, all zero for a null link.
        zeros = ak.zeros_like(before.previous[1])
        before = ak.with_field(before, ak.fill_none(before.previous, zeros), "previous")
    assert after.to_list() == before.to_list()
    types = {name: text for name, text in other["events/events"].typenames().items() if "." not in name}
    assert (types["number"], types["weight"], types["raw"]) == ("uint32", "float64", "bytes")
    assert (types["best"], types["axes"]) == ("float32 | None", "array[float32, 3]")


def test_uproot_reads_the_exported_ntuple(fed: fb.Federation, tmp_path: Path) -> None:
    fed["run/events"].export(
        tmp_path / "e.root", ["number", "hits", "axes"], "number % 2 == 1 and number > 9"
    )
    with uproot.open(tmp_path / "e.root") as file:
        assert file.classnames() == {"events;1": "ROOT::RNTuple"}
        read = file["events"].arrays()
    assert read.number.to_list() == list(range(11, ENTRIES, 2))
    expected = fed["run/events"].arrays(["number", "hits", "axes"], "number % 2 == 1 and number > 9")
    assert read.hits.x.to_list() == expected.hits.x.to_list()
    assert read.hits.cells.to_list() == expected.hits.cells.to_list()
    assert read.axes.to_list() == expected.axes.to_list()


@pytest.mark.judge
def test_root_reads_the_exported_ntuple(fed: fb.Federation, tmp_path: Path, project: Path) -> None:
    path = tmp_path / "run.root"
    fed.export("run", path)
    jobs = [
        {"file": str(path), "ntuple": name, "target": str(tmp_path / f"{name}.jsonl")}
        for name in ("events", "either", "empty")
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-W", "ignore", str(project / "tests/judges/root_read.py")]
    done = subprocess.run(
        [*command, "--batch", str(tmp_path / "jobs.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(ENTRIES))
    assert rows[-1]["previous"] == {"database": 1, "container": 1, "entry": ENTRIES - 2}
    assert (tmp_path / "empty.jsonl").read_text() == ""


def test_arrow_reads_the_exported_files(fed: fb.Federation, tmp_path: Path) -> None:
    view = fed["run/events"]
    view.export(tmp_path / "e.parquet", ["number", "hits.x", "best"], "number < 5")
    table = pq.read_table(tmp_path / "e.parquet")
    assert table.column("hits").to_pylist() == [[{"x": float(n + i)} for i in range(n % 4)] for n in range(5)]
    assert table.column("best").to_pylist() == [0.0, None, None, 1.5, None]
    view.export(tmp_path / "e.feather", "weight")
    assert pyarrow.feather.read_table(tmp_path / "e.feather").column("weight")[7].as_py() == 1.0


def test_a_container_without_objects_has_its_fields_in_every_file(fed: fb.Federation, tmp_path: Path) -> None:
    for suffix in (".root", ".parquet", ".arrow"):
        assert fed["run/empty"].export(tmp_path / f"empty{suffix}") == 0
        other = fb.create(tmp_path / f"{suffix[1:]}.fed")
        other.import_file(tmp_path / f"empty{suffix}")
        assert other["empty/empty"].keys() == ["x", "cells"]


def test_impossible_exports_are_refused(fed: fb.Federation, tmp_path: Path) -> None:
    view = fed["run/events"]
    with pytest.raises(fb.InvalidError, match="unknown suffix of"):
        view.export(tmp_path / "e.csv")
    with pytest.raises(fb.InvalidError, match="did you mean 'parquet'"):
        view.export(tmp_path / "e.csv", format="parqet")
    with pytest.raises(fb.InvalidError, match="holds one container, not 3"):
        fed.export("run", tmp_path / "e.parquet")
    with pytest.raises(fb.NotFoundError, match="did you mean 'weight'"):
        view.export(tmp_path / "e.parquet", "wieght")
    with pytest.raises(fb.UnsupportedError, match="'value' is variant"):
        fed.export("run/either", tmp_path / "e.parquet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "e.root").touch()
    with pytest.raises(fb.ExistsError, match="exists; remove it"):
        view.export(tmp_path / "e.root")


def test_an_export_that_is_interrupted_leaves_nothing(fed: fb.Federation, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    for suffix in (".root", ".parquet"):
        with pytest.raises(KeyboardInterrupt):
            fed["run/events"].export(tmp_path / f"e{suffix}", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_export_of_containers_with_one_name_adds_their_databases(fed: fb.Federation, tmp_path: Path) -> None:
    other = fb.create(tmp_path / "o.fed")
    for database in ("a", "b"):
        with other.transaction() as txn:
            hits = txn.database(database, create=True).container("hits", Hit, create=True)
            hits.append(Hit(x=1, cells=[]))
    assert other.export(["a", "b/hits"], tmp_path / "hits.root") == 2
    with uproot.open(tmp_path / "hits.root") as file:
        assert sorted(file.keys(cycle=False)) == ["a_hits", "b_hits"]
    with pytest.raises(fb.InvalidError, match="has RNTuples a_hits, b_hits; name one"):
        other.import_file(tmp_path / "hits.root")
    with pytest.raises(fb.NotFoundError, match="did you mean 'a_hits'"):
        other.import_file(tmp_path / "hits.root", ntuple="a_hit")
    imported = other.import_file(tmp_path / "hits.root", ntuple="b_hits", database="c", expressions="x")
    assert other[imported.container].keys() == ["x"]


def test_files_of_other_programs_are_imported(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a b": pa.array([1, 2, None], pa.int16()),
            "label": pa.array(["x", "y", "x"]).dictionary_encode(),
            "pairs": pa.array([[{"k": 1, "v": None}], [], [{"k": 2, "v": 2.5}]]),
            "all": pa.array([True, False, True]),
            "blob": pa.array([b"1", b"", b"23"]),
            "half": pa.array(np.array([1, 2, 3], np.float16)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    fed = fb.create(tmp_path / "f.fed")
    imported = fed.import_file(tmp_path / "t.parquet")
    view = fed[imported.container]
    assert {name: text for name, text in view.typenames().items() if "." not in name} == {
        "a_b": "int16 | None",
        "label": "string",
        "pairs": "list[pairs]",
        "all": "bool",
        "blob": "bytes",
        "half": "float16",
    }
    assert view.arrays("a_b").to_list() == [{"a_b": 1}, {"a_b": 2}, {"a_b": None}]
    assert view.arrays("label").label.to_list() == ["x", "y", "x"]
    assert view[0].pairs.to_list() == [{"k": 1, "v": None}]
    assert fed.import_file(tmp_path / "t.parquet", database="u", expressions="all", again=True).entries == 3


def test_impossible_imports_are_refused(tmp_path: Path) -> None:
    fed = fb.create(tmp_path / "f.fed")
    pq.write_table(pa.table({"t": pa.array([1], pa.duration("us"))}), tmp_path / "t.parquet")
    with pytest.raises(fb.InvalidError, match=r"column 't' of .* is duration\[us\]"):
        fed.import_file(tmp_path / "t.parquet")
    with pytest.raises(fb.NotFoundError, match=r"did you mean 't\.parquet'"):
        fed.import_file(tmp_path / "s.parquet")
    for suffix in ("parquet", "arrow", "root"):
        (tmp_path / f"x.{suffix}").write_bytes(b"not one of these files at all" * 10)
        with pytest.raises((fb.CorruptError, fb.InvalidError)):
            fed.import_file(tmp_path / f"x.{suffix}")
    assert fed.keys() == []


def test_imported_links_are_records_of_numbers(fed: fb.Federation, tmp_path: Path) -> None:
    fed.export("run/events", tmp_path / "e.root", "previous", "number == 2")
    other = fb.create(tmp_path / "f.fed")
    imported = other.import_file(tmp_path / "e.root")
    array: Any = other[imported.container].arrays()
    assert ak.to_list(array.previous) == [{"database": 1, "container": 1, "entry": 1}]


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".arrow"])
def test_export_to_a_full_disk_is_a_storage_error_and_leaves_nothing(
    fed: fb.Federation, tmp_path: Path, suffix: str
) -> None:
    """For Parquet and Arrow files it was a bare OSError, which `except fb.FemtobarnError` does not catch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(fb.StorageError, match="too large") as raised:
            fed["run/events"].export(tmp_path / f"e{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.kind == "storage"
    assert list(tmp_path.iterdir()) == []


def test_export_and_import_without_permission_are_denied(
    fed: fb.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exporting raised kind `storage`, like a full disk, and an imported file was reported as damaged."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for suffix in (".parquet", ".arrow"):
        fed["run/events"].export(tmp_path / f"there{suffix}")
    for library, name in (
        (pq, "ParquetWriter"),
        (pq, "ParquetFile"),
        (pa.ipc, "new_file"),
        (pa.ipc, "open_file"),
    ):
        monkeypatch.setattr(library, name, refuse)
    for suffix in (".parquet", ".arrow"):
        with pytest.raises(fb.DeniedError, match="Permission denied"):
            fed["run/events"].export(tmp_path / f"e{suffix}")
        with pytest.raises(fb.DeniedError, match="may not be read"):
            fed.import_file(tmp_path / f"there{suffix}", database="copy")


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".arrow"])
def test_export_to_a_missing_folder_is_not_found(fed: fb.Federation, tmp_path: Path, suffix: str) -> None:
    with pytest.raises(fb.NotFoundError, match=r"folder|No such file"):
        fed["run/events"].export(tmp_path / "none" / f"e{suffix}")


def test_null_links_are_exported_as_missing_and_copied_as_null(fed: fb.Federation, tmp_path: Path) -> None:
    view = fed["run/events"]
    view.export(tmp_path / "e.parquet", ["previous", "near"])
    table = pq.read_table(tmp_path / "e.parquet")
    assert table["previous"].null_count == 1
    with fb.create(tmp_path / "o.fed") as other, other.transaction() as txn:
        events = txn.database("run", create=True).container("links", Links, create=True)
        events.extend(table)
        events.extend(view.arrays(["previous", "near"]))
        links = events.view().arrays()
        assert ak.is_none(links.previous).to_list() == ([True] + [False] * (ENTRIES - 1)) * 2
        txn.rollback()

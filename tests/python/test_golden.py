"""Federations that earlier releases made can be read and written for ever."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

fb = pytest.importorskip("femtobarn", reason="the package is not built")

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
make: Any = importlib.import_module("make")

FORMATS = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("format-*.tar.gz"))


def unpacked(name: str, place: Path) -> str:
    """The folder of a golden federation, by the name of its format."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as packed:
        packed.extractall(place, filter="data")
    folder = str(place / "golden.fed")
    if (place / make.STORE).exists():
        make.write_storage_settings(folder)
    return folder


@pytest.fixture(params=FORMATS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The folder of a golden federation, and the name of its format."""
    return unpacked(request.param, tmp_path), request.param


def format_of(folder: str) -> int:
    """The number that earlier releases check first: they refuse a greater one than they know."""
    with closing(sqlite3.connect(Path(folder) / "catalogue.sqlite")) as catalogue:
        ((number,),) = catalogue.execute("SELECT value FROM federation WHERE key = 'format'")
    return int(number)


def test_a_golden_federation_of_each_current_format_exists() -> None:
    assert {f"format-{number}" for number in make.MAKERS} <= set(FORMATS)


def test_golden_federation_has_its_original_content(kept: tuple[str, str]) -> None:
    folder, name = kept
    found = json.loads(json.dumps(make.contents(folder), default=str))
    assert found == json.loads((GOLDEN / f"{name}.json").read_text())


def test_golden_federation_is_sound_and_writable(kept: tuple[str, str]) -> None:
    folder, _ = kept
    with fb.open(folder) as federation:
        report = federation.check(full=True)
        assert report.problems == []
        assert federation.find("run7/events", run=7, number=3).raw.name == "raw 3"
        with federation.transaction() as txn:
            events = txn.database("run7").container("events")
            events.update(0, quality=5)
            events.delete([1])
        assert federation["run7/events"][0].quality == 5
        assert len(federation["run7/events"]) == 18
        assert federation.check(full=True).sound


def test_a_release_that_only_reads_changes_no_format(kept: tuple[str, str]) -> None:
    folder, name = kept
    with fb.open(folder) as federation:
        assert federation.check(full=True).problems == []
        assert len(federation["run7/events"].arrays()) == 19
        federation.tag("seen")
        federation.vacuum()
    # So the release that made it can have it back.
    assert f"format-{format_of(folder)}" == name


def test_a_format_is_raised_only_by_the_first_use_that_needs_it(tmp_path: Path) -> None:
    folder = unpacked("format-2", tmp_path)
    with fb.open(folder) as federation:
        count = 20_000
        with federation.transaction() as txn:
            archived = txn.database("run7").container("archived")
            columns = {"run": 7, "event": 1, "weight": None, "pt": [1.5], "flag": True, "raw": None}
            archived.extend({name: [value] * count for name, value in columns.items()})
    assert format_of(folder) == 2, "a commit that syncs its file"
    folder = unpacked("format-2", tmp_path / "small")
    with fb.open(folder) as federation:
        # The first one begins an extent, which is synced.
        for entry in range(2):
            with federation.transaction() as txn:
                txn.database("run7").container("archived").delete([entry])
    assert format_of(folder) == 6, "small commits"
    folder = unpacked("format-2", tmp_path / "new")
    with fb.open(folder) as federation, federation.transaction() as txn:
        raws = txn.database("brief", create=True).container("raw", make.Raw, create=True)
        raws.append(make.Raw(hits=[], name="brief"))
    assert format_of(folder) == 7, "a small new database"
    folder = unpacked("format-2", tmp_path / "both")
    with fb.open(folder) as federation:
        for entry in range(3):
            with federation.transaction() as txn:
                txn.database("run7").container("archived").delete([entry])
        with federation.transaction() as txn:
            raws = txn.database("brief", create=True).container("raw", make.Raw, create=True)
            raws.append(make.Raw(hits=[], name="brief"))
    # Looked at when it is closed: another library that closes the file frees the locks of this process.
    assert format_of(folder) == 7, "a small new database after small commits"
    folder = unpacked("format-2", tmp_path / "another")
    make.write_storage_settings(folder)
    with fb.open(folder) as federation:
        federation.migrate("raw", make.STORE)
    assert format_of(folder) == 3


def test_sealed_golden_database_has_64_bit_offsets(kept: tuple[str, str]) -> None:
    # Its containers have 32-bit offsets, from which coffea silently reads wrong lists.
    uproot = pytest.importorskip("uproot", reason="the extra `io` is not installed")
    narrow = {14, 26}
    folder, _ = kept
    with fb.open(folder) as federation:
        expected = federation["run7/events"].arrays()
        federation.seal("run7")
        (path,) = (Path(row["path"]) for row in federation.databases() if row["name"] == "run7")
        assert federation["run7/events"].arrays().to_list() == expected.to_list()
        assert federation.check(full=True).sound
    with uproot.open(path) as file:
        for name in file.keys(cycle=False):
            assert not narrow & {column.type for column in file[name].header.column_records}, name
            assert len(file[name].footer.cluster_group_records) <= 1
            assert file[name].footer.extension_links.column_records == []
        assert sum(file["events"]["_deleted"].array()) == len(file["events"]["_deleted"].array()) - len(
            expected
        )


def test_golden_federations_keep_copies_and_pins(kept: tuple[str, str]) -> None:
    folder, name = kept
    with fb.open(folder) as federation:
        (raw,) = federation.where("raw")
        expected = federation["raw/raw"].arrays().to_list()
        if name == "format-3":
            assert (raw.state, [pin.holder for pin in raw.pins]) == ("both", ["golden"])
            federation.unpin("raw", holder="golden")
            assert federation.evict("raw") > 0
            federation.stage("raw")
            assert federation["raw/raw"].arrays().to_list() == expected
        else:
            assert raw.state == "online"


def test_catalogue_of_a_golden_federation_can_be_rebuilt(kept: tuple[str, str]) -> None:
    folder, _ = kept
    with fb.open(folder) as federation:
        before = {name: federation[name].arrays().to_list() for name in federation}
    (Path(folder) / "catalogue.sqlite").unlink()
    fb.rebuild_catalogue(folder)
    with fb.open(folder) as federation:
        assert {name: federation[name].arrays().to_list() for name in federation} == before

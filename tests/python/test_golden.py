"""Federations that earlier releases made can be read and written for ever."""

from __future__ import annotations

import importlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

fb = pytest.importorskip("femtobarn", reason="the package is not built")

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
make: Any = importlib.import_module("make")

FORMATS = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("format-*.tar.gz"))


@pytest.fixture(params=FORMATS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The folder of a golden federation, and the name of its format."""
    with tarfile.open(GOLDEN / f"{request.param}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    folder = str(tmp_path / "golden.fed")
    if (tmp_path / make.STORE).exists():
        make.write_storage_settings(folder)
    return folder, request.param


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


def test_what_golden_federations_have_beside_objects(kept: tuple[str, str]) -> None:
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

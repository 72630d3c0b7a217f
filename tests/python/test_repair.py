"""Repair mends damage as long as nothing is lost, from Python and from the command line."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Event:
    number: fb.uint64


@fb.persistent
class Wide:
    number: fb.uint64
    more: fb.uint64


@pytest.fixture
def location(tmp_path: Path) -> Path:
    path = tmp_path / "lhc.fed"
    for first in (0, 10):
        fed = fb.create(path) if first == 0 else fb.open(path)
        with fed, fed.transaction() as txn:
            events = txn.database("run7", create=True).container("events", Event, create=True)
            for number in range(first, first + 10):
                events.append(Event(number=number))
    return path


def flip(path: Path, at: int) -> None:
    file = path / "databases" / "run7.root"
    content = bytearray(file.read_bytes())
    content[at] ^= 4
    file.write_bytes(content)


def find(path: Path, wanted: bytes, which: int = 0) -> int:
    content = (path / "databases" / "run7.root").read_bytes()
    at = -1
    for _ in range(which + 1):
        at = content.index(wanted, at + 1)
    return at


def test_repair_mends_keys_of_a_file(location: Path) -> None:
    # The last byte of the position that the last key stores of itself.
    flip(location, find(location, b"\x05RBlob", 1) - 9)
    with fb.open(location) as fed:
        assert [problem.kind for problem in fed.check(full=True).problems] == ["Chain"]
        assert len(fed.repair(dry_run=True).done) == 1
        report = fed.repair()
        assert report.left == []
        assert report.done[0].startswith("run7: 1 keys were written to close gaps")
        assert fed.check(full=True).problems == []
        assert fed.repair() == fb.RepairReport(done=[], left=[])


def test_repair_salvages_only_on_request(location: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = b"".join(number.to_bytes(8, "little") for number in range(10, 20))
    flip(location, find(location, page))
    assert main(["repair", str(location)]) == EXIT_CODES["corrupt"]
    out, err = capsys.readouterr()
    assert "salvage reverts it to commit" in out
    assert "problems are left" in err
    main(["repair", str(location), "--salvage", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert "10 objects and all changes since are lost" in report["done"][0]
    assert all("until a vacuum" in problem["advice"] for problem in report["left"])
    with fb.open(location) as fed:
        fed.vacuum(keep_from=fed.head())
        assert fed.check(full=True).problems == []
        assert [int(event.number) for event in fed.snapshot()["run7/events"]] == list(range(10))
    assert main(["repair", str(location)]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_class_that_lacks_a_stored_field_is_reported(location: Path) -> None:
    """The check skipped fields that the class lacks, like unreadable fields of other programs' files."""
    with fb.open(location) as fed, fed.transaction() as txn:
        txn.database("run7").container("wide", Wide, create=True).append(Wide(number=1, more=2))
    with sqlite3.connect(location / "catalogue.sqlite") as catalogue:
        row = catalogue.execute("SELECT definition FROM classes WHERE name = 'Wide'").fetchone()
        definition = json.loads(row[0])
        del definition["fields"][1]
        catalogue.execute("UPDATE classes SET definition = ? WHERE name = 'Wide'", [json.dumps(definition)])
    with fb.open(location) as fed:
        assert {problem.kind for problem in fed.check().problems} == {"Disagreement"}

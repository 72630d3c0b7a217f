"""A database whose file has data where its front should be is mended from the catalogue.

Servers once let the call that lengthens a new file overtake the front of the file, and gave its first bytes
to data. `tests/golden/overtaken.tar.gz` has four such databases as that server left them: two of few
containers, one of many containers with changes, deletions and an index on top, and one with nothing but a
commit record.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import uproot

import femtobarn as fb
from femtobarn.cli import main

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MANY = "run-" + 120 * "7"


@pytest.fixture
def location(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "overtaken.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "overtaken.fed"


def contents(fed: fb.Federation) -> dict[int, dict[str, Any]]:
    """Return the contents of all kept snapshots."""
    snapshots = {csn: fed.snapshot(csn=csn) for csn in range(4, 8)}
    return {csn: {name: shot[name].arrays().to_list() for name in shot} for csn, shot in snapshots.items()}


def test_overwritten_front_is_reported_and_objects_stay_readable(location: Path) -> None:
    with fb.open(location) as fed:
        report = fed.check(full=True)
        assert [problem.kind for problem in report.problems] == 4 * ["Front"]
        assert all("repair moves these bytes" in problem.advice for problem in report.problems)
        assert len(contents(fed)[7][f"{MANY}/c0"]) == 4
        would = fed.repair(dry_run=True)
        assert (len(would.done), would.left) == (4, [])
        assert len(fed.check().problems) == 4


def test_repair_rewrites_an_overwritten_front_without_losing_snapshots(
    location: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fb.open(location) as fed, fb.open(location) as other:
        # The second handle keeps, for its next transaction, positions from before the repair.
        with other.transaction() as txn:
            txn.database("run1").container("c0").append({"n": 9, "x": [9.0]})
        before = contents(fed)
        assert contents(other) == before
        assert main(["repair", str(location)]) == 0
        assert capsys.readouterr().out.count("the front of its file was rewritten") == 4
        assert fed.check(full=True).problems == []
        assert contents(other) == before
        with other.transaction() as txn:
            txn.database("run1").container("c0").append({"n": 10, "x": []})
    with fb.open(location) as fed:
        assert contents(fed) == before
        assert fed.check(full=True).problems == []
        assert fed["run1/c0"].arrays(["n"])["n"].to_list() == [1, 2, 3, 9, 10]
        assert fed.repair() == fb.RepairReport(done=[], left=[])


def files(location: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (location / "databases").iterdir()}


def test_repair_that_was_killed_before_writing_fronts_is_continued(location: Path) -> None:
    """The catalogue had the new positions already, so the files were taken for those of other databases."""
    before = files(location)
    with fb.open(location) as fed:
        contained = contents(fed)
        assert len(fed.repair().done) == 4
    for path, mended in files(location).items():
        path.write_bytes(before[path] + mended[len(before[path]) :])
    with fb.open(location) as fed:
        assert [problem.kind for problem in fed.check(full=True).problems] == 4 * ["Front"]
        assert len(fed.repair().done) == 4
        assert fed.check(full=True).problems == []
        assert contents(fed) == contained
        newest = {name: fed[name].arrays().to_list() for name in fed}
    (location / "catalogue.sqlite").unlink()
    assert fb.rebuild_catalogue(location)["left_out"] == []
    with fb.open(location) as fed:
        assert {name: fed[name].arrays().to_list() for name in fed} == newest
        assert fed.check(full=True).problems == []


def test_commit_records_kept_by_vacuum_do_not_undo_their_transactions(location: Path) -> None:
    """A repair wrote them a second time, so that a rebuild took each commit for overwritten by another."""
    with fb.open(location) as fed:
        for names in (("run1", "run2"), ("run1",)):
            with fed.transaction() as txn:
                for name in names:
                    txn.database(name).container("c0").append({"n": 20, "x": []})
        fed.vacuum(keep_from=fed.head())
        assert len(fed.repair().done) == 4
        newest = {name: fed[name].arrays().to_list() for name in fed}
    (location / "catalogue.sqlite").unlink()
    assert fb.rebuild_catalogue(location)["left_out"] == []
    with fb.open(location) as fed:
        assert {name: fed[name].arrays().to_list() for name in fed} == newest
        assert fed.check(full=True).problems == []


def test_repaired_databases_can_be_rebuilt_written_remotely_and_sealed(location: Path) -> None:
    with fb.open(location) as fed:
        fed.repair()
        before = {name: fed[name].arrays().to_list() for name in fed}
    (location / "catalogue.sqlite").unlink()
    assert fb.rebuild_catalogue(location)["left_out"] == []
    with fb.open(location) as fed:
        assert {name: fed[name].arrays().to_list() for name in fed} == before
        assert fed.check(full=True).problems == []
        with fb.serve(location, port=0, address="127.0.0.1", anonymous="all") as server:
            remote = fb.open(server.url("/overtaken.fed"))
            with remote.transaction() as txn:
                txn.database(MANY).container("c0").append({"n": 11, "x": [1.0]})
            remote.close()
        before[f"{MANY}/c0"].append({"n": 11, "x": [1.0]})
        assert fed.check(full=True).problems == []
        for name in ("run1", MANY):
            fed.seal(name)
            with uproot.open(location / "databases" / f"{name}.root") as file:
                assert file["c0"].arrays(["n"])["n"].to_list()[-1] == before[f"{name}/c0"][-1]["n"]
        assert fed.check(full=True).problems == []

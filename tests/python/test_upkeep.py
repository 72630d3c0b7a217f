"""Upkeep of a federation, from Python and from the command line."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Hit:
    number: fb.uint32
    charge: fb.float32


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A federation with a history of eleven commits."""
    path = str(tmp_path / "lhc.fed")
    with fb.create(path) as fed:
        for first in range(0, 110, 10):
            with fed.transaction(message=f"from {first}") as txn:
                hits = txn.database("run7", create=True).container("hits", Hit, create=True)
                numbers = range(first, first + 10)
                hits.extend({"number": numbers, "charge": [n / 2 for n in numbers]})
    return path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a command prints."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tags_hold_snapshots_that_retention_gives_up(location: str) -> None:
    with fb.open(location) as fed:
        assert fed.tag("winter26", csn=3, message="for the conferences") == 3
        fed.set_retention(keep_commits=2)
        assert fed.retention() == {"keep_commits": 2, "keep_days": None}
        assert fed.vacuum(dry_run=True).versions == fed.vacuum().versions == 8
        assert len(fed.snapshot(tag="winter26")["run7/hits"]) == 30
        assert len(fed.snapshot(csn=10)["run7/hits"]) == 100
        with pytest.raises(fb.NotFoundError, match="horizon 10"):
            fed.snapshot(csn=5)
        with pytest.raises(fb.ExistsError):
            fed.tag("winter26")
        fed.untag("winter26")
        assert fed.tags() == []
        assert fed.vacuum().versions == 1
        with pytest.raises(fb.NotFoundError, match="winter26"):
            fed.snapshot(tag="winter26")


@pytest.mark.parametrize("number", [2**64, 10**30])
def test_numbers_of_more_than_64_bits_are_invalid(location: str, number: int) -> None:
    # They were bare OverflowErrors, which the command line showed as tracebacks.
    with fb.open(location) as fed:
        for call in (
            lambda: fed.set_retention(keep_days=number),
            lambda: fed.set_retention(keep_commits=number),
            lambda: fed.vacuum(keep_from=number),
            lambda: fed["run7/hits"].advise(sample=f"{number}"),
        ):
            with pytest.raises(fb.InvalidError, match=str(number)):
                call()
        with pytest.raises(fb.InvalidError, match="cannot be read as a size"):
            fed["run7/hits"].advise(sample="1.2.3 MB")


def test_an_open_snapshot_is_not_vacuumed(location: str) -> None:
    with fb.open(location) as fed:
        snapshot = fed.snapshot(csn=4)
        report = fed.vacuum(keep_from=11)
        assert report.kept == [4]
        assert snapshot["run7/hits"].arrays("number", library="np")["number"].tolist() == list(range(40))


def test_compact_merges_the_clusters_of_small_commits(location: str) -> None:
    with fb.open(location) as fed:
        with fed.transaction() as txn:
            txn.database("run7").container("hits").delete([0, 109])
        before = fed["run7/hits"].arrays().to_list()
        (done,) = fed.compact("run7/hits")
        assert (done.clusters_before, done.clusters, done.forgotten) == (11, 1, 2)
        assert fed["run7/hits"].arrays().to_list() == before
        containers, report = fed.tidy()
        assert containers[0].csn is None
        assert report.complete


def test_locks_and_waits_name_holder_and_waiter(location: str) -> None:
    with fb.open(location) as fed, fed.transaction() as txn:
        txn.database("run7").container("hits")
        (lock,) = (lock for lock in fed.locks() if lock["container"])
        assert lock["container"] == "run7/hits"
        assert "process" in lock["holder"]

        def wait() -> None:
            with pytest.raises(fb.BusyError, match="process"):
                fed.transaction(lock_timeout=2.0).database("run7").container("hits")

        waiter = threading.Thread(target=wait)
        waiter.start()
        found: list[dict[str, Any]] = []
        while waiter.is_alive() and not found:
            found = fed.waits()
        waiter.join()
        assert [wait["container"] for wait in found] == ["run7/hits"]
    with fb.open(location) as fed:
        assert fed.locks() == fed.waits() == []


def test_exception_in_progress_stops_the_work(location: str, tmp_path: Path) -> None:
    told: list[tuple[str, str, int, int]] = []

    def stop(*_: object) -> None:
        raise RuntimeError("enough")

    with fb.open(location) as fed:
        fed.check(full=True, progress=lambda *facts: told.append(facts))
        assert told[-1][0] == "checking"
        assert told[-1][2] <= told[-1][3]
        with pytest.raises(RuntimeError, match="enough"):
            fed.check(full=True, progress=stop)
        with pytest.raises(RuntimeError, match="enough"):
            fed.backup(tmp_path / "stopped", progress=stop)
    with pytest.raises(fb.NotFoundError, match="incomplete backup"):
        fb.restore(tmp_path / "stopped", tmp_path / "restored")


def test_full_and_incremental_backups_are_restored(location: str, tmp_path: Path) -> None:
    with fb.open(location) as fed:
        fed.backup(tmp_path / "full")
        with fed.transaction() as txn:
            txn.database("run7").container("hits").update(3, charge=99.0)
        fed.backup(tmp_path / "more", since=tmp_path / "full")
    with fb.restore([tmp_path / "full", tmp_path / "more"], tmp_path / "restored.fed") as restored:
        assert restored["run7/hits"][3].charge == 99.0
        assert restored.snapshot(csn=11)["run7/hits"][3].charge == 1.5


def test_detached_database_is_attached_with_its_content(location: str, tmp_path: Path) -> None:
    with fb.open(location) as fed:
        with fed.transaction() as txn:
            hits = txn.database("run7").container("hits")
            hits.create_index("number", "number", unique=True)
            hits.delete([5])
        path = fed.detach("run7", to=tmp_path / "moved.root")
        assert fed.keys() == []
    facts = fb.identify(path)
    assert (facts["kind"], facts["database"], facts["containers"][0]["deleted"]) == (
        "open database",
        "run7",
        1,
    )
    with fb.create(tmp_path / "other.fed") as other:
        other.attach(path)
        assert other.find("moved/hits", number=42).charge == 21.0
        assert len(other["moved/hits"]) == 109


def test_catalogue_is_rebuilt_from_database_files(location: str) -> None:
    (Path(location) / "catalogue.sqlite").write_bytes(b"no catalogue")
    with pytest.raises(fb.FemtobarnError):
        fb.open(location)
    facts = fb.rebuild_catalogue(location)
    assert (facts["head"], facts["left_out"]) == (11, [])
    with fb.open(location) as fed:
        assert len(fed["run7/hits"]) == 110
        assert len(fed.snapshot(csn=2)["run7/hits"]) == 20


def test_commands_of_operators(location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "backup")
    assert shown(capsys, "tag", location, "v1", "--csn", "2")[0]["csn"] == 2
    assert shown(capsys, "index", location, "run7/hits", "number", "--unique")[0]["keys"] == 110
    catalogue = shown(capsys, "catalogue", location, "--tag", "v1")
    assert catalogue["databases"][0]["containers"][0]["entries"] == 20
    assert shown(capsys, "what", f"{location}/databases/run7.root")[0]["kind"] == "open database"
    assert shown(capsys, "check", location, "--full")["sound"]
    assert shown(capsys, "locks", location) == shown(capsys, "waits", location) == []
    assert shown(capsys, "compact", location, "run7")[0]["clusters"] == 1
    assert shown(capsys, "vacuum", location, "--keep-from", "13")["versions"] == 11
    assert shown(capsys, "tidy", location)["vacuum"]["complete"]
    assert shown(capsys, "backup", location, folder)["files"] == 2
    assert shown(capsys, "restore", f"{folder}.fed", folder)["csn"] == 13
    assert shown(capsys, "rebuild-catalogue", f"{folder}.fed")["head"] == 13
    file = shown(capsys, "detach", location, "run7", "--to", str(tmp_path / "out.root"))["file"]
    assert shown(capsys, "attach", location, file)[0]["containers"] == ["hits"]
    for command in ("tag", "catalogue", "check", "locks", "waits", "tidy"):
        assert main([command, location]) == 0
    assert "out.root" in capsys.readouterr().out


def test_retention_is_shown_and_set(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    everything = {"keep_commits": None, "keep_days": None}
    assert shown(capsys, "retention", location) == everything
    assert shown(capsys, "vacuum", location)["versions"] == 0
    assert shown(capsys, "retention", location, "--keep-commits", "3") == everything | {"keep_commits": 3}
    limits = shown(capsys, "retention", location, "--keep-days", "0")
    assert limits == {"keep_commits": 3, "keep_days": 0}
    assert main(["retention", location]) == 0
    assert "the newest 3 commits and the commits of the last 0 days" in capsys.readouterr().out
    assert shown(capsys, "vacuum", location)["versions"] == 8
    assert main(["retention", location, "--keep-all", "--keep-days", "1"]) == EXIT_CODES["invalid"]
    assert "--keep-all" in capsys.readouterr().err
    assert shown(capsys, "retention", location, "--keep-all") == everything


def test_check_fails_where_objects_are_lost(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(location) / "databases" / "run7.root"
    damaged = path.read_bytes().replace(
        b"".join(n.to_bytes(4, "little") for n in range(10, 14)), b"\xff" * 16
    )
    path.write_bytes(damaged)
    assert main(["check", location, "--full"]) == EXIT_CODES["corrupt"]
    out, err = capsys.readouterr()
    assert "damage: run7/hits" in out
    assert "see femtobarn repair" in err

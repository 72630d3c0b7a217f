"""Federations: transactions, snapshots, processes and threads, sealed files."""

from __future__ import annotations

import multiprocessing
import operator
import os
import pickle
import threading
from contextlib import suppress
from pathlib import Path

import awkward as ak
import pytest

import femtobarn as fb
from events import Event, Hit, Raw, fill


def test_exception_rolls_the_transaction_back(fed: fb.Federation) -> None:
    txn = fed.transaction()
    with suppress(RuntimeError), txn:
        txn.database("d", create=True).container("raw", Raw, create=True).append(Raw(number=1, hits=[]))
        raise RuntimeError
    assert list(fed) == []
    assert fed.head() == 0
    with pytest.raises(fb.ClosedError):
        txn.database("d", create=True)


def test_snapshots_never_change(fed: fb.Federation) -> None:
    fill(fed)
    before = fed.snapshot()
    with fed.transaction(message="more") as txn:
        raw = txn.database("raw").container("objects")
        raw.append(Raw(number=99, hits=[]))
        assert len(before["raw/objects"]) == 10
    assert txn.csn == fed.head() == before.csn + 1
    assert len(before["raw/objects"]) == 10
    assert len(fed["raw/objects"]) == 11
    assert len(fed.snapshot(csn=before.csn)["raw/objects"]) == 10
    assert [commit["message"] for commit in fed.history()] == ["more", "fill"]
    moment = fed.history()[1]["time"]
    assert fed.snapshot(time=moment).csn == before.csn
    assert fed.snapshot(time=moment.isoformat()).csn == before.csn
    with pytest.raises(fb.NotFoundError):
        fed.snapshot(csn=1000)
    with pytest.raises(fb.InvalidError):
        fed.snapshot(csn=1, time=0)


@pytest.mark.parametrize("csn", [-1, 2**64, 10**30])
def test_number_that_no_commit_can_have_is_invalid(fed: fb.Federation, csn: int) -> None:
    # It was an OverflowError, which the command line showed as a traceback.
    for read in (
        lambda: fed.snapshot(csn=csn),
        lambda: fed.tag("v1", csn=csn),
        lambda: fed.conditions(csn=csn),
        lambda: fed.conditions.create_tag("v1", csn=csn),
    ):
        with pytest.raises(fb.InvalidError, match=f"{csn} is not the number of a commit: give an integer"):
            read()
    with pytest.raises(fb.NotFoundError):
        fed.snapshot(csn=2**64 - 1)
    with pytest.raises(fb.WrongTypeError, match=r"must be an integer, not 1\.5"):
        fed.snapshot(csn=1.5)  # type: ignore[arg-type]


def test_snapshot_is_a_mapping(fed: fb.Federation) -> None:
    fill(fed)
    snapshot = fed.snapshot()
    assert list(snapshot) == ["raw/objects", "reco/events"]
    assert "raw/objects" in snapshot
    assert "raw/none" not in snapshot
    assert len(snapshot) == 2
    assert dict(snapshot)["reco/events"].num_entries == 10
    assert [database["name"] for database in snapshot.databases()] == ["raw", "reco"]
    assert snapshot.containers("raw")[0]["entries"] == 10


def test_database_file_is_in_the_folder_of_its_place(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        hits = txn.database("raw", create=True, place="disk1").container("hits", Hit, create=True)
        hits.append(Hit(x=1.5, charge=2))
        with pytest.raises(fb.InvalidError, match="invalid place name"):
            txn.database("reco", create=True, place="a/b")
    with fb.open(fed.path) as again:
        assert again["raw/hits"][0].charge == 2
        [row] = again.databases()
        assert Path(row["path"]) == Path(fed.path) / "databases" / "disk1" / "raw.root"
    fed.seal("raw")
    assert fed["raw/hits"][0].charge == 2
    assert fed.check(full=True).sound


def test_reserved_space_that_is_unused_is_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "lhc.fed"
    with fb.create(folder) as fed, fed.transaction() as txn:
        database = txn.database("raw", create=True)
        database.reserve("5 MB")
        file = folder / "databases" / "raw.root"
        assert file.stat().st_size > 5_000_000
        with pytest.raises(fb.InvalidError, match="the limit is 1 GB"):
            database.reserve(2_000_000_000)
        database.container("hits", Hit, create=True).append(Hit(x=1.5, charge=2))
    assert file.stat().st_size < 100_000
    with fb.open(folder) as fed:
        assert len(fed["raw/hits"]) == 1


def test_wrong_class_is_refused(fed: fb.Federation) -> None:
    fill(fed)
    with fed.transaction() as txn:
        raw = txn.database("raw")
        with pytest.raises(fb.InvalidError, match="holds objects of class Raw, not Event"):
            raw.container("objects", Event)
        with pytest.raises(fb.InvalidError, match="needs a class"):
            raw.container("new", create=True)
        with pytest.raises(fb.NotFoundError):
            raw.container("objekts")
        with pytest.raises(fb.NotFoundError):
            txn.database("rwa")


def test_second_writer_is_busy(fed: fb.Federation) -> None:
    fill(fed)
    with fed.transaction() as first:
        first.database("raw").container("objects")
        with fed.transaction(lock_timeout=0.1) as second, pytest.raises(fb.BusyError, match=str(os.getpid())):
            second.database("raw").container("objects")


def test_pickles_reopen_the_federation(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"][2:8]
    for thing in (fed, fed.snapshot(), events, events[0], events[0].oid):
        again = pickle.loads(pickle.dumps(thing))
        assert type(again) is type(thing)
    assert pickle.loads(pickle.dumps(events)).arrays("event").event.to_list() == [2, 3, 4, 5, 6, 7]
    assert pickle.loads(pickle.dumps(events[1])).event == 3


def test_workers_of_other_processes_read_views(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        parts = pool.map(operator.methodcaller("arrays", "event"), [events[:5], events[5:]])
    assert ak.concatenate(parts).event.to_list() == list(range(10))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_cannot_use_open_objects_of_its_parent(fed: fb.Federation) -> None:
    fill(fed)
    events = fed["reco/events"]
    txn = fed.transaction()
    txn.database("raw").container("objects").append(Raw(number=10, hits=[]))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            events.arrays("event")
        except fb.ClosedError:
            with fb.open(fed.path) as again:
                code = 0 if len(again["reco/events"]) == 10 else 2
            del txn, events
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    txn.commit()
    assert len(fed["raw/objects"]) == 11


def test_closed_federation_refuses_reads(tmp_path: Path) -> None:
    fed = fb.create(tmp_path / "a.fed", name="alice")
    fill(fed)
    view = fed["reco/events"]
    assert repr(fed) == f"<Federation 'alice' at {tmp_path / 'a.fed'}>"
    fed.close()
    for attempt in (fed.head, fed.snapshot, fed.transaction, lambda: view.arrays("event")):
        with pytest.raises(fb.ClosedError):
            attempt()


def test_create_and_open_refuse_unusable_paths(tmp_path: Path) -> None:
    fb.create(tmp_path / "a.fed").close()
    with pytest.raises(fb.ExistsError):
        fb.create(tmp_path / "a.fed")
    with pytest.raises(fb.NotFoundError):
        fb.open(tmp_path / "b.fed")
    with pytest.raises(KeyError):
        fb.open(tmp_path / "b.fed")


def test_threads_append_to_one_container(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.database("d", create=True).container("raw", Raw, create=True)

        def write() -> None:
            for number in range(5000):
                raw.append({"number": number, "hits": []})

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert int(ak.sum(fed["d/raw"].arrays("number").number)) == 4 * sum(range(5000))


def test_sealed_database_is_readable_and_refuses_writes(fed: fb.Federation) -> None:
    fill(fed)
    fed.seal("raw")
    assert fed["raw/objects"].arrays("number").number.to_list() == list(range(10))
    states = {row["name"]: row["state"] for row in fed.databases()}
    assert states == {"raw": "sealed", "reco": "open"}
    with fed.transaction() as txn, pytest.raises(fb.ClosedError):
        txn.database("raw").container("objects")


def test_sealed_file_is_attached_elsewhere_with_its_links(fed: fb.Federation, tmp_path: Path) -> None:
    fill(fed)
    for database in ("raw", "reco"):
        fed.seal(database)
    with fb.create(tmp_path / "other.fed") as other:
        attached = [other.attach(row["path"]) for row in fed.databases()]
        assert [item.name for item in attached] == ["raw", "reco"]
        assert attached[1].containers == ["events"]
        assert other["reco/events"][7].raw.number == 7
        with pytest.raises(fb.ExistsError):
            other.attach(fed.databases()[0]["path"], "again")


def test_uproot_reads_a_sealed_file(fed: fb.Federation) -> None:
    uproot = pytest.importorskip("uproot")
    fill(fed)
    fed.seal("reco")
    path = next(row["path"] for row in fed.databases() if row["name"] == "reco")
    with uproot.open(path) as file:
        events = file["events"].arrays(["event", "met"])
    assert events.event.to_list() == list(range(10))
    assert events.met.to_list() == [n / 2 for n in range(10)]


@pytest.mark.parametrize("content", [b"", b"not a ROOT file at all" * 100, b"root" + b"\0" * 1000])
def test_foreign_files_are_refused(fed: fb.Federation, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.root"
    path.write_bytes(content)
    with pytest.raises((fb.InvalidError, fb.CorruptError)):
        fed.attach(path)
    with pytest.raises(fb.NotFoundError):
        fed.attach(tmp_path / "none.root")
    assert fed.head() == 0

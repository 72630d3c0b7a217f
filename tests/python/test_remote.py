"""A federation behind a server has the same API as one in a local folder."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from server_settings import QUICK_STOP

import femtobarn as fb


@fb.persistent
class Hit:
    """A hit."""

    charge: fb.float32


@fb.persistent
class Event:
    """An event."""

    run: fb.uint32
    event: fb.uint32
    pt: list[fb.float32]


@fb.persistent
class Cell:
    """A cell with a hit."""

    hit: fb.link[Hit]


@pytest.fixture
def local(tmp_path: Path) -> fb.Federation:
    """A federation in a folder, with a hit."""
    federation = fb.create(tmp_path / "lhc.fed")
    with federation.transaction() as txn:
        database = txn.database("run7", create=True)
        database.container("hits", Hit, create=True).append(Hit(charge=0.5))
        database.container("events", Event, create=True)
    return federation


@pytest.fixture
def server(local: fb.Federation) -> Iterator[fb.Server]:
    """A server of that federation."""
    with fb.serve(local.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server:
        yield server


@pytest.fixture
def remote(server: fb.Server) -> Iterator[fb.Federation]:
    """The same federation, through the server."""
    with fb.open(server.url("/lhc.fed")) as federation:
        yield federation


def test_remote_federation_shows_the_same_content(
    local: fb.Federation, remote: fb.Federation, server: fb.Server
) -> None:
    assert (remote.name, remote.uuid, remote.head()) == (local.name, local.uuid, local.head())
    assert remote.path == server.url("/lhc.fed")
    assert list(remote) == ["run7/hits", "run7/events"]
    assert [row["message"] for row in remote.history()] == [row["message"] for row in local.history()]


def test_remote_writes_are_seen_locally(local: fb.Federation, remote: fb.Federation) -> None:
    entries = 30_000
    with remote.transaction(message="remote") as txn:
        database = txn.database("run7")
        events = database.container("events")
        events.append(Event(run=7, event=0, pt=[1.0, 2.0]))
        numbers = np.arange(1, entries, dtype="u4")
        columns = {"run": np.full(entries - 1, 7, "u4"), "event": numbers, "pt": [[3.0]] * (entries - 1)}
        events.extend(columns)
        database.container("cells", Cell, create=True).append(Cell(hit=remote["run7/hits"].oid(0)))
    for federation in (local, remote):
        view = federation["run7/events"]
        assert len(view) == entries
        assert view.arrays("event").event.to_numpy().sum() == entries * (entries - 1) // 2
        assert view.arrays("event", where="event == 777").event.to_list() == [777]
        assert list(view[0].pt) == [1.0, 2.0]
        assert federation["run7/cells"][0].hit.charge == 0.5
    assert local.check().sound


def test_remote_updates_deletions_and_tags_work(local: fb.Federation, remote: fb.Federation) -> None:
    with remote.transaction() as txn:
        events = txn.database("run7").container("events")
        for number in range(10):
            events.append(Event(run=7, event=number, pt=[]))
    before = remote.head()
    remote.tag("winter")
    with remote.transaction() as txn:
        events = txn.database("run7").container("events")
        events.update(3, event=33)
        events.delete(4)
        other = txn.database("run8", create=True).container("events", Event, create=True)
        other.append(Event(run=8, event=1, pt=[1.0]))
    assert local["run7/events"].arrays("event").event.to_list() == [0, 1, 2, 33, 5, 6, 7, 8, 9]
    assert remote.snapshot(csn=before)["run7/events"].arrays("event").event.to_list() == list(range(10))
    assert local.snapshot(tag="winter").csn == before
    assert len(local["run8/events"]) == 1
    assert local.check().sound


def test_database_file_is_in_the_folder_of_its_place(local: fb.Federation, remote: fb.Federation) -> None:
    with remote.transaction() as txn:
        events = txn.database("run8", create=True, place="disk1").container("events", Event, create=True)
        events.append(Event(run=8, event=1, pt=[1.0]))
    with remote.transaction() as txn:
        again = txn.database("run8", create=True, place="elsewhere")
        again.container("events").append(Event(run=8, event=2, pt=[]))
        with pytest.raises(fb.InvalidError, match="invalid place name"):
            txn.database("run9", create=True, place="../locks")
    databases = Path(local.path) / "databases"
    assert sorted(path.name for path in databases.iterdir()) == ["disk1", "run7.root"]
    assert [path.name for path in (databases / "disk1").iterdir()] == ["run8.root"]
    for federation in (local, remote):
        assert federation["run8/events"].arrays("event").event.to_list() == [1, 2]
    assert local.check(full=True).sound


def test_second_remote_writer_is_busy(local: fb.Federation, remote: fb.Federation, server: fb.Server) -> None:
    with remote.transaction() as txn, fb.open(server.url("/lhc.fed")) as other:
        txn.database("run7").container("events").append(Event(run=7, event=1, pt=[]))
        with (
            other.transaction(lock_timeout=0.1) as second,
            pytest.raises(fb.BusyError, match="container run7/events is locked by"),
        ):
            second.database("run7").container("events").append(Event(run=7, event=2, pt=[]))
    assert local["run7/events"].arrays("event").event.to_list() == [1]


def test_failed_remote_transaction_leaves_nothing(local: fb.Federation, remote: fb.Federation) -> None:
    def fails() -> None:
        with remote.transaction() as txn:
            txn.database("run7").container("events").append(Event(run=7, event=1, pt=[]))
            raise RuntimeError

    head = remote.head()
    with pytest.raises(RuntimeError):
        fails()
    assert (local.head(), len(remote["run7/events"])) == (head, 0)
    assert local.locks() == []


def test_upkeep_is_refused_remotely(remote: fb.Federation) -> None:
    for work in (remote.vacuum, remote.check, lambda: remote.seal("run7")):
        with pytest.raises(fb.UnsupportedError, match="run it on the server"):
            work()


def test_pickled_remote_federation_is_reopened(remote: fb.Federation) -> None:
    again = pickle.loads(pickle.dumps(remote))
    assert again.uuid == remote.uuid
    again.close()


def test_remote_write_without_permission_is_denied(local: fb.Federation) -> None:
    with (
        fb.serve(local.path, port=0, address="127.0.0.1") as server,
        fb.open(server.url("/lhc.fed")) as remote,
        pytest.raises(fb.DeniedError, match="is read-only"),
        remote.transaction() as txn,
    ):
        txn.database("run7").container("events").append(Event(run=7, event=1, pt=[]))
    assert len(local["run7/events"]) == 0


def test_secrets_in_urls_are_neither_shown_nor_pickled(server: fb.Server) -> None:
    def at(name: str) -> str:
        return f"root://anna:s3cret@127.0.0.1:{server.port}//{name}?authz=Bearer%20s3cret"

    with fb.open(at("lhc.fed")) as remote:
        for each in (remote, remote.snapshot(), remote["run7/hits"]):
            assert "s3cret" not in repr(each)
            assert b"s3cret" not in pickle.dumps(each)
        assert remote["run7/hits"].arrays()["charge"].tolist() == [0.5]
        assert "s3cret" not in json.dumps(server.status())
    for wrong in (at("none.fed"), at("lhc.fed").replace("root:", "rot:"), at("lhc.fed").replace("1:", "1:x")):
        with pytest.raises(fb.FemtobarnError) as refused:
            fb.open(wrong)
        assert "s3cret" not in str(refused.value)


def test_connecting_to_no_server_fails_at_once(local: fb.Federation) -> None:
    """A closed port was tried for a minute."""
    with fb.serve(local.path, port=0, address="127.0.0.1") as server:
        url = server.url("/lhc.fed")
    with pytest.raises(fb.UnavailableError, match="cannot be reached"):
        fb.open(url)
    with pytest.raises(ConnectionError):
        fb.open(url, timeout=3600)
    with pytest.raises(fb.InvalidError, match="invalid timeout"):
        fb.open(url, timeout=-1)


def test_stopped_server_is_unavailable_after_the_timeout(local: fb.Federation, tmp_path: Path) -> None:
    """The error was of kind `storage`. It comes after the timeout."""
    config = tmp_path / "server.toml"
    config.write_text("[limits]\ndrain_seconds = 0")
    with fb.serve(local.path, port=0, address="127.0.0.1", anonymous="all", config=config) as server:
        remote = fb.open(server.url("/lhc.fed"), timeout=0.5)
        txn = remote.transaction()
        txn.database("run7").container("events").append(Event(run=7, event=1, pt=[]))
    with pytest.raises(fb.UnavailableError):
        txn.commit()
    with pytest.raises(fb.UnavailableError):
        remote.head()
    assert len(local["run7/events"]) == 0


def test_url_without_a_federation_is_not_found(server: fb.Server) -> None:
    with pytest.raises(fb.NotFoundError, match="no federation"):
        fb.open(server.url("/nothing.fed"))
    with pytest.raises(fb.InvalidError, match="root://host:port//name"):
        fb.open("ftp://somewhere/lhc.fed")


@pytest.mark.parametrize("streams", [0, 1, 4])
def test_arrays_are_read_remotely_with_any_number_of_streams(
    server: fb.Server, local: fb.Federation, streams: int
) -> None:
    url, entries = server.url("/lhc.fed"), 200_000
    numbers = np.arange(entries, dtype="u4")
    pt = np.random.default_rng(7).random((entries, 20), dtype="f4")
    with local.transaction() as txn:
        txn.database("run7").container("events").extend({"run": numbers, "event": numbers, "pt": pt})
    with fb.open(url, cache_bytes=1 << 20, threads=1, streams=streams) as remote:
        assert np.array_equal(remote["run7/events"].arrays("pt").pt.to_numpy(), pt)
    with pytest.raises(OverflowError):
        fb.open(url, streams=-1)


def test_the_folder_of_a_disk_cache_is_for_its_user_alone(server: fb.Server, tmp_path: Path) -> None:
    """All users of the machine could read what a token was needed for at the server."""
    (tmp_path / "shared").mkdir(mode=0o770)
    for name, mode in (("made", 0o700), ("shared", (tmp_path / "shared").stat().st_mode & 0o777)):
        with fb.open(server.url("/lhc.fed"), disk_cache=tmp_path / name) as remote:
            assert len(remote["run7/hits"].arrays()) == 1
        assert (tmp_path / name).stat().st_mode & 0o777 == mode, name


def test_disk_cache_keeps_read_bytes(server: fb.Server, local: fb.Federation, tmp_path: Path) -> None:
    entries = 200_000
    numbers = np.arange(entries, dtype="u4")
    pt = np.random.default_rng(7).random((entries, 20), dtype="f4")
    with local.transaction() as txn:
        txn.database("run7").container("events").extend({"run": numbers, "event": numbers, "pt": pt})

    def read(server: fb.Server, kept: int = 1 << 30) -> int:
        """Read all of `pt`; return the bytes that the server read for it."""
        before = server.status()["totals"]["bytes_read"]
        url = server.url("/lhc.fed")
        with fb.open(url, disk_cache=tmp_path / "kept", disk_cache_bytes=kept) as remote:
            assert np.array_equal(remote["run7/events"].arrays("pt").pt.to_numpy(), pt)
        return int(server.status()["totals"]["bytes_read"] - before)

    assert read(server) > pt.nbytes
    assert read(server) < pt.nbytes / 20
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*.bytes")) < 2 * pt.nbytes
    local.backup(tmp_path / "backup")
    with local.transaction() as txn:
        txn.database("run7").container("events").delete(7)
    whole, pt = pt, np.delete(pt, 7, axis=0)
    assert read(server) < pt.nbytes / 2, "unchanged pages come from the cache"
    assert read(server, kept=0) > pt.nbytes / 2

    pt = whole
    with (
        fb.restore(tmp_path / "backup", tmp_path / "again" / "lhc.fed") as restored,
        fb.serve(restored.path, port=0, address="127.0.0.1") as again,
    ):
        assert read(again) > pt.nbytes, "bytes of a later state are not used for a restored federation"


def test_many_remote_writers_commit_concurrently(local: fb.Federation, remote: fb.Federation) -> None:
    with remote.transaction() as txn:
        database = txn.database("run9", create=True)
        for number in range(4):
            database.container(f"events{number}", Event, create=True)

    def write(number: int) -> None:
        for event in range(20):
            with remote.transaction() as txn:
                container = txn.database("run9").container(f"events{number}")
                container.append(Event(run=9, event=event, pt=[]))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for number in range(4):
        assert local[f"run9/events{number}"].arrays("event").event.to_list() == list(range(20))


def test_clients_continue_after_a_server_restart(local: fb.Federation) -> None:
    first = fb.serve(local.path, port=0, address="127.0.0.1", anonymous="all")
    with fb.open(first.url("/lhc.fed")) as remote:
        with remote.transaction() as txn:
            txn.database("run7").container("events").append(Event(run=7, event=1, pt=[]))
        first.stop()
        with fb.serve(local.path, port=first.port, address="127.0.0.1", anonymous="all"):
            assert remote["run7/events"].arrays("event").event.to_list() == [1]
            with remote.transaction() as txn:
                txn.database("run7").container("events").append(Event(run=7, event=2, pt=[]))
    assert local["run7/events"].arrays("event").event.to_list() == [1, 2]


def test_the_command_line_takes_urls(server: fb.Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "femtobarn", "ls", server.url("/lhc.fed")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "run7/events" in done.stdout


def test_reading_in_order_uses_read_ahead_unless_it_is_off(local: fb.Federation, server: fb.Server) -> None:
    with local.transaction() as txn:
        events = txn.database("run7").container("events")
        for number in range(400):
            events.append(Event(run=7, event=number, pt=[float(number)] * 2500))
    with local.transaction() as txn:
        later = txn.database("run7").container("later", Event, create=True)
        for number in range(400):
            later.append(Event(run=7, event=number, pt=[float(number)] * 2500))

    def read(read_ahead_bytes: int) -> tuple[int, int]:
        """Read all objects in order; return the requests and bytes that the server counted."""
        remote = fb.open(server.url("/lhc.fed"), read_ahead_bytes=read_ahead_bytes)
        before = server.status()["totals"]
        view = remote["run7/events"]
        assert [int(view[index].pt[-1]) for index in range(400)] == list(range(400))
        after = server.status()["totals"]
        remote.close()
        return after["requests"] - before["requests"], after["bytes_read"] - before["bytes_read"]

    requests, size = read(0)
    assert requests >= 400
    assert size < 400 * 10_000 * 1.1, "only requested bytes are read"
    requests_ahead, size_ahead = read(1 << 20)
    assert requests_ahead < requests / 4
    assert size_ahead < size * 1.1, "read-ahead stops at the end of the container"

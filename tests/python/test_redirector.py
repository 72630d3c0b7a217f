"""A server without data redirects clients to servers that have it: ours, and XRootD's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from data_servers import (
    QUICK,
    DataServer,
    data_servers,
    filled_servers,
    patient_run,
    redirector,
    redirector_process,
)
from followed import put, url_of
from server_settings import QUICK_STOP
from test_redirects import Copies
from waiting import free_port, wait_for

import femtobarn as fb

CONTENT = np.random.default_rng(5).bytes(3_000_000)

Pair = tuple[DataServer, DataServer]


@pytest.fixture(params=["ours", "xrootd"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with filled_servers(request.param, tmp_path, CONTENT) as servers:
        yield servers


def address(server: fb.Server) -> str:
    return f"root://127.0.0.1:{server.port}"


def fetched(server: fb.Server, name: str, opaque: str = "") -> bytes:
    """A file, as xrdcp copies it to its output."""
    command = ["xrdcp", "--silent", "--force", f"{address(server)}//data/{name}{opaque}", "-"]
    return subprocess.run(command, check=True, capture_output=True, timeout=60, env=QUICK).stdout


def is_fetched(server: fb.Server, name: str) -> bool:
    """Whether a file is there, with its name as its content."""
    try:
        return fetched(server, name) == name.encode()
    except subprocess.CalledProcessError:
        return False


SCRIPT = """
import json, sys
from threading import Event
from XRootD import client
from XRootD.client.flags import OpenFlags
file = client.File()
# Without this flag the client opens a file again at the server that failed.
status, _ = file.open(sys.argv[1], OpenFlags.READ)
assert status.ok, status.message
status, first = file.read(0, 1000)
assert status.ok, status.message
print(json.dumps([file.get_property("DataServer"), len(first)]), flush=True)
for line in sys.stdin:
    got, ended = [], Event()
    def end(*answer):
        got.extend(answer)
        ended.set()
    status = file.read(int(line), 1000, callback=end)
    assert status.ok, status.message
    print("asked", flush=True)
    ended.wait()
    status, data, _ = got
    assert status.ok, status.message
    print(json.dumps([file.get_property("DataServer"), data.hex()]), flush=True)
"""


class Reader:
    """A process with XRootD's client that has a file open."""

    def __init__(self, url: str) -> None:
        pytest.importorskip("XRootD")
        command = [sys.executable, "-c", SCRIPT, url]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=QUICK)
        assert self.answer() == "1000"

    def answer(self) -> str:
        """The line that the process prints about its read; notes the server that has the file open."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the client failed"
        server, what = json.loads(line)
        self.server = str(server)
        return str(what)

    @property
    def host(self) -> str:
        return self.server.rsplit(":", 1)[0]

    def ask(self, offset: int) -> None:
        """Let XRootD's client begin to read."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{offset}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "asked\n"

    def read(self, offset: int) -> bytes:
        self.ask(offset)
        return self.got()

    def got(self) -> bytes:
        return bytes.fromhex(self.answer())

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)


def test_clients_get_files_from_the_servers_that_have_them(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        assert server.exports == ["/data"]
        for name in ("one.bin", "two.bin"):
            assert fetched(server, name) == name.encode()
        assert fetched(server, "both.bin") == CONTENT
        for path in ("/data/both.bin", "*"):
            located, _ = patient_run("xrdfs", address(server), "locate", path)
            assert {line.split()[0] for line in located.splitlines()} == {
                f"[::{it.address.replace(':', ']:')}" for it in pair
            }
        located, _ = patient_run("xrdfs", address(server), "locate", "-r", "/data/two.bin")
        assert located.split()[0] == f"[::127.0.0.2]:{two.port}"
        stated, _ = patient_run("xrdfs", address(server), "stat", "/data/both.bin")
        assert f"Size:   {len(CONTENT)}" in stated
        listed, _ = patient_run("xrdfs", address(server), "ls", "/data")
        assert listed.split() == ["/data/both.bin", "/data/one.bin", "/data/two.bin"]
        uproot = pytest.importorskip("uproot")
        with uproot.recreate(tmp_path / "made.root") as made:
            made["tree"] = {"x": np.arange(1000)}
        two.put("tree.root", (tmp_path / "made.root").read_bytes())
        with uproot.open({f"{address(server)}//data/tree.root": "tree"}) as tree:
            assert tree["x"].array().tolist() == list(range(1000))
        # Another client follows the redirects of a cache: ours.
        kept = tmp_path / "kept"
        with fb.serve(kept, cache_of=url_of(server), port=0, address="127.0.0.1", config=QUICK_STOP) as cache:
            assert fetched(cache, "both.bin") == CONTENT
            assert fetched(cache, "two.bin") == b"two.bin"
        status = server.status()
        redirects = [it["redirects"] for it in status["data_servers"]]
        assert all(count >= 1 for count in redirects), redirects
        assert status["exports"] == [], "what others have takes no space here"


def test_clients_share_servers_out_and_never_meet_one_that_they_have_tried(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        url = f"{address(server)}//data/both.bin"
        seen = set()

        def are_both_seen() -> bool:
            with Reader(url) as reader:
                seen.add(reader.host)
            return seen == {one.host, two.host}

        wait_for(are_both_seen)
        for tried, left in ((one, two), (two, one)):
            for _ in range(3):
                with Reader(f"{url}?tried={tried.host}&triedrc=ioerr") as reader:
                    assert reader.host == left.host
        _, said = patient_run("xrdcp", "-f", f"{url}?tried={one.host},{two.host}", "-", code=54)
        assert f"{one.address} was tried, has it; {two.address} was tried, has it" in said


def test_two_clients_make_a_file_at_one_server(pair: Pair, tmp_path: Path) -> None:
    source = tmp_path / "new"
    source.write_bytes(CONTENT)
    program = shutil.which("xrdcp")
    assert program is not None
    # Each has a redirector of its own.
    with redirector(*(it.url for it in pair)) as first, redirector(*(it.url for it in pair)) as second:
        for number in range(8):
            name = f"new{number}.bin"
            commands = [[program, "-f", str(source), f"{address(it)}//data/{name}"] for it in (first, second)]
            both = [subprocess.Popen(command, env=QUICK) for command in commands]
            # One of them may find the file open by the other one.
            assert 0 in [each.wait(60) for each in both]
            assert sum(it.has(name) for it in pair) == 1


def test_files_are_made_and_changed_at_a_server(pair: Pair, tmp_path: Path) -> None:
    with redirector(*(it.url for it in pair)) as server:
        source = tmp_path / "new"
        source.write_bytes(CONTENT)
        at: list[tuple[bool, ...]] = []

        def are_both_used() -> bool:
            name = f"new{len(at)}.bin"
            # Before it is there, no server has it.
            patient_run("xrdfs", address(server), "stat", f"/data/{name}", code=54)
            patient_run("xrdcp", "--silent", source, f"{address(server)}//data/{name}")
            assert fetched(server, name) == CONTENT
            at.append(tuple(it.has(name) for it in pair))
            assert sum(at[-1]) == 1, "a new file is made once"
            return len(set(at)) == 2

        wait_for(are_both_used)
        # It is changed where it is, and nowhere else.
        patient_run("xrdcp", "--silent", "--force", source, f"{address(server)}//data/two.bin")
        assert (pair[1].folder / "two.bin").read_bytes() == CONTENT
        assert not pair[0].has("two.bin")
        patient_run("xrdfs", address(server), "mv", "/data/two.bin", "/data/moved.bin")
        assert pair[1].has("moved.bin")
        summed, _ = patient_run("xrdfs", address(server), "query", "checksum", "/data/moved.bin")
        assert summed.startswith("adler32 ")
        patient_run("xrdfs", address(server), "rm", "/data/moved.bin")
        assert not pair[1].has("moved.bin")
        patient_run("xrdfs", address(server), "mkdir", "-p", "/data/a/b")
        assert sum(it.has("a/b") for it in pair) == 1
        # New files in a folder that one server has are made there.
        patient_run("xrdcp", "--silent", source, f"{address(server)}//data/a/b/new.bin")
        assert [it.has("a/b/new.bin") for it in pair] == [it.has("a/b") for it in pair]
        one = pair[0]
        one.put("other.bin", b"other")
        _, said = patient_run("xrdfs", address(server), "mv", "/data/moved.bin", "/data/x", code=54)
        assert "no server for /data/moved.bin" in said
        pair[1].put("mine.bin", b"mine")
        _, said = patient_run("xrdfs", address(server), "mv", "/data/mine.bin", "/data/other.bin", code=54)
        assert f"/data/other.bin exists at {one.address}" in said
        assert (one.folder / "other.bin").read_bytes() == b"other"
        assert pair[1].has("mine.bin")


def test_a_file_that_no_server_has_is_an_error_until_it_appears(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        _, said = patient_run("xrdcp", "-f", f"{address(server)}//data/late.bin", "-", code=54)
        assert "[3011] no server for /data/late.bin: " in said
        for each in pair:
            assert f"{each.address} says NotFound" in said
        two.put("late.bin", b"late.bin")
        wait_for(lambda: is_fetched(server, "late.bin"))
        _, said = patient_run("xrdfs", address(server), "stat", "/elsewhere", code=54)
        assert "/elsewhere is not below /data" in said


def test_a_client_continues_when_its_server_is_killed(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        with Reader(f"{address(server)}//data/both.bin") as reader:
            first, other = (one, two) if reader.host == one.host else (two, one)
            # XRootD's client recovers a read that is on its way when the connection ends, not a later one.
            first.stop()
            reader.ask(2_000_000)
            time.sleep(1)
            first.kill()
            # Clients that are sent there before it is known to be dead come back.
            for _ in range(4):
                assert fetched(server, "both.bin") == CONTENT
            assert reader.got() == CONTENT[2_000_000:2_001_000]
            for offset in (0, 1_500_000):
                assert reader.read(offset) == CONTENT[offset : offset + 1000]
            assert reader.host == other.host
        wait_for(lambda: sum(it["is_up"] for it in server.status()["data_servers"]) == 1)
        _, said = patient_run("xrdfs", address(server), "stat", f"/data/{first.folder.parent.name}", code=54)
        assert f"{first.address} is down" in said
        (why,) = (it["why_down"] for it in server.status()["data_servers"] if not it["is_up"])
        assert why not in said, "clients learn no more of its state"
        listed, _ = patient_run("xrdfs", address(server), "ls", "/data")
        assert "/data/both.bin" in listed


def test_a_hanging_server_delays_no_reader_of_other_servers(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        fetched(server, "both.bin")
        one.stop()
        try:
            # Files of the other server are found at once, or when the one that hangs counts as down.
            assert fetched(server, "two.bin") == b"two.bin"
            _, said = patient_run("xrdfs", address(server), "stat", "/data/one.bin", code=54)
            assert re.search(f"{one.address} (is down|has not answered)", said), said
            wait_for(lambda: not server.status()["data_servers"][0]["is_up"])
            for _ in range(4):
                assert fetched(server, "both.bin") == CONTENT
            assert server.status()["data_servers"][1]["is_up"], "it was asked for what the other one has"
        finally:
            one.go_on()
        wait_for(lambda: is_fetched(server, "one.bin"))
        assert all(it["is_up"] for it in server.status()["data_servers"])


def test_a_server_that_was_late_once_is_not_down(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        # Longer than the redirector waits for an answer, and shorter than for two.
        one.stop()
        seen = []
        end = time.monotonic() + 2.8
        while time.monotonic() < end:
            seen.append(server.status()["data_servers"][0]["is_up"])
            time.sleep(0.1)
        one.go_on()
        assert all(seen)
        assert fetched(server, "one.bin") == b"one.bin"
        assert server.status()["data_servers"][0]["is_up"]


METALINK = """<?xml version="1.0" encoding="utf-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="both.bin">{urls}</file></metalink>
"""


def test_two_redirectors_share_nothing(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    servers = (one.url, two.url)
    # Clients tell redirectors apart by their hosts.
    with (
        redirector_process(*servers, host="127.0.0.3") as (second, process),
        redirector(*servers) as first,
    ):
        for each in (f"root://{second}", address(first)):
            copied, _ = patient_run("xrdcp", "-f", f"{each}//data/one.bin", "-")
            assert copied == "one.bin"
        # A redirector behind another one is not used, so no client goes in circles.
        with redirector(f"root://{second}//data", two.url, up=1) as third:
            why = "is a manager, not a server with files"
            wait_for(lambda: third.status()["data_servers"][0]["why_down"] == why)
            assert fetched(third, "two.bin") == b"two.bin"
        with Reader(f"root://{second}//data/both.bin") as reader:
            process.kill()
            process.wait()
            assert reader.read(1_000_000) == CONTENT[1_000_000:1_001_000], "reads need no redirector"
        both = [f"root://{second}", address(first)]
        urls = [f'<url priority="{at + 1}">{it}//data/both.bin</url>' for at, it in enumerate(both)]
        list_of_both, copy = tmp_path / "both.meta4", tmp_path / "copy"
        list_of_both.write_text(METALINK.format(urls="".join(urls)))
        patient_run("xrdcp", "--silent", list_of_both, copy)
        assert copy.read_bytes() == CONTENT, "the first is asked if the second is dead"


def test_readers_reach_copies_of_a_federation_through_its_leader(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    port = free_port()
    config = tmp_path / "redirects.toml"
    config.write_text(f'{QUICK_STOP.read_text()}\n[redirect]\nfollowers = ["127.0.0.1:{port}"]\n')
    with (
        fb.create(tmp_path / "lhc.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", config=config) as leader,
    ):
        put(fed, "run1/hits", 500)
        expected = fed["run1/hits"].arrays("x")["x"].tolist()
        with Copies(url_of(leader), tmp_path, [port]), redirector(url_of(leader)) as server:
            wait_for(lambda: [it["at"] for it in leader.status()["copy_servers"]] == [1])
            seen = set()

            def are_both_seen() -> bool:
                with Reader(f"{address(server)}//lhc.fed/run1.root") as reader:
                    seen.add(reader.server)
                return seen == {f"127.0.0.1:{leader.port}", f"127.0.0.1:{port}"}

            wait_for(are_both_seen)
            url = f"{address(server)}//lhc.fed/run1.root"
            with uproot.open({url: "hits"}) as hits:
                assert hits["x"].array().tolist() == expected
            listed, _ = patient_run("xrdfs", address(server), "ls", "/lhc.fed")
            assert "/lhc.fed/run1.root" in listed
            put(fed, "run1/hits", 7)
            with uproot.open({f"{url}?fb.csn=2": "hits"}) as hits:
                assert hits.num_entries == 507


def test_the_command_redirects(tmp_path: Path) -> None:
    with data_servers("ours", tmp_path) as (one, two):
        two.put("two.bin", b"two")
        with redirector_process(one.url, two.url, host="127.0.0.1") as (place, process):
            # A client that comes before it is known which servers are up is told to wait.
            copied, _ = patient_run("xrdcp", "-f", f"root://{place}//data/two.bin", "-")
            assert copied == "two"
            process.terminate()
            assert process.wait(60) == 0


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for to, said in (
        (["root://a//x", "root://b//y"], "must have the path"),
        (["a:1094"], "not a URL"),
        (["root://a:1//x", "root://a:2//x"], "a name or address of its own"),
    ):
        with pytest.raises(fb.InvalidError, match=said):
            fb.serve(redirect_to=to, port=0, address="127.0.0.1")
    (tmp_path / "data").mkdir()
    with pytest.raises(fb.InvalidError, match="serves no folders"):
        fb.serve(tmp_path / "data", redirect_to=["root://a//x"], port=0, address="127.0.0.1")

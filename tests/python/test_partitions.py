"""Servers that their network cuts off from each other silently, and that come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from data_servers import QUICK, served_process
from followed import Changes, assert_same, contents, put
from networks import Machine, network
from waiting import wait_for

import femtobarn as fb

CONTENT = np.random.default_rng(9).bytes(40_000_000)


@contextmanager
def following(at: Machine, leader: str, folder: Path) -> Iterator[None]:
    """A process that follows a leader."""
    command = [*at.here, sys.executable, "-m", "femtobarn", "follow", leader, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def csn_of(folder: Path) -> int:
    """The newest commit of a copy; 0 before it has any."""
    try:
        with fb.open(folder) as copy:
            return copy.head()
    except fb.FemtobarnError:
        return 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_follower_that_was_cut_off_has_all_when_it_comes_back(tmp_path: Path, restarts: bool) -> None:
    """The leader forgets snapshots meanwhile, and perhaps the connection."""
    copy = tmp_path / "copy.fed"
    with ExitStack() as stack:
        here, there = stack.enter_context(network("leader", "follower"))
        fed = stack.enter_context(closing(fb.create(tmp_path / "lhc.fed")))
        changes = Changes(fed, 1, tmp_path)
        put(fed, "run1/hits", 5000)
        serving = stack.enter_context(ExitStack())
        server = served_process(fed.path, host=here.address, before=here.here)
        facts, _ = serving.enter_context(server)
        leader = f"root://{here.address}:{facts['port']}//lhc.fed"
        stack.enter_context(following(there, leader, copy))
        wait_for(lambda: csn_of(copy) == fed.head())
        there.cut_off()
        with fb.open(copy) as older:
            csn, before = older.head(), contents(older.snapshot())
            for _ in range(60):
                changes.make()
            if restarts:
                serving.close()
                again = served_process(fed.path, host=here.address, port=facts["port"], before=here.here)
                serving.enter_context(again)
            time.sleep(3)
            assert (older.head(), contents(older.snapshot())) == (csn, before), "a complete, older state"
        there.come_back()
        wait_for(lambda: csn_of(copy) == fed.head())
        with fb.open(copy) as last:
            assert_same(last, fed, fed.head())
            assert last.check(full=True).problems == []


def reader(at: Machine, url: str) -> subprocess.Popen[str]:
    """A process that reads a file in many pieces, and prints the server of each, and the checksum of all."""
    # Without the flag READ the client opens a file again at the server that failed.
    script = (
        "import sys, time, zlib\nfrom XRootD import client\nfrom XRootD.client.flags import OpenFlags\n"
        "file = client.File()\n"
        "status, _ = file.open(sys.argv[1], OpenFlags.READ)\nassert status.ok, status.message\nsum = 0\n"
        f"for at in range(0, {len(CONTENT)}, 1_000_000):\n"
        "    status, data = file.read(at, 1_000_000)\n    assert status.ok, status.message\n"
        "    sum = zlib.crc32(data, sum)\n    print(file.get_property('DataServer'), flush=True)\n"
        "    time.sleep(0.1)\nprint(sum)\n"
    )
    environment = {**QUICK, "XRD_STREAMTIMEOUT": "3", "XRD_TIMEOUTRESOLUTION": "1"}
    command = [*at.here, sys.executable, "-c", script, url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)


def test_readers_continue_when_the_server_of_their_file_is_cut_off(tmp_path: Path) -> None:
    pytest.importorskip("XRootD")
    with ExitStack() as stack:
        one, two, between, client = stack.enter_context(network("one", "two", "redirector", "client"))
        options = []
        for machine, name in ((one, "one"), (two, "two")):
            (tmp_path / name / "data").mkdir(parents=True)
            (tmp_path / name / "data/run7.bin").write_bytes(CONTENT)
            started = served_process(
                "data", host=machine.address, before=machine.here, folder=tmp_path / name
            )
            facts, _ = stack.enter_context(started)
            options += ["--redirect-to", f"root://{machine.address}:{facts['port']}//data"]
        facts, _ = stack.enter_context(served_process(*options, host=between.address, before=between.here))
        address = f"{between.address}:{facts['port']}"

        def up() -> list[bool]:
            asked = [*between.here, sys.executable, "-m", "femtobarn", "top", address, "-n", "1", "--json"]
            told = subprocess.run(asked, check=True, capture_output=True).stdout
            return [server["is_up"] for server in json.loads(told)["data_servers"]]

        wait_for(lambda: up() == [True, True])
        began = time.monotonic()
        with reader(client, f"root://{address}//data/run7.bin") as process:
            assert process.stdout is not None
            used = process.stdout.readline().rsplit(":", 1)[0].strip()
            lost, left = (one, two) if used == one.address else (two, one)
            lost.cut_off()
            *others, checksum = process.stdout.read().split()
        assert process.returncode == 0
        assert int(checksum) == zlib.crc32(CONTENT)
        assert others[-1].startswith(left.address)
        assert time.monotonic() - began < 60
        assert up() == [machine is left for machine in (one, two)]
        lost.come_back()
        wait_for(lambda: up() == [True, True])

"""The leader lists its copies, and sends readers to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from followed import put, url_of
from server_settings import QUICK_STOP
from waiting import free_ports, stop_process

import femtobarn as fb


def test_the_leader_lists_its_copies(leader: tuple[fb.Federation, fb.Server], tmp_path: Path) -> None:
    fed, server = leader
    put(fed, "run1/hits", 5)
    with fb.follow(url_of(server), tmp_path / "copy.fed", name="root://b//lhc.fed") as follower:
        follower.catch_up()
        follower.step()
        (copy,) = server.status()["followers"]
        assert (copy["name"], copy["at"], copy["behind"]) == ("root://b//lhc.fed", 1, 0)
        put(fed, "run1/hits", 5)
        assert server.status()["followers"][0]["behind"] == 1


class Copies:
    """Copies of a federation, each served under its name by a process that follows."""

    def __init__(self, leader_url: str, folder: Path, ports: list[int]) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        for port in ports:
            place = folder / f"copy{port}" / "lhc.fed"
            place.parent.mkdir()
            command = [sys.executable, "-m", "femtobarn", "follow", leader_url, str(place), "-p", str(port)]
            process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            self.processes.append(process)
            assert json.loads(process.stdout.readline())["url"].endswith(f":{port}//lhc.fed")

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def redirected_to(server: fb.Server, path: str, opaque: str = "") -> int:
    """Open a file with XRootD's client, read it, and return the port of the server that had it."""
    code = (
        "import sys; from XRootD import client; f = client.File(); status, _ = f.open(sys.argv[1]);"
        "assert status.ok, status; status, data = f.read(0, 1 << 20); assert status.ok and data;"
        "print(f.get_property('DataServer'))"
    )
    url = f"root://127.0.0.1:{server.port}/{path}{opaque}"
    # The client tries for two minutes to connect to a server that is dead, unless it is told otherwise.
    quick = os.environ | {"XRD_CONNECTIONWINDOW": "1", "XRD_CONNECTIONRETRY": "1"}
    command = [sys.executable, "-c", code, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=quick)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.strip().rsplit(":", 1)[1])


def test_readers_are_redirected_to_copies_that_have_their_snapshot(tmp_path: Path) -> None:
    pytest.importorskip("XRootD")
    ports = free_ports(2)
    config = tmp_path / "redirects.toml"
    servers = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    config.write_text(f"{QUICK_STOP.read_text()}\n[redirect]\nfollowers = [{servers}]\n")
    with ExitStack() as stack:
        fed = stack.enter_context(fb.create(tmp_path / "lhc.fed"))
        put(fed, "run1/hits", 500)
        server = stack.enter_context(fb.serve(fed.path, port=0, address="127.0.0.1", config=config))
        copies = stack.enter_context(Copies(url_of(server), tmp_path, ports))
        deadline = time.monotonic() + 30
        while sum(it["at"] == 1 for it in server.status()["copy_servers"]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        seen = {redirected_to(server, "/lhc.fed/run1.root") for _ in range(12)}
        assert seen >= set(ports), seen
        fed.tag("now")
        assert {redirected_to(server, "/lhc.fed/run1.root", "?fb.tag=now") for _ in range(3)} == {server.port}
        # Both stop: whoever asks for what they do not have stays at the leader.
        for process in copies.processes:
            stop_process(process)
        put(fed, "run1/hits", 1)
        assert {redirected_to(server, "/lhc.fed/run1.root") for _ in range(3)} == {server.port}
        for process in copies.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
        # A client that is sent to a dead server comes back.
        assert {redirected_to(server, "/lhc.fed/run1.root", "?fb.csn=1") for _ in range(6)} == {server.port}

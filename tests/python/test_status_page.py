"""Status pages of servers that work with others: a redirector, a cache, and a leader with copies."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from data_servers import DataServer, count_up, ours
from followed import put, url_of
from server_settings import QUICK_STOP
from test_caching_servers import our_cache
from test_redirects import Copies
from waiting import free_port, wait_for

import femtobarn as fb

CONTENT = bytes(range(256)) * 400


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[DataServer]:
    with ours(tmp_path / "origin", "127.0.0.1") as server:
        yield server


def page(port: int, folder: Path, part: str = "") -> str:
    """The page of a server as a browser shows it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"http://127.0.0.1:{port}/{part}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert 'role="alert" hidden' in done.stdout
    return done.stdout


def top(port: int, *options: str) -> str:
    command = [
        sys.executable,
        "-m",
        "femtobarn",
        "top",
        f"127.0.0.1:{port}",
        "-n",
        "1",
        "-d",
        "0.1",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def told(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def read(server: fb.Server, name: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/data/{name}", timeout=30) as answer:
        content: bytes = answer.read()
    return content


def test_people_see_the_servers_behind_a_redirector(origin: DataServer, tmp_path: Path) -> None:
    origin.put("run1.bin", CONTENT)
    with ExitStack() as stack:
        dead = stack.enter_context(ours(tmp_path / "dead", "127.0.0.3"))
        cache = stack.enter_context(our_cache(origin, tmp_path / "kept", "127.0.0.2"))
        server = stack.enter_context(
            fb.serve(
                redirect_to=[origin.url, dead.url],
                redirect_caches=cache,
                port=0,
                address="127.0.0.1",
                config=QUICK_STOP,
            )
        )
        wait_for(lambda: count_up(server) == 3)
        dead.kill()
        assert read(server, "run1.bin") == CONTENT
        wait_for(lambda: count_up(server) == 2)
        (why,) = (it["why_down"] for it in server.status()["data_servers"] if not it["is_up"])
        shown = page(server.port, tmp_path / "browser")
        for text in (origin.address, dead.address, f"down: {why}", ">cache<", "Servers with the files"):
            assert text in shown, text
        assert '<section id="federations" hidden' in shown, "what it has not is not shown"
        lines = [line.split() for line in top(server.port).splitlines()]
        assert ["server", "with", "files", "kind", "load", "clients", "sent", "state"] in lines
        # Servers that are down come first.
        assert [line[0] for line in lines if line and ":" in line[0]][:1] == [dead.address]
        assert [origin.address, "0", "1", "up"] in lines


def test_people_see_which_files_leave_a_cache_next(origin: DataServer, tmp_path: Path) -> None:
    config = tmp_path / "cache.toml"
    config.write_text(
        f"{QUICK_STOP.read_text()}\n[[export]]\nfolder = '{tmp_path / 'kept'}'\n"
        f"[export.cache]\nof = '{origin.url}'\nidle_seconds = 7200\n"
    )
    names = ["run3.bin", "run1.bin", "run2.bin"]
    for name in (*names, "open.bin"):
        origin.put(name, CONTENT * (100 if name == "open.bin" else 1))
        # A cache does not keep files that were changed just now.
        os.utime(origin.folder / name, (1_000_000, 1_000_000))
    with fb.serve(port=0, address="127.0.0.1", config=config) as server:
        address = f"http://127.0.0.1:{server.port}/data/open.bin"
        # The sockets have not room for all of it, so the server has it open.
        with urllib.request.urlopen(address, timeout=30) as reader:
            assert reader.read(1000) == CONTENT[:1000]
            for name in names:
                assert read(server, name) == CONTENT
                # It is closed after the last byte was sent, which orders the files.
                wait_for(lambda: server.status()["totals"]["open_files"] == 1)
                time.sleep(0.05)
            (cache,) = told(server.port, "/api/caches")
        assert (cache["name"], cache["files"], cache["idle_seconds"]) == ("/data", 4, 7200)
        files = [(it["file"], it["is_open"]) for it in cache["leaving"]]
        at = f"{origin.address}/data"
        assert files == [(f"{at}/{name}", False) for name in names] + [(f"{at}/open.bin", True)]
        assert all(len(CONTENT) <= it["bytes"] < 3 * len(CONTENT) for it in cache["leaving"][:3])
        shown = page(server.port, tmp_path / "browser", "#leaving")
        assert f"{at}/run3.bin" in shown
        assert "at most" in shown
        assert "4 files" in shown
        assert at not in page(server.port, tmp_path / "browser"), "nobody asked for it"
        assert at not in top(server.port)
        lines = [line.split()[0] for line in top(server.port, "--leaving").splitlines() if line]
        assert [line for line in lines if line.startswith(at)][:3] == [f"{at}/{name}" for name in names]
        (status,) = [json.loads(line) for line in top(server.port, "--leaving", "--json").splitlines()]
        assert status["caches"][0]["leaving"]


def test_people_see_copies_and_how_far_they_are_behind(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "redirects.toml"
    config.write_text(f'{QUICK_STOP.read_text()}\n[redirect]\nfollowers = ["127.0.0.1:{port}"]\n')
    with (
        fb.create(tmp_path / "lhc.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", config=config) as leader,
    ):
        put(fed, "run1/hits", 500)
        with Copies(url_of(leader), tmp_path, [port]):
            wait_for(lambda: [it["behind"] for it in leader.status()["copy_servers"]] == [0])
            shown, listed = page(leader.port, tmp_path / "browser"), top(leader.port)
    assert "Servers to which readers are sent" in shown
    assert "catalogue?federation=%2Flhc.fed" in shown
    assert f"127.0.0.1:{port}" in shown
    assert any(
        line.split()[:4] == [f"127.0.0.1:{port}", "/lhc.fed", "0", "commits"] for line in listed.splitlines()
    )


def test_the_list_of_cached_files_needs_rights(tmp_path: Path) -> None:
    cache = fb.serve(
        tmp_path, cache_of="root://127.0.0.1:1//data", port=0, address="127.0.0.1", anonymous="nothing"
    )
    with cache as server, pytest.raises(urllib.error.HTTPError) as refused:
        told(server.port, "/api/caches")
    with refused.value as answer:
        assert answer.code in (401, 403)


REWRITE = """
import sys
import femtobarn as fb
with fb.open(sys.argv[1]) as fed, fed.transaction() as txn:
    txn.database("run1").container("hits")
"""


def test_status_page_shows_waits_and_their_holders(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        put(fed, "run1/hits", 5)
        with (
            fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server,
            fb.open(url_of(server)) as first,
        ):
            with first.transaction() as txn:
                txn.database("run1").container("hits")
                waiting = subprocess.Popen([sys.executable, "-c", REWRITE, url_of(server)])
                wait_for(lambda: len(server.status()["waits"]) == 1)
                shown = page(server.port, tmp_path / "browser")
            assert waiting.wait(60) == 0
    assert '<g class="edge"><title>container run1/hits</title>' in shown
    assert f"process {waiting.pid}" in shown
    assert "does not wait" in shown


def test_alerts_appear_on_the_status_page(tmp_path: Path) -> None:
    config = tmp_path / "few.toml"
    config.write_text("limits.drain_seconds = 0\nlimits.connections = 100\n")
    with fb.serve(tmp_path, port=0, address="127.0.0.1", config=config) as server, ExitStack() as stack:
        # There may be others: a disk of this machine may be full.
        def near_limit() -> list[dict[str, Any]]:
            name = "FemtobarnConnectionsNearLimit"
            return [alert for alert in server.status()["alerts"] if alert["name"] == name]

        assert near_limit() == []
        # From several machines: one of them may have half of the connections.
        for number in range(85):
            here = (f"127.0.0.{number % 9 + 2}", 0)
            there = ("127.0.0.1", server.port)
            stack.enter_context(socket.create_connection(there, source_address=here))
        wait_for(lambda: len(near_limit()) == 1)
        assert not near_limit()[0]["is_critical"]
        shown = page(server.port, tmp_path / "browser")
        told = re.search(r"(\d+) of 100 connections are open", shown)
        assert told is not None
        assert int(told[1]) > 85
        assert "raise limits.connections" in shown, "it says what to do"

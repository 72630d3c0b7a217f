"""A server of a federation: clients in other processes, HTTP pages, and the command line.

`test_xrootd_suites` tests plain files with all clients.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb
from femtobarn.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
JUDGES = ROOT / "tests" / "judges"
EVENTS = 20_000

pytestmark = pytest.mark.judge


@fb.persistent
class Event:
    """An event."""

    run: fb.uint32
    event: fb.uint32
    pt: list[fb.float32]


@dataclass(frozen=True)
class Served:
    """A server of a federation and of a folder of files."""

    server: fb.Server
    federation: fb.Federation
    folder: Path
    sum_of_events: int

    def url(self, path: str) -> str:
        """The address of a path."""
        return self.server.url(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A federation whose database is not sealed, with several commits, and an empty folder."""
    top = tmp_path_factory.mktemp("serving")
    federation = fb.create(top / "lhc.fed")
    events = np.arange(EVENTS, dtype="u4")
    for part in np.array_split(events, 4):
        with federation.transaction(message="a part") as txn:
            container = txn.database("run7", create=True).container("events", Event, create=True)
            pt = [[float(n % 100)] * (n % 3) for n in part]
            container.extend({"run": np.full(len(part), 7, "u4"), "event": part, "pt": pt})
    folder = top / "store"
    folder.mkdir()
    with fb.serve(federation.path, folder, port=0, address="127.0.0.1", anonymous="all") as server:
        yield Served(server, federation, folder, int(events.sum()))


def run(*command: str | Path, **more: Any) -> str:
    """The standard output of a command that has to succeed."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=300, **more
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def program(code: str, *arguments: str, python: str = sys.executable, **more: Any) -> Any:
    """Run a Python program in a process of its own; return the JSON that it prints."""
    return json.loads(run(python, "-c", code, *arguments, **more).splitlines()[-1])


def tool(name: str) -> str:
    """The path of one of XRootD's programs."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


# ---- copies


def test_xrdcp_copies_and_checks(served: Served, tmp_path: Path) -> None:
    source, copy, url = tmp_path / "source", tmp_path / "copy", served.url("/store/new/up")
    source.write_bytes(np.random.default_rng(2).bytes(9_000_001))
    run(tool("xrdcp"), "--silent", "-C", "adler32", source, url)
    assert (served.folder / "new" / "up").read_bytes() == source.read_bytes()
    run(tool("xrdcp"), "--silent", "-C", "crc32c:source", url, copy)
    assert copy.read_bytes() == source.read_bytes()
    again = subprocess.run([tool("xrdcp"), "--silent", source, url], check=False)
    assert again.returncode != 0, "an existing file is replaced only with --force"
    run(tool("xrdcp"), "--silent", "--force", "-p", source, url)


# ---- a federation as complete ROOT files


def test_xrdfs_lists_databases(served: Served) -> None:
    listed = run(tool("xrdfs"), f"127.0.0.1:{served.server.port}", "ls", "-l", "/lhc.fed")
    assert "/lhc.fed/run7.root" in listed


def test_root_reads_a_database_that_is_being_written(served: Served) -> None:
    url = served.url("/lhc.fed/run7.root")
    told = json.loads(run(sys.executable, JUDGES / "root_remote.py", url, "events", "event").splitlines()[-1])
    assert told == {
        "keys": ["_femtobarn", "events"],
        "reader": served.sum_of_events,
        "frame": served.sum_of_events,
    }


READ_BY_UPROOT = """
import json, sys, uproot
with uproot.open(sys.argv[1]) as file:
    array = file["events"].arrays(["event", "pt"])
    events, pt = array.event.to_numpy(), float(sum(map(sum, array.pt.to_list())))
    print(json.dumps({"n": len(array), "sum": int(events.sum()), "pt": pt}))
"""


def test_uproot_reads_any_snapshot(served: Served) -> None:
    newest = program(READ_BY_UPROOT, served.url("/lhc.fed/run7.root"))
    assert (newest["n"], newest["sum"]) == (EVENTS, served.sum_of_events)
    assert newest["pt"] == sum(n % 100 * (n % 3) for n in range(EVENTS))
    old = program(READ_BY_UPROOT, served.url("/lhc.fed/run7.root") + "?fb.csn=2")
    assert (old["n"], old["sum"]) == (EVENTS // 2, sum(range(EVENTS // 2)))


def test_a_federation_is_changed_by_transactions_alone(served: Served, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for command in (
        [tool("xrdcp"), "--silent", "--force", tmp_path / "file", served.url("/lhc.fed/run7.root")],
        [tool("xrdfs"), f"127.0.0.1:{served.server.port}", "rm", "/lhc.fed/run7.root"],
        [tool("xrdfs"), f"127.0.0.1:{served.server.port}", "mv", "/lhc.fed/run7.root", "/lhc.fed/x.root"],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert "transaction" in done.stderr, done.stderr


# ---- a client for Python

READ_AND_WRITE = """
import json, sys
from XRootD import client
from XRootD.client.flags import OpenFlags
url, = sys.argv[1:]
def good(outcome):
    status, answer = outcome
    assert status.ok, status.message
    return answer
data = bytes(range(256)) * 4096
with client.File() as file:
    good(file.open(url, OpenFlags.DELETE | OpenFlags.MAKEPATH))
    good(file.write(data))
    good(file.sync())
with client.File() as file:
    good(file.open(url, OpenFlags.READ))
    size = good(file.stat()).size
    chunks = good(file.vector_read([(n * 1000, 100) for n in range(1000)]))
    same = all(chunk.buffer == data[chunk.offset : chunk.offset + chunk.length] for chunk in chunks)
    same = same and good(file.read()) == data
    print(json.dumps({"size": size, "chunks": len(chunks.chunks), "same": same}))
"""


def test_the_older_client_for_python(served: Served) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import XRootD"], check=False).returncode != 0:
        pytest.skip("python3-xrootd is not installed")
    told = program(READ_AND_WRITE, served.url("/store/python"), python=python)
    assert told == {"size": 1 << 20, "chunks": 1000, "same": True}


# ---- HTTP


def ask(served: Served, path: str) -> tuple[int, str]:
    """The answer to a GET."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_http_shows_status_metrics_and_federations(served: Served) -> None:
    assert ask(served, "/healthz") == (200, "ok\n")
    status = json.loads(ask(served, "/api/status")[1])
    assert status["totals"]["connections"] > 0
    metrics = ask(served, "/metrics")[1]
    assert 'femtobarn_request_seconds_count{export="/store",kind="read"}' in metrics
    assert "# TYPE femtobarn_read_bytes_total counter" in metrics
    assert json.loads(ask(served, "/api/federations")[1]) == ["/lhc.fed"]
    contents = json.loads(ask(served, "/api/containers/lhc.fed")[1])["rows"]
    assert {(row["database"], row["state"]) for row in contents} == {("run7", "open")}
    assert contents[0]["objects"] == EVENTS
    old = json.loads(ask(served, "/api/containers/lhc.fed?csn=1")[1])["rows"]
    assert old[0]["objects"] == EVENTS // 4
    assert ask(served, "/api/federations/none")[0] == 404
    assert ask(served, "/nowhere")[0] == 404


def test_tokens_are_refused_without_tls(served: Served) -> None:
    address = f"http://127.0.0.1:{served.server.port}/api/status"
    request = urllib.request.Request(address, headers={"Authorization": "Bearer x"})
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=30):
        pass
    with refused.value as answer:
        assert answer.code == 401
        assert "over TLS" in json.load(answer)["error"]


def test_pages_show_the_federation_in_a_browser(served: Served, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    address = f"http://127.0.0.1:{served.server.port}/"
    status = run(*command, "--virtual-time-budget=5000", "--dump-dom", address)
    assert 'role="alert" hidden' in status
    (link,) = re.findall(r'href="(catalogue[^"]*)"', status)
    page = run(*command, "--virtual-time-budget=5000", "--dump-dom", f"{address}{link}&view=history")
    assert "a part" in page
    page = run(*command, "--virtual-time-budget=5000", "--dump-dom", f"{address}{link}")
    assert "run7/events" in page
    assert f"{EVENTS:,}" in page
    assert 'role="alert" hidden' in page


# ---- the command line


def test_serve_and_top_from_the_shell(served: Served) -> None:
    command = [sys.executable, "-m", "femtobarn", "serve", served.federation.path, "-p", "0"]
    server = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        facts = json.loads(server.stdout.readline())
        assert facts["exports"] == ["/lhc.fed"]
        top = run(sys.executable, "-m", "femtobarn", "top", f"localhost:{facts['port']}", "-n", "1")
        assert "running for" in top
    finally:
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors


def test_top_shows_rates_in_its_first_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], served: Served
) -> None:
    """A rate needs two readings; `top -n 1` took one, and showed zeros."""
    status = served.server.status()
    looks = (
        {**status, "totals": {**status["totals"], "requests": 1_000_000_000 * number}} for number in (1, 2)
    )
    monkeypatch.setattr("femtobarn.cli.top.ask", lambda _: next(looks))
    assert main(["top", "-n", "1", "-d", "0.001"]) == 0
    assert "requests 0/s" not in capsys.readouterr().out


LEVELS = "[log]\nlevel = '{}'\n"


def wait_for_text(path: Path, text: str) -> None:
    """Wait until the file that a program writes contains a text."""
    deadline = time.monotonic() + 60
    while text not in path.read_text():
        assert time.monotonic() < deadline, f"no {text!r} in {path.read_text()}"
        time.sleep(0.02)


def append_remotely(url: str) -> None:
    """Commit one object; the session ends when the last handle is closed."""
    with fb.open(url) as remote, remote.transaction(message="one object") as txn:
        events = txn.database("run7", create=True).container("events", Event, create=True)
        events.append(Event(run=7, event=1, pt=[]))


def test_running_server_reloads_settings_and_logs_commits_and_sessions(tmp_path: Path) -> None:
    """SIGHUP killed the server without a message; its log had neither commits nor the ends of sessions."""
    location, config = fb.create(tmp_path / "lhc.fed").path, tmp_path / "server.toml"
    config.write_text(LEVELS.format("error"))
    command = [
        sys.executable,
        "-m",
        "femtobarn",
        "serve",
        location,
        "-w",
        "-p",
        "0",
        "-c",
        str(config),
        "--json",
    ]
    with (
        (tmp_path / "log").open("w") as log_file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log_file, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            url = f"root://127.0.0.1:{json.loads(server.stdout.readline())['port']}//lhc.fed"
            config.write_text("prot = 1")
            server.send_signal(signal.SIGHUP)
            wait_for_text(tmp_path / "log", "old settings stay in force")
            config.write_text(LEVELS.format("info"))
            server.send_signal(signal.SIGHUP)
            wait_for_text(tmp_path / "log", "log.level info")
            append_remotely(url)
            # The client closes without waiting until the server has read its goodbye.
            wait_for_text(tmp_path / "log", 'why="goodbye"')
        finally:
            server.send_signal(signal.SIGTERM)
    log = (tmp_path / "log").read_text()
    assert server.returncode == 0, log
    [commit] = [line for line in log.splitlines() if "committed" in line]
    for word in ("csn=1", 'commit_message="one object"', "run7/events", "objects=1", "bytes=", "by="):
        assert word in commit, commit
    ends = [line for line in log.splitlines() if "session ends" in line]
    assert any('why="goodbye"' in line and "commits=1" in line for line in ends), log
    assert any("bytes_written" in line for line in ends), log


def test_server_ends_with_its_terminal_even_if_its_input_is_redirected(tmp_path: Path) -> None:
    """Only its input was watched, so `serve </dev/null` kept running when its terminal was closed."""
    location = fb.create(tmp_path / "lhc.fed").path
    terminal, end = os.openpty()
    serve = 'exec "$0" -m femtobarn serve "$1" -p 0 --json </dev/null'
    command = ["setsid", "--ctty", "sh", "-c", serve, sys.executable, location]
    with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        os.close(end)
        assert server.stdout is not None
        try:
            server.stdout.readline()
            os.close(terminal)
            assert server.wait(60) == 0
        finally:
            server.kill()


def test_serve_refuses_missing_folders_wrong_settings_and_taken_ports(tmp_path: Path) -> None:
    with pytest.raises(fb.InvalidError, match="nothing to serve"):
        fb.serve(port=0)
    with pytest.raises(fb.StorageError, match="nowhere"):
        fb.serve(tmp_path / "nowhere", port=0)
    (tmp_path / "wrong.toml").write_text("prot = 1")
    with pytest.raises(fb.InvalidError, match="unknown field `prot`"):
        fb.serve(tmp_path, config=tmp_path / "wrong.toml")
    with (
        fb.serve(tmp_path, port=0, address="127.0.0.1") as server,
        pytest.raises(fb.StorageError, match="another program has the port"),
    ):
        fb.serve(tmp_path, port=server.port, address="127.0.0.1")


def test_other_machines_are_served_over_tls_unless_it_is_off(tmp_path: Path) -> None:
    with fb.serve(tmp_path, port=0) as server:
        assert server.address == "127.0.0.1"
    with pytest.raises(fb.InvalidError, match=r"set tls\.certificate and tls\.key; or set tls\.off"):
        fb.serve(tmp_path, port=0, address="0.0.0.0")
    with fb.serve(tmp_path, port=0, tls_off=True) as server:
        assert server.address == "0.0.0.0"


def test_the_printed_configuration_is_the_default(tmp_path: Path) -> None:
    printed = run(sys.executable, "-m", "femtobarn", "serve", "--print-config")
    (tmp_path / "all.toml").write_text(printed)
    fb.serve(tmp_path, port=0, address="127.0.0.1", config=tmp_path / "all.toml").stop()

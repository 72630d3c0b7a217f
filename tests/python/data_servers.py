"""Servers with files behind a redirector, each a process of its own: ours, and XRootD's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copying_servers import xrootd
from server_settings import QUICK_STOP
from waiting import stop_process, wait_for

import femtobarn as fb

__all__ = [
    "QUICK",
    "DataServer",
    "count_up",
    "data_servers",
    "filled_servers",
    "ours",
    "patient_run",
    "redirector",
    "redirector_process",
    "served_process",
]

QUICK = os.environ | {"XRD_CONNECTIONWINDOW": "2", "XRD_CONNECTIONRETRY": "1", "XRD_REQUESTTIMEOUT": "30"}
"""XRootD's clients try for two minutes to connect to a dead server, unless they are told otherwise."""


@dataclass
class DataServer:
    """A server of a folder under the name `/data`."""

    host: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"root://{self.address}//data"

    def put(self, name: str, content: bytes) -> None:
        """Put a file there that XRootD's user can read."""
        (self.folder / name).write_bytes(content)
        (self.folder / name).chmod(0o666)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def stop(self) -> None:
        """Stop answering, with all connections open."""
        stop_process(self.process)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def served_process(
    *arguments: str | Path,
    host: str = "127.0.0.1",
    port: int = 0,
    folder: Path | None = None,
    before: Sequence[str] = (),
) -> Iterator[tuple[dict[str, Any], subprocess.Popen[bytes]]]:
    """A server of ours that is a process of its own: what it says when it listens, and the process. The words
    `before` stand before its command."""
    command: list[str | Path] = [*before, sys.executable, "-m", "femtobarn", "serve", *arguments]
    command += ["--address", host, "--tls-off", "-p", str(port), "--json", "--config", QUICK_STOP]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline()), process
        finally:
            process.kill()


@contextmanager
def ours(folder: Path, host: str) -> Iterator[DataServer]:
    (folder / "data").mkdir(parents=True)
    with served_process("data", "-w", host=host, folder=folder) as (facts, process):
        yield DataServer(host, facts["port"], folder / "data", process)


@contextmanager
def theirs(host: str) -> Iterator[DataServer]:
    with xrootd() as site:
        server = DataServer(host, site.port, site.folder / "data", site.process)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def data_servers(kind: str, folder: Path) -> Iterator[tuple[DataServer, DataServer]]:
    """Two servers, at addresses that clients tell apart: they name servers that failed without ports."""
    with ExitStack() as stack:
        places = [("one", "127.0.0.1"), ("two", "127.0.0.2")]
        one, two = (
            stack.enter_context(ours(folder / name, host) if kind == "ours" else theirs(host))
            for name, host in places
        )
        yield one, two


@contextmanager
def filled_servers(kind: str, folder: Path, content: bytes) -> Iterator[tuple[DataServer, DataServer]]:
    """Two servers; `both.bin` is at both with some content, `one.bin` and `two.bin` are at one."""
    with data_servers(kind, folder) as (one, two):
        for server, name in ((one, "one.bin"), (two, "two.bin")):
            server.put("both.bin", content)
            server.put(name, name.encode())
        yield one, two


@contextmanager
def redirector(*servers: str, up: int | None = None) -> Iterator[fb.Server]:
    """A redirector, once it knows that all servers are up, or `up` of them."""
    with fb.serve(redirect_to=servers, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
        wait_for(lambda: count_up(server) == (len(servers) if up is None else up))
        yield server


@contextmanager
def redirector_process(*servers: str, host: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A redirector that is a process of its own, and its address."""
    options = [option for server in servers for option in ("--redirect-to", server)]
    with served_process(*options, host=host) as (facts, process):
        assert facts["exports"] == ["/data"]
        yield f"{host}:{facts['port']}", process


def count_up(server: fb.Server) -> int:
    return sum(it["is_up"] for it in server.status()["data_servers"])


def patient_run(*command: str | Path, code: int = 0) -> tuple[str, str]:
    """Run one of XRootD's programs, which must end with a code; returns what it prints."""
    program = shutil.which(str(command[0]))
    assert program is not None, f"{command[0]} is not installed"
    done = subprocess.run([program, *command[1:]], capture_output=True, timeout=60, check=False, env=QUICK)
    printed, complained = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{printed}\n{complained}"
    return printed, complained

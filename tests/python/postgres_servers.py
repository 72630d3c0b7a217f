"""A PostgreSQL of the tests' own, in a temporary folder, and a pooler before it, reached by sockets alone, or
from the other machines of a network."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from networks import Machine
from waiting import wait_for

__all__ = ["Postgres"]

PORT = 5432
POOLER_PORT = 6432


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL; the test is skipped if there is none."""
    packaged = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or next(map(str, packaged), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def as_server() -> dict[str, Any]:
    """Return the user of a process: neither program runs as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Postgres:
    """A server, which ends with the context; on a machine of a network, if one is given."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.folder.chmod(0o777)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        data = str(self.folder / "data")
        make = [program("initdb"), "-D", data, "--username=postgres", "--auth=trust", "--no-sync"]
        self._run([*make, "--encoding=UTF8", "--locale=C.UTF-8"])
        if machine is not None:
            with (self.folder / "data/pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {machine.address}/24 trust\n")
        self.start()

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        for port in list(self.processes):
            self.crash(port)
        shutil.rmtree(self.folder)

    def start(self) -> None:
        server = [program("postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        address = "" if self.machine is None else self.machine.address
        self._serve(PORT, [*server, "-c", f"listen_addresses={address}", "-c", "max_connections=100"])

    def start_pooler(self) -> None:
        """Start pgbouncer, which gives every transaction one of three connections."""
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={self.folder} port={PORT}\n[pgbouncer]\nlisten_port={POOLER_PORT}\n"
            f"listen_addr=\nunix_socket_dir={self.folder}\nauth_type=trust\nauth_file={self.folder}/users\n"
            "pool_mode=transaction\ndefault_pool_size=3\n"
        )
        (self.folder / "users").write_text('"postgres" ""\n')
        self._serve(POOLER_PORT, [program("pgbouncer"), str(settings)])

    def crash(self, port: int = PORT) -> None:
        """End the server at once, without anything being written."""
        process = self.processes.pop(port)
        process.send_signal(signal.SIGQUIT if port == PORT else signal.SIGKILL)
        process.wait()

    def url(self, port: int = PORT) -> str:
        if self.machine is not None:
            return f"postgresql://postgres@{self.machine.address}:{port}/postgres"
        return f"postgresql://postgres@/postgres?host={self.folder}&port={port}"

    def _serve(self, port: int, command: list[str]) -> None:
        quiet: dict[str, Any] = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "cwd": self.folder,
        }
        if self.machine is None:
            self.processes[port] = subprocess.Popen(command, **quiet, **as_server())
        else:
            # The network is entered as the superuser.
            user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            self.processes[port] = subprocess.Popen([*self.machine.here, *user, *command], **quiet)
        wait_for(lambda: self._is_ready(port))

    def _is_ready(self, port: int) -> bool:
        return self._asked("SELECT 1", port).returncode == 0

    def ask(self, sql: str, port: int = PORT) -> str:
        """Return the answer to a statement."""
        asked = self._asked(sql, port)
        assert asked.returncode == 0, asked.stderr
        return asked.stdout.strip()

    def _asked(self, sql: str, port: int) -> subprocess.CompletedProcess[str]:
        server = [program("psql"), "-qtA", "-h", str(self.folder), "-p", str(port), "-U", "postgres"]
        return subprocess.run([*server, "-c", sql], capture_output=True, text=True, check=False)

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **as_server())

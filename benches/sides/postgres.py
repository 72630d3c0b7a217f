"""A PostgreSQL of a side's own, in a folder, and SQL for it.

Its settings are PostgreSQL's own, but for memory and the number of connections; a commit waits until it is
durable. PostgreSQL refuses to run as root, so its programs then run as the user `postgres`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import tree_seconds
from servers import START_SECONDS, free_port, wait_for

USER, LOGIN, DATABASE = "postgres", "login", "postgres"
MEMORY = "1GB"
"""PostgreSQL's own cache of pages."""
CONNECTIONS = 400


@dataclass(frozen=True)
class Postgres:
    """A running PostgreSQL."""

    port: int
    process: int

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"postgresql://{LOGIN}@127.0.0.1:{self.port}/{DATABASE}"

    def cpu_seconds(self) -> float:
        """CPU seconds that all its processes have taken, those that have ended included."""
        return tree_seconds(self.process)

    def client(self, program: str) -> list[str]:
        """The command of one of PostgreSQL's clients: `psql`, `pgbench`."""
        return [program, "-h", "127.0.0.1", "-p", str(self.port), "-U", LOGIN]

    def query(self, statements: str, name: str = DATABASE) -> str:
        """Run SQL statements in a database; return the values of the rows, a row a line."""
        return run([*self.client("psql"), "-d", name, "-qXAt", "-v", "ON_ERROR_STOP=1", "-c", statements])


def create(folder: Path) -> None:
    """Make an empty cluster in a folder."""
    cluster = folder / "cluster"
    cluster.mkdir(parents=True)
    if os.geteuid() == 0:
        shutil.chown(cluster, USER, USER)
    made = [program("initdb"), "-D", str(cluster), "-U", LOGIN, "-A", "trust", "--no-sync"]
    run([*as_user(), *made, "--encoding=UTF8", "--locale=C.UTF-8"])


@contextmanager
def serve(folder: Path, *, is_kept: bool = True) -> Iterator[Postgres]:
    """Run PostgreSQL on the cluster of a folder, from the time on when it accepts queries.

    A cluster that is not kept is left as after a crash.
    """
    port = free_port()
    options = {
        "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
        "shared_buffers": MEMORY, "max_connections": CONNECTIONS,
    }  # fmt: skip
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    command = [*as_user(), program("postgres"), "-D", str(folder / "cluster"), *settings]
    # By each of them it ends its sessions instead of waiting for them.
    end_by = signal.SIGINT if is_kept else signal.SIGQUIT
    with started(command, port, folder / "postgres.log", Path("/"), end_by=end_by) as process:
        served = Postgres(port, process)
        end = time.monotonic() + START_SECONDS
        while not accepts(served):
            if time.monotonic() > end:
                raise SystemExit("PostgreSQL accepts no queries")
            time.sleep(0.05)
        yield served


@contextmanager
def started(
    command: list[str],
    port: int,
    log: Path,
    folder: Path,
    *,
    variables: dict[str, str] | None = None,
    end_by: signal.Signals = signal.SIGTERM,
) -> Iterator[int]:
    """Run a server in a folder until the block ends; yield its process id once it listens."""
    with (
        log.open("w") as lines,
        subprocess.Popen(
            command, env=variables, cwd=folder, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL
        ) as running,
    ):
        try:
            wait_for(port, running, log)
            yield running.pid
        finally:
            running.send_signal(end_by)


def accepts(server: Postgres) -> bool:
    """Whether PostgreSQL accepts queries; it listens before it does."""
    ask = [*server.client("psql"), "-d", DATABASE, "-qX", "-c", "SELECT 1"]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


def run(command: list[str], folder: Path = Path("/"), variables: dict[str, str] | None = None) -> str:
    """Run a program that must succeed, and return its output."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def as_user() -> list[str]:
    """What makes a program run as PostgreSQL's user, if this one is root."""
    change = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return change if os.geteuid() == 0 else []


def program(name: str) -> str:
    """A program of PostgreSQL's, which Debian installs beside the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which(name, path=":".join(map(str, reversed(places)))) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed; it is in Debian's package postgresql")
    return found

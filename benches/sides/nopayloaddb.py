"""nopayloaddb 5, the conditions database of the HEP Software Foundation, on Debian's PostgreSQL.

It is in no package registry. `NOPAYLOADDB_SOURCE` names a folder with its source, `NOPAYLOADDB_PYTHON` an
interpreter that has Django 4.2, djangorestframework 3.14, djangorestframework-simplejwt, psycopg2 and
gunicorn. A folder of this module has a copy of the source, in which Django writes the tables' definitions,
and PostgreSQL's cluster.

PostgreSQL refuses to run as root, so its programs then run as the user `postgres`.
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
from servers import free_port, wait_for

USER = "postgres"
MEMORY = "1GB"
"""PostgreSQL's own cache of pages."""
WORKERS, THREADS = 2, 4


@dataclass(frozen=True)
class Peer:
    """A running nopayloaddb."""

    port: int
    database_port: int
    processes: tuple[int, int]
    """Process ids of gunicorn and of PostgreSQL, the parents of all others."""

    def cpu_seconds(self) -> float:
        """CPU seconds that all its processes have taken, those that have ended included."""
        return sum(map(tree_seconds, self.processes))

    def query(self, statements: str) -> None:
        """Run SQL statements."""
        query(self.database_port, statements)


def create(folder: Path) -> None:
    """Make an empty nopayloaddb in a new folder."""
    folder.mkdir(parents=True)
    shutil.copytree(os.environ["NOPAYLOADDB_SOURCE"], folder / "source")
    cluster = folder / "cluster"
    cluster.mkdir()
    if os.geteuid() == 0:
        shutil.chown(cluster, USER, USER)
    run([program("initdb"), "-D", str(cluster), "-U", "login", "-A", "trust", "--no-sync"])
    with database(folder) as (port, _):
        query(port, "CREATE DATABASE dbname", name="postgres")
        for work in (["makemigrations", "cdb_rest"], ["migrate"]):
            manage(folder, port, work)


@contextmanager
def serve(folder: Path) -> Iterator[Peer]:
    """Serve the nopayloaddb of a folder."""
    with database(folder) as (database_port, postgres):
        port = free_port()
        command = [
            os.environ["NOPAYLOADDB_PYTHON"], "-m", "gunicorn", "--bind", f"127.0.0.1:{port}",
            "--workers", str(WORKERS), "--threads", str(THREADS), "nopayloaddb.wsgi",
        ]  # fmt: skip
        with started(command, port, folder, environment(database_port)) as process:
            yield Peer(port, database_port, (process, postgres))


@contextmanager
def database(folder: Path) -> Iterator[tuple[int, int]]:
    """Run PostgreSQL on the cluster of a folder; yield its port and its process id."""
    port = free_port()
    options = {
        "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
        "shared_buffers": MEMORY,
    }  # fmt: skip
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    command = [*as_user(), program("postgres"), "-D", str(folder / "cluster"), *settings]
    with started(command, port, folder, dict(os.environ)) as process:
        yield port, process


@contextmanager
def started(command: list[str], port: int, folder: Path, variables: dict[str, str]) -> Iterator[int]:
    """Run a server until the block ends; yield its process id once it listens."""
    log = folder / f"{Path(command[-1]).name}.log"
    source = folder / "source"
    with (
        log.open("w") as lines,
        subprocess.Popen(
            command, env=variables, cwd=source, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL
        ) as running,
    ):
        try:
            wait_for(port, running, log)
            yield running.pid
        finally:
            # PostgreSQL then ends its sessions instead of waiting for them.
            running.send_signal(signal.SIGINT)


def query(port: int, statements: str, name: str = "dbname") -> None:
    """Run SQL statements in a database, once it accepts them."""
    command = ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "login", "-d", name, "-qX"]
    end = time.monotonic() + 60
    while subprocess.run([*command, "-c", "SELECT 1"], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > end:
            raise SystemExit("PostgreSQL accepts no queries")
        time.sleep(0.05)
    run([*command, "-v", "ON_ERROR_STOP=1", "-c", statements], user=False)


def manage(folder: Path, port: int, arguments: list[str]) -> None:
    """Run a command of Django's."""
    run(
        [os.environ["NOPAYLOADDB_PYTHON"], "manage.py", *arguments],
        user=False,
        variables=environment(port),
        folder=folder / "source",
    )


def environment(port: int) -> dict[str, str]:
    """The settings of nopayloaddb: one database for writing and reading."""
    here = {"DB": "dbname", "USER": "login", "PASSWORD": "", "HOST": "127.0.0.1", "PORT": str(port)}
    roles = ("W", "R1", "R2")
    return {
        **os.environ,
        **{f"POSTGRES_{name}_{role}": value for role in roles for name, value in here.items()},
    }


def run(
    command: list[str],
    *,
    user: bool = True,
    variables: dict[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """Run a program that must succeed."""
    line = [*as_user(), *command] if user else command
    done = subprocess.run(line, cwd=folder or "/", env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")


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

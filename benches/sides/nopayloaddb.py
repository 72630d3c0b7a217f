"""nopayloaddb 5, the conditions database of the HEP Software Foundation, on Debian's PostgreSQL.

It is in no package registry. `NOPAYLOADDB_SOURCE` names a folder with its source, `NOPAYLOADDB_PYTHON` an
interpreter that has Django 4.2, djangorestframework 3.14, djangorestframework-simplejwt, psycopg2 and
gunicorn. A folder of this module has a copy of the source, in which Django writes the tables' definitions,
and PostgreSQL's cluster.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import postgres
from postgres import LOGIN, Postgres
from processes import tree_seconds
from servers import free_port

DATABASE = "dbname"
WORKERS, THREADS = 2, 4


@dataclass(frozen=True)
class Peer:
    """A running nopayloaddb."""

    port: int
    database: Postgres
    process: int
    """The process id of gunicorn, the parent of all others."""

    def cpu_seconds(self) -> float:
        """CPU seconds that all its processes have taken, those that have ended included."""
        return tree_seconds(self.process) + self.database.cpu_seconds()

    def query(self, statements: str) -> None:
        """Run SQL statements."""
        self.database.query(statements, DATABASE)


def create(folder: Path) -> None:
    """Make an empty nopayloaddb in a new folder."""
    folder.mkdir(parents=True)
    shutil.copytree(os.environ["NOPAYLOADDB_SOURCE"], folder / "source")
    postgres.create(folder)
    with postgres.serve(folder) as database:
        database.query(f"CREATE DATABASE {DATABASE}")
        for work in (["makemigrations", "cdb_rest"], ["migrate"]):
            command = [os.environ["NOPAYLOADDB_PYTHON"], "manage.py", *work]
            postgres.run(command, folder / "source", environment(database.port))


@contextmanager
def serve(folder: Path) -> Iterator[Peer]:
    """Serve the nopayloaddb of a folder."""
    with postgres.serve(folder) as database:
        port = free_port()
        command = [
            os.environ["NOPAYLOADDB_PYTHON"], "-m", "gunicorn", "--bind", f"127.0.0.1:{port}",
            "--workers", str(WORKERS), "--threads", str(THREADS), "nopayloaddb.wsgi",
        ]  # fmt: skip
        variables, log = environment(database.port), folder / "gunicorn.log"
        with postgres.started(command, port, log, folder / "source", variables=variables) as process:
            yield Peer(port, database, process)


def environment(port: int) -> dict[str, str]:
    """The settings of nopayloaddb: one database for writing and reading."""
    here = {"DB": DATABASE, "USER": LOGIN, "PASSWORD": "", "HOST": "127.0.0.1", "PORT": str(port)}
    roles = ("W", "R1", "R2")
    return {
        **os.environ,
        **{f"POSTGRES_{name}_{role}": value for role in roles for name, value in here.items()},
    }

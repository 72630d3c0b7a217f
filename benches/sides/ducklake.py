"""DuckLake's small commits, with its catalogue in PostgreSQL: `ducklake.py FOLDER PACKAGES CLIENTS SECONDS`.

PACKAGES is a folder with DuckDB and its extensions `ducklake` and `postgres`, as programs.py installs them:
they need the same release of DuckDB. Each client is a thread with a DuckDB and a table of its own, and
inserts as many rows of as many bytes in a transaction as committers.py has objects. `failed` is the share of
commits that still failed after DuckLake's own retries. CPU seconds are those of clients and PostgreSQL.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from committers import OBJECT_BYTES, OBJECTS
from postgres import Postgres
from site_servers import database_server

EXTENSIONS = ("postgres_scanner", "ducklake")
INSERT = f"SELECT repeat('\\x01'::BLOB, {OBJECT_BYTES}) FROM range({OBJECTS})"


def main() -> int:
    """Let the clients commit, and print the sample."""
    folder, packages, clients, seconds = sys.argv[1:]
    sys.path.insert(0, packages)
    Path(folder).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ducklake", dir=folder) as made:
        place = Path(made)
        with database_server(place) as database:
            print(json.dumps(committed(database, place, Path(packages), int(clients), float(seconds))))
    return 0


def connected(database: Postgres, place: Path, packages: Path) -> Any:
    """A DuckDB of its own that has the lake."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    for name in EXTENSIONS:
        (file,) = packages.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    where = f"dbname=postgres host=127.0.0.1 port={database.port} user=login"
    connection.execute(f"ATTACH 'ducklake:postgres:{where}' AS lake (DATA_PATH '{place / 'files'}')")
    return connection


def committed(
    database: Postgres, place: Path, packages: Path, clients: int, seconds: float
) -> dict[str, Any]:
    """Commit for some seconds; what was acknowledged is there afterwards."""
    import duckdb

    connections = [connected(database, place, packages) for _ in range(clients)]
    for number, connection in enumerate(connections):
        connection.execute(f"CREATE TABLE lake.t{number} (bytes BLOB)")
    began, cpu = time.perf_counter(), time.process_time() + database.cpu_seconds()

    def client(number: int) -> tuple[int, int]:
        """Commits that succeeded, and those that failed."""
        good = bad = 0
        while time.perf_counter() < began + seconds:
            try:
                connections[number].execute(f"INSERT INTO lake.t{number} {INSERT}")
                good += 1
            except duckdb.Error:
                bad += 1
        return good, bad

    with ThreadPoolExecutor(clients) as pool:
        done = list(pool.map(client, range(clients)))
    wall = time.perf_counter() - began
    cpu = time.process_time() + database.cpu_seconds() - cpu
    good, bad = (sum(each) for each in zip(*done, strict=True))
    tables = (f"SELECT count(*) FROM lake.t{number}" for number in range(clients))
    rows = sum(connections[0].execute(each).fetchone()[0] for each in tables)
    if not good * OBJECTS <= rows <= (good + bad) * OBJECTS:
        raise SystemExit(f"{rows} rows are there for {good} commits, and {bad} that failed")
    return {"items": good, "bytes": good * OBJECTS * OBJECT_BYTES, "wall_s": wall, "cpu_s": cpu, "check": 0,
            "failed": bad / max(good + bad, 1)}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

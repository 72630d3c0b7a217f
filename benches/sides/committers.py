"""Small commits to a federation whose catalogue is in PostgreSQL, and rows of PostgreSQL's own.

    committers.py inserts FOLDER SECONDS                one-row inserts by a connection of pgbench
    committers.py here    FOLDER OURS WORK SECONDS      one committer, in a process that has the folder
    committers.py served  FOLDER OURS WORK SERVERS CLIENTS SECONDS     clients, divided among servers

OURS is the program `ours`, WORK that of its clients: `transactions`, or `publish`, the catalogue's part
alone. A row has as many bytes as the objects of a transaction. Everything is durable before it is counted,
and what was counted is there afterwards. CPU seconds are those of clients, servers and PostgreSQL.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from postgres import Postgres
from site_servers import address, created, database_of, database_server, served
from together import at_once, summed

import femtobarn as fb

OBJECTS, OBJECT_BYTES = 10, 100
FORM = {
    "name": "Fixed",
    "fields": [{"name": "bytes", "type": {"array": {"of": "uint8", "size": OBJECT_BYTES}}}],
}
INSERT = f"INSERT INTO rows (bytes) VALUES (decode(repeat('01', {OBJECTS * OBJECT_BYTES}), 'hex'));"
COUNT, RATE = r"number of transactions actually processed: (\d+)", r"tps = ([\d.]+) "


def main() -> int:
    """Run one side, and print its sample."""
    what, folder, *rest = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="committers", dir=folder) as made:
        place = Path(made)
        with database_server(place) as database:
            if what == "inserts":
                done = inserts(database, place, rest[0])
            elif what == "here":
                ours, work, seconds = rest
                done = here(database, place, ours, work, seconds)
            else:
                ours, work, servers, clients, seconds = rest
                done = at_servers(database, place, [ours, work, seconds], int(servers), int(clients))
    print(json.dumps(done))
    return 0


def inserts(database: Postgres, place: Path, seconds: str) -> dict[str, Any]:
    """Insert rows, each in a transaction."""
    database.query("CREATE TABLE rows (id BIGSERIAL PRIMARY KEY, bytes BYTEA NOT NULL)")
    script = place / "insert.sql"
    script.write_text(INSERT)
    command = [*database.client("pgbench"), "--no-vacuum", "--protocol=prepared", "--client=1"]
    command += [f"--time={seconds}", f"--file={script}", "postgres"]
    before = cpu_seconds(database)
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = cpu_seconds(database) - before
    found = [re.search(pattern, told) for pattern in (COUNT, RATE)]
    count, rate = (float(each[1]) if each else 0.0 for each in found)
    if not count or int(database.query("SELECT count(*) FROM rows")) != count:
        raise SystemExit(f"other rows are there than pgbench tells:\n{told}")
    return {"items": int(count), "bytes": int(count) * OBJECTS * OBJECT_BYTES, "wall_s": count / rate,
            "cpu_s": cpu, "check": 0}  # fmt: skip


def cpu_seconds(database: Postgres) -> float:
    """CPU seconds of PostgreSQL, and of the programs that have ended here."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return database.cpu_seconds() + ended.ru_utime + ended.ru_stime


def here(database: Postgres, place: Path, ours: str, work: str, seconds: str) -> dict[str, Any]:
    """Commit in the federation's folder."""
    [folder] = created(database, place, 1)
    fill(folder, 0, 1)
    command = [ours, "clients", str(folder), database_of(0), work, "1", seconds]
    [sample], cpu = at_once([command], database.cpu_seconds)
    return proved(folder, work, {**sample, "cpu_s": sample["cpu_s"] + cpu})


def at_servers(database: Postgres, place: Path, how: list[str], servers: int, clients: int) -> dict[str, Any]:
    """Commit through servers, each of which has a database of its own."""
    ours, work, seconds = how
    each = str(clients // servers)
    folders = created(database, place, servers)
    for number, folder in enumerate(folders):
        fill(folder, number, int(each))
    with served(folders) as running:
        commands = [
            [ours, "clients", address(server), database_of(number), work, each, seconds]
            for number, server in enumerate(running)
        ]
        samples, cpu = at_once(
            commands, lambda: database.cpu_seconds() + sum(server.cpu_seconds() for server in running)
        )
        sample = summed(samples)
        return proved(address(running[0]), work, {**sample, "cpu_s": sample["cpu_s"] + cpu})


def fill(folder: Path, server: int, containers: int) -> None:
    """Make the database of a server, with containers as `ours create` names them."""
    with fb.open(folder) as federation, federation.transaction() as txn:
        database = txn.database(database_of(server), create=True)
        for number in range(containers):
            database.container(f"w{number}", FORM, create=True)


def proved(place: str | Path, work: str, sample: dict[str, Any]) -> dict[str, Any]:
    """The sample, if the federation has all that was committed and nothing else."""
    with fb.open(place) as federation:
        snapshot = federation.snapshot()
        objects = sum(len(snapshot[name]) for name in snapshot)
        # The first commits made the databases.
        commits = snapshot.csn - len(snapshot.databases())
    wanted = sample["items"] * OBJECTS if work == "transactions" else 0
    if (commits, objects) != (sample["items"], wanted):
        raise SystemExit(f"{commits} commits and {objects} objects are there for {sample['items']} told")
    # A client that fails ends its program, and so this one.
    return {**sample, "failed": 0}


if __name__ == "__main__":
    sys.exit(main())

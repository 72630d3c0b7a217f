"""Many clients of one federation at several servers, each with a simulated disk.

    site_load.py FOLDER read|write CLIENTS COUNT DISK SERVERS...
    site_load.py clients read|write FIRST CLIENTS COUNT URL...     some of the clients, in one process

DISK is the `throttle` of a server's settings. Each server has a database with the containers of its clients.
A client is a thread with a session of its own: it opens the federation at any server, and reads a count of
blocks at random places of its container, whose numbers it compares, or commits as many to it. A point is,
for a number of servers, the bytes a second by those of the first number. CPU seconds are those of servers,
clients and PostgreSQL.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from postgres import Postgres
from site_servers import address, created, database_of, database_server, served
from timing import Array
from together import at_once, summed

import femtobarn as fb

FORM = {"name": "Reading", "fields": [{"name": "value", "type": "float64"}]}
BLOCK = 8_192
"""Numbers that a client reads or commits at once."""
BLOCKS = 32
"""Blocks of a container that is read."""
PROCESSES = 4


def main() -> int:
    """Run all, or the clients of one process."""
    if sys.argv[1] == "clients":
        what, first, clients, count, *urls = sys.argv[2:]
        print(json.dumps(worked(what, range(int(first), int(first) + int(clients)), int(count), urls)))
        return 0
    folder, what, clients, count, disk, *numbers = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    samples = []
    with tempfile.TemporaryDirectory(prefix="site", dir=folder) as made:
        place = Path(made)
        with database_server(place) as database:
            for number in numbers:
                (place / number).mkdir()
                how = (what, int(clients), count, disk)
                samples.append(at_servers(database, place / number, int(number), how))
    rates = [sample["bytes"] / sample["wall_s"] for sample in samples]
    points = [(int(number), rate / rates[0]) for number, rate in zip(numbers, rates, strict=True)]
    wall = sum(sample["wall_s"] for sample in samples)
    print(json.dumps({**summed(samples), "wall_s": wall, "points": points}))
    return 0


def at_servers(
    database: Postgres, place: Path, servers: int, how: tuple[str, int, str, str]
) -> dict[str, Any]:
    """Let all clients work with some number of servers."""
    what, clients, count, disk = how
    folders = created(database, place, servers)
    for number, folder in enumerate(folders):
        fill(folder, number, range(number, clients, servers), BLOCKS if what == "read" else 0)
    each = clients // PROCESSES
    with served(folders, disk) as running:
        urls = [address(server) for server in running]
        commands = [
            [sys.executable, __file__, "clients", what, str(first), str(each), count, *urls]
            for first in range(0, clients, each)
        ]
        samples, cpu = at_once(
            commands, lambda: database.cpu_seconds() + sum(server.cpu_seconds() for server in running)
        )
    sample = summed(samples)
    return {**sample, "cpu_s": sample["cpu_s"] + cpu}


def place_of(client: int, servers: int) -> str:
    """The container of a client."""
    return f"{database_of(client % servers)}/c{client}"


def numbers(client: int, start: int, count: int) -> Array:
    """What the container of a client has from an entry on."""
    return client * 1e6 + np.arange(start, start + count)


def fill(folder: Path, server: int, clients: range, blocks: int) -> None:
    """Make the database of a server."""
    with fb.open(folder) as federation, federation.transaction() as txn:
        database = txn.database(database_of(server), create=True)
        for client in clients:
            container = database.container(f"c{client}", FORM, create=True)
            if blocks:
                container.extend({"value": numbers(client, 0, blocks * BLOCK)})


def worked(what: str, clients: range, count: int, urls: list[str]) -> dict[str, Any]:
    """Let some clients work, and return the sample."""

    def opened(client: int) -> fb.Federation:
        """Open the federation at one of the servers, which all answer for it, and a container."""
        federation = fb.open(urls[client // len(urls) % len(urls)], **MEMORY)
        federation[place_of(client, len(urls))].arrays("value", entry_stop=1)
        return federation

    with ThreadPoolExecutor(len(clients)) as pool:
        federations = dict(zip(clients, pool.map(opened, clients), strict=True))
        print("ready", flush=True)
        sys.stdin.readline()
        wall, cpu = time.perf_counter(), time.process_time()
        work = {"read": reading, "write": writing}[what]
        list(pool.map(lambda client: work(federations[client], client, len(urls), count), clients))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    blocks = count * len(clients)
    return {"items": blocks, "bytes": blocks * BLOCK * 8, "wall_s": wall, "cpu_s": cpu, "check": 0}


MEMORY: dict[str, Any] = {"cache_bytes": 0, "read_ahead_bytes": 0, "streams": 0, "threads": 1}
"""A client asks for what it uses, each time anew."""


def reading(federation: fb.Federation, client: int, servers: int, count: int) -> None:
    """Read blocks."""
    choice, view = Random(client), federation[place_of(client, servers)]
    for _ in range(count):
        start = choice.randrange(BLOCKS) * BLOCK
        found = view.arrays("value", entry_start=start, entry_stop=start + BLOCK, library="np")
        if not np.array_equal(found["value"], numbers(client, start, BLOCK)):
            raise SystemExit(f"client {client} read other numbers from {start} on")


def writing(federation: fb.Federation, client: int, servers: int, count: int) -> None:
    """Commit blocks, all of which are there then."""
    database, _, name = place_of(client, servers).partition("/")
    for number in range(count):
        with federation.transaction() as txn:
            container = txn.database(database).container(name)
            container.extend({"value": numbers(client, number * BLOCK, BLOCK)})
    found = len(federation[f"{database}/{name}"])
    if found != count * BLOCK:
        raise SystemExit(f"client {client} committed {count * BLOCK} numbers, of which {found} are there")


if __name__ == "__main__":
    sys.exit(main())

"""Many clients of one federation at several servers, each with a simulated disk.

    site_load.py FOLDER read|write CLIENTS SECONDS DISK SERVERS...
    site_load.py clients read|write FIRST CLIENTS SECONDS URL...     some of the clients, in one process

DISK is the `throttle` of a server's settings. Each server has a database with the containers of its clients.
A client is a thread with a session of its own: it opens the federation at any server, and reads blocks at
random places of its container, whose numbers it compares, or commits blocks to it. A point is, for a number
of servers, the bytes a second by those of the first number. CPU seconds are those of servers, clients and
PostgreSQL.
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
BEGIN = 0.4
"""Bytes count after this part of the seconds, and for as long as these."""


def main() -> int:
    """Run all, or the clients of one process."""
    if sys.argv[1] == "clients":
        what, first, clients, seconds, *urls = sys.argv[2:]
        print(json.dumps(worked(what, range(int(first), int(first) + int(clients)), float(seconds), urls)))
        return 0
    folder, what, clients, seconds, disk, *numbers = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    samples = []
    with tempfile.TemporaryDirectory(prefix="site", dir=folder) as made:
        place = Path(made)
        with database_server(place) as database:
            for number in numbers:
                (place / number).mkdir()
                how = (what, int(clients), seconds, disk)
                samples.append(at_servers(database, place / number, int(number), how))
    rates = [sample["bytes"] / sample["wall_s"] for sample in samples]
    if not all(rates):
        raise SystemExit(f"with some number of servers nothing was done in time: {rates}")
    points = [(int(number), rate / rates[0]) for number, rate in zip(numbers, rates, strict=True)]
    wall = sum(sample["wall_s"] for sample in samples)
    print(json.dumps({**summed(samples), "wall_s": wall, "points": points}))
    return 0


def at_servers(
    database: Postgres, place: Path, servers: int, how: tuple[str, int, str, str]
) -> dict[str, Any]:
    """Let all clients work with some number of servers."""
    what, clients, seconds, disk = how
    folders = created(database, place, servers)
    for number, folder in enumerate(folders):
        fill(folder, number, range(number, clients, servers), BLOCKS if what == "read" else 0)
    each = clients // PROCESSES
    with served(folders, disk) as running:
        urls = [address(server) for server in running]
        commands = [
            [sys.executable, __file__, "clients", what, str(first), str(each), seconds, *urls]
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


def worked(what: str, clients: range, seconds: float, urls: list[str]) -> dict[str, Any]:
    """Let some clients work, and count what was done for some seconds after a beginning."""

    def opened(client: int) -> fb.Federation:
        """Open the federation at one of the servers, which all answer for it, and a container."""
        federation = fb.open(urls[client // len(urls) % len(urls)], **MEMORY)
        federation[place_of(client, len(urls))].arrays("value", entry_stop=1)
        return federation

    with ThreadPoolExecutor(len(clients)) as pool:
        federations = dict(zip(clients, pool.map(opened, clients), strict=True))
        print("ready", flush=True)
        sys.stdin.readline()
        begin, cpu = time.monotonic() + BEGIN * seconds, time.process_time()
        work = {"read": reading, "write": writing}[what]

        def one(client: int) -> int:
            return work(federations[client], client, len(urls), (begin, begin + seconds))

        blocks = sum(pool.map(one, clients))
        cpu = time.process_time() - cpu
    size = blocks * BLOCK * 8
    return {"items": blocks, "bytes": size, "wall_s": seconds, "cpu_s": cpu, "check": 0}


MEMORY: dict[str, Any] = {"cache_bytes": 0, "read_ahead_bytes": 0, "streams": 0, "threads": 1}
"""A client asks for what it uses, each time anew."""


def reading(federation: fb.Federation, client: int, servers: int, window: tuple[float, float]) -> int:
    """Read blocks until the end; return how many were there in time."""
    choice, view, done = Random(client), federation[place_of(client, servers)], 0
    while time.monotonic() < window[1]:
        start = choice.randrange(BLOCKS) * BLOCK
        found = view.arrays("value", entry_start=start, entry_stop=start + BLOCK, library="np")
        if not np.array_equal(found["value"], numbers(client, start, BLOCK)):
            raise SystemExit(f"client {client} read other numbers from {start} on")
        done += window[0] <= time.monotonic() < window[1]
    return done


def writing(federation: fb.Federation, client: int, servers: int, window: tuple[float, float]) -> int:
    """Commit blocks until the end; return how many were durable in time."""
    database, _, name = place_of(client, servers).partition("/")
    total = done = 0
    while time.monotonic() < window[1]:
        with federation.transaction() as txn:
            container = txn.database(database).container(name)
            container.extend({"value": numbers(client, total, BLOCK)})
        total += BLOCK
        done += window[0] <= time.monotonic() < window[1]
    view = federation[f"{database}/{name}"]
    if len(view) != total:
        raise SystemExit(f"client {client} committed {total} numbers, of which {len(view)} are there")
    return done


if __name__ == "__main__":
    sys.exit(main())

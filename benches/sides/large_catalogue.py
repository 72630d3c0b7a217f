"""A catalogue in PostgreSQL with few containers and commits, and one with a million of each.

    large_catalogue.py prepare FOLDER MOST         make both, in one PostgreSQL
    large_catalogue.py commit  FOLDER cpu|wall     commit to random containers of both
    large_catalogue.py open    FOLDER cpu|wall     open both, and read the object of a random container

The engine makes the few containers; the rows of all others in the tables are copies of theirs, so that what
is named there is in the file, too. Points are microseconds by the number of containers: medians of elapsed
time, or means of the CPU time of the program and of PostgreSQL.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import postgres
from growth import FORM, medians, rows
from postgres import Postgres

import femtobarn as fb

FEW = 1000
TOGETHER = 200
"""Containers that a transaction makes."""
TIMES = {"commit": 200, "open": 200}
TURNS = 5
"""For CPU time, the sizes take turns so many times: `/proc` counts hundredths of a second."""
COPIES = """
SET search_path = "{schema}";
INSERT INTO containers (database, id, class, class_version, options, created, dropped)
    SELECT database, id + k * {few}, class, class_version, options, created, dropped
    FROM containers, generate_series(1, {times}) k;
INSERT INTO container_names (database, container, name, since, until)
    SELECT database, container + k * {few}, name || '_' || k, since, until
    FROM container_names, generate_series(1, {times}) k;
INSERT INTO versions ({columns}) SELECT {copied} FROM versions, generate_series(1, {times}) k;
UPDATE sequences SET last = last + {few} * {times} WHERE name = 'container';
INSERT INTO commits (csn, transaction_uuid, time_us, message, user_name, host, pid)
    SELECT newest.csn + k, uuid_send(gen_random_uuid()), time_us, message, user_name, host, pid
    FROM (SELECT * FROM commits ORDER BY csn DESC LIMIT 1) newest, generate_series(1, {few} * {times}) k;
"""


def main() -> int:
    """Run one command."""
    command, folder, *rest = sys.argv[1:]
    if command == "prepare":
        prepare(Path(folder), int(rest[0]))
        return 0
    wall, cpu = time.perf_counter(), time.process_time()
    with large(Path(folder)) as (database, places):
        work = {"commit": committing, "open": opening}[command]
        with ExitStack() as stack:
            one, times = work(stack, places), TIMES[command]
            if rest[0] == "wall":
                points = medians(time.perf_counter, one, list(places), times)
            else:
                points = means(database, one, list(places), times)
    spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print(json.dumps({"items": sum(places), "bytes": 0, "check": 0, **spent, "points": points}))
    return 0


# ---- making them


def prepare(folder: Path, most: int) -> None:
    """Make the cluster and both federations."""
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    postgres.create(draft)
    with postgres.serve(draft) as database:
        for size in (FEW, most):
            with fb.create(draft / f"{size}.fed", catalogue=database.url) as federation:
                for first in range(0, FEW, TOGETHER):
                    add(federation, range(first, first + TOGETHER))
            if size > FEW:
                multiply(database, draft / f"{size}.fed", size // FEW - 1)
        database.query("VACUUM (FREEZE, ANALYZE)")
        database.query("CHECKPOINT")
    draft.rename(folder)


def add(federation: fb.Federation, numbers: range) -> None:
    """Make containers of one object, its number."""
    with federation.transaction() as txn:
        for number in numbers:
            container = txn.database("d", create=True).container(f"c{number}", FORM, create=True)
            container.extend(rows(1, number))


def multiply(database: Postgres, folder: Path, times: int) -> None:
    """Copy all rows of a catalogue, so many times."""
    schema = tomllib.loads((folder / "catalogue.toml").read_text())["schema"]
    named = "SELECT column_name FROM information_schema.columns WHERE table_name = 'versions'"
    columns = database.query(f"{named} AND table_schema = '{schema}'").split()
    copied = [f"container + k * {FEW}" if name == "container" else name for name in columns]
    names = {"columns": ", ".join(columns), "copied": ", ".join(copied)}
    database.query(COPIES.format(schema=schema, few=FEW, times=times, **names))


# ---- working with them


@contextmanager
def large(folder: Path) -> Iterator[tuple[Postgres, dict[int, Path]]]:
    """PostgreSQL, and the federations by their number of containers."""
    places = {int(place.stem): place for place in folder.glob("*.fed")}
    with postgres.serve(folder) as database:
        for place in places.values():
            # Each run has another port.
            file = place / "catalogue.toml"
            file.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{database.port}", file.read_text()))
        yield database, dict(sorted(places.items()))


def means(
    database: Postgres, one: Callable[[int], None], sizes: list[int], times: int
) -> list[tuple[int, float]]:
    """The mean CPU time of work for each size in microseconds, without the first turn over all sizes."""
    costs = dict.fromkeys(sizes, 0.0)
    for turn in range(TURNS + 1):
        for size in sizes:
            before, own = database.cpu_seconds(), time.process_time()
            for _ in range(times // TURNS):
                one(size)
            own = time.process_time() - own
            costs[size] += (own + database.cpu_seconds() - before) * min(turn, 1)
    return [(size, cost / (times // TURNS * TURNS) * 1e6) for size, cost in costs.items()]


def one_of(random: np.random.Generator, containers: int) -> tuple[str, int]:
    """The name of a random container, and the number that its object has."""
    copy, number = divmod(int(random.integers(containers)), FEW)
    return f"c{number}" if copy == 0 else f"c{number}_{copy}", number


def committing(stack: ExitStack, places: dict[int, Path]) -> Callable[[int], None]:
    """The function that commits ten objects to one of so many containers."""
    random = np.random.default_rng()
    more = rows(10)
    federations = {size: stack.enter_context(fb.open(place)) for size, place in places.items()}

    def one(size: int) -> None:
        with federations[size].transaction() as txn:
            txn.database("d").container(one_of(random, size)[0]).extend(more)

    return one


def opening(stack: ExitStack, places: dict[int, Path]) -> Callable[[int], None]:
    """The function that opens a federation with so many containers, and reads an object."""
    random = np.random.default_rng(1)

    def one(size: int) -> None:
        name, number = one_of(random, size)
        with fb.open(places[size]) as federation:
            assert federation[f"d/{name}"][0].n == number

    return one


if __name__ == "__main__":
    sys.exit(main())

"""Make the golden federations of the present formats: everything that is on disk, in a few kilobytes each.

A federation had format 2, or 3 once a database had a copy in a store or a pin, or 4 once it was promoted.
It had format 6 with its first small commit; format 5 had another table for the bytes of those.
It has format 7 with its first small database.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import femtobarn as fb

HERE = Path(__file__).resolve().parent
STORE = "store"
"""The store of format 3, and the folder beside the federation's that it is."""


@fb.persistent
class Hit:
    """A point in the detector."""

    x: fb.float32
    adc: fb.uint16


@fb.persistent
class Raw:
    """What the detector gave."""

    hits: list[Hit]
    name: str


@fb.persistent
class Event:
    """An event."""

    run: fb.uint32
    event: fb.uint64
    weight: fb.float64 | None
    pt: list[fb.float32]
    flag: bool
    raw: fb.link[Raw]


def newer_event() -> Any:
    """Return the second version of the class: a field widened, one renamed, one new."""

    @fb.persistent(name="Event", version=2)
    class Event2:
        run: fb.uint64
        number: fb.uint64 = fb.field(was="event")
        weight: fb.float64 | None
        pt: list[fb.float32]
        flag: bool
        raw: fb.link[Raw]
        quality: fb.int32 = fb.field(default=-1)

    return Event2


def fill(folder: str) -> None:
    """Make commits of every kind."""
    federation = fb.create(folder, name="golden")
    with federation.transaction(message="first") as txn:
        raws = txn.database("raw", create=True).container("raw", Raw, create=True)
        run7 = txn.database("run7", create=True)
        events = run7.container("events", Event, create=True)
        packed = run7.container("packed", Event, create=True, compression="archive")
        for n in range(20):
            hits = [Hit(x=0.5 * i, adc=n + i) for i in range(n % 4)]
            raw = raws.append(Raw(hits=hits, name=f"raw {n}"))
            weight = None if n % 3 else n / 8
            event = Event(run=7, event=n, weight=weight, pt=[1.5 * n] * (n % 3), flag=n % 2 == 0, raw=raw)
            events.append(event)
            packed.append(event)
    with federation.transaction(message="indexes") as txn:
        events = txn.database("run7").container("events")
        events.create_index("id", ["run", "event"], unique=True)
        events.create_index("raws", ["raw"])
    with federation.transaction(message="changes") as txn:
        events = txn.database("run7").container("events")
        events.update([3, 4], {"weight": [0.25, None], "pt": [[9.0, 8.0, 7.0], []]})
        events.delete([5, 19])
    federation.tag("before", message="before the class changed")
    with federation.transaction(message="a newer class") as txn:
        events = txn.database("run7").container("events", newer_event(), evolve=True)
        events.append(
            {"run": 8, "number": 100, "weight": None, "pt": [2.5], "flag": True, "raw": None, "quality": 3}
        )
    with federation.transaction(message="names") as txn:
        txn.database("run7").container("packed").rename("archived")
        txn.database("scratch", create=True).container("raw", Raw, create=True)
    with federation.transaction(message="drop") as txn:
        txn.database("scratch").drop()
    federation.seal("raw")
    federation.close()


def fill_with_copies(folder: str) -> None:
    """Make the same, with a copy and a pin."""
    fill(folder)
    write_storage_settings(folder)
    with fb.open(folder) as federation:
        federation.migrate("raw", STORE)
        federation.pin("raw", holder="golden")


def fill_promoted(folder: str) -> None:
    """Make the same at a leader, and promote a copy of it."""
    leader = f"{folder}.leader"
    fill(leader)
    with fb.serve(leader, port=0, address="127.0.0.1", anonymous="all") as server:
        with fb.follow(server.url(server.exports[0]), folder) as follower:
            follower.catch_up()
        fb.promote(folder, "root://golden.example//golden.fed")
    with fb.open(folder) as federation, federation.transaction(message="led by the copy") as txn:
        txn.database("run7").container("archived").delete([0])


def fill_and_crash(crash: Callable[[str], None], folder: str) -> None:
    """Make the same, and what a process does that ends as if its machine had crashed."""
    fill(folder)
    process = multiprocessing.get_context("spawn").Process(target=crash, args=(folder,))
    process.start()
    process.join()


def _delete_and_stop(folder: str) -> None:
    """Commit, take the bytes of the second commit from the file, as a crash of the machine does, and end."""
    federation = fb.open(folder)
    file = Path(folder) / "databases" / "run7.root"
    for entry in range(2):
        before = file.read_bytes()
        with federation.transaction(message=f"unsynced {entry}") as txn:
            txn.database("run7").container("archived").delete([entry])
    file.write_bytes(before)
    os._exit(0)


def _create_and_stop(folder: str) -> None:
    """Commit a new database, take its file, as a crash of the machine does, and end."""
    federation = fb.open(folder)
    with federation.transaction(message="unsynced") as txn:
        raws = txn.database("brief", create=True).container("raw", Raw, create=True)
        raws.append(Raw(hits=[], name="brief"))
    (Path(folder) / "databases" / "brief.root").unlink()
    os._exit(0)


MAKERS: Mapping[int, Callable[[str], None]] = {
    2: fill,
    3: fill_with_copies,
    4: fill_promoted,
    5: partial(fill_and_crash, _delete_and_stop),
    6: partial(fill_and_crash, _delete_and_stop),
    7: partial(fill_and_crash, _create_and_stop),
}
"""What makes a federation of each format."""


def write_storage_settings(folder: str) -> None:
    """Name the store beside a federation's folder in its settings."""
    store = Path(folder).parent / STORE
    store.mkdir(exist_ok=True)
    text = f'[stores.{STORE}]\nkind = "folder"\npath = {json.dumps(str(store))}\n'
    (Path(folder) / "storage.toml").write_text(text)


def contents(folder: str) -> dict[str, Any]:
    """Return all that the snapshots of a federation hold."""
    with fb.open(folder) as federation:
        head = federation.head()
        return {
            "head": head,
            "messages": [commit["message"] for commit in federation.history()],
            "tags": {tag["name"]: tag["csn"] for tag in federation.tags()},
            "snapshots": {str(csn): _snapshot(federation.snapshot(csn=csn)) for csn in range(1, head + 1)},
        }


def _snapshot(snapshot: fb.Snapshot) -> dict[str, Any]:
    return {name: snapshot[name].arrays().to_list() for name in snapshot}


def without_locks(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the locks, which nobody holds."""
    return None if "/locks/" in member.name else member


def main() -> int:
    """Make the federations that are not there."""
    missing = [number for number in MAKERS if not (HERE / f"format-{number}.tar.gz").exists()]
    if not missing:
        print("all are there, and are never made again", file=sys.stderr)
        return 1
    for number in missing:
        with tempfile.TemporaryDirectory() as place:
            folder = f"{place}/golden.fed"
            MAKERS[number](folder)
            with tarfile.open(HERE / f"format-{number}.tar.gz", "w:gz") as packed:
                for name in ("golden.fed", STORE):
                    if (Path(place) / name).exists():
                        packed.add(f"{place}/{name}", name, filter=without_locks)
            text = json.dumps(contents(folder), indent=1, default=str)
            (HERE / f"format-{number}.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

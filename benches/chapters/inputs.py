"""Commands that make the data of several chapters; no chapter itself.

A pool of values comes first. ROOT itself writes its files, with its default options. Federations of 10 KB
objects are written from the pool; all others, Parquet files and Lance data sets are converted from ROOT's
files. So all hold the same values.
"""

from __future__ import annotations

from framework import Preparation

OBJECTS, ENTRIES, ROWS, EVENTS = "20000", "5000", "2000000", "10000000"


def pool(name: str) -> Preparation:
    """A pool of data.py: `objects`, `columns`, `rows` or `events`."""
    return Preparation(f"{{data}}/{name}.bin", ("data.py", name, f"{{data}}/{name}.bin"))


POOL = pool("objects")


def objects(compression: str) -> tuple[Preparation, ...]:
    """Make objects of 10 KB, in a ROOT file and in a federation."""
    file, federation = f"{{data}}/objects_{compression}.root", f"{{data}}/objects_{compression}.fed"
    tail = ("{data}/objects.bin", OBJECTS, compression)
    return (
        POOL,
        Preparation(file, ("root_peer", "write-objects", file, *tail)),
        Preparation(federation, ("ours", "write-objects", federation, *tail)),
    )


def columns(compression: str) -> tuple[Preparation, ...]:
    """Make jagged columns."""
    file = f"{{data}}/columns_{compression}.root"
    write = ("root_peer", "write-columns", file, "{data}/columns.bin", ENTRIES, compression)
    return (pool("columns"), Preparation(file, write), imported("columns", "events", compression))


def rows(compression: str) -> tuple[Preparation, ...]:
    """Make objects of 10 fields and 100 bytes."""
    file = f"{{data}}/rows_{compression}.root"
    write = ("root_write", "rows", file, "{data}/rows.bin", ROWS, compression)
    return (pool("rows"), Preparation(file, write), imported("rows", "rows", compression))


def events() -> tuple[Preparation, ...]:
    """Make events of 50 columns, uncompressed."""
    file = "{data}/events_none.root"
    write = ("root_write", "events", file, "{data}/events.bin", EVENTS, "none")
    return (
        pool("events"),
        Preparation(file, write),
        imported("events", "events", "none"),
        *converted("events", "own/events", "none"),
    )


def imported(name: str, ntuple: str, compression: str) -> Preparation:
    """A federation with a container `own/NTUPLE`, imported from a ROOT file."""
    file, federation = f"{{data}}/{name}_{compression}.root", f"{{data}}/{name}_{compression}.fed"
    return Preparation(federation, ("ours", "import", federation, file, ntuple, compression))


def converted(name: str, container: str, compression: str) -> tuple[Preparation, ...]:
    """A Parquet file and a Lance data set, converted from a federation."""
    federation = f"{{data}}/{name}_{compression}.fed"
    targets = {kind: f"{{data}}/{name}_{compression}.{kind}" for kind in ("parquet", "lance")}
    return tuple(
        Preparation(target, ("convert.py", federation, container, kind, compression, target))
        for kind, target in targets.items()
    )

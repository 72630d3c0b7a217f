"""Data that several chapters read."""

from __future__ import annotations

from framework import Preparation

OBJECTS = "6000"
ENTRIES = "5000"

POOL = Preparation("{data}/objects.bin", ("data.py", "objects", "{data}/objects.bin"))
COLUMNS = Preparation("{data}/columns.bin", ("data.py", "columns", "{data}/columns.bin"))


def objects(compression: str) -> tuple[Preparation, ...]:
    """Objects of 10 KB, in a file of ROOT's and in a federation."""
    file, federation = f"{{data}}/objects_{compression}.root", f"{{data}}/objects_{compression}.fed"
    tail = ("{data}/objects.bin", OBJECTS, compression)
    return (
        POOL,
        Preparation(file, ("root_peer", "write-objects", file, *tail)),
        Preparation(federation, ("ours", "write-objects", federation, *tail)),
    )


def columns(compression: str) -> tuple[Preparation, ...]:
    """Jagged columns, in a file that ROOT wrote with its default options, and in a federation."""
    plain, file = "{data}/columns_none.root", f"{{data}}/columns_{compression}.root"
    federation = f"{{data}}/columns_{compression}.fed"
    return (
        COLUMNS,
        Preparation(plain, ("root_peer", "write-columns", plain, "{data}/columns.bin", ENTRIES, "none")),
        Preparation(file, ("root_peer", "write-columns", file, "{data}/columns.bin", ENTRIES, compression)),
        Preparation(federation, ("ours", "write-columns", federation, plain, compression)),
    )

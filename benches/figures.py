"""What is measured: for each figure ours, its peer, what they share, and the ratio that must be reached.

Files that both sides read are written by ROOT itself with its default options. Objects and files lie in the
folder of the run; `{data}` and `{work}` in a command stand for the folders of data and of scratch files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OBJECTS = "6000"
ENTRIES = "5000"
APPENDED = "51200"
COMMIT = "6400"
ROWS = "5000000"


@dataclass(frozen=True)
class Side:
    """One side of a comparison: what it is called, and the command."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """A comparison.

    `target` is the least ratio of ours to the peer's in items per second; `by` says whose seconds: `wall` or
    `cpu`. Without a peer, `target` is in items per second. `cpu_most` bounds our CPU seconds for the same
    bytes, as a multiple of the peer's.
    """

    name: str
    title: str
    ours: Side
    peer: Side | None
    target: float | None
    by: str
    cpu_most: float | None = None
    others: tuple[Side, ...] = field(default_factory=tuple)


# Files and federations that the figures read, made once for a run, in this order.
PREPARATIONS: tuple[tuple[str, ...], ...] = (
    ("root_peer", "write-objects", "{data}/objects_none.root", "{data}/objects.bin", OBJECTS, "none"),
    ("root_peer", "write-objects", "{data}/objects_zstd.root", "{data}/objects.bin", OBJECTS, "zstd"),
    ("root_peer", "write-columns", "{data}/columns_none.root", "{data}/columns.bin", ENTRIES, "none"),
    ("root_peer", "write-columns", "{data}/columns_zstd.root", "{data}/columns.bin", ENTRIES, "zstd"),
    ("bench", "write-objects", "{data}/objects_none.fed", "{data}/objects.bin", OBJECTS, "none"),
    ("bench", "write-objects", "{data}/objects_zstd.fed", "{data}/objects.bin", OBJECTS, "zstd"),
    ("bench", "write-columns", "{data}/columns_none.fed", "{data}/columns_none.root", "none"),
    ("bench", "write-columns", "{data}/columns_zstd.fed", "{data}/columns_none.root", "zstd"),
)


def random_reads(compression: str, target: float, peer_reads: str) -> Figure:
    """Objects of 10 KB at random."""
    words = "uncompressed" if compression == "none" else compression
    return Figure(
        name=f"random-{compression}",
        title=f"Read 10 KB objects at random by OID, hot, {words}",
        ours=Side("Femtobarn", ("bench", "random-objects", f"{{data}}/objects_{compression}.fed", "60000")),
        peer=Side(
            "ROOT", ("root_peer", "random-objects", f"{{data}}/objects_{compression}.root", peer_reads)
        ),
        target=target,
        by="cpu",
    )


def columns(compression: str) -> Figure:
    """All columns of one file, and of a container of our own with the same data."""
    words = "uncompressed" if compression == "none" else compression
    file, own = f"{{data}}/columns_{compression}.root", f"{{data}}/columns_{compression}.fed"
    return Figure(
        name=f"columns-{compression}",
        title=f"Read all columns of a file that ROOT wrote, {words}",
        ours=Side("Femtobarn", ("bench", "columns", file)),
        peer=Side("ROOT, views", ("root_peer", "columns", file, "views")),
        target=1.0,
        by="cpu",
        others=(
            Side("Femtobarn, own container", ("bench", "own-columns", own)),
            Side("ROOT, bulk", ("root_peer", "columns", file, "bulk")),
        ),
    )


def arrays(compression: str) -> Figure:
    """All columns as awkward arrays from Python."""
    words = "uncompressed" if compression == "none" else compression
    file = f"{{data}}/columns_{compression}.root"
    return Figure(
        name=f"arrays-{compression}",
        title=f"`arrays()` of all columns from Python, {words}",
        ours=Side("Femtobarn", ("arrays", "ours", file)),
        peer=Side("uproot", ("arrays", "uproot", file)),
        target=3.0,
        by="cpu",
    )


FIGURES: tuple[Figure, ...] = (
    Figure(
        name="append",
        title="Append 10 KB objects in commits of 64 MB",
        ours=Side("Femtobarn", ("bench", "append", "{work}/fed", "{data}/objects.bin", APPENDED, COMMIT)),
        peer=Side(
            "plain file", ("bench", "plain-append", "{work}/file", "{data}/objects.bin", APPENDED, COMMIT)
        ),
        target=0.8,
        by="wall",
        cpu_most=2.0,
    ),
    random_reads("none", 20.0, "6000"),
    random_reads("zstd", 10.0, "1000"),
    Figure(
        name="rows",
        title="Append objects of 100 bytes and 10 fields one by one",
        ours=Side("Femtobarn", ("bench", "rows", "{work}/fed", ROWS)),
        peer=None,
        target=2e6,
        by="wall",
        others=(Side("ROOT", ("root_peer", "rows", "{work}/file", ROWS)),),
    ),
    columns("none"),
    columns("zstd"),
    arrays("none"),
    arrays("zstd"),
)

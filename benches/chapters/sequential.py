"""Sequential reading of whole objects, rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from data import COLLECTIONS

from chapters.inputs import columns, converted, events, objects, rows
from framework import (
    Figure,
    Headline,
    Preparation,
    Side,
    Target,
    best_of,
    explained,
    faster,
    megabytes,
    warmed,
)

TITLE = "Sequential reading"
INTRO = """All data are read in order from the page cache, and all their 32-bit words are summed. Each side
reads them twice; the second pass is timed, without opening the file. Objects are 10 KB of bytes with a
number, rows have 10 fields and 100 bytes, and columns are the jagged floats of 41 quantities, 41 KB per
event. Femtobarn reads a container of its own, and the same file that ROOT wrote; RNTupleReader reads by
views, entry by entry, or in bulk, cluster by cluster; RDataFrame's loop is compiled, over ROOT's data
source and over Femtobarn's. The limits read a plain file of the same bytes, from the page cache and, with
O_DIRECT, from the disk; for two of many columns also the same pages that Femtobarn reads. For packed data
the limit unpacks those pages, by the codec's library in C, and does nothing else."""

JAGGED = tuple(f"{collection}_{name}" for collection, (_, names) in COLLECTIONS.items() for name in names)
ROW_FIELDS = ("run", "event", "time", "x", "y", "z", "energy", "momentum", "covariance", "hits")
WORDS = {"none": "uncompressed", "lz4": "lz4", "zstd": "zstd"}
GROUP = "Reading back and selecting"
COPYING = (
    "`pread` copies into memory that stays in the processor's cache; a scan fills new arrays and verifies a "
    "checksum of each page."
)
OUR_FRAME = "RDataFrame over Femtobarn"
UNPACK = "unpacking alone"
UNPACKING = "Unpacking alone takes most of the time, and all readers need it."
"""Why targets are missed."""


@dataclass(frozen=True)
class Data:
    """A file, the fields to read, and the arguments of ROOT's programs; `ways` are those of root_scan."""

    stem: str
    ntuple: str
    container: str
    names: tuple[str, ...]
    mode: str
    ways: tuple[str, ...]
    entries: str

    def sides(self, compression: str) -> tuple[Side, ...]:
        """All sides that read it."""
        stem = f"{{data}}/{self.stem}_{compression}"
        file, names = f"{stem}.root", ",".join(self.names)
        listed = (names,) if self.mode in ("columns", "flat") else ()
        own = ("ours", "scan", f"{stem}.fed", self.container, names)
        return (
            Side("Femtobarn", (*own, "1"), "ours"),
            Side("Femtobarn, 2 threads", (*own, "2"), "ours", cores=2),
            Side("Femtobarn, ROOT's file", ("ours", "scan-file", file, self.ntuple, names, "1"), "ours"),
            *(
                Side(f"RNTupleReader, {way}", ("root_scan", self.mode, file, *listed, way))
                for way in self.ways
            ),
            Side("RDataFrame", ("root_frame", self.mode, file, *listed)),
            Side(OUR_FRAME, ("root_frame", self.mode, f"{stem}.fed", *listed), "ours"),
            Side("uproot", ("scan.py", "uproot", file, self.ntuple, names)),
            Side("Parquet", ("scan.py", "parquet", f"{stem}.parquet", self.ntuple, names)),
            Side("Lance", ("scan.py", "lance", f"{stem}.lance", self.ntuple, names)),
        )

    def limits(self, compression: str) -> tuple[Side, ...]:
        """Unpacking the same pages alone, or reading the same bytes.

        Those are read from a plain file, and for a few of many columns also from the same pages.
        """
        if compression != "none":
            return (
                Side(UNPACK, ("bare_unpack", self.database(compression), self.pages(compression)), "limit"),
            )
        plain = tuple(
            Side(name, ("ours", "read-plain", self.plain, way, self.entries), "limit")
            for name, way in (("pread", "cached"), ("O_DIRECT", "direct"))
        )
        federation, names = f"{{data}}/{self.stem}_none.fed", ",".join(self.names)
        pages = Side("pread, same pages", ("ours", "read-pages", federation, self.container, names), "limit")
        return (*plain, pages) if self.mode == "flat" else plain

    def database(self, compression: str) -> str:
        """The file of the container."""
        name = self.container.partition("/")[0]
        return f"{{data}}/{self.stem}_{compression}.fed/databases/{name}.root"

    def pages(self, compression: str) -> str:
        """The list of the fields' pages in that file."""
        return f"{{data}}/{self.stem}_{len(self.names)}_{compression}.pages"

    def listed(self, compression: str) -> Preparation:
        """The command that makes the list."""
        made, federation = self.pages(compression), f"{{data}}/{self.stem}_{compression}.fed"
        command = ("ours", "pages", made, federation, self.container, ",".join(self.names))
        return Preparation(made, command)

    @property
    def plain(self) -> str:
        """The plain file."""
        return f"{{data}}/{self.stem}_{len(self.names)}.plain"

    def exported(self) -> Preparation:
        """The command that makes the plain file."""
        command = ("ours", "export", self.plain, f"{{data}}/{self.stem}_none.root", self.ntuple)
        return Preparation(self.plain, (*command, ",".join(self.names)))

    def best_of_root(self, ours: str, at_least: float) -> Target:
        """The ratio to RNTupleReader's fastest way, by CPU seconds."""
        return best_of(ours, tuple(f"RNTupleReader, {way}" for way in self.ways), at_least, "cpu")


OBJECTS = Data("objects", "objects", "objects/objects", ("id", "blob"), "objects", ("views", "bulk"), "20000")
ROWS = Data("rows", "rows", "own/rows", ROW_FIELDS, "rows", ("entries", "views"), "2000000")
COLUMNS = Data("columns", "events", "own/events", JAGGED, "columns", ("views", "bulk"), "5000")
PAIR = replace(COLUMNS, names=("Track_pt", "Track_eta"))
FLAT = Data("events", "events", "own/events", ("f00", "f01"), "flat", ("views", "bulk"), "10000000")

HEADLINES = (
    ((OBJECTS, "none"), "Read all objects of 10 KB in order"),
    ((COLUMNS, "none"), "Read 41 jagged columns of all events"),
    ((COLUMNS, "zstd"), "Read 41 jagged columns of all events, packed with zstd"),
)

PREPARATIONS = (
    *(step for c in WORDS for step in (*objects(c), *converted("objects", "objects/objects", c))),
    *(step for c in ("none", "zstd") for step in (*rows(c), *converted("rows", "own/rows", c))),
    *(step for c in WORDS for step in (*columns(c), *converted("columns", "own/events", c))),
    *events(),
    *(data.exported() for data in (OBJECTS, ROWS, COLUMNS, FLAT)),
    *(data.listed(c) for c in ("lz4", "zstd") for data in (OBJECTS, COLUMNS, PAIR)),
    ROWS.listed("zstd"),
)


def figure(name: str, title: str, data: Data, compression: str, unit: str) -> Figure:
    """All sides, and for uncompressed data the limits."""
    sides = data.sides(compression) + data.limits(compression)
    root = "Femtobarn, ROOT's file"
    targets = [data.best_of_root("Femtobarn", 1.5), data.best_of_root(root, 1.5)]
    targets.append(faster(OUR_FRAME, "RDataFrame", 1.5, "cpu"))
    if compression == "none":
        limit = faster("Femtobarn", "pread, same pages" if data is FLAT else "pread", 0.9, "cpu")
        targets.insert(0, explained(limit, COPYING))
    else:
        targets = [explained(target, UNPACKING) for target in targets]
    targets.append(
        explained(faster("Femtobarn, 2 threads", "Femtobarn", 1.8), "Both cores share the way to memory.")
    )
    return Figure(
        name=f"{name}-{compression}",
        title=f"{title}, {WORDS[compression]}",
        unit=unit,
        sides=tuple(warmed(side) for side in sides),
        targets=tuple(targets),
        by="cpu",
        headlines=tuple(
            headline(text, targets[0], sides, "pread" if compression == "none" else UNPACK)
            for which, text in HEADLINES
            if which == (data, compression)
        ),
    )


def headline(text: str, wanted: Target, sides: tuple[Side, ...], limit: str) -> Headline:
    """What a user feels of a figure: our container, one thread."""
    return Headline(
        GROUP,
        text,
        "Femtobarn",
        megabytes("cpu"),
        wanted,
        (limit,),
        tuple(side.key for side in sides if side.role == "peer"),
    )


FIGURES = (
    *(figure("objects", "All objects of 10 KB", OBJECTS, c, "objects") for c in WORDS),
    *(figure("rows", "All objects of 100 bytes and 10 fields", ROWS, c, "objects") for c in ("none", "zstd")),
    *(figure("columns", "All 41 jagged columns", COLUMNS, c, "events") for c in WORDS),
    *(figure("pair", "Two of 41 jagged columns", PAIR, c, "events") for c in ("lz4", "zstd")),
    figure("flat", "Two of 50 flat columns", FLAT, "none", "events"),
)

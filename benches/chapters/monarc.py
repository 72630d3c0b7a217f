"""Writing objects, as in the MONARC note: by size, with links, by many writers."""

from __future__ import annotations

from chapters.inputs import POOL
from framework import (
    Figure,
    Headline,
    Role,
    Side,
    Target,
    best_of,
    cpu_per_100_mb,
    disk_over_payload,
    explained,
    megabytes,
    never_falls,
    per_second,
    rate,
)

TITLE = "Writing objects"
INTRO = (
    "Objects are appended one by one in transactions of 64 MB, each of which is durable when it is committed "
    "(fdatasync). Disk over payload counts the blocks of all files afterwards. Plain files are the limit: "
    "one is written in pieces of 1 MB through the page cache, the other past it (O_DIRECT), from one reused "
    "buffer to preallocated space. ROOT's file is complete, and synced, only when it is closed; HDF5's "
    "objects are rows of one array, written 1 MB at a time; RocksDB ingests sorted files. A link has 16 "
    "bytes, which do not count as payload; peers have no links."
)
PREPARATIONS = (POOL,)

SIZES = {100: "100 B", 1024: "1 KB", 4096: "4 KB", 8192: "8 KB", 10240: "10 KB", 1 << 20: "1 MB"}
COMMIT_BYTES, COMMITS = 64 << 20, 4
ROWS = "5000000"
WRITERS = (1, 2, 4, 8, 16)
LINKED = {0: "Femtobarn", 1: "Femtobarn, 1 link", 4: "Femtobarn, 4 links"}
PLAIN = ("plain file", "O_DIRECT file")
PEERS = ("ROOT", "RocksDB", "LMDB", "SQLite", "HDF5", "ZODB")
GROUP = "Taking data"
DISK = "The disk varies: runs of the same limit differ by more than the miss."


def append(
    program: str,
    *place: str,
    size: int,
    share: float = 1.0,
    writers: int = 1,
    last: tuple[str, ...] = ("{index}",),
) -> tuple[str, ...]:
    """The command of a side: four transactions divided among the writers, but at least one for each.

    Slow sides write a share of that, which suffices for a rate.
    """
    commit = COMMIT_BYTES // size
    count = int(commit * max(COMMITS / writers, 1) * share)
    return (
        program,
        "append",
        *place,
        "{data}/objects.bin",
        str(size),
        str(max(count, 1)),
        str(commit),
        *last,
    )


def of_size(size: int) -> Figure:
    """Objects of one size."""
    ours = [
        Side(
            name,
            append("ours", "{work}/fed", "shared", size=size),
            "ours",
            before=("ours", "create", "{work}/fed", "shared", str(size), str(links), "1"),
        )
        for links, name in LINKED.items()
    ]
    sides = (
        *ours,
        Side("ROOT", append("root_objects", "{work}", size=size, share=0.5)),
        Side("RocksDB", append("rocksdb_peer", "{work}/rocks", size=size)),
        Side("LMDB", append("peers", "lmdb", "{work}/lmdb", size=size)),
        Side("SQLite", append("peers", "sqlite", "{work}/sqlite", size=size, share=0.25)),
        Side("HDF5", append("objects.py", "h5", "{work}", size=size, share=0.5, last=())),
        Side(
            "ZODB",
            append("objects.py", "zodb", "{work}", size=size, share=0.25 if size > 100 else 0.02, last=()),
        ),
        Side("plain file", append("peers", "plain", "{work}", size=size), "limit"),
        Side("O_DIRECT file", append("peers", "direct", "{work}", size=size), "limit"),
    )
    return Figure(
        name=f"append-{SIZES[size].replace(' ', '').lower()}",
        title=f"Append objects of {SIZES[size]}",
        unit="objects",
        sides=sides,
        targets=TARGETS.get(size, ()),
        headlines=HEADLINES.get(size, ()),
    )


def links_cost(links: int, at_most: float) -> Target:
    """The ratio of CPU seconds with links to those without; each link may add at most a tenth."""
    name = LINKED[links]
    target = Target(
        f"{name} / none, CPU seconds",
        lambda r: r.rate("Femtobarn", "cpu") / r.rate(name, "cpu"),
        at_most=at_most,
    )
    return explained(target, "A link has 16 bytes in three columns, which shows beside small objects.")


TARGETS: dict[int, tuple[Target, ...]] = {
    100: (
        disk_over_payload("Femtobarn", 1.10),
        links_cost(1, 1.1),
        links_cost(4, 1.4),
    ),
    10240: (
        cpu_per_100_mb("Femtobarn", 0.04),
        disk_over_payload("Femtobarn", 1.03),
        links_cost(4, 1.1),
    ),
}

HEADLINES: dict[int, tuple[Headline, ...]] = {
    100: (
        Headline(
            GROUP,
            "Write objects of 100 B, durably every 64 MB",
            "Femtobarn",
            per_second("objects"),
            rate("Femtobarn", 4e6),
            PLAIN,
            PEERS,
        ),
    ),
    10240: (
        Headline(
            GROUP,
            "Write objects of 10 KB, durably every 64 MB",
            "Femtobarn",
            megabytes(),
            explained(best_of("Femtobarn", PLAIN, 0.9), DISK),
            PLAIN,
            PEERS,
        ),
    ),
}


def rows() -> Figure:
    """Objects whose fields are columns of their own."""
    return Figure(
        name="rows",
        title="Append objects of 100 B and 10 fields",
        unit="objects",
        sides=(
            Side("Femtobarn", ("ours", "rows", "{work}/fed", ROWS), "ours"),
            Side("ROOT", ("root_peer", "rows", "{work}/file", ROWS)),
        ),
        targets=(rate("Femtobarn", 4e6), disk_over_payload("Femtobarn", 1.10)),
        note="One transaction of 500 MB.",
    )


def writers() -> Figure:
    """Objects of 10 KB, by many concurrent processes, which together write as much as one alone."""

    def curve(
        name: str, role: Role, number: int, before: tuple[str, ...] | None, *words: str, share: float = 1.0
    ) -> Side:
        command = append(*words, size=10240, share=share, writers=number)
        return Side(name, command, role, x=number, processes=number, cores=2, before=before)

    def at(number: int) -> tuple[Side, ...]:
        def created(of: str) -> tuple[str, ...]:
            return ("ours", "create", "{work}/fed", of, "10240", "0", str(number))

        lmdb, sqlite = ("peers", "lmdb", "{work}/lmdb"), ("peers", "sqlite", "{work}/sqlite")
        return (
            curve("Femtobarn", "ours", number, created("shared"), "ours", "{work}/fed", "shared"),
            curve("Femtobarn, own databases", "ours", number, created("own"), "ours", "{work}/fed", "own"),
            curve("ROOT, own files", "peer", number, None, "root_objects", "{work}", share=0.5),
            curve("LMDB", "peer", number, create_empty(*lmdb), *lmdb),
            curve("SQLite", "peer", number, create_empty(*sqlite), *sqlite, share=0.25),
            curve("plain file", "limit", number, None, "peers", "plain", "{work}"),
            curve("O_DIRECT file", "limit", number, None, "peers", "direct", "{work}"),
        )

    def named(names: tuple[str, ...], number: int) -> tuple[str, ...]:
        return tuple(f"{name} @ {number}" for name in names)

    most = WRITERS[-1]
    targets = tuple(
        explained(best_of(f"Femtobarn @ {number}", named(PLAIN, number), 0.9), DISK) for number in WRITERS
    )
    headline = Headline(
        GROUP,
        f"Write objects of 10 KB by {most} processes into one database",
        f"Femtobarn @ {most}",
        megabytes(),
        targets[-1],
        named(PLAIN, most),
        named(("ROOT, own files", "LMDB", "SQLite"), most),
    )
    return Figure(
        name="writers",
        title="Append objects of 10 KB by many processes",
        unit="objects",
        sides=tuple(side for number in WRITERS for side in at(number)),
        targets=(
            *targets,
            *(cpu_per_100_mb(f"Femtobarn @ {number}", 0.04) for number in WRITERS),
            never_falls(tuple(f"Femtobarn @ {number}" for number in WRITERS)),
            never_falls(tuple(f"Femtobarn, own databases @ {number}" for number in WRITERS)),
        ),
        x="writers",
        note="Each of Femtobarn's writers has a container of its own, in one shared or in its own database; "
        "LMDB's and SQLite's writers have a table each in one file, all others a file each. Two cores.",
        headlines=(headline,),
    )


def create_empty(*words: str) -> tuple[str, ...]:
    """The command that creates an empty store, so that concurrent processes need not create it."""
    return (words[0], "append", *words[1:], "{data}/objects.bin", "10240", "0", "1", "0")


FIGURES: tuple[Figure, ...] = (*map(of_size, SIZES), rows(), writers())

"""Small transactions, by one and by many processes."""

from __future__ import annotations

from framework import Figure, Headline, Role, Side, Target, explained, faster, per_second, rate

TITLE = "Small transactions"
INTRO = (
    "Each transaction appends 10 objects of 100 bytes and is durable when it is committed. Each process "
    "commits for one second. The limit is one file per process to which 4 KB are appended and synced "
    "(fdatasync), once, or twice like a two-phase commit; in place, the 4 KB are overwritten in a file that "
    "is there already, so that a sync writes no inode; grouped, one process does so for all and syncs once. "
    "RocksDB's writers are threads of one process, because no second process may open a database; ZODB "
    "alone is one process, and with ZEO each process is a client of one server. Each writer has a table of "
    "its own, so that commits do not conflict."
)
PREPARATIONS = ()

SECONDS = "1"
PROCESSES = (1, 4, 16, 64)
IN_PLACE, GROUPED = "fdatasync in place", "fdatasync in place, grouped"
OVERWRITES = ("peers", "overwrites", "{work}")
ONE_SYNC = (*OVERWRITES, "0", SECONDS, "1")
"""What a commit cannot do without, for chapters in which one process commits."""


def at(number: int) -> tuple[Side, ...]:
    """All sides with one number of writers."""
    many = str(number)

    def each(name: str, role: Role, *command: str, before: tuple[str, ...] | None = None) -> Side:
        return Side(name, command, role, x=number, processes=number, cores=2, before=before)

    def one(name: str, role: Role, *command: str) -> Side:
        return Side(name, command, role, x=number, cores=2)

    def store(name: str, engine: str) -> Side:
        place = ("peers", "commits", engine, "{work}/store")
        return each(name, "peer", *place, "{index}", SECONDS, before=(*place, "0", "0"))

    def ours(name: str, of: str) -> Side:
        created = ("ours", "create", "{work}/fed", of, "100", "0", many)
        return each(name, "ours", "ours", "commits", "{work}/fed", of, "{index}", SECONDS, before=created)

    # ZEO's clients are slow to start, and their rate stops growing at fewer of them.
    zeo = one("ZEO", "peer", "objects.py", "commits", "zeo", "{work}", many, SECONDS)
    zodb = one("ZODB", "peer", "objects.py", "commits", "zodb", "{work}", many, SECONDS)
    return (
        ours("Femtobarn", "shared"),
        ours("Femtobarn, own databases", "own"),
        store("SQLite", "sqlite"),
        store("LMDB", "lmdb"),
        one("RocksDB", "peer", "rocksdb_peer", "commits", "{work}/rocks", many, SECONDS),
        *((zodb,) if number == 1 else ()),
        *((zeo,) if number <= 4 else ()),
        each("fdatasync", "limit", "peers", "syncs", "{work}", "{index}", SECONDS, "1", "1"),
        each(IN_PLACE, "limit", *OVERWRITES, "{index}", SECONDS, "1"),
        each("fdatasync twice", "limit", "peers", "syncs", "{work}", "{index}", SECONDS, "2", "1"),
        one(GROUPED, "limit", *OVERWRITES, "0", SECONDS, many),
    )


def headline(number: int, words: str, wanted: Target) -> Headline:
    """What some number of processes feels."""
    return Headline(
        "Committing",
        f"Commit ten objects of 100 B, {words}",
        f"Femtobarn @ {number}",
        per_second("commits"),
        wanted,
        limits=tuple(f"{name} @ {number}" for name in ("fdatasync", IN_PLACE, GROUPED)),
        peers=tuple(side.key for side in at(number) if side.role == "peer"),
    )


HEADLINES = (
    headline(
        1,
        "one process",
        explained(
            rate("Femtobarn @ 1", 6000),
            "A commit takes four times as much of the processor as a write and a sync alone: pages, page "
            "lists, a footer, a commit record, and SQLite's transaction.",
        ),
    ),
    headline(
        16,
        "16 processes",
        explained(
            rate("Femtobarn @ 16", 20_000),
            "The processor limits 16 processes: a commit takes six times as much of it as a write and a sync "
            "alone, and twenty times as much as one of a group that shares the sync.",
        ),
    ),
)


FIGURES: tuple[Figure, ...] = (
    Figure(
        name="commits",
        title="Commit 10 objects of 100 B",
        unit="commits",
        sides=tuple(side for number in PROCESSES for side in at(number)),
        targets=(
            faster("Femtobarn @ 1", "fdatasync twice @ 1", 0.8),
            faster("Femtobarn @ 16", "SQLite @ 16", 2.0),
        ),
        x="processes",
        headlines=HEADLINES,
    ),
)

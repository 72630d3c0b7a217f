"""Transactions that read and update: transfers between accounts."""

from __future__ import annotations

from chapters.commits import IN_PLACE, ONE_SYNC
from framework import Figure, Headline, Json, Role, Side, Target, explained, faster, per_second, rate

TITLE = "Transfers between accounts"
INTRO = """Each transaction reads two numbers of one container of 1,000 objects, or of one table, and
updates both, from Python, and is durable when it is committed. Several processes compete for the one
container. The log of SQLite is synced at each commit (`synchronous = full`). Through a server, CPU seconds
are those of server and client. The limit overwrites and syncs 4 KB for each transfer."""
PREPARATIONS = ()

SECONDS = "1.5"
PROCESSES = (1, 4)


def local(name: str, engine: str, role: Role, many: int) -> Side:
    """Processes that have the folder."""
    store = "{work}/bank"
    return Side(
        name,
        ("transfers.py", engine, "run", store, "{index}", SECONDS),
        role,
        x=many,
        processes=many,
        cores=2,
        before=("transfers.py", engine, "create", store),
    )


def p99_over_median(key: str, at_most: float) -> Target:
    """The 99 % quantile of the times of transfers over their median."""

    def ratio(sample: Json) -> float:
        return float(sample["p99_us"] / sample["median_us"])

    return Target(f"{key}, p99 / median", lambda results: results.median(key, ratio), at_most=at_most)


SIDES = tuple(
    side
    for many in PROCESSES
    for side in (
        local("Femtobarn", "femtobarn", "ours", many),
        local("SQLite", "sqlite", "peer", many),
    )
)
SERVED = Side(
    "Femtobarn, at a server",
    ("with_server.py", "{work}/bank", "transfers.py", "femtobarn", "run", "URL", "0", SECONDS),
    "ours",
    x=1,
    cores=2,
    before=("transfers.py", "femtobarn", "create", "{work}/bank"),
)
FIGURES: tuple[Figure, ...] = (
    Figure(
        name="transfers",
        title="Read two numbers and update them",
        unit="transfers",
        sides=(*SIDES, SERVED, Side(IN_PLACE, ONE_SYNC, "limit", x=1)),
        targets=(
            faster("Femtobarn @ 4", "Femtobarn @ 1", 0.8),
            p99_over_median("Femtobarn @ 4", 5.0),
        ),
        x="processes",
        headlines=(
            Headline(
                "Committing",
                "Read two numbers, update and commit them, from Python",
                "Femtobarn @ 1",
                per_second("transfers"),
                explained(
                    rate("Femtobarn @ 1", 4000),
                    "A write and a sync alone take a tenth of the processor's time: an update writes pages, "
                    "page lists and a footer, and a read opens the version that the update before it left.",
                ),
                limits=(f"{IN_PLACE} @ 1",),
                peers=("SQLite @ 1",),
            ),
        ),
    ),
)

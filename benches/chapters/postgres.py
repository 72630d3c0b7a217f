"""A federation whose catalogue is in PostgreSQL, compared with PostgreSQL itself and with DuckLake."""

from __future__ import annotations

from chapters.commits import IN_PLACE, ONE_SYNC
from chapters.locking import BARE, bare
from framework import (
    Figure,
    Headline,
    Preparation,
    Side,
    Target,
    explained,
    faster,
    flat,
    highest,
    last,
    per_second,
    rate,
)

TITLE = "A catalogue in PostgreSQL"
INTRO = """Debian's PostgreSQL runs on this machine, with its own settings but for memory and the number of
connections: a commit waits until it is durable. A transaction appends 10 objects of 100 bytes to a container
of its committer's own. Beside whole transactions is the catalogue's part alone, a new version of a container.
PostgreSQL's own rate is that of pgbench with one connection and prepared statements; each transaction inserts
one row of 1,000 bytes. Committers at a server have a session and a thread each, all in one process for each
server; several servers have databases and folders of their own, and each commit is one of the whole
federation. DuckLake's committers have a DuckDB 1.5.5, a thread and a table each, and insert 10 rows of 100
bytes; what still fails after its own ten retries counts as failed. CPU seconds are those of committers,
servers and PostgreSQL, which share two cores."""

SECONDS = "1.5"
INSERT_SECONDS = "2"
"""pgbench takes whole ones."""
LAKE_SECONDS = "3"
COMMITTERS = (16, 64)
MOST = 1_000_000
LARGE = f"{{data}}/catalogue_of_{MOST}"
WORK = "{work}/postgres"
NEEDS = ("pgbench", "psql")
OURS, PART, OTHERS, LAKE = "Femtobarn", "Femtobarn, catalogue's part", "Femtobarn, 4 servers", "DuckLake"
ROWS = "PostgreSQL, one row"
CPU, WALL = "CPU time", "elapsed time"

PREPARATIONS = (Preparation(LARGE, ("large_catalogue.py", "prepare", LARGE, str(MOST)), needs=NEEDS),)


def here(name: str, work: str) -> Side:
    """One committer in the federation's folder."""
    command = ("committers.py", "here", WORK, "{ours}", work, SECONDS)
    return Side(name, command, "ours", cores=2, needs=NEEDS)


def served(name: str, work: str, servers: int, committers: int) -> Side:
    """Committers at servers."""
    command = ("committers.py", "served", WORK, "{ours}", work, str(servers), str(committers), SECONDS)
    return Side(name, command, "ours", x=committers, cores=2, needs=NEEDS)


def lake(committers: int) -> Side:
    """DuckLake's committers."""
    command = ("ducklake.py", WORK, "{ducklake}", str(committers), LAKE_SECONDS)
    return Side(LAKE, command, x=committers, cores=2, needs=NEEDS)


def one() -> Figure:
    """One committer, and one connection that inserts rows."""
    return Figure(
        name="postgres-one",
        title="Commit by one process, with a catalogue in PostgreSQL",
        unit="commits",
        sides=(
            here(OURS, "transactions"),
            here(PART, "publish"),
            Side(ROWS, ("committers.py", "inserts", WORK, INSERT_SECONDS), cores=2, needs=NEEDS),
            Side(IN_PLACE, ONE_SYNC, "limit", cores=2),
        ),
        targets=(faster(OURS, ROWS, 0.7), faster(PART, ROWS, 0.7)),
    )


def many() -> Figure:
    """Many committers at servers, and as many of DuckLake's."""
    most = COMMITTERS[-1]
    wanted = explained(rate(f"{OURS} @ {most}", 10_000), "Clients, server and PostgreSQL share two cores.")
    return Figure(
        name="postgres-many",
        title="Commit by many, with a catalogue in PostgreSQL",
        unit="commits",
        sides=(
            *(served(OURS, "transactions", 1, number) for number in COMMITTERS),
            *(served(PART, "publish", 1, number) for number in COMMITTERS),
            served(OTHERS, "transactions", 4, most),
            *map(lake, COMMITTERS),
            bare(most),
        ),
        targets=(
            rate(f"{PART} @ {most}", 10_000),
            rate(f"{OTHERS} @ {most}", 7_000),
            *(faster(f"{OURS} @ {number}", f"{LAKE} @ {number}", 5.0) for number in COMMITTERS),
        ),
        x="committers",
        headlines=(
            Headline(
                "Through a server",
                f"Commit ten objects of 100 B at a server, {most} clients, the catalogue in PostgreSQL",
                f"{OURS} @ {most}",
                per_second("commits"),
                wanted,
                (f"{BARE} @ {most}",),
                (f"{LAKE} @ {most}",),
            ),
        ),
    )


def large(work: str, title: str, targets: tuple[Target, ...], headlines: tuple[Headline, ...] = ()) -> Figure:
    """A cost with few and with many containers and commits."""
    return Figure(
        name=f"postgres-{work}",
        title=title,
        unit="containers",
        sides=tuple(
            Side(name, ("large_catalogue.py", work, LARGE, clock), "ours", cores=2, needs=NEEDS)
            for name, clock in ((CPU, "cpu"), (WALL, "wall"))
        ),
        targets=targets,
        headlines=headlines,
        by="cpu",
        x="containers and commits",
        y="microseconds",
        note="The containers are random ones. The rows of all but 1,000 are copies of the others' rows.",
    )


OPENED = highest(WALL, 20_000, "microseconds")

FIGURES: tuple[Figure, ...] = (
    one(),
    many(),
    large("commit", "Commit to a container, the catalogue in PostgreSQL", (flat(CPU),)),
    large(
        "open",
        "Open a federation and read an object, the catalogue in PostgreSQL",
        (flat(CPU),),
        (
            Headline(
                "Growth",
                "Open a federation of a million containers in PostgreSQL, and read an object",
                WALL,
                last("us"),
                OPENED,
                no_limit="the aim is that size does not matter",
                no_peer="peers are not measured at this size",
            ),
        ),
    ),
)
"""The chapter's figures."""

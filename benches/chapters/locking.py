"""Locks and commits at a server, by few sessions and by many."""

from __future__ import annotations

from framework import Figure, Headline, Side, explained, faster, per_second, rate

TITLE = "Locks and commits at a server"
INTRO = """Each session locks and unlocks uncontended containers, 32 in one message or one by one, and sends
the next message when all locks were granted. Each client that commits has a session, a thread and a
container of its own, all in one process. It commits either whole transactions of 10 objects of 100 bytes
through the engine, or only a new version of its container, which is the catalogue's part of a transaction.
Every commit is durable when it is acknowledged. Server and clients share two cores. CPU seconds are the
server's for locks, and those of server and clients for commits. The limit of transactions is one message of
1,000 bytes and its answer, and one sync of 4 KB for each of those that have arrived by then."""
PREPARATIONS = ()

SECONDS = "1.5"
SESSIONS = (1, 64)
CLIENTS = (1, 16, 64)
BARE = "message and fdatasync"
TURNS = {"Femtobarn, 32 in a turn": "lock-32", "Femtobarn, one by one": "lock-1"}


def created(containers: int) -> tuple[str, ...]:
    """The command that creates the federation."""
    return ("ours", "create", "{work}/fed", "shared", "100", "0", str(containers))


def locks() -> Figure:
    """Uncontended locks."""
    served = ("server_load.py", "femtobarn", "{work}/fed")
    sides = tuple(
        Side(
            name,
            (*served, work, "{sessions}", str(many), "0", SECONDS),
            "ours",
            x=many,
            cores=2,
            before=created(1),
        )
        for many in SESSIONS
        for name, work in TURNS.items()
    )
    return Figure(
        name="locks",
        title="Lock and unlock a container",
        unit="pairs",
        sides=sides,
        targets=(rate("Femtobarn, 32 in a turn @ 64", 100_000),),
        x="sessions",
    )


def committing(work: str, many: int) -> Side:
    """Some clients that commit at our server."""
    clients = ("{ours}", "clients", "URL", "objects", work, str(many), SECONDS)
    command = ("with_server.py", "{work}/fed", *clients)
    return Side("Femtobarn", command, "ours", x=many, cores=2, before=created(many))


def bare(many: int) -> Side:
    """As many clients that send bytes, which a program in C writes and syncs."""
    return Side(BARE, ("bare_commits", "{work}", str(many), SECONDS), "limit", x=many, cores=2)


def commits(name: str, title: str, work: str) -> Figure:
    """Commits by one client and by many, which the server groups."""
    whole = work == "transactions"
    sides = tuple(committing(work, many) for many in (CLIENTS if whole else SESSIONS))
    sides += tuple(map(bare, CLIENTS)) if whole else ()
    wanted = explained(
        rate("Femtobarn @ 64", 12_000),
        "Messages and shared syncs alone take a twentieth of the processor's time for a commit, of which "
        "client and server take a half each.",
    )
    headline = Headline(
        "Through a server",
        "Commit ten objects of 100 B at a server, 64 clients",
        "Femtobarn @ 64",
        per_second("commits"),
        wanted,
        limits=(f"{BARE} @ 64",),
        no_peer="ZEO's rate stops growing at four clients",
    )
    return Figure(
        name=name,
        title=title,
        unit="commits",
        sides=sides,
        targets=(faster("Femtobarn @ 64", "Femtobarn @ 1", 5.0),),
        x="clients",
        headlines=(headline,) if whole else (),
    )


FIGURES: tuple[Figure, ...] = (
    locks(),
    commits("publish", "Commit a version of a container to the catalogue", "publish"),
    commits("remote-commits", "Commit 10 objects of 100 B at a server", "transactions"),
)

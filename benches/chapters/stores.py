"""Databases in an S3 server: copied there and back, and read in place."""

from __future__ import annotations

from framework import Figure, Headline, Preparation, Role, Side, Target, faster, megabytes

TITLE = "Databases in an object store"
INTRO = """A sealed database of 1 GB and an S3 server (rclone's) on one machine. rclone copies the same
file as a client of the same server, and syncs it when it is back. The limit is a client in C that knows
nothing of stores: it sends the file by `sendfile`, or writes it past the page cache and syncs it, to or from
a server that asks for no keys. A selection is one of 50 fields in one of
100 clusters, from a database that the store alone has."""

FOLDER = "{data}/stored-1gb"
MEGABYTES = 1000
MEMORY_MAX = 64 << 20
ALONE = "the S3 server alone"
COPIERS: dict[str, tuple[str, Role]] = {
    "Femtobarn": ("femtobarn", "ours"),
    "rclone": ("rclone", "peer"),
    ALONE: ("{bare_http}", "limit"),
}

PREPARATIONS = (Preparation(FOLDER, ("stored.py", "make", FOLDER, str(MEGABYTES))),)


def by_each(work: str) -> tuple[Side, ...]:
    """The same work by each of them."""
    return tuple(
        Side(name, ("stored.py", how, FOLDER, work), role, cores=2) for name, (how, role) in COPIERS.items()
    )


MEMORY = Target(
    "Femtobarn, MiB of memory",
    lambda r: r.median("Femtobarn", lambda sample: sample["memory_bytes"]) / (1 << 20),
    at_most=MEMORY_MAX / (1 << 20),
)
FETCHED = Target(
    "from S3 / from a folder, bytes",
    lambda r: r.heights("S3")[0] / r.heights("A folder")[0],
    at_most=1.3,
)


def felt(text: str) -> tuple[Headline, ...]:
    """What users of a store feel."""
    return (
        Headline(
            "Stores and copies",
            text,
            "Femtobarn",
            megabytes(),
            faster("Femtobarn", "rclone", 0.8),
            (ALONE,),
            ("rclone",),
        ),
    )


FIGURES: tuple[Figure, ...] = (
    Figure(
        "stored-migrate",
        "Copy a database to the store",
        "bytes",
        by_each("migrate"),
        (MEMORY,),
        headlines=felt("Copy a database of 1 GB to a store"),
    ),
    Figure(
        "stored-stage",
        "Bring a database back from the store",
        "bytes",
        by_each("stage"),
        (MEMORY,),
        headlines=felt("Bring a database of 1 GB back from a store"),
    ),
    Figure(
        "stored-selection",
        "Read a selection in place",
        "objects",
        (
            Side("S3", ("stored.py", "s3", FOLDER, "selection"), "ours"),
            Side("A folder", ("stored.py", "folder", FOLDER, "selection"), "ours"),
        ),
        (FETCHED,),
        x="fields",
        y="bytes that came from the store for each byte of the result",
        note="A folder gives exactly the bytes that are asked for.",
    ),
)
"""The chapter's figures."""

"""A cache of another server, compared with XCache."""

from __future__ import annotations

from chapters.serving import BARE, READ, SERVERS, asking
from chapters.serving import side as served
from framework import (
    Figure,
    Headline,
    Measure,
    Preparation,
    Role,
    Side,
    Target,
    explained,
    faster,
    highest,
    megabytes,
    microseconds,
)

TITLE = "Caching another server"
INTRO = """A cache, its origin (XRootD's server, with the file in the page cache) and its clients on one
machine. CPU seconds are the cache's alone. XCache is that of Debian's XRootD (5.5), with its default
settings: blocks of 128 KiB and prefetching. Copies are made by xrdcp. The limits are the origin without a
cache, and for what a cache has kept the bare server of the chapter on serving."""

FILE = "{data}/served-1gib.bin"
FILE_MB = 1074
SECONDS = "1"
KEPT = "bytes kept for each byte read"
CACHES: dict[str, tuple[str, Role]] = {"Femtobarn": ("femtobarn", "ours"), "XCache": ("xcache", "peer")}

FAR_FILE = "{data}/far-64mib.bin"
FAR_FILE_MB = 67
FAR = (FAR_FILE, "20", "65536")
WHOLE = (FAR_FILE, "20", f"{FAR_FILE_MB}000000")
ORIGIN, AT_ONCE = "the origin alone", "the origin alone, all in one request"
TOLD = "Femtobarn, fb.access=sequential"
FAR_SIDES: tuple[tuple[str, str, Role, tuple[str, ...]], ...] = (
    ("Femtobarn", "femtobarn", "ours", FAR),
    (TOLD, "femtobarn", "ours", (*FAR, "fb.access=sequential")),
    ("XCache", "xcache", "peer", FAR),
    (AT_ONCE, "origin", "limit", WHOLE),
)

PREPARATIONS = (
    Preparation(FILE, ("random_file.py", FILE, str(FILE_MB))),
    Preparation(FAR_FILE, ("random_file.py", FAR_FILE, str(FAR_FILE_MB))),
)


def both(*work: str, needs: tuple[str, ...] = ()) -> tuple[Side, ...]:
    """The same work at both caches."""
    return tuple(
        Side(name, ("cached.py", kind, FILE, *work), role, cores=2, needs=("xrootd", *needs))
        for name, (kind, role) in CACHES.items()
    )


def cheaper(at_most: float) -> Target:
    """The largest ratio of our CPU time to XCache's."""
    return faster("Femtobarn", "XCache", 1 / at_most, "cpu")


def felt(text: str, measure: Measure, wanted: Target, limit: str) -> tuple[Headline, ...]:
    """What users of a cache feel."""
    return (Headline("Caches", text, "Femtobarn", measure, wanted, (limit,), ("XCache",)),)


FIGURES: tuple[Figure, ...] = (
    Figure(
        "cached-cold",
        "First xrdcp of 1 GiB",
        "bytes",
        (
            *both("cold", needs=("xrdcp",)),
            Side(ORIGIN, ("cached.py", "origin", FILE, "cold"), "limit", cores=2, needs=("xrootd", "xrdcp")),
        ),
        headlines=felt(
            "Copy a file of 1 GiB that a cache has not kept yet",
            megabytes(),
            faster("Femtobarn", "XCache", 1.0),
            ORIGIN,
        ),
    ),
    Figure(
        "cached-warm",
        "Second xrdcp of 1 GiB",
        "bytes",
        both("warm", needs=("xrdcp",)),
        (cheaper(0.7),),
        by="cpu",
    ),
    Figure(
        "cached-random",
        "Read 16 KB at random by 8 sessions",
        "reads",
        (
            *both("random", "8", SECONDS, "{sessions}"),
            served(BARE, *SERVERS[BARE], *asking(READ, 8)),
        ),
        by="cpu",
        headlines=felt(
            "Serve a read of 16 KB that a cache has kept, to 8 sessions",
            microseconds("a read", "cpu"),
            explained(
                cheaper(0.5),
                "A bare server, which sends from the page cache, takes half of this; the cache reads its "
                "pages, and verifies the checksum of each, which also shows whether it has the page.",
            ),
            BARE,
        ),
    ),
    Figure(
        "cached-sparse",
        "Read 16 KB at random by 8 sessions, nothing of which is kept yet",
        "reads",
        both("sparse", "8", "0.2", "{sessions}"),
        (highest("Femtobarn", 1.2, KEPT),),
        x="sessions",
        y=KEPT,
        note="Reads of the same place count each time, so that less may be kept than was read.",
    ),
    Figure(
        "cached-far",
        "Read 64 MiB in pieces of 64 KiB, in order, from an origin 20 ms away",
        "reads",
        tuple(
            Side(name, ("far.py", kind, *rest), role, cores=2, needs=("xrootd",))
            for name, kind, role, rest in FAR_SIDES
        ),
        (faster(TOLD, "XCache", 1.0),),
        headlines=felt(
            "Read a file through a cache, in order, from an origin 20 ms away",
            megabytes(),
            explained(
                faster("Femtobarn", "XCache", 0.9),
                "XCache fetches ten blocks ahead of any read, Femtobarn a sixth of the bytes read in order.",
            ),
            AT_ONCE,
        ),
        note="XCache fetches 10 blocks ahead of any read, Femtobarn a sixth of what was read in order.",
    ),
)
"""The chapter's figures."""

"""A redirector without data, compared with XRootD's manager."""

from __future__ import annotations

from chapters.serving import BARE, SERVERS
from framework import (
    Figure,
    Headline,
    Measure,
    Preparation,
    Side,
    explained,
    faster,
    microseconds,
    per_second,
    rate,
)

TITLE = "Redirects"
INTRO = """A redirector in front of two servers of its kind, all on one machine with the clients, which open
the same file again and again, or many files once each, and do not follow the redirect. CPU seconds are the
redirector's alone. XRootD's is Debian's (5.5); its manager's `xrootd` and `cmsd` count together. The limit is
the bare server of the chapter before, which redirects without looking and has no servers behind it."""

FILE = "{data}/served-1gib.bin"
FILE_MB = 1074
SECONDS = "2"
FILES = "500"
CPU_MICROSECONDS_MAX = 60
PREPARATIONS = (Preparation(FILE, ("random_file.py", FILE, str(FILE_MB))),)


def again(sessions: str) -> tuple[Side, ...]:
    """Clients that open one file again and again, at each redirector."""
    return at_each("again", FILE, "{sessions}", sessions, SECONDS)


def at_each(*work: str) -> tuple[Side, ...]:
    """The same work at each redirector."""
    return tuple(
        Side(
            name,
            ("redirected.py", kind, *work),
            role,
            cores=2,
            needs=("xrootd", "cmsd") if role == "peer" else (),
        )
        for name, (kind, role) in SERVERS.items()
    )


def felt(text: str, measure: Measure, missed: str = "") -> tuple[Headline, ...]:
    """What clients of a redirector feel."""
    wanted = explained(faster("Femtobarn", "XRootD", 3.0), missed)
    return (Headline("Redirects", text, "Femtobarn", measure, wanted, (BARE,), ("XRootD",)),)


FIGURES: tuple[Figure, ...] = (
    Figure(
        "redirect-alone",
        "Redirects of one client, one after another",
        "redirects",
        again("1"),
        headlines=felt(
            "Open a file at a redirector, one client",
            microseconds("a redirect"),
            "Each redirect wakes two processes up, by any redirector; ours takes three times as much of "
            "the processor for it as the bare server, with the same three system calls.",
        ),
    ),
    Figure(
        "redirect-many",
        "Redirects of 32 clients",
        "redirects",
        again("32"),
        (
            rate("Femtobarn", 10_000),
            rate("Femtobarn", 1e6 / CPU_MICROSECONDS_MAX, "cpu"),
        ),
        headlines=felt(
            "Open files at a redirector, 32 clients",
            per_second("redirects"),
            "Clients take half of the cores; a bare server, which looks nothing up, does half as many again.",
        ),
    ),
    Figure(
        "redirect-once",
        "Redirects to files that nobody has asked for before",
        "redirects",
        at_each("once", FILES),
        headlines=felt(
            "Open files at a redirector that nobody has asked for before",
            microseconds("a redirect"),
            "Both redirectors ask their servers for each file, and wait for an answer; the limit asks none.",
        ),
        note="One client opens one file after another; the redirector asks its servers for each.",
    ),
)
"""The chapter's figures."""

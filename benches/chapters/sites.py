"""Several servers of one federation, whose disks are the limit."""

from __future__ import annotations

from framework import Figure, Headline, Side, at_last, last

TITLE = "Several servers of one federation"
INTRO = """240 clients with a session each open a federation at any of its servers, on this machine, and read
four blocks of 64 KiB, at random places of a container, which they compare, or commit four such blocks, each
in a transaction. The catalogue is in PostgreSQL. Each server has a simulated disk of 10 MB/s and 1,000 seeks
a second, which reads and writes 64 KiB at once: clients, servers and PostgreSQL, which share two cores, are
not the limit."""
PREPARATIONS = ()

CLIENTS = "240"
DISK = "bytes_per_second = 10_000_000, seeks_per_second = 1_000, cache_bytes = 2_000_000"
COUNT = "4"
"""Blocks of a client."""
SERVERS = ("1", "4")
NAME = "Servers"
SCALING = "rate, by that of one server"
NEEDS = ("psql",)
WANTED = at_last(NAME, 3.8, SCALING)


def scaling(work: str, title: str, headlines: tuple[Headline, ...] = ()) -> Figure:
    """The rate of servers, each with a disk, by that of one."""
    command = ("site_load.py", "{work}/site", work, CLIENTS, COUNT, DISK, *SERVERS)
    return Figure(
        name=f"sites-{work}",
        title=title,
        unit="blocks",
        sides=(Side(NAME, command, "ours", cores=2, needs=NEEDS),),
        targets=(WANTED,),
        x="servers",
        y=SCALING,
        headlines=headlines,
    )


FIGURES: tuple[Figure, ...] = (
    scaling(
        "read",
        "240 clients read at servers with a simulated disk each",
        (
            Headline(
                "Several servers",
                "Read with 240 clients at four servers, with a simulated disk each",
                NAME,
                last("times one server's rate", less=False),
                WANTED,
                no_limit="four disks: 4",
                no_peer="no peer has a federation at several servers",
            ),
        ),
    ),
    scaling("write", "240 clients commit at servers with a simulated disk each"),
)
"""The chapter's figures."""

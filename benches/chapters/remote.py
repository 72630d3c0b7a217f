"""A federation at a server, compared with the same federation in a local folder."""

from __future__ import annotations

from chapters.inputs import POOL, columns
from chapters.monarc import SIZES, append
from chapters.sequential import COLUMNS, PAIR, WORDS, Data
from framework import Figure, Headline, Side, Target, explained, faster, megabytes, warmed

TITLE = "A remote federation"
INTRO = """The same program works with a federation in a local folder, and through a server on the same
machine that has it in the same folder. A program that the server passes no files to stands for one on
another machine; beside it is one on the server's machine that gets them, as it does by default. Columns
are the jagged floats of 41 quantities, 41 KB per event. A process reads them twice, opening the
federation each time; the second pass is timed, with the server's files in the page cache. Objects are
appended one by one in transactions of 64 MB, each of which is durable when it is committed. CPU seconds
are those of client and server, which share two cores, so work that uses both cores locally cannot be as
fast remotely. The limits send the same bytes over a connection of the machine: a file by `sendfile` to a
process that sums its words; objects to a process that writes them past the page cache."""

PREPARATIONS = (POOL, *columns("none"), *columns("lz4"), COLUMNS.exported())

AT_LEAST = 0.6
AT_LEAST_ON_THE_MACHINE = 0.9
SHARED = "Client, server and the kernel, which copies twice, share two cores"
NO_FASTER = f"{SHARED}: the bytes alone pass no faster than the limit, which is below the wanted rate."
GROUP = "Through a server"
NO_PEER = "no peer has its files both here and at a server"
THREADS = {1: "", 2: ", 2 threads"}


def beside(name: str, served: str, *command: str, before: tuple[str, ...] | None = None) -> tuple[Side, ...]:
    """A command of `ours` on a folder, and on the URL of that folder at a server."""
    program, way, *rest = command
    here = Side(f"Femtobarn{name}", (program, way, served, *rest), "ours", cores=2, before=before)
    far = ("with_server.py", served, f"{{{program}}}", way, "URL", *rest)
    return (here, Side(f"Femtobarn, remote{name}", far, "ours", cores=2, before=before))


def on_the_machine(name: str, served: str, *command: str) -> Side:
    """A reading command of `ours` on the server's machine, which gets the files."""
    program, way, *rest = command
    there = ("with_server.py", "--pass-files", served, f"{{{program}}}", way, "URL", *rest)
    return Side(f"Femtobarn, server's machine{name}", there, "ours", cores=2)


def near(name: str = "", missed: str = f"{SHARED}.") -> Target:
    """The least ratio of the remote to the local rate."""
    return explained(faster(f"Femtobarn, remote{name}", f"Femtobarn{name}", AT_LEAST), missed)


def reading(name: str, title: str, data: Data, compression: str) -> Figure:
    """Columns, by one thread and by two."""
    served = f"{{data}}/{data.stem}_{compression}.fed"
    scans = {
        suffix: ("ours", "scan", data.container, ",".join(data.names), str(threads))
        for threads, suffix in THREADS.items()
    }
    sent = Side("sendfile and recv", ("bare_stream", "read", data.plain, data.entries), "limit", cores=2)
    plain = compression == "none"
    targets = (
        *(near(name, NO_FASTER if plain else f"{SHARED}.") for name in scans),
        *(
            faster(f"Femtobarn, server's machine{name}", f"Femtobarn{name}", AT_LEAST_ON_THE_MACHINE)
            for name in scans
        ),
    )
    headline = Headline(
        GROUP,
        "Read 41 jagged columns of all events from a server",
        "Femtobarn, remote",
        megabytes(),
        targets[0],
        limits=(sent.key,),
        no_peer=NO_PEER,
    )
    return Figure(
        name=f"remote-{name}-{compression}",
        title=f"{title}, {WORDS[compression]}, here and at a server",
        unit="events",
        sides=(
            *(
                warmed(side)
                for suffix, scan in scans.items()
                for side in (*beside(suffix, served, *scan), on_the_machine(suffix, served, *scan))
            ),
            *((warmed(sent),) if plain else ()),
        ),
        targets=targets,
        headlines=(headline,) if plain else (),
    )


def writing(size: int) -> Figure:
    """Objects of one size."""
    program, way, *rest = append("ours", "shared", size=size, last=("0",))
    created = ("ours", "create", "{work}/fed", "shared", str(size), "0", "1")
    taken = append("bare_stream", "{work}", size=size, last=())
    limit = Side("send, recv and O_DIRECT", taken, "limit", cores=2)
    wanted = near()
    headline = Headline(
        GROUP,
        f"Write objects of {SIZES[size]} through a server, durably every 64 MB",
        "Femtobarn, remote",
        megabytes(),
        wanted,
        limits=(limit.key,),
        no_peer=NO_PEER,
    )
    return Figure(
        name=f"remote-append-{SIZES[size].replace(' ', '').lower()}",
        title=f"Append objects of {SIZES[size]}, here and at a server",
        unit="objects",
        sides=(*beside("", "{work}/fed", program, way, *rest, before=created), limit),
        targets=(wanted,),
        headlines=(headline,) if size == 10240 else (),
    )


FIGURES: tuple[Figure, ...] = (
    reading("columns", "All 41 jagged columns", COLUMNS, "none"),
    reading("columns", "All 41 jagged columns", COLUMNS, "lz4"),
    reading("pair", "Two of 41 jagged columns", PAIR, "lz4"),
    writing(10240),
    writing(100),
)

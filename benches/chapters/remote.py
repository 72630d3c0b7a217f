"""A federation at a server, compared with the same federation in a local folder."""

from __future__ import annotations

from chapters.inputs import POOL, columns
from chapters.monarc import SIZES, append
from chapters.sequential import COLUMNS, PAIR, WORDS, Data
from framework import Figure, Side, Target, faster, warmed

TITLE = "A remote federation"
INTRO = """The same program works with a federation in a local folder, and through a server on the same
machine that has it in the same folder. Columns are the jagged floats of 41 quantities, 41 KB per event. A
process reads them twice, opening the federation each time; the second pass is timed, with the server's files
in the page cache. Objects are appended one by one in transactions of 64 MB, each of which is durable when it
is committed. CPU seconds are those of client and server, which share two cores, so work that uses both cores
locally cannot be as fast remotely."""

PREPARATIONS = (POOL, *columns("none"), *columns("lz4"))

AT_LEAST = 0.6
THREADS = {1: "", 2: ", 2 threads"}


def beside(name: str, served: str, *command: str, before: tuple[str, ...] | None = None) -> tuple[Side, ...]:
    """A command of `ours` on a folder, and on the URL of that folder at a server."""
    program, way, *rest = command
    here = Side(f"Femtobarn{name}", (program, way, served, *rest), "ours", cores=2, before=before)
    far = ("with_server.py", served, f"{{{program}}}", way, "URL", *rest)
    return (here, Side(f"Femtobarn, remote{name}", far, "ours", cores=2, before=before))


def near(name: str = "") -> Target:
    """The least ratio of the remote to the local rate."""
    return faster(f"Femtobarn, remote{name}", f"Femtobarn{name}", AT_LEAST)


def reading(name: str, title: str, data: Data, compression: str) -> Figure:
    """Columns, by one thread and by two."""
    served = f"{{data}}/{data.stem}_{compression}.fed"
    return Figure(
        name=f"remote-{name}-{compression}",
        title=f"{title}, {WORDS[compression]}, here and at a server",
        unit="events",
        sides=tuple(
            warmed(side)
            for threads, suffix in THREADS.items()
            for side in beside(
                suffix, served, "ours", "scan", data.container, ",".join(data.names), str(threads)
            )
        ),
        targets=tuple(map(near, THREADS.values())),
    )


def writing(size: int) -> Figure:
    """Objects of one size."""
    program, way, *rest = append("ours", "shared", size=size, last=("0",))
    created = ("ours", "create", "{work}/fed", "shared", str(size), "0", "1")
    return Figure(
        name=f"remote-append-{SIZES[size].replace(' ', '').lower()}",
        title=f"Append objects of {SIZES[size]}, here and at a server",
        unit="objects",
        sides=beside("", "{work}/fed", program, way, *rest, before=created),
        targets=(near(),),
    )


FIGURES: tuple[Figure, ...] = (
    reading("columns", "All 41 jagged columns", COLUMNS, "none"),
    reading("columns", "All 41 jagged columns", COLUMNS, "lz4"),
    reading("pair", "Two of 41 jagged columns", PAIR, "lz4"),
    writing(10240),
    writing(100),
)

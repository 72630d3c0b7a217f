"""A server of files and pages, compared with XRootD's."""

from __future__ import annotations

import os
from dataclasses import replace

from framework import (
    CPU_FOR_100_MB,
    Figure,
    Headline,
    Measure,
    Preparation,
    Results,
    Role,
    Side,
    Target,
    explained,
    faster,
    highest,
    last,
    member,
    microseconds,
)

TITLE = "Serving"
INTRO = """One server, with its clients on the same machine and a file in the page cache. CPU seconds are the
server's alone; its clients, which are the same for both servers, share the two cores with it. XRootD is
Debian's (5.5) with its default settings. Sessions send the next request as soon as they have an answer;
copies are made by xrdcp, which reads and writes pages with checksums by default (pgread, pgwrite). Memory is
the peak above that of an empty server; p99 is the 99 % quantile of response times, most of which is queueing
when many sessions share two cores. The limit is a bare server: a loop in C that knows no users, rights and
limits, with one thread for each core or for each session."""

FILE = "{data}/served-1gib.bin"
FILE_MB = 1074
SECONDS = "1"
READ = "read-16384"
SESSIONS = (1, 8, 32, 128)
MANY = 2500
IDLE, BUSY = 3000, 200
# Tolerance of targets that ask for the peer's rate: figures differ that much from run to run.
NOISE = 0.05
THREADS_PER_CORE_MAX = 20
MEMORY = "MB above an empty server"
KERNEL = (
    "A read of this size is the kernel's work: a bare server without rights and limits takes nearly as much."
)
OPENING = "The kernel opens, looks at and closes a file: a bare server takes about the wanted time."
VECTORS = "The kernel copies the bytes twice: a bare server takes four fifths of our time."
BARE, EACH = "bare server", "bare server, a thread each"
SERVERS: dict[str, tuple[str, Role]] = {
    "Femtobarn": ("femtobarn", "ours"),
    "XRootD": ("xrootd", "peer"),
    BARE: (f"{{bare_server}}:{os.cpu_count()}", "limit"),
}
WITH_THREADS = (8, 32, 128)
"""Numbers of sessions for each of which the bare server has a thread, too."""

PREPARATIONS = (Preparation(FILE, ("random_file.py", FILE, str(FILE_MB))),)


def side(
    name: str, kind: str, role: Role, *work: str, x: float | None = None, needs: tuple[str, ...] = ()
) -> Side:
    """Work at one server."""
    needs = (*needs, "xrootd") if role == "peer" else needs
    return Side(name, ("server_load.py", kind, FILE, *work), role, x=x, cores=2, needs=needs)


def at_each(*work: str, x: float | None = None, needs: tuple[str, ...] = ()) -> tuple[Side, ...]:
    """The same work at each server."""
    return tuple(side(name, kind, role, *work, x=x, needs=needs) for name, (kind, role) in SERVERS.items())


def asking(work: str, sessions: int, idle: int = 0) -> tuple[str, ...]:
    """The clients' work: its kind, and the numbers of sessions."""
    return (work, "{sessions}", str(sessions), str(idle), SECONDS)


def cheaper(at_most: float, many: int | None = None) -> Target:
    """The largest ratio of our CPU time to the peer's; in a curve, with one number of sessions."""
    at = "" if many is None else f" @ {many}"
    return faster(f"Femtobarn{at}", f"XRootD{at}", 1 / at_most, "cpu")


def curve(
    name: str,
    title: str,
    unit: str,
    work: str,
    sessions: tuple[int, ...],
    targets: tuple[Target, ...],
) -> Figure:
    """The same work by different numbers of sessions."""
    sides = tuple(side for many in sessions for side in at_each(*asking(work, many), x=many))
    return Figure(name, title, unit, sides, targets, by="cpu", x="sessions")


def bars(name: str, title: str, unit: str, work: tuple[str, ...], *targets: Target) -> Figure:
    """Work by one number of sessions."""
    return Figure(name, title, unit, at_each(*work), targets, by="cpu")


def reads() -> Figure:
    """Small reads, by few and by many sessions."""
    few, many = f"Femtobarn @ {max(SESSIONS[:-1])}", f"Femtobarn @ {MANY}"
    targets = (
        *(explained(cheaper(0.6, count), KERNEL) for count in SESSIONS),
        *(response_ratio(count) for count in SESSIONS),
        Target(
            f"{many} / {few}, CPU for a read", lambda r: r.rate(few, "cpu") / r.rate(many, "cpu"), at_most=1.2
        ),
        Target(
            f"{many}, threads",
            lambda r: r.median(many, lambda sample: sample["threads"]),
            at_most=THREADS_PER_CORE_MAX * (os.cpu_count() or 1),
        ),
    )
    headlines = (
        felt(
            "Serve a read of 16 KB to 32 sessions",
            microseconds("a read", "cpu"),
            targets[SESSIONS.index(32)],
            at=32,
        ),
        felt(
            "The slowest hundredth of reads of 16 KB, 8 sessions",
            member("us", "p99_us"),
            targets[len(SESSIONS) + SESSIONS.index(8)],
            at=8,
        ),
    )
    figure = curve("served-16k", "Read 16 KB at random", "reads", READ, (*SESSIONS, MANY), targets)
    threaded = (side(EACH, "{bare_server}:0", "limit", *asking(READ, many), x=many) for many in WITH_THREADS)
    return replace(figure, sides=(*figure.sides, *threaded), headlines=headlines)


def felt(text: str, measure: Measure, wanted: Target, at: int | None = None) -> Headline:
    """What an operator feels: our server beside the others, in a curve with one number of sessions."""
    number = "" if at is None else f" @ {at}"
    threaded = (f"{EACH}{number}",) if at in WITH_THREADS else ()
    return Headline(
        "A server under load",
        text,
        f"Femtobarn{number}",
        measure,
        wanted,
        (f"{BARE}{number}", *threaded),
        (f"XRootD{number}",),
    )


def response_ratio(many: int) -> Target:
    """The ratio of our p99 to the peer's."""
    ours, theirs = f"Femtobarn @ {many}", f"XRootD @ {many}"
    text = f"{ours} / {theirs}, p99"
    ratio = Target(text, lambda r: slowest(r, ours) / slowest(r, theirs), at_most=1 + NOISE)
    return explained(
        ratio,
        "Our threads, one a core, make way for other threads after a few requests. Bare servers show that a "
        "thread for each session, as XRootD has it, waits less, and takes half as much again of the "
        "processor.",
    )


def slowest(results: Results, key: str) -> float:
    """The 99 % quantile of response times, in microseconds."""
    return results.median(key, lambda sample: sample["p99_us"])


def calls() -> Figure:
    """System calls, counted."""
    counts = ",".join(map(str, SESSIONS))
    return Figure(
        name="served-calls",
        title="System calls of the server for a read of 16 KB",
        unit="reads",
        sides=at_each("calls", "{sessions}", counts, "0.5", needs=("strace",)),
        targets=(
            explained(
                highest("Femtobarn", 3.0, "system calls for a read"),
                "For one session a bare server makes four, too: it waits, receives, and sends a head and a "
                "piece of the file.",
            ),
        ),
        x="sessions",
        y="system calls for a read",
        note="Counted with `strace`, which slows all servers.",
    )


def beside_idle() -> Figure:
    """Active sessions, alone and beside many idle ones, which must all be connected afterwards."""
    alone = at_each(*asking(READ, BUSY))
    beside = at_each(*asking(READ, BUSY, IDLE))
    named = tuple(replace(each, name=f"{each.name}, idle ones beside") for each in beside)
    return Figure(
        name="served-beside-idle",
        title=f"Read 16 KB by {BUSY} sessions, beside {IDLE:,} idle ones and without",
        unit="reads",
        sides=(*alone, *named),
        targets=(faster(named[0].name, alone[0].name, 0.9),),
    )


def copies(name: str, title: str, work: str, at_most: float, *more: Target, text: str = "") -> Figure:
    """One copy of the file by xrdcp, and what an operator feels of it."""
    targets = (cheaper(at_most), *more)
    headlines = (felt(text, CPU_FOR_100_MB, targets[0]),) if text else ()
    sides = at_each(work, needs=("xrdcp",))
    return Figure(name, title, "bytes", sides, targets, by="cpu", headlines=headlines)


def idle() -> Figure:
    """The memory of sessions that do nothing."""
    return Figure(
        name="served-idle",
        title=f"{IDLE:,} idle sessions",
        unit="requests",
        sides=at_each(*asking("stat", 0, IDLE)),
        headlines=(felt(f"Keep {IDLE:,} idle sessions", last("MB"), highest("Femtobarn", 20.0, MEMORY)),),
        x="sessions",
        y=MEMORY,
        note="The memory that the server has while the sessions are connected, not its peak.",
    )


def memory(at_most: float) -> Target:
    """Megabytes above an empty server."""
    return Target(
        f"Femtobarn, {MEMORY}",
        lambda r: r.median("Femtobarn", lambda sample: sample["memory_bytes"] / 1e6),
        at_most=at_most,
    )


FIGURES: tuple[Figure, ...] = (
    reads(),
    bars(
        "served-pages-16k",
        "Read 16 KB with page checksums by 32 sessions",
        "reads",
        asking("pgread-16384", 32),
        cheaper(0.6),
    ),
    bars(
        "served-vectors",
        "Vector read of 64 x 16 KB by 8 sessions",
        "requests",
        asking("readv-64x16384", 8),
        explained(cheaper(0.5), VECTORS),
    ),
    curve(
        "served-opens",
        "Open, stat, close",
        "cycles",
        "open",
        (8, 32),
        tuple(explained(cheaper(0.6, many), OPENING) for many in (8, 32)),
    ),
    calls(),
    beside_idle(),
    copies(
        "copy-down",
        "xrdcp of 1 GiB",
        "copy-down",
        0.6,
        text="Serve a file of 1 GiB to xrdcp, which verifies its pages",
    ),
    copies(
        "copy-down-plain",
        "xrdcp of 1 GiB without checksums",
        "copy-down-plain",
        1.0,
        faster("Femtobarn", "XRootD", 1 - NOISE),
    ),
    copies(
        "copy-up",
        "xrdcp of 1 GiB to the server",
        "copy-up",
        0.5,
        text="Take a file of 1 GiB from xrdcp, which sends checksums",
    ),
    idle(),
    bars(
        "served-large",
        "Read 8 MiB with page checksums by 256 sessions",
        "reads",
        asking("pgread-8388608", 256),
        memory(100.0),
    ),
)

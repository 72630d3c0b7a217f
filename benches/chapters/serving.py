"""A server of pages, beside XRootD's."""

from __future__ import annotations

from framework import Figure, Preparation, Role, Side, Target, faster

TITLE = "Serving"
INTRO = """One server, its clients on the same machine, a file in the page cache. The CPU seconds are the
server's alone: clients, which are the same for both, share the two cores with it. XRootD is Debian's (5.5)
with its default settings. Sessions ask again as soon as they were answered; copies are made by xrdcp, whose
default is reading and writing pages with checksums (pgread, pgwrite)."""

FILE = "{data}/served.bin"
FILE_MB = 512
SECONDS = "2"
SESSIONS = (1, 8, 32, 128)
IDLE = "3000"
SERVERS: dict[str, tuple[str, Role]] = {"Femtobarn": ("femtobarn", "ours"), "XRootD": ("xrootd", "peer")}

PREPARATIONS = (Preparation(FILE, ("serving_data.py", FILE, str(FILE_MB))),)


def sides(work: str, sessions: tuple[int, ...]) -> tuple[Side, ...]:
    """Both servers with so many sessions each."""
    return tuple(
        Side(name, ("serving.py", kind, FILE, work, "{sessions}", str(many), SECONDS), role, x=many, cores=2)
        for many in sessions
        for name, (kind, role) in SERVERS.items()
    )


def cheaper(many: int, at_most: float) -> Target:
    """Ours takes at most this part of the peer's CPU time for the same work."""
    return faster(f"Femtobarn @ {many}", f"XRootD @ {many}", 1 / at_most, "cpu")


def figure(name: str, title: str, unit: str, work: str, sessions: tuple[int, ...], at_most: float) -> Figure:
    """The same work by different numbers of sessions."""
    return Figure(
        name=name,
        title=title,
        unit=unit,
        sides=sides(work, sessions),
        targets=tuple(cheaper(many, at_most) for many in sessions),
        by="cpu",
        x="sessions",
    )


def copies(name: str, title: str, work: str, at_most: float) -> Figure:
    """One copy of the file by xrdcp."""
    return Figure(
        name=name,
        title=title,
        unit="bytes",
        sides=tuple(
            Side(n, ("serving.py", kind, FILE, work), role, cores=2) for n, (kind, role) in SERVERS.items()
        ),
        targets=(faster("Femtobarn", "XRootD", 1 / at_most, "cpu"),),
        by="cpu",
    )


def memory(text: str, key: str, at_most: float) -> Target:
    """Megabytes above an empty server."""
    return Target(text, lambda r: r.median(key, lambda sample: sample["memory_bytes"] / 1e6), at_most=at_most)


FIGURES: tuple[Figure, ...] = (
    figure("served-16k", "Read 16 KB at random", "reads", "read-16384", SESSIONS, 0.6),
    figure("served-pages-16k", "Read 16 KB with page checksums", "reads", "pgread-16384", (32,), 0.6),
    figure("served-vectors", "Vector read of 64 x 16 KB", "requests", "readv-64x16384", (8,), 0.5),
    figure("served-opens", "Open, stat, close", "cycles", "open", (8, 32), 0.6),
    copies("copy-down", f"xrdcp of {FILE_MB} MB", "copy-down", 0.6),
    copies("copy-down-plain", f"xrdcp of {FILE_MB} MB without checksums", "copy-down-plain", 1.0),
    copies("copy-up", f"xrdcp of {FILE_MB} MB to the server", "copy-up", 0.5),
    Figure(
        name="served-idle",
        title=f"{IDLE} idle sessions",
        unit="requests",
        sides=sides("idle", (int(IDLE),)),
        targets=(memory("Femtobarn, MB above an empty server", f"Femtobarn @ {IDLE}", 20.0),),
        x="sessions",
    ),
    Figure(
        name="served-large",
        title="256 sessions that read 8 MiB with page checksums",
        unit="reads",
        sides=sides("pgread-8388608", (256,)),
        targets=(memory("Femtobarn, MB above an empty server", "Femtobarn @ 256", 100.0),),
        by="cpu",
        x="sessions",
    ),
)

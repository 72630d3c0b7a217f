"""What clients gain who say what their requests are for."""

from __future__ import annotations

from framework import Figure, Preparation, Side, faster, highest

TITLE = "Hints"
INTRO = """The same work with and without a hint behind the URL, at our server. The disk that seeks is
simulated: 100 MB/s and 100 seeks a second. The clients are XRootD's. CPU seconds are the server's."""

FILE = "{data}/far-64mib.bin"
PLAIN = "no hint"
SEEKS, FETCHED, EXTENTS, SECONDS = "seeks", "bytes fetched for each byte read", "extents of a file", "seconds"

PREPARATIONS = (Preparation(FILE, ("random_file.py", FILE, "67")),)


def with_and_without(hint: str, *work: str, needs: tuple[str, ...] = ()) -> tuple[Side, ...]:
    """The same work with a hint, whose key is the side's name, and without."""
    command = ("hinted.py", "{work}/hinted", *work)
    plain = Side(PLAIN, command, "peer", cores=2, needs=needs)
    return plain, Side(hint.partition("=")[0], (*command, hint), "ours", cores=2, needs=needs)


FIGURES: tuple[Figure, ...] = (
    Figure(
        "hints-disk",
        "Read 4 files of 8 MiB at once and in order, in pieces of 64 KiB, from a disk that seeks",
        "reads",
        with_and_without("fb.access=sequential", "disk", "4", str(8 << 20), "65536"),
        (faster("fb.access", PLAIN, 3.0),),
        x="files",
        y=SEEKS,
    ),
    Figure(
        "hints-records",
        "Read 100 records of 512 KiB at random places through a cache, in pieces of 16 KiB",
        "records",
        with_and_without(
            "fb.access=random", "records", FILE, "100", str(512 << 10), "16384", needs=("xrootd",)
        ),
        (highest("fb.access", 1.01, FETCHED),),
        x="clients",
        y=FETCHED,
        note="Without a hint the cache takes each record for the beginning of more.",
    ),
    Figure(
        "hints-upload",
        "Write 4 files of 128 MiB at once, 2 MiB at a time",
        "files",
        with_and_without(f"fb.size={128 << 20}", "upload", "4", str(128 << 20), needs=("filefrag",)),
        (highest("fb.size", 4, EXTENTS),),
        x="files",
        y=EXTENTS,
    ),
    Figure(
        "hints-deadline",
        "Bring back the file that was asked for last of 12, from a tape library that takes 0.5 s for each",
        "files",
        with_and_without("fb.deadline=3", "recall", "12", "0.5", needs=("xrdcp",)),
        (faster("fb.deadline", PLAIN, 2.0),),
        x="files",
        y=SECONDS,
    ),
)
"""The chapter's figures."""

"""Writing objects, as the MONARC note tabled it: of each size, with links, by many writers."""

from __future__ import annotations

from chapters.inputs import POOL
from framework import Figure, Side, cpu_per_100_mb, faster, rate

TITLE = "Writing objects"
INTRO = "Objects are appended one by one in transactions of 64 MB."
PREPARATIONS = (POOL,)

APPENDED, COMMIT, ROWS = "51200", "6400", "5000000"

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="append",
        title="Append 10 KB objects in commits of 64 MB",
        unit="objects",
        sides=(
            Side(
                "Femtobarn", ("ours", "append", "{work}/fed", "{data}/objects.bin", APPENDED, COMMIT), "ours"
            ),
            Side(
                "plain file",
                ("ours", "plain-append", "{work}/file", "{data}/objects.bin", APPENDED, COMMIT),
                "limit",
            ),
        ),
        targets=(faster("Femtobarn", "plain file", 0.9), cpu_per_100_mb("Femtobarn", 0.04)),
    ),
    Figure(
        name="rows",
        title="Append objects of 100 bytes and 10 fields one by one",
        unit="objects",
        sides=(
            Side("Femtobarn", ("ours", "rows", "{work}/fed", ROWS), "ours"),
            Side("ROOT", ("root_peer", "rows", "{work}/file", ROWS)),
        ),
        targets=(rate("Femtobarn", 4e6),),
    ),
)

"""Objects at random."""

from __future__ import annotations

from chapters.inputs import objects
from framework import Figure, Side, faster

TITLE = "Objects at random"
INTRO = "Objects are read one by one by their OIDs, all of them read before."
PREPARATIONS = (*objects("none"), *objects("zstd"))


def hot(compression: str, at_least: float, reads: str) -> Figure:
    """Objects of 10 KB that have been read before."""
    words = "uncompressed" if compression == "none" else compression
    ours, peer = f"{{data}}/objects_{compression}.fed", f"{{data}}/objects_{compression}.root"
    return Figure(
        name=f"random-{compression}",
        title=f"Read 10 KB objects at random by OID, hot, {words}",
        unit="objects",
        sides=(
            Side("Femtobarn", ("ours", "random-objects", ours, "60000"), "ours"),
            Side("ROOT", ("root_peer", "random-objects", peer, reads)),
        ),
        targets=(faster("Femtobarn", "ROOT", at_least, "cpu"),),
        by="cpu",
    )


FIGURES = (hot("none", 20.0, "6000"), hot("zstd", 10.0, "1000"))

"""Arrays and objects from Python."""

from __future__ import annotations

from chapters.inputs import columns
from framework import Figure, Side, faster

TITLE = "Python"
INTRO = "All columns as awkward arrays."
PREPARATIONS = (*columns("none"), *columns("zstd"))


def arrays(compression: str) -> Figure:
    """All columns as awkward arrays from Python."""
    words = "uncompressed" if compression == "none" else compression
    file = f"{{data}}/columns_{compression}.root"
    return Figure(
        name=f"arrays-{compression}",
        title=f"`arrays()` of all columns from Python, {words}",
        unit="entries",
        sides=(
            Side("Femtobarn", ("arrays.py", "ours", file), "ours"),
            Side("uproot", ("arrays.py", "uproot", file)),
        ),
        targets=(faster("Femtobarn", "uproot", 3.0, "cpu"),),
        by="cpu",
    )


FIGURES = (arrays("none"), arrays("zstd"))

"""Columns, read one after the other."""

from __future__ import annotations

from chapters.inputs import columns as prepared
from framework import Figure, Side, faster

TITLE = "Sequential reading"
INTRO = "All columns of single-precision numbers, from the page cache."
PREPARATIONS = (*prepared("none"), *prepared("zstd"))


def columns(compression: str) -> Figure:
    """All columns of one file, and of a container of our own with the same data."""
    words = "uncompressed" if compression == "none" else compression
    file, own = f"{{data}}/columns_{compression}.root", f"{{data}}/columns_{compression}.fed"
    return Figure(
        name=f"columns-{compression}",
        title=f"Read all columns, {words}",
        unit="entries",
        sides=(
            Side("Femtobarn", ("ours", "own-columns", own), "ours"),
            Side("Femtobarn, ROOT's file", ("ours", "columns", file), "ours"),
            Side("ROOT, views", ("root_peer", "columns", file, "views")),
            Side("ROOT, bulk", ("root_peer", "columns", file, "bulk")),
        ),
        targets=(
            faster("Femtobarn", "ROOT, views", 1.5, "cpu"),
            faster("Femtobarn, ROOT's file", "ROOT, views", 1.5, "cpu"),
        ),
        by="cpu",
    )


FIGURES = (columns("none"), columns("zstd"))

"""The part of a report about a run of recalls."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from femtobarn_reports.page import Picture, figures, grid, listed, section
from femtobarn_reports.style import png

from .plots import draw_recalls
from .tables import clients_table, describe_library, mounts_table

__all__ = ["parts"]


def parts(run: Mapping[str, Any], stem: str, out: Path) -> Iterator[str]:
    """Yield the parts, and write the picture into a folder."""
    yield section(run["title"], f"<p>{html.escape(run['about'])}</p>", listed(describe_library(run)))
    caption = (
        "Left, the work of each drive. Right, below the line a client has its files before its fair share."
    )
    picture = png(draw_recalls(run), path=out / f"{stem}-drives.png")
    yield figures([Picture("Drives and clients", caption, picture, wide=True)])
    yield section("Mounts and times", grid(*mounts_table(run)), grid(*clients_table(run)))

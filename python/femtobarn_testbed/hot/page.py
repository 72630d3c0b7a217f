"""The part of a report about a run of hot files."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from femtobarn_reports.page import Picture, details, figures, grid, listed, section
from femtobarn_reports.style import png

from .plots import draw_hot_files
from .tables import describe_sites, phases_table, rates_table, servers_table

__all__ = ["parts"]


def parts(run: Mapping[str, Any], stem: str, out: Path) -> Iterator[str]:
    """Yield the parts, and write the picture into a folder."""
    yield section(run["title"], f"<p>{html.escape(run['about'])}</p>", listed(describe_sites(run)))
    caption = "Before, all clients read only from the origin. While the file is hot, a redirector sends them."
    picture = png(draw_hot_files(run), path=out / f"{stem}-rates.png")
    yield figures([Picture("Rates, copies and clients", caption, picture, wide=True)])
    yield section("Rates and phases", grid(*rates_table(run)), grid(*phases_table(run)))
    yield details("Work of each server", grid(*servers_table(run)))

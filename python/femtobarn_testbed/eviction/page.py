"""The part of a report about a run of replays."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from femtobarn_reports.page import Picture, details, figures, grid, listed, section
from femtobarn_reports.style import png

from .plots import draw_staged
from .tables import describe_disks, describe_trace, ratio_table, staged_table

__all__ = ["parts"]


def parts(run: Mapping[str, Any], stem: str, out: Path) -> Iterator[str]:
    """Yield the parts, and write the picture into a folder."""
    traces = [describe_trace(name, facts) for name, facts in run["traces"].items()]
    facts = listed([*describe_disks(run), *traces])
    yield section(run["title"], f"<p>{html.escape(run['about'])}</p>", facts)
    caption = "Left of the line, a policy stages less than Femtobarn's, LRU. The bound knows the future."
    picture = png(draw_staged(run), path=out / f"{stem}-staged.png")
    yield figures([Picture("Bytes staged by each policy", caption, picture, wide=True)])
    yield section("Bytes staged", grid(*ratio_table(run)))
    yield details("Byte hit rates and bytes staged", grid(*staged_table(run)))

"""The contents of the demo's report, and how they are laid out on its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from femtobarn_demo.report.stages import HEADINGS, Stage, table
from femtobarn_reports.page import Picture, document, figures, grid, listed, section, tiles

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """The contents of the page; all text is plain.

    Parameters
    ----------
    title, summary
        What it is and what was done.
    tiles
        Short facts: (number, what it counts).
    stages
        Rows of the table.
    pictures
        In the order they are to be seen.
    notes
        What the reader should know about the numbers.
    """

    title: str
    summary: str
    tiles: list[tuple[str, str]]
    stages: list[Stage]
    pictures: list[Picture]
    notes: list[str]

    def html(self) -> str:
        """The whole page."""
        parts = (
            tiles(self.tiles),
            section("What each stage did", grid(HEADINGS, table(self.stages))),
            figures(self.pictures),
            section("How to read this", listed(self.notes)),
        )
        return document(self.title, self.summary, "\n".join(parts))

    def write(self, path: Path) -> None:
        """Write the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")

"""The contents of the demo's report, and their layout on the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from femtobarn_demo.report.stages import HEADINGS, MOVEMENTS, Movement, Stage, movements_table, table
from femtobarn_reports.page import Picture, document, figures, grid, listed, section, tiles

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """The contents of the page; all text is plain.

    Parameters
    ----------
    title, summary
        Heading, and a summary of the run below it.
    tiles
        Short facts: number and unit.
    stages
        Rows of the table.
    pictures
        Pictures in the order of the page.
    conditions, timelines
        The use of conditions in the run, and pictures of it.
    storage, movements
        The use of an object store in the run, and the steps of a database there and back.
    notes
        Remarks on the meaning of the numbers.
    """

    title: str
    summary: str
    tiles: list[tuple[str, str]]
    stages: list[Stage]
    pictures: list[Picture]
    conditions: list[str]
    timelines: list[Picture]
    storage: list[str]
    movements: list[Movement]
    notes: list[str]

    def html(self) -> str:
        """Return the page."""
        parts = (
            tiles(self.tiles),
            section("Stages", grid(HEADINGS, table(self.stages))),
            figures(self.pictures),
            section("Conditions", listed(self.conditions)),
            figures(self.timelines),
            section(
                "Beyond one disk", listed(self.storage), grid(MOVEMENTS, movements_table(self.movements))
            ),
            section("How to read this", listed(self.notes)),
        )
        return document(self.title, self.summary, "\n".join(parts))

    def write(self, path: Path) -> None:
        """Write the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")

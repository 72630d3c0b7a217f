"""The report: one HTML file with everything in it, readable on a desk and on a phone."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from string import Template

from femtobarn.report.stages import HEADINGS, Stage, table

__all__ = ["Picture", "Report"]

_TEMPLATE = Path(__file__).with_name("report.html.in")


@dataclass(frozen=True)
class Picture:
    """A picture with what is to be said about it.

    Parameters
    ----------
    title, caption
        Plain text.
    source
        A data URI.
    wide
        Whether it takes the whole width.
    """

    title: str
    caption: str
    source: str
    wide: bool = False


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
        template = Template(_TEMPLATE.read_text(encoding="utf-8"))
        return template.substitute(
            title=html.escape(self.title),
            summary=html.escape(self.summary),
            tiles="\n".join(_tile(number, text) for number, text in self.tiles),
            headings="".join(f"<th>{html.escape(heading)}</th>" for heading in HEADINGS),
            rows="\n".join(_row(row) for row in table(self.stages)),
            pictures="\n".join(_figure(picture) for picture in self.pictures),
            notes="\n".join(f"<li>{html.escape(note)}</li>" for note in self.notes),
        )

    def write(self, path: Path) -> None:
        """Write the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.html(), encoding="utf-8")


def _tile(number: str, text: str) -> str:
    return f'<div class="tile"><b>{html.escape(number)}</b><span>{html.escape(text)}</span></div>'


def _row(cells: tuple[str, ...]) -> str:
    first, *others = (html.escape(cell) for cell in cells)
    return f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"


def _figure(picture: Picture) -> str:
    title, caption = html.escape(picture.title), html.escape(picture.caption)
    return (
        f'<figure class="{"wide" if picture.wide else "half"}"><h2>{title}</h2>'
        f'<div class="pan"><img alt="{title}" src="{picture.source}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )

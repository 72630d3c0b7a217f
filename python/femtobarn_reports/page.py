"""An HTML page in one self-contained file, for wide and narrow screens.

Functions that return parts of a page return HTML, and escape the texts that they are given.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

__all__ = ["Picture", "details", "document", "figures", "grid", "listed", "section", "tiles"]

_TEMPLATE = Path(__file__).with_name("report.html.in")


@dataclass(frozen=True)
class Picture:
    """A picture with its title and caption.

    Parameters
    ----------
    title, caption
        Plain text.
    source
        A data URI.
    wide
        Whether it takes the whole width of the page.
    """

    title: str
    caption: str
    source: str
    wide: bool = False


def document(title: str, summary: str, body: str) -> str:
    """A page around the HTML of its parts."""
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(title=html.escape(title), summary=html.escape(summary), body=body)


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Short facts, each a number and its unit or meaning."""
    shown = "\n".join(
        f'<div class="tile"><b>{html.escape(number)}</b><span>{html.escape(text)}</span></div>'
        for number, text in facts
    )
    return f'<div class="tiles">\n{shown}\n</div>'


def section(title: str, *parts: str) -> str:
    """A framed part of the page with a title."""
    return f"<section>\n<h2>{html.escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def details(title: str, *parts: str) -> str:
    """A part of the page that is collapsed to its title until it is opened."""
    shown = "\n".join(parts)
    return f"<section><details>\n<summary>{html.escape(title)}</summary>\n{shown}\n</details></section>"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column has the names of the rows."""
    headings = "".join(f"<th>{html.escape(heading)}</th>" for heading in head)
    body = "\n".join(_row(row) for row in rows)
    return (
        f'<div class="scroll">\n<table>\n<thead><tr>{headings}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _row(cells: Sequence[str]) -> str:
    first, *others = (html.escape(cell) for cell in cells)
    return f"<tr><th>{first}</th>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>"


def listed(texts: Iterable[str]) -> str:
    """A bulleted list."""
    return "<ul>\n" + "\n".join(f"<li>{html.escape(text)}</li>" for text in texts) + "\n</ul>"


def figures(pictures: Iterable[Picture]) -> str:
    """Pictures, two side by side; wide ones alone, and one without a neighbour alone in the middle."""
    rows: list[list[Picture]] = []
    for picture in pictures:
        if rows and not picture.wide and [each.wide for each in rows[-1]] == [False]:
            rows[-1].append(picture)
        else:
            rows.append([picture])
    shown = [_figure(picture, _placing(row)) for row in rows for picture in row]
    return '<div class="pictures">\n' + "\n".join(shown) + "\n</div>"


def _placing(row: list[Picture]) -> str:
    if row[0].wide:
        return "wide"
    return "half" if len(row) == 2 else "single"


def _figure(picture: Picture, placing: str) -> str:
    title, caption = html.escape(picture.title), html.escape(picture.caption)
    return (
        f'<figure class="{placing}"><h2>{title}</h2>'
        f'<div class="pan"><img alt="{title}" src="{picture.source}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )

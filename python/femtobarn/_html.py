"""Tables of HTML, as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["html_table"]

SHOWN_CHARACTERS = 60
"""Characters of a value that are shown."""


def html_table(caption: str, head: Sequence[str | tuple[str, str]], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table; texts that are too long are cut.

    Parameters
    ----------
    head
        Names of the columns, each perhaps with a second, smaller text.

    Examples
    --------
    >>> html_table("two", ["n"], [[1], ["<2>"]])
    '<table><caption>two</caption><tr><th>n</th></tr><tr><td>1</td></tr><tr><td>&lt;2&gt;</td></tr></table>'
    """
    names = "".join(f"<th>{_head(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{_shown(value)}</td>" for value in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<tr>{names}</tr>{body}</table>"


def _head(name: str | tuple[str, str]) -> str:
    if isinstance(name, str):
        return escape(name)
    return f"{escape(name[0])}<br><small>{escape(name[1])}</small>"


def _shown(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")

"""Output as text or as JSON."""

from __future__ import annotations

import argparse
import enum
import json
import math
import sys
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from .._schema.meanings import json_value
from .._schema.types import ElementLink, Fixed, Link, List, Node, Optional, Record

__all__ = [
    "emit",
    "emit_line",
    "human_duration",
    "human_size",
    "human_time",
    "plain",
    "plain_entry",
    "table",
    "text_entry",
]


def emit(options: argparse.Namespace, facts: Any, text: str) -> None:
    """Print facts as JSON if ``--json`` is given, and as text otherwise."""
    if options.json:
        emit_line(json.dumps(facts, indent=1, default=str))
    elif text:
        emit_line(text)


def emit_line(text: str) -> None:
    """Print a line of output."""
    sys.stdout.write(text + "\n")


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] | set[int] = frozenset()
) -> str:
    """Return rows as aligned text.

    Examples
    --------
    >>> print(table(["name", "n"], [["a", "1"], ["bc", "10"]], right={1}))
    name   n
    a      1
    bc    10
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def human_size(size: int) -> str:
    """Return a number of bytes with a unit.

    Examples
    --------
    >>> human_size(512), human_size(12_345_678)
    ('512 B', '12.3 MB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 1000 or unit == "PB":
            break
        value /= 1000
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def human_duration(seconds: int) -> str:
    """Return a number of seconds with its units.

    Examples
    --------
    >>> [human_duration(seconds) for seconds in (7, 150, 5400, 200_000)]
    ['7 s', '2 min', '1 h 30 min', '2 d']
    """
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} d"


def human_time(time: datetime) -> str:
    """Return a time in the local zone, to the second."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def plain_entry(entry: Any, node: Record) -> str:
    """Return an object as one line of JSON. Links are OIDs; NaN and infinity, which JSON lacks, are null."""
    return json.dumps(plain(entry, node), separators=(",", ":"), allow_nan=False)


def text_entry(entry: Any, node: Record) -> str:
    """Return an object as one line of text."""
    members = plain(entry, node)
    return "  ".join(f"{name}={_text(value)}" for name, value in members.items())


def plain(value: Any, node: Node) -> Any:
    """Return a value as JSON has it. Links are OIDs, bytes are hexadecimal, NaN and infinity are null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(node, Optional):
        return plain(value, node.item)
    meaning = getattr(node, "meaning", None)
    if meaning is not None and isinstance(value, int | str):
        value = meaning.to_python(value)
        return value.name if isinstance(value, enum.Enum) and value.name else _without_types(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        item = node.item if isinstance(node, List | Fixed) else node
        items = [plain(each, item) for each in value]
        return {str(key): each for key, each in items} if isinstance(node, List) and node.is_map else items
    if isinstance(value, dict):
        return _plain_record(value, node)
    return value


def _plain_record(value: dict[str, Any], node: Node) -> Any:
    if isinstance(node, Optional):
        return plain(value, node.item)
    if isinstance(node, Link | ElementLink):
        oid = f"{value['database']}-{value['container']}-{value['entry']}"
        return {"oid": oid, "element": value["element"]} if "element" in value else oid
    members = node.by_name if isinstance(node, Record) else {}
    if isinstance(node, Record) and node.is_tuple:
        return [plain(item, members[name]) for name, item in value.items()]
    return {name: plain(item, members.get(name, node)) for name, item in value.items()}


def _without_types(value: Any) -> Any:
    return value if isinstance(value, int | str) else json_value(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}={_text(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)

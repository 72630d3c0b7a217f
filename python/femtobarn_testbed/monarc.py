"""The table of [MONARC]: payload written per CPU second, by the size of objects and their links.

A run has this table if its variants have the settings ``size`` (B) and ``links`` (a number, or names of
containers); a setting ``bulk`` is shown where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .papers import MONARC_RANGES

__all__ = ["Cell", "cells_of", "size_table"]

HEAD = [
    "size of an object",
    "links",
    "how",
    "clients",
    "MB/s by a CPU",
    "CPUs for 100 MB/s",
    "MB/s",
    "paper: MB/s by a CPU",
]


@dataclass(frozen=True)
class Cell:
    """One point of a run."""

    size: int
    """Bytes of an object."""
    links: int
    """Links of an object."""
    how: str
    """Access, and whether objects are written in bulk, in words."""
    clients: int
    bytes_per_second: float
    bytes_per_cpu_second: float
    """Payload per CPU second of clients and servers together."""


def cells_of(run: Mapping[str, Any]) -> list[Cell]:
    """Return the points of a run that belong in the table, by ascending size: of each variant the point with
    the most clients."""
    newest: dict[str, Cell] = {}
    for point in sorted(run["points"], key=lambda point: point["clients"]):
        cell = _cell(run, point)
        if cell is not None:
            newest[point["variant"]] = cell
    return sorted(newest.values(), key=lambda cell: (cell.how, cell.links, cell.size))


def _cell(run: Mapping[str, Any], point: Mapping[str, Any]) -> Cell | None:
    settings, used = point["settings"], point["resources"]
    cores = used["client_cores"] + used["server_cores"]
    rate = point["throughput"]["bytes_per_second"]
    if not isinstance(settings.get("size"), int) or "links" not in settings or not (cores and rate):
        return None
    links = settings["links"]
    simulation = run["played"][point["variant"]]
    return Cell(
        size=settings["size"],
        links=links if isinstance(links, int) else len(links),
        how=_how(settings, simulation["access"]),
        clients=point["clients"],
        bytes_per_second=rate,
        bytes_per_cpu_second=rate * simulation["compression"] / cores,
    )


def _how(settings: Mapping[str, Any], access: str) -> str:
    """Access, and whether objects are written in bulk, in words."""
    words = ["through a server" if access == "server" else "local"]
    if "bulk" in settings:
        words.append("in bulk" if settings["bulk"] else "one by one")
    return ", ".join(words)


def size_table(run: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and cells of the table, beside the paper's ranges."""
    rows = []
    for cell in cells_of(run):
        low, high = MONARC_RANGES.get(cell.size, (0.0, 0.0))
        rows.append(
            [
                f"{cell.size:,} B",
                str(cell.links),
                cell.how,
                str(cell.clients),
                f"{cell.bytes_per_cpu_second / 1e6:,.3g}",
                f"{100e6 / cell.bytes_per_cpu_second:,.3g}",
                f"{cell.bytes_per_second / 1e6:,.3g}",
                f"{low / 1e6:g} to {high / 1e6:g}" if high else "-",
            ]
        )
    return HEAD, rows

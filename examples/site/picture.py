"""The picture of the example: the mass of the pairs, and the tasks of the selection over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from jobs import Selected

COLOURS = {"one": "#2f6fde", "two": "#12967f", "three": "#d99a2b"}


@dataclass
class Accident:
    """The server that was killed, and when it went and came back (s since 1970)."""

    server: str
    went: float
    came: float = 0.0


def draw(
    path: Path,
    pairs: Mapping[str, np.ndarray[Any, Any]],
    home_of_run: Mapping[int, str],
    selected: Sequence[tuple[str, Selected]],
    accident: Accident,
) -> None:
    """Draw the masses by the server that has the run, and each task as a line from its begin to its end."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    spectrum, times = figure.subplots(1, 2)
    edges = np.linspace(60, 120, 31)
    below = np.zeros(len(edges) - 1)
    for server, colour in COLOURS.items():
        mine = np.isin(pairs["run"], [run for run, home in home_of_run.items() if home == server])
        counts = np.histogram(pairs["mass"][mine], edges)[0]
        drawn: dict[str, Any] = {"fill": True, "color": colour, "label": f"from server {server}"}
        spectrum.stairs(below + counts, edges, baseline=below, **drawn)
        below = below + counts
    spectrum.axvline(91.19, color="#dd5a48", linestyle="--", linewidth=1)
    spectrum.set(xlabel="mass of the two muons [GeV]", ylabel="pairs / 2 GeV", xlim=(60, 120))
    spectrum.legend(frameon=False)

    first = min(each.began for _, each in selected)
    by_server = sorted(selected, key=lambda each: list(COLOURS).index(each[0]))
    for row, (server, task) in enumerate(by_server):
        times.hlines(row, task.began - first, task.ended - first, color=COLOURS[server], linewidth=5)
    times.axvspan(accident.went - first, accident.came - first, color="#dd5a48", alpha=0.15, linewidth=0)
    middle = (accident.went + accident.came) / 2 - first
    text = f"server {accident.server} is away"
    times.text(middle, len(by_server) + 0.2, text, ha="center", color="#dd5a48")
    times.set(xlabel="time [s]", ylabel="task of the selection", yticks=[], ylim=(-1, len(by_server) + 2))
    for axes in (spectrum, times):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)

"""The headlines of a run, from its JSON: tables and a picture of what a user would feel, missed ones first.

`headlines.py RUN.json` prints the tables of an earlier run. Each headline is measured in its own unit, so the
picture shows all of them by what is wanted.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from femtobarn_reports.style import BLUE, CORAL, GREY, INK, clean
from femtobarn_reports.style import picture as empty
from framework import GROUPS, Json
from pictures import PAPER, PEER, drawing, svg
from report import number, provenance

PICTURE = "headlines.svg"
MISSED, BEHIND = "Missed", "Reached, but a peer does better"
NOISE = 0.05
"""Numbers differ that much from run to run."""
HEADS = ("", "wanted", "Femtobarn", "limit of the machine", "best peer", "times the peer")
ROW_INCHES, GAP = 0.21, 0.5
"""The height of a row, and the part of it above a heading."""
FAR = 300.0
"""How far from what is wanted the picture shows numbers."""


def headlines(run: Json) -> list[Json]:
    """All headlines, in the order of their groups."""
    found = [
        headline
        for chapter in run["chapters"]
        for each in chapter["figures"]
        for headline in each["headlines"]
    ]
    return sorted(found, key=lambda each: GROUPS.index(each["group"]))


def measured(headline: Json) -> bool:
    """Whether ours, and what is wanted, could be measured."""
    return not math.isnan(headline["wanted"])


def times_wanted(headline: Json, value: float) -> float:
    """How many times better a number is than what is wanted."""
    return better(headline, value, headline["wanted"])


def better(headline: Json, value: float, other: float) -> float:
    """How many times better a number is than another; infinitely if it cannot be better."""
    more, less = (other, value) if headline["less"] else (value, other)
    return more / less if less else math.inf


def behind(headline: Json) -> bool:
    """Whether the best peer does better, by more than figures differ from run to run."""
    return headline["reached"] and by_peer(headline) < 1 - NOISE


def by_peer(headline: Json) -> float:
    """How many times better ours is than the best peer; NaN if there is none."""
    return better(headline, headline["ours"]["value"], headline["peer"].get("value", math.nan))


def sections(run: Json) -> dict[str, list[Json]]:
    """The headlines by their headings: missed ones, the worst first, those behind a peer, groups."""
    known = [each for each in headlines(run) if measured(each)]
    worst_first = sorted(known, key=lambda each: times_wanted(each, each["ours"]["value"]))
    others = [each for each in known if each["reached"] and not behind(each)]
    found = {
        MISSED: [each for each in worst_first if not each["reached"]],
        BEHIND: list(filter(behind, known)),
    }
    found |= {group: [each for each in others if each["group"] == group] for group in GROUPS}
    return {heading: each for heading, each in found.items() if each}


# ---- tables


def part(run: Json) -> str:
    """The machine-made part of the page: what is missed and why, then each group."""
    found, unknown = sections(run), [each for each in headlines(run) if not measured(each)]
    missed, slower = (len(found.get(heading, [])) for heading in (MISSED, BEHIND))
    counts = (
        f"**{missed} of {sum(map(len, found.values()))} figures are missed**, {slower} more behind a peer."
    )
    parts = [f"{provenance(run)}\n{counts}\n", f"![Femtobarn, the machine and the best peer]({PICTURE})\n"]
    parts += [f"### {heading}\n\n{table(each, why=heading == MISSED)}" for heading, each in found.items()]
    if unknown:
        lines = "\n".join(f"- {each['text']}" for each in unknown)
        parts.append(f"### Not measured\n\n{lines}\n")
    return "\n".join(parts)


def table(chosen: Iterable[Json], why: bool = False) -> str:
    """One line for each headline."""
    heads = (*HEADS, "why") if why else HEADS
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in chosen:
        cells = [
            f"{each['text']} ({each['unit']})", number(each["wanted"]),
            f"**{number(each['ours']['value'])}**", cell(each["limit"]), cell(each["peer"]),
            ratio(by_peer(each)),
        ]  # fmt: skip
        cells += [each["missed"] or "not known yet"] if why else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cell(beside: Json) -> str:
    """The number beside ours with its name, or why there is none."""
    if "reason" in beside:
        return f"*{beside['reason']}*"
    return f"{number(beside['value'])}, {name_of(beside)}"


def name_of(beside: Json) -> str:
    """The name of a side, without its place on a curve."""
    name: str = beside["name"]
    return name.partition(" @ ")[0]


def ratio(value: float) -> str:
    """How many times better ours is; in bold if it is worse."""
    text = "" if math.isnan(value) else f"{value:.2g}"
    return f"**{text}**" if text and float(text) < 1 else text


# ---- picture


def picture(run: Json) -> str:
    """The picture as SVG: bars from what is wanted to ours, with marks for limits and peers.

    Without numbers there is none.
    """
    if not (found := sections(run)):
        return ""
    height = sum(1 + len(each) + GAP for each in found.values())
    with drawing():
        figure = empty(10.5, 0.9 + ROW_INCHES * height)
        axes, place = figure.subplots(), 0.0
        for heading, each in found.items():
            label(axes, place, heading, CORAL if heading == MISSED else INK).set_fontweight("bold")
            for row, headline in enumerate(each, 1):
                bar(axes, place + row, headline)
            place += 1 + len(each) + GAP
        finish(axes, height)
        return svg(figure)


def label(axes: Axes, place: float, text: str, colour: str, *, right: bool = False) -> Text:
    """A text of a row, to the left of the axes or to their right."""
    x, side = (1.012, "left") if right else (-0.012, "right")
    across = axes.get_yaxis_transform()
    return axes.text(x, place, text, transform=across, ha=side, va="center", color=colour, clip_on=False)


WIDE = 300
"""From this ratio of the ends of the axis on there is no room for a word at each third of a power of ten."""

MARKS: dict[str, Any] = {
    "limit": {"marker": "|", "markersize": 11, "markeredgewidth": 2.2, "color": INK, "linestyle": ""},
    "peer": {"marker": "o", "markersize": 6, "color": PEER, "markeredgecolor": PAPER, "linestyle": ""},
}
"""The marks beside our bars."""


def bar(axes: Axes, place: float, each: Json) -> None:
    """One headline: its words, its bar and marks, its number."""
    colour, sign, hatch = (BLUE, "✓", None) if each["reached"] else (CORAL, "✗", "//////")
    ours = times_wanted(each, each["ours"]["value"])
    axes.barh(place, ours - 1, left=1, height=0.62, color=colour, hatch=hatch, edgecolor=PAPER, linewidth=0)
    for beside, mark in MARKS.items():
        value = each[beside].get("value", math.nan)
        if not math.isnan(value):
            axes.plot(min(max(times_wanted(each, value), 1 / FAR), FAR), place, **mark)
    label(axes, place, each["text"], INK)
    label(axes, place, f"{sign} {number(each['ours']['value'])} {each['unit']}", colour, right=True)


def finish(axes: Axes, height: float) -> None:
    """The axes, the line of what is wanted, and the legend."""
    axes.set_xscale("log")
    axes.set_ylim(height - GAP, -0.6)
    clean(axes, grid="x")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    low, high = axes.get_xlim()
    ticks = {1 / 100: "1/100", 1 / 10: "1/10", 1: "wanted", 10: "10 times", 100: "100 times"}
    if high / low < WIDE:
        ticks |= {1 / 3: "1/3", 3: "3 times"}
    axes.set_xticks(
        [at for at in ticks if low <= at <= high], [ticks[at] for at in ticks if low <= at <= high]
    )
    axes.set_xticks([], minor=True)
    axes.tick_params(labeltop=True)
    axes.axvline(1, color=GREY, linewidth=1)
    handles = [
        Patch(facecolor=BLUE, label="Femtobarn, reached"),
        Patch(facecolor=CORAL, hatch="//////", edgecolor=PAPER, linewidth=0, label="Femtobarn, missed"),
        Line2D([], [], label="limit of the machine", **MARKS["limit"]),
        Line2D([], [], label="best peer", **MARKS["peer"]),
    ]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.02), ncols=4)


if __name__ == "__main__":
    print(part(json.loads(Path(sys.argv[1]).read_text())))

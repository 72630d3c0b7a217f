"""bench/report.html: the headlines of a run, and all its figures as bars and curves.

`page.py RUN.json` prints the page of an earlier run.
"""

from __future__ import annotations

import html as markup
import json
import re
import sys
from pathlib import Path

from matplotlib.axes import Axes

import headlines
import report
from femtobarn_reports.style import BLUE, INK
from femtobarn_reports.style import picture as empty
from pictures import DARK, PAPER, PEER, drawing, svg
from report import Json

COLOURS = {"ours": BLUE, "peer": PEER, "limit": INK}
SIGNS = {"reached": "&#10003;", "missed": "&#10007;", "unknown": "?"}
PEERS = ["#8d8878", "#c9a227", "#6a994e", "#9c6b9e", "#d08c60", "#5b8e7d", "#a3a380", "#7a7d85"]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Femtobarn: benchmarks</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{
  color-scheme: light dark; --missed: #b02a1a; --reached: #2d6a2f; --line: #ddd; --note: #666; {light}
}}
@media (prefers-color-scheme: dark) {{
  :root {{ --missed: #f0826f; --reached: #7cc47f; --line: #444; --note: #a2a9b6; {dark} }}
}}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--limit); }}
h1, h2 {{ font-weight: 600; }}
h2 {{ margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }}
h3 {{ font-weight: 600; margin: 2rem 0 .3rem; }}
svg {{ max-width: 100%; height: auto; }}
ul {{ list-style: none; padding: 0; margin: .2rem 0; }}
li.missed {{ color: var(--missed); }} li.reached {{ color: var(--reached); }}
li.unknown, .note {{ color: var(--note); }} .note {{ font-size: .9em; }}
</style></head><body>
<h1>Femtobarn: benchmarks</h1>
<p class="note">{provenance}</p>
{headlines}
<p>{reached} of {targets} targets are reached.
<b style="color: var(--ours)">&#9632;</b> Femtobarn <b style="color: var(--peer)">&#9632;</b> peers
<b style="color: var(--limit)">&#9632;</b> limits of the machine</p>
{chapters}
</body></html>
"""


def html(run: Json) -> str:
    """The page, complete in itself."""
    targets = [t for chapter in run["chapters"] for each in chapter["figures"] for t in each["targets"]]
    colours = {"paper": PAPER, **COLOURS}
    return PAGE.format(
        light="".join(f"--{name}: {colour};" for name, colour in colours.items()),
        dark="".join(f"--{name}: {DARK[colour]};" for name, colour in colours.items()),
        provenance=re.sub(
            r"\*\*(.+?)\*\*", r"<b>\1</b>", markup.escape(report.provenance(run)).replace("`", "")
        ),
        headlines=headlines.picture(run),
        reached=sum(target["reached"] for target in targets),
        targets=len(targets),
        chapters="\n".join(map(section, run["chapters"])),
    )


def section(chapter: Json) -> str:
    """One chapter."""
    head = f"<h2>{markup.escape(chapter['title'])}</h2><p>{markup.escape(chapter['intro'])}</p>"
    return head + "\n".join(map(one, chapter["figures"]))


def one(each: Json) -> str:
    """One figure: its picture and its targets."""
    lines = [
        f'<li class="{report.verdict(t)}">{SIGNS[report.verdict(t)]} '
        f"{markup.escape(t['text'])}: <b>{report.number(t['value'])}</b> ({report.bounds(t)})</li>"
        for t in each["targets"]
    ]
    note = f'<p class="note">{markup.escape(each["note"])}</p>' if each["note"] else ""
    title = markup.escape(each["title"]).replace("`", "")
    return f"<h3>{title}</h3>{picture(each)}<ul>{''.join(lines)}</ul>{note}"


def picture(each: Json) -> str:
    """The figure as SVG; a sentence if no side could be measured."""
    if not any(side["samples"] for side in each["sides"]):
        return '<p class="note">No side was measured.</p>'
    with drawing():
        curves = bool(each["x"])
        figure = empty(8, 3.4 if curves else 0.6 + 0.34 * len(each["sides"]))
        axes = figure.subplots()
        axes.grid(visible=False)
        (draw_curves if curves else draw_bars)(axes, each)
        return svg(figure)


def draw_bars(axes: Axes, each: Json) -> None:
    """A bar for each measured side, labelled with its rates per elapsed and per CPU second."""
    by_cpu = each["by"] == "cpu"
    sides = [side for side in each["sides"][::-1] if side["samples"]]
    values = [side["cpu_rate" if by_cpu else "rate"] for side in sides]
    axes.barh(
        [side["name"] for side in sides], values, color=[COLOURS[side["role"]] for side in sides], height=0.7
    )
    for row, (side, value) in enumerate(zip(sides, values, strict=True)):
        text = f" {report.number(side['rate'])}/s, {report.number(side['cpu_rate'])}/CPU s"
        axes.text(value, row, text, va="center", fontsize=8)
    axes.set_xlabel(f"{each['unit']} a {'CPU ' if by_cpu else ''}second")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(0, 1.35 * max(values))


def draw_curves(axes: Axes, each: Json) -> None:
    """A line for each side."""
    lines: dict[str, list[tuple[float, float]]] = {}
    roles: dict[str, str] = {}
    for side in (side for side in each["sides"] if side["samples"]):
        rate = side["cpu_rate"] if each["by"] == "cpu" else side["rate"]
        lines.setdefault(side["name"], []).extend(map(tuple, side["points"] or [(side["x"], rate)]))
        roles[side["name"]] = side["role"]
    peers = iter(PEERS * 3)
    for name, points in lines.items():
        colour = next(peers) if roles[name] == "peer" else COLOURS[roles[name]]
        x, y = zip(*sorted(points), strict=True)
        width, dash = (2.4 if roles[name] == "ours" else 1.3), ("--" if roles[name] == "limit" else "-")
        axes.plot(x, y, dash, marker="o", markersize=3.5, color=colour, linewidth=width, label=name)
    places = sorted({x for line in lines.values() for x, _ in line})
    if places[-1] > 8 * max(places[0], 1e-12):
        axes.set_xscale("log")
    if places[-1] <= 1000:
        axes.set_xticks(places, [f"{x:g}" for x in places], minor=False)
        axes.set_xticks([], minor=True)
    heights = [y for line in lines.values() for _, y in line]
    if max(heights) > 30 * max(min(heights), 1e-12):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max(heights))
        axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel(each["x"])
    axes.set_ylabel(each["y"] or f"{each['unit']} a {'CPU ' if each['by'] == 'cpu' else ''}second")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


if __name__ == "__main__":
    print(html(json.loads(Path(sys.argv[1]).read_text())))

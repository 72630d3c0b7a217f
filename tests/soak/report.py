"""The report of a run: curves of servers, disk and clients, what was done, and a table of trends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from femtobarn_reports.page import Picture, document, figures, grid, listed, section, tiles
from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture, png, style

from .run import BUSY_THREADS, FOREIGN_SHARE

__all__ = ["write_report"]

Run = Mapping[str, Any]
COLOURS = (BLUE, TEAL, SAND, VIOLET, CORAL, INK, GREY)
FAILURES = {"kill a server": CORAL, "restart a server": SAND, "crash of PostgreSQL": VIOLET}
"""What befalls the site, with its colour in all panels."""


def write_report(run: Run, out: Path) -> Path:
    """Write the page and its pictures into a folder, and return the page."""
    with style():
        shown = [
            Picture(title, caption, png(draw(run), path=out / f"{name}.png"), wide=True)
            for title, caption, name, draw in (
                (
                    "Processes and disk",
                    "Lines are broken where a server was away.",
                    "servers",
                    draw_servers,
                ),
                (
                    "Clients",
                    "Of the operations that ended in each fortieth of the run.",
                    "clients",
                    draw_clients,
                ),
            )
        ]
    verdict = (
        listed(run["faults"]) if run["faults"] else "<p>Nothing was lost, doubled, wrong or growing.</p>"
    )
    if run["foreign_share"] > FOREIGN_SHARE:
        verdict += (
            f"<p>Other processes of the machine had {run['foreign_share']:.0%} of its processors, so "
            f"latencies were not judged, and threads of servers could grow {BUSY_THREADS} times as much.</p>"
        )
    body = [
        tiles(facts_of(run)),
        section("Verdict", verdict),
        figures(shown),
        section("Trends", grid(*trends_table(run))),
        section("Clients", grid(*clients_table(run))),
        section("Operators", grid(*deeds_table(run))),
        section("Origin", listed([origin_of(run)])),
    ]
    page = out / "report.html"
    summary = (
        "Three servers of one federation with its catalogue in PostgreSQL, under clients of all kinds, while "
        "operators work and servers, clients and PostgreSQL fail. What may not grow was tested for a slope."
    )
    page.write_text(document("The soak", summary, "\n".join(body)), encoding="utf-8")
    return page


def facts_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the numbers at the top of the page."""
    outcomes = [kind["outcomes"] for kind in run["operations"].values()]
    yield f"{run['seconds'] / 60:,.1f}", "minutes"
    yield f"{sum(each.get('ok', 0) for each in outcomes):,}", "operations that were acknowledged"
    yield f"{sum(sum(each.values()) - each.get('ok', 0) for each in outcomes):,}", "that failed with a server"
    yield f"{run['registers']:,}", "transactions whose history was checked"
    yield f"{sum(deed['name'] in FAILURES for deed in run['deeds']):,}", "failures of servers and PostgreSQL"
    yield f"{len(run['faults']):,}", "faults"


def draw_servers(run: Run) -> Figure:
    """Draw what servers and clients have, and the disk."""
    figure = picture(12.0, 12.0)
    panels = figure.subplots(4, 2, sharex=True)
    memory, files = private_megabytes, open_files
    draw_processes(panels[0, 0], run, "servers", memory, "memory of servers (MB)")
    draw_processes(panels[0, 1], run, "servers", files, "open files of servers")
    draw_processes(panels[1, 0], run, "servers", lambda it: it["threads"], "threads of servers")
    draw_line(panels[1, 1], run, lambda it: it["postgres_connections"], VIOLET, "")
    finish(panels[1, 1], run, "connections of PostgreSQL")
    draw_processes(panels[2, 0], run, "clients", memory, "memory of clients (MB)")
    draw_line(panels[2, 1], run, lambda it: it["disk_bytes"] / 1e6, BLUE, "on the disk")
    draw_line(panels[2, 1], run, lambda it: it["live_bytes"] / 1e6, TEAL, "live")
    finish(panels[2, 1], run, "disk (MB)")
    draw_line(panels[3, 0], run, lambda it: it["postgres_bytes"] / 1e6, VIOLET, "")
    finish(panels[3, 0], run, "PostgreSQL (MB)")
    draw_line(panels[3, 1], run, lambda it: it["commits"], INK, "")
    finish(panels[3, 1], run, "commits")
    for axes in (panels[0, 0], panels[2, 0], panels[2, 1]):
        axes.legend(loc="center left", fontsize="small", ncols=2)
    for axes in panels[3]:
        axes.set_xlabel("minutes")
    return figure


def private_megabytes(process: Run) -> float:
    """Return the memory of a process."""
    return float(process["private_bytes"]) / 1e6


def open_files(process: Run) -> float:
    """Return the number of descriptors of a process."""
    return float(sum(process["open_files"].values()))


def draw_processes(axes: Axes, run: Run, which: str, value: Callable[[Run], float], unit: str) -> None:
    """Draw one number of all servers, or clients."""
    names = sorted({name for sample in run["samples"] for name in sample[which]})
    for colour, name in zip(COLOURS, names, strict=False):
        points = [
            (sample["time"] / 60, value(sample[which][name]) if name in sample[which] else float("nan"))
            for sample in run["samples"]
        ]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, label=name)
    finish(axes, run, unit)


def draw_line(axes: Axes, run: Run, value: Callable[[Run], float], colour: str, label: str) -> None:
    """Draw one number of all samples."""
    points = [(sample["time"] / 60, value(sample)) for sample in run["samples"]]
    axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, label=label)


def draw_clients(run: Run) -> Figure:
    """Draw the latencies of each kind of client, and what operators did."""
    figure = picture(12.0, 7.0)
    medians, slowest, deeds = figure.subplots(3, 1, sharex=True, height_ratios=(2, 2, 2.2))
    kinds = sorted(run["operations"])
    for axes, which in ((medians, "median"), (slowest, "99 %")):
        for colour, kind in zip(COLOURS, kinds, strict=False):
            series = run["latencies"].get(f"{kind}, {which}")
            if series:
                minutes = [moment / 60 for moment in series["times"]]
                axes.plot(
                    minutes, [1e3 * it for it in series["values"]], color=colour, label=kind, linewidth=1.3
                )
        axes.set_yscale("log", subs=(2, 5))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        finish(axes, run, f"{which} (ms)", from_zero=False)
    names = list(dict.fromkeys(deed["name"] for deed in run["deeds"]))
    for deed in run["deeds"]:
        colour = FAILURES.get(deed["name"], BLUE) if deed["outcome"] == "ok" else INK
        width = max(deed["seconds"], run["seconds"] / 600) / 60
        deeds.barh(names.index(deed["name"]), width, left=deed["began"] / 60, color=colour, height=0.7)
    deeds.set_yticks(range(len(names)), names)
    deeds.invert_yaxis()
    clean(deeds, x="minutes", grid="x")
    handles, labels = medians.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def finish(axes: Axes, run: Run, unit: str, *, from_zero: bool = True) -> None:
    """Label a panel with all its lines, and show in it when something failed."""
    top = 1.08 * axes.dataLim.y1
    for deed in run["deeds"]:
        if deed["name"] in FAILURES:
            span = (deed["began"] / 60, (deed["began"] + max(deed["seconds"], 0.5)) / 60)
            axes.axvspan(*span, color=FAILURES[deed["name"]], alpha=0.12, linewidth=0)
    clean(axes, y=unit)
    if from_zero:
        axes.set_ylim(0, top)


def trends_table(run: Run) -> tuple[list[str], list[list[str]]]:
    """Tabulate the series, those that grow first."""
    head = ["series", "verdict", "median", "growth in the run", "99 % interval", "allowed", "points"]
    order = ("grows", "flat", "short")
    rows = [
        [
            trend["name"],
            trend["verdict"],
            f"{trend['level']:,.4g} {trend['unit']}",
            f"{trend['growth']:+,.3g}",
            f"{trend['low']:+,.3g} to {trend['high']:+,.3g}",
            f"{trend['allowed']:,.3g}",
            str(trend["points"]),
        ]
        for trend in sorted(run["trends"], key=lambda it: order.index(it["verdict"]))
    ]
    return head, rows


def clients_table(run: Run) -> tuple[list[str], list[list[str]]]:
    """Tabulate how operations ended."""
    head = ["client", "acknowledged", "otherwise", "median, ms", "99 %, ms", "longest, s"]
    rows = []
    for kind, counts in run["operations"].items():
        others = {name: count for name, count in counts["outcomes"].items() if name != "ok"}
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(others.items()))
        times = [f"{1e3 * counts['median']:,.1f}", f"{1e3 * counts['p99']:,.1f}", f"{counts['longest']:,.1f}"]
        rows.append([kind, f"{counts['outcomes'].get('ok', 0):,}", told or "-", *times])
    return head, rows


def deeds_table(run: Run) -> tuple[list[str], list[list[str]]]:
    """Tabulate what was done, how often, and how long it took."""
    head = ["deed", "times", "longest, s", "did not succeed"]
    rows = []
    for name in dict.fromkeys(deed["name"] for deed in run["deeds"]):
        mine = [deed for deed in run["deeds"] if deed["name"] == name]
        failed = sorted({deed["outcome"] for deed in mine if deed["outcome"] != "ok"})
        count = sum(deed["outcome"] != "ok" for deed in mine)
        longest = max(deed["seconds"] for deed in mine)
        rows.append(
            [name, str(len(mine)), f"{longest:.1f}", f"{count} ({', '.join(failed)})" if failed else "-"]
        )
    return head, rows


def origin_of(run: Run) -> str:
    """Say where and when a run was made."""
    where = run["machine"]
    return (
        f"Femtobarn {run['version']}, {run['started'][:16].replace('T', ' ')} UTC, {where['cores']} cores of "
        f"{where['cpu']}, {where['memory_bytes'] / 1e9:.0f} GB, Linux {where['kernel']}"
    )

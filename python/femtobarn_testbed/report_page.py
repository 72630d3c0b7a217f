"""The page of a report: what was run beside the papers, a part for each run, where it all comes from."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from femtobarn_reports.page import Picture, details, document, figures, grid, listed, section, tiles
from femtobarn_reports.style import png, style

from .monarc import cells_of, size_table
from .papers import paper_of
from .rate_plots import draw_bars, draw_curves, has_curves, split
from .summaries import (
    describe_limits,
    describe_simulation,
    latency_table,
    origin,
    paper_rows,
    points_table,
    start_table,
)
from .time_plots import draw_object_sizes, draw_starts, draw_time_shares

__all__ = ["page_of"]

Run = Mapping[str, Any]

START_FIGURE = "[SCAL] Figure 5"
OBJECT_SIZES = "[MONARC]"


def page_of(runs: Sequence[Run], out: Path) -> str:
    """Return the page; pictures are also written into the folder."""
    parts = [tiles(_facts(runs))]
    rows = [row for run in runs if (paper := paper_of(run)) for row in paper_rows(run, paper)]
    if rows:
        head = ["figure", "what", "paper, with clients", "variant", "here, with clients"]
        parts.append(section("Beside the papers' points", grid(head, rows)))
    stems = _stems(runs)
    with style():
        for run, stem in zip(runs, stems, strict=True):
            parts += _parts(run, stem, out)
    parts.append(section("How to read this", listed(NOTES)))
    parts.append(section("Where this comes from", listed(origin(run) for run in runs)))
    return document(
        "The testbed: where the limits are",
        "Workloads of real jobs with more and more clients, until something gives. Pictures show what all "
        "clients did together; hollow points are what the papers measured, dotted lines what is possible.",
        "\n".join(parts),
    )


NOTES = (
    "MB are payload: bytes of objects that clients read, selected or wrote. Rates are in the workload's own "
    "time; latency_table are as the clock shows them, to a histogram's bucket (26 %).",
    "Computing is the share of the clients' time in the computation that they were to do; where the "
    "computation is played, a client sleeps as if it had a CPU of its own, and more sleep than was due "
    "counts as late and not as computation.",
    "Dotted: as many clients as one moves alone if all of its time is computation, and never more than "
    "all disks that are played give.",
    "A line bends (|) where that of its beginning, as it would go on, comes to its best rate. The limit is "
    "what is used up there, or, where nothing is, what clients spend most of their time with.",
)


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    points = [point for run in runs for point in run["points"]]
    fastest = max(point["throughput"]["bytes_per_second"] for point in points)
    return [
        (str(len(runs)), "workload" + "s" * (len(runs) > 1)),
        (str(len(points)), "points"),
        (f"{max(point['clients'] for point in points):,}", "clients at most"),
        (f"{fastest / 1e6:,.0f} MB/s", "the fastest point"),
        (str(runs[0]["machine"]["cores"]), f"cores, {runs[0]['machine']['cpu']}"),
    ]


def _stems(runs: Sequence[Run]) -> list[str]:
    """What the pictures of each run are called; a second run of a workload has a number."""
    seen: dict[str, int] = {}
    stems = []
    for run in runs:
        number = seen[run["workload"]] = seen.get(run["workload"], 0) + 1
        stems.append(run["workload"] if number == 1 else f"{run['workload']}-{number}")
    return stems


def _parts(run: Run, stem: str, out: Path) -> Iterator[str]:
    """What there is to say about one run."""
    paper = paper_of(run)
    title = f"{run['title']} ({run['paper']})" if run["paper"] else run["title"]
    told = [f"Paper: {paper.said}"] if paper else []
    yield section(
        title,
        f"<p>{html.escape(run['about'])}</p>",
        listed([*told, *describe_simulation(run), *describe_limits(run)]),
    )
    yield figures(
        Picture(name, caption, png(draw(of), path=out / f"{stem}-{file}.png"), wide=True)
        for file, name, caption, draw, of in _pictures(run)
    )
    tables = [grid(*points_table(run))]
    if OBJECT_SIZES in run["paper"] and cells_of(run):
        tables.insert(0, grid(*size_table(run)))
    yield section("All points", *tables)
    yield details("Latencies: median / 99 % / longest (ms)", grid(*latency_table(run)))
    yield details("Start-up of clients (s since their launch), and memory", grid(*start_table(run)))


def _pictures(run: Run) -> Iterator[tuple[str, str, str, Callable[[Run], Figure], Run]]:
    """What to draw: the end of a file's name, title, caption, who draws it, and of what."""
    played = " ".join(describe_simulation(run))
    if run["paper"].startswith(START_FIGURE):
        yield "start", "Start-up", f"A point is a client. {played}", draw_starts, run
    elif run["paper"].startswith(OBJECT_SIZES) and cells_of(run):
        caption = f"Payload by CPU seconds of clients and server together. {played}"
        yield "sizes", "CPU to write, by size of objects", caption, draw_object_sizes, run
    elif not has_curves(run):
        yield (
            "rates",
            "Rates",
            f"Ratios are to the first variant; beside them what limits each. {played}",
            draw_bars,
            run,
        )
    else:
        title = "Rates over the number of clients"
        for file, part in zip(("rates", "rates-fast"), split(run), strict=False):
            yield file, title, " ".join(describe_simulation(part)), draw_curves, part
            title = "Rates of the faster variants"
    caption = (
        "All clients of a point together. Time in their own loop is what Python does between operations."
    )
    yield "time", "Where the clients' time goes", caption, draw_time_shares, run

"""The page of a report: figures beside the papers', a part for each run, and the origin of all runs."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from femtobarn_reports.page import Picture, details, document, figures, grid, listed, section, tiles
from femtobarn_reports.style import png, style

from .conditions_plots import draw_event_costs, draw_look_up_latencies
from .event_costs import event_costs_of, event_costs_table
from .monarc import cells_of, size_table
from .papers import paper_of
from .rate_plots import draw_bars, draw_curves, has_curves, split
from .sources import sources_table
from .storage_plots import draw_storage, look_up_times
from .studies import study_of
from .summaries import (
    Run,
    describe_limits,
    describe_origin,
    describe_simulation,
    latency_table,
    paper_rows,
    points_table,
    start_table,
)
from .time_plots import draw_object_sizes, draw_starts, draw_time_shares

__all__ = ["page_of"]

START_FIGURE = "[SCAL] Figure 5"
OBJECT_SIZES = "[MONARC]"
STORAGE_FIGURES = "[STAR] Figures 5 to 7"


def page_of(runs: Sequence[Run], out: Path) -> str:
    """Return the page, and write its pictures into the folder, too."""
    parts = [tiles(_facts(runs))]
    rows = [row for run in runs if (paper := paper_of(run)) for row in paper_rows(run, paper)]
    if rows:
        head = ["figure", "quantity", "paper, with clients", "variant", "here, with clients"]
        parts.append(section("Comparison with the papers", grid(head, rows)))
    stems = _stems(runs)
    with style():
        for run, stem in zip(runs, stems, strict=True):
            study = study_of(run)
            parts += study.parts(run, stem, out) if study else _parts(run, stem, out)
    parts.append(section("How to read this", listed(NOTES)))
    parts.append(section("Origin of the runs", listed(describe_origin(run) for run in runs)))
    return document(
        "The testbed: limits of workloads",
        "Workloads of real jobs with more and more clients, until a resource limits them. Pictures show the "
        "rates of all clients together; hollow points are the papers', dotted lines are upper bounds.",
        "\n".join(parts),
    )


NOTES = (
    "MB are payload: bytes of objects that clients read, selected or wrote. Rates are in the workload's own "
    "time; latencies are by the clock, to the width of a histogram's bucket (26 %).",
    "Computing is the share of the clients' time in the computation of their loops. Where computation is "
    "simulated, a client sleeps as if it had a free CPU; sleep beyond the nominal time counts as late, not "
    "as computation.",
    "Dotted: the rate of clients that spend all their time computing, capped at the rate of all simulated "
    "disks together.",
    "A line bends (|) where linear scaling, from its best rate per client, reaches its best rate. The limit "
    "is the resource that is used up there, or otherwise the activity that takes most of the clients' time.",
)


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    measured = [point for run in runs if study_of(run) is None for point in run["points"]]
    facts = [
        (str(len(runs)), "workload" + "s" * (len(runs) > 1)),
        (str(sum(len(run["points"]) for run in runs)), "points"),
    ]
    if measured:
        fastest = max(point["throughput"]["bytes_per_second"] for point in measured)
        facts.append((f"{max(point['clients'] for point in measured):,}", "clients at most"))
        facts.append((f"{fastest / 1e6:,.0f} MB/s", "the fastest point"))
    return [*facts, (str(runs[0]["machine"]["cores"]), f"cores, {runs[0]['machine']['cpu']}")]


def _stems(runs: Sequence[Run]) -> list[str]:
    """The beginnings of the names of each run's pictures; later runs of a workload have a number."""
    seen: dict[str, int] = {}
    stems = []
    for run in runs:
        number = seen[run["workload"]] = seen.get(run["workload"], 0) + 1
        stems.append(run["workload"] if number == 1 else f"{run['workload']}-{number}")
    return stems


def _parts(run: Run, stem: str, out: Path) -> Iterator[str]:
    """The parts of the page about one run."""
    paper = paper_of(run)
    title = f"{run['title']} ({run['paper']})" if run["paper"] else run["title"]
    of_paper = [f"Paper: {paper.summary}"] if paper else []
    yield section(
        title,
        f"<p>{html.escape(run['about'])}</p>",
        listed([*of_paper, *describe_simulation(run), *describe_limits(run)]),
    )
    yield figures(
        Picture(name, caption, png(draw(of), path=out / f"{stem}-{file}.png"), wide=True)
        for file, name, caption, draw, of in _pictures(run)
    )
    tables = [grid(*points_table(run))]
    if OBJECT_SIZES in run["paper"] and cells_of(run):
        tables.insert(0, grid(*size_table(run)))
    if event_costs_of(run):
        tables.insert(0, grid(*event_costs_table(run)))
    yield section("All points", *tables)
    if (read := sources_table(run))[1]:
        yield section("Reads of jobs for an event, since their beginning", grid(*read))
    yield details("Latencies: median / 99 % / longest (ms)", grid(*latency_table(run)))
    yield details("Start-up of clients (s since their launch), and memory", grid(*start_table(run)))


def _pictures(run: Run) -> Iterator[tuple[str, str, str, Callable[[Run], Figure], Run]]:
    """The pictures of a run: end of the file's name, title, caption, drawing function, and its argument."""
    simulated = " ".join(describe_simulation(run))
    if run["paper"].startswith(START_FIGURE):
        yield "start", "Start-up", f"A point is a client. {simulated}", draw_starts, run
    elif run["paper"].startswith(OBJECT_SIZES) and cells_of(run):
        caption = f"Payload per CPU second of clients and server together. {simulated}"
        yield "sizes", "CPU to write, by size of objects", caption, draw_object_sizes, run
    elif not has_curves(run):
        yield (
            "rates",
            "Rates",
            f"Ratios are to the first variant; beside them stand the limits. {simulated}",
            draw_bars,
            run,
        )
    else:
        title = "Rates over the number of clients"
        for file, part in zip(("rates", "rates-fast"), split(run), strict=False):
            yield file, title, " ".join(describe_simulation(part)), draw_curves, part
            title = "Rates of the faster variants"
    if run["paper"].startswith(STORAGE_FIGURES) and look_up_times(run):
        caption = f"Hollow: the paper's. {simulated}"
        yield "storage", "Look-ups by storage", caption, draw_storage, run
    if event_costs_of(run):
        caption = f"Dashed: the first variant, made faster by the factor of the paper's jobs. {simulated}"
        yield "events", "Time in database code", caption, draw_event_costs, run
    if any(played.get("servers", 1) > 1 for played in run["played"].values()):
        caption = f"Of all look-ups that ended, each for all series at an event. {simulated}"
        yield "latencies", "Latencies of look-ups", caption, draw_look_up_latencies, run
    caption = "All clients of a point together. Their own loop is Python code between operations."
    yield "time", "Shares of the clients' time", caption, draw_time_shares, run

"""The command that divides events among jobs in the order of time, and prints the savings."""

from __future__ import annotations

import argparse
from typing import Any

from .._conditions.clocks import shown
from .._conditions.job_plans import JobPlan
from .._conditions.plan_costs import PlanCosts
from .._exceptions import UnsupportedError
from .conditions_arguments import events_arguments, moments_from, open_job, reader_arguments
from .output import emit, table

__all__ = ["COMMANDS"]

SPANS = {"time": (86_400 * 10**9, "days"), "run": (1 << 32, "runs")}
"""For each clock the unit in which spans are printed, and its name."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    reader_arguments(parser)
    parser.add_argument("series", nargs="*", metavar="SERIES", help="series that jobs read; all by default")
    events_arguments(parser)
    parser.add_argument("--where", metavar="CONDITION", help="only these events, such as 'pt > 30'")
    count = parser.add_mutually_exclusive_group(required=True)
    count.add_argument("--jobs", type=int, metavar="N", help="number of jobs")
    count.add_argument("--events-per-job", type=int, metavar="N")
    parser.add_argument(
        "--channel", type=int, action="append", metavar="N", help="count only this channel; repeatable"
    )
    parser.add_argument("--out", metavar="FILE", help="write the plan to this new file, usually .json")
    parser.add_argument("--picture", metavar="FILE", help="draw the jobs over time, such as plan.png")


def _plan(options: argparse.Namespace) -> None:
    job = open_job(options)
    plan = job.plan_jobs(
        [job.snapshot[name] for name in options.events],
        options.series or None,
        options.where,
        moments=moments_from(options),
        jobs=options.jobs,
        events_per_job=options.events_per_job,
        channel=options.channel,
    )
    if options.out:
        plan.write(options.out)
    if options.picture:
        try:
            plan.plot().savefig(options.picture, dpi=150)
        except ValueError as error:  # Matplotlib's for an ending that it does not know.
            raise UnsupportedError(f"{options.picture} cannot be drawn: {error}") from error
    emit(options, _facts(plan), _text(plan))


def _facts(plan: JobPlan) -> dict[str, Any]:
    return {
        "events": plan.num_events,
        "jobs": [
            {
                "events": len(job),
                "containers": len(job.views),
                **{name: shown(getattr(job, name), plan.clock) for name in ("first", "last")},
            }
            for job in plan
        ],
        "before": _costs(plan.before),
        "after": _costs(plan.after),
    }


def _costs(costs: PlanCosts) -> dict[str, Any]:
    return {
        "median_span": costs.median_span,
        "intervals": costs.intervals,
        "clusters": costs.clusters,
        "series": {path: vars(each) for path, each in costs.series.items()},
        "containers": costs.containers,
        "event_clusters": costs.event_clusters,
    }


def _text(plan: JobPlan) -> str:
    if not len(plan):
        return "no events, no jobs"
    first, last = (shown(each, plan.clock) for each in (plan[0].first, plan[-1].last))
    before, after = plan.before, plan.after
    unit, name = SPANS[plan.clock]
    rows = [_row(f"{name} in a job, median", before.median_span / unit, after.median_span / unit)]
    for path, costs in before.series.items():
        rows.append(_row(f"intervals of {path}", costs.intervals, after.series[path].intervals))
    if len(before.series) > 1:
        rows.append(_row("intervals of all series", before.intervals, after.intervals))
    rows.append(_row("clusters of series", before.clusters, after.clusters))
    rows.append(_row("containers of events", before.containers, after.containers))
    rows.append(_row("clusters of events", before.event_clusters, after.event_clusters))
    return (
        f"{plan.num_events:,} events in {len(plan):,} jobs, from {first} to {last}\n"
        "in all jobs together:\n"
        + table(["", "as the events lie", "in order of time", "factor"], rows, right={1, 2, 3})
    )


def _row(what: str, before: float, after: float) -> list[str]:
    numbers = [f"{each:,}" if isinstance(each, int) else f"{each:,.3g}" for each in (before, after)]
    return [what, *numbers, f"{before / after:,.3g}" if after else ""]


COMMANDS = (("plan", "divide events among jobs in the order of time", _arguments, _plan),)
"""Name, help, arguments and action of the command."""

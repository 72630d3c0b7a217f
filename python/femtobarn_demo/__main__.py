"""The command line of the demo."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import femtobarn
from femtobarn_demo.demo_report import make_report
from femtobarn_demo.object_store import find_rclone
from femtobarn_demo.report import HEADINGS, Stage, table
from femtobarn_demo.steps import Plan, Run


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and print its numbers."""
    plan = _plan(arguments)
    try:
        find_rclone()
    except femtobarn.UnsupportedError as error:
        print(error, file=sys.stderr)
        return 1
    started = time.monotonic()
    fed = _new_federation(plan)
    run = Run(plan, fed)
    run.facts["samples"] = _step("real events", run.import_samples)
    _step("raw events", run.write_raw_events)
    _step("reconstruction", run.reconstruct)
    _step("calibration", run.calibrate)
    _step("second pass", run.reprocess)
    _step("selection", run.select_events)
    _step("sealing", run.seal_database)
    _step("object store", run.move_to_object_store)
    report = plan.folder / "report.html"
    _step("report", lambda: _write_report(run, report))
    print(f"\n{_format(run.stages)}\n\ntotal: {time.monotonic() - started:.0f} s")
    return 0


def _plan(arguments: list[str] | None) -> Plan:
    parser = argparse.ArgumentParser(
        prog="python -m femtobarn_demo", description="Collision events, from writing to a picture."
    )
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="folder of the results (demo)")
    parser.add_argument(
        "--cache", type=Path, default=Path(".cache"), help="folder kept between runs (.cache)"
    )
    parser.add_argument("--data", type=Path, help="a folder with more real files")
    parser.add_argument("--events", type=int, default=2000, help="raw events to write (2000)")
    parser.add_argument(
        "--pool", type=int, default=250, help="events to generate; all others repeat them (250)"
    )
    parser.add_argument("--runs", type=int, default=4, help="writer processes, each with its database (4)")
    parser.add_argument("--clients", type=int, help="reconstruction processes (one for each processor)")
    chosen = parser.parse_args(arguments)
    if min(chosen.events // max(chosen.runs, 1), chosen.pool, chosen.runs) < 1:
        parser.error("needs at least one run, one event in each run, and one event in the pool")
    return Plan(
        folder=chosen.folder,
        cache=chosen.cache,
        extra=chosen.data or _extra_data(),
        events=chosen.events,
        runs=chosen.runs,
        pool_events=chosen.pool,
        clients=min(chosen.clients or len(os.sched_getaffinity(0)), chosen.runs),
        progress=sys.stderr.isatty(),
    )


def _extra_data() -> Path | None:
    """The folder that FEMTOBARN_DATA names, or a shared one beside the project."""
    for place in (os.environ.get("FEMTOBARN_DATA"), "../shared/data"):
        if place and Path(place).is_dir():
            return Path(place)
    return None


def _new_federation(plan: Plan) -> femtobarn.Federation:
    """Create an empty federation, which replaces that of the last demo."""
    path = Path(plan.federation)
    if path.exists():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return femtobarn.create(plan.federation)


def _step(name: str, action: Callable[[], list[str]]) -> list[str]:
    """Run a step and print its lines, with its time on the first line."""
    started = time.monotonic()
    lines = action()
    for number, line in enumerate(lines):
        spent = f"{time.monotonic() - started:7.1f} s" if number == 0 else " " * 9
        print(f"{name if number == 0 else '':<16}{spent}  {line}", flush=True)
    return lines


def _write_report(run: Run, path: Path) -> list[str]:
    make_report(run).write(path)
    return [f"{path}"]


def _format(stages: list[Stage]) -> str:
    """The table as aligned text."""
    rows = [HEADINGS, *table(stages)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())

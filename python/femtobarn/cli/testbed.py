"""The commands of the testbed: list, show and run workloads, plot and compare runs.

The package `femtobarn_testbed` is imported when one of them runs: no other command needs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._exceptions import FemtobarnError, InvalidError, UnavailableError
from .output import emit, emit_line, table

__all__ = ["arguments", "run"]

FOLDER = "testbed"
"""Default folder of runs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands of ``testbed``."""
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text, declare, action in (
        ("list", "list the bundled workloads", _no_arguments, _list),
        ("show", "print the file of a workload, to copy it", _show_arguments, _show),
        ("run", "run workloads", _run_arguments, _run),
        ("plot", "plot runs beside the papers' points", _plot_arguments, _plot),
        ("compare", "compare the variants of a run, or two runs", _compare_arguments, _compare),
    ):
        part = parts.add_parser(name, help=text, description=text)
        declare(part)
        part.set_defaults(part=action)
        part.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> None:
    """Run the chosen command."""
    options.part(options)


def _no_arguments(_: argparse.ArgumentParser) -> None:
    pass


def _list(options: argparse.Namespace) -> None:
    from femtobarn_testbed import bundled_workloads, load

    workloads = [load(path) for path in bundled_workloads().values()]
    facts = [
        {
            "name": one.name,
            "title": one.title,
            "paper": one.paper,
            "variants": list(one.variants),
            "clients": list(one.scenarios[0].sweep.clients) if one.scenarios else [],
        }
        for one in workloads
    ]
    rows = [[w.name, w.paper, w.title] for w in workloads]
    emit(options, facts, table(["workload", "paper", "title"], rows))


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="NAME")


def _show(options: argparse.Namespace) -> None:
    from femtobarn_testbed import load

    workload = load(options.workload)
    emit(options, workload.raw, workload.path.read_text().rstrip())


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    text = "names from `testbed list`, files, or all: every bundled workload, in about two hours"
    parser.add_argument("workloads", metavar="NAME|FILE.toml|all", nargs="+", help=text)
    parser.add_argument("--out", type=Path, default=Path(FOLDER), help=f"folder for runs ({FOLDER})")
    parser.add_argument("--scratch", type=Path, help="folder on the disk to be measured (a temporary one)")
    parser.add_argument("--clients", metavar="N,N,...", help="numbers of clients instead of the file's")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME", help="only this variant")
    parser.add_argument("--window", type=float, metavar="SECONDS", help="length of the measured window")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="time between start and window")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override a setting")
    text = "shell command to run before each point, for example to empty caches"
    parser.add_argument("--before", metavar="COMMAND", help=text)
    parser.add_argument("--seed", type=int, default=1, help="seed of all random numbers (1)")


def _run(options: argparse.Namespace) -> None:
    from femtobarn_testbed import bundled_workloads, load, save
    from femtobarn_testbed import run as run_workload

    sweep = {
        "clients": _numbers(options.clients) if options.clients else None,
        "window_seconds": options.window,
        "warm_up_seconds": options.warm_up,
    }
    settings = dict(map(_setting, options.set))
    # All are parsed before the first one runs, so that a mistake in the last is reported at once.
    names = list(bundled_workloads()) if options.workloads == ["all"] else options.workloads
    workloads = [load(name, settings=settings, sweep=sweep) for name in names]
    saved: list[Path] = []

    def keep(so_far: dict[str, Any]) -> None:
        path = save(so_far, options.out)
        if path not in saved:
            saved.append(path)

    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="femtobarn-", dir=options.scratch) as scratch:
        for workload in workloads:
            try:
                done = run_workload(
                    workload,
                    scratch=Path(scratch),
                    variants=options.variant,
                    seed=options.seed,
                    before=options.before,
                    progress=_progress_printer(workload.name),
                    keep=keep,
                )
            except FemtobarnError as error:
                if len(workloads) == 1:
                    raise
                # The next one may succeed.
                sys.stderr.write(f"{workload.name} failed: {error}\n")
                failed.append(workload.name)
                continue
            emit_line(_summary(done)) if not options.json else None
    facts = {"runs": [str(path) for path in saved]}
    emit(options, facts, "\n".join(f"wrote {path}" for path in saved))
    if failed:
        raise UnavailableError(f"{len(failed)} of {len(workloads)} workloads failed: " + "; ".join(failed))


def _progress_printer(name: str) -> Callable[[str], None]:
    """Print results on standard error; on a terminal also steps, each over the one before."""
    began = time.monotonic()
    clear = "\r\033[K" if sys.stderr.isatty() else ""

    def show(text: str) -> None:
        is_result = "limit:" in text
        if is_result or clear:
            sys.stderr.write(f"{clear}{time.monotonic() - began:6.0f} s  {name}: {text}" + "\n" * is_result)
            sys.stderr.flush()

    return show


def _summary(done: dict[str, Any]) -> str:
    from femtobarn_testbed.studies import study_of

    study = study_of(done)
    if study is None:
        return _knees(done)
    tables = (tabulate(done) for tabulate in study.tables)
    parts = [table(head, cells, right=set(range(1, len(head)))) for head, cells in tables]
    return "\n\n".join([f"{done['workload']}: {done['title']}", *parts])


def _knees(done: dict[str, Any]) -> str:
    lines = [f"{done['workload']}: {done['title']}"]
    for name, knee in done["knees"].items():
        unit, scale = ("MB/s", 1e6) if knee["rate"] == "bytes_per_second" else ("events/s", 1.0)
        bend = f"bends at {knee['clients']:.0f} clients" if knee["clients"] else "does not bend"
        best = f"best {knee['best'] / scale:.4g} {unit} with {knee['best_clients']} clients"
        lines.append(f"  {name}: {best}, {bend}; limit: {knee['limit']} ({knee['evidence']})")
    return "\n".join(lines)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise InvalidError(f"--clients takes numbers like 1,16,240, not {text!r}") from error


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidError(f"--set takes NAME=VALUE, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _plot_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="*", type=Path, default=[Path(FOLDER)])
    parser.add_argument("--out", type=Path, help="folder for report.html and pictures (the runs' folder)")


def _plot(options: argparse.Namespace) -> None:
    from femtobarn_testbed import latest, read
    from femtobarn_testbed.report import write_report

    files = latest(options.runs)
    out = options.out or files[0].parent
    page = write_report([read(path) for path in files], out)
    emit(options, {"report": str(page)}, f"wrote {page}")


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="one run, to compare its variants, or two runs"
    )


def _compare(options: argparse.Namespace) -> None:
    from femtobarn_testbed import read
    from femtobarn_testbed.comparison import compare_runs, compare_variants, comparison_table

    if len(options.runs) > 2:
        raise InvalidError("compare takes one run, or two")
    runs = [read(path) for path in options.runs]
    rows = compare_variants(runs[0]) if len(runs) == 1 else compare_runs(*runs)
    head, cells = comparison_table(rows)
    emit(options, rows, table(head, cells, right=set(range(1, len(head)))))

"""Runs the benchmarks: the sides of each figure by turns, each in processes of its own.

    python benches/run.py                   everything: bench/<time>-<commit>.json, bench/report.html and
                                            docs/measurements.md
    python benches/run.py --only random     one chapter, or one figure; writes no files
    python benches/run.py --list            chapters and figures

Scratch files go to `bench/work`, data to `bench/data`; missing data are made first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

import measurement
import page
import report
from chapters import NAMES
from framework import Chapter, Figure, Json, Results
from programs import BENCH, HERE, ROOT, execute

PACKAGES = ("root", "uproot", "awkward", "numpy", "pyarrow", "pylance", "duckdb", "ZODB", "h5py", "lmdb")


def main() -> int:
    """Parse the command line, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this chapter or figure")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--minutes", type=float, default=27, help="time limit for new runs (27)")
    parser.add_argument("--list", action="store_true", help="list chapters and figures")
    arguments = parser.parse_args()
    # Chapters import data.py.
    sys.path.append(str(HERE / "sides"))
    chapters = [Chapter.of(name, import_module(f"chapters.{name}")) for name in NAMES]
    if arguments.list:
        for chapter in chapters:
            print(f"{chapter.name:<12}", ", ".join(figure.name for figure in chapter.figures))
        return 0
    wanted = {chapter: figures for chapter in chapters if (figures := chosen(chapter, arguments.only))}
    if not wanted:
        raise SystemExit(f"unknown chapter or figure: {', '.join(arguments.only)}; --list shows all")
    done = measured(wanted, arguments.rounds, arguments.minutes * 60)
    run = {
        **origin(),
        "rounds": arguments.rounds,
        "chapters": [recorded_chapter(chapter, figures, done) for chapter, figures in wanted.items()],
    }
    print(report.tables(run))
    if not arguments.only:
        write(run)
    unmeasured = [figure.name for figures in wanted.values() for figure in figures if figure.name not in done]
    print(f"failed: {', '.join(unmeasured)}" if unmeasured else "every figure was measured")
    return 1 if unmeasured else 0


def chosen(chapter: Chapter, only: list[str] | None) -> tuple[Figure, ...]:
    """The chosen figures of a chapter."""
    return tuple(f for f in chapter.figures if not only or chapter.name in only or f.name in only)


def measured(wanted: dict[Chapter, tuple[Figure, ...]], rounds: int, seconds: float) -> dict[str, Results]:
    """Take samples of each figure, round by round, until the time is over; failed figures are left out."""
    started = time.monotonic()
    took: defaultdict[str, float] = defaultdict(float)
    for chapter in wanted:
        begun = time.monotonic()
        measurement.prepare(chapter.preparations)
        took["data"] += time.monotonic() - begun
    figures = [(chapter.name, figure) for chapter, each in wanted.items() for figure in each]
    done = {figure.name: Results({side.key: [] for side in figure.sides}) for _, figure in figures}
    for number in range(rounds):
        for name, figure in figures:
            begun = time.monotonic()
            spent = begun - started
            if figure.name not in done or (number > 0 and spent > seconds):
                continue
            try:
                label = f"{spent / 60:.0f} min, round {number + 1} of {rounds}, {figure.name}"
                measurement.one_round(figure, done[figure.name], label)
            except SystemExit as failure:
                print(f"{figure.name}: {failure}", file=sys.stderr)
                del done[figure.name]
            took[name] += time.monotonic() - begun
    print("minutes:", ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in took.items()))
    return done


def recorded_chapter(chapter: Chapter, figures: tuple[Figure, ...], done: dict[str, Results]) -> Json:
    """The JSON of a chapter."""
    shown = [recorded(figure, done[figure.name]) for figure in figures if figure.name in done]
    return {"name": chapter.name, "title": chapter.title, "intro": chapter.intro, "figures": shown}


def recorded(figure: Figure, results: Results) -> Json:
    """The JSON of a figure: samples, medians, targets."""
    sides = [
        {
            "name": side.name, "key": side.key, "role": side.role, "x": side.x, "processes": side.processes,
            "cores": side.cores, "command": side.command, "samples": results.samples[side.key],
            "rate": results.rate(side.key), "cpu_rate": results.rate(side.key, "cpu"),
            "points": results.points(side.key) or None,
        }
        for side in figure.sides
    ]  # fmt: skip
    return {
        "name": figure.name, "title": figure.title, "unit": figure.unit, "by": figure.by, "x": figure.x,
        "y": figure.y, "note": figure.note, "sides": sides,
        "targets": [target.judge(results) for target in figure.targets],
    }  # fmt: skip


def write(run: Json) -> None:
    """Write the run's JSON, its page, and the tables of the documentation."""
    name = f"{run['time'].replace(':', '')}-{run['commit'][:10]}.json"
    (BENCH / name).write_text(json.dumps(run, indent=1) + "\n")
    (BENCH / "report.html").write_text(page.html(run))
    document = ROOT / "docs" / "measurements.md"
    document.write_text(report.renewed(document.read_text(), run))
    print(f"written: bench/{name}, bench/report.html, docs/measurements.md")


def origin() -> Json:
    """Time, commit, machine and versions of a run."""
    git = ["git", "-C", str(ROOT)]
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": execute([*git, "rev-parse", "HEAD"]).strip(),
        "changed": bool(execute([*git, "status", "--porcelain"]).strip()),
        "machine": machine(),
        "versions": {
            "rustc": execute(["rustc", "--version"]).split()[1],
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES if is_installed(name)},
        },
    }


def is_installed(package: str) -> bool:
    """Whether a package is installed; peers may be missing."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def machine() -> Json:
    """Processor, memory and kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30),
        "kernel": platform.release().split("-")[0], "load": os.getloadavg()[0],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

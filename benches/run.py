"""Runs the benchmarks: the sides of each figure by turns, each in processes of its own.

    python benches/run.py                   everything: bench/<time>-<commit>.json, bench/report.html, and the
                                            parts of docs/performance.md and docs/measurements.md
    python benches/run.py --only random     one chapter, or one figure; writes no files
    python benches/run.py --judge RUN.json  the same pages of an earlier run, judged by today's targets
    python benches/run.py --list            chapters and figures

A run begins only on a quiet machine (machine.py), but with `--busy`. Scratch files go to `bench/work`, data
to `bench/data`; missing data are made first.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path

# Some modules of `sides` are imported here, too.
sys.path.append(str(Path(__file__).with_name("sides")))

import headlines
import machine
import measurement
import page
import report
from chapters import NAMES
from framework import Chapter, Figure, Json, Results
from programs import BENCH, ROOT, execute
from progress import Progress

PACKAGES = (
    "root", "uproot", "awkward", "numpy", "pyarrow", "pylance", "duckdb", "ZODB", "h5py", "lmdb", "coffea",
    "dask",
)  # fmt: skip


def main() -> int:
    """Parse the command line, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this chapter or figure")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--minutes", type=float, default=27, help="time limit for new runs (27)")
    parser.add_argument(
        "--busy", action="store_true", help="measure on a busy machine, too, and mark the results"
    )
    parser.add_argument("--judge", type=Path, metavar="RUN.json", help="write the pages of an earlier run")
    parser.add_argument("--list", action="store_true", help="list chapters and figures")
    arguments = parser.parse_args()
    chapters = [Chapter.of(name, import_module(f"chapters.{name}")) for name in NAMES]
    if arguments.list:
        for chapter in chapters:
            print(f"{chapter.name:<12}", ", ".join(figure.name for figure in chapter.figures))
        return 0
    wanted = {chapter: figures for chapter in chapters if (figures := chosen(chapter, arguments.only))}
    if not wanted:
        raise SystemExit(f"unknown chapter or figure: {', '.join(arguments.only)}; --list shows all")
    if arguments.judge:
        run, done = earlier(arguments.judge)
    else:
        busy = machine.check_quiet(arguments.busy)
        run = {**origin(), "rounds": arguments.rounds, "busy": busy}
        done = measured(wanted, arguments.rounds, arguments.minutes * 60, arguments.busy)
    run["chapters"] = [recorded_chapter(chapter, figures, done) for chapter, figures in wanted.items()]
    print(report.tables(run))
    if not arguments.only:
        write(run, arguments.judge)
    unmeasured = [figure.name for figures in wanted.values() for figure in figures if figure.name not in done]
    print(f"not measured: {', '.join(unmeasured)}" if unmeasured else "every figure was measured")
    return 1 if unmeasured and not arguments.judge else 0


def chosen(chapter: Chapter, only: list[str] | None) -> tuple[Figure, ...]:
    """The chosen figures of a chapter."""
    return tuple(f for f in chapter.figures if not only or chapter.name in only or f.name in only)


def measured(
    wanted: dict[Chapter, tuple[Figure, ...]], rounds: int, seconds: float, busy: bool = False
) -> dict[str, Results]:
    """Take samples of each figure, round by round, until the time is over; failed figures are left out.

    Between rounds it waits for a quiet machine, but not if the machine may be `busy`.
    """
    took: defaultdict[str, float] = defaultdict(float)
    begun = time.monotonic()
    measurement.prepare(tuple(step for chapter in wanted for step in chapter.preparations))
    took["data"] = time.monotonic() - begun
    figures = [(chapter.name, figure) for chapter, each in wanted.items() for figure in each]
    done = {figure.name: Results({side.key: [] for side in figure.sides}) for _, figure in figures}
    progress = Progress([figure for _, figure in figures], rounds, seconds - took["data"])
    sampler = measurement.Sampler(0 if busy else measurement.REPEATS_MAX)
    for turn in range(rounds):
        if turn and not busy and progress.spent() < progress.limit:
            sampler.besides = machine.wait_for_quiet()
        for name, figure in figures:
            begun = progress.spent()
            if figure.name not in done or (turn and begun > progress.limit):
                continue
            progress.begin(figure, turn)
            try:
                sampler.one_round(figure, done[figure.name], progress.side)
            except SystemExit as failure:
                print(f"{figure.name}: {failure}", file=sys.stderr)
                del done[figure.name]
            took[name] += progress.spent() - begun
    print("minutes:", ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in took.items()))
    return done


def earlier(path: Path) -> tuple[Json, dict[str, Results]]:
    """Return an earlier run, and the samples of its figures."""
    run: Json = json.loads(path.read_text())
    done = {
        figure["name"]: Results(
            {side["key"]: side["samples"] for side in figure["sides"]},
            {side["key"]: side.get("repeated", []) for side in figure["sides"]},
        )
        for chapter in run["chapters"]
        for figure in chapter["figures"]
    }
    return run, done


def recorded_chapter(chapter: Chapter, figures: tuple[Figure, ...], done: dict[str, Results]) -> Json:
    """The JSON of a chapter; failed figures have no samples."""
    shown = [recorded(figure, done.get(figure.name, Results())) for figure in figures]
    return {"name": chapter.name, "title": chapter.title, "intro": chapter.intro, "figures": shown}


def recorded(figure: Figure, results: Results) -> Json:
    """The JSON of a figure: samples, medians, headlines, targets."""
    sides = [
        {
            "name": side.name, "key": side.key, "role": side.role, "x": side.x, "processes": side.processes,
            "cores": side.cores, "command": side.command, "samples": results.samples.get(side.key, []),
            "repeated": results.repeated.get(side.key, []),
            "rate": results.rate(side.key), "cpu_rate": results.rate(side.key, "cpu"),
            "points": results.points(side.key) or None,
        }
        for side in figure.sides
    ]  # fmt: skip
    return {
        "name": figure.name, "title": figure.title, "unit": figure.unit, "by": figure.by, "x": figure.x,
        "y": figure.y, "note": figure.note, "sides": sides,
        "headlines": [headline.judge(results) for headline in figure.headlines],
        "targets": [target.judge(results) for target in figure.all_targets],
    }  # fmt: skip


def write(run: Json, judged: Path | None) -> None:
    """Write the JSON of a run that is not judged again, its page, and its parts of the documentation."""
    BENCH.mkdir(exist_ok=True)
    if judged is None:
        name = f"{run['time'].replace(':', '')}-{run['commit'][:10]}.json"
        (BENCH / name).write_text(json.dumps(run, indent=1) + "\n")
        print(f"written: bench/{name}")
    (BENCH / "report.html").write_text(page.html(run))
    docs = ROOT / "docs"
    (docs / headlines.PICTURE).write_text(headlines.picture(run) + "\n")
    parts = {"performance.md": ("headlines", headlines.part), "measurements.md": ("tables", report.tables)}
    for name, (part, text) in parts.items():
        document = docs / name
        document.write_text(report.renewed(document.read_text(), part, text(run)))
    print(f"written: bench/report.html, docs/{', docs/'.join((headlines.PICTURE, *parts))}")


def origin() -> Json:
    """Time, commit, machine and versions of a run."""
    git = ["git", "-C", str(ROOT)]
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": execute([*git, "rev-parse", "HEAD"]).strip(),
        "changed": bool(execute([*git, "status", "--porcelain"]).strip()),
        "machine": machine.parts(),
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


if __name__ == "__main__":
    sys.exit(main())

"""Runs the benchmarks: ours and the peer in turns, each in a process of its own, on one core.

    python benches/run.py                       everything: bench/<time>-<commit>.json, docs/performance.md
    python benches/run.py --only random-none    one figure, nothing written

Scratch files go to `bench/work`, data to `bench/data`; data are made anew if they are absent.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import data
import report
from figures import FIGURES, PREPARATIONS, Figure, Side

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BENCH = ROOT / "bench"
DATA, WORK = BENCH / "data", BENCH / "work"
Json = dict[str, Any]


def main() -> int:
    """Parse the command line, run, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--only", action="append", choices=[f.name for f in FIGURES], help="this figure alone"
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each side; the median counts")
    arguments = parser.parse_args()
    programs = {"bench": build_ours(), "root_peer": build_root_peer()}
    prepare(programs)
    chosen = [f for f in FIGURES if not arguments.only or f.name in arguments.only]
    results = [measure(figure, programs, arguments.rounds) for figure in chosen]
    run = {**surroundings(), "rounds": arguments.rounds, "figures": results}
    print(report.table(run))
    if not arguments.only:
        name = f"{run['time'].replace(':', '')}-{run['commit'][:10]}.json"
        (BENCH / name).write_text(json.dumps(run, indent=1) + "\n")
        (ROOT / "docs").mkdir(exist_ok=True)
        (ROOT / "docs" / "performance.md").write_text(report.page(run))
    missed = [each["name"] for each in results if not each["reached"]]
    print(f"missed: {', '.join(missed)}" if missed else "every figure is reached")
    return 0


# ---- what is run


def build_ours() -> Path:
    """Our example program, optimised."""
    command = ["cargo", "build", "--release", "--quiet", "--locked", "-p", "femtobarn", "--example", "bench"]
    output = execute([*command, "--message-format=json"])
    messages = [json.loads(line) for line in output.splitlines()]
    built = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "bench"]
    return Path(built[-1])


def build_root_peer() -> Path:
    """ROOT's side, compiled against the package `root`."""
    found = find_spec("ROOT")
    if found is None or found.origin is None:
        raise SystemExit("the package root is not installed: make setup")
    home = Path(found.origin).parent
    target, source = BENCH / "root_peer", HERE / "root_peer.cxx"
    BENCH.mkdir(exist_ok=True)
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        libraries = ["-lROOTNTuple", "-lROOTVecOps", "-lRIO", "-lCore", f"-Wl,-rpath,{home / 'lib'}"]
        compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", f"-I{home / 'include'}", str(source)]
        execute([*compiler, "-o", str(target), f"-L{home / 'lib'}", *libraries])
    return target


def prepare(programs: dict[str, Path]) -> None:
    """Make the data that the figures read, unless they are there."""
    data.make(DATA)
    for step in PREPARATIONS:
        target = Path(step[2].format(data=DATA))
        if not target.exists():
            execute(command_of(Side("", step), programs))


def command_of(side: Side, programs: dict[str, Path]) -> list[str]:
    """The command line of one side."""
    program, *rest = (part.format(data=DATA, work=WORK) for part in side.command)
    if program == "arrays":
        return [sys.executable, "-W", "ignore", str(HERE / "arrays.py"), *rest]
    return [str(programs[program]), *rest]


def execute(command: list[str]) -> str:
    """Run a command that has to succeed; its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


# ---- measuring


def measure(figure: Figure, programs: dict[str, Path], rounds: int) -> Json:
    """The samples of all sides of a figure, taken in turns, and what they come to."""
    sides = [side for side in (figure.ours, figure.peer, *figure.others) if side is not None]
    samples: dict[str, list[Json]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides:
            progress(f"{figure.name}: round {number + 1} of {rounds}, {side.name}")
            samples[side.name].append(once(side, programs))
    progress("")
    check_equal(figure, samples)
    return judged(figure, samples)


def progress(text: str) -> None:
    """Say what is going on, to a person."""
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="" if text else "\r", file=sys.stderr, flush=True)


def once(side: Side, programs: dict[str, Path]) -> Json:
    """One run of one side, alone on one core."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    # What an earlier run left to be written must not be written during this one.
    os.sync()
    core = max(os.sched_getaffinity(0))
    output = execute(["taskset", "--cpu-list", str(core), *command_of(side, programs)])
    sample: Json = json.loads(output.splitlines()[-1])
    shutil.rmtree(WORK, ignore_errors=True)
    return sample


def check_equal(figure: Figure, samples: dict[str, list[Json]]) -> None:
    """Sides that did as many items must have seen the same data."""
    seen: dict[int, set[int]] = {}
    for each in (sample for side in samples.values() for sample in side):
        seen.setdefault(each["items"], set()).add(each["check"])
    if any(len(checks) > 1 for checks in seen.values()):
        raise SystemExit(f"{figure.name}: the sides read different data: {seen}")


def judged(figure: Figure, samples: dict[str, list[Json]]) -> Json:
    """Medians, ratio, and whether the target is reached."""
    rates = {name: {by: median_rate(each, by) for by in ("wall", "cpu")} for name, each in samples.items()}
    ours = rates[figure.ours.name]
    result: Json = {
        "name": figure.name, "title": figure.title, "ours": figure.ours.name, "by": figure.by,
        "target": figure.target, "cpu_most": figure.cpu_most, "rates": rates, "samples": samples,
        "commands": {s.name: s.command for s in (figure.ours, figure.peer, *figure.others) if s},
    }  # fmt: skip
    if figure.peer is None:
        result |= {"peer": None, "ratio": ours[figure.by]}
    else:
        peer = rates[figure.peer.name]
        ratios = {by: ours[by] / peer[by] for by in ("wall", "cpu")}
        result |= {"peer": figure.peer.name, "ratio": ratios[figure.by], "ratios": ratios}
    result["reached"] = figure.target is None or result["ratio"] >= figure.target
    if figure.cpu_most is not None:
        result["cpu_multiple"] = 1 / result["ratios"]["cpu"]
        result["reached"] = result["reached"] and result["cpu_multiple"] <= figure.cpu_most
    return result


def median_rate(samples: list[Json], by: str) -> float:
    """Items per second of the median run."""
    return float(statistics.median(each["items"] / max(each[f"{by}_s"], 1e-9) for each in samples))


# ---- where it was measured


def surroundings() -> Json:
    """The commit, the machine and the versions."""
    git = ["git", "-C", str(ROOT)]
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": execute([*git, "rev-parse", "HEAD"]).strip(),
        "changed": bool(execute([*git, "status", "--porcelain"]).strip()),
        "machine": machine(),
        "versions": {
            "rustc": execute(["rustc", "--version"]).split()[1],
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("root", "uproot", "awkward", "numpy")},
        },
    }


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

"""Runs the sides of a figure by turns, each in processes of its own, and collects their samples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import IO

from framework import Figure, Json, Preparation, Results, Side
from programs import DATA, ROOT, WORK, Unavailable, command_line, execute


def prepare(preparations: tuple[Preparation, ...]) -> None:
    """Make the missing data of figures, and read all data sequentially into the page cache.

    The first reader of a file determines whether the page cache holds it in large or small folios, so the
    same program reads all of them first.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    for each in preparations:
        target = Path(each.makes.format(data=DATA))
        if not target.exists():
            progress(f"making {target.name}")
            try:
                check_variables(each.variables)
                execute(command_line(each.command))
            except Unavailable as reason:
                print(f"{target.name} skipped: {reason}", file=sys.stderr)
        if target.exists():
            progress(f"reading {target.name}")
            execute(command_line(("peers", "warm", str(target))))
    progress("")


def one_round(figure: Figure, results: Results, label: str) -> None:
    """Take one more sample of each side of a figure, one side after the other."""
    for side in figure.sides:
        progress(f"{label}: {side.key}")
        try:
            results.samples[side.key].append(run_side(side))
        except Unavailable as reason:
            print(f"{figure.name}: {side.key} skipped: {reason}", file=sys.stderr)
    progress("")
    check_equal(figure, results)


def check_variables(names: tuple[str, ...]) -> None:
    """Raise Unavailable if a variable of the environment is missing."""
    unset = [name for name in names if not os.environ.get(name)]
    if unset:
        raise Unavailable(f"unset: {', '.join(unset)} (benches/README.md)")


def progress(text: str) -> None:
    """Show the current step on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:<78.78}", end="" if text else "\r", file=sys.stderr, flush=True)


def run_side(side: Side) -> Json:
    """Run a side once, in a scratch folder of its own."""
    check_variables(side.variables)
    missing = [program for program in side.needs if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"missing programs: {', '.join(missing)}")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    if side.before:
        execute(command_line(side.before, processes=side.processes))
    # Dirty pages of an earlier run must not be written back during this one.
    os.sync()
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0), reverse=True)[: side.cores]))
    pinned = ["taskset", "--cpu-list", processors]
    if side.processes == 1:
        sample: Json = json.loads(execute([*pinned, *command_line(side.command)]).splitlines()[-1])
    else:
        commands = [command_line(side.command, n, side.processes) for n in range(side.processes)]
        sample = run_together([[*pinned, *command] for command in commands])
    shutil.rmtree(WORK, ignore_errors=True)
    return sample


def run_together(commands: list[list[str]]) -> Json:
    """Run processes that start at once: each prints `ready` and waits for a line (README.md)."""
    environment = {**os.environ, "BENCH_TOGETHER": "1"}
    start = partial(subprocess.Popen, cwd=ROOT, env=environment, text=True, stdin=PIPE, stdout=PIPE)
    with ExitStack() as stack:
        running = [stack.enter_context(start(each)) for each in commands]
        if any(output_of(each).readline() != "ready\n" for each in running):
            raise SystemExit(f"{' '.join(commands[0])} did not get ready")
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        # Each process measures itself, so the order of reading their output does not matter.
        samples: list[Json] = [json.loads(output_of(each).read().splitlines()[-1]) for each in running]
    if any(each.returncode != 0 for each in running):
        raise SystemExit(f"{' '.join(commands[0])} failed")
    summed = {key: sum(each[key] for each in samples) for key in ("items", "bytes", "cpu_s", "check")}
    if "disk_bytes" in samples[0]:
        # All processes measure the same folder.
        summed["disk_bytes"] = max(each["disk_bytes"] for each in samples)
    return {**summed, "wall_s": max(each["wall_s"] for each in samples), "each": samples}


def output_of(process: subprocess.Popen[str]) -> IO[str]:
    """The standard output of a process."""
    assert process.stdout is not None
    return process.stdout


def check_equal(figure: Figure, results: Results) -> None:
    """Refuse results of sides that handled equally many items and have different checksums."""
    seen: dict[int, set[int]] = {}
    for each in (sample for side in results.samples.values() for sample in side):
        seen.setdefault(each["items"], set()).add(each["check"])
    if any(len(checks) > 1 for checks in seen.values()):
        raise SystemExit(f"{figure.name}: the sides read different data: {seen}")

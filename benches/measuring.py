"""Runs the sides of a figure in turns, each in processes of its own, and keeps what they print."""

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
from programs import DATA, ROOT, WORK, NotThere, command_line, execute


def prepare(preparations: tuple[Preparation, ...]) -> None:
    """Make the data that figures read, unless they are there, and have them in the page cache.

    How the kernel keeps a file in memory, in large pieces or small ones, depends on who read it first. So all
    are read in order, whoever wrote them.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    for each in preparations:
        target = Path(each.makes.format(data=DATA))
        if not target.exists():
            progress(f"making {target.name}")
            try:
                execute(command_line(each.command))
            except NotThere as reason:
                print(f"{target.name} is not made: {reason}", file=sys.stderr)
        if target.exists():
            progress(f"reading {target.name}")
            execute(command_line(("peers", "warm", str(target))))
    progress("")


def one_round(figure: Figure, results: Results, label: str) -> None:
    """One sample more of each side of a figure, taken one after the other."""
    for side in figure.sides:
        progress(f"{label}: {side.key}")
        try:
            results.samples[side.key].append(once(side))
        except NotThere as reason:
            print(f"{figure.name}: {side.key} is left out: {reason}", file=sys.stderr)
    progress("")
    check_equal(figure, results)


def progress(text: str) -> None:
    """Say what is going on, to a person."""
    if sys.stderr.isatty():
        print(f"\r{text:<78.78}", end="" if text else "\r", file=sys.stderr, flush=True)


def once(side: Side) -> Json:
    """One run of one side, in a scratch folder of its own."""
    missing = [program for program in side.needs if shutil.which(program) is None]
    if missing:
        raise NotThere(f"this machine has no {', '.join(missing)}")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    if side.before:
        execute(command_line(side.before, processes=side.processes))
    # What an earlier run left to be written must not be written during this one.
    os.sync()
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0), reverse=True)[: side.cores]))
    pinned = ["taskset", "--cpu-list", processors]
    if side.processes == 1:
        sample: Json = json.loads(execute([*pinned, *command_line(side.command)]).splitlines()[-1])
    else:
        commands = [command_line(side.command, n, side.processes) for n in range(side.processes)]
        sample = together([[*pinned, *command] for command in commands])
    shutil.rmtree(WORK, ignore_errors=True)
    return sample


def together(commands: list[list[str]]) -> Json:
    """Several processes that start at once: each says `ready` and waits for a line (README.md)."""
    surroundings = {**os.environ, "BENCH_TOGETHER": "1"}
    start = partial(subprocess.Popen, cwd=ROOT, env=surroundings, text=True, stdin=PIPE, stdout=PIPE)
    with ExitStack() as stack:
        running = [stack.enter_context(start(each)) for each in commands]
        if any(heard(each).readline() != "ready\n" for each in running):
            raise SystemExit(f"{' '.join(commands[0])} did not get ready")
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        # Those that are done first wait in their pipes: each says itself how long it took.
        samples: list[Json] = [json.loads(heard(each).read().splitlines()[-1]) for each in running]
    if any(each.returncode != 0 for each in running):
        raise SystemExit(f"{' '.join(commands[0])} failed")
    summed = {key: sum(each[key] for each in samples) for key in ("items", "bytes", "cpu_s", "check")}
    if "disk_bytes" in samples[0]:
        # All see the same folder.
        summed["disk_bytes"] = max(each["disk_bytes"] for each in samples)
    return {**summed, "wall_s": max(each["wall_s"] for each in samples), "each": samples}


def heard(process: subprocess.Popen[str]) -> IO[str]:
    """What a process says."""
    assert process.stdout is not None
    return process.stdout


def check_equal(figure: Figure, results: Results) -> None:
    """Sides that did as many items must have seen the same data."""
    seen: dict[int, set[int]] = {}
    for each in (sample for side in results.samples.values() for sample in side):
        seen.setdefault(each["items"], set()).add(each["check"])
    if any(len(checks) > 1 for checks in seen.values()):
        raise SystemExit(f"{figure.name}: the sides read different data: {seen}")

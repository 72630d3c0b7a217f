"""Programs that begin at once: each says that it is ready, waits for a line, works, and prints its sample."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

Json = dict[str, Any]


def at_once(
    commands: list[list[str]], cpu_seconds: Callable[[], float] = lambda: 0.0, folder: Path | None = None
) -> tuple[list[Json], float]:
    """Run programs in a folder; return their samples, and how much `cpu_seconds` grew meanwhile."""
    environment = {**os.environ, "BENCH_TOGETHER": "1"}
    start = partial(subprocess.Popen, cwd=folder, env=environment, text=True, stdin=PIPE, stdout=PIPE)
    with ExitStack() as stack:
        running: list[subprocess.Popen[str]] = [stack.enter_context(start(each)) for each in commands]
        if any(output_of(each).readline() != "ready\n" for each in running):
            raise SystemExit(f"{' '.join(commands[0])} did not get ready")
        before = cpu_seconds()
        for each in running:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        # Each process measures itself, so the order of reading their output does not matter.
        outputs = [output_of(each).read().splitlines() for each in running]
        cpu = cpu_seconds() - before
    if any(each.returncode != 0 for each in running):
        raise SystemExit(f"{' '.join(commands[0])} failed")
    return [json.loads(output[-1]) for output in outputs], cpu


def output_of(process: subprocess.Popen[str]) -> IO[str]:
    """The standard output of a process."""
    assert process.stdout is not None
    return process.stdout


def summed(samples: list[Json]) -> Json:
    """One sample of processes that worked at once: the time of the slowest, and sums of the rest."""
    sums = {key: sum(each[key] for each in samples) for key in ("items", "bytes", "cpu_s", "check")}
    return {**sums, "wall_s": max(each["wall_s"] for each in samples)}

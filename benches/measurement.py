"""Runs the sides of a figure by turns, each in processes of its own, and collects their samples."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from together import at_once, summed

import machine
from framework import Figure, Json, Preparation, Results, Side
from programs import DATA, ROOT, WORK, Unavailable, command_line, execute
from progress import announce, show

REPEATS_MAX, REPEATS_OF_ONE_MAX = 40, 2
SECONDS_TO_QUIET = 10.0


def prepare(preparations: tuple[Preparation, ...]) -> None:
    """Make the missing data of figures, and read all data sequentially into the page cache.

    The first reader of a file determines whether the page cache holds it in large or small folios, so the
    same program reads all of them first.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    steps = tuple(dict.fromkeys(preparations))
    for number, each in enumerate(steps, 1):
        target = Path(each.makes.format(data=DATA))
        label = f"data {number} of {len(steps)}: {target.name}"
        if not target.exists():
            announce(f"{label}, which is made")
            try:
                check_variables(each.variables)
                check_programs(each.needs)
                execute(command_line(each.command))
            except Unavailable as reason:
                print(f"{target.name} skipped: {reason}", file=sys.stderr)
        if target.exists():
            show(f"{label}, which is read")
            execute(command_line(("peers", "warm", str(target))))
    show("")


class Sampler:
    """Takes samples, and takes those again during which other processes ran.

    A run repeats `repeats` samples altogether, each at most `REPEATS_OF_ONE_MAX` times; one that is not
    repeated any more counts, and its member `busy` says what else ran. What `besides` says holds for all
    samples from then on: the machine did not get quiet before them.
    """

    def __init__(self, repeats: int = REPEATS_MAX) -> None:
        self.repeats = repeats
        self.besides: list[str] = []

    def one_round(self, figure: Figure, results: Results, begin: Callable[[str], None]) -> None:
        """Take one more sample of each side of a figure, one side after the other; tell which begins."""
        for side in figure.sides:
            begin(side.key)
            try:
                self.sample(side, results)
            except Unavailable as reason:
                print(f"{figure.name}: {side.key} skipped: {reason}", file=sys.stderr)
        show("")
        check_equal(figure, results)

    def sample(self, side: Side, results: Results) -> None:
        """Take one more sample of a side."""
        sample = run_side(side)
        for _ in range(REPEATS_OF_ONE_MAX):
            if "busy" not in sample or not self.repeats:
                break
            self.repeats -= 1
            results.repeated.setdefault(side.key, []).append(sample)
            machine.wait_for_quiet(SECONDS_TO_QUIET)
            sample = run_side(side)
        if self.besides:
            sample["busy"] = [*self.besides, *sample.get("busy", [])]
        results.samples[side.key].append(sample)


def check_variables(names: tuple[str, ...]) -> None:
    """Raise Unavailable if a variable of the environment is missing."""
    unset = [name for name in names if not os.environ.get(name)]
    if unset:
        raise Unavailable(f"unset: {', '.join(unset)} (benches/README.md)")


def check_programs(names: tuple[str, ...]) -> None:
    """Raise Unavailable if a program of the machine is missing."""
    missing = [program for program in names if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"missing programs: {', '.join(missing)}")


def run_side(side: Side) -> Json:
    """Run a side once, in a scratch folder of its own."""
    check_variables(side.variables)
    check_programs(side.needs)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    if side.before:
        execute(command_line(side.before, processes=side.processes))
    # Dirty pages of an earlier run must not be written back during this one.
    os.sync()
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0), reverse=True)[: side.cores]))
    pinned = ["taskset", "--cpu-list", processors]
    commands = [[*pinned, *command_line(side.command, n, side.processes)] for n in range(side.processes)]
    others = machine.Watch()
    if side.processes == 1:
        sample: Json = json.loads(execute(commands[0]).splitlines()[-1])
    else:
        sample = run_together(commands)
    if busy := others.seen().reasons():
        sample["busy"] = busy
    shutil.rmtree(WORK, ignore_errors=True)
    return sample


def run_together(commands: list[list[str]]) -> Json:
    """Run processes that start at once: each prints `ready` and waits for a line (README.md)."""
    samples, _ = at_once(commands, folder=ROOT)
    one = summed(samples)
    if "disk_bytes" in samples[0]:
        # All processes measure the same folder.
        one["disk_bytes"] = max(each["disk_bytes"] for each in samples)
    if "p99_us" in samples[0]:
        one["p99_us"] = max(each["p99_us"] for each in samples)
        one["median_us"] = median(each["median_us"] for each in samples)
    return {**one, "each": samples}


def check_equal(figure: Figure, results: Results) -> None:
    """Refuse results of sides that handled equally many items and have different checksums."""
    seen: dict[int, set[int]] = {}
    for each in (sample for side in results.samples.values() for sample in side):
        seen.setdefault(each["items"], set()).add(each["check"])
    if any(len(checks) > 1 for checks in seen.values()):
        raise SystemExit(f"{figure.name}: the sides read different data: {seen}")

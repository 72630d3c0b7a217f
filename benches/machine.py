"""The machine of a run: its parts, and whether it is quiet.

A machine is quiet while other processes than this one and its descendants take little of its processors,
nobody waits for its processors or its disk, and its page cache has room. Two looks tell:

1. `look` watches the whole machine for some seconds, while this process waits. It sees what runs outside the
   container, too, as busy or stolen time of the processors.
2. `Watch` tells what other processes took while a side ran, from their own times.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Process, processes, tree

LOOK_SECONDS = 3.0
WAIT_SECONDS_MAX = 60.0
CORES_MAX = 0.2
"""Processors that others may use, on average."""
SECONDS_MIN = 0.1
"""CPU time of others that does not count however short the watch; /proc counts hundredths."""
WAITING_MAX = 0.1
"""The share of the time in which some process may wait for a processor or for the disk."""
MEMORY_MIN = 4 << 30
SHOWN = 5

ADVICE = "wait until they have ended, or measure all the same with --busy, which marks the results"


@dataclass(frozen=True)
class Activity:
    """What others did for some seconds: the processors and shares of the time that they took."""

    seconds: float
    cores: float
    waiting: dict[str, float]
    available: int
    by_process: dict[str, float]

    def reasons(self) -> list[str]:
        """Return why the machine was not quiet, or nothing."""
        found = []
        if self.cores * self.seconds > max(CORES_MAX * self.seconds, SECONDS_MIN):
            found.append(f"others use {self.cores:.2f} of {os.cpu_count()} cores (at most {CORES_MAX:g})")
        for resource, share in self.waiting.items():
            if share > WAITING_MAX:
                found.append(
                    f"processes wait for {resource} {share:.0%} of the time (at most {WAITING_MAX:.0%})"
                )
        if self.available < MEMORY_MIN:
            found.append(f"{self.available / 2**30:.1f} GiB of memory are free (at least {MEMORY_MIN >> 30})")
        return found

    def busiest(self) -> list[str]:
        """Return the processes that took most, busiest first."""
        ranked = sorted(self.by_process.items(), key=lambda item: -item[1])
        return [f"{name}: {cores:.2f} cores" for name, cores in ranked[:SHOWN] if cores >= 0.01]


class Watch:
    """What other processes than this one and its descendants do from now on."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.before = others()
        self.used, self.by_us = sum(processor_seconds()), our_seconds()

    def seen(self) -> Activity:
        """Return what they took, and what was stolen from the machine."""
        seconds = max(time.monotonic() - self.begun, 1e-3)
        # What others took that have ended is in no list of processes.
        took = sum(processor_seconds()) - self.used - (our_seconds() - self.by_us)
        after = others()
        by_process = {
            f"{each.name} ({number})": (each.seconds - self._seconds_before(number)) / seconds
            for number, each in after.items()
        }
        return Activity(seconds, max(took, 0.0) / seconds, {}, available_memory(), by_process)

    def _seconds_before(self, number: int) -> float:
        return self.before[number].seconds if number in self.before else 0.0


def others() -> dict[int, Process]:
    """Return the processes that are neither this one nor its descendants."""
    running = processes()
    ours = tree(os.getpid(), running)
    return {number: each for number, each in running.items() if number not in ours}


def our_seconds() -> float:
    """CPU seconds of this process and its descendants, also of those that have ended."""
    running = processes()
    # The time of a process that ends moves to its parent.
    return sum(running[number].seconds for number in tree(os.getpid(), running))


def look(seconds: float = LOOK_SECONDS) -> Activity:
    """Watch the whole machine while this process, which has no child that works, waits."""
    watch, busy, waited = Watch(), sum(processor_seconds()), waited_seconds()
    time.sleep(seconds)
    seen = watch.seen()
    cores = (sum(processor_seconds()) - busy) / seen.seconds
    waiting = {
        resource: (until - waited[resource]) / seen.seconds for resource, until in waited_seconds().items()
    }
    return Activity(seen.seconds, cores, waiting, seen.available, seen.by_process)


def wait_for_quiet(seconds_max: float = WAIT_SECONDS_MAX) -> list[str]:
    """Wait until the machine is quiet, but not for long; return why it is not."""
    end = time.monotonic() + seconds_max
    # Dirty pages of an earlier run would keep the disk busy.
    os.sync()
    while (reasons := look().reasons()) and time.monotonic() < end:
        pass
    return reasons


def check_quiet(busy: bool = False) -> list[str]:
    """Exit, and say why, unless the machine is quiet or may be `busy`; return what makes it busy."""
    seen = look()
    reasons = seen.reasons()
    if reasons and not busy:
        lines = [
            f"the machine is busy: {'; '.join(reasons)}",
            *(f"  {line}" for line in seen.busiest()),
            ADVICE,
        ]
        raise SystemExit("\n".join(lines))
    return reasons


def processor_seconds() -> tuple[float, float]:
    """Return the seconds that all processors together worked, and those that were stolen from them."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    # user nice system idle iowait irq softirq steal
    user, nice, system, _, _, irq, softirq, steal = map(int, first[:8])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / ticks, steal / ticks


def waited_seconds() -> dict[str, float]:
    """Return the seconds in which some process waited for what, where the kernel counts them."""
    found = {}
    for resource, name in {"a processor": "cpu", "the disk": "io"}.items():
        try:
            some = Path(f"/proc/pressure/{name}").read_text().split("\n", 1)[0]
        except OSError:
            continue  # it has no pressure-stall information
        found[resource] = int(some.rpartition("total=")[2]) / 1e6
    return found


def available_memory() -> int:
    """Return the bytes that the page cache and programs may take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def parts() -> dict[str, Any]:
    """Return the processor, memory and kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30),
        "kernel": platform.release().split("-")[0], "load": os.getloadavg()[0],
    }  # fmt: skip

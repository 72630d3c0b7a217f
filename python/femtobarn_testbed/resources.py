"""The use of the machine by processes: CPU time, memory, bytes of disks and of the network.

All figures come from the kernel (``/proc``). A process that ends between two readings has no CPU time.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Usage", "machine", "read_counters", "resident_bytes", "usage_between"]

PROC = Path("/proc")
TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
SECTOR_BYTES = 512


@dataclass(frozen=True)
class Counters:
    """Counters of the machine and of some processes at one moment."""

    time: float
    busy_seconds: float
    """CPU seconds that were not idle, summed over all cores."""
    stolen_seconds: float
    """CPU seconds that the hypervisor gave to other virtual machines."""
    disk_bytes_read: int
    disk_bytes_written: int
    disk_busy: dict[str, float]
    """Seconds that each disk had requests in flight."""
    network: dict[str, tuple[int, float]]
    """Bytes through each interface, and its speed in bytes a second; only interfaces with a known speed."""
    cpu_seconds: dict[int, float] = field(default_factory=dict)
    """CPU seconds of each process, by its id."""


@dataclass(frozen=True)
class Usage:
    """The use of resources between two readings of the counters."""

    seconds: float
    machine_cores: float
    """Mean number of busy cores."""
    stolen_cores: float
    server_cores: float
    client_cores: float
    disk_read_bytes_per_second: float
    disk_written_bytes_per_second: float
    disk_busy_share: float
    """Share of the time that the busiest disk had requests in flight."""
    network_share: float
    """Share of the busiest interface's speed; 0 where no speed is known, as for loopback."""


def read_counters(pids: Iterable[int]) -> Counters:
    """Read all counters."""
    busy, stolen = _cpu_of_machine()
    read, written, disk_busy = _disks()
    cpu = {pid: seconds for pid in pids if (seconds := _cpu_of(pid)) is not None}
    return Counters(time.monotonic(), busy, stolen, read, written, disk_busy, _network(), cpu)


def usage_between(first: Counters, last: Counters, servers: Sequence[int], clients: Sequence[int]) -> Usage:
    """Return the use of resources between two readings, per second."""
    seconds = max(last.time - first.time, 1e-9)

    def cores(pids: Sequence[int]) -> float:
        spent = (last.cpu_seconds.get(pid, 0.0) - first.cpu_seconds.get(pid, 0.0) for pid in pids)
        return sum(max(one, 0.0) for one in spent) / seconds

    busy = {name: last.disk_busy[name] - first.disk_busy.get(name, 0.0) for name in last.disk_busy}
    network = (
        (moved - first.network[name][0]) / (rate * seconds)
        for name, (moved, rate) in last.network.items()
        if name in first.network
    )
    return Usage(
        seconds=seconds,
        machine_cores=(last.busy_seconds - first.busy_seconds) / seconds,
        stolen_cores=(last.stolen_seconds - first.stolen_seconds) / seconds,
        server_cores=cores(servers),
        client_cores=cores(clients),
        disk_read_bytes_per_second=(last.disk_bytes_read - first.disk_bytes_read) / seconds,
        disk_written_bytes_per_second=(last.disk_bytes_written - first.disk_bytes_written) / seconds,
        disk_busy_share=max(busy.values(), default=0.0) / seconds,
        network_share=max(network, default=0.0),
    )


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory of processes, each shared page divided by the number of its users (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def machine() -> dict[str, Any]:
    """Describe this machine: CPU, cores, memory, kernel, Python."""
    names = [line for line in _lines("cpuinfo") if line.startswith("model name")]
    memory = next((line for line in _lines("meminfo") if line.startswith("MemTotal")), "MemTotal: 0")
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.split()[1]) * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(name: str) -> list[str]:
    return (PROC / name).read_text().splitlines()


def _cpu_of_machine() -> tuple[float, float]:
    """CPU seconds since the machine's start: not idle, and stolen (proc(5), /proc/stat)."""
    fields = [int(value) for value in _lines("stat")[0].split()[1:]]
    idle, stolen = fields[3] + fields[4], fields[7]
    return (sum(fields[:8]) - idle - stolen) * TICK_SECONDS, stolen * TICK_SECONDS


def _cpu_of(pid: int) -> float | None:
    """CPU seconds of a process with all its threads, ended ones included."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The process's name is in parentheses and may contain blanks.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS


def _disks() -> tuple[int, int, dict[str, float]]:
    """Bytes read and written by whole disks, without partitions, and the seconds that each was busy."""
    read = written = 0
    busy: dict[str, float] = {}
    for line in _lines("diskstats"):
        fields = line.split()
        if (Path("/sys/block") / fields[2]).exists() and not fields[2].startswith(("loop", "ram", "dm-")):
            read += int(fields[5]) * SECTOR_BYTES
            written += int(fields[9]) * SECTOR_BYTES
            busy[fields[2]] = int(fields[12]) / 1000
    return read, written, busy


def _network() -> dict[str, tuple[int, float]]:
    """Bytes through each interface, in the busier direction, and its speed in bytes a second."""
    moved: dict[str, tuple[int, float]] = {}
    for line in _lines("net/dev")[2:]:
        name, _, counters = line.partition(":")
        with suppress(OSError, ValueError):
            megabits = int((Path("/sys/class/net") / name.strip() / "speed").read_text())
            if megabits > 0:
                fields = [int(value) for value in counters.split()]
                moved[name.strip()] = max(fields[0], fields[8]), megabits * 125_000.0
    return moved

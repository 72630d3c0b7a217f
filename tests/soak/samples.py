"""Measurements of a site while it runs: memory, descriptors and threads of servers, disk, and live data.

A server that was started again has another life: what it has then is not compared with what it had before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import femtobarn as fb

__all__ = ["Sample", "Sampler", "ServerSample"]

PROC = Path("/proc")
BLOCK_BYTES = 512


@dataclass(frozen=True)
class ServerSample:
    """What a server had at a moment."""

    pid: int
    resident_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Sample:
    """What the site had at a moment."""

    time: float
    """By the machine's monotonic clock (s)."""
    servers: dict[str, ServerSample]
    """Those that ran."""
    disk_bytes: int
    """Of the database files of all servers, as allocated."""
    postgres_bytes: int
    live_bytes: int
    """Of the containers in the newest snapshot."""
    commits: int


@dataclass
class Sampler:
    """A thread that measures every few seconds, until it is stopped."""

    url: str
    """The federation at a server that is never ended."""
    pid_of: Callable[[str], int | None]
    disks: dict[str, Path]
    """The databases' folder of each server."""
    postgres: Path
    """The data folder of PostgreSQL."""
    interval: float
    samples: list[Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: Exception | None = None

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._measure()
        except Exception as error:
            self._failure = error

    def _measure(self) -> None:
        with fb.open(self.url) as fed:
            while not self._stop.wait(self.interval):
                try:
                    live, commits = live_bytes(fed)
                except fb.FemtobarnError:
                    # A server with some of the databases is away; the next sample has them again.
                    continue
                servers = {name: sample for name in self.disks if (sample := sample_of(self.pid_of(name)))}
                disk = sum(allocated_bytes(folder) for folder in self.disks.values())
                moment = time.monotonic()
                base = allocated_bytes(self.postgres / "base")
                self.samples.append(Sample(moment, servers, disk, base, live, commits))


def live_bytes(fed: fb.Federation) -> tuple[int, int]:
    """Return the bytes of the containers in the newest snapshot, and its commit."""
    snap = fed.snapshot()
    containers = [each for row in snap.databases() for each in snap.containers(row["name"])]
    return sum(each["bytes"] for each in containers), snap.csn


def sample_of(pid: int | None) -> ServerSample | None:
    """Measure a process; None if it has ended."""
    if pid is None:
        return None
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        numbers = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        descriptors = len(list((PROC / str(pid) / "fd").iterdir()))
        return ServerSample(pid, int(numbers["VmRSS"][0]) * 1024, descriptors, int(numbers["Threads"][0]))
    except (OSError, KeyError):
        return None


def allocated_bytes(folder: Path) -> int:
    """Return the bytes that the files below a folder take on the disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(place, name).stat().st_blocks * BLOCK_BYTES
            except OSError:
                # It was removed meanwhile.
                continue
    return total

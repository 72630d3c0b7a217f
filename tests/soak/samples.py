"""Measurements of a site while it runs: processes, PostgreSQL's connections, disk, and live data.

A process that was started again has another life: what it has then is not compared with what it had before.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import femtobarn as fb

__all__ = ["FILE_KINDS", "ProcessSample", "Sample", "Sampler"]

PROC = Path("/proc")
BLOCK_BYTES = 512
CONNECTION = "postgres: femtobarn "
"""How the command lines of PostgreSQL's processes for connections begin: all have this user."""


FILE_KINDS = ("sockets", "files", "removed files", "other descriptors")
"""What a process may have open."""


@dataclass(frozen=True)
class ProcessSample:
    """What a process had at a moment."""

    pid: int
    private_bytes: int
    """Resident memory that no file has."""
    threads: int
    open_files: dict[str, int]
    """By their kinds."""


@dataclass(frozen=True)
class Sample:
    """What the site had at a moment."""

    time: float
    """By the machine's monotonic clock (s)."""
    servers: dict[str, ProcessSample]
    """Those that ran."""
    clients: dict[str, ProcessSample]
    """By their kinds."""
    postgres_connections: int
    disk_bytes: int
    """Of the database files of all servers, as allocated."""
    postgres_bytes: int
    live_bytes: int
    """Of the containers in the newest snapshot."""
    commits: int
    foreign_share: float
    """Of the processors' time since the sample before: user time of processes that are not the run's."""


@dataclass
class Sampler:
    """A thread that measures every few seconds, until it is stopped."""

    url: str
    """The federation at a server that is never ended."""
    server_of: Callable[[str], int | None]
    """The process of a server, if it runs."""
    clients: Callable[[], dict[str, int]]
    """The processes of clients, by their kinds."""
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
        processors = ProcessorTime(self.postgres)
        with fb.open(self.url) as fed:
            while not self._stop.wait(self.interval):
                try:
                    live, commits = live_bytes(fed)
                except fb.FemtobarnError:
                    # A server with some of the databases is away; the next sample has them again.
                    continue
                servers = samples_of({name: self.server_of(name) for name in self.disks})
                clients = samples_of(self.clients())
                disk = sum(allocated_bytes(folder) for folder in self.disks.values())
                moment = time.monotonic()
                base = allocated_bytes(self.postgres / "base")
                connections = connections_of(self.postgres)
                foreign = processors.foreign_share()
                sample = Sample(moment, servers, clients, connections, disk, base, live, commits, foreign)
                self.samples.append(sample)


def live_bytes(fed: fb.Federation) -> tuple[int, int]:
    """Return the bytes of the containers in the newest snapshot, and its commit."""
    snap = fed.snapshot()
    containers = [each for row in snap.databases() for each in snap.containers(row["name"])]
    return sum(each["bytes"] for each in containers), snap.csn


def samples_of(pids: Mapping[str, int | None]) -> dict[str, ProcessSample]:
    """Measure processes; those that have ended are left out."""
    return {name: sample for name, pid in pids.items() if pid is not None and (sample := sample_of(pid))}


def sample_of(pid: int) -> ProcessSample | None:
    """Measure a process; None if it has ended."""
    process = PROC / str(pid)
    try:
        lines = (process / "status").read_text().splitlines()
        numbers = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        files = Counter(kind for each in (process / "fd").iterdir() if (kind := kind_of(each)))
        threads, private = int(numbers["Threads"][0]), int(numbers["RssAnon"][0]) * 1024
        return ProcessSample(pid, private, threads, {kind: files[kind] for kind in FILE_KINDS})
    except (OSError, KeyError):
        return None


def kind_of(descriptor: Path) -> str | None:
    """Return which of `FILE_KINDS` a descriptor is; None if it was closed meanwhile."""
    try:
        name = str(descriptor.readlink())
    except OSError:
        return None
    if name.startswith("socket:"):
        return "sockets"
    if not name.startswith("/"):
        return "other descriptors"
    return "removed files" if name.endswith(" (deleted)") else "files"


class ProcessorTime:
    """How much of the processors' time other processes of the machine take.

    Only user time is counted: interrupts and the kernel's threads work for the run, too.
    """

    def __init__(self, postgres: Path) -> None:
        self.postgres = postgres
        self._before = (time.monotonic(), self._foreign_ticks())

    def foreign_share(self) -> float:
        """Return the share of all processors that other processes had since the last call."""
        (began, ticks), self._before = self._before, (time.monotonic(), self._foreign_ticks())
        possible = (self._before[0] - began) * (os.cpu_count() or 1) * os.sysconf("SC_CLK_TCK")
        return max(self._before[1] - ticks, 0) / max(possible, 1.0)

    def _foreign_ticks(self) -> int:
        user, nice = map(int, read(PROC / "stat").split()[1:3])
        ours = [os.getpid()]
        with suppress(ValueError, IndexError):
            ours.append(int(read(self.postgres / "postmaster.pid").split(maxsplit=1)[0]))
        for pid in ours:
            # Grows while it is walked: the children of all threads, and theirs.
            ours += [int(child) for task in tasks_of(pid) for child in read(task / "children").split()]
        return user + nice - sum(ticks_of(pid) for pid in ours)


def tasks_of(pid: int) -> list[Path]:
    """Return the folders of a process's threads; none if it has ended."""
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def ticks_of(pid: int) -> int:
    """Return the user time of a process and of its children that have ended."""
    numbers = read(PROC / str(pid) / "stat").rpartition(")")[2].split()[11:15:2]
    return sum(map(int, numbers))


def read(path: Path) -> str:
    """Return the text of a file; nothing if it is gone, as that of a process that has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def connections_of(postgres: Path) -> int:
    """Count the connections of PostgreSQL, each of which is a process; 0 while it restarts."""
    pid = read(postgres / "postmaster.pid").partition("\n")[0] or "0"
    children = read(PROC / pid / "task" / pid / "children").split()
    return sum(read(PROC / child / "cmdline").startswith(CONNECTION) for child in children)


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

"""Clients that read blocks of files with XRootD's client, as threads of a few processes.

A client opens a file, reads blocks at random offsets, compares them with the file, closes it, and opens the
next one. The user's name in its URL gives it connections of its own, and so a session at each server.
"""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import femtobarn as fb

__all__ = ["ClientProcesses", "Task", "Visit", "check_installed", "client_processes"]

END_SECONDS_MAX = 120.0
"""Longest end of a phase: each client waits for one more block."""
PAUSE_AFTER_FAILURE = 0.5


@dataclass(frozen=True)
class Task:
    """The work of clients in a phase."""

    address: str
    """``host:port`` of the server that they ask, and the folder there: ``127.0.0.1:1094//hot.fed``."""
    files: Mapping[int, Sequence[Path]]
    """For each client, the files that it reads in turn."""
    block_bytes: int
    blocks: int
    """Blocks that a client reads before it closes the file."""
    pause_seconds: float
    """Between two files."""
    seed: int
    begin: float = 0.0
    end: float = 0.0
    """By the clock ``time.monotonic``, which all processes share."""


class Visit(NamedTuple):
    """A file from its opening to its closing by a client. Times are seconds since the phase began."""

    client: int
    file: str
    server: str
    """``host:port``."""
    opened: float
    closed: float
    reads: list[tuple[float, int]]
    """When a block was there, and its bytes."""
    failure: str
    """Empty if all went well."""


def check_installed() -> None:
    """Check that XRootD's client is installed.

    Raises
    ------
    UnsupportedError
        If it is not.
    """
    if importlib.util.find_spec("XRootD") is None:
        raise fb.UnsupportedError(
            "clients of hot files need XRootD's client, which is not installed: pip install xrootd"
        )


class ClientProcesses:
    """The processes. Connections are kept from phase to phase."""

    def __init__(self, running: Sequence[tuple[BaseProcess, Connection]]) -> None:
        self._running = running

    @property
    def pids(self) -> list[int]:
        """Process ids of all processes."""
        return [process.pid for process, _ in self._running if process.pid]

    def wait_until_ready(self) -> None:
        """Wait until all have started.

        Raises
        ------
        UnavailableError
            If one dies.
        """
        for _, pipe in self._running:
            _received(pipe)

    def work(self, task: Task, seconds: float, each_second: Callable[[], None]) -> list[Visit]:
        """Let the clients work for some seconds, and return their visits. They must be ready.

        Parameters
        ----------
        each_second
            Called at the beginning, and after each second until the end.

        Raises
        ------
        UnavailableError
            If a process dies, or does not end in time.
        """
        begin = time.monotonic()
        numbers = sorted(task.files)
        for at, (_, pipe) in enumerate(self._running):
            mine = {number: task.files[number] for number in numbers[at :: len(self._running)]}
            pipe.send(replace(task, files=mine, begin=begin, end=begin + seconds))
        for second in range(int(seconds) + 1):
            time.sleep(max(begin + second - time.monotonic(), 0.0))
            each_second()
        visits: list[Visit] = []
        until = begin + seconds + END_SECONDS_MAX
        for _, pipe in self._running:
            if not pipe.poll(max(until - time.monotonic(), 0.0)):
                raise fb.UnavailableError(f"clients did not end within {END_SECONDS_MAX:.0f} s")
            visits += _received(pipe)
        return visits


def _received(pipe: Connection) -> list[Visit]:
    try:
        visits: list[Visit] = pipe.recv()
    except EOFError:
        raise fb.UnavailableError("a process of clients died; is there enough memory?") from None
    return visits


@contextmanager
def client_processes(count: int) -> Iterator[ClientProcesses]:
    """Processes of clients for the time of a block. They start while it runs."""
    context = multiprocessing.get_context("spawn")
    running: list[tuple[BaseProcess, Connection]] = []
    process: BaseProcess
    try:
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(theirs,), name=f"clients{number}", daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        yield ClientProcesses(running)
    finally:
        for process, pipe in running:
            process.kill()
            process.join()
            pipe.close()


def _run(pipe: Connection) -> None:
    """Do one task after the other, until the process is killed."""
    importlib.import_module("XRootD.client")
    pipe.send([])
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        with ThreadPoolExecutor(max(len(task.files), 1)) as pool:
            done = [pool.submit(_visits, task, client) for client in task.files]
        pipe.send([visit for each in done for visit in each.result()])


def _visits(task: Task, client: int) -> list[Visit]:
    """Do the work of a client in a phase, and return its visits."""
    choice = random.Random(f"{task.seed} {client}")
    files = task.files[client]
    done: list[Visit] = []
    while time.monotonic() < task.end:
        visit = _visit(task, client, files[len(done) % len(files)], choice)
        done.append(visit)
        pause = PAUSE_AFTER_FAILURE if visit.failure else task.pause_seconds
        time.sleep(max(min(pause, task.end - time.monotonic()), 0.0))
    return done


def _visit(task: Task, client: int, path: Path, choice: random.Random) -> Visit:
    """Open a file, read some blocks of it, and close it."""
    from XRootD.client import File
    from XRootD.client.flags import OpenFlags

    opened, failure, server = time.monotonic(), "", ""
    reads: list[tuple[float, int]] = []
    file = File()
    status, _ = file.open(f"root://u{client}@{task.address}/{path.name}", OpenFlags.READ)
    if status.ok:
        server = file.get_property("DataServer").rpartition("@")[2]
        with path.open("rb") as local, mmap.mmap(local.fileno(), 0, prot=mmap.PROT_READ) as content:
            places = -(-len(content) // task.block_bytes)
            for _ in range(task.blocks):
                if time.monotonic() >= task.end:
                    break
                start = choice.randrange(places) * task.block_bytes
                status, data = file.read(start, task.block_bytes)
                if not status.ok:
                    break
                if data != content[start : start + task.block_bytes]:
                    failure = f"other bytes of {path.name} at {start} from {server}"
                    break
                reads.append((time.monotonic() - task.begin, len(data)))
        file.close()
    failure = failure or ("" if status.ok else str(status.message).strip())
    closed = time.monotonic() - task.begin
    return Visit(client, path.name, server, opened - task.begin, closed, reads, failure)

"""The processes of clients: one for each kind, and writers of registers, whose whole history is checked."""

from __future__ import annotations

import multiprocessing
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import femtobarn as fb

from .clients import KINDS, TOLERATED, Assignment, run_client
from .log import Operation, read_operations

__all__ = ["ClientPool", "Registers"]

END_SECONDS_MAX = 120.0
"""In which every client has an answer, whatever has failed."""


class ClientPool:
    """A process for each kind of client."""

    def __init__(self, urls: tuple[str, ...], folder: Path, pause: float) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["soak.clients"])
        self._stop = folder / "stop"
        self._urls, self._folder, self._pause = urls, folder, pause
        self._running: dict[str, BaseProcess] = {}
        self._logs: list[Path] = []

    def start(self, *kinds: str) -> None:
        """Start a client of each of these kinds, which begins at another server than the last one."""
        for kind in kinds:
            number = len(self._logs) + 1
            log = self._folder / f"client-{number}.jsonl"
            log.touch()
            first = number % len(self._urls)
            urls = (*self._urls[first:], *self._urls[:first])
            assignment = Assignment(kind, number, urls, log, self._pause, self._stop)
            process = self._context.Process(target=run_client, args=(assignment,), daemon=True)
            process.start()
            self._logs.append(log)
            self._running[kind] = process

    def kill(self, kind: str) -> None:
        """End a client as a loss of power would, and start another one."""
        self._running[kind].kill()
        self._running[kind].join()
        self.start(kind)

    def pids(self) -> dict[str, int]:
        """Return the processes of the clients, by their kinds."""
        running = list(self._running.items())
        return {kind: process.pid for kind, process in running if process.pid is not None}

    def ended(self) -> list[str]:
        """Return the kinds of clients that have ended by themselves."""
        return [kind for kind, process in self._running.items() if process.exitcode is not None]

    def stop(self) -> list[str]:
        """Let all end, and return the kinds of those that did not in time."""
        self._stop.touch()
        until = time.monotonic() + END_SECONDS_MAX
        for process in self._running.values():
            process.join(max(until - time.monotonic(), 0.0))
        late = [kind for kind, process in self._running.items() if process.exitcode != 0]
        for process in self._running.values():
            process.kill()
        return late

    def operations(self) -> list[Operation]:
        """Return what all clients did, those that were killed, too."""
        return sorted((each for log in self._logs for each in read_operations(log)), key=lambda it: it.ended)

    def __enter__(self) -> ClientPool:
        self.start(*KINDS)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()


@dataclass
class Registers:
    """Rounds of transactions on registers by the example `registers`, each with registers of its own."""

    program: Path
    urls: tuple[str, ...]
    folder: Path
    seconds: int
    """Of a round."""
    committed: int = 0
    """Transactions of all rounds that are over."""
    _writers: list[tuple[subprocess.Popen[bytes], Path]] = field(default_factory=list)
    _last: int = 0

    DATABASES = ("left", "right", "far")
    WRITERS = 2

    def start(self) -> None:
        """Begin a round."""
        until = time.monotonic() + END_SECONDS_MAX
        while subprocess.run([self.program, "fill", self.urls[0]], check=False).returncode != 0:
            if time.monotonic() > until:
                raise TimeoutError("registers cannot be made")
            time.sleep(1.0)
        for _ in range(self.WRITERS):
            self._last += 1
            log = self.folder / f"registers-{self._last}.log"
            url = self.urls[self._last % len(self.urls)]
            command = [str(self.program), "write", url, str(self._last), str(self.seconds)]
            with log.open("wb") as out, log.with_suffix(".errors").open("wb") as errors:
                self._writers.append((subprocess.Popen(command, stdout=out, stderr=errors), log))

    def finish(self, wrong: list[str]) -> None:
        """End a round: add to the list what is wrong with its history, and remove its registers."""
        for writer, log in self._writers:
            try:
                if writer.wait(END_SECONDS_MAX) != 0:
                    wrong.append(f"a writer of registers failed: {log.with_suffix('.errors').read_text()}")
            except subprocess.TimeoutExpired:
                wrong.append("a writer of registers did not end")
        lines = b"".join(log.read_bytes() for _, log in self._writers)
        command = [str(self.program), "judge", self.urls[0]]
        judged = subprocess.run(command, input=lines, capture_output=True, check=False)
        if judged.returncode == 0:
            self.committed += int(judged.stdout)
        else:
            wrong.append(f"history of registers: {judged.stderr.decode()}")
        self.end()
        until = time.monotonic() + END_SECONDS_MAX
        while True:
            try:
                with fb.open(self.urls[0]) as fed, fed.transaction(lock_timeout=30) as txn:
                    for name in {*self.DATABASES} & {row["name"] for row in fed.databases()}:
                        txn.drop(name)
                return
            except fb.FemtobarnError as error:
                if error.kind not in TOLERATED or time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def end(self) -> None:
        """End all writers that still run."""
        for writer, _ in self._writers:
            with suppress(ProcessLookupError):
                writer.kill()
            writer.wait()
        self._writers.clear()

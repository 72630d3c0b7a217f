"""The client processes of one point: started in batches, measured for a window, joined at its end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import femtobarn as fb

from . import client
from .client import Assignment, Outcome, Start

__all__ = ["ClientPool", "client_pool"]

START_SECONDS_MAX = 600.0
"""Longest start of a batch. It can take minutes when simulated disks as slow as in 1999 are loaded."""

END_SECONDS_MAX = 300.0
"""Longest end of a client after the window: its commit may wait for such disks."""


@dataclass
class _RunningClient:
    assignment: Assignment
    process: BaseProcess
    pipe: Connection
    launched: float


class ClientPool:
    """The running clients.

    Parameters
    ----------
    start
        ``"fork"``: from a process that has imported the package; ``"program"``: each a new interpreter.
    """

    def __init__(self, start: str) -> None:
        self._context: Any = multiprocessing.get_context("forkserver" if start == "fork" else "spawn")
        if start == "fork":
            self._context.set_forkserver_preload([client.__name__])
        self._clock: MutableSequence[float] = self._context.RawArray("d", [float("inf")] * 2)
        self._clients: list[_RunningClient] = []
        self.starts: list[dict[str, Any]] = []
        """The start-up of each client: ``launched`` in seconds since the first client was launched, the other
        moments in seconds since its own launch."""

    @property
    def pids(self) -> list[int]:
        """Process ids of all clients."""
        return [running.process.pid for running in self._clients if running.process.pid]

    def add(self, assignments: Sequence[Assignment]) -> None:
        """Start a batch, and return when all its clients are in their loops."""
        batch = [self._launch(assignment) for assignment in assignments]
        self._clients += batch
        for running, start in self._receive(batch, START_SECONDS_MAX, "begin"):
            self.starts.append(self._start(running, start))

    def _launch(self, assignment: Assignment) -> _RunningClient:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=client.run,
            args=(assignment, theirs, self._clock),
            name=f"client{assignment.number}",
            daemon=True,
        )
        launched = time.monotonic()
        process.start()
        theirs.close()
        return _RunningClient(assignment, process, ours, launched)

    def _start(self, running: _RunningClient, start: Start) -> dict[str, Any]:
        moments = {
            name: value - running.launched for name, value in asdict(start).items() if name != "number"
        }
        first = self._clients[0].launched
        of = {"client": running.assignment.number, "kind": running.assignment.kind.name}
        return of | {"launched": running.launched - first} | moments

    def open_window(self, seconds: float, sample: Callable[[], None]) -> None:
        """Open the window for some seconds from now on; `sample` is called at both ends."""
        begin = time.monotonic() + 0.05
        self._clock[1] = begin + seconds
        self._clock[0] = begin
        for moment in (begin, begin + seconds):
            time.sleep(max(moment - time.monotonic(), 0.0))
            sample()

    def outcomes(self) -> list[Outcome]:
        """Wait for all clients to end, and return their outcomes."""
        outcomes = [outcome for _, outcome in self._receive(self._clients, END_SECONDS_MAX, "end")]
        for running in self._clients:
            running.process.join(END_SECONDS_MAX)
        return outcomes

    def kill(self) -> None:
        """Kill the clients that still run, and reap all."""
        for running in self._clients:
            if running.process.is_alive():
                running.process.kill()
        for running in self._clients:
            running.process.join()
            running.pipe.close()

    def _receive(
        self, clients: Sequence[_RunningClient], seconds: float, what: str
    ) -> Iterator[tuple[_RunningClient, Any]]:
        """Yield the next message of each client, in the order of arrival.

        Raises
        ------
        UnavailableError
            If a client reports an error, dies, or sends nothing in time.
        """
        silent = {running.pipe: running for running in clients}
        until = time.monotonic() + seconds
        while silent:
            ready = wait(list(silent), max(until - time.monotonic(), 0.0))
            if not ready:
                raise fb.UnavailableError(
                    f"{len(silent)} of {len(clients)} clients did not {what} within {seconds:.0f} s"
                )
            for pipe in ready:
                assert isinstance(pipe, Connection)
                running = silent.pop(pipe)
                yield running, _message_of(running)


def _message_of(running: _RunningClient) -> Any:
    try:
        message = running.pipe.recv()
    except EOFError:
        running.process.join()
        raise fb.UnavailableError(
            f"{running.process.name} died (exit code {running.process.exitcode}); is there enough memory?"
        ) from None
    if isinstance(message, str):
        raise fb.UnavailableError(message)
    return message


@contextmanager
def client_pool(start: str) -> Iterator[ClientPool]:
    """A pool for the time of a block, which ends by killing its clients."""
    pool = ClientPool(start)
    try:
        yield pool
    finally:
        pool.kill()

"""The client processes of a run: started in batches, watched for a window, heard at their end."""

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
from .client import Order, Outcome, Start

__all__ = ["Crew", "hired"]

START_SECONDS_MAX = 600.0
"""So long a batch may take to begin, on loaded disks of another age."""

END_SECONDS_MAX = 300.0
"""So long a client may take to end after its window: a commit may have to wait for such disks."""


@dataclass
class _Member:
    order: Order
    process: BaseProcess
    pipe: Connection
    launched: float


class Crew:
    """Clients that are running."""

    def __init__(self, start: str) -> None:
        self._context: Any = multiprocessing.get_context("forkserver" if start == "fork" else "spawn")
        if start == "fork":
            self._context.set_forkserver_preload([client.__name__])
        self._clock: MutableSequence[float] = self._context.RawArray("d", [float("inf")] * 2)
        self._members: list[_Member] = []
        self.starts: list[dict[str, Any]] = []
        """How each client began: seconds since it was launched, which is in seconds since the first was."""

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [member.process.pid for member in self._members if member.process.pid]

    def add(self, orders: Sequence[Order]) -> None:
        """Start a batch, and return when all of it has begun with its loop."""
        batch = [self._launch(order) for order in orders]
        self._members += batch
        for member, start in self._hear(batch, START_SECONDS_MAX, "begin"):
            self.starts.append(self._start(member, start))

    def _launch(self, order: Order) -> _Member:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=client.run, args=(order, theirs, self._clock), name=f"client{order.number}", daemon=True
        )
        launched = time.monotonic()
        process.start()
        theirs.close()
        return _Member(order, process, ours, launched)

    def _start(self, member: _Member, start: Start) -> dict[str, Any]:
        moments = {name: value - member.launched for name, value in asdict(start).items() if name != "number"}
        first = self._members[0].launched
        of = {"client": member.order.number, "kind": member.order.kind.name}
        return of | {"launched": member.launched - first} | moments

    def watch(self, seconds: float, look: Callable[[], None]) -> None:
        """Have the clients watched for so long, from now on; `look` is called at both ends."""
        begin = time.monotonic() + 0.05
        self._clock[1] = begin + seconds
        self._clock[0] = begin
        for moment in (begin, begin + seconds):
            time.sleep(max(moment - time.monotonic(), 0.0))
            look()

    def outcomes(self) -> list[Outcome]:
        """Wait for all clients to end, and return what they did."""
        heard = [outcome for _, outcome in self._hear(self._members, END_SECONDS_MAX, "end")]
        for member in self._members:
            member.process.join(END_SECONDS_MAX)
        return heard

    def dismiss(self) -> None:
        """End those that are still there."""
        for member in self._members:
            if member.process.is_alive():
                member.process.kill()
        for member in self._members:
            member.process.join()
            member.pipe.close()

    def _hear(self, members: Sequence[_Member], seconds: float, what: str) -> Iterator[tuple[_Member, Any]]:
        """What each of some clients says next, as it comes."""
        silent = {member.pipe: member for member in members}
        until = time.monotonic() + seconds
        while silent:
            ready = wait(list(silent), max(until - time.monotonic(), 0.0))
            if not ready:
                raise fb.UnavailableError(
                    f"{len(silent)} of {len(members)} clients did not {what} within {seconds:.0f} s"
                )
            for pipe in ready:
                assert isinstance(pipe, Connection)
                member = silent.pop(pipe)
                yield member, _said(member)


def _said(member: _Member) -> Any:
    try:
        said = member.pipe.recv()
    except EOFError:
        member.process.join()
        raise fb.UnavailableError(
            f"{member.process.name} died (exit code {member.process.exitcode}); is there enough memory?"
        ) from None
    if isinstance(said, str):
        raise fb.UnavailableError(said)
    return said


@contextmanager
def hired(start: str) -> Iterator[Crew]:
    """Have a crew for the time of a block."""
    crew = Crew(start)
    try:
        yield crew
    finally:
        crew.dismiss()

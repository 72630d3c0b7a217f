"""A client process: it runs its kind's loop over the public API and records the time of each operation.

A client enters its loop as soon as it has started, so that later batches start beside working clients. The
runner writes the two ends of the measured window to a clock in shared memory; clients stop at the second.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass, field
from itertools import cycle, islice, repeat
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import femtobarn as fb

from .data import Item, LinkedItem, Payloads, names_of, repeat_links
from .recorder import Recorder
from .scenario import Kind, Scenario, Step
from .sources import Sources
from .streams import StreamReader

__all__ = ["SERIES_SECONDS", "Assignment", "Outcome", "Start", "run"]

SERIES_SECONDS = 0.5
"""Length of one step of a client's time series."""

LOCK_WAIT_SECONDS = 300.0
"""Longest wait for a container that another client writes."""


@dataclass(frozen=True)
class Assignment:
    """The work of one client."""

    scenario: Scenario
    kind: Kind
    number: int
    locations: tuple[str, ...]
    """Folder or ``root://`` address of the federation, or the addresses of all servers that have a copy."""
    seed: int
    folder: Path
    """A folder of this machine that all clients of a federation share."""
    memcached: str = ""
    """Address of a memcached, if there is one."""


@dataclass(frozen=True)
class Start:
    """The moments of a client's start-up, by the machine's monotonic clock."""

    number: int
    ready: float
    """The interpreter ran and the package was imported."""
    opened: float
    """The federation was open."""
    transaction: float
    """The first transaction had its containers open; for readers: the first snapshot was taken."""
    first_object: float
    """The first object was written or read."""


@dataclass(frozen=True)
class Outcome:
    """The operations of one client within the window."""

    number: int
    kind: str
    operations: dict[str, dict[str, Any]]
    series: list[float]
    """Payload bytes read and written in each step of :data:`SERIES_SECONDS`."""
    sources: Sources | None = None
    """The reads of its jobs from each cache and from the server, if it looks up conditions."""


class _WindowEnded(Exception):
    """Raised by the first operation that ends after the window."""


def run(assignment: Assignment, pipe: Connection, clock: MutableSequence[float]) -> None:
    """Run a client. It sends a :class:`Start`, then an :class:`Outcome`, or an error text instead."""
    Thread(target=_exit_with_parent, args=(pipe,), daemon=True).start()
    try:
        client = _Client(assignment, clock)
        client.begin()
        pipe.send(client.start)
        client.run_to_the_end()
        pipe.send(client.outcome())
        client.close()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)
    except fb.FemtobarnError as error:
        pipe.send(f"client {assignment.number} ({assignment.kind.name}): {error}")
    except BaseException:
        pipe.send(f"client {assignment.number} ({assignment.kind.name}): {traceback.format_exc()}")


def _exit_with_parent(pipe: Connection) -> None:
    """Exit when the runner dies, even during a wait: nothing else would end this process."""
    # The runner never sends anything, so this returns only when its end of the pipe closes.
    pipe.poll(None)
    os._exit(1)


@dataclass
class _Scan:
    """A container that is read again and again, and the entry that is read next."""

    view: fb.View
    next: int = 0


@dataclass
class _Transaction:
    """An open transaction, and the passes left until it commits."""

    of: fb.Transaction
    events_left: int
    began: float
    written: float = 0.0
    """Payload bytes."""
    writers: dict[str, fb.ContainerWriter] = field(default_factory=dict)
    newest: dict[str, fb.Oid] = field(default_factory=dict)


class _Client:
    def __init__(self, assignment: Assignment, clock: MutableSequence[float]) -> None:
        ready = time.monotonic()
        self.kind, self.scenario = assignment.kind, assignment.scenario
        self.number = assignment.number
        self.clock = clock
        self.recorder = Recorder()
        self.random = np.random.default_rng([assignment.seed, self.number])
        self.payloads = Payloads(self.number)
        self.scans: dict[str, _Scan] = {}
        self.transaction: _Transaction | None = None
        self.written = 0.0
        self.reserved: set[str] = set()
        self.part = self.pairs = self.number_written = 0
        self.first_object = 0.0
        self.rest_of_first_pass: list[Callable[[], None]] = []
        self.count: Callable[[Any], int] = len
        self.event_began = time.monotonic()
        self.locations, self.folder = assignment.locations, assignment.folder
        places = {"folder": self.folder, "memcached": assignment.memcached}
        self.options: dict[str, Any] = {
            name: value.format(**places) if isinstance(value, str) else value
            for name, value in self.scenario.open.items()
            if value != ""
        }
        self.stream: StreamReader | None = None
        self.federation = fb.open(self.locations, **self.options)
        self.times = {"ready": ready, "opened": time.monotonic()}
        self.snapshot = self.federation.snapshot()
        self.actions = self._actions()

    def begin(self) -> None:
        """Begin the first transaction, and read or write the first object."""
        if self.kind.writes:
            self._begin()
            transaction = self._current()
            for step in self.kind.loop:
                if step.action == "write":
                    self._writer(transaction, step)
        self.times["transaction"] = time.monotonic()
        remaining = iter(self.actions)
        for action in remaining:
            action()
            if self.first_object:
                break
        # Commits come after whole passes, so this one is completed later.
        self.rest_of_first_pass = list(remaining)

    @property
    def start(self) -> Start:
        """The moments of its start-up."""
        return Start(self.number, first_object=self.first_object, **self.times)

    def run_to_the_end(self) -> None:
        """Repeat the loop until the window ends."""
        try:
            for action in self.rest_of_first_pass:
                action()
            self._end_event()
            while True:
                for action in self.actions:
                    action()
                self._end_event()
        except _WindowEnded:
            # Payload written within the window counts if it is committed, however long the commit takes.
            if self.transaction is not None:
                self._commit(self.transaction)

    def outcome(self) -> Outcome:
        """Return the operations within the window."""
        first, last = self.clock[0], self.clock[1]
        return Outcome(
            self.number,
            self.kind.name,
            self.recorder.summary(first, last),
            self.recorder.series(("read", "write", "select"), first, last, SERIES_SECONDS),
            self.stream.sources() if self.stream is not None else None,
        )

    def close(self) -> None:
        """Close the federation."""
        if self.stream is not None:
            self.stream.close()
        self.federation.close()

    # The actions of a loop.

    def _actions(self) -> list[Callable[[], None]]:
        """One pass through the loop, object by object, with computation between steps or interleaved."""
        computing = sum(step.seconds for step in self.kind.loop)
        if not self.kind.interleave:
            return [action for step in self.kind.loop for action in self._actions_of(step)]
        steps = [step for step in self.kind.loop if step.action != "compute"]
        working = [action for step in steps for action in self._actions_of(step)]
        groups = [
            working[at : at + self.kind.interleave] for at in range(0, len(working), self.kind.interleave)
        ]
        piece = computing / len(groups)
        mixed: list[Callable[[], None]] = []
        for group in groups:
            mixed += [*group, lambda: self._compute(piece)] if piece else group
        return mixed

    def _actions_of(self, step: Step) -> list[Callable[[], None]]:
        if step.action == "compute":
            return [lambda: self._compute(step.seconds)]
        if step.action == "select":
            import awkward as ak  # clients that do not select start faster without it

            self.count = ak.count
            return [lambda: self._select(step)]
        if step.action == "conditions":
            self.stream = StreamReader(
                step, self._places(), self.options, self.folder, self.random, self._add
            )
            return [self._next_event]
        if step.action == "pair":
            return [lambda: self._pair(step)] * step.objects
        if step.bulk:
            return [lambda: self._write_many(step)]
        one = self._read if step.action == "read" else self._write
        return [lambda: one(step)] * step.objects

    def _places(self) -> Iterator[tuple[str, ...]]:
        """The servers that each of its jobs opens: all, or the next one in turn."""
        if self.scenario.simulation.server_of == "request":
            return repeat(self.locations)
        return islice(cycle((one,) for one in self.locations), self.number % len(self.locations), None)

    def _compute(self, seconds: float) -> None:
        """Use CPU time, or, where computation is simulated, sleep for as long as one free CPU would take."""
        seconds /= self.scenario.simulation.compression
        start = time.monotonic()
        if self.scenario.simulation.computation == "simulated":
            time.sleep(seconds)
        else:
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                _burn_cpu()
        self._done("compute", start, seconds)

    def _next_event(self) -> None:
        assert self.stream is not None
        self.stream.next_event()
        if not self.first_object:
            self.first_object = time.monotonic()
        self._check_time()

    def _read(self, step: Step) -> None:
        start = time.monotonic()
        scan = self._scan(step.target)
        payload = scan.view[scan.next].payload
        scan.next = (scan.next + 1) % len(scan.view)
        self._done("read", start, payload.nbytes)

    def _scan(self, target: str) -> _Scan:
        name = target.format(**names_of(self.scenario, self.number))
        if name not in self.scans:
            view = self.snapshot[name]
            # Clients that share a container begin at random entries.
            is_shared = self.scenario.is_shared(target)
            self.scans[name] = _Scan(view, int(self.random.integers(len(view))) if is_shared else 0)
        return self.scans[name]

    def _select(self, step: Step) -> None:
        """Evaluate a selection over some tags, and read the objects of the tags that pass."""
        start = time.monotonic()
        scan = self._scan(step.target)
        stop = min(scan.next + step.objects, len(scan.view))
        tags = scan.view.arrays(
            ["item"], where=f"value < {step.fraction}", entry_start=scan.next, entry_stop=stop
        )
        self._add("tags", start, float(stop - scan.next))
        scan.next = stop % len(scan.view)
        start = time.monotonic()
        if len(tags):
            items = self.snapshot.fetch(tags["item"], ["payload"])
            self._done("select", start, 4.0 * self.count(items["payload"]))
        else:
            self._done("select", start)

    def _write(self, step: Step) -> None:
        transaction = self._current()
        writer = self._writer(transaction, step)
        start = time.monotonic()
        payload = self.payloads.one(step.size)
        if step.links:
            links: list[Any] = [transaction.newest[target] for target in step.links]
            oid = writer.append(LinkedItem(number=self.number_written, payload=payload, links=links))
        else:
            oid = writer.append(Item(number=self.number_written, payload=payload))
        self.number_written += 1
        transaction.newest[step.target] = oid
        transaction.written += payload.nbytes
        self._done("write", start, payload.nbytes)

    def _write_many(self, step: Step) -> None:
        transaction = self._current()
        writer = self._writer(transaction, step)
        start = time.monotonic()
        payload = self.payloads.many(step.objects, step.size)
        columns: dict[str, Any] = {"number": np.arange(step.objects), "payload": payload}
        if step.links:
            links = [transaction.newest[target] for target in step.links]
            columns["links"] = repeat_links(links, step.objects)
        transaction.newest[step.target] = writer.extend(columns)[step.objects - 1]
        transaction.written += payload.nbytes
        self._done("write", start, payload.nbytes)

    def _pair(self, step: Step) -> None:
        """Create a database with one object, then drop it."""
        self.pairs += 1
        name = step.target.format(**names_of(self.scenario, self.number, self.pairs))
        start = time.monotonic()
        with self.federation.transaction(message="create a database") as txn:
            database = txn.database(name, create=True)
            database.container("items", Item, create=True).append(
                Item(number=self.pairs, payload=self.payloads.one(step.size))
            )
        self._add("create", start)
        start = time.monotonic()
        with self.federation.transaction(message="drop a database") as txn:
            txn.drop(name)
        self._done("drop", start)

    # Transactions.

    def _begin(self) -> None:
        commit = self.kind.commit
        length = commit.events * (1 + commit.spread * float(self.random.uniform(-1.0, 1.0)))
        txn = self.federation.transaction(message=self.kind.name, lock_timeout=LOCK_WAIT_SECONDS)
        self.transaction = _Transaction(txn, max(round(length), 1), time.monotonic())

    def _current(self) -> _Transaction:
        if self.transaction is None:
            self._begin()
        assert self.transaction is not None
        return self.transaction

    def _writer(self, transaction: _Transaction, step: Step) -> fb.ContainerWriter:
        writer = transaction.writers.get(step.target)
        if writer is None:
            start = time.monotonic()
            writer = self._open_writer(transaction, step)
            transaction.writers[step.target] = writer
            self._add("open container", start)
        return writer

    def _open_writer(self, transaction: _Transaction, step: Step) -> fb.ContainerWriter:
        names = names_of(self.scenario, self.number, self.part)
        database, _, container = step.target.format(**names).partition("/")
        place = names["disk"] if self.scenario.simulation.disks else None
        cls = LinkedItem if step.links else Item
        opened = transaction.of.database(database, create=True, place=place)
        if self.kind.reserve_bytes and database not in self.reserved:
            opened.reserve(self.kind.reserve_bytes)
            self.reserved.add(database)
        return opened.container(container, cls, create=True, **step.layout)

    def _end_event(self) -> None:
        """Count a pass through the loop, and commit if the transaction has all its passes."""
        now = self._add("event", self.event_began, 1.0)
        self.event_began = now
        if self.transaction is None:
            return
        self.transaction.events_left -= 1
        if self.transaction.events_left > 0:
            return
        self._commit(self.transaction)
        self._check_time()
        if self.kind.new_database_bytes and self.written >= self.kind.new_database_bytes:
            self.written, self.part = 0.0, self.part + 1

    def _commit(self, transaction: _Transaction) -> None:
        self.transaction = None
        start = time.monotonic()
        transaction.of.commit()
        self._add("commit", start)
        self._add("transaction", transaction.began, transaction.written)
        self.written += transaction.written

    # Records of operations.

    def _add(self, kind: str, start: float, amount: float = 0.0) -> float:
        end = time.monotonic()
        self.recorder.add(kind, start, end, amount)
        return end

    def _done(self, kind: str, start: float, amount: float = 0.0) -> None:
        end = self._add(kind, start, amount)
        if not self.first_object and kind != "compute":
            self.first_object = end
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() >= self.clock[1]:
            raise _WindowEnded


def _burn_cpu() -> None:
    """Use less than a millisecond of CPU time."""
    sum(number * number for number in range(2000))

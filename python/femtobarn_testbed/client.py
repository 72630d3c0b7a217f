"""A client: a process that goes through its loop with the public API and notes how long everything took.

It begins with its loop at once, so that those who start later start beside it. The runner says by a clock in
shared memory from when to when it looks, and so when everybody ends.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import numpy as np

import femtobarn as fb

from .data import Item, LinkedItem, Payloads, names_of, same_links
from .recorder import Recorder
from .scenario import Kind, Scenario, Step

__all__ = ["SERIES_SECONDS", "Order", "Outcome", "Start", "run"]

SERIES_SECONDS = 0.5
"""Seconds of a step of a client's series."""

LOCK_WAIT_SECONDS = 300.0
"""So long a client waits for a container that another one writes."""


@dataclass(frozen=True)
class Order:
    """What one client is to do."""

    scenario: Scenario
    kind: Kind
    number: int
    place: str
    """Folder or ``root://`` address of the federation."""
    seed: int


@dataclass(frozen=True)
class Start:
    """When a client had begun, by the machine's monotonic clock."""

    number: int
    ready: float
    """It had its interpreter and the package."""
    opened: float
    """The federation was open."""
    transaction: float
    """It was within its first transaction, with its containers; readers: they had their first snapshot."""
    first_object: float
    """It had written or read an object."""


@dataclass(frozen=True)
class Outcome:
    """What one client did within the window."""

    number: int
    kind: str
    operations: dict[str, dict[str, Any]]
    series: list[float]
    """Payload bytes read and written in each step of :data:`SERIES_SECONDS`."""


class _Over(Exception):
    """The window is over."""


def run(order: Order, pipe: Connection, clock: MutableSequence[float]) -> None:
    """Be a client. Sends a :class:`Start`, then an :class:`Outcome`, or a text that says what went wrong."""
    Thread(target=_leave_with, args=(pipe,), daemon=True).start()
    try:
        client = _Client(order, clock)
        client.begin()
        pipe.send(client.start)
        client.go_on()
        pipe.send(client.outcome())
        client.close()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)
    except fb.FemtobarnError as error:
        pipe.send(f"client {order.number} ({order.kind.name}): {error}")
    except BaseException:
        pipe.send(f"client {order.number} ({order.kind.name}): {traceback.format_exc()}")


def _leave_with(pipe: Connection) -> None:
    """End this process, whatever it waits for, if who started it was killed: nobody would end it."""
    # Nothing is ever sent, so this comes with the end of the other side.
    pipe.poll(None)
    os._exit(1)


@dataclass
class _Reading:
    """A container that is read from its beginning to its end, and again."""

    view: fb.View
    next: int = 0


@dataclass
class _Transaction:
    """A transaction that is under way, and when it is to end."""

    of: fb.Transaction
    events_left: int
    began: float
    written: float = 0.0
    """Payload bytes."""
    writers: dict[str, fb.ContainerWriter] = field(default_factory=dict)
    newest: dict[str, fb.Oid] = field(default_factory=dict)


class _Client:
    def __init__(self, order: Order, clock: MutableSequence[float]) -> None:
        ready = time.monotonic()
        self.kind, self.scenario, self.number = order.kind, order.scenario, order.number
        self.clock = clock
        self.recorder = Recorder()
        self.random = np.random.default_rng([order.seed, order.number])
        self.payloads = Payloads(order.number)
        self.readings: dict[str, _Reading] = {}
        self.transaction: _Transaction | None = None
        self.written = 0.0
        self.reserved: set[str] = set()
        self.part = self.pairs = self.number_written = 0
        self.first_object = 0.0
        self.rest: list[Callable[[], None]] = []
        self.count: Callable[[Any], int] = len
        self.event_began = time.monotonic()
        self.federation = fb.open(order.place, **order.scenario.open)
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
        # The rest of this first pass, so that commits come after whole ones.
        self.rest = list(remaining)

    @property
    def start(self) -> Start:
        """When it had begun with what."""
        return Start(self.number, first_object=self.first_object, **self.times)

    def go_on(self) -> None:
        """Go through the loop until the window is over."""
        try:
            for action in self.rest:
                action()
            self._end_event()
            while True:
                for action in self.actions:
                    action()
                self._end_event()
        except _Over:
            # What it wrote within the window counts if it is committed, however long that takes.
            if self.transaction is not None:
                self._commit(self.transaction)

    def outcome(self) -> Outcome:
        """Return what it did within the window."""
        first, last = self.clock[0], self.clock[1]
        return Outcome(
            self.number,
            self.kind.name,
            self.recorder.summary(first, last),
            self.recorder.series(("read", "write", "select"), first, last, SERIES_SECONDS),
        )

    def close(self) -> None:
        """Give back what it has."""
        self.federation.close()

    # What a loop consists of.

    def _actions(self) -> list[Callable[[], None]]:
        """One pass through the loop, object by object, with computation where it belongs."""
        computing = sum(step.seconds for step in self.kind.loop)
        if not self.kind.interleave:
            return [action for step in self.kind.loop for action in self._of_step(step)]
        steps = [step for step in self.kind.loop if step.action != "compute"]
        working = [action for step in steps for action in self._of_step(step)]
        groups = [
            working[at : at + self.kind.interleave] for at in range(0, len(working), self.kind.interleave)
        ]
        piece = computing / len(groups)
        mixed: list[Callable[[], None]] = []
        for group in groups:
            mixed += [*group, lambda: self._compute(piece)] if piece else group
        return mixed

    def _of_step(self, step: Step) -> list[Callable[[], None]]:
        if step.action == "compute":
            return [lambda: self._compute(step.seconds)]
        if step.action == "select":
            import awkward as ak  # other clients start without it

            self.count = ak.count
            return [lambda: self._select(step)]
        if step.action == "pair":
            return [lambda: self._pair(step)] * step.objects
        if step.bulk:
            return [lambda: self._write_many(step)]
        one = self._read if step.action == "read" else self._write
        return [lambda: one(step)] * step.objects

    def _compute(self, seconds: float) -> None:
        """Use so many CPU seconds, or sleep as long as a CPU of one's own would take."""
        seconds /= self.scenario.play.compression
        start = time.monotonic()
        if self.scenario.play.computation == "simulated":
            time.sleep(seconds)
        else:
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                _work()
        self._done("compute", start, seconds)

    def _read(self, step: Step) -> None:
        start = time.monotonic()
        reading = self._reading(step.target)
        payload = reading.view[reading.next].payload
        reading.next = (reading.next + 1) % len(reading.view)
        self._done("read", start, payload.nbytes)

    def _reading(self, target: str) -> _Reading:
        name = target.format(**names_of(self.scenario, self.number))
        if name not in self.readings:
            view = self.snapshot[name]
            # Those who share a container begin at places of their own.
            is_shared = self.scenario.is_shared(target)
            self.readings[name] = _Reading(view, int(self.random.integers(len(view))) if is_shared else 0)
        return self.readings[name]

    def _select(self, step: Step) -> None:
        """Look at some tags, and get the objects of those that pass."""
        start = time.monotonic()
        reading = self._reading(step.target)
        stop = min(reading.next + step.objects, len(reading.view))
        tags = reading.view.arrays(
            ["item"], where=f"value < {step.fraction}", entry_start=reading.next, entry_stop=stop
        )
        self._add("tags", start, float(stop - reading.next))
        reading.next = stop % len(reading.view)
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
            columns["links"] = same_links(links, step.objects)
        transaction.newest[step.target] = writer.extend(columns)[step.objects - 1]
        transaction.written += payload.nbytes
        self._done("write", start, payload.nbytes)

    def _pair(self, step: Step) -> None:
        """Make a database with an object in it, and drop it."""
        self.pairs += 1
        name = step.target.format(**names_of(self.scenario, self.number, self.pairs))
        start = time.monotonic()
        with self.federation.transaction(message="a database") as txn:
            database = txn.database(name, create=True)
            database.container("items", Item, create=True).append(
                Item(number=self.pairs, payload=self.payloads.one(step.size))
            )
        self._add("create", start)
        start = time.monotonic()
        with self.federation.transaction(message="no database") as txn:
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
        place = names["disk"] if self.scenario.play.disks else None
        cls = LinkedItem if step.links else Item
        opened = transaction.of.database(database, create=True, place=place)
        if self.kind.reserve_bytes and database not in self.reserved:
            opened.reserve(self.kind.reserve_bytes)
            self.reserved.add(database)
        return opened.container(container, cls, create=True, **step.layout)

    def _end_event(self) -> None:
        """Count a pass through the loop, and commit if it is time to."""
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

    # Notes.

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
            raise _Over


def _work() -> None:
    """A little of what a CPU does: below a millisecond."""
    sum(number * number for number in range(2000))

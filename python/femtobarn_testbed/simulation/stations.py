"""Stations of a simulated site, at which requests wait: pools of processors, shared links, turns to commit.

Invariants:

1. A pool serves in the order of arrival, so the end of a service is known when the request arrives.
2. A link serves all transfers at once, each at the same rate, and never more than one client can take.
3. One commit turn is under way at a time, and a committer's turn has all of its commits that wait.
4. A simulated client stands for many. Stations that exist once receive the requests of the others as
   *copies*: Poisson arrivals with the rate of the simulated requests, times the number of copies. Their
   durations are drawn from those of simulated requests. Copies are served and counted like others, but
   no client waits for them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush, heapreplace
from random import Random
from typing import Any

import simpy

__all__ = ["Link", "Pool", "Turns"]

KEPT_ARRIVALS = 512
"""Latest simulated requests, whose rate copies have."""

KEPT_DURATIONS = 64
"""Durations of the latest simulated requests, of which copies have one each."""


class _Copies:
    """Arrival times of copies of the requests that are simulated."""

    def __init__(self, number: float, random: Random) -> None:
        self._number, self._random = number, random
        self._arrivals = deque([0.0], maxlen=KEPT_ARRIVALS)
        self._next = math.inf

    def seen(self, now: float) -> None:
        """Count a simulated request."""
        self._arrivals.append(now)
        if self._number and self._next == math.inf:
            self._next = self._after(now)

    def next(self) -> float:
        """Return the time of the next copy; infinity if there is none."""
        return self._next

    def take(self) -> float:
        """Return the time of the next copy, and advance to the copy after it."""
        taken = self._next
        self._next = self._after(taken)
        return taken

    def _after(self, now: float) -> float:
        seconds = max(now - self._arrivals[0], 1e-9) / (len(self._arrivals) - 1)
        return now + self._random.expovariate(self._number / seconds)


class Pool:
    """Processors that serve requests in the order of arrival.

    Parameters
    ----------
    processors
        Their number, at least 1.
    copies
        Requests beside each simulated one.
    slowed
        Factor by which services take longer, because of constant other work.
    """

    def __init__(
        self,
        env: simpy.Environment,
        processors: int,
        random: Random,
        *,
        copies: float = 0.0,
        slowed: float = 1.0,
    ) -> None:
        self._env, self._random, self._slowed = env, random, slowed
        self._free_at = [0.0] * processors
        self._copies = _Copies(copies, random)
        self._durations: deque[float] = deque(maxlen=KEPT_DURATIONS)
        self._busy = 0.0

    def serve(self, seconds: float) -> float:
        """Return the seconds until a request that arrives now is served, its wait included."""
        now = self._env.now
        while self._copies.next() < now:
            self._begin(self._copies.take(), self._random.choice(self._durations))
        self._copies.seen(now)
        self._durations.append(seconds)
        return self._begin(now, seconds) - now

    def busy(self) -> float:
        """Return the processor seconds of all requests so far, of waiting ones, too."""
        return self._busy

    def _begin(self, arrived: float, seconds: float) -> float:
        self._busy += seconds
        ended = max(arrived, self._free_at[0]) + seconds * self._slowed
        heapreplace(self._free_at, ended)
        return ended


class Link:
    """A capacity that transfers share equally.

    Parameters
    ----------
    capacity
        Amount per second of all transfers together.
    each
        Largest amount per second of one transfer.
    """

    def __init__(self, env: simpy.Environment, capacity: float, each: float = math.inf) -> None:
        self.capacity = capacity
        self._env, self._each = env, each
        self._flows: list[tuple[float, int, simpy.Event]] = []
        self._moved = self._since = self._served = 0.0
        self._number = self._alarm = 0

    def move(self, amount: float) -> simpy.Event:
        """Return an event that occurs when an amount has been moved; it is false if the link failed."""
        done = self._env.event()
        self._advance()
        self._moved = self._moved if self._flows else 0.0
        self._number += 1
        heappush(self._flows, (self._moved + amount, self._number, done))
        self._set_alarm()
        return done

    def fail(self) -> None:
        """End all transfers, with false as their values."""
        self._advance()
        flows, self._flows = self._flows, []
        self._set_alarm()
        for _, _, done in flows:
            done.succeed(False)

    @property
    def number(self) -> int:
        """Number of transfers under way."""
        return len(self._flows)

    def served(self) -> float:
        """Return the amount that was moved so far."""
        self._advance()
        return self._served

    def _rate(self) -> float:
        return min(self._each, self.capacity / len(self._flows))

    def _advance(self) -> None:
        now = self._env.now
        if self._flows:
            moved = (now - self._since) * self._rate()
            self._moved += moved
            self._served += moved * len(self._flows)
        self._since = now

    def _set_alarm(self) -> None:
        self._alarm += 1
        if self._flows:
            wait = max(self._flows[0][0] - self._moved, 0.0) / self._rate()
            alarm = self._env.timeout(wait, self._alarm)
            assert alarm.callbacks is not None
            alarm.callbacks.append(self._end_flows)

    def _end_flows(self, alarm: simpy.Event) -> None:
        if alarm.value != self._alarm:
            return
        self._advance()
        # The first one's time has come, whatever rounding left of it.
        limit = max(self._moved, self._flows[0][0]) * (1 + 1e-12)
        while self._flows and self._flows[0][0] <= limit:
            heappop(self._flows)[2].succeed(True)
        self._set_alarm()


class Turns:
    """Commits in one order: turn after turn, each with all commits of one committer that wait.

    Parameters
    ----------
    committers
        Those whose commits share turns, such as servers.
    turn_seconds, commit_seconds
        A turn, and each of its commits.
    copies
        Commits beside each simulated one, of committers at random.
    """

    def __init__(
        self,
        env: simpy.Environment,
        committers: int,
        turn_seconds: float,
        commit_seconds: float,
        random: Random,
        *,
        copies: float = 0.0,
    ) -> None:
        self._env, self._committers, self._random = env, committers, random
        self._turn_seconds, self._commit_seconds = turn_seconds, commit_seconds
        self._copies = _Copies(copies, random)
        self._queue: deque[int] = deque()
        self._waiting: dict[int, tuple[int, list[simpy.Event]]] = {}
        self._wake: simpy.Event | None = None
        self._busy = 0.0
        self._turns = self._commits = 0
        env.process(self._run())

    def commit(self, committer: int) -> simpy.Event:
        """Return an event that occurs when a commit has had its turn."""
        done = self._env.event()
        self._copies.seen(self._env.now)
        self._add(committer % self._committers, [done])
        if self._wake is not None:
            _occur(self._wake)
        return done

    def busy(self) -> float:
        """Return the seconds in turns so far."""
        return self._busy

    def counts(self) -> tuple[int, int]:
        """Return the numbers of turns and of commits in them so far."""
        return self._turns, self._commits

    def _add(self, committer: int, events: list[simpy.Event]) -> None:
        if committer in self._waiting:
            count, waiting = self._waiting[committer]
            waiting += events
            self._waiting[committer] = count + 1, waiting
        else:
            self._waiting[committer] = 1, events
            self._queue.append(committer)

    def _add_copies(self, now: float) -> None:
        while self._copies.next() <= now:
            self._copies.take()
            self._add(self._random.randrange(self._committers), [])

    def _run(self) -> Generator[simpy.Event, Any, None]:
        """Take turns. The time here may be ahead of the simulation's, until the next event there."""
        env, now = self._env, self._env.now
        while True:
            now = max(now, env.now)
            self._add_copies(now)
            if not self._queue:
                if self._copies.next() < env.peek():
                    now = self._copies.next()
                    continue
                yield self._sleep()
                continue
            count, events = self._waiting.pop(self._queue.popleft())
            seconds = self._turn_seconds + count * self._commit_seconds
            self._busy += seconds
            self._turns += 1
            self._commits += count
            now += seconds
            if events or now >= env.peek():
                yield env.timeout(now - env.now)
            for done in events:
                done.succeed()

    def _sleep(self) -> simpy.Event:
        """Return an event that occurs at the next commit or copy."""
        wake = self._wake = self._env.event()
        if self._copies.next() < math.inf:
            alarm = self._env.timeout(max(self._copies.next() - self._env.now, 0.0))
            assert alarm.callbacks is not None
            alarm.callbacks.append(lambda _: _occur(wake))
        return wake


def _occur(event: simpy.Event) -> None:
    if not event.triggered:
        event.succeed()

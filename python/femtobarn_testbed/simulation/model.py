"""A site at work: clients that open databases, read, compute and commit, at one load.

A sample of the site is simulated: as many servers as there are racks, each with its share of the clients,
one by one. What exists once, the catalogue, receives copies of their requests (`stations`); redirectors are
scaled down, and a rack's failure is that of one simulated server. A transaction's reads and writes are one
transfer, which its computation overlaps. A transfer takes the larger of its shares of a server's disks,
network and processors.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import simpy

from ..costs import Costs, Work, moved_bytes
from .site_file import ClientKind, Machines, SiteFile
from .stations import Link, Pool, Turns

__all__ = ["WHOLE", "LoadPoint", "Window", "disk_rate", "simulate"]

Events = Generator[simpy.Event, Any, None]

ASK_WAIT_SECONDS = 2.0
"""How long a redirector waits for a server that does not answer (docs/serving.md)."""


@dataclass(frozen=True)
class Window:
    """Seconds before the measured window, and its length."""

    warm_up_seconds: float = 60.0
    seconds: float = 90.0


WHOLE = Window()
"""The window from which figures are taken, unless a shorter one suffices."""


@dataclass
class LoadPoint:
    """The figures of a site at one load, per second of the whole site."""

    load: float
    clients: float
    rates: dict[str, float]
    """Commits, opens and bytes per second."""
    useful: dict[str, float]
    """By kind of client, the share of their time that goes into events, and not into waiting."""
    utilisation: dict[str, float]
    """Of each resource, the share of its time, or of its capacity."""
    latency: dict[str, dict[str, float | None]]
    """Of commits and opens: median and 99 % quantile, in seconds; None if there were none."""
    commits_per_turn: float
    failure: dict[str, float | None] = field(default_factory=dict)
    """Of a rack, if one failed."""


def simulate(
    site: SiteFile,
    costs: Costs,
    load: float,
    *,
    seed: int = 1,
    window: Window = WHOLE,
    rack_fails: bool = False,
) -> LoadPoint:
    """Simulate a load, a multiple of the site's clients. The same seed gives the same figures."""
    return _Site(site, costs, load, seed, window, rack_fails).run()


@dataclass
class _Server:
    """One simulated server."""

    transfers: Link
    """In seconds of its most used part."""
    processors: Pool
    failed: simpy.Event
    """Occurs when the server fails, for ever."""
    taken_over: float = math.inf
    """When other servers have its databases."""
    bytes: float = 0.0
    cpu_seconds: float = 0.0


def _zeros() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass
class _Seen:
    """The events within the window."""

    commits: list[float] = field(default_factory=list)
    opens: list[float] = field(default_factory=list)
    useful: defaultdict[str, float] = field(default_factory=_zeros)
    """Seconds of transactions by kind of client, as they would be without waits."""
    waited: defaultdict[str, float] = field(default_factory=_zeros)
    """Seconds beside these."""
    recovered: list[float] = field(default_factory=list)
    lost_seconds: float = 0.0


@dataclass(frozen=True)
class _Period:
    """A transaction of a kind of clients, or a database that is only read."""

    events: int
    seconds: float
    """Of computation, and of the client's processor for I/O."""
    bytes: float
    server_seconds: float
    commit_seconds: float
    """Of the server's processor; 0 without a commit."""
    demand: float
    """Seconds of the server's most used part."""
    periods_per_open: float


def disk_rate(machines: Machines) -> float:
    """Return the bytes per second of a server's disks, with a seek for each request."""
    each = machines.request_bytes / machines.disk_bytes_per_second + 1 / machines.disk_seeks_per_second
    return machines.disks * machines.request_bytes / each


def _period(site: SiteFile, kind: ClientKind, costs: Costs) -> _Period:
    machines, events = site.machines, kind.period_events
    commit: Work = {"commits": 1.0, "opened": float(kind.commit_containers)} if kind.commit_events else {}
    moved = events * moved_bytes(kind.work)
    cpu = events * costs.of("server", kind.work)
    parts = (
        moved / disk_rate(machines),
        moved / machines.network_bytes_per_second,
        cpu / machines.server_cores,
    )
    client = events * costs.of("client", kind.work) + costs.of("client", commit)
    least = moved / machines.client_bytes_per_second
    return _Period(
        events,
        max(events * kind.event_seconds + client, least),
        moved,
        cpu,
        costs.of("server", commit),
        max(parts),
        kind.open_events / events,
    )


class _Site:
    def __init__(
        self, site: SiteFile, costs: Costs, load: float, seed: int, window: Window, rack_fails: bool
    ) -> None:
        self.site, self.load, self.window = site, load, window
        self.machines, self.catalogue = site.machines, site.catalogue
        self.random, self.env, self.seen = Random(seed), simpy.Environment(), _Seen()
        self.weight = site.machines.rack_servers
        """Clients and servers that a simulated one stands for."""
        self.costs = costs
        number = max(round(site.machines.servers / self.weight), 1)
        self.servers = [self._server() for _ in range(number)]
        self.failing = self.servers[0] if rack_fails else None
        self._make_catalogue()
        machines = site.machines
        processors = max(round(machines.redirectors * machines.redirector_cores / self.weight), 1)
        self.redirectors = Pool(self.env, processors, self.random)

    def _server(self) -> _Server:
        processors = Pool(self.env, self.machines.server_cores, self.random)
        return _Server(Link(self.env, 1.0), processors, self.env.event())

    def _make_catalogue(self) -> None:
        """The catalogues of all federations. One's requests are its share of all, with copies of them."""
        have = self.catalogue
        self.orders = have.federations * have.partitions
        committers = have.gatherers or self.machines.servers
        copies = float(self.weight - 1)
        self.turns = [
            Turns(self.env, committers, have.turn_seconds, have.commit_seconds, self.random, copies=copies)
            for _ in range(self.orders)
        ]
        readers = self.orders * (1 + have.readers)
        polls = self.machines.servers / have.poll_seconds if have.poll_seconds else 0.0
        # Each federation has all servers; followers answer their part of the servers' polls.
        self.polling = polls * have.lookup_seconds / have.cores / (1 + have.readers)
        slowed = 1 / max(1 - self.polling, 0.01)
        self.lookups = [
            Pool(self.env, have.cores, self.random, copies=copies, slowed=slowed) for _ in range(readers)
        ]

    def run(self) -> LoadPoint:
        """Simulate, and return the figures of the window."""
        for kind in self.site.clients:
            period = _period(self.site, kind, self.costs)
            number = kind.count * self.load / self.weight
            # A fraction of a client is one by chance.
            for _ in range(int(number) + (self.random.random() < number % 1)):
                self.env.process(self._client(kind, period))
        self.env.run(until=self.window.warm_up_seconds)
        self.seen.commits.clear()
        self.seen.opens.clear()
        self.seen.useful.clear()
        self.seen.waited.clear()
        before = self._used()
        if self.failing is not None:
            self._fail(self.failing)
        self.env.run(until=self.window.warm_up_seconds + self.window.seconds)
        return self._point(before, self._used())

    # The processes of clients.

    def _client(self, kind: ClientKind, period: _Period) -> Events:
        """Repeat: open a database, then as many transactions as its events allow."""
        server, left = self._any_server(), self.random.random() * period.periods_per_open
        yield from self._transaction(kind, period, server, self.random.random())
        while True:
            if left < 1:
                server, left = self._any_server(), left + period.periods_per_open
                began = self.env.now
                yield from self._open(server)
                self.seen.waited[kind.name] += self.env.now - began
            left -= 1
            while not (yield from self._transaction(kind, period, server, 1.0)):
                failed = self.env.now
                server = yield from self._recover(server)
                self.seen.recovered.append(self.env.now - failed)

    def _any_server(self) -> _Server:
        """The server of any database, which may have failed, but not longer ago than its lease."""
        while True:
            server = self.random.choice(self.servers)
            if self.env.now < server.taken_over:
                return server

    def _open(self, server: _Server) -> Events:
        """Be redirected, open the file, and have the server look it up; the database's server may change."""
        began, machines, have = self.env.now, self.machines, self.catalogue
        lookups = have.lookups + (not machines.asked)
        yield self.env.timeout(self._redirect() + 2 * machines.round_trip_seconds)
        waited = server.processors.serve(machines.open_seconds)
        waited += self.random.choice(self.lookups).serve(lookups * have.lookup_seconds)
        yield self.env.timeout(waited + (1 + lookups) * machines.round_trip_seconds)
        self.seen.opens.append(self.env.now - began)

    def _redirect(self) -> float:
        machines = self.machines
        return self.redirectors.serve(machines.redirect_seconds + machines.asked * machines.ask_seconds)

    def _recover(self, server: _Server) -> Generator[simpy.Event, Any, _Server]:
        """Try again until another server has the databases of a failed one."""
        while self.env.now < server.taken_over:
            yield self.env.timeout(self._redirect() + ASK_WAIT_SECONDS)
            yield self.env.timeout(self.random.uniform(0.5, 1.5) * self.machines.retry_seconds)
        other = self._any_server()
        yield from self._open(other)
        return other

    def _transaction(
        self, kind: ClientKind, period: _Period, server: _Server, share: float
    ) -> Generator[simpy.Event, Any, bool]:
        """Read, compute, write and commit, or, at first, a share of that. Return whether it succeeded."""
        began = self.env.now
        if server.failed.triggered:
            return False
        yield server.transfers.move(share * period.demand)
        server.bytes += share * period.bytes
        server.cpu_seconds += share * period.server_seconds
        rest = began + share * period.seconds - self.env.now
        if rest > 0:
            done = self.env.timeout(rest)
            # Waiting for either takes longer to simulate.
            yield self.env.any_of([done, server.failed]) if server is self.failing else done
        if server.failed.triggered:
            self.seen.lost_seconds += self.env.now - began
            return False
        if kind.commit_events:
            yield from self._commit(period, server)
        # Transactions that were under way at the beginning count as whole ones: they end at the same rate.
        self.seen.useful[kind.name] += period.seconds
        self.seen.waited[kind.name] += self.env.now - began - share * period.seconds
        return True

    def _commit(self, period: _Period, server: _Server) -> Events:
        began, machines, have = self.env.now, self.machines, self.catalogue
        wait = server.processors.serve(period.commit_seconds)
        hops = 2 if have.gatherers else 1
        wait += machines.sync_seconds + (1 + hops) * machines.round_trip_seconds / 2
        yield self.env.timeout(wait)
        order = self.random.choice(self.turns)
        committer = self.random.randrange(have.gatherers or machines.servers)
        yield order.commit(committer)
        if self.orders > have.federations and self.random.random() < have.crossing:
            yield from self._commit_at_two(order, committer)
        yield self.env.timeout(have.after_seconds + (1 + hops) * machines.round_trip_seconds / 2)
        self.seen.commits.append(self.env.now - began)

    def _commit_at_two(self, first: Turns, committer: int) -> Events:
        """The second partition prepares, then both commit; the first one has prepared."""
        second = self.random.choice([one for one in self.turns if one is not first])
        yield second.commit(committer)
        yield self.env.all_of([first.commit(committer), second.commit(committer)])

    def _fail(self, server: _Server) -> None:
        server.failed.succeed()
        server.taken_over = self.env.now + self.machines.lease_seconds
        server.transfers.fail()

    # Figures.

    def _used(self) -> dict[str, float]:
        """Return the use so far, in seconds of all units of each resource."""
        have, machines = self.catalogue, self.machines
        number = len(self.servers)
        moved = sum(server.bytes for server in self.servers) / number
        cpu = sum(server.cpu_seconds + server.processors.busy() for server in self.servers) / number
        turns = [order.counts() for order in self.turns]
        return {
            "catalogue, order of commits": max(order.busy() for order in self.turns),
            "catalogue, look-ups": sum(pool.busy() for pool in self.lookups) / len(self.lookups) / have.cores,
            "servers' disks": moved / disk_rate(machines),
            "servers' network": moved / machines.network_bytes_per_second,
            "servers' CPU": cpu / machines.server_cores,
            "redirectors' CPU": self.redirectors.busy() / self._redirector_processors(),
            "bytes": moved * machines.servers,
            "turns": float(sum(one for one, _ in turns)),
            "commits": float(sum(commits for _, commits in turns)),
        }

    def _redirector_processors(self) -> float:
        machines = self.machines
        return machines.redirectors * machines.redirector_cores / self.weight

    def _point(self, before: dict[str, float], after: dict[str, float]) -> LoadPoint:
        seconds, seen, scale = self.window.seconds, self.seen, self.weight
        used = {name: (after[name] - before[name]) / seconds for name in after}
        moved, turns, commits = used.pop("bytes"), used.pop("turns"), used.pop("commits")
        opens = len(seen.opens) * scale / seconds
        used["catalogue, look-ups"] += self.polling
        # Servers answer redirectors' questions beside their work.
        asked = opens * min(self.machines.asked, self.machines.servers) / self.machines.servers
        used["servers' CPU"] += asked * self.machines.answer_seconds / self.machines.server_cores
        return LoadPoint(
            load=self.load,
            clients=self.site.number_of_clients * self.load,
            rates={
                "commits": len(seen.commits) * scale / seconds,
                "opens": opens,
                "bytes": moved,
            },
            useful={name: one / (one + seen.waited[name]) for name, one in seen.useful.items()},
            utilisation={name: min(share, 1.0) for name, share in used.items()},
            latency={"commit": _quantiles(seen.commits), "open": _quantiles(seen.opens)},
            commits_per_turn=commits / turns if turns else 0.0,
            failure=self._failure() if self.failing else {},
        )

    def _failure(self) -> dict[str, float | None]:
        recovered = _quantiles(self.seen.recovered)
        return {
            "clients": len(self.seen.recovered) * self.weight,
            "median_seconds": recovered["median"],
            "p99_seconds": recovered["p99"],
            "lost_seconds": self.seen.lost_seconds * self.weight,
        }


def _quantiles(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"median": None, "p99": None}
    median, high = np.quantile(values, [0.5, 0.99])
    return {"median": float(median), "p99": float(high)}

"""The rate of a measured scenario, predicted by simulation: clients that wait for cores and disks.

Each client is simulated, one pass through its loop after the other. Computation, unless real, and waiting
for answers take no core. The cores are one link, whose transfers are CPU seconds; each simulated disk is
one, whose transfers are its seconds. A client's disk works ahead with read-ahead and behind writes, and
else it is waited for. With several servers a pass is read from the one with the fewest transfers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from random import Random
from typing import Any

import simpy

from ..costs import Costs, moved_bytes, work_of
from ..prediction import disk_seconds
from ..scenario import Kind, Scenario
from .stations import Link

__all__ = ["queued_throughput"]

PASSES = 30
"""Passes of a client, on average, after as many for warming up."""

BUSY_STEPS = 3
"""Simulations, each with the CPU costs that the one before it leads to."""


@dataclass(frozen=True)
class _Pass:
    """A pass of a kind of clients."""

    computing: float
    cpu: float
    """Of client and server, computation included if it is real."""
    elapsed: float
    """Seconds of a client alone, without computation."""
    disk: float
    bytes: float
    reads_ahead: bool


def queued_throughput(costs: Costs, scenario: Scenario, clients: int, cores: int) -> tuple[float, str]:
    """Return the bytes per second that the clients reach together, and the most used resource."""
    busy, rate, limit = 0.0, 0.0, ""
    for _ in range(BUSY_STEPS):
        rate, used = _Machine(costs, scenario, clients, cores, busy).run()
        busy = min(used["CPU"] * costs.usable, 1.0)
        limit = max(used, key=lambda name: used[name])
        limit = limit if used[limit] > 0.5 else "time of a client"
        if not costs.contention:
            break
    return rate, limit


class _Machine:
    def __init__(self, costs: Costs, scenario: Scenario, clients: int, cores: int, busy: float) -> None:
        self.env, self.random = simpy.Environment(), Random(1)
        self.scenario, self.clients = scenario, clients
        self.cores = Link(self.env, cores * costs.usable)
        disks = scenario.simulation.disks
        self.disks = [
            [Link(self.env, 1.0) for _ in range(disks.count if disks else 0)]
            for _ in range(scenario.simulation.servers_with_disks)
        ]
        self.passes = {
            kind.name: _pass(costs, scenario, kind, clients, costs.growth(busy)) for kind in scenario.kinds
        }
        self.bytes = 0.0

    def run(self) -> tuple[float, dict[str, float]]:
        """Return the bytes per second, and the used shares of cores and disks."""
        kinds = [self.scenario.kind_of(number) for number in range(self.clients)]
        alone = max(self.passes[kind.name].computing + self.passes[kind.name].elapsed for kind in kinds)
        work = sum(self.passes[kind.name].cpu for kind in kinds)
        window = PASSES * max(alone, work / self.clients, 1e-6)
        for number, kind in enumerate(kinds):
            self.env.process(self._client(number, self.passes[kind.name]))
        self.env.run(until=window)
        links = [link for server in self.disks for link in server]
        before = self.bytes, self.cores.served(), sum(link.served() for link in links)
        self.env.run(until=2 * window)
        used = {"CPU": (self.cores.served() - before[1]) / window / self.cores.capacity}
        if links:
            used["disks"] = (sum(link.served() for link in links) - before[2]) / window / len(links)
        return (self.bytes - before[0]) / window, used

    def _client(self, number: int, each: _Pass) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self.random.random() * (each.computing + each.elapsed))
        ahead: simpy.Event | None = None
        while True:
            ready, ahead = ahead, self._read_disk(number, each)
            waited = ready if each.reads_ahead else ahead
            if waited is not None:
                yield waited
            began = self.env.now
            if each.computing:
                yield self.env.timeout(each.computing)
            if each.cpu:
                yield self.cores.move(each.cpu)
            rest = began + each.computing + each.elapsed - self.env.now
            if rest > 0:
                yield self.env.timeout(rest)
            self.bytes += each.bytes

    def _read_disk(self, number: int, each: _Pass) -> simpy.Event | None:
        """Begin the pass's transfers at a disk of the server with the fewest."""
        if not each.disk:
            return None
        link = min((server[number % len(server)] for server in self.disks), key=lambda link: link.number)
        return link.move(each.disk)


def _pass(costs: Costs, scenario: Scenario, kind: Kind, clients: int, growth: float) -> _Pass:
    work = work_of(scenario, kind)
    computing = sum(step.seconds for step in kind.loop) / scenario.simulation.compression
    is_real = scenario.simulation.computation == "real"
    cpu = (costs.of("client", work) + costs.of("server", work)) * growth
    return _Pass(
        computing=0.0 if is_real else computing,
        cpu=cpu + computing * is_real,
        elapsed=costs.of("elapsed", work) + computing * is_real,
        disk=disk_seconds(scenario, kind, clients),
        bytes=moved_bytes(work),
        reads_ahead=scenario.open.get("read_ahead_bytes", 1) != 0 or not work["read_bytes"],
    )

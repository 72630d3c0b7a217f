"""Runs a workload. Each point (a variant with a number of clients) has a new federation and a window.

Rates, and seconds of computation, are in the workload's own time: with compressed time a rate is the clock's
divided by the compression. Latencies and the use of resources are by the clock.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import femtobarn as fb

from . import site
from .client import SERIES_SECONDS, Assignment, Outcome
from .client_pool import ClientPool, client_pool
from .data import prepare
from .memcached import Memcached, run_memcached
from .recorder import merge, quantile
from .resources import Counters, machine, read_counters, resident_bytes, usage_between
from .results import FORMAT, source_commit
from .scenario import Kind, Scenario
from .site import Site
from .sources import merge_sources
from .streams import prepare_stream
from .studies import Study
from .verdict import judge, knee
from .workload import Workload

__all__ = ["Keep", "Progress", "run"]

Progress = Callable[[str], None]
"""Receives a line about the step that is running."""

Keep = Callable[[dict[str, Any]], object]
"""Receives the run after each point, with all points so far."""

MOVING = ("read", "transaction", "select")
"""Operations whose amounts are payload. Written payload counts over the time of its transaction."""

WHOLE = ("event", "transaction")
"""Operations that contain other operations."""


def run(
    workload: Workload,
    *,
    scratch: Path,
    variants: Sequence[str] = (),
    seed: int = 1,
    before: str | None = None,
    progress: Progress = lambda _: None,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:
    """Run a workload, and return the run as :mod:`femtobarn_testbed.results` describes it.

    Parameters
    ----------
    scratch
        Folder for federations, which are removed again. Its disk is measured where none is simulated.
    variants
        Names of variants; all if empty.
    seed
        Of all random numbers.
    before
        A shell command, run at each point once its data are written and before its clients start. Studies
        do not run it.
    progress
        Receives lines about the progress.
    keep
        Receives the run after each point, so that its points are kept if a later one fails.

    Raises
    ------
    UnavailableError
        If a client, a server or the command fails; the text has the reason.
    """
    if workload.study is not None:
        return _run_study(workload, workload.study, scratch, variants, seed, progress, keep)
    chosen = [workload.scenario(name) for name in variants] or list(workload.scenarios)
    started = datetime.now(UTC)
    done = _origin(workload, seed, started) | {
        "before": before,
        "played": {scenario.name: _simulation(scenario) for scenario in chosen},
        "points": [],
        "knees": {},
    }
    for scenario in chosen:
        points = []
        for clients in scenario.sweep.clients:
            label = f"{scenario.name}, {clients} client{'s' * (clients > 1)}"
            point = _Point(scenario, clients, scratch, seed, before, _at(label, progress))
            points.append(point.measure())
            progress(f"{label}: {_line(points[-1])}")
            done["points"].append(points[-1])
            done["knees"][scenario.name] = knee(points)
            done["seconds"] = (datetime.now(UTC) - started).total_seconds()
            keep(done)
    return done


def _origin(workload: Workload, seed: int, started: datetime) -> dict[str, Any]:
    """The members of a run that record its origin."""
    return {
        "format": FORMAT,
        "workload": workload.name,
        "title": workload.title,
        "paper": workload.paper,
        "about": workload.about,
        "started": started.isoformat(timespec="seconds"),
        "machine": machine(),
        "femtobarn": {"version": fb.__version__, "commit": source_commit()},
        "seed": seed,
        "parameters": workload.raw,
    }


def _run_study(
    workload: Workload,
    study: Study,
    scratch: Path,
    variants: Sequence[str],
    seed: int,
    progress: Progress,
    keep: Keep,
) -> dict[str, Any]:
    """Run a study; each of its cases is kept when it was measured."""
    chosen = [workload.case(name) for name in variants] or list(workload.cases)
    started = datetime.now(UTC)
    done = _origin(workload, seed, started) | {study.facts: {}, "points": []}
    folder = scratch / study.package
    try:
        for name, facts, points in study.measure(chosen, folder, seed, progress):
            done[study.facts][name] = facts
            done["points"] += points
            done["seconds"] = (datetime.now(UTC) - started).total_seconds()
            keep(done)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done


def _at(label: str, progress: Progress) -> Progress:
    return lambda text: progress(f"{label}: {text}")


def _simulation(scenario: Scenario) -> dict[str, Any]:
    """The simulated parts of a variant, and the upper bounds of its rates."""
    ideal = [scenario.ideal_bytes_per_second(kind) for kind in scenario.kinds]
    return asdict(scenario.simulation) | {
        "raw_bytes_per_second": scenario.raw_bytes_per_second,
        "ideal_bytes_per_second_per_client": ideal[0] if len(ideal) == 1 else None,
    }


def _line(point: dict[str, Any]) -> str:
    rate, efficiency = point["throughput"]["bytes_per_second"], point["efficiency"]
    computing = "" if efficiency is None else f", computing {efficiency:.0%}"
    return f"{rate / 1e6:.4g} MB/s, {point['throughput']['events_per_second']:.4g} events/s{computing}; " + (
        f"limit: {point['verdict']['limit']} ({point['verdict']['evidence']})"
    )


@dataclass(frozen=True)
class _Observation:
    """All counters at one end of the window."""

    counters: Counters
    servers: list[dict[str, Any]]


class _Point:
    """One variant with one number of clients."""

    def __init__(
        self,
        scenario: Scenario,
        clients: int,
        scratch: Path,
        seed: int,
        before: str | None,
        progress: Progress,
    ) -> None:
        self.scenario, self.clients, self.seed = scenario, clients, seed
        self.before, self.progress = before, progress
        self.folder = scratch / "testbed"
        self.observations: list[_Observation] = []
        self.memcached: Memcached | None = None

    def measure(self) -> dict[str, Any]:
        """Set up the federation, run the clients, and return the figures."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            with ExitStack() as stack:
                sites = [[stack.enter_context(one) for one in self._sites(kinds)] for kinds in self._shares()]
                memory = self.scenario.simulation.memcached_bytes
                self.memcached = stack.enter_context(run_memcached(memory, self.folder))
                self._prepare_machine()
                pool = stack.enter_context(client_pool(self.scenario.sweep.start))
                return self._measure_window(sites, pool)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _prepare_machine(self) -> None:
        if self.before is None:
            return
        self.progress(f"running {self.before}")
        done = subprocess.run(self.before, shell=True, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = done.stderr.strip() or "no output on standard error"
            raise fb.UnavailableError(f"{self.before!r} ended with {done.returncode}: {message}")

    def _shares(self) -> list[tuple[Kind, ...]]:
        """For each federation, the kinds of clients that share it."""
        kinds = self.scenario.kinds
        return [(kind,) for kind in kinds] if self.scenario.simulation.federations == "each" else [kinds]

    def _sites(self, kinds: tuple[Kind, ...]) -> Sequence[AbstractContextManager[Site]]:
        """Create a federation with the initial data that these kinds of clients need, and its servers."""
        folder = self.folder / f"{kinds[0].name}.fed"
        needed = tuple(
            data
            for data in self.scenario.data
            if any(step.target.startswith(f"{data.database}/") for kind in kinds for step in kind.loop)
        )
        with fb.create(folder) as federation:
            total = 0
            for size in prepare(federation, replace(self.scenario, data=needed), self.clients):
                total += size
                self.progress(f"preparing data, {total / 1e6:,.0f} MB")
            if self.scenario.stream is not None:
                disks = self.scenario.simulation.disks
                place = disks.name(0) if disks else None
                for size in prepare_stream(federation, self.scenario.stream, self.folder, place):
                    total += size
                    self.progress(f"preparing data, {total / 1e6:,.0f} MB")
        return site.open_sites(folder, self.scenario)

    def _measure_window(self, groups: list[list[Site]], pool: ClientPool) -> dict[str, Any]:
        """Measure with the servers of each federation."""
        self._start(groups, pool)
        sites = [one for group in groups for one in group]
        self.progress("warming up")
        time.sleep(self.scenario.sweep.warm_up_seconds)
        servers = [one.pid for one in (*sites, self.memcached) if one is not None and one.pid is not None]
        memory = {"server": resident_bytes(servers), "clients": resident_bytes(pool.pids)}
        self.progress("measuring")
        window = self.scenario.sweep.window_seconds
        pool.open_window(window, lambda: self._observe(sites, [*servers, *pool.pids]))
        pids = pool.pids
        self.progress("ending")
        outcomes = pool.outcomes()
        point = self._figures(outcomes, window)
        point["start"] = pool.starts
        point["resources"] = self._resources(servers, pids) | {"memory_bytes": memory}
        point["verdict"] = judge(point, machine()["cores"])
        return point

    def _start(self, groups: list[list[Site]], pool: ClientPool) -> None:
        locations = {
            kind.name: tuple(one.location for one in group)
            for kinds, group in zip(self._shares(), groups, strict=True)
            for kind in kinds
        }
        assignments = []
        for number in range(self.clients):
            kind = self.scenario.kind_of(number)
            where = locations[kind.name]
            memcached = self.memcached.address if self.memcached else ""
            assignments.append(
                Assignment(self.scenario, kind, number, where, self.seed, self.folder, memcached)
            )
        for first in range(0, self.clients, self.scenario.sweep.batch):
            self.progress(f"{first} clients are running")
            pool.add(assignments[first : first + self.scenario.sweep.batch])

    def _observe(self, sites: list[Site], pids: list[int]) -> None:
        self.observations.append(_Observation(read_counters(pids), [one.status() for one in sites]))

    def _figures(self, outcomes: list[Outcome], window: float) -> dict[str, Any]:
        """The figures of all clients together, and of each."""
        compression = self.scenario.simulation.compression
        operations = merge(outcome.operations for outcome in outcomes)
        of_kind = {
            kind.name: _rates([o for o in outcomes if o.kind == kind.name], window * compression)
            for kind in self.scenario.kinds
        }
        share = {name: one["seconds"] / (window * self.clients) for name, one in operations.items()}
        for name in WHOLE:
            share.pop(name, None)
        computed = operations.get("compute", {}).get("amount", 0.0) / (window * self.clients)
        for one in operations.values():
            one["median"], one["p99"] = quantile(one["histogram"], 0.5), quantile(one["histogram"], 0.99)
        return {
            "variant": self.scenario.name,
            "settings": dict(self.scenario.settings),
            "clients": self.clients,
            "window_seconds": window,
            "throughput": _rates(outcomes, window * compression),
            "kinds": of_kind,
            "efficiency": computed if "compute" in operations else None,
            "time_shares": share,
            "operations": operations,
            "read_from": merge_sources(outcome.sources for outcome in outcomes),
            "each_client": [_client_row(outcome) for outcome in outcomes],
            "series": {
                "step_seconds": SERIES_SECONDS,
                "bytes": [sum(step) for step in zip(*(outcome.series for outcome in outcomes), strict=True)],
            },
        }

    def _resources(self, servers: list[int], clients: list[int]) -> dict[str, Any]:
        first, last = self.observations
        used = asdict(usage_between(first.counters, last.counters, servers, clients))
        pairs = list(zip(first.servers, last.servers, strict=True))
        return used | {
            "disks": [disk for before, after in pairs for disk in _disks(before, after, used["seconds"])],
            "server_totals": [_totals(before, after) for before, after in pairs],
        }


def _rates(outcomes: Sequence[Outcome], seconds: float) -> dict[str, float]:
    """The rates of some clients together, per second of the workload's time."""
    total = merge(outcome.operations for outcome in outcomes)

    def amount(*kinds: str) -> float:
        return float(sum(total[kind]["amount"] for kind in kinds if kind in total)) / seconds

    def count(kind: str) -> float:
        return float(total[kind]["count"]) / seconds if kind in total else 0.0

    return {
        "bytes_per_second": amount(*MOVING),
        "read_bytes_per_second": amount("read", "select"),
        "written_bytes_per_second": amount("transaction"),
        "objects_per_second": count("read") + count("write"),
        "events_per_second": amount("event"),
        "tags_per_second": amount("tags"),
        "commits_per_second": count("commit"),
        "pairs_per_second": count("drop"),
    }


def _client_row(outcome: Outcome) -> dict[str, Any]:
    moved = {kind: outcome.operations[kind]["amount"] for kind in MOVING if kind in outcome.operations}
    events = outcome.operations.get("event", {}).get("count", 0)
    return {"client": outcome.number, "kind": outcome.kind, "bytes": moved, "events": events}


def _disks(before: dict[str, Any], after: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """The use of a server's simulated disks, as shares of the time and as rates."""
    earlier = {disk["name"]: disk for disk in before.get("disks", [])}
    rows = []
    for disk in after.get("disks", []):
        then = earlier.get(disk["name"], {})
        moved = {name: disk[name] - then.get(name, 0) for name in disk if name != "name"}
        rows.append(
            {
                "name": disk["name"],
                "busy": moved["busy_seconds"] / seconds,
                "seeking": moved["seek_seconds"] / seconds,
                "seeks_per_second": moved["seeks"] / seconds,
                "bytes_per_second": (moved["bytes_read"] + moved["bytes_written"]) / seconds,
            }
        )
    return rows


def _totals(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """The growth of a server's totals."""
    then, now = before.get("totals", {}), after.get("totals", {})
    return {name: now[name] - then.get(name, 0) for name in now}

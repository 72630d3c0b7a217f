"""The cost of work on a machine: CPU seconds and elapsed time per object, byte, link, container and commit.

Each point of a profile gives one equation for each of three resources: counts of work, times their costs, add
up to the measured seconds. The costs minimise the squares of the relative errors, and are never negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from femtobarn import InvalidError

from .scenario import Kind, Scenario, Step
from .workload import scenarios_of

__all__ = ["RESOURCES", "TERMS", "Costs", "Work", "between_computations", "fit", "predict", "work_of"]

TERMS = {
    "appended": "object written one by one",
    "appended_bytes": "byte of such an object",
    "appended_links": "link of such an object",
    "extended": "object written in bulk",
    "extended_bytes": "byte of such an object",
    "extended_links": "link of such an object",
    "commits": "commit",
    "opened": "container that a transaction writes to",
    "read": "object read in order",
    "read_bytes": "byte read",
    "tags": "tag evaluated",
    "selected": "object selected by a tag",
    "pauses": "computation between objects",
    "cold_read_bytes": "byte read between computations",
    "cold_written_bytes": "byte written between computations",
}
"""The terms of work, and their names for readers."""

RESOURCES = {"client": "client CPU", "server": "server CPU", "elapsed": "time of a client alone"}

Work = dict[str, float]
"""The count of each of :data:`TERMS`. The last three are additional costs of bytes counted before."""


@dataclass(frozen=True)
class Costs:
    """Seconds of each resource by term."""

    seconds: Mapping[str, Mapping[str, float]]

    def of(self, resource: str, work: Work) -> float:
        """Return the seconds of a resource that some work takes.

        Raises
        ------
        InvalidError
            If the profile has no work of one of these terms.
        """
        known = self.seconds[resource]
        for term, count in work.items():
            if count and term not in known:
                raise InvalidError(f"the profile has no variant that gives the cost of {term}")
        return sum(count * known[term] for term, count in work.items() if count)


def work_of(scenario: Scenario, kind: Kind) -> Work:
    """Return the work of one pass through a client's loop."""
    work = dict.fromkeys(TERMS, 0.0)
    for step in kind.loop:
        size = (step.size or scenario.size_of(step.target)) // 4 * 4
        for term, count in _work_of_step(scenario, step, size).items():
            work[term] += count
    if kind.writes:
        work["commits"] = 1 / kind.commit.events
        containers = {step.target for step in kind.loop if step.action == "write"}
        work["opened"] = len(containers) / kind.commit.events
    pauses = _pauses(kind)
    return between_computations(work, pauses) if pauses else work


def between_computations(work: Work, pauses: float) -> Work:
    """Add to some work the pauses in which the client computes, after which its I/O finds cold CPU caches."""
    written = work["appended_bytes"] + work["extended_bytes"]
    return work | {
        "pauses": pauses,
        "cold_read_bytes": work["read_bytes"],
        "cold_written_bytes": written,
    }


def _pauses(kind: Kind) -> float:
    """The number of times that a client computes, or sleeps instead, in a pass."""
    computing = [step for step in kind.loop if step.seconds]
    if not (computing and kind.interleave):
        return float(len(computing))
    working = [step for step in kind.loop if step.action != "compute"]
    actions = sum(1 if step.bulk or step.action == "select" else step.objects for step in working)
    return float(math.ceil(actions / kind.interleave))


def _work_of_step(scenario: Scenario, step: Step, size: int) -> Work:
    if step.action == "write":
        how = "extended" if step.bulk else "appended"
        links = step.objects * len(step.links)
        return {how: step.objects, f"{how}_bytes": step.objects * size, f"{how}_links": links}
    if step.action == "read":
        return {"read": step.objects, "read_bytes": step.objects * size}
    if step.action == "select":
        chosen = step.objects * step.fraction
        each = scenario.size_of(step.target, of_tagged=True)
        return {"tags": step.objects, "selected": chosen, "read_bytes": chosen * each}
    if step.action == "pair":
        raise InvalidError(
            f"{scenario.name}: profiles do not have the cost of creating and dropping databases"
        )
    return {}


def moved_bytes(work: Work) -> float:
    """Return the payload bytes of some work."""
    return work["appended_bytes"] + work["extended_bytes"] + work["read_bytes"]


def fit(runs: Iterable[Mapping[str, Any]]) -> Costs:
    """Return the costs that fit the points of some runs best.

    Raises
    ------
    InvalidError
        If there are fewer points than terms of work in them.
    """
    works: list[Work] = []
    spent: list[dict[str, float]] = []
    for run in runs:
        scenarios = scenarios_of(run)
        for point in run["points"]:
            scenario = scenarios[point["variant"]]
            works.append(total_work(scenario, point))
            spent.append(_spent(scenario, point))
    terms = [term for term in TERMS if any(work[term] for work in works)]
    if len(works) < len(terms):
        raise InvalidError(
            f"a profile needs at least {len(terms)} points to fit {len(terms)} costs, and has {len(works)}"
        )
    table = np.array([[work[term] for term in terms] for work in works])
    seconds = {name: _solved(table, np.array([one[name] for one in spent])) for name in RESOURCES}
    return Costs({name: dict(zip(terms, found, strict=True)) for name, found in seconds.items()})


def total_work(scenario: Scenario, point: Mapping[str, Any]) -> Work:
    """Return the work that all clients of a point did within its window."""
    total = dict.fromkeys(TERMS, 0.0)
    for kind in scenario.kinds:
        work, passes = work_of(scenario, kind), passes_of(scenario, kind, point)
        for term in total:
            total[term] += work[term] * passes
    return total


def passes_of(scenario: Scenario, kind: Kind, point: Mapping[str, Any]) -> float:
    """Return the number of passes of a kind's clients: by their payload where the loop has any, since a long
    pass can be mostly inside the window and end outside."""
    rows = [row for row in point["each_client"] if row["kind"] == kind.name]
    each = moved_bytes(work_of(scenario, kind))
    if each and not any(step.action == "select" for step in kind.loop):
        return float(sum(sum(row["bytes"].values()) for row in rows) / each)
    return float(sum(row["events"] for row in rows))


def _spent(scenario: Scenario, point: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each resource that a point used, without computation."""
    window, used = point["window_seconds"], point["resources"]
    computed = point["operations"].get("compute", {}).get("seconds", 0.0)
    real = scenario.simulation.computation == "real"
    return {
        "client": max(used["client_cores"] * window - computed * real, 0.0),
        "server": used["server_cores"] * window,
        "elapsed": max(point["clients"] * window - computed, 0.0),
    }


def _solved(table: Any, seconds: Any) -> list[float]:
    """Least squares of the relative errors; negative costs are fixed at zero, the most negative first."""
    known = seconds > 0
    rows = table[known] / seconds[known, None]
    scale = np.maximum(np.abs(rows).max(axis=0, initial=0.0), 1e-300)
    free = list(range(table.shape[1]))
    found = np.zeros(table.shape[1])
    while free:
        part, *_ = np.linalg.lstsq(rows[:, free] / scale[free], np.ones(len(rows)), rcond=None)
        if part.min() >= -1e-12:
            found[free] = np.maximum(part, 0.0) / scale[free]
            break
        free.pop(int(part.argmin()))
    return [float(value) for value in found]


def predict(costs: Costs, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each point of a run the measured figures, the predicted ones, and the relative errors.

    CPU is that of clients and servers without computation, at the measured rate; throughput is limited by the
    costs, the machine's cores and the simulated disks.
    """
    scenarios = scenarios_of(run)
    return [_predicted(costs, scenarios[p["variant"]], p, run["machine"]["cores"]) for p in run["points"]]


def _predicted(costs: Costs, scenario: Scenario, point: Mapping[str, Any], cores: int) -> dict[str, Any]:
    window, work = point["window_seconds"], total_work(scenario, point)
    spent = _spent(scenario, point)
    measured_cores = (spent["client"] + spent["server"]) / window
    predicted_cores = (costs.of("client", work) + costs.of("server", work)) / window
    rate = moved_bytes(work) / window
    predicted_rate, limit = _throughput(costs, scenario, point["clients"], cores)
    return {
        "variant": point["variant"],
        "clients": point["clients"],
        "cores": measured_cores,
        "predicted_cores": predicted_cores,
        "cores_error": _error(predicted_cores, measured_cores),
        "bytes_per_second": rate,
        "predicted_bytes_per_second": predicted_rate,
        "bytes_error": _error(predicted_rate, rate),
        "predicted_limit": limit,
    }


def _throughput(costs: Costs, scenario: Scenario, clients: int, cores: int) -> tuple[float, str]:
    """Bytes per second that the clients reach together, and the resource that limits them."""
    speed = scenario.simulation.compression
    alone = busy = moved = 0.0
    for number in range(clients):
        kind = scenario.kind_of(number)
        work = work_of(scenario, kind)
        computing = sum(step.seconds for step in kind.loop) / speed
        seconds = computing + costs.of("elapsed", work)
        used = costs.of("client", work) + costs.of("server", work)
        used += computing * (scenario.simulation.computation == "real")
        alone += moved_bytes(work) / seconds
        busy += used / seconds
        moved = alone
    limits = {"time of a client": moved, "CPU": moved * cores / busy if busy else moved}
    if scenario.raw_bytes_per_second:
        limits["disks"] = scenario.raw_bytes_per_second * speed
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit


def _error(predicted: float, measured: float) -> float | None:
    return predicted / measured - 1 if measured else None

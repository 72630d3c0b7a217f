"""The cost of work on a machine: CPU seconds and elapsed time per object, byte, link, container and commit.

Each point of a profile gives one equation for each of three resources: counts of work, times their costs, add
up to the measured seconds. The costs minimise the squares of the relative errors, and are never negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from femtobarn import InvalidError

from .scenario import Kind, Scenario, Step
from .workload import scenarios_of

__all__ = [
    "RESOURCES",
    "TERMS",
    "Costs",
    "Work",
    "between_computations",
    "fit",
    "spent_of",
    "total_work",
    "work_of",
]

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
    "fetched": "object read without read-ahead",
    "tags": "tag evaluated",
    "selected": "object selected by a tag",
    "kept_bytes": "byte selected that the client's memory has",
    "pauses": "computation between objects",
    "cold_read_bytes": "byte read between computations",
    "cold_written_bytes": "byte written between computations",
    "disk_bytes": "byte through a simulated disk",
}
"""The terms of work, and their names for readers."""

RESOURCES = {"client": "client CPU", "server": "server CPU", "elapsed": "time of a client alone"}

CACHE_BYTES = 256 << 20
"""Default of a client's memory for pages (docs/api.md)."""

PAGE_BYTES = 65_536
"""Default of a page (docs/settings.md)."""

SMALL_BYTES = 8_192
"""Size of objects below which a selection reads their whole pages."""

Work = dict[str, float]
"""The count of each of :data:`TERMS`. The last four are additional costs of bytes counted before."""


@dataclass(frozen=True)
class Costs:
    """Seconds of each resource by term, on an idle machine, and how they grow on a busy one."""

    seconds: Mapping[str, Mapping[str, float]]
    contention: float = 0.0
    """CPU seconds grow by this share of themselves when all cores are in use, since cores share memory."""
    usable: float = 1.0
    """Largest share of the cores that clients and servers use together."""

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

    def growth(self, busy: float) -> float:
        """Return the factor by which CPU seconds grow when this share of the cores is in use."""
        return 1 + self.contention * busy


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
    if scenario.simulation.disks is not None and scenario.simulation.disks.is_slow:
        work["disk_bytes"] = moved_bytes(work) - work["kept_bytes"]
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
        # Each object is a request of its own then.
        fetched = step.objects if scenario.open.get("read_ahead_bytes") == 0 else 0
        return {"read": step.objects, "read_bytes": step.objects * size, "fetched": fetched}
    if step.action == "select":
        chosen = step.objects * step.fraction
        each = scenario.size_of(step.target, of_tagged=True)
        work = {"tags": float(step.objects)}
        if _keeps_selected(scenario, step):
            return work | {"kept_bytes": chosen * each}
        return work | {"selected": chosen, "read_bytes": chosen * each}
    if step.action == "pair":
        raise InvalidError(
            f"{scenario.name}: profiles do not have the cost of creating and dropping databases"
        )
    return {}


def _keeps_selected(scenario: Scenario, step: Step) -> bool:
    """Whether all that a selection finds in its container, again and again, stays in a client's memory.

    Of small objects that are whole pages.
    """
    found = scenario.objects_of(step.target) * step.fraction
    each = scenario.size_of(step.target, of_tagged=True)
    memory: float = scenario.open.get("cache_bytes", CACHE_BYTES)
    return found * (PAGE_BYTES if each < SMALL_BYTES else each) <= memory


def moved_bytes(work: Work) -> float:
    """Return the payload bytes of some work."""
    return work["appended_bytes"] + work["extended_bytes"] + work["read_bytes"] + work["kept_bytes"]


def fit(runs: Iterable[Mapping[str, Any]]) -> Costs:
    """Return the costs that fit the points of some runs best.

    Raises
    ------
    InvalidError
        If there are fewer points than terms of work in them.
    """
    points = [one for run in runs for one in _equations(run)]
    terms = [term for term in TERMS if any(one.work[term] for one in points)]
    if len(points) < len(terms):
        raise InvalidError(
            f"a profile needs at least {len(terms)} points to fit {len(terms)} costs, and has {len(points)}"
        )
    shares = [one.busy for one in points]
    # On a machine that was always busy, the costs are those of a busy one.
    tells = max(shares) - min(shares) > TELLING_SHARE
    contentions = CONTENTIONS if tells else [0.0]
    contention = min(contentions, key=lambda growth: _cpu_costs(points, terms, growth)[1])
    seconds, _ = _cpu_costs(points, terms, contention)
    # The times of clients that wait for a core do not show the time of a client alone.
    alone = [one for one in points if not one.is_saturated]
    seconds["elapsed"], _ = _solved(*_table(alone, terms, "elapsed"))
    quiet = [one for one in points if one.is_saturated and one.busy - one.busy_here < TELLING_SHARE]
    usable = max((one.busy_here for one in quiet), default=1.0)
    by_term = {name: dict(zip(terms, seconds[name], strict=True)) for name in RESOURCES}
    return Costs(by_term, contention, min(usable, 1.0))


CONTENTIONS = [0.05 * number for number in range(31)]
"""Values among which the growth of CPU seconds on a busy machine is looked for."""

TELLING_SHARE = 0.25
"""Share of the cores by which their use must differ to show that growth, and that other programs may use."""


@dataclass(frozen=True)
class _Equation:
    """A point of a profile: its work takes the seconds that were measured."""

    work: Work
    spent: Mapping[str, float]
    busy: float
    """Share of the machine's cores in use."""
    busy_here: float
    """Share of the cores that clients and servers used."""
    is_saturated: bool
    """Whether many clients ran without computation."""


def _equations(run: Mapping[str, Any]) -> Iterator[_Equation]:
    scenarios, cores = scenarios_of(run), run["machine"]["cores"]
    for point in run["points"]:
        scenario, used = scenarios[point["variant"]], point["resources"]
        here = used["client_cores"] + used["server_cores"]
        computes = any(step.seconds for kind in scenario.kinds for step in kind.loop)
        yield _Equation(
            total_work(scenario, point),
            spent_of(scenario, point),
            min(used.get("machine_cores", here) / cores, 1.0),
            here / cores,
            point["clients"] > 1 and not computes,
        )


def _table(points: Sequence[_Equation], terms: Sequence[str], resource: str) -> tuple[Any, Any]:
    table = np.array([[one.work[term] for term in terms] for one in points])
    return table, np.array([one.spent[resource] for one in points])


def _cpu_costs(
    points: Sequence[_Equation], terms: Sequence[str], contention: float
) -> tuple[dict[str, list[float]], float]:
    """The CPU costs on an idle machine, if they grow so on a busy one, and the error that is left."""
    growth, found, error = np.array([1 + contention * one.busy for one in points]), {}, 0.0
    for resource in ("client", "server"):
        table, seconds = _table(points, terms, resource)
        found[resource], left = _solved(table * growth[:, None], seconds)
        error += left
    return found, error


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


def spent_of(scenario: Scenario, point: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each resource that a point used, without computation."""
    window, used = point["window_seconds"], point["resources"]
    computed = point["operations"].get("compute", {}).get("seconds", 0.0)
    real = scenario.simulation.computation == "real"
    return {
        "client": max(used["client_cores"] * window - computed * real, 0.0),
        "server": used["server_cores"] * window,
        "elapsed": max(point["clients"] * window - computed, 0.0),
    }


def _solved(table: Any, seconds: Any) -> tuple[list[float], float]:
    """Least squares of the relative errors, and their sum; negative costs become zero, the least first."""
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
    return [float(value) for value in found], float(np.square(rows @ found - 1).sum())

"""Predictions of measured runs from costs, to judge how far plans can be trusted.

CPU seconds are those of clients and servers without computation. They grow while the cores are busy
(:attr:`~femtobarn_testbed.costs.Costs.contention`), and the cores are busy because of them and of other
programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .costs import PAGE_BYTES, Costs, moved_bytes, spent_of, total_work, work_of
from .scenario import Kind, Scenario
from .workload import scenarios_of

__all__ = ["Throughput", "bounded_throughput", "disk_seconds", "predict"]

Throughput = Callable[[Costs, Scenario, int, int], tuple[float, str]]
"""Returns the bytes per second that clients reach together, and the resource that limits them, from costs, a
scenario, the number of clients, and the machine's cores."""

WRITE_BYTES = 8 << 20
"""Sent at once by a transaction at a server."""


def predict(
    costs: Costs, run: Mapping[str, Any], throughput: Throughput | None = None
) -> list[dict[str, Any]]:
    """Return for each point of a run the measured figures, the predicted ones, and the relative errors.

    CPU is predicted for the measured rate.

    Parameters
    ----------
    throughput
        Predicts rates; by default they are limited by what a client alone needs, and by the resource that is
        used up first.
    """
    scenarios, cores = scenarios_of(run), run["machine"]["cores"]
    predicted = throughput or bounded_throughput
    return [_predicted(costs, scenarios[p["variant"]], p, cores, predicted) for p in run["points"]]


def _predicted(
    costs: Costs, scenario: Scenario, point: Mapping[str, Any], cores: int, throughput: Throughput
) -> dict[str, Any]:
    window, work = point["window_seconds"], total_work(scenario, point)
    spent, used = spent_of(scenario, point), point["resources"]
    measured_cores = (spent["client"] + spent["server"]) / window
    others = max(used.get("machine_cores", 0.0) - used["client_cores"] - used["server_cores"], 0.0)
    idle = (costs.of("client", work) + costs.of("server", work)) / window
    predicted_cores = _busy_cores(costs, idle, others, cores)
    rate = moved_bytes(work) / window
    predicted_rate, limit = throughput(costs, scenario, point["clients"], cores)
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


def _busy_cores(costs: Costs, idle: float, others: float, cores: int) -> float:
    """The cores that work takes which would take `idle` ones on an idle machine."""
    share = costs.contention * idle / cores
    used = idle * costs.growth(others / cores) / (1 - share) if share < 1 else float(cores)
    return min(used, idle * costs.growth(1.0))


def bounded_throughput(costs: Costs, scenario: Scenario, clients: int, cores: int) -> tuple[float, str]:
    """Return the least of the bounds: clients alone, the cores, the simulated disks."""
    speed = scenario.simulation.compression
    moved = busy = disk = 0.0
    for number in range(clients):
        kind = scenario.kind_of(number)
        work = work_of(scenario, kind)
        computing = sum(step.seconds for step in kind.loop) / speed
        seconds = computing + costs.of("elapsed", work)
        used = (costs.of("client", work) + costs.of("server", work)) * costs.growth(costs.usable)
        used += computing * (scenario.simulation.computation == "real")
        moved += moved_bytes(work) / seconds
        busy += used / seconds
        disk += disk_seconds(scenario, kind, clients) / seconds
    limits = {"time of a client": moved, "CPU": moved * cores * costs.usable / busy if busy else moved}
    if disk:
        assert scenario.simulation.disks is not None
        limits["disks"] = (
            moved * scenario.simulation.disks.count * scenario.simulation.servers_with_disks / disk
        )
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit


def disk_seconds(scenario: Scenario, kind: Kind, clients: int) -> float:
    """Return the seconds of a simulated disk that a pass of a client takes, with a seek for each request."""
    disks = scenario.simulation.disks
    if disks is None or not disks.is_slow:
        return 0.0
    work = work_of(scenario, kind)
    written = work["appended_bytes"] + work["extended_bytes"]
    requests, moved = written / WRITE_BYTES, written
    if not _is_cached(scenario, clients):
        at_once = scenario.open.get("read_ahead_bytes", 2 << 20) or PAGE_BYTES
        requests += work["selected"] or work["read_bytes"] / at_once
        moved += max(work["read_bytes"], work["selected"] * PAGE_BYTES)
    seconds = moved / disks.bytes_per_second if disks.bytes_per_second else 0.0
    seconds += requests / disks.seeks_per_second if disks.seeks_per_second else 0.0
    return seconds / scenario.simulation.compression


def _is_cached(scenario: Scenario, clients: int) -> bool:
    """Whether the initial data fit into the block caches of the simulated disks."""
    disks = scenario.simulation.disks
    assert disks is not None
    owners = {"client": clients, "disk": min(disks.count, clients), "federation": 1}
    stored = sum(
        owners[data.each] * content.objects * content.size
        for data in scenario.data
        for content in data.containers.values()
    )
    return stored <= disks.count * disks.cache_bytes


def _error(predicted: float, measured: float) -> float | None:
    return predicted / measured - 1 if measured else None

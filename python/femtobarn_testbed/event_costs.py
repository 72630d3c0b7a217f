"""Costs of an event for a job that looks up conditions: time in database code, in physics, and requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .summaries import Run, Table, rounded

__all__ = ["DATABASE", "EventCosts", "event_costs_of", "event_costs_table"]

DATABASE = ("look up", "read", "open job")
"""Operations beside physics: look-ups of conditions, reading events, opening the federation for a job."""


@dataclass(frozen=True)
class EventCosts:
    """The costs of an event at one point, on average."""

    variant: str
    clients: int
    physics: float
    """Seconds of computation."""
    database: Mapping[str, float]
    """Seconds of each of :data:`DATABASE`."""
    cpu: float
    """CPU seconds of client and server."""
    requests: float
    """Requests to the server; 0 without one."""
    bytes: float
    """Bytes that the server sent."""

    @property
    def look_ups(self) -> float:
        """Seconds in look-ups of conditions."""
        return self.database["look up"]

    @property
    def database_share(self) -> float:
        """Share of :data:`DATABASE` in the time."""
        seconds = sum(self.database.values())
        return seconds / (seconds + self.physics)


def event_costs_of(run: Run) -> list[EventCosts]:
    """Return the costs at each point of a run at which an event ended and conditions were looked up."""
    return [
        _costs(point)
        for point in run["points"]
        if "look up" in point["operations"] and point["operations"]["event"]["count"]
    ]


def _costs(point: Mapping[str, Any]) -> EventCosts:
    operations, used = point["operations"], point["resources"]
    events = float(operations["event"]["amount"])

    def seconds(name: str) -> float:
        return float(operations[name]["seconds"]) / events if name in operations else 0.0

    def total(name: str) -> float:
        return float(sum(each.get(name, 0.0) for each in used["server_totals"])) / events

    return EventCosts(
        point["variant"],
        point["clients"],
        physics=seconds("compute"),
        database={name: seconds(name) for name in DATABASE},
        cpu=float(used["server_cores"] + used["client_cores"]) * used["seconds"] / events,
        requests=total("requests"),
        bytes=total("bytes_read"),
    )


def event_costs_table(run: Run) -> Table:
    """Tabulate the costs of an event, and by which factor look-ups take less time than at first."""
    head = ["variant", "clients", "look up (ms)", "times less", "read (ms)", "open job (ms)", "physics (ms)"]
    head += ["in database code", "CPU (ms)", "requests", "KB"]
    first: dict[int, float] = {}
    rows = []
    for each in event_costs_of(run):
        base = first.setdefault(each.clients, each.look_ups)
        look_ups, *others = (rounded(1e3 * seconds) for seconds in (*each.database.values(), each.physics))
        row = [each.variant, str(each.clients), look_ups, rounded(base / each.look_ups), *others]
        row += [f"{each.database_share:.1%}", rounded(1e3 * each.cpu)]
        rows.append([*row, rounded(each.requests), rounded(each.bytes / 1e3)])
    return head, rows

"""Tables of a simulated site, from the figures that `study` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..summaries import Table, rounded

__all__ = ["loads_table", "recalls_table", "scenarios_table"]

Run = Mapping[str, Any]


def loads_table(done: Run) -> Table:
    """Tabulate the first scenario: a row for each load."""
    first = done["scenarios"][0]
    resources = list(first["points"][0]["utilisation"])
    head = ["clients", "useful time", "GB/s", "commits/s", "in a turn", "commit: median", "99 %"]
    head += ["open: median", "99 %, ms", *resources]
    rows = [
        [
            f"{point['clients']:,.0f}",
            _least_useful(point),
            f"{point['rates']['bytes'] / 1e9:,.0f}",
            f"{point['rates']['commits']:,.0f}",
            f"{point['commits_per_turn']:.1f}",
            *_latencies(point),
            *(f"{share:.0%}" for share in point["utilisation"].values()),
        ]
        for point in first["points"]
    ]
    return head, rows


def _least_useful(point: Run) -> str:
    """The share of their time that the clients which wait most do not wait, and their kind."""
    kind = min(point["useful"], key=lambda name: point["useful"][name])
    return f"{point['useful'][kind]:.0%}, {kind}"


def _latencies(point: Run) -> list[str]:
    return [
        _ms(point["latency"][of][quantile]) for of in ("commit", "open") for quantile in ("median", "p99")
    ]


def scenarios_table(done: Run) -> Table:
    """Tabulate a row for each scenario: the bottleneck, latencies at the described load, a failure."""
    head = ["scenario", "clients at the knee", "bottleneck", "useful time", "commit: median", "99 %"]
    head += [
        "open: median",
        "99 %, ms",
        "rack: clients",
        "continue after: median",
        "99 %, s",
        "hours of clients lost",
    ]
    rows = []
    for scenario in done["scenarios"]:
        knee, failure = scenario["knee"], scenario["failure"]
        point = min(scenario["points"], key=lambda point: abs(point["load"] - 1))
        rows.append(
            [
                scenario["name"],
                f"{knee['load'] * done['clients']:,.0f}" if knee["load"] else "-",
                knee["resource"] or f"nothing up to {scenario['points'][-1]['clients']:,.0f}",
                _least_useful(point),
                *_latencies(point),
                f"{failure['clients']:,.0f}",
                _seconds(failure["median_seconds"]),
                _seconds(failure["p99_seconds"]),
                f"{failure['lost_seconds'] / 3600:,.0f}",
            ]
        )
    return head, rows


def recalls_table(done: Run) -> Table:
    """Tabulate a row for each load: the recall of a database, and the tape drives' use."""
    head = ["recalls, times those described", "median, minutes", "99 %", "tape drives"]
    rows = [
        [
            f"{row['load']:g}",
            rounded(row["median_seconds"] / 60),
            rounded(row["p99_seconds"] / 60),
            f"{row['utilisation']:.0%}",
        ]
        for row in done["recalls"]
    ]
    return head, rows


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else rounded(1e3 * seconds)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else rounded(seconds)

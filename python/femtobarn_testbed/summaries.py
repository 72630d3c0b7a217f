"""Texts and tables that summarise a run of the testbed, from its results as loaded from JSON.

A run has variants. Each variant has points, one for each number of clients, and a knee, where more clients no
longer bring more throughput.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from .papers import Paper, Point

__all__ = [
    "Run",
    "Table",
    "describe_limits",
    "describe_origin",
    "describe_simulation",
    "latency_table",
    "paper_rows",
    "points_table",
    "rounded",
    "start_table",
]

Table = tuple[list[str], list[list[str]]]
Run = Mapping[str, Any]


def describe_simulation(run: Run) -> list[str]:
    """Return lines with the real and the simulated parts of variants; variants with the same share a line."""
    common: dict[str, list[str]] = {}
    for name, simulation in run["played"].items():
        common.setdefault(_simulation(simulation, run, name), []).append(name)
    if len(common) == 1:
        return list(common)
    return [f"{', '.join(names)}: {text}" for text, names in common.items()]


def _simulation(simulation: Mapping[str, Any], run: Run, name: str) -> str:
    where = "through a server (root://)" if simulation["access"] == "server" else "as a local folder"
    parts = [f"Real: client processes that use the public API, {where}, data on this machine's disk"]
    computes = any("compute" in p["operations"] for p in run["points"] if p["variant"] == name)
    if not computes:
        parts.append("no computation")
    elif simulation["computation"] == "simulated":
        parts.append("simulated: computation, by clients that sleep as if each had a free CPU")
    else:
        parts.append("computation is real CPU time")
    servers = simulation.get("servers", 1)
    if servers > 1:
        choice = (
            "each request goes by load"
            if simulation["server_of"] == "request"
            else "each job goes to the next one"
        )
        whose = "each one's" if simulation.get("disks_of") == "all" else "the first one's"
        parts.append(f"{servers} servers with copies, {choice}; simulated disks are {whose}")
    disks = simulation["disks"]
    if disks and (disks["bytes_per_second"] or disks["seeks_per_second"]):
        parts.append(
            f"simulated: {disks['count']} disks of {disks['bytes_per_second'] / 1e6:g} MB/s"
            f" and {disks['seeks_per_second']} seeks/s each"
        )
    elif disks:
        parts.append(f"{disks['count']} folders as file systems, as fast as the machine's disk")
    else:
        parts.append("no simulated disks")
    if simulation.get("memcached_bytes"):
        parts.append(f"a memcached of {simulation['memcached_bytes'] / 1e6:g} MB, counted with the server")
    if simulation["compression"] != 1:
        parts.append(f"computation and disks are {simulation['compression']:g} times as fast")
    if simulation["federations"] == "each":
        parts.append("each kind of client has a federation and a server of its own")
    return "; ".join(parts) + "."


def describe_limits(run: Run) -> list[str]:
    """Return a line for each variant with its best rate, its knee, and the resource that limits it."""
    lines = []
    for name, knee in run["knees"].items():
        if knee:
            unit, scale = ("MB/s", 1e6) if knee["rate"] == "bytes_per_second" else ("events/s", 1.0)
            bend = f"bends at {knee['clients']:.0f} clients" if knee["clients"] else "does not bend"
            best = f"best {knee['best'] / scale:,.4g} {unit} with {knee['best_clients']} clients"
            lines.append(f"{name}: {best}, {bend}. Limit: {knee['limit']}: {knee['evidence']}.")
    return lines


def points_table(run: Run) -> Table:
    """Tabulate all points: rates, efficiency, cores in use, busiest simulated disk, limiting resource."""
    head = ["variant", "clients", "MB/s", "events/s", "computing", "server cores", "clients' cores"]
    head += ["disks busy", "limit"]
    rows = []
    for point in run["points"]:
        rates, used = point["throughput"], point["resources"]
        busy = max((disk["busy"] for disk in used["disks"]), default=None)
        rows.append(
            [
                point["variant"],
                str(point["clients"]),
                rounded(rates["bytes_per_second"] / 1e6),
                rounded(rates["events_per_second"] or rates["pairs_per_second"]),
                _share(point["efficiency"]),
                f"{used['server_cores']:.2f}",
                f"{used['client_cores']:.2f}",
                _share(busy),
                point["verdict"]["limit"],
            ]
        )
    return head, rows


def latency_table(run: Run) -> Table:
    """Tabulate median, 99 % quantile and longest time of each operation, in milliseconds; "-" if none ended.

    Left out are operations that contain others or do not use the database: event, compute, transaction.
    """
    names = [
        name
        for name in dict.fromkeys(name for point in run["points"] for name in point["operations"])
        if name not in ("event", "compute", "transaction")
    ]
    rows = []
    for point in run["points"]:
        row = [point["variant"], str(point["clients"])]
        for name in names:
            done = point["operations"].get(name)
            has_ended = done is not None and done["count"] > 0
            row.append(" / ".join(_ms(done[of]) for of in ("median", "p99", "longest")) if has_ended else "-")
        rows.append(row)
    return ["variant", "clients", *names], rows


def start_table(run: Run) -> Table:
    """Tabulate the time from the clients' launch to first transaction and object (s), and memory (MB)."""
    head = ["variant", "clients", "transaction: median", "longest", "last client", "object: median"]
    head += ["longest", "last client", "server MB", "MB a client"]
    rows = []
    for point in run["points"]:
        starts = sorted(point["start"], key=lambda start: start["launched"])
        row = [point["variant"], str(point["clients"])]
        for moment in ("transaction", "first_object"):
            took = [start[moment] for start in starts if start.get(moment) is not None]
            summary = (statistics.median(took), max(took), took[-1]) if took else ()
            row += [f"{value:.3g}" for value in summary] or ["-"] * 3
        memory = point["resources"]["memory_bytes"]
        row += [rounded(memory["server"] / 1e6), rounded(memory["clients"] / 1e6 / point["clients"])]
        rows.append(row)
    return head, rows


QUANTITIES = {
    "bytes_per_second": ("MB/s", 1e6),
    "events_per_second": ("events/s", 1.0),
    "pairs_per_second": ("databases/s", 1.0),
    "efficiency": ("computing (%)", 0.01),
    "transaction": ("first transaction (s)", 1.0),
    "first_object": ("first object (s)", 1.0),
}
"""The units in which quantities of papers are shown, and their sizes."""


def paper_rows(run: Run, paper: Paper) -> list[list[str]]:
    """Return a row for each value of a figure of a paper and each variant of the run.

    Columns: figure, quantity, the paper's value, variant, the run's value at the nearest number of clients.
    The first three are empty where they would repeat the row above.
    """
    rows = []
    for point in paper.points:
        unit, scale = QUANTITIES[point.quantity]
        # A label such as "client 150" names the number itself.
        is_named = point.label.startswith("client")
        at = f" with {point.clients}" if point.clients and not is_named else ""
        of_paper = [paper.name, unit, f"{point.value / scale:,.3g}{at}, {point.label}"]
        for variant, value in _nearest_values(run, point, scale):
            rows.append([*of_paper, variant, value])
            of_paper = ["", "", ""]
    return rows


def _nearest_values(run: Run, point: Point, scale: float) -> Iterable[tuple[str, str]]:
    for name in run["played"]:
        points = [each for each in run["points"] if each["variant"] == name]
        if not points:
            continue
        aim = point.clients or max(each["clients"] for each in points)
        nearest = min(points, key=lambda each: abs(each["clients"] - aim))
        value = _quantity(nearest, point.quantity, aim)
        if value is not None:
            yield name, f"{rounded(value / scale)} with {nearest['clients']}"


def _quantity(point: Mapping[str, Any], name: str, client: int) -> float | None:
    if name == "efficiency":
        value = point["efficiency"]
        return None if value is None else float(value)
    if name in ("transaction", "first_object"):
        starts = sorted(point["start"], key=lambda start: start["launched"])
        start = starts[min(client, len(starts)) - 1] if starts else {}
        return start.get(name)
    return float(point["throughput"][name])


def describe_origin(run: Run) -> str:
    """Return a line with a run's workload, time, machine, versions and seed."""
    machine, made = run["machine"], run["femtobarn"]
    commit = f", commit {made['commit']}" if made.get("commit") else ""
    return (
        f"{run['workload']}: {run['started'][:19].replace('T', ' ')} UTC, {run['seconds']:,.0f} s; "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:,.0f} GB, "
        f"Linux {machine['kernel']}, Python {machine['python']}; Femtobarn {made['version']}{commit}; "
        f"seed {run['seed']}."
    )


def rounded(value: float) -> str:
    """Return a number to three significant digits, without an exponent.

    Examples
    --------
    >>> rounded(1234.5), rounded(12.345), rounded(0.01234), rounded(1.0), rounded(0.0)
    ('1,234', '12.3', '0.0123', '1.00', '0')
    """
    if not value:
        return "0"
    places = max(2 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{places}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return rounded(1000 * seconds)

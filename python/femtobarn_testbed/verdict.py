"""What limits a run, and where more clients stop to bring more.

A limit is what is used up. First the things that clients share are looked at: disks that are played, the
machine's cores, its network and its disks. If none of them is used up, clients wait for nobody, and what they
spend most time with is what limits them: their own computation, locks, commits, or the way to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["USED_UP", "judge", "knee"]

USED_UP = 0.85
"""Share of a resource from which on it is used up: queues grow without bound from there to 1."""

LINEAR = 0.95
"""Share of what as many clients alone would do, above which a curve has not bent."""

WAITS = {
    "client CPU": ("compute",),
    "locks": ("open container",),
    "catalogue commits": ("commit", "create", "drop"),
    "client latency": ("read", "write", "select", "tags"),
}
"""What clients spend their time with, by what limits them then."""


def judge(point: Mapping[str, Any], cores: int) -> dict[str, Any]:
    """Return what limited a point: ``limit``, ``evidence`` as a text, the ``shares`` that were compared."""
    resources = point["resources"]
    disks = resources["disks"]
    busiest = max((disk["busy"] for disk in disks), default=0.0)
    seeking = max((disk["seeking"] for disk in disks), default=0.0)
    available = max(cores - resources["stolen_cores"], 1e-9)
    shares = {
        "played disks": busiest,
        "machine CPU": resources["machine_cores"] / available,
        "network": resources["network_share"],
        "machine disk": resources["disk_busy_share"],
    }
    waits = {name: sum(point["time_shares"].get(kind, 0.0) for kind in of) for name, of in WAITS.items()}
    # A played CPU that wakes late waits for the machine that plays it.
    physics = point["efficiency"] or 0.0
    late = max(point["time_shares"].get("compute", 0.0) - physics, 0.0)
    waits["client CPU"] = physics
    told = shares | {f"time: {name}": share for name, share in waits.items()} | {"time: late": late}
    limit, evidence = _limit(shares, waits, resources, seeking, cores)
    return {"limit": limit, "evidence": evidence, "shares": told}


def _limit(
    shares: Mapping[str, float],
    waits: Mapping[str, float],
    resources: Mapping[str, Any],
    seeking: float,
    cores: int,
) -> tuple[str, str]:
    if shares["played disks"] >= USED_UP:
        busy = shares["played disks"]
        limit = "disk seeks" if seeking > busy / 2 else "disk bandwidth"
        return limit, f"the busiest of the disks was busy {busy:.0%} of the time, seeking {seeking:.0%}"
    if shares["machine CPU"] >= USED_UP:
        server, clients = resources["server_cores"], resources["client_cores"]
        others = resources["machine_cores"] - server - clients
        limit = "server CPU" if server > clients else "client CPU"
        if others > server + clients:
            limit = "other processes"
        used = f"{cores} cores were {shares['machine CPU']:.0%} busy"
        each = f"server {server:.2f}, clients {clients:.2f}, others and the kernel {others:.2f} cores"
        return limit, f"the machine's {used}: {each}"
    if shares["network"] >= USED_UP:
        return "network", f"an interface had {shares['network']:.0%} of its rate"
    largest = max(waits, key=lambda name: waits[name])
    if shares["machine disk"] >= USED_UP and largest != "client CPU":
        return "disk bandwidth", f"the machine's disk was busy {shares['machine disk']:.0%} of the time"
    what = "computing" if largest == "client CPU" else f"in {', '.join(WAITS[largest])}"
    return largest, f"clients were {waits[largest]:.0%} of their time {what}, and nothing shared was used up"


def knee(points: Sequence[Mapping[str, Any]], of: str = "bytes_per_second") -> dict[str, Any] | None:
    """Return where a curve bends: where the line of the best rate a client meets its best point.

    Parameters
    ----------
    points
        Those of one variant, by ascending number of clients.
    of
        Which rate of the throughput; where it is zero, events are counted.

    Returns
    -------
    ``clients`` at the bend, or None if the curve goes straight on to its end; ``best``, ``best_clients``,
    ``limit`` and ``evidence`` at the best point; ``linearity``, the smallest share of that line up to the
    best point; ``last_over_best``, the last point's share of the best.
    """
    if not points:
        return None
    if not any(point["throughput"][of] for point in points):
        of = "events_per_second"
    rates = [point["throughput"][of] for point in points]
    slope = max(rate / point["clients"] for rate, point in zip(rates, points, strict=True))
    best = max(range(len(rates)), key=lambda index: rates[index])
    line = [rate / (slope * p["clients"]) if slope else 0.0 for rate, p in zip(rates, points, strict=True)]
    bends = best < len(points) - 1 or line[best] < LINEAR
    return {
        "rate": of,
        "clients": rates[best] / slope if bends and slope else None,
        "best": rates[best],
        "best_clients": points[best]["clients"],
        "linearity": min(line[: best + 1]),
        "last_over_best": rates[-1] / rates[best] if rates[best] else 0.0,
        "limit": points[best]["verdict"]["limit"],
        "evidence": points[best]["verdict"]["evidence"],
    }

"""The resource that limits a point, and the number of clients from which on more clients add little.

The limit is a shared resource that is used up: simulated disks, the machine's cores, its network, its disks,
in this order. If none is, the limit is the activity that takes most of the clients' time: computation, locks,
commits, or round trips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["LINEAR", "USED_UP", "judge", "knee"]

USED_UP = 0.85
"""Share above which a resource counts as used up, since queues grow without bound as it nears 1."""

LINEAR = 0.95
"""Share of linear scaling above which a curve counts as straight."""

WAITS = {
    "client CPU": ("compute",),
    "locks": ("open container",),
    "catalogue commits": ("commit", "create", "drop"),
    "client latency": ("read", "write", "select", "tags", "look up", "open job"),
}
"""The operations whose time counts for each limit."""


def judge(point: Mapping[str, Any], cores: int) -> dict[str, Any]:
    """Return the ``limit`` of a point, the ``evidence`` as a text, and the ``shares`` that were compared."""
    resources = point["resources"]
    disks = resources["disks"]
    busiest = max((disk["busy"] for disk in disks), default=0.0)
    seeking = max((disk["seeking"] for disk in disks), default=0.0)
    available = max(cores - resources["stolen_cores"], 1e-9)
    shares = {
        "simulated disks": busiest,
        "machine CPU": resources["machine_cores"] / available,
        "network": resources["network_share"],
        "machine disk": resources["disk_busy_share"],
    }
    waits = {name: sum(point["time_shares"].get(kind, 0.0) for kind in of) for name, of in WAITS.items()}
    # A client that wakes late from simulated computation waited for a core of the real machine.
    physics = point["efficiency"] or 0.0
    late = max(point["time_shares"].get("compute", 0.0) - physics, 0.0)
    waits["client CPU"] = physics
    compared = shares | {f"time: {name}": share for name, share in waits.items()} | {"time: late": late}
    limit, evidence = _limit(shares, waits, resources, seeking, cores)
    return {"limit": limit, "evidence": evidence, "shares": compared}


def _limit(
    shares: Mapping[str, float],
    waits: Mapping[str, float],
    resources: Mapping[str, Any],
    seeking: float,
    cores: int,
) -> tuple[str, str]:
    if shares["simulated disks"] >= USED_UP:
        busy = shares["simulated disks"]
        limit = "disk seeks" if seeking > busy / 2 else "disk bandwidth"
        return limit, f"the busiest disk was busy {busy:.0%} of the time, seeking {seeking:.0%}"
    if shares["machine CPU"] >= USED_UP:
        server, clients = resources["server_cores"], resources["client_cores"]
        others = resources["machine_cores"] - server - clients
        limit = "server CPU" if server > clients else "client CPU"
        if others > server + clients:
            limit = "other processes"
        used = f"{cores} cores were {shares['machine CPU']:.0%} busy"
        each = f"server {server:.2f}, clients {clients:.2f}, kernel and other processes {others:.2f} cores"
        return limit, f"the machine's {used}: {each}"
    if shares["network"] >= USED_UP:
        return "network", f"a network interface ran at {shares['network']:.0%} of its speed"
    largest = max(waits, key=lambda name: waits[name])
    if shares["machine disk"] >= USED_UP and largest != "client CPU":
        return "disk bandwidth", f"the machine's disk was busy {shares['machine disk']:.0%} of the time"
    activity = "computing" if largest == "client CPU" else f"in {', '.join(WAITS[largest])}"
    return (
        largest,
        f"clients spent {waits[largest]:.0%} of their time {activity}; no shared resource was used up",
    )


def knee(points: Sequence[Mapping[str, Any]], of: str = "bytes_per_second") -> dict[str, Any] | None:
    """Return where a curve bends: where linear scaling, at the best rate per client, meets the best rate.

    Parameters
    ----------
    points
        The points of one variant, by ascending number of clients.
    of
        The rate to use; events are used if it is zero at all points.

    Returns
    -------
    ``clients`` at the bend, or None if the curve is straight to its end; ``best``, ``best_clients``,
    ``limit`` and ``evidence`` at the best point; ``linearity``, the smallest share of linear scaling up to
    the best point; ``last_over_best``, the last point's share of the best rate.
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

"""Runs of the testbed that were never made: clients that compute, disks that give no more than they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from femtobarn.testbed.verdict import judge, knee

__all__ = ["made_up_run"]

CORES = 2


def made_up_run(
    variants: Mapping[str, Mapping[str, Any]],
    clients: Sequence[int],
    *,
    workload: str = "made-up",
    paper: str = "",
    about: str = "Nobody did this.",
) -> dict[str, Any]:
    """A run as :mod:`femtobarn.testbed.results` describes it.

    Each variant has settings, of which ``each`` is what a client moves by itself (bytes/s), ``raw`` what all
    disks together give (bytes/s; 0: no disks are played) and ``compute`` the share that it computes (None:
    it does not).
    """
    points = [_point(name, settings, count) for name, settings in variants.items() for count in clients]
    return {
        "format": 1,
        "workload": workload,
        "title": f"{workload}: what nobody did",
        "paper": paper,
        "about": about,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 12.0,
        "seed": 7,
        "machine": {
            "cpu": "Abacus <9>",
            "cores": CORES,
            "memory_bytes": 8_000_000_000,
            "kernel": "1.0",
            "python": "3.11.0",
        },
        "femtobarn": {"version": "0.1.0", "commit": "0123456789"},
        "parameters": {},
        "played": {name: _played(settings) for name, settings in variants.items()},
        "points": points,
        "knees": {name: knee([p for p in points if p["variant"] == name]) for name in variants},
    }


def _played(settings: Mapping[str, Any]) -> dict[str, Any]:
    disk = {"count": 4, "bytes_per_second": settings["raw"] / 4, "seeks_per_second": 100}
    return {
        "access": "server",
        "computation": "simulated",
        "compression": settings.get("compression", 1.0),
        "federations": "one",
        "disks": disk if settings["raw"] else None,
        "raw_bytes_per_second": settings["raw"],
        "ideal_bytes_per_second_per_client": settings["each"] if settings["compute"] else None,
    }


def _point(name: str, settings: Mapping[str, Any], clients: int) -> dict[str, Any]:
    wanted = clients * settings["each"]
    rate = min(wanted, settings["raw"] or wanted)
    computing = settings["compute"] and settings["compute"] * rate / wanted
    disks = [_disk(number, rate, settings["raw"]) for number in range(4)] if settings["raw"] else []
    point: dict[str, Any] = {
        "variant": name,
        "settings": dict(settings),
        "clients": clients,
        "window_seconds": 10.0,
        "throughput": _rates(rate),
        "efficiency": computing,
        "time_shares": {"compute": computing or 0.0, "read": 0.7 * (1 - (computing or 0.0)), "commit": 0.02},
        "operations": {kind: _operation(settings) for kind in ("read", "commit", "event")},
        "start": [_start(number) for number in range(clients)],
        "resources": {
            "machine_cores": 0.1,
            "stolen_cores": 0.0,
            "server_cores": settings.get("server", 0.25),
            "client_cores": settings.get("cores", 0.5),
            "network_share": 0.0,
            "disk_busy_share": 0.0,
            "memory_bytes": {"server": 50_000_000, "clients": 20_000_000 * clients},
            "disks": disks,
        },
    }
    return point | {"verdict": judge(point, CORES)}


def _rates(rate: float) -> dict[str, float]:
    zero = ("written_bytes", "tags", "pairs")
    return {
        "bytes_per_second": rate,
        "read_bytes_per_second": rate,
        "objects_per_second": rate / 1e4,
        "events_per_second": rate / 1e6,
        "commits_per_second": rate / 2e6,
    } | {f"{name}_per_second": 0.0 for name in zero}


def _disk(number: int, rate: float, raw: float) -> dict[str, Any]:
    return {
        "name": f"disk{number}",
        "busy": rate / raw,
        "seeking": 0.1,
        "seeks_per_second": 10.0,
        "bytes_per_second": rate / 4,
    }


def _operation(settings: Mapping[str, Any]) -> dict[str, Any]:
    took = settings.get("p99", 0.01)
    return {
        "count": 100, "seconds": 1.0, "amount": 1e6, "longest": 2 * took, "median": took / 10, "p99": took,
        "histogram": [],
    }  # fmt: skip


def _start(number: int) -> dict[str, Any]:
    return {
        "client": number,
        "kind": "reader",
        "launched": 0.01 * number,
        "ready": 0.1,
        "opened": 0.15,
        "transaction": 0.2 + 0.001 * number,
        "first_object": 0.3 + 0.001 * number,
    }

"""Texts and tables of a run of hot files: rates, phases, and the work of each server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["describe_sites", "phases_table", "rates_table", "servers_table"]

Run = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]


def rates_table(run: Run) -> Table:
    """Tabulate a row for each variant: rates, when the aim was reached, and, since the file was left, when it
    was last opened at a cache and when the copies were gone."""
    head = ["variant", "clients", "one server, MB/s", "hot, MB/s", "times one server", "aim"]
    head += ["reached after, s", "read at caches until, s", "copies gone after, s", "failures"]
    rows = [
        [
            point["variant"],
            f"{point['clients']:,}",
            f"{point['one_server_bytes_per_second'] / 1e6:,.1f}",
            f"{point['hot_bytes_per_second'] / 1e6:,.1f}",
            f"{point['ratio']:.2f}" if point["ratio"] else "-",
            f"{point['aim']:g}",
            _seconds(point["reached_seconds"]),
            _seconds(_left(point["phases"]["cold"])),
            _seconds(point["emptied_seconds"]),
            f"{sum(phase['failures'] for phase in point['phases'].values()):,}",
        ]
        for point in run["points"]
    ]
    return head, rows


def phases_table(run: Run) -> Table:
    """Tabulate a row for each phase: the bytes read, and CPU seconds."""
    head = ["phase", "seconds", "files opened", "MB", "servers' CPU, s", "clients' CPU, s", "busy cores"]
    rows = [
        [
            _label(run, point, name),
            f"{phase['seconds']:,}",
            f"{sum(phase['opened'].values()):,}",
            f"{sum(phase['bytes'].values()) / 1e6:,.0f}",
            f"{phase['server_cpu_seconds']:,.1f}",
            f"{phase['client_cpu_seconds']:,.1f}",
            f"{phase['machine_cores']:.2f}",
        ]
        for point in run["points"]
        for name, phase in point["phases"].items()
    ]
    return head, rows


def servers_table(run: Run) -> Table:
    """Tabulate a row for each phase and server: clients and bytes."""
    head = ["phase, server", "clients sent", "files opened", "of the hot file", "MB"]
    head += ["MB from the origin", "disk busy"]
    rows = []
    for point in run["points"]:
        for name, phase in point["phases"].items():
            for server, opened in phase["opened"].items():
                fetched = phase["fetched_bytes"].get(server)
                rows.append(
                    [
                        f"{_label(run, point, name)}, {server}",
                        f"{phase['redirects'][server]:,}",
                        f"{opened:,}",
                        f"{phase['hot_file_opened'][server]:,}",
                        f"{phase['bytes'][server] / 1e6:,.1f}",
                        "-" if fetched is None else f"{fetched / 1e6:,.1f}",
                        f"{phase['disk_busy'][server]:.0%}",
                    ]
                )
    return head, rows


def describe_sites(run: Run) -> Iterator[str]:
    """Yield lines about the simulated and the real parts."""
    for name, site in run["sites"].items():
        disk = site["disk"]
        yield (
            f"{name}: an origin and {site['servers'] - 1} caches, each with a simulated disk of "
            f"{disk['bytes_per_second'] / 1e6:g} MB/s and {disk['seeks_per_second']} seeks/s with "
            f"{disk['cache_bytes'] / 1e6:.3g} MB of memory; the hot file has "
            f"{site['hot_file_bytes'] / 1e6:,.1f} MB. It is read from one more cache for every "
            f"{site['clients_per_copy']} clients a minute, and a copy leaves when no client had it open for "
            f"{site['idle_seconds']} s."
        )
    yield (
        "Real: the servers, each a process at an address of its own; a redirector; the files; XRootD's "
        "client, a thread and a session for each client. Each block that it reads is compared with the file."
    )
    yield (
        "Rates are means over the second half of a phase. The aim counts as reached by the mean over "
        "five seconds."
    )


def _label(run: Run, point: Mapping[str, Any], phase: str) -> str:
    return phase if len(run["points"]) == 1 else f"{point['variant']}, {phase}"


def _left(cold: Mapping[str, Any]) -> float | None:
    """When the file that was hot was last opened at a cache; None if it was not."""
    last = (cold["hot_file_last_opened"][cache] for cache in cold["fetched_bytes"])
    return max((moment for moment in last if moment is not None), default=None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

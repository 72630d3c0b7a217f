"""Texts and tables of a run of recalls: mounts and seconds, clients' waiting times, errors of estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["clients_table", "describe_library", "mounts_table"]

Run = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]


def mounts_table(run: Run) -> Table:
    """Tabulate a row for each variant: mounts, seconds, how drives were used, and how good estimates were."""
    head = ["variant", "files", "mounts", "of the first", "minutes", "drives: mounting", "winding", "reading"]
    head += ["mean wait, min", "mean error of estimates, min"]
    rows = []
    for point in run["points"]:
        whole = point["seconds"] * len(point["drives"])
        shares = [point[f"{part}_seconds"] / whole for part in ("mount", "locate", "transfer")]
        estimates = point["estimates"]
        rows.append(
            [
                point["variant"],
                f"{point['files']:,}",
                f"{point['mounts']:,}",
                f"{point['mounts'] / max(run['points'][0]['mounts'], 1):.3f}",
                f"{point['seconds'] / 60:,.1f}",
                *(f"{share:.0%}" for share in shares),
                f"{point['mean_wait_seconds'] / 60:,.1f}",
                f"{estimates['mean_error_seconds'] / 60:,.1f}" if estimates else "-",
            ]
        )
    return head, rows


def clients_table(run: Run) -> Table:
    """Tabulate when each client's last file was there, beside when it was due: a row for each client."""
    names = [point["variant"] for point in run["points"]]
    head = ["client", "files", *(f"{name}: minutes; of its fair share" for name in names)]
    rows = []
    for number, first in enumerate(run["points"][0]["clients"]):
        waits = [point["clients"][number] for point in run["points"]]
        cells = [f"{one['seconds'] / 60:,.1f}; {one['seconds'] / one['fair_seconds']:.2f}" for one in waits]
        rows.append([str(number + 1), f"{first['files']:,}", *cells])
    return head, rows


def describe_library(run: Run) -> Iterator[str]:
    """Yield lines about the simulated library, and the meaning of the fair share."""
    for name, play in run["libraries"].items():
        yield (
            f"{name}: {play['drives']} drives, {play['bytes_per_second'] / 1e6:g} MB/s, mounts of "
            f"{play['mount_seconds']:g} s, {play['locate_seconds_per_gb']:g} s to wind past a GB; a tape "
            f"stays for {play['hold_seconds']:g} s. A second takes {play['time_scale']:g} s by the clock, "
            f"and a byte counts as {play['byte_scale']:,g}."
        )
    yield (
        "All times are those of the simulated library. They include real work (starting commands, syncing "
        "files, polling), which counts as much longer as time is compressed."
    )
    yield (
        "Fair share: the time of a client's last file if all clients that still wait for files always got "
        "the same number of them, at the variant's own mean rate."
    )

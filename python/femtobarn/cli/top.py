"""The command that shows the state of a server."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from .output import emit_line, human_duration, human_size, table
from .server_api import address_of, ask, recall_sums, server_argument

__all__ = ["top", "top_arguments"]

ROWS = 12
"""Most rows of each table."""

LEAVING_SECONDS = 120.0
"""Most seconds in which a server reads the folders of its caches, perhaps for another client first."""

FIRST_SECONDS = 1.0
"""Most seconds before the first display: rates need a status from before."""


def top_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``top``."""
    server_argument(parser)
    parser.add_argument(
        "-n", "--times", type=int, default=0, help="number of displays before the end (0: endless)"
    )
    parser.add_argument("-d", "--delay", type=float, default=2.0, help="seconds between displays (2)")
    parser.add_argument(
        "--leaving", action="store_true", help="also show the files that leave the server's caches next"
    )


def top(options: argparse.Namespace) -> None:
    """Show the state of a server, repeatedly."""
    address = address_of(options.server, "api/status")
    before: tuple[float, dict[str, Any]] | None = None
    if not options.json:
        # A rate needs two states: the first is not shown.
        before = (time.monotonic(), ask(address)["totals"])
        time.sleep(min(options.delay, FIRST_SECONDS))
    for displays in itertools.count(1):
        status = ask(address)
        if options.leaving and status["caches"]:
            status["caches"] = ask(address_of(options.server, "api/caches"), LEAVING_SECONDS)
        now = time.monotonic()
        if options.json:
            emit_line(json.dumps(status))
        elif before is not None:
            _show(status, _rates(*before, now, status["totals"]))
        before = (now, status["totals"])
        if displays == options.times:
            return
        time.sleep(options.delay)


def _rates(then: float, old: dict[str, Any], now: float, totals: dict[str, Any]) -> dict[str, float]:
    return {name: max(0.0, totals[name] - old[name]) / max(now - then, 1e-3) for name in totals}


def _show(status: dict[str, Any], rates: dict[str, float]) -> None:
    """Print one state; a terminal is cleared first."""
    text = "\n".join(_lines(status, rates)).rstrip()
    if sys.stdout.isatty():
        columns, rows = shutil.get_terminal_size()
        shown = [line[:columns] for line in text.splitlines()[: rows - 1]]
        sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(shown) + "\n")
    else:
        sys.stdout.write(text + "\n\n")
    sys.stdout.flush()


def _lines(status: dict[str, Any], rates: dict[str, float]) -> list[str]:
    """Return the text to show: sums, and the tables that are not empty."""
    lines = _sums(status, rates)
    for each in (
        _sessions, _locks, _data_servers, _copy_servers, _followers, _caches, _leaving, _recalls, _files
    ):  # fmt: skip
        lines += each(status)
    return lines


def _sums(status: dict[str, Any], rates: dict[str, float]) -> list[str]:
    totals = status["totals"]
    state = "stopping" if status["is_draining"] else "running"
    lines = [
        f"{status['server']}  {state} for {status['up_seconds']} s",
        f"{totals['open_sessions']:,} sessions  {totals['open_files']:,} files  "
        f"{totals['locks_held']:,} locks  {totals['locks_waited']:,} waiting  {totals['errors']:,} errors",
        f"read {_bytes(rates['bytes_read'])}/s  written {_bytes(rates['bytes_written'])}/s  "
        f"requests {rates['requests']:,.0f}/s  commits {rates['commits']:,.0f}/s",
    ]
    if (cluster := status.get("cluster")) is not None:
        why = cluster["why_not"]
        lines.append(f"its cluster sends no clients here: {why}" if why else "its cluster sends clients here")
    return [*lines, ""]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> list[str]:
    """Return a table and an empty line; nothing for a table without rows."""
    return [*table(heads, rows[:ROWS], right=right).splitlines(), ""] if rows else []


def _sessions(status: dict[str, Any]) -> list[str]:
    busiest = sorted(status["sessions"], key=lambda s: s["bytes_read"] + s["bytes_written"], reverse=True)
    rows = [
        [s["user"], s["host"], s["program"], f"{s['open_files']:,}", f"{s['requests']:,}",
         human_size(s["bytes_read"]), human_size(s["bytes_written"]), f"{s['age_seconds']} s"]
        for s in busiest[:ROWS]
    ]  # fmt: skip
    heads = ["who", "from", "program", "files", "requests", "read", "written", "for"]
    return _table(heads, rows, {3, 4, 5, 6, 7})


def _locks(status: dict[str, Any]) -> list[str]:
    marks = [(row, "waits") for row in status["waits"]] + [(row, "holds") for row in status["locks"]]
    rows = [[r["target"], r["federation"], note, r["by"], f"{r['seconds']} s"] for r, note in marks]
    return _table(["lock", "federation", "", "who", "for"], rows, {4})


def _data_servers(status: dict[str, Any]) -> list[str]:
    rows = [
        [s["address"], "cache" if s["is_cache"] else "", f"{s['load']:,}", f"{s['redirects']:,}",
         "up" if s["is_up"] else f"down: {s['why_down']}"]
        for s in sorted(status["data_servers"], key=lambda s: s["is_up"])
    ]  # fmt: skip
    return _table(["server with files", "kind", "load", "clients sent", "state"], rows, {2, 3})


def _copy_servers(status: dict[str, Any]) -> list[str]:
    rows = [
        [s["address"], s["federation"], f"{s['behind']:,} commits", f"{s['load']:,}"]
        for s in status["copy_servers"]
    ]
    return _table(["readers are sent to", "for", "behind", "load"], rows, {2, 3})


def _followers(status: dict[str, Any]) -> list[str]:
    rows = [
        [f["name"], f["federation"], f"{f['behind']:,} commits", f"{f['silent_seconds']:.1f} s"]
        for f in status["followers"]
    ]
    return _table(["copy", "of", "behind", "silent for"], rows, {2, 3})


def _caches(status: dict[str, Any]) -> list[str]:
    rows = [
        [c["name"], *map(human_size, [c["used_bytes"], c["limit_bytes"], c["read_bytes"],
         c["fetched_bytes"], c["evicted_bytes"]])]
        for c in status["caches"]
    ]  # fmt: skip
    lines = _table(
        ["cache", "on the disk", "at most", "read", "from the origin", "left"], rows, {1, 2, 3, 4, 5}
    )
    disks = [
        [d["folder"], c["name"], human_size(d["used_bytes"]), human_size(d["limit_bytes"]),
         f"failed: {d['why_failed']}" if d["why_failed"] else "in use"]
        for c in status["caches"] if len(c["disks"]) > 1
        for d in sorted(c["disks"], key=lambda disk: not disk["why_failed"])
    ]  # fmt: skip
    return lines + _table(["disk of a cache", "cache", "on the disk", "at most", "state"], disks, {2, 3})


def _leaving(status: dict[str, Any]) -> list[str]:
    share = max(1, ROWS // max(1, len(status["caches"])))
    rows = [
        [f["file"], c["name"], human_size(f["bytes"]), human_duration(f["unused_seconds"]), _leaves(f, c)]
        for c in status["caches"]
        for f in c.get("leaving", [])[:share]
    ]
    return _table(["leaves next", "cache", "on the disk", "unused for", "leaves"], rows, {2, 3})


def _leaves(file: dict[str, Any], cache: dict[str, Any]) -> str:
    """Return when a file leaves a cache."""
    if file["is_open"]:
        return "after it is closed"
    if cache["idle_seconds"] is None:
        return "when room is needed"
    return f"in {human_duration(max(0, cache['idle_seconds'] - file['unused_seconds']))} at most"


def _recalls(status: dict[str, Any]) -> list[str]:
    lines = [recall_sums(r) for r in status["recalls"][:ROWS] if r["waiting"] or r["done"] or r["failed"]]
    return [*lines, ""] if lines else []


def _files(status: dict[str, Any]) -> list[str]:
    rows = [
        [f["path"], "writing" if f["is_writable"] else "reading", f"{f['users']:,}",
         human_size(f["bytes_read"]), human_size(f["bytes_written"])]
        for f in status["files"]
    ]  # fmt: skip
    return _table(["file", "for", "users", "read", "written"], rows, {2, 3, 4})


def _bytes(rate: float) -> str:
    return human_size(int(rate))

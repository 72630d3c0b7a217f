"""The commands for servers: ``serve`` runs one, ``top`` shows the state of one."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .. import _serving
from .._exceptions import FemtobarnError, InvalidError, UnavailableError
from .._femtobarn import default_config, start_log
from .._replication import tell_former_leader
from .._sizes import bytes_of_size
from .output import emit_line, human_size, table
from .server_api import address_of, ask

__all__ = ["serve", "serve_arguments", "top", "top_arguments"]

TOP_ROWS = 12
"""Most rows of each table."""

TELL_SECONDS = 5.0
"""Between two attempts to tell a former leader that it has a successor."""

FIRST_SECONDS = 1.0
"""Most seconds before the first display: rates need a status from before."""


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``serve``."""
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="federation or folder of files, FOLDER=/name to name it"
    )
    parser.add_argument(
        "--cache-of",
        metavar="URL",
        help="serve the files of another root:// server, and keep in FOLDER what is read of them",
    )
    parser.add_argument(
        "--cache-size", metavar="SIZE", help='how much is kept, such as "2 TB" (four fifths of the disk)'
    )
    parser.add_argument(
        "--redirect-to",
        metavar="URL",
        action="append",
        default=[],
        help="redirect clients to a root:// server that has what they ask for, instead of FOLDER; repeatable",
    )
    parser.add_argument(
        "--redirect-cache",
        metavar="URL",
        action="append",
        default=[],
        help="redirect clients that read what many want to this cache of these servers, too; repeatable",
    )
    parser.add_argument("-p", "--port", type=int, help="port to listen on (1094); 0: any")
    parser.add_argument("--address", help="address to listen on (all)")
    parser.add_argument("-w", "--writable", action="store_true", help="let clients without credentials write")
    parser.add_argument("-r", "--read-only", action="store_true", help="refuse all changes")
    parser.add_argument("-c", "--config", metavar="FILE", help="settings in TOML")
    parser.add_argument(
        "--print-config", action="store_true", help="print all settings with comments, and end"
    )


def serve(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    if options.print_config:
        emit_line(default_config().rstrip())
        return
    if options.writable and options.read_only:
        raise InvalidError("--writable and --read-only exclude each other")
    if options.cache_size is not None and options.cache_of is None:
        raise InvalidError("--cache-size needs --cache-of")
    start_log(Path(options.config).read_text() if options.config else "")
    signals = _signals()
    had_terminal = _has_terminal()
    server = _serving.serve(
        *options.folders,
        cache_of=options.cache_of,
        cache_bytes=None if options.cache_size is None else bytes_of_size(options.cache_size),
        redirect_to=options.redirect_to,
        redirect_caches=options.redirect_cache,
        port=options.port,
        address=options.address,
        anonymous="all" if options.writable else None,
        read_only=options.read_only,
        config=options.config,
    )
    facts = {"port": server.port, "exports": server.exports}
    people = [f"serving {', '.join(server.exports)} on port {server.port}; stop with Ctrl-C"]
    people += [f"  {server.url(name, host='localhost')}" for name in server.exports]
    people.append(f"  http://localhost:{server.port}/ shows what it is doing")
    emit_line(json.dumps(facts) if options.json else "\n".join(people))
    sys.stdout.flush()
    _tell_former_leaders(options.folders)
    # SIGHUP reloads the configuration, unless it came because the terminal was closed, which stops the
    # server.
    while os.read(signals, 1)[0] == signal.SIGHUP and _has_terminal() == had_terminal:
        _reload(server)
    server.stop()


def _tell_former_leaders(folders: list[str]) -> None:
    """Tell leaders that were left behind by promotions of the served federations, as soon as they answer."""

    def tell(folder: str) -> None:
        told = ""
        # A copy that is served may be promoted at any time.
        while True:
            try:
                tell_former_leader(folder)
            except UnavailableError:
                pass
            except FemtobarnError as error:
                if str(error) != told:
                    told = str(error)
                    print(
                        f"femtobarn: whether a former leader of {folder} must be stopped is not known, "
                        f"or it refuses: {told}",
                        file=sys.stderr,
                    )
            time.sleep(TELL_SECONDS)

    for argument in folders:
        folder = argument.partition("=/")[0]
        if Path(folder, "catalogue.sqlite").exists():
            threading.Thread(target=tell, args=(folder,), daemon=True).start()


def _has_terminal() -> bool:
    """Return whether this process was started from a terminal that is still open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _signals() -> int:
    """Return a pipe from which the number of each signal for the server is read, one byte each.

    `sigwait` is not enough: a thread that was started before, such as one of NumPy's, receives a signal that
    comes while this thread is not waiting, and the process ends.
    """
    numbers, sink = os.pipe()
    os.set_blocking(sink, False)
    signal.set_wakeup_fd(sink)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return numbers


def _reload(server: _serving.Server) -> None:
    """Reload the configuration; what fails is logged, and reported on standard error."""
    try:
        server.reload()
    except (FemtobarnError, OSError) as error:
        print(
            f"femtobarn: reload failed in part, old settings stay in force: {error}",
            file=sys.stderr,
            flush=True,
        )


def top_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``top``."""
    parser.add_argument(
        "server", nargs="?", default="localhost:1094", help="HOST:PORT or URL (localhost:1094)"
    )
    parser.add_argument(
        "-n", "--times", type=int, default=0, help="number of displays before the end (0: endless)"
    )
    parser.add_argument("-d", "--delay", type=float, default=2.0, help="seconds between displays (2)")


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
    text = "\n".join(_lines(status, rates))
    if sys.stdout.isatty():
        columns, rows = shutil.get_terminal_size()
        shown = [line[:columns] for line in text.splitlines()[: rows - 1]]
        sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(shown) + "\n")
    else:
        sys.stdout.write(text + "\n\n")
    sys.stdout.flush()


def _lines(status: dict[str, Any], rates: dict[str, float]) -> list[str]:
    totals = status["totals"]
    state = "stopping" if status["is_draining"] else "running"
    lines = [
        f"{status['server']}  {state} for {status['up_seconds']} s",
        f"{totals['open_sessions']:,} sessions  {totals['open_files']:,} files  "
        f"{totals['locks_held']:,} locks  {totals['locks_waited']:,} waiting  {totals['errors']:,} errors",
        f"read {_bytes(rates['bytes_read'])}/s  written {_bytes(rates['bytes_written'])}/s  "
        f"requests {rates['requests']:,.0f}/s  commits {rates['commits']:,.0f}/s",
        "",
    ]
    busiest = sorted(status["sessions"], key=lambda s: s["bytes_read"] + s["bytes_written"], reverse=True)
    sessions = [
        [s["user"], s["host"], s["program"], f"{s['open_files']:,}", f"{s['requests']:,}",
         human_size(s["bytes_read"]), human_size(s["bytes_written"]), f"{s['age_seconds']} s"]
        for s in busiest[:TOP_ROWS]
    ]  # fmt: skip
    heads = ["who", "from", "program", "files", "requests", "read", "written", "for"]
    lines += [*table(heads, sessions, right={3, 4, 5, 6, 7}).splitlines(), ""]
    marks = [(row, "waits") for row in status["waits"]] + [(row, "holds") for row in status["locks"]]
    locks = [
        [r["target"], r["federation"], note, r["by"], f"{r['seconds']} s"] for r, note in marks[:TOP_ROWS]
    ]
    if locks:
        lines += [*table(["lock", "federation", "", "who", "for"], locks, right={4}).splitlines(), ""]
    lines += [
        f"{r['name']}: {r['waiting']:,} files come back, {human_size(r['waiting_bytes'])} wait  "
        f"{r['done']:,} came back  {r['failed']:,} failed"
        for r in status["recalls"][:TOP_ROWS]
        if r["waiting"] or r["done"] or r["failed"]
    ]
    followers = [
        [f["name"], f["federation"], f"{f['behind']:,} commits", f"{f['silent_seconds']:.1f} s"]
        for f in status["followers"][:TOP_ROWS]
    ]
    if followers:
        heads = ["copy", "of", "behind", "silent for"]
        lines += [*table(heads, followers, right={2, 3}).splitlines(), ""]
    files = [
        [f["path"], "writing" if f["is_writable"] else "reading", f"{f['users']:,}",
         human_size(f["bytes_read"]), human_size(f["bytes_written"])]
        for f in status["files"][:TOP_ROWS]
    ]  # fmt: skip
    return lines + table(["file", "for", "users", "read", "written"], files, right={2, 3, 4}).splitlines()


def _bytes(rate: float) -> str:
    return human_size(int(rate))

"""The command that runs a server."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from ipaddress import ip_address
from pathlib import Path

from .. import _serving
from .._exceptions import FemtobarnError, InvalidError, UnavailableError
from .._femtobarn import default_config, start_log
from .._replication import inform_former_leader
from .._sizes import bytes_of_size
from .allocator import return_freed_memory
from .output import emit_line

__all__ = ["serve", "serve_arguments"]

NOTIFY_SECONDS = 5.0
"""Seconds between two attempts to notify a former leader of its successor."""


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``serve``."""
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="federation or folder of files, FOLDER=/name to name it"
    )
    parser.add_argument(
        "--cache-of",
        metavar="URL",
        help="serve the files of another root:// server, and cache read bytes in FOLDER, one for each disk",
    )
    parser.add_argument(
        "--cache-size",
        metavar="SIZE",
        help='size of the cache in each FOLDER, such as "2 TB" (four fifths of its disk)',
    )
    parser.add_argument(
        "--redirect-to",
        metavar="URL",
        action="append",
        default=[],
        help="redirect clients to a root:// server with the requested file, instead of FOLDER; repeatable",
    )
    parser.add_argument(
        "--redirect-cache",
        metavar="URL",
        action="append",
        default=[],
        help="redirect readers of popular files to this cache of these servers, too; repeatable",
    )
    parser.add_argument("-p", "--port", type=int, help="port to listen on (1094); 0: any")
    parser.add_argument(
        "--address", help="address to listen on (all with a certificate or --tls-off, else 127.0.0.1)"
    )
    parser.add_argument(
        "--tls-off", action="store_true", help="serve other machines without a certificate, unencrypted"
    )
    parser.add_argument("-w", "--writable", action="store_true", help="let clients without credentials write")
    parser.add_argument("-r", "--read-only", action="store_true", help="refuse all changes")
    parser.add_argument("--site", metavar="NAME", help="name of this server among several of one federation")
    parser.add_argument("--url", help="URL for clients and the other servers: root://host:port")
    parser.add_argument("-c", "--config", metavar="FILE", help="settings in TOML")
    parser.add_argument(
        "--print-config", action="store_true", help="print all settings with comments, and exit"
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
    return_freed_memory()
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
        tls_off=options.tls_off,
        anonymous="write" if options.writable else None,
        read_only=options.read_only,
        config=options.config,
        site=options.site,
        url=options.url,
    )
    facts = {"address": server.address, "port": server.port, "exports": server.exports}
    people = [f"serving {', '.join(server.exports)} on port {server.port}; stop with Ctrl-C"]
    if ip_address(server.address).is_loopback:
        people.append("  to this machine only; others need a certificate ([tls] of --config) or --tls-off")
    people += [f"  {server.url(name, host='localhost')}" for name in server.exports]
    people.append(f"  http://localhost:{server.port}/ shows its status")
    emit_line(json.dumps(facts) if options.json else "\n".join(people))
    sys.stdout.flush()
    _notify_former_leaders(options.folders)
    # SIGHUP reloads the configuration, unless it came because the terminal was closed, which stops the
    # server.
    while os.read(signals, 1)[0] == signal.SIGHUP and _has_terminal() == had_terminal:
        _reload(server)
    server.stop()


def _notify_former_leaders(folders: list[str]) -> None:
    """Notify leaders that promotions of the served federations left behind, as soon as they answer."""

    def notify_until_stopped(folder: str) -> None:
        last_error = ""
        # A copy that is served may be promoted at any time.
        while True:
            try:
                inform_former_leader(folder)
            except UnavailableError:
                pass
            except FemtobarnError as error:
                if str(error) != last_error:
                    last_error = str(error)
                    print(
                        f"femtobarn: whether a former leader of {folder} must be stopped is not known, "
                        f"or it refuses: {last_error}",
                        file=sys.stderr,
                    )
            time.sleep(NOTIFY_SECONDS)

    for argument in folders:
        folder = argument.partition("=/")[0]
        if Path(folder, "catalogue.sqlite").exists():
            threading.Thread(target=notify_until_stopped, args=(folder,), daemon=True).start()


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
    """Reload the configuration; failures are logged, and reported on standard error."""
    try:
        server.reload()
    except (FemtobarnError, OSError) as error:
        print(
            f"femtobarn: reload failed in part, old settings stay in force: {error}",
            file=sys.stderr,
            flush=True,
        )

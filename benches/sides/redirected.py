"""A redirector in front of two servers of its kind, and its clients: the cost of a redirect.

    redirected.py femtobarn|xrootd FILE PROGRAM SESSIONS SECONDS

PROGRAM is `sessions`. CPU seconds are the redirector's; XRootD's is two processes, `xrootd` and `cmsd`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from server_load import command, outcome
from servers import Server, free_port, running, start, theirs, xrootd

MOMENT = "0.1"
KNOWN_SECONDS = 90
"""The longest time until a redirector knows its servers."""


def main() -> int:
    """Start the redirector, run the clients, and print the sample."""
    kind, file, program, sessions, seconds = sys.argv[1:]
    redirecting = ours_redirecting if kind == "femtobarn" else theirs_redirecting
    with (
        tempfile.TemporaryDirectory(prefix="redirects") as scratch,
        redirecting(Path(file).parent, Path(scratch)) as processes,
    ):
        listening = processes[0]
        wait_until_known(command(program, listening, Path(file), "redirect", "1", "0", MOMENT))
        before = sum(one.cpu_seconds() for one in processes)
        done = outcome(command(program, listening, Path(file), "redirect", sessions, "0", seconds))
        done["cpu_s"] = sum(one.cpu_seconds() for one in processes) - before
    print(json.dumps(done))
    return 0


def wait_until_known(asking: list[str]) -> None:
    """Wait until the redirector knows its servers."""
    end = time.monotonic() + KNOWN_SECONDS
    while subprocess.run(asking, capture_output=True, check=False).returncode != 0:
        if time.monotonic() > end:
            outcome(asking)
        time.sleep(0.5)


@contextmanager
def ours_redirecting(folder: Path, scratch: Path) -> Iterator[list[Server]]:
    """Our servers and our redirector."""
    with ExitStack() as stack:
        urls = []
        # Two addresses of this machine stand for two machines.
        for host in ("127.0.0.1", "127.0.0.2"):
            server = stack.enter_context(start("femtobarn", {"data": folder}, made(scratch / host)))
            urls.append(f"--redirect-to=root://{host}:{server.port}//data")
        port = free_port()
        serve = [sys.executable, "-m", "femtobarn", "serve", *urls, "-p", str(port)]
        yield [stack.enter_context(running(serve, port, made(scratch / "redirector")))]


@contextmanager
def theirs_redirecting(folder: Path, scratch: Path) -> Iterator[list[Server]]:
    """XRootD's servers and its manager, each with a `cmsd`."""
    cluster = free_port()
    lines = [f"all.manager 127.0.0.1:{cluster}", "cms.allow host *", "cms.delay startup 3 servers 2"]
    scratch.chmod(0o755)
    with ExitStack() as stack:
        manager = made(scratch / "manager")
        port = free_port()
        serve = xrootd(manager, manager, port, [*lines, "all.role manager"])
        processes = [
            stack.enter_context(running(serve, port, manager)),
            stack.enter_context(running(with_cmsd(serve), cluster, made(manager / "cmsd"))),
        ]
        for name in ("one", "two"):
            place, port = made(scratch / name), free_port()
            serve = theirs({"data": folder}, place, port)
            with (place / "config").open("a") as config:
                config.write("\n".join([*lines, "all.role server"]) + "\n")
            stack.enter_context(running(serve, port, place))
            # It listens on no port of its own, so that of its server is looked at.
            stack.enter_context(running(with_cmsd(serve), port, made(place / "cmsd")))
        yield processes


def with_cmsd(serve: list[str]) -> list[str]:
    """The command of the `cmsd` beside a server of XRootD's."""
    programs = {shutil.which(name) for name in ("xrootd", "cmsd")}
    (cmsd,) = programs - set(serve)
    if cmsd is None:
        raise SystemExit("cmsd is not installed")
    return [cmsd if part in programs else part for part in serve]


def made(folder: Path) -> Path:
    """A new folder that the servers may write to."""
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder


if __name__ == "__main__":
    sys.exit(main())

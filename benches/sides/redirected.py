"""A redirector in front of two servers of its kind, and its clients: the cost of a redirect.

    redirected.py KIND again FILE PROGRAM SESSIONS SECONDS
    redirected.py KIND once FILES

KIND is that of a server (servers.py); the bare server redirects without looking, and has no servers behind.
`again` opens one file again and again; PROGRAM is `sessions`. `once` opens so many files once each, one after
another, which nobody has asked for before. CPU seconds are the redirector's; XRootD's is two processes,
`xrootd` and `cmsd`.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from server_load import command, outcome
from servers import Server, bare, free_port, running, start, theirs, xrootd

MOMENT = "0.1"
KNOWN_SECONDS = 90
"""The longest time until a redirector knows its servers."""


Redirecting = Callable[[Path, Path], AbstractContextManager[list[Server]]]


def main() -> int:
    """Start the redirector, run the clients, and print the sample."""
    kind, what, *rest = sys.argv[1:]
    known: dict[str, Redirecting] = {"femtobarn": ours_redirecting, "xrootd": theirs_redirecting}
    redirecting = known.get(kind) or partial(bare_redirecting, kind)
    with tempfile.TemporaryDirectory(prefix="redirects") as place:
        scratch = Path(place)
        if what == "again":
            done = again(redirecting, scratch, *rest)
        else:
            done = once(redirecting, scratch, int(rest[0]))
    print(json.dumps(done))
    return 0


def again(
    redirecting: Redirecting, scratch: Path, file: str, program: str, sessions: str, seconds: str
) -> dict[str, Any]:
    """Let sessions open a file again and again."""
    with redirecting(Path(file).parent, scratch) as processes:
        listening = processes[0]
        asking = command(program, listening, Path(file), "redirect", "1", "0", MOMENT)
        wait_until(lambda: subprocess.run(asking, capture_output=True, check=False).returncode == 0)
        before = cpu_seconds(processes)
        done: dict[str, Any] = outcome(
            command(program, listening, Path(file), "redirect", sessions, "0", seconds)
        )
        return done | {"cpu_s": cpu_seconds(processes) - before}


def once(redirecting: Redirecting, scratch: Path, count: int) -> dict[str, Any]:
    """Open files once each."""
    folder = made(scratch / "files")
    for name in ("known", *map(str, range(count))):
        (folder / name).write_bytes(name.encode())
    with redirecting(folder, scratch) as processes:
        wait_until(lambda: opened(processes[0].port, ["known"]) == 1)
        before, wall = cpu_seconds(processes), time.perf_counter()
        redirects = opened(processes[0].port, [str(number) for number in range(count)])
        wall = time.perf_counter() - wall
        return {
            "items": count,
            "bytes": 0,
            "wall_s": wall,
            "cpu_s": cpu_seconds(processes) - before,
            "check": redirects,
        }


def opened(port: int, names: list[str]) -> int:
    """Ask a redirector to open files below `/data`, waiting where it says so; return the number of redirects.

    The requests are kXR_login (3007) and kXR_open (3010) of XRootD's protocol; 4004 is a redirect, 4005 a
    wait.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        answers = connection.makefile("rb")

        def ask(request: bytes) -> tuple[int, bytes]:
            connection.sendall(request)
            _, status, size = struct.unpack(">HHi", answers.read(8))
            return status, answers.read(size)

        ask(struct.pack(">5i", 0, 0, 0, 4, 2012))
        ask(struct.pack(">HHi8s4Bi", 0, 3007, 1, b"bench", 0, 0, 5, 0, 0))
        redirects = 0
        for name in names:
            path = f"/data/{name}".encode()
            request = struct.pack(">HHHHH6s4si", 0, 3010, 0, 0x10, 0, b"", b"", len(path)) + path
            while (answer := ask(request))[0] == 4005:
                time.sleep(struct.unpack(">i", answer[1][:4])[0])
            redirects += answer[0] == 4004
        return redirects


def cpu_seconds(processes: list[Server]) -> float:
    """CPU seconds that all of these have taken."""
    return sum(one.cpu_seconds() for one in processes)


def wait_until(is_known: Callable[[], bool]) -> None:
    """Wait until the redirector knows its servers."""
    end = time.monotonic() + KNOWN_SECONDS
    while not is_known():
        if time.monotonic() > end:
            raise SystemExit(f"the redirector did not know its servers after {KNOWN_SECONDS} s")
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
def bare_redirecting(kind: str, folder: Path, scratch: Path) -> Iterator[list[Server]]:
    """A server that sends each client elsewhere."""
    del folder
    port = free_port()
    with running(bare(kind, "redirect", port), port, scratch) as server:
        yield [server]


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

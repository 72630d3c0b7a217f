"""The measured servers: ours, XRootD's from Debian with its default settings, a bare one; and caches.

The kind of a server is `femtobarn`, `xrootd`, or `PROGRAM:THREADS` for the bare server (bare_server.c).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

# XRootD's server may not run as root.
USER = "xrootd"
START_SECONDS = 30
REQUESTS = Path(__file__).with_name("requests.toml")


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    process: int

    @property
    def url(self) -> str:
        """The URL before the leading slash of names."""
        return f"root://127.0.0.1:{self.port}/"

    def cpu_seconds(self) -> float:
        """CPU seconds that all its threads have taken.

        Read from the CPU clock of the process, whose id follows from the process id (clock_getcpuclockid):
        `/proc` counts only hundredths of a second.
        """
        return time.clock_gettime((~self.process << 3) | 2)


@contextmanager
def start(
    kind: str, exports: dict[str, Path], scratch: Path, *, passes_files: bool = False
) -> Iterator[Server]:
    """Start a server of some writable folders, each under a name; `scratch` is for its other files.

    Ours passes its files to clients only if it should.
    """
    port = free_port()
    if kind == "femtobarn":
        command = ours(exports, port, passes_files=passes_files)
    elif kind == "xrootd":
        command = theirs(exports, scratch, port)
    else:
        command = bare(kind, linked(exports, scratch), port)
    with running(command, port, scratch) as server:
        yield server


@contextmanager
def start_cache(kind: str, origin: Server, scratch: Path) -> Iterator[Server]:
    """Start a cache of a server's folder ``/data``, which keeps files in ``scratch/kept``."""
    port = free_port()
    kept = scratch / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    scratch.chmod(0o777)
    if kind == "femtobarn":
        serve = [sys.executable, "-m", "femtobarn", "serve", "--cache-of", f"{origin.url}/data", str(kept)]
        command = [*serve, "-p", str(port)]
    else:
        # Kept files, and the RAM for them, as XCache has them by default.
        lines = [
            "ofs.osslib libXrdPss.so",
            "pss.cachelib libXrdFileCache.so",
            f"pss.origin 127.0.0.1:{origin.port}",
        ]
        command = xrootd(kept, scratch, port, lines)
    with running(command, port, scratch) as server:
        yield server


@contextmanager
def cache_of_file(
    kind: str, file: Path, reached: Callable[[Server], AbstractContextManager[Server]] = nullcontext
) -> Iterator[tuple[Server, Path]]:
    """Start a cache of XRootD's server with a file's folder as ``/data``, and tell where it keeps files.

    The cache reaches the server as the one that `reached` makes of it. The kind `origin` is no cache: it is
    the server itself as it is reached.
    """
    with tempfile.TemporaryDirectory(prefix="cached", dir=file.parent) as folder:
        scratch = Path(folder)
        scratch.chmod(0o777)
        (scratch / "origin").mkdir()
        (scratch / "cache").mkdir()
        with start("xrootd", {"data": file.parent}, scratch / "origin") as origin, reached(origin) as there:
            one = nullcontext(there) if kind == "origin" else start_cache(kind, there, scratch / "cache")
            with one as cache:
                yield cache, scratch / "cache" / "kept"


@contextmanager
def running(command: list[str], port: int, scratch: Path) -> Iterator[Server]:
    """Run a server until the end."""
    with (
        (scratch / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            wait_for(port, process, scratch / "log")
            yield Server(port, process.pid)
        finally:
            process.terminate()


def ours(exports: dict[str, Path], port: int, *, passes_files: bool = False) -> list[str]:
    """The command of our server, from the package."""
    served = [f"{folder}=/{name}" for name, folder in exports.items()]
    settings = [] if passes_files else ["-c", str(REQUESTS)]
    command = [sys.executable, "-m", "femtobarn", "serve", *served, "-p", str(port), "--writable", *settings]
    # At each address of this machine, as redirectors tell servers apart by their addresses.
    return [*command, "--address", "0.0.0.0", "--tls-off"]


def theirs(exports: dict[str, Path], scratch: Path, port: int) -> list[str]:
    """The command of XRootD's server of some folders."""
    scratch.chmod(0o777)
    return xrootd(linked(exports, scratch), scratch, port, [])


def bare(kind: str, root: Path | str, port: int) -> list[str]:
    """The command of the bare server of a folder, or of one that redirects."""
    program, _, threads = kind.rpartition(":")
    return [program, str(port), str(root), threads]


def linked(exports: dict[str, Path], scratch: Path) -> Path:
    """A folder with links to the exported ones."""
    root = scratch / "root"
    root.mkdir(mode=0o777)
    for name, folder in exports.items():
        (root / name).symlink_to(folder)
    return root


def xrootd(root: Path, scratch: Path, port: int, more: list[str]) -> list[str]:
    """The command of XRootD's server with more settings, as a user other than root."""
    program = shutil.which("xrootd")
    if program is None:
        raise SystemExit("xrootd is not installed")
    lines = [
        "all.export /",
        f"oss.localroot {root}",
        f"all.adminpath {scratch / 'admin'}",
        f"all.pidpath {scratch / 'admin'}",
        f"xrd.port {port}",
        "xrd.network nodnr",
        *more,
    ]
    (scratch / "config").write_text("\n".join(lines) + "\n")
    change = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
    return [*change, program, "-c", str(scratch / "config"), "-n", "bench"]


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")

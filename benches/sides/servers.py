"""The measured servers: ours, and XRootD's from Debian with its default settings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# XRootD's server may not run as root.
USER = "xrootd"
START_SECONDS = 30


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
def start(kind: str, exports: dict[str, Path], scratch: Path) -> Iterator[Server]:
    """Start a server of some writable folders, each under a name; `scratch` is for its other files."""
    port = free_port()
    command = ours(exports, port) if kind == "femtobarn" else theirs(exports, scratch, port)
    log = (scratch / "log").open("w")
    with subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as running:
        try:
            wait_for(port, running, scratch / "log")
            yield Server(port, running.pid)
        finally:
            running.terminate()


def ours(exports: dict[str, Path], port: int) -> list[str]:
    """The command of our server, from the package."""
    served = [f"{folder}=/{name}" for name, folder in exports.items()]
    return [sys.executable, "-m", "femtobarn", "serve", *served, "-p", str(port), "--writable"]


def theirs(exports: dict[str, Path], scratch: Path, port: int) -> list[str]:
    """The command of XRootD's server, as a user other than root."""
    program = shutil.which("xrootd")
    if program is None:
        raise SystemExit("xrootd is not installed")
    scratch.chmod(0o777)
    root = scratch / "root"
    root.mkdir(mode=0o777)
    for name, folder in exports.items():
        (root / name).symlink_to(folder)
    lines = [
        "all.export /",
        f"oss.localroot {root}",
        f"all.adminpath {scratch / 'admin'}",
        f"all.pidpath {scratch / 'admin'}",
        f"xrd.port {port}",
        "xrd.network nodnr",
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


def wait_for(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and running.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")

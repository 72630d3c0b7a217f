"""One `root://` server and its clients: what the server's work costs.

    serving.py femtobarn|xrootd FILE WORK PROGRAM SESSIONS SECONDS    by PROGRAM, which is `sessions`
    serving.py femtobarn|xrootd FILE copy-up|copy-down|copy-down-plain

The CPU seconds are the server's. XRootD's server is Debian's, with default settings; it may not run as root.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
USER = "xrootd"
START_SECONDS = 30


@dataclass(frozen=True)
class Server:
    """A server that is running."""

    port: int
    process: int

    def cpu_seconds(self) -> float:
        """CPU seconds that it has taken, all threads."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Start the server, let clients work, print."""
    kind, file, work, *rest = sys.argv[1:]
    folder = Path(file).parent
    with (
        tempfile.TemporaryDirectory(prefix="serving") as scratch,
        start(kind, folder, Path(scratch)) as server,
    ):
        if work.startswith("copy"):
            print(json.dumps(copied(server, Path(file), work)))
        else:
            print(json.dumps(worked(server, Path(file), work, *rest)))
    return 0


@contextmanager
def start(kind: str, folder: Path, scratch: Path) -> Iterator[Server]:
    """A server of the folder's files and of a scratch folder, `/up`."""
    scratch.chmod(0o777)
    (scratch / "up").mkdir(mode=0o777)
    (scratch / "up").chmod(0o777)
    port = free_port()
    command = ours(folder, scratch, port) if kind == "femtobarn" else theirs(folder, scratch, port)
    log = (scratch / "log").open("w")
    with subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as running:
        try:
            wait_for(port, running, scratch / "log")
            yield Server(port, running.pid)
        finally:
            running.terminate()


def ours(folder: Path, scratch: Path, port: int) -> list[str]:
    """Our server, run from the package."""
    served = [f"{folder}=/data", f"{scratch / 'up'}=/up"]
    return [sys.executable, "-m", "femtobarn", "serve", *served, "-p", str(port), "--writable"]


def theirs(folder: Path, scratch: Path, port: int) -> list[str]:
    """XRootD's server, as a user who may run it."""
    program = shutil.which("xrootd")
    if program is None:
        raise SystemExit("xrootd is not installed")
    root = scratch / "root"
    root.mkdir(mode=0o777)
    (root / "data").symlink_to(folder)
    (root / "up").symlink_to(scratch / "up")
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
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and running.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")


def worked(
    server: Server, file: Path, work: str, clients: str, sessions: str, seconds: str
) -> dict[str, Any]:
    """Sessions that ask again and again; or that do nothing, for the memory that they take."""
    program = [clients, f"127.0.0.1:{server.port}"]
    place = [f"/data/{file.name}"]
    process = str(server.process)
    empty = outcome([*program, "idle", *place, "0", "0.5", process])
    outcome([*program, "stat", *place, "1", "0.5", process])
    done = outcome([*program, work, *place, sessions, seconds, process])
    return {**done, "memory_bytes": (done["memory_kb"] - empty["memory_kb"]) * 1024}


def outcome(command: list[str]) -> dict[str, Any]:
    """What a program says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def copied(server: Server, file: Path, work: str) -> dict[str, Any]:
    """A copy by xrdcp: with page checksums, or by plain reads."""
    url = f"root://127.0.0.1:{server.port}/"
    pages = "0" if work.endswith("plain") else "1"
    command = ["xrdcp", "--silent", "--force"]
    up = [str(file), f"{url}/up/copy"]
    command += up if work == "copy-up" else [f"{url}/data/{file.name}", "/dev/null"]
    before, started = server.cpu_seconds(), time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, "XRD_CPUSEPGWRTRD": pages}, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr.decode()}")
    wall, size = time.monotonic() - started, file.stat().st_size
    cpu = server.cpu_seconds() - before
    return {"items": size, "bytes": size, "wall_s": wall, "cpu_s": max(cpu, 0.01), "check": 0}


if __name__ == "__main__":
    sys.exit(main())

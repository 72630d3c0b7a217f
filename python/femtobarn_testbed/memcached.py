"""A memcached beside the server, for the time of a point."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import femtobarn as fb

__all__ = ["Memcached", "run_memcached"]

START_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Memcached:
    """A running memcached."""

    address: str
    pid: int


@contextmanager
def run_memcached(memory_bytes: int, folder: Path) -> Iterator[Memcached | None]:
    """Run a memcached for the time of a block, or none if it has no memory. It ends with this process, too.

    Raises
    ------
    UnavailableError
        If memcached is not installed, or does not start.
    """
    if not memory_bytes:
        yield None
        return
    program = shutil.which("memcached", path=f"{os.environ.get('PATH', '')}:/usr/bin")
    if program is None:
        raise fb.UnavailableError("this workload needs memcached, which is not installed")
    port_file = folder / "memcached.port"
    # Port -1 is any free one, which memcached writes into the file.
    command = ["setpriv", "--pdeathsig", "KILL", program, "-l", "127.0.0.1", "-p", "-1", "-U", "0"]
    command += ["-m", str(max(memory_bytes >> 20, 1)), "-I", "512k"]
    command += ["-u", "root"] if os.geteuid() == 0 else []
    variables = {**os.environ, "MEMCACHED_PORT_FILENAME": str(port_file)}
    with subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL) as process:
        try:
            yield Memcached(f"127.0.0.1:{_port_of(process, port_file)}", process.pid)
        finally:
            process.kill()


def _port_of(process: subprocess.Popen[bytes], port_file: Path) -> int:
    """Wait for the port of a memcached."""
    end = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < end and process.poll() is None:
        if port_file.is_file():
            for line in port_file.read_text().splitlines():
                kind, _, port = line.partition(": ")
                if kind == "TCP INET":
                    return int(port)
        time.sleep(0.02)
    raise fb.UnavailableError(f"memcached did not start (exit code {process.poll()})")

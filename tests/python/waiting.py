"""Waiting for other processes and threads, not for ever."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from time import monotonic, sleep
from typing import Any

__all__ = ["free_port", "free_ports", "stop_process", "wait_for", "wait_for_port"]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now."""
    (port,) = free_ports(1, host)
    return port


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nothing listens on now, and that the system gives to no connection meanwhile."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            # Ports of outgoing connections begin at 32768.
            port = SystemRandom().randrange(10_000, 32_000)
            with suppress(OSError):
                stack.enter_context(socket.create_server((host, port)))
                found.append(port)
    return found


def wait_for(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when something is so."""
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it did not come about"
        sleep(0.05)


def stop_process(process: subprocess.Popen[Any]) -> None:
    """Return when all threads of a process have stopped; SIGCONT lets them go on."""
    process.send_signal(signal.SIGSTOP)
    threads = Path(f"/proc/{process.pid}/task")

    def state(thread: Path) -> str:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]

    wait_for(lambda: all(state(thread) in "TZ" for thread in threads.iterdir()))


def wait_for_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when a server accepts connections; fails with its log if it ends before, or never does."""
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(0.05)
    raise AssertionError(log.read_text())

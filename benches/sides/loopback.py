"""The bytes of a file from one process to another over a connection of this machine: loopback.py FILE ITEMS.

The limit of servers: one process sends the file by `sendfile`, another receives it by `recv` into one buffer,
and sums its 32-bit words. CPU seconds are those of both. The second pass counts.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np
from timing import Seen

BUFFER_BYTES = 1 << 20


def main() -> int:
    """Send and receive the file twice, and print the sample of the second time."""
    path, items = Path(sys.argv[1]), int(sys.argv[2])
    transfer(path)
    seen, wall, cpu = transfer(path)
    sample = {"items": items, "bytes": seen.bytes, "wall_s": wall, "cpu_s": cpu, "check": seen.check}
    print(json.dumps(sample))
    return 0


def transfer(path: Path) -> tuple[Seen, float, float]:
    """Send and receive the file; return what was received, and the elapsed and the CPU seconds."""
    seen, buffer = Seen(), bytearray(BUFFER_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wall, cpu = time.perf_counter(), cpu_seconds()
        sender = os.fork()
        if sender == 0:
            send(path, listener)
        with socket.create_connection(listener.getsockname()) as connection:
            while received := connection.recv_into(buffer, flags=socket.MSG_WAITALL):
                seen.add(np.frombuffer(buffer, np.uint8, received))
        _, status = os.waitpid(sender, 0)
    if status != 0:
        raise SystemExit(f"{path} could not be sent")
    return seen, time.perf_counter() - wall, cpu_seconds() - cpu


def send(path: Path, listener: socket.socket) -> None:
    """Send the file over the first connection, and end the process."""
    try:
        connection, _ = listener.accept()
        with path.open("rb") as file:
            connection.sendfile(file)
    except OSError:
        os._exit(1)
    os._exit(0)


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = (getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())

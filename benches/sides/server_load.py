"""One `root://` server and its clients: the cost of the server's work.

    server_load.py KIND PATH WORK PROGRAM SESSIONS IDLE SECONDS
    server_load.py KIND FILE calls PROGRAM SESSIONS,... SECONDS     system calls of reads
    server_load.py KIND FILE copy-up|copy-down|copy-down-plain

KIND is that of a server (servers.py), PROGRAM is `sessions`. PATH is a file, or the folder of a federation.
CPU seconds are the server's. A client of XRootD's compares a few reads with the file before the load, and
what was copied to a server is compared with its source.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from filecmp import cmp
from pathlib import Path
from typing import Any

from servers import Server, start

# Duration of the warm-up, and of the measurement of an empty server (s).
MOMENT = "0.1"
READ = "read-16384"
PIECE_BYTES = 1 << 20


def main() -> int:
    """Start the server, run the clients, and print the sample."""
    kind, file, work, *rest = sys.argv[1:]
    path = Path(file)
    with tempfile.TemporaryDirectory(prefix="serving") as scratch:
        up = Path(scratch) / "up"
        up.mkdir()
        up.chmod(0o777)
        if path.is_file():
            read(path)
        exports = {"data": path if path.is_dir() else path.parent, "up": up}
        with start(kind, exports, Path(scratch)) as server:
            if work.startswith("copy"):
                done = copied(server, path, work)
                if work == "copy-up" and not cmp(path, up / "copy", shallow=False):
                    raise SystemExit(f"{kind}: other bytes were written")
            elif work == "calls":
                done = traced(server, path, *rest)
            else:
                done = worked(server, path, work, *rest)
    print(json.dumps(done))
    return 0


def read(file: Path) -> None:
    """Read a file into the page cache, from which parts may have been evicted."""
    memory = bytearray(PIECE_BYTES)
    with file.open("rb", buffering=0) as opened:
        while opened.readinto(memory):
            pass


def compare(server: Server, file: Path) -> None:
    """Read pieces of a file from a server, one by one and in one request, and compare them."""
    from XRootD.client import File

    size = file.stat().st_size
    chunks = [(offset, PIECE_BYTES // 16) for offset in (0, size // 2, size // 2 + PIECE_BYTES // 16)]
    with file.open("rb") as source:
        wanted = [os.pread(source.fileno(), length, offset) for offset, length in chunks]
    remote = File()
    status, _ = remote.open(f"{server.url}/data/{file.name}")
    singly = [remote.read(offset, length)[1] for offset, length in chunks if status.ok]
    _, vector = remote.vector_read(chunks) if status.ok else (status, [])
    if singly != wanted or [chunk.buffer for chunk in vector or []] != wanted:
        raise SystemExit(f"{server.url} does not serve the bytes of {file}: {status.message}")
    remote.close()


def worked(
    server: Server, path: Path, work: str, clients: str, sessions: str, idle: str, seconds: str
) -> dict[str, Any]:
    """Run active sessions beside idle ones.

    Memory is the server's peak; if all sessions are idle, its memory while they are connected.
    """
    if path.is_file():
        compare(server, path)
    for many in ("0",) if path.is_dir() else ("1", "0"):
        empty = outcome(command(clients, server, path, "stat", many, "0", MOMENT))
    done = outcome(command(clients, server, path, work, sessions, idle, seconds))
    if int(sessions) > 0:
        return {**done, "memory_bytes": (done["highest_kb"] - empty["memory_kb"]) * 1024}
    memory = max(done["memory_kb"] - empty["memory_kb"], 0) * 1024
    return {**done, "memory_bytes": memory, "points": [(int(idle), memory / 1e6)]}


def command(
    clients: str, server: Server, path: Path, work: str, sessions: str, idle: str, seconds: str
) -> list[str]:
    """The command line of `sessions`."""
    served = "/data" if path.is_dir() else f"/data/{path.name}"
    address = f"127.0.0.1:{server.port}"
    return [clients, address, work, served, sessions, idle, seconds, str(server.process)]


def outcome(command: list[str]) -> dict[str, Any]:
    """Run a program, and return the JSON object that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr}")
    sample: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return sample


def traced(server: Server, file: Path, clients: str, counts: str, seconds: str) -> dict[str, Any]:
    """The system calls per read for several numbers of sessions, counted with `strace`."""
    runs = [(many, *calls(server, file, clients, many, seconds)) for many in counts.split(",")]
    points = [(int(many), made / done["items"]) for many, done, made in runs]
    summed = {key: sum(done[key] for _, done, _ in runs) for key in ("items", "bytes", "wall_s", "cpu_s")}
    return {**summed, "check": 0, "points": points}


def calls(server: Server, file: Path, clients: str, many: str, seconds: str) -> tuple[dict[str, Any], int]:
    """Run sessions that are already logged in; return their sample, and the server's system calls."""
    together = {**os.environ, "BENCH_TOGETHER": "1"}
    line = command(clients, server, file, READ, many, "0", seconds)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    tracing = ["strace", "-c", "-f", "-p", str(server.process)]
    with subprocess.Popen(line, env=together, text=True, **pipes) as asking:
        assert asking.stdout is not None
        if asking.stdout.readline() != "ready\n":
            raise SystemExit(f"{line} did not get ready")
        with subprocess.Popen(tracing, text=True, **pipes) as trace:
            assert trace.stderr is not None
            # strace prints a line when it has attached.
            trace.stderr.readline()
            output, _ = asking.communicate("\n")
            trace.terminate()
            _, table = trace.communicate()
    total = next(row.split() for row in table.splitlines() if row.endswith(" total"))
    # The columns are percent, seconds, microseconds per call, calls, and errors if there are any.
    return json.loads(output.splitlines()[-1]), int(total[3])


def copied(server: Server, file: Path, work: str) -> dict[str, Any]:
    """Copy a file with xrdcp, with page checksums or by plain reads."""
    pages = "0" if work.endswith("plain") else "1"
    command = ["xrdcp", "--silent", "--force"]
    up = [str(file), f"{server.url}/up/copy"]
    command += up if work == "copy-up" else [f"{server.url}/data/{file.name}", "/dev/null"]
    before, started = server.cpu_seconds(), time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, "XRD_CPUSEPGWRTRD": pages}, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr.decode()}")
    wall, size = time.monotonic() - started, file.stat().st_size
    return {"items": size, "bytes": size, "wall_s": wall, "cpu_s": server.cpu_seconds() - before, "check": 0}


if __name__ == "__main__":
    sys.exit(main())

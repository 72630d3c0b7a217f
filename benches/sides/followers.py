"""Clients of XRootD's that read databases at a leader's server, which sends them to followers, too.

    followers.py FOLDER CLIENTS SECONDS FOLLOWERS...

The server of the leader and that of each follower have a played disk each. A point is, for a number of
followers, the bytes a second by those of the first number. CPU seconds are those of all servers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from servers import Server, free_port, running

import femtobarn as fb
from femtobarn_testbed.hot.clients import Task, client_processes

NAME = "leader.fed"
FILES = 16
FILE_BYTES = 32_000_000
BLOCK_BYTES = 200_000
BLOCKS = 10
"""Blocks that a client reads before it opens another file."""
DISK = "bytes_per_second = 20_000_000, seeks_per_second = 500, cache_bytes = 4_000_000"
PROCESSES = 2
ASKED_SECONDS = 3.0
"""Until a leader's server has asked its followers."""


@fb.persistent
class Reading:
    """A value."""

    value: fb.float64


def main() -> int:
    """Run the clients with each number of followers, and print the sample."""
    folder, clients, seconds, *numbers = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    rates, total, cpu = [], 0, 0.0
    with tempfile.TemporaryDirectory(prefix="followers", dir=folder) as made:
        place = Path(made)
        files = write_files(place / NAME)
        for number in numbers:
            here = place / number
            here.mkdir()
            size, spent = read(place / NAME, files, here, int(number), (int(clients), float(seconds)))
            rates.append(size / float(seconds))
            total, cpu = total + size, cpu + spent
    points = [(int(number), rate / rates[0]) for number, rate in zip(numbers, rates, strict=True)]
    wall = float(seconds) * len(numbers)
    sample = {"items": total // BLOCK_BYTES, "bytes": total, "wall_s": wall, "cpu_s": cpu, "check": 0}
    print(json.dumps(sample | {"points": points}))
    return 0


def write_files(folder: Path) -> list[Path]:
    """Write sealed databases, and return their files."""
    values = np.random.default_rng(2).random(FILE_BYTES // 8)
    with fb.create(folder) as federation:
        for number in range(FILES):
            with federation.transaction() as txn:
                database = txn.database(f"run{number}", create=True)
                database.container("readings", Reading, create=True).extend({"value": values})
            federation.seal(f"run{number}")
        return [Path(each.path) for each in federation.where()]


def read(
    leader: Path, files: list[Path], scratch: Path, followers: int, load: tuple[int, float]
) -> tuple[int, float]:
    """Read with a number of followers; return bytes, and the CPU seconds of all servers."""
    clients, seconds = load
    # Addresses of this machine stand for machines.
    hosts = [(f"127.0.0.{2 + number}", free_port()) for number in range(followers)]
    named = json.dumps([f"{host}:{port}" for host, port in hosts])
    with ExitStack() as stack:
        port = free_port()
        first = serve(leader, scratch / "leader", port, f"[redirect]\nfollowers = {named}\n" if hosts else "")
        servers = [stack.enter_context(first)]
        for number, (_, at) in enumerate(hosts):
            copy = scratch / f"copy{number}"
            stack.enter_context(following(f"{servers[0].url}/{NAME}", copy / NAME))
            servers.append(stack.enter_context(serve(copy / NAME, scratch / f"server{number}", at)))
        processes = stack.enter_context(client_processes(PROCESSES))
        processes.wait_until_ready()
        time.sleep(ASKED_SECONDS)
        before = sum(server.cpu_seconds() for server in servers)
        mine = {client: files[client % FILES :] + files[: client % FILES] for client in range(clients)}
        task = Task(f"127.0.0.1:{port}//{NAME}", mine, BLOCK_BYTES, BLOCKS, 0.0, seed=followers)
        visits = processes.work(task, seconds, lambda: None)
        cpu = sum(server.cpu_seconds() for server in servers) - before
    failures = {visit.failure for visit in visits if visit.failure}
    if failures:
        raise SystemExit(f"clients failed: {failures}")
    return sum(size for visit in visits for at_time, size in visit.reads if at_time <= seconds), cpu


@contextmanager
def following(url: str, folder: Path) -> Iterator[None]:
    """Follow a leader until the end, from the time on when the copy has all."""
    folder.parent.mkdir()
    with fb.follow(url, folder) as copy:
        copy.catch_up()
    command = [sys.executable, "-m", "femtobarn", "follow", url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def serve(folder: Path, scratch: Path, port: int, more: str = "") -> Iterator[Server]:
    """Serve a federation from a played disk."""
    scratch.mkdir()
    export = [f"folder = {json.dumps(str(folder))}", f'name = "/{NAME}"', f"throttle = {{ {DISK} }}"]
    (scratch / "config.toml").write_text("\n".join([more, "[[export]]", *export]) + "\n")
    command = [sys.executable, "-m", "femtobarn", "serve", "-c", str(scratch / "config.toml")]
    # At each address of this machine: by default a server without TLS has only 127.0.0.1.
    command += ["-p", str(port), "--address", "0.0.0.0", "--tls-off"]
    with running(command, port, scratch) as server:
        yield server


if __name__ == "__main__":
    sys.exit(main())

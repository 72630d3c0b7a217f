"""The memcached of Debian, and damage of what caches hold."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from waiting import free_port

__all__ = ["GARBLED", "MEMCACHED", "Memcached", "flip_bits"]

MEMCACHED = shutil.which("memcached", path=f"{os.environ['PATH']}:/usr/bin")


class Memcached:
    """The memcached of Debian, and a client that writes into it what it likes."""

    def __init__(self, megabytes: int = 64) -> None:
        self.port = free_port()
        self.megabytes = megabytes
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        assert MEMCACHED is not None
        user = ["-u", os.environ.get("USER", "root")] if os.geteuid() == 0 else []
        command = [
            MEMCACHED,
            "-l",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            "0",
            "-m",
            str(self.megabytes),
            "-I",
            "512k",
        ]
        self.process = subprocess.Popen([*command, *user])
        end = time.monotonic() + 60
        while not self._listens():
            assert self.process.poll() is None, "memcached has ended"
            assert time.monotonic() < end, "memcached does not start"
            time.sleep(0.02)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def values(self) -> dict[str, bytes]:
        """All keys with their values."""
        with socket.create_connection(("127.0.0.1", self.port)) as stream, stream.makefile("rwb") as file:
            file.write(b"lru_crawler metadump all\r\n")
            file.flush()
            keys = []
            while (line := file.readline()) != b"END\r\n":
                keys.append(unquote(line.split()[0].decode().removeprefix("key=")))
            found = {}
            for key in keys:
                file.write(f"get {key}\r\n".encode())
                file.flush()
                if (line := file.readline()) == b"END\r\n":
                    continue
                found[key] = file.read(int(line.split()[3]))
                assert file.readline() + file.readline() == b"\r\nEND\r\n"
            return found

    def set(self, values: dict[str, bytes]) -> None:
        """Put values under keys."""
        with socket.create_connection(("127.0.0.1", self.port)) as stream, stream.makefile("rwb") as file:
            for key, value in values.items():
                file.write(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
                file.flush()
                assert file.readline() == b"STORED\r\n"


def flip_bits(path: Path, count: int) -> None:
    """Flip this many bits of a file."""
    rng = random.Random(count)
    with path.open("r+b") as file:
        size = path.stat().st_size
        for _ in range(count):
            at = rng.randrange(size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def flipped(values: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The values, each with one bit flipped."""
    changed = {}
    for key, value in values.items():
        content = bytearray(value)
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        changed[key] = bytes(content)
    return changed


def swapped(values: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The values, each under the key of another one."""
    keys = list(values)
    return dict(zip(keys, [values[key] for key in keys[1:] + keys[:1]], strict=True))


GARBLED: dict[str, Callable[[dict[str, bytes], random.Random], dict[str, bytes]]] = {
    "flipped": flipped,
    "swapped": swapped,
    "truncated": lambda values, rng: {k: v[: rng.randrange(len(v) + 1)] for k, v in values.items()},
    "empty": lambda values, rng: dict.fromkeys(values, b""),
    "replaced": lambda values, rng: {k: rng.randbytes(len(v)) for k, v in values.items()},
    "large": lambda values, rng: {k: (v + bytes(400_000))[:450_000] for k, v in values.items()},
}

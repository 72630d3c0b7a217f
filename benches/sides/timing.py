"""The timed part of sides in Python, and the checksum that proves that all sides read the same data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Source = TypeVar("Source")
Array = NDArray[Any]


@dataclass
class Seen:
    """The processed entries, the bytes of their values, and the sum of their 32-bit words, modulo 2^32."""

    items: int = 0
    bytes: int = 0
    check: int = 0

    def add(self, values: Array) -> None:
        """Add contiguous values."""
        words = values.reshape(-1).view(np.uint8).view(np.uint32)
        # A sum in 32-bit arithmetic is vectorised, and wraps.
        self.check = (self.check + int(np.add.reduce(words, dtype=np.uint32))) % 2**32
        self.bytes += words.nbytes


def measure(open_source: Callable[[], Source], work: Callable[[Source], Seen]) -> None:
    """Do the work twice, opening the source each time, and time the second pass."""
    work(open_source())
    measure_once(open_source, work)


def measure_once(
    open_source: Callable[[], Source], work: Callable[[Source], Seen], folder: Path | None = None
) -> None:
    """Do the work once, and print its sample, with the bytes on disk of a folder."""
    source = open_source()
    wall, cpu = time.perf_counter(), time.process_time()
    seen = work(source)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sample = {"items": seen.items, "bytes": seen.bytes, "wall_s": wall, "cpu_s": cpu, "check": seen.check}
    if folder is not None:
        sample["disk_bytes"] = disk_bytes(folder)
    print(json.dumps(sample))


def disk_bytes(folder: Path) -> int:
    """Bytes on disk of the files in a folder."""
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())


def sync(path: Path) -> None:
    """Make a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.close(descriptor)

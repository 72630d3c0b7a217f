"""The write rate of a disk, past the operating system's cache."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

from femtobarn import InvalidError

__all__ = ["written_bytes_per_second"]

BLOCK_BYTES = 2 << 20
"""Size of the engine's own writes."""


def written_bytes_per_second(folder: Path, blocks: int = 256) -> float:
    """Write blocks of 2 MiB to an unnamed file in a folder, and return the bytes per second.

    Raises
    ------
    InvalidError
        If the folder cannot be written to, or its file system has no direct I/O.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file, mmap.mmap(-1, BLOCK_BYTES) as block:
            # Random bytes: some disks do not store zeros.
            block.write(os.urandom(BLOCK_BYTES))
            target = os.open(f"/proc/self/fd/{file.fileno()}", os.O_WRONLY | os.O_DIRECT)
            try:
                start = time.monotonic()
                for number in range(blocks):
                    os.pwrite(target, block, number * BLOCK_BYTES)
                os.fdatasync(target)
                return blocks * BLOCK_BYTES / (time.monotonic() - start)
            finally:
                os.close(target)
    except OSError as error:
        raise InvalidError(f"cannot measure the disk of {folder}: {error}") from error

"""What a disk takes: bytes a second that are written past the operating system's cache."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

from femtobarn import InvalidError

__all__ = ["written_bytes_per_second"]

BLOCK_BYTES = 2 << 20
"""What the engine writes at once, too."""


def written_bytes_per_second(folder: Path, blocks: int = 256) -> float:
    """Write a file of so many blocks of 2 MiB, which has no name, and return what the disk took a second.

    Raises
    ------
    InvalidError
        If that cannot be done there; the text says why.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file, mmap.mmap(-1, BLOCK_BYTES) as block:
            # Not zeros, which some disks do not write.
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
        raise InvalidError(f"what the disk of {folder} takes cannot be measured: {error}") from error

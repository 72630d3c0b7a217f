"""The C library's allocator in a process that serves for months.

glibc has up to eight arenas for each core, and frees a block into the arena that it came from. By default
each arena keeps the end of its memory, up to twice the size of the largest block that was mapped alone and
freed before: 4 MiB for each thread that received a part of a database which moved, 14 to 28 MB of a server.
Nor does it merge free blocks of up to 128 bytes before a large one is freed. Each thread still keeps up to
seven free blocks of each size below 1 kB for itself. The buffers for data in transit are not glibc's: the
server maps them itself, and uses them again.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["return_freed_memory"]

# The parameters of `mallopt`, in <malloc.h>.
FAST_BYTES_MAX = 1
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
ARENAS_MAX = -8

LARGE_BYTES = 1 << 20
"""A block of this size is mapped alone, and returned when it is freed. An arena keeps less at its end."""


def return_freed_memory() -> None:
    """Let glibc return what is freed, from one arena for each core; another C library stays as it is.

    To be called before threads are started, which would have their arenas already.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return
    for parameter, value in (
        (ARENAS_MAX, max(2, os.cpu_count() or 2)),
        (MMAP_THRESHOLD, LARGE_BYTES),
        (TRIM_THRESHOLD, LARGE_BYTES),
        (FAST_BYTES_MAX, 0),
    ):
        library.mallopt(parameter, value)

"""Traces: reads and writes of files, with their times.

Invariants: times ascend; files are numbered from 0 in the order of their first access; the size of a file is
the largest that the trace has.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from femtobarn import InvalidError, NotFoundError

__all__ = ["Trace", "next_accesses", "read_trace", "trace_of"]

COLUMNS = ("time_s", "file", "bytes")
"""First line of a recorded trace. A fourth column, ``operation``, is ``read`` or ``write``."""


@dataclass(frozen=True)
class Trace:
    """Accesses to whole files, in the order of time."""

    times: NDArray[np.float64]
    """Seconds, of each access."""
    files: NDArray[np.int64]
    """The file of each access."""
    is_write: NDArray[np.bool_]
    """Whether the access made the file; the disk then has it, without staging."""
    sizes: NDArray[np.int64]
    """Bytes, of each file."""

    @property
    def distinct_bytes(self) -> int:
        """Bytes of all files together: a disk of this size never evicts."""
        return int(self.sizes.sum())


def trace_of(
    times: NDArray[np.float64],
    files: NDArray[np.int64],
    sizes: NDArray[np.int64],
    is_write: NDArray[np.bool_],
) -> Trace:
    """Return a trace of accesses in any order; files that no access names are left out."""
    order = np.argsort(times, kind="stable")
    named, first, files = np.unique(files[order], return_index=True, return_inverse=True)
    number = np.empty(len(named), np.int64)
    by_first = np.argsort(first)
    number[by_first] = np.arange(len(named))
    return Trace(times[order], number[files], is_write[order], sizes[named[by_first]])


def read_trace(path: Path) -> Trace:
    """Read a recorded trace: CSV with the columns of :data:`COLUMNS`, lines in any order.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InvalidError
        If the file is not a trace, or has no access; the text names the line.
    """
    names: dict[str, int] = {}
    sizes: list[int] = []
    accesses: list[tuple[float, int, bool]] = []
    for time, name, size, is_write in _lines(path):
        file = names.setdefault(name, len(names))
        if file == len(sizes):
            sizes.append(size)
        # The record of an access during which the file was written has less than the whole size.
        sizes[file] = max(sizes[file], size)
        accesses.append((time, file, is_write))
    if not accesses:
        raise InvalidError(f"{path} has no accesses")
    times, files, writes = zip(*accesses, strict=True)
    return trace_of(np.array(times), np.array(files), np.array(sizes, np.int64), np.array(writes))


def _lines(path: Path) -> Iterator[tuple[float, str, int, bool]]:
    if not path.is_file():
        raise NotFoundError(f"file {path} does not exist")
    with path.open(newline="", encoding="utf-8") as text:
        table = csv.reader(text)
        head = next(table, [])
        if tuple(head[:3]) != COLUMNS or head[3:] not in ([], ["operation"]):
            raise InvalidError(f"{path} must begin with the line {','.join(COLUMNS)}, not {','.join(head)!r}")
        for number, row in enumerate(table, 2):
            try:
                time, name, size, *rest = row
                yield _moment(time), name, _parsed_size(size), _is_write(rest)
            except ValueError as error:
                raise InvalidError(f"{path}, line {number}: {error}") from error


def _moment(time: str) -> float:
    if not math.isfinite(value := float(time)):
        raise ValueError(f"a time is a number of seconds, not {time}")
    return value


def _parsed_size(size: str) -> int:
    if (value := int(size)) < 1:
        raise ValueError(f"a file has at least one byte, not {value}")
    return value


def _is_write(rest: list[str]) -> bool:
    if rest not in ([], ["read"], ["write"]):
        raise ValueError(f"the operation is read or write, not {','.join(rest)!r}")
    return rest == ["write"]


def next_accesses(trace: Trace) -> list[int]:
    """Return the position of the next access to the file of each access; the trace's length if none follows.

    Examples
    --------
    >>> files = np.array([0, 1, 0, 0])
    >>> next_accesses(Trace(np.arange(4.0), files, np.zeros(4, bool), np.ones(2, np.int64)))
    [2, 4, 3, 4]
    """
    files = trace.files.tolist()
    following = [len(files)] * len(trace.sizes)
    found = [0] * len(files)
    for at in range(len(files) - 1, -1, -1):
        found[at] = following[files[at]]
        following[files[at]] = at
    return found

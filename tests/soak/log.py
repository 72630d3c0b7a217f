"""What a client did and was told, as lines of JSON, of which a client that is killed loses none.

An operation that writes has a number of its own, which the federation has as soon as it is committed. It is
told once: as done (``ok``), as refused, after which the federation must not have it, or as in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

__all__ = ["Operation", "read_operations", "write_operation"]


@dataclass(frozen=True)
class Operation:
    """An operation of a client."""

    kind: str
    """Of the client."""
    client: int
    """Different for each process."""
    number: int
    """Of the client's operations, from 1."""
    ended: float
    """By the machine's monotonic clock (s)."""
    seconds: float
    outcome: str
    """``ok``, or the kind of the error."""
    text: str = ""
    """The error."""


def write_operation(log: TextIO, operation: Operation) -> None:
    """Append an operation; one call of the system."""
    log.write(json.dumps(asdict(operation)) + "\n")
    log.flush()


def read_operations(path: Path) -> Iterator[Operation]:
    """Yield the operations of a log."""
    for line in path.read_text().splitlines():
        yield Operation(**json.loads(line))

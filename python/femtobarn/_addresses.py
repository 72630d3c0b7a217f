"""Addresses of federations, and times of snapshots, as callers pass them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime

from ._exceptions import InvalidError, check_text

__all__ = ["microseconds", "paths_of"]


def paths_of(path: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """Return the paths or addresses of one federation, at least one."""
    paths = [os.fspath(path)] if isinstance(path, str | os.PathLike) else list(path)
    for each in paths:
        check_text(each, "path")
    if not paths:
        raise InvalidError("no server was named: name at least one")
    return paths


def microseconds(time: datetime | str | float) -> int:
    """Return a time in microseconds since 1970."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise InvalidError(
                f"{time!r} cannot be read as a time; write one such as 2026-11-21T18:30"
            ) from None
    if isinstance(time, datetime):
        # A time without a zone is in the local zone.
        time = time.astimezone().timestamp()
    return int(time * 1e6)

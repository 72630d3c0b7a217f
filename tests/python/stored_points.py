"""Federations with sealed databases, for the tests of stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import femtobarn as fb

__all__ = ["ENTRIES", "VALUES", "Point", "files", "fill", "is_right"]

ENTRIES = 300_000
VALUES = np.random.default_rng(21).random(ENTRIES)


@fb.persistent
class Point:
    x: fb.float64


def fill(path: Path, *names: str, entries: int = ENTRIES) -> fb.Federation:
    """Make a federation with sealed databases that have the same content."""
    fed = fb.create(path)
    for name in names:
        with fed.transaction() as txn:
            points = txn.database(name, create=True).container("points", Point, create=True)
            points.extend({"x": VALUES[:entries]})
        fed.seal(name)
    return fed


def files(fed: fb.Federation) -> list[str]:
    """Return the names of the files of databases."""
    return [path.name for path in (Path(fed.path) / "databases").iterdir()]


def is_right(fed: fb.Federation, name: str, entries: int = ENTRIES) -> bool:
    return np.array_equal(fed[f"{name}/points"].arrays("x", library="np")["x"], VALUES[:entries])

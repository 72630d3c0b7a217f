"""Plain models of raw series and of reductions, which tell the answer of each millisecond."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

import femtobarn as fb

VALUE = {"name": "Value", "fields": [{"name": "value", "type": "float64"}]}
STATE = {"name": "State", "fields": [{"name": "code", "type": "uint8"}]}
NOTED = {"name": "Value", "version": 2, "fields": [*VALUE["fields"], {"name": "note", "type": "string"}]}
MS = 10**6
END = 400
"""Moments of the model, in milliseconds; raw conditions begin before it."""

Answers = list[Any]
Found = tuple[int, Any] | None
"""The moment at which a condition begins, and its value."""


class Raw:
    """A raw series, and a plain list of all that was put into it: moment, channel, value, end."""

    def __init__(self, fed: fb.Federation, path: str, form: dict[str, Any] = VALUE) -> None:
        self.fed, self.path, self.form = fed, path, form
        self.field = form["fields"][0]["name"]
        self.rows: list[list[Any]] = []

    def put(self, rows: list[tuple[int, int, Any]], until: int | None = None) -> None:
        """Put conditions with moments in milliseconds; each is valid until the next one, or `until`."""
        with self.fed.transaction() as txn:
            series = txn.series(self.path, self.form, create=True, overlap="open")
            series.extend(
                {self.field: [value for _, _, value in rows]},
                since=[t * MS for t, _, _ in rows],
                until=None if until is None else until * MS,
                channel=[channel for _, channel, _ in rows],
            )
        self.rows += [[t, channel, value, until or 10**9] for t, channel, value in rows]

    def at(self, channel: int, t: int) -> Found:
        """Return the moment of the condition that is valid at `t` milliseconds, and its value."""
        begun = [(row[0], i) for i, row in enumerate(self.rows) if row[1] == channel and row[0] <= t]
        if not begun or t >= self.rows[max(begun)[1]][3]:
            return None
        row = self.rows[max(begun)[1]]
        return row[0], row[2]


def answers(fed: fb.Federation, path: str, channel: int, field: str, csn: int | None = None) -> Answers:
    """Return the field of a derived series at each millisecond."""
    found = fed.conditions(csn=csn)[path].at(np.arange(END + 50) * MS, field, channel=channel).to_list()
    return [row and row[field] for row in found]


def dead_band(raw: Raw, channel: int, band: float) -> Answers:
    """The model: whenever a raw condition begins, its value is compared with the last that was kept."""
    result: Answers = []
    last, begin = None, None
    for t in range(END + 50):
        found = raw.at(channel, t)
        if found is None:
            last = None
        elif last is None or (found[0] != begin and abs(found[1] - last) > band):
            last = found[1]
        begin = found and found[0]
        result.append(last)
    return result


def means(raw: Raw, channel: int, length: int, of: Callable[[list[float]], float]) -> Answers:
    """The model: one sample for each millisecond."""
    newest = max(row[0] for row in raw.rows)
    result: Answers = [None] * (END + 50)
    for start in range(0, newest // length * length, length):
        samples = [found[1] for t in range(start, start + length) if (found := raw.at(channel, t))]
        for t in range(start, min(start + length, len(result))):
            result[t] = of(samples) if samples else None
    return result


def same(one: Answers, other: Answers) -> bool:
    """Whether answers are equal, but for rounding."""
    return len(one) == len(other) and all(
        (a is None and b is None) or (a is not None and b is not None and math.isclose(a, b, abs_tol=1e-9))
        for a, b in zip(one, other, strict=True)
    )


def random_rows(rng: random.Random, first: int, last: int, count: int) -> list[tuple[int, int, float]]:
    return [(rng.randrange(first, last), rng.randrange(3), float(rng.randrange(12))) for _ in range(count)]

"""Summaries of the values of fields, in one pass: their number, their limits, and their mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np

from .._html import html_table

__all__ = ["Description", "FieldValues", "described"]


@dataclass
class FieldValues:
    """The values of a field, those in lists one by one."""

    name: str
    type: str
    count: int = 0
    """Values that are there; NaN is not counted."""
    missing: int = 0
    """Missing values, and NaN."""
    least: Any = None
    most: Any = None
    mean: float | None = None
    deviation: float | None = None
    """Standard deviation."""

    def add(self, values: Any) -> None:
        """Count the values of an awkward array."""
        self.missing += int(ak.sum(ak.is_none(values, axis=-1), axis=None))
        there = ak.flatten(values, axis=None) if values.ndim > 1 else ak.drop_none(values)
        if "string" in str(there.type):
            self.count += len(there)
            return
        numbers = ak.to_numpy(there)
        if numbers.dtype.kind == "f":
            known = numbers[~np.isnan(numbers)]
            self.missing += len(numbers) - len(known)
            numbers = known
        if len(numbers):
            self._add_numbers(numbers)

    def _add_numbers(self, numbers: Any) -> None:
        low, high = numbers.min(), numbers.max()
        self.least = low if self.least is None else min(self.least, low)
        self.most = high if self.most is None else max(self.most, high)
        if numbers.dtype.kind != "M":
            with np.errstate(all="ignore"):
                mean, deviation = numbers.mean(dtype=np.float64), numbers.std(dtype=np.float64)
            self._merge_moments(len(numbers), float(mean), float(deviation))
        self.count += len(numbers)

    def _merge_moments(self, count: int, mean: float, deviation: float) -> None:
        """Take further values into mean and standard deviation (Chan, Golub and LeVeque 1979)."""
        if self.mean is None or self.deviation is None:
            self.mean, self.deviation = mean, deviation
            return
        total, step = self.count + count, mean - self.mean
        squares = self.deviation**2 * self.count + deviation**2 * count + step**2 * self.count * count / total
        self.mean += step * count / total
        self.deviation = math.sqrt(squares / total) if squares >= 0 else math.nan


class Description(list[FieldValues]):
    """A line for each field; its text is a table, in notebooks too."""

    HEAD = ("field", "type", "values", "missing", "least", "mean", "deviation", "most")

    def _rows(self) -> Iterator[list[str]]:
        for each in self:
            numbers = (each.least, each.mean, each.deviation, each.most)
            yield [each.name, each.type, f"{each.count:,}", f"{each.missing:,}", *map(_shown, numbers)]

    def __str__(self) -> str:
        rows = [list(self.HEAD), *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.HEAD))]
        lines = (
            "  ".join(
                text.ljust(width) if column < 2 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("", self.HEAD, self._rows())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, np.datetime64):
        return str(value).partition(".")[0]
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def described(fields: dict[str, str], batches: Iterator[ak.Array]) -> Description:
    """Return a description of fields with one kind of value, by their dotted names and types."""
    found = [FieldValues(name, type_) for name, type_ in fields.items()]
    for batch in batches:
        for each in found:
            each.add(batch[tuple(each.name.split("."))])
    return Description(found)

"""Pruning: the clusters in which, by their statistics alone, a condition selects no entry.

A cluster is kept unless it certainly has no selected entry: where the condition has an operator or function
that this module does not know, where a field has no statistics, where entries are outside the statistics. So
a selection gives the same entries with and without statistics.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._schema.types import DTYPES, Definition, Primitive, Reduced
from .intervals import Flags, Interval, Numbers, Truth
from .selection import Selection
from .syntax import parsed

__all__ = ["ClusterBounds", "excluded_ranges", "without_ranges"]

POWERS_MAX = 8
"""Largest exponent for which bounds are computed."""


@dataclass(frozen=True)
class ClusterBounds:
    """The statistics of one column: for each cluster its entries, and the bounds of its values.

    Arrays have shape (clusters,). A cluster in which no value is a number has ``low = inf`` and ``high =
    -inf``; a cluster without statistics has ``low = -inf`` and ``high = inf``.
    """

    starts: np.ndarray[Any, np.dtype[np.int64]]
    stops: np.ndarray[Any, np.dtype[np.int64]]
    low: Numbers
    high: Numbers
    has_nan: Flags

    def between(self, edges: np.ndarray[Any, np.dtype[np.int64]]) -> ClusterBounds:
        """Return the bounds of parts of the clusters; entries between clusters have no known bounds.

        Parameters
        ----------
        edges
            The parts' first entries and the end of the last one: all starts and stops, ascending.
        """
        starts, stops = edges[:-1], edges[1:]
        cluster = np.searchsorted(self.starts, starts, side="right") - 1
        is_known = (cluster >= 0) & (stops <= self.stops[cluster])
        return ClusterBounds(
            starts,
            stops,
            np.where(is_known, self.low[cluster], -np.inf),
            np.where(is_known, self.high[cluster], np.inf),
            ~is_known | self.has_nan[cluster],
        )


def excluded_ranges(
    selection: Selection, definition: Definition, bounds_of: Callable[[str], ClusterBounds | None]
) -> list[range]:
    """Return the ranges of entries in which the selection certainly selects nothing, in order.

    Parameters
    ----------
    bounds_of
        Returns the statistics of a field by its path, of the number of items of a collection by ``#`` and its
        path, or None. The columns of a container have the same clusters, those of its friends others.
    """
    fields = {name: column for name, column in selection.variables.items() if column not in selection.terms}
    known = {name: bounds_of(column) for name, column in fields.items()}
    bounds = _of_same_ranges({name: each for name, each in known.items() if each is not None})
    if not bounds:
        return []
    sample = next(iter(bounds.values()))
    evaluator = _Evaluator(selection, definition, bounds, len(sample.starts))
    answer = evaluator.evaluate(parsed(selection.expression))
    if not isinstance(answer, Truth):
        return []
    return _merged(sample, ~answer.may_hold)


def without_ranges(window: range, excluded: list[range]) -> Iterator[range]:
    """Yield the parts of a range of entries outside the excluded ranges.

    Examples
    --------
    >>> list(without_ranges(range(10), [range(2, 4), range(8, 20)]))
    [range(0, 2), range(4, 8)]
    """
    start = window.start
    for gap in excluded:
        if gap.stop <= start or gap.start >= window.stop:
            continue
        if gap.start > start:
            yield range(start, gap.start)
        start = gap.stop
    if start < window.stop:
        yield range(start, window.stop)


def _of_same_ranges(bounds: dict[str, ClusterBounds]) -> dict[str, ClusterBounds]:
    """Return the bounds of columns in the same ranges of entries: clusters, or parts where these differ."""
    ends = [np.concatenate([each.starts, each.stops]) for each in bounds.values()]
    if all(np.array_equal(each, ends[0]) for each in ends[1:]):
        return bounds
    edges = np.unique(np.concatenate(ends))
    return {name: each.between(edges) for name, each in bounds.items() if len(each.starts)}


def _merged(bounds: ClusterBounds, chosen: Flags) -> list[range]:
    ranges: list[range] = []
    for start, stop in zip(bounds.starts[chosen].tolist(), bounds.stops[chosen].tolist(), strict=True):
        if ranges and ranges[-1].stop == start:
            ranges[-1] = range(ranges[-1].start, stop)
        elif stop > start:
            ranges.append(range(start, stop))
    return ranges


class _Evaluator:
    """Evaluates a condition in the form of numexpr over intervals; None stands for an unknown result."""

    def __init__(
        self,
        selection: Selection,
        definition: Definition,
        bounds: Mapping[str, ClusterBounds],
        clusters: int,
    ) -> None:
        self._selection = selection
        self._definition = definition
        self._bounds = bounds
        self._clusters = clusters

    def evaluate(self, node: ast.AST) -> Interval | Truth | None:
        """Return the bounds, or the truth, of a part of the condition in each cluster."""
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Name):
            return self._column(node.id)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        return self._call(node) if isinstance(node, ast.Call) else None

    def _constant(self, value: object) -> Interval | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return Interval.constant(value, self._clusters) if abs(value) < 2.0**63 else None

    def _column(self, name: str) -> Interval | Truth | None:
        bounds = self._bounds.get(name)
        term = self._selection.terms.get(self._selection.variables[name])
        if term is not None:
            return Truth.unknown(self._clusters) if term.is_condition else None
        if bounds is None or not len(bounds.low):
            return None
        dtype = self._dtype(self._selection.variables[name])
        if dtype.kind == "b":
            return Truth(bounds.high >= 1, bounds.low < 1)
        if dtype.kind == "f":
            return Interval(bounds.low, bounds.high, bounds.has_nan, "real")
        if (np.isfinite(bounds.high) & (bounds.high >= 2.0**63)).any():
            # The selection refuses such values: it has to read them.
            return None
        return Interval(bounds.low, bounds.high, bounds.has_nan, "integer")._outwards()

    def _dtype(self, column: str) -> np.dtype[np.generic]:
        if column.startswith("#"):
            return np.dtype(np.int64)
        node = self._definition.resolve(column)
        return node.dtype if isinstance(node, Primitive | Reduced) else DTYPES["float64"]

    def _unary(self, node: ast.UnaryOp) -> Interval | Truth | None:
        operand = self.evaluate(node.operand)
        if isinstance(node.op, ast.Invert):
            return operand.negated() if isinstance(operand, Truth) else None
        if not isinstance(operand, Interval):
            return None
        return operand.negated() if isinstance(node.op, ast.USub) else operand

    def _binary(self, node: ast.BinOp) -> Interval | Truth | None:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            return self._logic(node.op, left, right)
        if not isinstance(left, Interval) or not isinstance(right, Interval):
            return None
        if isinstance(node.op, ast.Add):
            return left.plus(right)
        if isinstance(node.op, ast.Sub):
            return left.plus(right.negated())
        if isinstance(node.op, ast.Mult):
            return left.times(right)
        if isinstance(node.op, ast.Div):
            return left.over(right)
        return self._power(left, node.right) if isinstance(node.op, ast.Pow) else None

    @staticmethod
    def _logic(operator: ast.operator, left: Interval | Truth | None, right: object) -> Truth | None:
        # Between numbers, & and | combine bits.
        if not isinstance(left, Truth) or not isinstance(right, Truth):
            return None
        return left.both(right) if isinstance(operator, ast.BitAnd) else left.either(right)

    @staticmethod
    def _power(base: Interval, exponent: ast.expr) -> Interval | None:
        value = exponent.value if isinstance(exponent, ast.Constant) else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= POWERS_MAX:
            return None
        return base.to_the(value)

    def _comparison(self, node: ast.Compare) -> Truth:
        left, right = self.evaluate(node.left), self.evaluate(node.comparators[0])
        if not isinstance(left, Interval) or not isinstance(right, Interval):
            return Truth.unknown(self._clusters)
        return left.compared(type(node.ops[0]).__name__, right)

    def _call(self, node: ast.Call) -> Interval | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        operands = [self.evaluate(argument) for argument in node.args]
        if len(operands) != 1 or not isinstance(operands[0], Interval):
            return None
        if name == "abs":
            return operands[0].magnitude()
        return operands[0].root() if name == "sqrt" else None

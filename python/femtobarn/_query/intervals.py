"""Interval arithmetic: bounds of an expression in each cluster, from the bounds of the columns in it.

An interval has arrays with one element for each cluster. It may be too wide, but is never too narrow:

1. Every value of the expression for an entry of the cluster is in the interval, or it is NaN and `has_nan` is
   true.
2. Bounds move outwards wherever the evaluation may round. An integer that may overflow is unbounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Interval", "Truth"]

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

EXACT_INTEGERS = 2.0**53
"""Integers up to here are exact in double precision."""

SLACK = 2.0**-50
"""More than the relative rounding error."""

TINY = 1e-322
"""More than the absolute rounding error of the smallest numbers."""

INTEGER_LIMIT = 2.0**63
"""The least absolute value of an integer that may overflow."""


@dataclass(frozen=True)
class Truth:
    """For each cluster: whether a condition may hold for an entry in it, and whether it may fail for one."""

    may_hold: Flags
    may_fail: Flags

    @classmethod
    def unknown(cls, clusters: int) -> Truth:
        """Return that the condition may hold and may fail in every cluster."""
        return cls(np.ones(clusters, np.bool_), np.ones(clusters, np.bool_))

    def both(self, other: Truth) -> Truth:
        """Return the truth of this condition and the other."""
        return Truth(self.may_hold & other.may_hold, self.may_fail | other.may_fail)

    def either(self, other: Truth) -> Truth:
        """Return the truth of this condition or the other."""
        return Truth(self.may_hold | other.may_hold, self.may_fail & other.may_fail)

    def negated(self) -> Truth:
        """Return the truth of the negated condition."""
        return Truth(self.may_fail, self.may_hold)


@dataclass(frozen=True)
class Interval:
    """For each cluster: the bounds of the numbers of its entries.

    Arrays have shape (clusters,). A cluster without a number has ``low > high``.

    Examples
    --------
    >>> pt = Interval(np.array([1.0, 20.0]), np.array([10.0, 50.0]), np.array([False, False]), "real")
    >>> pt.compared("Gt", Interval.constant(15, 2)).may_hold
    array([False,  True])
    """

    low: Numbers
    high: Numbers
    has_nan: Flags
    kind: str
    """``integer`` or ``real``."""

    @classmethod
    def constant(cls, value: float, clusters: int) -> Interval:
        """Return the interval of a literal number."""
        bound = np.full(clusters, float(value))
        kind = "real" if isinstance(value, float) else "integer"
        return cls(bound, bound, np.isnan(bound), kind)._rounded()

    @property
    def is_real(self) -> bool:
        """Whether the numbers are real."""
        return self.kind == "real"

    def negated(self) -> Interval:
        """Return the negated numbers."""
        return Interval(-self.high, -self.low, self.has_nan, self.kind)._without_overflow()

    def magnitude(self) -> Interval:
        """Return the absolute values."""
        crosses = (self.low <= 0) & (self.high >= 0)
        ends = np.abs(self.low), np.abs(self.high)
        low = np.where(crosses, 0.0, np.minimum(*ends))
        return Interval(low, np.maximum(*ends), self.has_nan, "real")._or_empty(self)

    def root(self) -> Interval:
        """Return the square roots."""
        with np.errstate(invalid="ignore"):
            low, high = (np.sqrt(np.maximum(end, 0.0)) for end in (self.low, self.high))
        return Interval(low, high, self.has_nan | (self.low < 0), "real")._spread()._or_empty(self)

    def plus(self, other: Interval) -> Interval:
        """Return the sums."""
        return self._combined(other, lambda a, b: [a[0] + b[0], a[1] + b[1]])

    def times(self, other: Interval) -> Interval:
        """Return the products."""
        return self._combined(other, lambda a, b: [x * y for x in a for y in b])

    def over(self, other: Interval) -> Interval:
        """Return the quotients; unbounded where the divisor may be zero."""
        ratio = self._combined(other, lambda a, b: [x / y for x in a for y in b], kind="real")
        wild = ~((other.low > 0) | (other.high < 0))
        # numexpr may divide integers as integers, which rounds towards zero.
        low, high = np.minimum(ratio.low, np.trunc(ratio.low)), np.maximum(ratio.high, np.trunc(ratio.high))
        return Interval(low, high, ratio.has_nan, "real")._unbounded_where(wild)

    def to_the(self, exponent: int) -> Interval:
        """Return the powers; the exponent is 0 or more."""
        if exponent == 0:
            return Interval.constant(1, len(self.low))
        ends = np.stack([self.low, self.high])
        with np.errstate(all="ignore"):
            powers = ends**exponent
        low, high = powers.min(axis=0), powers.max(axis=0)
        if exponent % 2 == 0:
            low = np.where((self.low <= 0) & (self.high >= 0), 0.0, low)
        made = Interval(low, high, self.has_nan, self.kind)
        for _ in range(exponent):
            made = made._rounded()
        return made._without_overflow()._or_empty(self)

    def compared(self, operator: str, other: Interval) -> Truth:
        """Return the truth of a comparison: ``Lt``, ``LtE``, ``Gt``, ``GtE``, ``Eq`` or ``NotEq``."""
        if operator in ("Gt", "GtE"):
            return other.compared(operator.replace("G", "L"), self)
        left, right = self, other
        if left.is_real or right.is_real:
            # Integers are rounded when they are compared with real numbers.
            left, right = left._spread(), right._spread()
        has_nan = left.has_nan | right.has_nan
        if operator == "Lt":
            return Truth(left.low < right.high, (left.high >= right.low) | has_nan)
        if operator == "LtE":
            return Truth(left.low <= right.high, (left.high > right.low) | has_nan)
        is_one = (left.low == left.high) & (right.low == right.high) & (left.low == right.low)
        meet = (left.low <= right.high) & (right.low <= left.high)
        equal = Truth(meet, ~is_one | has_nan)
        return equal if operator == "Eq" else equal.negated()

    def _combined(
        self,
        other: Interval,
        ends: Callable[[tuple[Numbers, Numbers], tuple[Numbers, Numbers]], list[Numbers]],
        kind: str | None = None,
    ) -> Interval:
        kind = kind or ("real" if self.is_real or other.is_real else "integer")
        with np.errstate(all="ignore"):
            found = np.stack(ends((self.low, self.high), (other.low, other.high)))
        wild = np.isnan(found).any(axis=0) | self._is_unbounded() | other._is_unbounded()
        low, high = found.min(axis=0), found.max(axis=0)
        made = Interval(low, high, self.has_nan | other.has_nan, kind)
        return made._rounded()._without_overflow()._unbounded_where(wild)

    def _is_unbounded(self) -> Flags:
        """Return where a bound is infinite: arithmetic with infinity may give NaN."""
        return ~(np.isfinite(self.low) & np.isfinite(self.high))

    def _rounded(self) -> Interval:
        return self._spread() if self.is_real else self._outwards()

    def _outwards(self) -> Interval:
        """Move bounds that double precision may have rounded to the next number outwards."""
        low = np.where(np.abs(self.low) > EXACT_INTEGERS, np.nextafter(self.low, -np.inf), self.low)
        high = np.where(np.abs(self.high) > EXACT_INTEGERS, np.nextafter(self.high, np.inf), self.high)
        return Interval(low, high, self.has_nan, self.kind)

    def _spread(self) -> Interval:
        """Move bounds outwards by the rounding error."""
        with np.errstate(all="ignore"):
            low = self.low - np.abs(self.low) * SLACK - TINY
            high = self.high + np.abs(self.high) * SLACK + TINY
        low = np.where(np.isinf(self.low), self.low, low)
        high = np.where(np.isinf(self.high), self.high, high)
        return Interval(low, high, self.has_nan, "real")

    def _without_overflow(self) -> Interval:
        if self.is_real:
            return self
        return self._unbounded_where((self.low <= -INTEGER_LIMIT) | (self.high >= INTEGER_LIMIT))

    def _unbounded_where(self, wild: Flags) -> Interval:
        low, high = np.where(wild, -np.inf, self.low), np.where(wild, np.inf, self.high)
        return Interval(low, high, self.has_nan | wild, self.kind)

    def _or_empty(self, source: Interval) -> Interval:
        """Keep the clusters without a number, in which ``low > high``, as they are in `source`."""
        empty = source.low > source.high
        low, high = np.where(empty, np.inf, self.low), np.where(empty, -np.inf, self.high)
        return Interval(low, high, self.has_nan, self.kind)

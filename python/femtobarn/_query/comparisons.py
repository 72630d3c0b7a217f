"""Conditions that only compare fields, or their absolute values, with numbers.

NumPy evaluates these several times faster than numexpr, with the same result: that of 64 bits. Values of
single precision need no conversion for that: some number of single precision divides them in the same way as
the number that is written.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from .._data.casts import Values
from .syntax import parsed

__all__ = ["Comparison", "comparison_of"]

Comparison: TypeAlias = Callable[[Mapping[str, Values]], Values]
"""Takes the values by their names in the expression, and returns a mask of the entries that meet the
condition."""

COMPARERS: dict[type[ast.cmpop], Callable[[Any, Any], Values]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
"""The operator of each comparison after its sides are swapped."""

INTEGER_MAX = 2**63 - 1
"""The largest integer of numexpr, which refuses larger ones."""


def comparison_of(expression: str) -> Comparison | None:
    """Return a function that evaluates a condition in the form of numexpr, or None if it does more than
    compare.

    Examples
    --------
    >>> holds = comparison_of("(v0 > 0.5) & (3 >= v1)")
    >>> holds({"v0": np.array([0.4, 0.6, 0.7]), "v1": np.array([1, 3, 4])})
    array([False,  True, False])
    >>> comparison_of("abs(v0) < 2")({"v0": np.array([-3, -1, 4])})
    array([False,  True, False])
    >>> comparison_of("v0 + v1 > 3")
    """
    return _condition(parsed(expression))


def _condition(node: ast.AST) -> Comparison | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        left, right = _condition(node.left), _condition(node.right)
        if left is None or right is None:
            return None
        join = np.logical_and if isinstance(node.op, ast.BitAnd) else np.logical_or
        return lambda values: join(left(values), right(values))
    return _comparison(node) if isinstance(node, ast.Compare) else None


def _comparison(node: ast.Compare) -> Comparison | None:
    left, kind, right = node.left, type(node.ops[0]), node.comparators[0]
    if _number(left) is not None:
        left, kind, right = right, SWAPPED.get(kind, kind), left
    name, is_absolute = _column(left)
    limit = _number(right)
    if name is None or limit is None or kind not in COMPARERS:
        return None
    compare, single = COMPARERS[kind], _single_limit(limit, kind)

    def holds(values: Mapping[str, Values]) -> Values:
        column = values[name]
        if is_absolute:
            # The absolute value of the least integer overflows.
            column = np.abs(column if column.dtype.kind == "f" else column.astype(np.float64))
        return compare(column, single if column.dtype == np.float32 else limit)

    return holds


def _column(node: ast.AST) -> tuple[str | None, bool]:
    """Return the column that an operand is, or None, and whether the operand is its absolute value."""
    match node:
        case ast.Name(id=name):
            return name, False
        case ast.Call(func=ast.Name(id="abs"), args=[ast.Name(id=name)], keywords=[]):
            return name, True
    return None, False


def _number(node: ast.AST) -> int | float | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, int) and value > INTEGER_MAX else sign * value


def _single_limit(limit: float, kind: type[ast.cmpop]) -> np.float32:
    """Return the number of single precision that divides numbers of single precision as the limit does."""
    with np.errstate(over="ignore"):
        nearest = np.float32(limit)
    if kind in (ast.Gt, ast.LtE):
        return np.nextafter(nearest, np.float32(-np.inf)) if float(nearest) > limit else nearest
    return np.nextafter(nearest, np.float32(np.inf)) if float(nearest) < limit else nearest

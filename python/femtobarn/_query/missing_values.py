"""Conditions on values that may be missing, by the three-valued logic of SQL.

1. A comparison with a missing value is unknown, and so is its `not`; a missing truth value is unknown.
2. `and` is false if one side is false, `or` is true if one side is true, even if the other side is unknown.
3. An entry is selected only if the whole condition is true.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from .syntax import parsed

__all__ = ["where_known"]


def where_known(expression: str, present: Mapping[str, str]) -> str:
    """Return an expression that is true exactly where a condition is true.

    Parameters
    ----------
    expression
        The condition in the form of numexpr.
    present
        For each variable with missing values, the variable that is true where its value is present.

    Examples
    --------
    >>> where_known("~((v0 == 5) | (v1 > 2))", {"v0": "p0"})
    '~(v0 == 5) & p0 & ~(v1 > 2)'
    """
    return ast.unparse(_known(parsed(expression), present, is_negated=False))


def _known(node: ast.expr, present: Mapping[str, str], *, is_negated: bool) -> ast.expr:
    """Return an expression that is true where a part of the condition is true or, negated, false."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _known(node.operand, present, is_negated=not is_negated)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        is_all = isinstance(node.op, ast.BitAnd) != is_negated
        sides = (_known(side, present, is_negated=is_negated) for side in (node.left, node.right))
        return ast.BinOp(next(sides), ast.BitAnd() if is_all else ast.BitOr(), next(sides))
    known: ast.expr = ast.UnaryOp(ast.Invert(), node) if is_negated else node
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    for name in sorted(names & set(present)):
        known = ast.BinOp(known, ast.BitAnd(), ast.Name(present[name], ast.Load()))
    return known

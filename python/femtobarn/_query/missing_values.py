"""Conditions on values that may be missing, by SQL's rule.

1. A comparison, or a truth value, that needs a missing value neither holds nor fails. Nor does its `not`.
2. `and` fails if one side fails, `or` holds if one side holds, whatever the other side needs.
3. An entry is selected only if the whole condition holds.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

__all__ = ["where_known"]


def where_known(expression: str, present: Mapping[str, str]) -> str:
    """Return an expression that is true where a condition holds, and nowhere else.

    Parameters
    ----------
    expression
        numexpr's form of the condition.
    present
        For each variable with missing values, the variable that tells where its values are not missing.

    Examples
    --------
    >>> where_known("~((v0 == 5) | (v1 > 2))", {"v0": "p0"})
    '~(v0 == 5) & p0 & ~(v1 > 2)'
    """
    return ast.unparse(_known(ast.parse(expression, mode="eval").body, present, is_negated=False))


def _known(node: ast.expr, present: Mapping[str, str], *, is_negated: bool) -> ast.expr:
    """Return where a part of the condition is known to hold or, negated, to fail."""
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

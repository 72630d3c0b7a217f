"""Partial evaluation of conditions in which one name has a known value.

In a collection each container knows the value of `source`. Of ``source == 'run1/events' and run > 7`` it has
``run > 7`` left to evaluate if it is this one, and nothing if it is another.
"""

from __future__ import annotations

import ast
from typing import Any

from .syntax import parsed

__all__ = ["with_known"]


def with_known(text: str, name: str, value: str) -> str | bool:
    """Return a condition in which a name stands for a text, or its truth if that is known.

    Parameters
    ----------
    text
        The condition; if it does not use the name, or is malformed, it stays as it is.

    Examples
    --------
    >>> with_known("source == 'a' and pt > 5", "source", "a"), with_known("source == 'b'", "source", "a")
    ('pt > 5', False)
    """
    try:
        condition = parsed(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    if not any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(condition)):
        return text
    left = _Known(name, value).visit(condition)
    return left.value if _is_truth(left) else ast.unparse(left)


class _Known(ast.NodeTransformer):
    """Replaces a name by a value, and computes expressions that depend on nothing else."""

    def __init__(self, name: str, value: str) -> None:
        self._name = name
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._value) if node.id == self._name else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        try:
            values = [ast.literal_eval(side) for side in (node.left, *node.comparators)]
        except ValueError:
            return node
        pairs = zip(values, node.ops, values[1:], strict=False)
        known = [_compared(left, operator, right) for left, operator, right in pairs]
        return node if None in known else ast.Constant(all(known))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return _combined(node.values, isinstance(node.op, ast.And), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitAnd | ast.BitOr):
            return node
        return _combined([node.left, node.right], isinstance(node.op, ast.BitAnd), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not | ast.Invert) or not _is_truth(node.operand):
            return node
        return ast.Constant(not node.operand.value)  # type: ignore[attr-defined]


def _compared(left: Any, operator: ast.cmpop, right: Any) -> bool | None:
    """Return whether a comparison of constants holds; None if it is not one of texts or with None."""
    if isinstance(operator, ast.Eq | ast.NotEq):
        return (left == right) is isinstance(operator, ast.Eq)
    if isinstance(operator, ast.In | ast.NotIn):
        return (left in right) is isinstance(operator, ast.In)
    if isinstance(operator, ast.Is | ast.IsNot) and right is None:
        return (left is None) is isinstance(operator, ast.Is)
    return None


def _combined(values: list[ast.expr], is_and: bool, node: ast.expr) -> ast.AST:
    """Return conditions that are connected by `and`, or else by `or`, without those that are known."""
    known = [each.value for each in values if _is_truth(each)]  # type: ignore[attr-defined]
    if not known:
        return node
    if (not is_and) in known:
        return ast.Constant(not is_and)
    others = [each for each in values if not _is_truth(each)]
    if len(others) < 2:
        return others[0] if others else ast.Constant(is_and)
    return ast.BoolOp(ast.And() if is_and else ast.Or(), others)


def _is_truth(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)

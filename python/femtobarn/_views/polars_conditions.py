"""Conditions of Polars as ``where``: comparisons of fields with values, and their conjunctions and
disjunctions.

A condition is read from Polars' serialised form, whose parts may change between releases: unknown parts are
left out, so that ``where`` selects all objects that the condition selects, and possibly more. Polars orders
NaN after all numbers and compares with the precision of the field, so reals are compared with a margin.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._schema.types import Optional, Primitive, Reduced, String

if TYPE_CHECKING:
    import polars as pl

    from .._schema.types import Node
    from .columns import Columns

__all__ = ["where_of"]

COMPARISONS = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
INTEGERS_MAX = 2.0**63
"""``where`` refuses unsigned numbers from here on."""

Value: TypeAlias = bool | int | float | str


def where_of(predicate: pl.Expr, view: Columns) -> str | None:
    """Return a condition that all objects meet that meet one of Polars; None if nothing is known of them."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # Polars has errors of its own for what JSON cannot have, such as Python functions.
        return None
    return _condition(tree, view)


def _condition(tree: Any, view: Columns) -> str | None:
    name, body = _part(tree)
    if name == "Column":
        node = view.definition.record.by_name.get(body)
        return body if _inner(node) == Primitive("bool") else None
    if name != "BinaryExpr":
        return None
    left, operator, right = body.get("left"), body.get("op"), body.get("right")
    if operator in ("And", "LogicalAnd"):
        known = [each for each in (_condition(left, view), _condition(right, view)) if each is not None]
        return " and ".join(f"({each})" for each in known) or None
    if operator in ("Or", "LogicalOr"):
        one, other = _condition(left, view), _condition(right, view)
        return None if one is None or other is None else f"({one}) or ({other})"
    sign = COMPARISONS.get(str(operator))
    if sign is None:
        return None
    if _part(left)[0] != "Column":
        left, right, sign = right, left, MIRRORED.get(sign, sign)
    name, field = _part(left)
    value = _value(right)
    return None if name != "Column" or value is None else _comparison(field, sign, value, view)


def _comparison(name: str, sign: str, value: Value, view: Columns) -> str | None:
    node = _inner(view.definition.record.by_name.get(name))
    if isinstance(node, String):
        return f"{name} {sign} {value!r}" if isinstance(value, str) and sign in ("==", "!=") else None
    if not isinstance(node, Primitive | Reduced) or isinstance(value, str | bool):
        return None
    kind = node.dtype.kind
    if kind in "iu":
        is_safe = isinstance(value, int) and abs(value) < INTEGERS_MAX
        return f"{name} {sign} {value}" if is_safe and _is_signed(name, node, view) else None
    if kind != "f" or not np.isfinite(value):
        return None
    return _comparison_of_reals(name, sign, float(value))


def _comparison_of_reals(name: str, sign: str, value: float) -> str | None:
    """Return a comparison that holds for the value, or for the value rounded to 32 bits."""
    rounded = float(np.float32(value)) if abs(value) < np.finfo(np.float32).max else value
    low, high = sorted((value, rounded))
    if sign in ("<", "<="):
        return f"{name} <= {high!r}"
    if sign in (">", ">="):
        return f"not ({name} < {low!r})"
    return f"{name} >= {low!r} and {name} <= {high!r}" if sign == "==" else None


def _is_signed(name: str, node: Primitive | Reduced, view: Columns) -> bool:
    """Tell whether all values of a field of integers are known to be less than 2^63."""
    if node.dtype != np.uint64:
        return True
    bounds = view._cluster_bounds(name)
    return bounds is not None and bool((bounds.high < INTEGERS_MAX).all())


def _inner(node: Node | None) -> Node | None:
    """Return the type of a field without a meaning, or of its value if that may be missing."""
    node = node.item if isinstance(node, Optional) else node
    return None if getattr(node, "meaning", None) is not None else node


def _part(tree: Any) -> tuple[str, Any]:
    """Return the name and the content of a part of an expression."""
    if isinstance(tree, dict) and len(tree) == 1:
        [(name, body)] = tree.items()
        return name, body
    return "", None


def _value(tree: Any) -> Value | None:
    """Return a number, truth value or text of an expression."""
    name, body = _part(tree)
    if name != "Literal":
        return None
    while isinstance(body, dict) and len(body) == 1:
        [body] = body.values()
    return body if isinstance(body, bool | int | float | str) else None

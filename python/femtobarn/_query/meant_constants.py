"""Texts of a condition that stand for a time, or for a member of an enumeration: ``when > '2026-11-27'``.

They become the numbers or texts that the field stores, so that the rest of a condition, and the statistics of
clusters, need to know nothing of times.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from .._exceptions import InvalidError
from .._schema.meanings import TIMES, Meaning
from .._schema.types import Definition, innermost
from .array_terms import path_of
from .elements import reached
from .syntax import parsed

__all__ = ["stored_values", "with_stored_constants"]


def stored_values(values: Mapping[str, Any], definition: Definition) -> dict[str, Any]:
    """Return values of fields, by dotted names, as the fields store them; unknown fields keep theirs.

    Raises
    ------
    InvalidError
        If a value is neither a time nor a member.
    """
    return {name: _stored_value(name, value, definition) for name, value in values.items()}


def _stored_value(name: str, value: Any, definition: Definition) -> Any:
    meaning = _meaning_of(name, definition)
    if meaning is None or value is None:
        return value
    try:
        return meaning.constant(value) if isinstance(value, str) else meaning.to_stored(value)
    except ValueError as error:
        raise InvalidError(f"field {name!r}: {error}") from None


def _meaning_of(path: str, definition: Definition) -> Meaning | None:
    node = definition.type_at(path)
    if node is None:
        try:
            through = reached(parsed(path), definition)
        except (SyntaxError, ValueError):
            through = None  # The look-up of the field refuses it.
        if through is None:
            return None
        node = definition.resolve(through.targets[0][0])
    meaning: Meaning | None = getattr(innermost(node), "meaning", None)
    return None if meaning is None or meaning.is_element else meaning


def with_stored_constants(condition: ast.expr, definition: Definition, *, times: bool = True) -> ast.expr:
    """Return a condition with constants as the fields that they are compared with store them.

    Parameters
    ----------
    times
        Whether texts become the numbers that times are stored as; not where arrays have times.

    Raises
    ------
    InvalidError
        If a text is neither a time nor the name of a member.

    Examples
    --------
    >>> when = {"name": "when", "type": {"meaning": {"of": "int64", "is": "datetime"}}}
    >>> form = {"name": "Run", "fields": [when]}
    >>> condition = ast.parse("when >= '1970-01-01 00:00:01'", mode="eval").body
    >>> ast.unparse(with_stored_constants(condition, Definition.from_json(form)))
    'when >= 1000000000'
    """
    replaced: ast.expr = _Replacer(definition, times).visit(condition)
    return replaced


class _Replacer(ast.NodeTransformer):
    def __init__(self, definition: Definition, times: bool) -> None:
        self._definition = definition
        self._times = times

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        meanings = list(filter(None, map(self._meaning, sides)))
        if not meanings:
            return node
        meaning = meanings[0]
        if any(each != meaning for each in meanings):
            shown = " and ".join(dict.fromkeys(map(str, meanings)))
            raise InvalidError(
                f"{ast.unparse(node)!r} compares {shown}, which are stored as different numbers"
            )
        if meaning.kind in TIMES and not self._times:
            return node
        left, *comparators = (_stored(side, meaning) for side in sides)
        return ast.copy_location(ast.Compare(left, node.ops, comparators), node)

    def _meaning(self, side: ast.expr) -> Meaning | None:
        path = path_of(side)
        return None if path is None else _meaning_of(path, self._definition)


def _stored(side: ast.expr, meaning: Meaning) -> ast.expr:
    if isinstance(side, ast.Tuple | ast.List | ast.Set):
        items = [_stored(item, meaning) for item in side.elts]
        return ast.copy_location(type(side)(items), side)
    if not isinstance(side, ast.Constant) or not isinstance(side.value, str):
        return side
    try:
        stored = ast.Constant(meaning.constant(side.value))
    except ValueError as error:
        raise InvalidError(str(error)) from None
    negative = isinstance(stored.value, int) and stored.value < 0
    made = ast.UnaryOp(ast.USub(), ast.Constant(-stored.value)) if negative else stored  # type: ignore[operator]
    return ast.fix_missing_locations(ast.copy_location(made, side))

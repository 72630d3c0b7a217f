"""Columns that are computed from fields, like conditions: ``aliases={"mass": "sqrt(2 * pt[0] * pt[1])"}``."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from .._exceptions import InvalidError, NotFoundError, WrongTypeError
from .._schema.types import Definition
from .array_terms import ArrayTerm, term_of
from .meant_constants import with_stored_constants
from .rewriting import FUNCTIONS
from .syntax import parsed

__all__ = ["Aliases", "aliases_of", "field_behind_link", "with_aliases"]

PARTS_MAX = 10_000
"""Most parts of an expression, with those of the aliases in it."""

Aliases = Mapping[str, ArrayTerm]
"""Computed columns by their names."""


def aliases_of(texts: Mapping[str, str], definition: Definition) -> dict[str, ArrayTerm]:
    """Return computed columns, each of which may use those before it.

    Raises
    ------
    InvalidError
        If a name is that of a field, or a text is not an expression that a condition may have.
    NotFoundError
        If a field or function does not exist; near misses are named.

    Examples
    --------
    >>> form = {"name": "A", "fields": [{"name": "x", "type": "int8"}]}
    >>> found = aliases_of({"y": "x + 1", "z": "2 * y"}, Definition.from_json(form))
    >>> found["z"].text, found["z"].paths
    ('2 * (x + 1)', ['x'])
    """
    found: dict[str, ArrayTerm] = {}
    if not isinstance(texts, Mapping):
        raise WrongTypeError(
            f"aliases must map names to expressions, such as {{'pt2': 'pt ** 2'}}, not {texts!r}"
        )
    for name, text in texts.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise WrongTypeError(
                f"aliases must map names to expressions, such as {{'pt2': 'pt ** 2'}}, not {text!r}"
            )
        if not name.isidentifier() or name in definition.record.by_name:
            reason = "is the name of a field" if name.isidentifier() else "is not an identifier"
            raise InvalidError(f"alias {name!r} {reason}; choose another name")
        try:
            node = _substituted(parsed(text.strip()), found)
            if sum(1 for _ in ast.walk(node)) > PARTS_MAX:
                raise InvalidError("it has too many parts, with those of the aliases that it uses")
            found[name] = term_of(with_stored_constants(node, definition, times=False), FUNCTIONS, definition)
        except (InvalidError, NotFoundError) as error:
            raise type(error)(f"alias {name!r}: {error}") from None
        except (SyntaxError, ValueError) as error:
            reason = getattr(error, "msg", str(error))
            raise InvalidError(f"alias {name!r} is not an expression: {reason}") from None
        except (RecursionError, MemoryError):
            raise InvalidError(f"alias {name!r} has too many parts within each other") from None
    return found


def with_aliases(condition: str, aliases: Aliases) -> str:
    """Return a condition with aliases replaced by their expressions; a malformed one stays as it is."""
    if not aliases:
        return condition
    try:
        tree = parsed(condition.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return condition
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} & set(aliases)
    return ast.unparse(_substituted(tree, aliases)) if used else condition


def field_behind_link(path: str, definition: Definition) -> ArrayTerm:
    """Return a field of the targets of links, such as ``raw.number``, as a computed column."""
    return term_of(parsed(path), FUNCTIONS, definition)


def _substituted(node: ast.expr, aliases: Aliases) -> ast.expr:
    replaced: ast.expr = _Substituter(aliases).visit(node)
    return replaced


class _Substituter(ast.NodeTransformer):
    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases

    def visit_Name(self, node: ast.Name) -> ast.AST:
        term = self._aliases.get(node.id)
        return node if term is None else copy.deepcopy(term.node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        # The name of a function is not one of a column.
        node.args = [self.visit(argument) for argument in node.args]
        return node

"""Terms of a condition that awkward computes: of texts, lists, missing values, and fields behind links.

A term has one value for each entry, which may be missing. numexpr sees it as a variable, so the rest of the
condition is evaluated, and clusters are left out, as without it. Python evaluates nothing: the tree of the
expression is walked, and each node of it that is known is done by a function of awkward or NumPy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import FemtobarnError, InvalidError, NotFoundError, near_misses
from .._lazy import ak
from .._schema.types import (
    Bitset,
    Definition,
    ElementLink,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    String,
    innermost,
)
from .elements import reached
from .paths import counted
from .syntax import parsed

__all__ = ["OPERATORS", "REDUCERS", "ArrayTerm", "check_size", "is_text", "link_before", "path_of", "term_of"]

OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor,
    ast.LShift, ast.RShift,
)  # fmt: skip

CONSTANT_BITS_MAX = 1 << 16
"""Most bits of a constant that is computed from others."""

ARGUMENTS = {"arctan2": 2, "fmod": 2, "maximum": 2, "minimum": 2, "where": 3}
"""Arguments of functions that do not take one."""

REDUCERS = ("all", "any", "count", "len", "max", "mean", "min", "sum")
"""Functions that make one value of all items of a list."""


@dataclass(frozen=True)
class ArrayTerm:
    """A part of a condition, evaluated on arrays."""

    node: ast.expr
    functions: frozenset[str]
    """Functions of NumPy that it may call."""
    definition: Definition

    @property
    def text(self) -> str:
        """The part as it was written."""
        return ast.unparse(self.node)

    @property
    def is_condition(self) -> bool:
        """Whether the term is a truth value, as far as its text alone shows."""
        is_any_or_all = isinstance(self.node, ast.Call) and ast.unparse(self.node.func) in ("any", "all")
        return is_any_or_all or isinstance(self.node, ast.Compare)

    @property
    def paths(self) -> list[str]:
        """Paths of the fields that it reads."""
        return list(dict.fromkeys(_paths_in(self.node, self.definition)))

    def values(self, array: ak.Array) -> Values:
        """Return a value for each entry, masked where it is missing; see :meth:`evaluated`.

        Raises
        ------
        InvalidError
            If it cannot be computed, or gives lists or texts.
        """
        return values_of(self.evaluated(array, in_reals=True), len(array), self.text)

    def column(self, array: ak.Array) -> Any:
        """Return the term's value; a field behind links stays as it is stored. See :meth:`evaluated`."""
        from .array_evaluation import Evaluator  # This imports awkward.

        is_path = not any(isinstance(each, ast.Subscript) for each in ast.walk(self.node))
        evaluator = Evaluator(array, self.definition)
        return evaluator.field(self.node) if is_path and path_of(self.node) else self.evaluated(array)

    def evaluated(self, array: ak.Array, *, in_reals: bool = False) -> Any:
        """Return the term's value: an array, or one value for all entries.

        Parameters
        ----------
        array
            The fields of :attr:`paths`, of each entry.
        in_reals
            Whether functions, such as `abs`, take integers as real numbers.

        Raises
        ------
        InvalidError
            If it cannot be computed.
        """
        from .array_evaluation import Evaluator  # This imports awkward.

        try:
            with np.errstate(all="ignore"):
                return Evaluator(array, self.definition, in_reals=in_reals).visit(self.node)
        except FemtobarnError:
            raise
        except Exception as error:
            reason = str(error).partition("(in compiled")[0].strip() or "its parts do not fit each other"
            reason = reason.splitlines()[0]
            raise InvalidError(f"{self.text!r} cannot be evaluated: {reason}") from error


def values_of(found: Any, length: int, text: str) -> Values:
    """Return the value of a part of a condition as one value for each entry, masked where it is missing."""
    if not isinstance(found, ak.Array):
        given = np.asarray(found)
        if given.dtype.kind not in "biuf":
            raise InvalidError(f"{text!r} gives {type(found).__name__}, not a truth value for each entry")
        found = ak.Array(np.broadcast_to(given, (length,)) if given.ndim == 0 else given)
    if found.ndim > 1 or found.fields or len(found) != length:
        raise InvalidError(
            f"{text!r} has several values per entry; make one of them with "
            f"{', '.join(REDUCERS[:-1])} or {REDUCERS[-1]}, or choose one, such as x[0]"
        )
    values: Values = ak.to_numpy(found, allow_missing=True)
    if values.dtype.kind not in "biuf":
        raise InvalidError(f"{text!r} is neither a number nor a truth value; compare it")
    return values


def term_of(node: ast.expr, functions: frozenset[str], definition: Definition) -> ArrayTerm:
    """Return a part of a condition as a term.

    Raises
    ------
    InvalidError
        If it has something that a condition may not have.
    NotFoundError
        If a field or function does not exist; near misses are named.
    """
    term = ArrayTerm(node, functions, definition)
    _check(node, term)
    if not term.paths:
        raise InvalidError(f"{term.text!r} uses no field")
    return term


def is_text(node: ast.expr, definition: Definition) -> bool:
    """Tell whether a part of a condition is a text: a constant, or a field."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    path = path_of(node)
    field = None if path is None else definition.type_at(path)
    return field is not None and isinstance(innermost(field), String)


def link_before(path: str, definition: Definition) -> str | None:
    """Return the link, or the index, that a path leads through to a field of its target, or None."""
    above, node = "", None
    for name in path.split("."):
        inner = f"{above}.{name}" if above else name
        field = definition.type_at(inner)
        if field is None:
            return above if isinstance(node, Link | ElementLink) else _index_before(path, definition)
        above, node = inner, innermost(field)
    return None


def _index_before(path: str, definition: Definition) -> str | None:
    """Return the index that a path leads through to an element of a collection, or None."""
    if not all(name.isidentifier() for name in path.split(".")):
        return None
    through = reached(parsed(path), definition)
    return None if through is None else path_of(through.index)


def path_of(node: ast.AST) -> str | None:
    """Return the dotted path that a part names, whatever is chosen of lists on the way."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return path_of(node.value)
    if isinstance(node, ast.Attribute):
        above = path_of(node.value)
        return None if above is None else f"{above}.{node.attr}"
    return None


def _paths_in(node: ast.AST, definition: Definition) -> Iterator[str]:
    """Yield the fields that a part reads."""
    through = reached(node, definition) if isinstance(node, ast.expr) else None
    if through is not None:
        for part in through.parts:
            yield from _paths_in(part, definition)
        return
    path = path_of(node)
    if path is None:
        children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
        for child in children:
            yield from _paths_in(child, definition)
        return
    yield link_before(path, definition) or _stored_path(path, definition)
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript):
            yield from _paths_in(node.slice, definition)
        node = node.value


def _stored_path(path: str, definition: Definition) -> str:
    """Return a path, or for ``nX`` that of X."""
    collection = None if definition.type_at(path) is not None else counted(path, definition)
    return collection or path


def _check(node: ast.AST, term: ArrayTerm) -> None:
    """Refuse syntax that a condition may not contain."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        known = {*REDUCERS, *term.functions}
        if name not in known:
            raise NotFoundError(f"function {name!r} does not exist{near_misses(name, known)}")
        if node.keywords or len(node.args) != ARGUMENTS.get(name, 1):
            count = ("one argument", "two arguments", "three arguments")[ARGUMENTS.get(name, 1) - 1]
            raise InvalidError(f"{ast.unparse(node)!r}: {name} takes {count} without names")
        for argument in node.args:
            _check(argument, term)
        if name == "len":
            _check_length(node.args[0], term.definition)
        return
    path = path_of(node)
    if path is not None:
        if link_before(path, term.definition) is None and counted(path, term.definition) is None:
            term.definition.resolve(path)
        while isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node, ast.Subscript):
                _check_subscript(node, term)
            node = node.value
        return
    if isinstance(node, ast.Constant):
        if type(node.value) is int and abs(node.value) >= 1 << 63:
            raise InvalidError(f"{ast.unparse(node)} has more than 64 bits")
        if not isinstance(node.value, bool | int | float | str | None):
            raise InvalidError(f"{ast.unparse(node)!r} is neither a number nor a string")
        return
    if isinstance(node, ast.BinOp):
        _check_operation(node)
    operations = ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.Compare
    if isinstance(node, operations | ast.Subscript | ast.Slice | ast.Tuple | ast.List | ast.Set):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                _check(child, term)
        return
    raise InvalidError(f"{ast.unparse(node)!r} cannot be used in a condition")


def _check_length(node: ast.expr, definition: Definition) -> None:
    """Refuse the length of a field that is not one list for each entry."""
    lists = _lists(node, definition)
    if lists is not None and lists != 1:
        path = str(path_of(node))
        raise InvalidError(f"{path!r} is {definition.resolve(path)}, which has no number of items per entry")


def _lists(node: ast.expr, definition: Definition) -> int | None:
    """Return how many lists are around each value of a field; None if the types alone do not determine it."""
    path = path_of(node)
    is_chosen = any(isinstance(each, ast.Subscript) for each in ast.walk(node))
    if path is None or is_chosen or link_before(path, definition) is not None:
        return None
    parts, lists = path.split("."), 0
    for count in range(1, len(parts) + 1):
        above: Node = definition.resolve(".".join(parts[:count]))
        while isinstance(above, List | Fixed | Optional):
            lists += not isinstance(above, Optional)
            above = above.item
        lists += isinstance(above, Bitset)
    return lists


def _check_subscript(node: ast.Subscript, term: ArrayTerm) -> None:
    if _lists(node.value, term.definition) == 0:
        what = "a part of a text" if is_text(node.value, term.definition) else "an item of one value"
        raise InvalidError(f"{ast.unparse(node)!r}: {what} cannot be chosen")
    if isinstance(node.slice, ast.Slice):
        ends = (node.slice.lower, node.slice.upper, node.slice.step)
        if not all(end is None or is_integer(end) for end in ends):
            raise InvalidError(f"{ast.unparse(node)!r}: the ends of a slice are integers")
        if node.slice.step is not None and ast.literal_eval(node.slice.step) == 0:
            raise InvalidError(f"{ast.unparse(node)!r}: the step of a slice is not 0")
    elif isinstance(node.slice, ast.Constant) and not is_integer(node.slice):
        raise InvalidError(f"{ast.unparse(node)!r}: an item is chosen by an integer")
    else:
        _check(node.slice, term)


def _check_operation(node: ast.BinOp) -> None:
    """Refuse unknown operations, and those on texts."""
    if not isinstance(node.op, OPERATORS):
        raise InvalidError(f"{ast.unparse(node)!r} cannot be used in a condition")
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and not isinstance(side.value, int | float):
            raise InvalidError(f"{ast.unparse(node)!r}: {ast.unparse(side)} is not a number")
    check_size(node)


def check_size(node: ast.BinOp) -> None:
    """Refuse constants of any size, which Python would compute."""
    if not any(isinstance(each, ast.Name) for each in ast.walk(node)) and _bits(node) > CONSTANT_BITS_MAX:
        raise InvalidError(f"{ast.unparse(node)!r} is too large")


def _bits(node: ast.expr) -> float:
    """Return a bound of the bits of a constant."""
    if isinstance(node, ast.BinOp):
        left, right = _bits(node.left), _bits(node.right)
        if isinstance(node.op, ast.Pow | ast.LShift):
            times: float = 2.0 ** min(right, 1000.0)  # A bound of the right side's value.
            return left * times if isinstance(node.op, ast.Pow) else left + times
        return left + right
    if isinstance(node, ast.UnaryOp):
        return _bits(node.operand)
    value: Any = node.value if isinstance(node, ast.Constant) else 0
    return float(max(1, value.bit_length())) if isinstance(value, int) else 64.0


def is_integer(node: ast.AST) -> bool:
    """Tell whether a part is a constant integer, perhaps with a sign."""
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int

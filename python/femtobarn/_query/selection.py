"""Selections of entries by an expression: the ``where`` of :meth:`femtobarn.View.arrays`.

Python's parser reads the expression; numexpr evaluates it, or NumPy where that is faster. In between, dotted
names of fields become variables of numexpr, and ``nX`` or ``len(X)`` becomes the number of items of the
collection X. Python itself evaluates nothing, so that an expression can do nothing but compute.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, NotFoundError, WrongTypeError, check_text, near_misses
from .._lazy import numexpr
from .._schema.types import Definition, Fixed, Link, List, Node, Primitive, Record, Reduced, innermost
from .comparisons import Comparison, comparison_of
from .missing_values import where_known
from .paths import counted

__all__ = ["Selection"]

FUNCTIONS = frozenset(
    [
        "abs",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctan2",
        "arctanh",
        "ceil",
        "conj",
        "cos",
        "cosh",
        "exp",
        "expm1",
        "floor",
        "fmod",
        "imag",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "log10",
        "log1p",
        "maximum",
        "minimum",
        "real",
        "round",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
        "where",
    ]
)
"""Functions of numexpr that return one value for each entry."""

OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr, ast.BitXor,
    ast.LShift, ast.RShift,
)  # fmt: skip

COUNT = "#"
"""Prefix of the path of a collection whose number of items is meant."""


@dataclass
class Selection:
    """A parsed condition on entries, which is evaluated batch by batch.

    Examples
    --------
    >>> import femtobarn as fb
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"},
    ...         {"name": "Muon", "type": {"list": "float32"}}]}
    >>> selection = Selection.parse("run == 7 and nMuon >= 2", fb.definition_of(form))
    >>> selection.fields, selection.collections
    (['run'], ['Muon'])
    >>> selection.evaluate({"run": np.array([7, 7, 8]), "#Muon": np.array([2, 1, 2])}, 3)
    array([ True, False, False])
    """

    text: str
    expression: str
    variables: dict[str, str] = field(default_factory=dict)
    """The column of each variable of numexpr: the path of a field, or ``#`` and the path of a collection."""

    @classmethod
    def parse(cls, text: str, definition: Definition) -> Selection:
        """Read an expression over the fields of a class.

        Raises
        ------
        InvalidError
            If the text is not an expression, or uses a field that does not have one number per entry.
        NotFoundError
            If a field or function does not exist; near misses are named.
        """
        if not isinstance(text, str):
            raise WrongTypeError(
                f'where is a text such as "nMuon == 2 and met.pt > 30", not {text!r}; to choose by a mask, '
                "index the view with it"
            )
        check_text(text, "where")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError) as error:
            reason = _foreign_operator(text) or getattr(error, "msg", str(error))
            raise InvalidError(f"where {text!r} is not an expression: {reason}") from None
        rewriter = _Rewriter(text, definition)
        body = rewriter.visit(tree.body)
        return cls(text, ast.unparse(ast.fix_missing_locations(body)), rewriter.variables)

    @property
    def fields(self) -> list[str]:
        """Paths of the fields whose values are needed."""
        return [path for path in self.variables.values() if not path.startswith(COUNT)]

    @property
    def collections(self) -> list[str]:
        """Paths of the collections whose numbers of items are needed."""
        return [path[len(COUNT) :] for path in self.variables.values() if path.startswith(COUNT)]

    @cached_property
    def _comparison(self) -> Comparison | None:
        return comparison_of(self.expression)

    def evaluate(self, columns: Mapping[str, Values], length: int) -> Values:
        """Return a mask of the selected entries.

        Parameters
        ----------
        columns
            Values of :attr:`fields` by path, and numbers of items by ``#`` and the path, each of shape
            (length,); masked arrays where values are missing.
        length
            Number of entries.

        Returns
        -------
        numpy.ndarray
            Truth values, shape (length,).

        Raises
        ------
        InvalidError
            If the expression cannot be evaluated, or gives numbers.
        """
        given = {name: columns[path] for name, path in self.variables.items()}
        values = {
            name: _evaluable(np.ma.filled(each, 0), self.variables[name]) for name, each in given.items()
        }
        present = {
            f"is_{name}": ~np.ma.getmaskarray(each) for name, each in given.items() if np.ma.is_masked(each)
        }
        expression = self.expression
        if present:
            expression = where_known(expression, {name.removeprefix("is_"): name for name in present})
        elif self._comparison is not None and all(each.dtype.kind in "fi" for each in values.values()):
            return self._comparison(values)
        try:
            selected = numexpr.evaluate(expression, local_dict={**values, **present}, global_dict={})
        except Exception as error:
            raise InvalidError(f"where {self.text!r} cannot be evaluated: {error}") from error
        if selected.dtype != np.bool_:
            raise InvalidError(
                f"where {self.text!r} gives numbers ({selected.dtype}), not truth values; compare them"
            )
        return np.broadcast_to(selected, (length,)) if selected.ndim == 0 else selected


FOREIGN_OPERATORS = (
    (r"&&", "write and"),
    (r"\|\|", "write or"),
    (r"!(?!=)", "write not"),
    (r"(?<![=<>!])=(?!=)", "compare with =="),
)
"""Operators of other languages, and what to write instead."""


def _foreign_operator(text: str) -> str | None:
    """Return what to write instead of an operator of another language in a text, if it has one."""
    for sign, advice in FOREIGN_OPERATORS:
        found = re.search(sign, text)
        if found is not None:
            return f"instead of {found[0]}, {advice}"
    return None


def _evaluable(values: Values, path: str) -> Values:
    """Return values in a type that numexpr can compute with."""
    if values.dtype == np.uint64:
        if values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise InvalidError(f"field {path!r} has values of 2^63 or more, which where cannot compare")
        return values.view(np.int64)
    if values.dtype.kind in "iu" and values.dtype.itemsize < 4:
        return values.astype(np.int32)
    return values


class _Rewriter(ast.NodeTransformer):
    """Rewrites an expression of Python as one of numexpr."""

    def __init__(self, text: str, definition: Definition) -> None:
        self.text = text
        self.definition = definition
        self.variables: dict[str, str] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        raise InvalidError(
            f"where {self.text!r} uses {ast.unparse(node)!r}; it may use fields, numbers, comparisons, "
            f"arithmetic, and, or, not and {', '.join(sorted(FUNCTIONS)[:4])}, ..."
        )

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool | int | float):
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._variable(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._variable(self._path(node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name == "len" and len(node.args) == 1 and not node.keywords:
            return self._count(self._path(node.args[0]))
        if name not in FUNCTIONS:
            hint = near_misses(name, {*FUNCTIONS, "len"})
            raise NotFoundError(f"where {self.text!r}: function {name!r} does not exist{hint}")
        arguments = [self.visit(argument) for argument in node.args]
        return ast.Call(ast.Name(name, ast.Load()), arguments, [])

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        # numexpr has only & and |. The tree keeps the order, though they bind more tightly than comparisons.
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return _chain([self.visit(value) for value in node.values], operator)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operator = ast.Invert() if isinstance(node.op, ast.Not) else node.op
        return ast.UnaryOp(operator, self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not isinstance(node.op, OPERATORS):
            return self.generic_visit(node)
        return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops):
            return self.generic_visit(node)
        for side in (node.left, *node.comparators):
            self._check_parentheses(side, is_chain=len(node.ops) > 1)
        sides = [self.visit(side) for side in (node.left, *node.comparators)]
        pairs = zip(sides[:-1], node.ops, sides[1:], strict=True)
        return _chain([ast.Compare(left, [op], [right]) for left, op, right in pairs], ast.BitAnd())

    def _check_parentheses(self, side: ast.expr, *, is_chain: bool) -> None:
        """Refuse ``a > 1 | b > 2``, which Python reads as ``a > (1 | b) > 2``.

        A single comparison of bits of integers, such as ``flags & 4 == 4``, is accepted.
        """
        if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.BitAnd | ast.BitOr | ast.BitXor):
            return
        is_number_of_bits = all(map(self._is_integer, (side.left, side.right)))
        if self._is_in_parentheses(side) or (is_number_of_bits and not is_chain):
            return
        sign = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}[type(side.op)]
        raise InvalidError(
            f"where {self.text!r}: {sign} binds more tightly than comparisons; write these in parentheses, "
            f"such as (a > 1) {sign} (b > 2), or use and, or"
        )

    def _is_in_parentheses(self, node: ast.expr) -> bool:
        text = self.text.strip().encode()  # Columns are counted in bytes, from the start of their line.
        starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
        before = text[: starts[node.lineno - 1] + node.col_offset].rstrip()
        after = text[starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0) :].lstrip()
        return before.endswith(b"(") and after.startswith(b")")

    def _is_integer(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return self._is_integer(node.left) and self._is_integer(node.right)
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int) and not isinstance(node.value, bool)
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        try:
            of = self.definition.resolve(self._path(node))
        except (NotFoundError, InvalidError):
            return True  # Visiting the name raises the error.
        return isinstance(of, Primitive) and of.dtype.kind in "iu"

    def _path(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._path(node.value)}.{node.attr}"
        self.generic_visit(node)
        raise AssertionError("generic_visit raises")

    def _variable(self, path: str) -> ast.AST:
        try:
            node = self.definition.resolve(path)
        except NotFoundError:
            collection = counted(path, self.definition)
            if collection is None:
                raise
            return self._count(collection)
        self._check_flat(path, node)
        return self._named(path)

    def _count(self, path: str) -> ast.AST:
        node = self.definition.resolve(path)
        if not isinstance(node, List) or self._jagged(path.rpartition(".")[0]):
            raise InvalidError(
                f"where {self.text!r}: {path!r} is {node}, which has no number of items per entry"
            )
        return self._named(COUNT + path)

    def _check_flat(self, path: str, node: Node) -> None:
        if isinstance(node, Primitive | Reduced) and not self._jagged(path):
            return
        if self._jagged(path):
            collection = next(
                p for p in _prefixes(path) if isinstance(self.definition.resolve(p), List | Fixed)
            )
            raise InvalidError(
                f"where {self.text!r}: {path!r} has several values per entry; count them with "
                f"len({collection}), or read the arrays and select with awkward, such as "
                f"arrays[ak.any(arrays.{path} > 0, axis=1)]"
            )
        advice = (
            "name one of its members" if isinstance(innermost(node), Record | Link) else "read and select"
        )
        raise InvalidError(f"where {self.text!r}: {path!r} is {node}, not a number; {advice}")

    def _jagged(self, path: str) -> bool:
        return any(isinstance(self.definition.resolve(prefix), List | Fixed) for prefix in _prefixes(path))

    def _named(self, column: str) -> ast.AST:
        known = {path: name for name, path in self.variables.items()}
        name = known.get(column) or f"v{len(self.variables)}"
        self.variables[name] = column
        return ast.Name(name, ast.Load())


def _prefixes(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _chain(operands: list[Any], operator: ast.operator) -> ast.AST:
    result = operands[0]
    for operand in operands[1:]:
        result = ast.BinOp(result, operator, operand)
    return result  # type: ignore[no-any-return]

"""The text of a condition, read by Python's parser and rewritten as an expression of numexpr.

Parts that numexpr cannot compute become variables: terms (:mod:`femtobarn._query.array_terms`).
"""

from __future__ import annotations

import ast
import itertools
import re
from typing import Any

from .._exceptions import InvalidError, NotFoundError, near_misses
from .._schema.types import (
    Definition,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    innermost,
)
from .array_terms import (
    OPERATORS,
    REDUCERS,
    ArrayTerm,
    check_size,
    is_text,
    link_before,
    path_of,
    term_of,
)
from .paths import counted
from .syntax import parsed

__all__ = ["COUNT", "TERM", "Rewriter", "foreign_operator"]

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

COUNT = "#"
"""Prefix of a collection's path that stands for its number of items."""

TERM = "="
"""Prefix of the text of a term that is computed before numexpr."""

CHOICES_MAX = 32
"""Most numbers of an ``in`` that become comparisons, by which clusters are left out."""


FOREIGN_OPERATORS = (
    (r"&&", "write and"),
    (r"\|\|", "write or"),
    (r"!(?!=)", "write not"),
    (r"(?<![=<>!])=(?!=)", "compare with =="),
)
"""Operators of other languages, and their replacements."""


def foreign_operator(text: str) -> str | None:
    """Return the replacement for an operator of another language in a text, if it has one."""
    for sign, advice in FOREIGN_OPERATORS:
        found = re.search(sign, text)
        if found is not None:
            return f"instead of {found[0]}, {advice}"
    return None


class Rewriter(ast.NodeTransformer):
    """Rewrites an expression of Python as one of numexpr."""

    def __init__(self, text: str, definition: Definition) -> None:
        self.text = text
        self.definition = definition
        self.variables: dict[str, str] = {}
        self.terms: dict[str, ArrayTerm] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        raise InvalidError(
            f"where {self.text!r} uses {ast.unparse(node)!r}; it may use fields, numbers, strings, "
            f"comparisons, in, is None, arithmetic, and, or, not, {', '.join(REDUCERS)}, "
            f"{', '.join(sorted(FUNCTIONS)[:4])}, ..."
        )

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool | int | float):
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._variable(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if any(isinstance(each, ast.Subscript) for each in ast.walk(node.value)):
            return self._term(node)
        path = self._path(node)
        return self._variable(path) if link_before(path, self.definition) is None else self._term(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name == "len" and len(node.args) == 1 and self._is_collection(node.args[0]):
            return self._count(self._path(node.args[0]))
        if name in REDUCERS:
            return self._term(node)
        if name not in FUNCTIONS:
            hint = near_misses(name, {*FUNCTIONS, *REDUCERS})
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
        check_size(node)
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and not (
            _is_positive(node.right) and self._is_whole(node.left) and self._is_whole(node.right)
        ):
            # numexpr divides integers by -1 as the processor does, which may trap, and rounds remainders.
            return self._term(node)
        return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self._check_comparison(node)
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            return self._choice(node)
        sides = [node.left, *node.comparators]
        is_of_arrays = any(is_text(side, self.definition) or self._is_behind_link(side) for side in sides)
        if is_of_arrays or any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return self._term(node)
        visited = [self.visit(side) for side in sides]
        pairs = zip(visited[:-1], node.ops, visited[1:], strict=True)
        return _chain([ast.Compare(left, [op], [right]) for left, op, right in pairs], ast.BitAnd())

    def _check_comparison(self, node: ast.Compare) -> None:
        """Refuse a comparison that Python allows and a condition does not."""
        sides = [node.left, *node.comparators]
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            choices = getattr(node.comparators[0], "elts", [None])
            if len(node.ops) > 1 or not choices or not all(_is_constant(each) for each in choices):
                raise self._error(node, "in is followed by a list of numbers or texts, such as in (1, 2)")
            self._check_texts(node, [node.left, *choices])
            return
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            if len(sides) > 2 or not _is_none(sides[1]):
                raise self._error(node, "is and is not are only for None")
            return
        if any(map(_is_none, sides)):
            raise self._error(node, "write is None, or is not None")
        self._check_texts(node, sides)
        for side in sides:
            self._check_parentheses(side, is_chain=len(node.ops) > 1)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._term(node)

    def _choice(self, node: ast.Compare) -> ast.AST:
        """Return ``x in (1, 2)``: comparisons of a number, or a term."""
        choices = node.comparators[0].elts  # type: ignore[attr-defined]
        is_of_arrays = is_text(node.left, self.definition) or self._is_behind_link(node.left)
        if is_of_arrays or len(choices) > CHOICES_MAX:
            return self._term(node)
        pairs: list[ast.AST] = [ast.Compare(self.visit(node.left), [ast.Eq()], [each]) for each in choices]
        found: Any = _chain(pairs, ast.BitOr())
        return ast.UnaryOp(ast.Invert(), found) if isinstance(node.ops[0], ast.NotIn) else found

    def _check_texts(self, node: ast.Compare, sides: list[ast.expr]) -> None:
        """Refuse comparisons of texts with numbers, and of their order."""
        texts = [side for side in sides if is_text(side, self.definition)]
        for side in sides if texts else []:
            if side not in texts and not self._is_behind_link(side):
                self._check_exists(side)
                name = ast.unparse(texts[0])
                raise self._error(node, f"{name} is string, and {ast.unparse(side)} is not")
        if any(map(self._is_behind_link, sides)):
            return  # The text may be compared with a time.
        if texts and not all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops):
            raise self._error(node, "texts have no order here; use ==, != or in")

    def _check_exists(self, node: ast.expr) -> None:
        path = path_of(node)
        if path is not None and counted(path, self.definition) is None:
            self.definition.resolve(path)

    def _is_behind_link(self, node: ast.expr) -> bool:
        """Whether a part is a field of a link's target, whose type is not known yet."""
        path = path_of(node)
        return path is not None and link_before(path, self.definition) is not None

    def _error(self, node: ast.AST, what: str) -> InvalidError:
        part = ast.unparse(node)
        where = "" if part == self.text.strip() else f"{part!r}: "
        return InvalidError(f"where {self.text!r}: {where}{what}")

    def _term(self, node: ast.expr) -> ast.AST:
        for each in ast.walk(node):
            if isinstance(each, ast.Compare):
                self._check_comparison(each)
        try:
            term = term_of(node, FUNCTIONS, self.definition)
        except (InvalidError, NotFoundError) as error:
            raise type(error)(f"where {self.text!r}: {error}") from None
        self.terms[TERM + term.text] = term
        return self._named(TERM + term.text)

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

    def _is_whole(self, node: ast.expr) -> bool:
        """Tell whether a part is known to be computed with integers alone."""
        if isinstance(node, ast.Call):
            return ast.unparse(node.func) == "len"
        if isinstance(node, ast.BinOp):
            is_whole = self._is_whole(node.left) and self._is_whole(node.right)
            return is_whole and not isinstance(node.op, ast.Div)
        return self._is_integer(node)

    def _path(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._path(node.value)}.{node.attr}"
        self.generic_visit(node)
        raise AssertionError("generic_visit raises")

    def _variable(self, path: str) -> ast.AST:
        collection = None if self.definition.type_at(path) is not None else counted(path, self.definition)
        if collection is not None:
            return self._count(collection)
        node = self.definition.resolve(path)
        if isinstance(node, Optional) and isinstance(node.item, Primitive | Reduced):
            if not self._jagged(path):
                return self._term(parsed(path))
            node = node.item
        self._check_flat(path, node)
        return self._named(path)

    def _is_collection(self, node: ast.expr) -> bool:
        """Whether a part is a list, with one number of items for each entry."""
        path = path_of(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if path is None or not isinstance(self.definition.type_at(path), List):
            return False
        above = path.rpartition(".")[0]
        is_optional = any(isinstance(self.definition.resolve(each), Optional) for each in _prefixes(above))
        return not is_optional and not self._jagged(above)

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
                f"where {self.text!r}: {path!r} has several values per entry; write "
                f"any({path} > 0), {path}[0] or len({collection})"
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


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_constant(node: Any) -> bool:
    """Tell whether a part is a number, perhaps with a sign, or a text."""
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, bool | int | float | str)


def _is_positive(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > 0


def _prefixes(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _chain(operands: list[Any], operator: ast.operator) -> ast.AST:
    result = operands[0]
    for operand in operands[1:]:
        result = ast.BinOp(result, operator, operand)
    return result  # type: ignore[no-any-return]

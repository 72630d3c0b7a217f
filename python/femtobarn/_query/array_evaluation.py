"""Terms of a condition, computed with awkward: three-valued logic as in SQL, numbers as numexpr has them.

Invariants
----------
1. Arrays have a value for each entry, or a list of values. A value that is unknown is missing.
2. `and`, `or`, `any` and `all` are known if their known parts decide: ``None or True`` is True.
3. Integers of 8 and 16 bits are computed with in 32 bits, others in 64 bits, and constants are 64 bits wide.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np

from .._exceptions import InvalidError, NotFoundError, near_misses
from .array_terms import REDUCERS, is_integer

__all__ = ["Evaluator"]

ELEMENTWISE: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: np.logical_not,
    ast.Invert: operator.invert,
}

INT64_MAX = np.iinfo(np.int64).max


class Evaluator(ast.NodeVisitor):
    """Computes a part of a condition that was checked before."""

    def __init__(self, array: ak.Array) -> None:
        self.array = array

    def generic_visit(self, node: ast.AST) -> Any:
        raise InvalidError(f"{ast.unparse(node)!r} cannot be used in a condition")

    def visit_Constant(self, node: ast.Constant) -> Any:
        value: Any = node.value
        if isinstance(value, bool | str) or value is None:
            return value
        return np.int64(value) if isinstance(value, int) and abs(value) <= INT64_MAX else np.float64(value)

    def visit_Name(self, node: ast.Name) -> Any:
        return promoted(member(self.array, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return promoted(member(self._records(node.value), node.attr))

    def _records(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return member(self.array, node.id)
        if isinstance(node, ast.Attribute):
            return member(self._records(node.value), node.attr)
        return self.visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        array, chosen = self.visit(node.value), node.slice
        if isinstance(chosen, ast.Slice):
            ends = (each and ast.literal_eval(each) for each in (chosen.lower, chosen.upper, chosen.step))
            return array[:, slice(*ends)]
        if is_integer(chosen):
            place = ast.literal_eval(chosen)
            # An entry with fewer items has a missing value.
            return ak.firsts(array[:, place : place + 1 or None], axis=1)
        mask = self.visit(chosen)
        if not isinstance(mask, ak.Array) or mask.ndim < 2 or not is_truth(mask):
            raise InvalidError(
                f"{ast.unparse(node)!r}: items are chosen by an integer, or by a condition on items"
            )
        return array[ak.fill_none(mask, False, axis=-1)]

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        both = conjunction if isinstance(node.op, ast.And) else disjunction
        result = self.visit(node.values[0])
        for value in node.values[1:]:
            result = both(result, self.visit(value))
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return ELEMENTWISE[type(node.op)](self.visit(node.operand))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.BitAnd | ast.BitOr) and is_truth(left) and is_truth(right):
            return (conjunction if isinstance(node.op, ast.BitAnd) else disjunction)(left, right)
        return ELEMENTWISE[type(node.op)](left, right)

    def visit_Compare(self, node: ast.Compare) -> Any:
        sides = [node.left, *node.comparators]
        result = None
        for left, sign, right in zip(sides[:-1], node.ops, sides[1:], strict=True):
            found = self._compared(self.visit(left), sign, right)
            result = found if result is None else conjunction(result, found)
        return result

    def _compared(self, value: Any, sign: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(sign, ast.Is | ast.IsNot):
            missing = ak.is_none(value, axis=max(value.ndim - 1, 0))
            return missing if isinstance(sign, ast.Is) else ~missing
        if isinstance(sign, ast.In | ast.NotIn):
            found = is_one_of(value, ast.literal_eval(right))
            return found if isinstance(sign, ast.In) else np.logical_not(found)
        return compared(ELEMENTWISE[type(sign)], value, self.visit(right))

    def visit_Call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        if name not in REDUCERS:
            return ak.where(*arguments) if name == "where" else getattr(np, name)(*arguments)
        (items,) = arguments
        if not isinstance(items, ak.Array) or items.ndim < 2:
            raise InvalidError(f"{ast.unparse(node)!r}: {ast.unparse(node.args[0])!r} is no list")
        return reduced(name, items)


def member(array: Any, name: str) -> Any:
    """Return a member of records, the number of its items (``nX``), or a field of the targets of links."""
    from .._objects.link_arrays import LinkArray

    if name in array.fields:
        return array[name]
    if name.startswith("n") and name[1:] in array.fields:
        return ak.num(array[name[1:]], axis=array.ndim)
    if isinstance(array, LinkArray):
        targets = array.fetch(name)
        # There may be no target at all: then nothing is known of the field.
        return targets[name] if name in targets.fields else ak.full_like(ak.is_none(array, axis=-1), None)
    raise NotFoundError(f"field {name!r} does not exist{near_misses(name, array.fields)}")


def promoted(array: Any) -> Any:
    """Return numbers as numexpr computes with them."""

    def widened(layout: Any, **_: Any) -> Any:
        if layout.parameter("__array__") in ("string", "bytestring"):
            return layout
        if not layout.is_numpy or layout.data.dtype.kind not in "iu":
            return None
        values = layout.data
        if values.dtype == np.uint64 and values.size and int(values.max()) > INT64_MAX:
            raise InvalidError("there are values of 2^63 or more, which where cannot compare")
        wide = np.int32 if values.dtype.itemsize < 4 or values.dtype == np.int32 else np.int64
        return ak.contents.NumpyArray(values.astype(wide, copy=False), parameters=layout.parameters)

    return array if array.fields else ak.transform(widened, array)


def is_truth(value: Any) -> bool:
    """Tell whether values are true, false, or missing."""
    if not isinstance(value, ak.Array):
        return isinstance(value, bool | np.bool_)
    layout = value.layout
    while layout.is_list or layout.is_option or layout.is_indexed:
        layout = layout.content
    return bool(layout.is_unknown or (layout.is_numpy and layout.data.dtype == np.bool_))


def are_known(value: Any) -> bool:
    """Tell whether no value, item or list can be missing."""
    layout = value.layout if isinstance(value, ak.Array) else None
    while layout is not None and not layout.is_option and (layout.is_list or layout.is_indexed):
        layout = layout.content
    return layout is None or not layout.is_option


def compared(sign: Callable[..., Any], left: Any, right: Any) -> Any:
    """Compare values, which may be texts; of what nothing is known, the result is unknown."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, ak.Array) and str(ak.type(ak.flatten(one, axis=None))).endswith("unknown"):
            return sign(one, 0) if isinstance(other, str) else sign(left, right)
    return sign(left, right)


def is_one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    """Tell which values are among some numbers or texts."""
    if any(isinstance(each, str) for each in choices):
        found: Any = value != value
        for each in choices:
            found = np.logical_or(found, compared(operator.eq, value, each))
        return found

    def among(layout: Any, **_: Any) -> Any:
        return ak.contents.NumpyArray(np.isin(layout.data, choices)) if layout.is_numpy else None

    return ak.transform(among, value)


def conjunction(left: Any, right: Any) -> Any:
    """Return `and` of values that may be unknown."""
    if are_known(left) and are_known(right):
        return np.logical_and(left, right)
    return np.logical_not(disjunction(np.logical_not(left), np.logical_not(right)))


def disjunction(left: Any, right: Any) -> Any:
    """Return `or` of values that may be unknown."""
    if are_known(left) and are_known(right):
        return np.logical_or(left, right)
    known = np.logical_or(_or_false(left), _or_false(right))
    unknown = np.logical_or(_is_unknown(left), _is_unknown(right))
    if not isinstance(known, ak.Array):
        return known
    return ak.mask(known, np.logical_or(known, ~unknown))


def _or_false(value: Any) -> Any:
    return ak.fill_none(value, False, axis=-1) if isinstance(value, ak.Array) else np.bool_(value)


def _is_unknown(value: Any) -> Any:
    return ak.is_none(value, axis=-1) if isinstance(value, ak.Array) else np.bool_(False)


def reduced(name: str, items: ak.Array) -> ak.Array:
    """Return one value for each entry."""
    if name == "len":
        if items.ndim > 2:
            raise InvalidError("len is for one list per entry; count(...) has all items")
        return ak.num(items, axis=1)
    while items.ndim > 2:
        items = ak.flatten(items, axis=2)
    if name in ("any", "all"):
        if are_known(items):
            return getattr(ak, name)(items, axis=-1)
        given = items if name == "any" else np.logical_not(items)
        known = ak.any(_or_false(given), axis=-1)
        found = ak.mask(known, known | ~ak.any(_is_unknown(given), axis=-1))
        return found if name == "any" else np.logical_not(found)
    if name == "count":
        # Of a condition, the items that meet it.
        counted = _or_false(items) if is_truth(items) else ~_is_unknown(items)
        return ak.sum(counted, axis=-1)
    if name == "mean":
        return ak.mean(items, axis=-1, mask_identity=True)
    return getattr(ak, name)(items, axis=-1)

"""Terms of a condition, computed with awkward: three-valued logic as in SQL, numbers of 64 bits.

Invariants
----------
1. Arrays have a value for each entry, or a list of values. A value that is unknown is missing.
2. `and`, `or`, `any` and `all` are known if their known parts decide: ``None or True`` is True.
3. Arithmetic has 64 bits. NaN is never the smallest or the largest item.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import awkward as ak
import numpy as np

from .._data.picking import picked, picked_ranges
from .._exceptions import InvalidError, NotFoundError, near_misses
from .._schema.meanings import time_of
from .._schema.types import Definition
from .array_terms import REDUCERS, is_integer
from .elements import reached

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

    def __init__(self, array: ak.Array, definition: Definition, *, in_reals: bool = False) -> None:
        self.array = array
        self.definition = definition
        self.in_reals = in_reals
        """Whether functions take integers as real numbers, as those of numexpr do."""

    def generic_visit(self, node: ast.AST) -> Any:
        raise InvalidError(f"{ast.unparse(node)!r} cannot be used in a condition")

    def visit_Constant(self, node: ast.Constant) -> Any:
        value: Any = node.value
        if isinstance(value, bool | str) or value is None:
            return value
        return np.int64(value) if isinstance(value, int) and abs(value) <= INT64_MAX else np.float64(value)

    def visit_Name(self, node: ast.Name) -> Any:
        return promoted(self.field(node))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return promoted(self.field(node))

    def field(self, node: ast.expr) -> Any:
        """Return a field, or records, as they are stored."""
        through = reached(node, self.definition) if isinstance(node, ast.Name | ast.Attribute) else None
        if through is not None:
            columns = [(self.field(target), key) for target, key in through.wanted]
            indices = [self.field(each) for each in (through.index, through.key, through.end) if each]
            return (
                picked(columns, *indices) if through.end is None else picked_ranges(columns[0][0], *indices)
            )
        if isinstance(node, ast.Name):
            return member(self.array, node.id)
        if isinstance(node, ast.Attribute):
            return member(self.field(node.value), node.attr)
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
        return ELEMENTWISE[type(node.op)](*aligned(left, right))

    def visit_Compare(self, node: ast.Compare) -> Any:
        sides = [node.left, *node.comparators]
        result = None
        for left, sign, right in zip(sides[:-1], node.ops, sides[1:], strict=True):
            found = self._compared(self.visit(left), sign, right)
            result = found if result is None else conjunction(result, found)
        return result

    def _compared(self, value: Any, sign: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(sign, ast.Is | ast.IsNot):
            # An optional list, or else optional items.
            missing = ak.is_none(value, axis=0 if value.layout.is_option else max(value.ndim - 1, 0))
            return missing if isinstance(sign, ast.Is) else ~missing
        if isinstance(sign, ast.In | ast.NotIn):
            choices = tuple(_as_times(value, each)[1] for each in ast.literal_eval(right))
            found = is_one_of(value, choices)
            return found if isinstance(sign, ast.In) else np.logical_not(found)
        return compared(ELEMENTWISE[type(sign)], *_as_times(value, self.visit(right)))

    def visit_Call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        if name not in REDUCERS:
            if name == "where":
                return ak.where(*arguments)
            return getattr(np, name)(*([1.0 * each for each in arguments] if self.in_reals else arguments))
        (items,) = arguments
        if not isinstance(items, ak.Array) or items.ndim < 2:
            raise InvalidError(f"{ast.unparse(node)!r}: {ast.unparse(node.args[0])!r} is not a list")
        return reduced(name, items)


def _as_times(left: Any, right: Any) -> tuple[Any, Any]:
    """Return both sides of a comparison; a text beside times is one of them."""
    sides = (left, right)
    if any(isinstance(side, ak.Array) and "datetime64" in str(side.type) for side in sides):
        try:
            left, right = (time_of(side) if isinstance(side, str) else side for side in sides)
        except ValueError as error:
            raise InvalidError(str(error)) from None
    return left, right


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
        return targets[name] if name in targets.fields else unknown(ak.is_none(array, axis=-1))
    if "unknown" in str(array.type):
        return array  # Nothing is known of a field of unknown targets, either.
    raise NotFoundError(f"field {name!r} does not exist{near_misses(name, array.fields)}")


def promoted(array: Any) -> Any:
    """Return numbers as they are computed with."""

    def widened(layout: Any, **_: Any) -> Any:
        if layout.parameter("__array__") in ("string", "bytestring"):
            return layout
        if not layout.is_numpy or layout.data.dtype.kind not in "iuf":
            return None
        values = layout.data
        if values.dtype == np.uint64 and values.size and int(values.max()) > INT64_MAX:
            raise InvalidError("there are values of 2^63 or more, which cannot be computed with")
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        return ak.contents.NumpyArray(values.astype(wide, copy=False), parameters=layout.parameters)

    # awkward broadcasts lists of a fixed length as NumPy does.
    return array if array.fields else ak.from_regular(ak.transform(widened, array), axis=None)


def unknown(flags: ak.Array) -> ak.Array:
    """Return missing values in the lists of an array of truth values."""

    def missing(layout: Any, **_: Any) -> Any:
        if not layout.is_numpy:
            return None
        nowhere = ak.index.Index64(np.full(len(layout), -1))
        return ak.contents.IndexedOptionArray(nowhere, ak.contents.EmptyArray())

    return ak.transform(missing, flags)


def aligned(left: Any, right: Any) -> tuple[Any, Any]:
    """Return operands of which a value that is missing for an entry is missing for each of its items."""
    return spread(left, right), spread(right, left)


def spread(value: Any, other: Any) -> Any:
    """Return a value of each entry as one of each item of another operand, if it may be missing."""
    if not isinstance(value, ak.Array) or not isinstance(other, ak.Array):
        return value
    if value.ndim >= other.ndim or are_known(value):
        return value
    # Places of the items, of which none is missing.
    places = ak.local_index(other, axis=other.ndim - 1)
    missing = ak.broadcast_arrays(ak.is_none(value, axis=-1), places)[0]
    # An item in place of the missing values, of their own type.
    present = ak.drop_none(ak.flatten(value, axis=None))
    if not len(present):
        return unknown(missing)
    return ak.mask(ak.broadcast_arrays(ak.fill_none(value, present[0], axis=-1), places)[0], ~missing)


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
    """Compare values, which may be texts; for unknown values the result is unknown."""
    left, right = aligned(left, right)
    if not are_texts(left) and not are_texts(right):
        return sign(left, right)
    # awkward compares texts that are not missing.
    is_unknown = np.logical_or(_is_unknown(left), _is_unknown(right))
    found = sign(*(_or_empty(each) for each in (left, right)))
    return ak.mask(found, ~is_unknown) if isinstance(is_unknown, ak.Array) else found


def are_texts(value: Any) -> bool:
    """Tell whether values are texts."""
    if not isinstance(value, ak.Array):
        return isinstance(value, str)
    layout = value.layout
    while (layout.is_list or layout.is_option or layout.is_indexed) and layout.parameter("__array__") is None:
        layout = layout.content
    return bool(layout.parameter("__array__") == "string")


def _or_empty(value: Any) -> Any:
    return ak.fill_none(value, "", axis=-1) if isinstance(value, ak.Array) else value


def is_one_of(value: Any, choices: tuple[Any, ...]) -> Any:
    """Tell which values are among some numbers or texts."""
    texts = {each for each in choices if isinstance(each, str)}
    # A real number equal to an integer stands for it.
    numbers = [
        int(each) if isinstance(each, bool) or (isinstance(each, float) and each.is_integer()) else each
        for each in choices
        if not isinstance(each, str)
    ]
    fit = [each for each in numbers if isinstance(each, int) and abs(each) <= INT64_MAX]
    integers = np.array(fit, np.int64)

    def among(layout: Any, **_: Any) -> Any:
        if layout.parameter("__array__") == "string":
            return ak.contents.NumpyArray(_among_texts(layout, texts))
        if layout.is_numpy:
            kind = layout.data.dtype.kind
            known: Any = np.array(numbers, np.float64) if kind == "f" else integers
            if kind == "M":
                known = np.array(
                    [each for each in numbers if isinstance(each, np.datetime64)], layout.data.dtype
                )
            return ak.contents.NumpyArray(np.isin(layout.data, known))
        return None

    return ak.transform(among, value)


def _among_texts(layout: Any, texts: set[str]) -> Any:
    lists = ak.to_packed(ak.Array(layout)).layout.to_ListOffsetArray64(True)
    starts, stops = lists.offsets.data[:-1], lists.offsets.data[1:]
    fits = stops - starts <= max((len(each.encode()) for each in texts), default=-1)
    # NumPy's texts do not keep a zero at their end.
    ends_in_zero = np.zeros(len(fits), bool)
    ends_in_zero[stops > starts] = lists.content.data[stops[stops > starts] - 1] == 0
    found = np.zeros(len(fits), bool)
    for chosen, among in ((fits & ~ends_in_zero, _among_plain), (fits & ends_in_zero, _among_any)):
        if chosen.any():
            found[chosen] = among(ak.Array(lists)[chosen], texts)
    return found


def _among_plain(values: ak.Array, texts: set[str]) -> Any:
    plain = [each for each in texts if not each.endswith("\0")]
    return np.isin(ak.to_numpy(values), np.array(plain, str)) if plain else False


def _among_any(values: ak.Array, texts: set[str]) -> Any:
    return [each in texts for each in values.to_list()]


def conjunction(left: Any, right: Any) -> Any:
    """Return `and` of values that may be unknown."""
    if are_known(left) and are_known(right):
        return np.logical_and(left, right)
    return np.logical_not(disjunction(np.logical_not(left), np.logical_not(right)))


def disjunction(left: Any, right: Any) -> Any:
    """Return `or` of values that may be unknown."""
    if are_known(left) and are_known(right):
        return np.logical_or(left, right)
    left, right = aligned(left, right)
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
    if name != "count" and items.layout.purelist_parameter("__array__") == "string":
        raise InvalidError(f"{name} takes numbers, but the items are strings; compare them, or count them")
    if name == "count" and items.fields:
        return ak.num(items, axis=1)
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
    return getattr(ak, name)(ak.nan_to_none(items) if name in ("max", "min") else items, axis=-1)

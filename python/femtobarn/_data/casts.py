"""Conversion of numbers to the type of a field, by the same rules as for objects appended one by one.

1. Real numbers are rounded to the precision of the field, as in ROOT, NumPy and awkward. A finite number that
   would become infinite is refused.
2. Integers are kept exactly: one that does not fit a narrower field, or a field of real numbers, is refused.
3. A real number never becomes an integer, and no number becomes a truth value.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from .._exceptions import InvalidError
from .._schema.meanings import TIMES, Meaning, stored_times
from .._schema.types import Primitive, Reduced

__all__ = ["cast_numbers"]

Values: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def cast_numbers(values: Values, node: Primitive | Reduced, path: str) -> Values:
    """Return values converted to the type of a field: contiguous, aligned, in native byte order.

    Parameters
    ----------
    values
        Numbers or truth values, shape (n,); returned without a copy if they have the type already.
    node
        Type of the field.
    path
        Dotted name of the field, for error texts.

    Raises
    ------
    InvalidError
        If a value does not fit; the text names the field and the value.

    Examples
    --------
    >>> cast_numbers(np.array([1, 2]), Primitive("uint8"), "n").dtype
    dtype('uint8')
    >>> cast_numbers(np.array([1, 300]), Primitive("uint8"), "n")
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.InvalidError: field 'n': 300 (value 1) does not fit into uint8 (0 to 255)
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype.kind == "M" and isinstance(node, Primitive) and node.meaning is not None:
        values = _times(values, node.meaning, path)
    if values.dtype != node.dtype:
        values = _converted(values, node, path)
    return np.require(values, requirements=["C", "A"])


def _times(values: Values, meaning: Meaning, path: str) -> Values:
    if meaning.kind not in TIMES:
        raise InvalidError(f"field {path!r} is {meaning}, which cannot hold times")
    try:
        return stored_times(values, meaning.kind)  # type: ignore[no-any-return]
    except ValueError as error:
        raise InvalidError(f"field {path!r}: {error}") from None


def _converted(values: Values, node: Primitive | Reduced, path: str) -> Values:
    source, target = values.dtype.kind, node.dtype.kind
    if source in "iub" and target in "iu":
        return _to_integers(values, node, path)
    if source in "iub" and target == "f":
        return _integers_to_reals(values, node, path)
    if source == "f" and target == "f":
        return _rounded(values, node, path)
    raise InvalidError(
        f"field {path!r} is {node}, which cannot hold {_named(values)}{_advice(source, target)}"
    )


def _advice(source: str, target: str) -> str:
    if target == "b":
        return "; compare first, such as x != 0"
    if source == "f":
        return "; round and convert first, such as numpy.rint(x).astype(...)"
    if source in "mM":
        return "; declare the field datetime, or convert to numbers first, such as x.astype('int64')"
    return ""


def _to_integers(values: Values, node: Primitive | Reduced, path: str) -> Values:
    if not np.can_cast(values.dtype, node.dtype, "safe") and values.size:
        bounds = np.iinfo(node.dtype)
        low, high = int(values.min()), int(values.max())
        if low < bounds.min or high > bounds.max:
            wrong = low if low < bounds.min else high
            position = int(np.flatnonzero(values == wrong)[0])
            raise InvalidError(
                f"field {path!r}: {wrong} (value {position}) does not fit into {node} "
                f"({bounds.min} to {bounds.max})"
            )
    return values.astype(node.dtype)


def _integers_to_reals(values: Values, node: Primitive | Reduced, path: str) -> Values:
    reals = values.astype(node.dtype)
    limit = 2 ** (np.finfo(node.dtype).nmant + 1)
    if not values.size or (int(values.max()) <= limit and int(values.min()) >= -limit):
        return reals
    # A value that was rounded up beyond the largest integer of its type cannot be converted back to compare.
    is_exact = reals < 2.0 ** np.iinfo(values.dtype).bits / (1 if values.dtype.kind == "u" else 2)
    is_exact[is_exact] = reals[is_exact].astype(values.dtype) == values[is_exact]
    if not is_exact.all():
        position = int(np.flatnonzero(~is_exact)[0])
        raise InvalidError(
            f"field {path!r} is {node}, which cannot hold {values[position]} (value {position}) exactly; "
            "convert to real numbers first, such as x.astype(float), to have them rounded"
        )
    return reals


def _rounded(values: Values, node: Primitive | Reduced, path: str) -> Values:
    with np.errstate(over="ignore", under="ignore"):
        reals = values.astype(node.dtype)
    if values.dtype.itemsize > node.dtype.itemsize:
        overflown = np.isinf(reals) & np.isfinite(values)
        if overflown.any():
            position = int(np.flatnonzero(overflown)[0])
            raise InvalidError(
                f"field {path!r}: {values[position]:g} (value {position}) does not fit into {node}"
            )
    return reals


def _named(values: Values) -> str:
    return "text" if values.dtype.kind in "USO" else f"{values.dtype.name} values"

"""Conversion of numbers to the type of a field, where nothing is lost.

The rules: widening is silent; integers may be narrowed as long as every value fits; ``float64``
becomes ``float32`` only with the caller's consent; a real number never becomes an integer.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ._exceptions import InvalidError
from ._types import Primitive, Reduced

__all__ = ["cast_numbers"]

Values: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def cast_numbers(values: Values, node: Primitive | Reduced, path: str, *, narrow: bool) -> Values:
    """Return the values as the field's type: contiguous, aligned, in native byte order.

    Parameters
    ----------
    values
        One-dimensional array of numbers or truth values; returned as it is where it fits.
    node
        Type of the field.
    path
        Dotted name of the field, for the text of errors.
    narrow
        Whether the caller consents to rounding ``float64`` to ``float32``.

    Raises
    ------
    InvalidError
        If a value would change; the text names the field and the value.

    Examples
    --------
    >>> cast_numbers(np.array([1, 2]), Primitive("uint8"), "n", narrow=False).dtype
    dtype('uint8')
    >>> cast_numbers(np.array([1, 300]), Primitive("uint8"), "n", narrow=False)
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.InvalidError: field 'n': 300 (value 1) does not fit into uint8 (0 to 255)
    """
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype != node.dtype:
        values = _converted(values, node, path, narrow)
    return np.require(values, requirements=["C", "A"])


def _converted(values: Values, node: Primitive | Reduced, path: str, narrow: bool) -> Values:
    source, target = values.dtype.kind, node.dtype.kind
    if source in "iub" and target in "iu":
        return _to_integers(values, node, path)
    if source in "iub" and target == "f":
        return _integers_to_reals(values, node, path, narrow)
    if source == "f" and target == "f":
        return _to_reals(values, node, path, narrow)
    raise InvalidError(
        f"field {path!r} is {node}, which cannot hold {_named(values)}{_advice(source, target)}"
    )


def _advice(source: str, target: str) -> str:
    if target == "b":
        return "; compare first, such as x != 0"
    if source == "f":
        return "; round and convert first, such as numpy.rint(x).astype(...)"
    if source in "mM":
        return "; convert to a number of seconds or microseconds first"
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


def _integers_to_reals(values: Values, node: Primitive | Reduced, path: str, narrow: bool) -> Values:
    reals = values.astype(node.dtype)
    limit = 2 ** (np.finfo(node.dtype).nmant + 1)
    if not narrow and values.size and (int(values.max()) > limit or int(values.min()) < -limit):
        raise InvalidError(
            f"field {path!r} is {node}, which cannot hold all of the {_named(values)} exactly; "
            "pass narrow=True to round them"
        )
    return reals


def _to_reals(values: Values, node: Primitive | Reduced, path: str, narrow: bool) -> Values:
    if values.dtype.itemsize > node.dtype.itemsize:
        # A field declared with reduced precision is consent in itself.
        if not narrow and not isinstance(node, Reduced):
            raise InvalidError(
                f"field {path!r} is {node}, and {_named(values)} would lose precision; pass narrow=True "
                "to round them, or declare the field fb.float64"
            )
        return _narrowed(values, node, path)
    return values.astype(node.dtype)


def _narrowed(values: Values, node: Primitive | Reduced, path: str) -> Values:
    with np.errstate(over="ignore", under="ignore"):
        reals = values.astype(node.dtype)
    overflown = np.isinf(reals) & np.isfinite(values)
    if overflown.any():
        position = int(np.flatnonzero(overflown)[0])
        raise InvalidError(
            f"field {path!r}: {values[position]:g} (value {position}) does not fit into {node}"
        )
    return reals


def _named(values: Values) -> str:
    return "text" if values.dtype.kind in "USO" else f"{values.dtype.name} values"

"""Positions in a sequence as NumPy has them: masks, numbers that may be negative, slices with steps."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ._exceptions import WrongTypeError

__all__ = ["Positions", "is_number", "positions_of"]

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def is_number(index: Any) -> bool:
    """Tell whether an index is one number."""
    return hasattr(index, "__index__") and not (hasattr(index, "ndim") and index.ndim)


def positions_of(index: Any, length: int, what: str) -> Positions:
    """Return the positions that an index picks out of a sequence, in the order asked for.

    Parameters
    ----------
    index
        A slice, a mask of as many truth values as there are items, or numbers, of which negative ones count
        from the end: an array of any library, or a list.
    length
        Number of items.
    what
        What is picked from, for the text of errors.

    Raises
    ------
    IndexError
        If a number is out of range, or the mask is of another length.
    WrongTypeError
        If it is something else.

    Examples
    --------
    >>> positions_of([True, False, True], 3, "the view"), positions_of([-1, 0], 3, "the view")
    (array([0, 2]), array([2, 0]))
    """
    if isinstance(index, slice):
        return np.arange(length)[index]
    values = _numbers(index, what)
    if values.dtype == np.bool_:
        if len(values) != length:
            raise IndexError(
                f"a mask of {len(values)} values does not fit {what}, which has {length} objects"
            )
        return np.flatnonzero(values)
    wrong = np.flatnonzero((values < -length) | (values >= length))
    if wrong.size:
        raise IndexError(f"{what} has {length} objects here, no {values[wrong[0]]}")
    positions = values.astype(np.int64)
    return np.where(positions < 0, positions + length, positions)


def _numbers(index: Any, what: str) -> np.ndarray[Any, Any]:
    is_array = hasattr(index, "__len__") or hasattr(index, "__array__")
    if is_array and not isinstance(index, str | bytes | tuple | dict):
        try:
            values = np.asarray(index)
        except (TypeError, ValueError):  # Of unlike lengths, or with values missing.
            values = np.empty((0, 0))
        if values.ndim == 1 and values.dtype.kind in "biu":
            return values
        if values.ndim == 1 and not values.size:  # Of a list, no numbers are real ones to NumPy.
            return np.empty(0, np.int64)
    shown = repr(index)
    raise WrongTypeError(
        f"{what} takes a number, a slice, a mask of truth values, or numbers of objects, not "
        f"{shown if len(shown) <= 60 else shown[:57] + '...'}"
    )

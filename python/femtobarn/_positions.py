"""Indexing of sequences as in NumPy: masks, positions that may be negative, slices with steps."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ._exceptions import WrongTypeError

__all__ = ["Positions", "check_count", "checked_slice", "is_number", "positions_of"]

Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def is_number(index: Any) -> bool:
    """Tell whether an index is one number."""
    return hasattr(index, "__index__") and not (hasattr(index, "ndim") and index.ndim)


def check_count(count: Any, call: str) -> None:
    """Refuse a number of objects that is not a whole number, of a method that is called `call`.

    Examples
    --------
    >>> check_count(2.5, "head")
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.WrongTypeError: head takes a number of objects, not 2.5
    """
    if not is_number(count):
        raise WrongTypeError(f"{call} takes a number of objects, not {_shown(count)}")


def checked_slice(index: slice, what: str) -> slice:
    """Return a slice of a sequence that is called `what`, if its ends and its step are whole numbers.

    Raises
    ------
    WrongTypeError
        If they are not.

    Examples
    --------
    >>> checked_slice(slice(None, -1), "the view")
    slice(None, -1, None)
    """
    for end in (index.start, index.stop, index.step):
        if end is not None and not is_number(end):
            raise WrongTypeError(f"positions in {what} are whole numbers, not {_shown(end)}")
    return index


def positions_of(index: Any, length: int, what: str) -> Positions:
    """Return the positions that an index picks from a sequence, in the order of the index; an index that
    :func:`is_number` is for the caller.

    Parameters
    ----------
    index
        A slice, a mask with a truth value for each item, or positions, of which negative ones count from the
        end. Masks and positions are an array of any library or a list.
    length
        Number of items.
    what
        Name of the sequence, for error texts.

    Raises
    ------
    IndexError
        If a position is out of range, or the mask has another length.
    WrongTypeError
        If the index is none of these.

    Examples
    --------
    >>> positions_of([True, False, True], 3, "the view"), positions_of([-1, 0], 3, "the view")
    (array([0, 2]), array([2, 0]))
    """
    if isinstance(index, slice):
        return np.arange(length)[checked_slice(index, what)]
    values = _numbers(index, what)
    if values.dtype == np.bool_:
        if len(values) != length:
            raise IndexError(
                f"a mask of {len(values)} values does not fit {what}, which has {length} objects"
            )
        return np.flatnonzero(values)
    wrong = np.flatnonzero((values < -length) | (values >= length))
    if wrong.size:
        raise IndexError(f"position {values[wrong[0]]} is out of range: {what} has {length} objects here")
    positions = values.astype(np.int64)
    return np.where(positions < 0, positions + length, positions)


def _numbers(index: Any, what: str) -> np.ndarray[Any, Any]:
    is_array = hasattr(index, "__len__") or hasattr(index, "__array__")
    if is_array and not isinstance(index, str | bytes | tuple | dict):
        try:
            values = np.asarray(index)
        except (TypeError, ValueError):  # Lists of different lengths, or missing values.
            values = np.empty((0, 0))
        if values.ndim == 1 and values.dtype.kind in "biu":
            return values
        if values.ndim == 1 and not values.size:  # NumPy makes real numbers of an empty list.
            return np.empty(0, np.int64)
    raise WrongTypeError(
        f"{what} takes a position, a slice, a mask of truth values, or several positions, not {_shown(index)}"
    )


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."

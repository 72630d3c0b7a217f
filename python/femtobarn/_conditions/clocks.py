"""The clocks of series: times and runs as the ``int64`` that are stored, and back.

The clock ``time`` counts nanoseconds since 1970 (UTC). The clock ``run`` has a run number in the upper, and a
luminosity block in the lower 32 bits. A validity is half-open, so :data:`FOREVER` is not a moment itself.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError

__all__ = ["BEGINNING", "FOREVER", "bound_of", "is_many", "moment_of", "moments_of", "shown"]

BEGINNING = -(2**63)
"""The first moment of every clock."""

FOREVER = 2**63 - 1
"""The end of a validity that has no end."""

RUN_BITS = 32
LUMI_MAX = 2**RUN_BITS - 1
RUN_MAX = 2**31 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FRACTION = re.compile(r"\.(\d{7,9})(?=[+\-Z]|$)")
"""The fraction of a second of a time in ISO 8601 that has more digits than a datetime can hold."""


def is_many(when: Any, clock: str) -> bool:
    """Tell whether an argument is many moments of a clock, and not one."""
    if isinstance(when, tuple):
        return clock == "time" or not all(isinstance(part, int | np.integer) for part in when)
    return isinstance(when, list | range) or getattr(when, "ndim", 0) > 0


def moment_of(value: Any, clock: str) -> int:
    """Return a moment as the integer that is stored.

    Parameters
    ----------
    value
        An integer as it is stored. For the clock ``time`` also a datetime or a text in ISO 8601, both with a
        time zone, or a `numpy.datetime64`, which is in UTC. For the clock ``run`` also a pair of a run number
        and a luminosity block.

    Raises
    ------
    InvalidError
        If the value is of another type, has no time zone, or is out of the clock's range, or if it is an
        ``int`` or of 32 bits, and looks like a run number: as it is stored, it would be a block of run 0.

    Examples
    --------
    >>> moment_of("2026-01-01T00:00:00Z", "time"), moment_of((7, 1), "run")
    (1767225600000000000, 30064771073)
    """
    if clock == "run":
        return _run_moment(value)
    if type(value) is int:
        return _checked(value, value)
    if isinstance(value, np.datetime64):
        return int(_nanoseconds(np.asarray([value]))[0])
    if isinstance(value, str):
        return _text_moment(value)
    if isinstance(value, datetime):
        return _checked(_datetime_moment(value), value)
    return _integer_moment(
        value, "an integer of nanoseconds, a datetime, or a text such as 2026-01-01T00:00:00Z"
    )


def bound_of(value: Any, clock: str) -> int:
    """Return an end of a range as the integer that is stored: as :func:`moment_of`, but any ``int`` is one.

    It is for ranges that are asked for with moments that were read, such as those of segments.

    Raises
    ------
    InvalidError
        As for :func:`moment_of`.
    """
    return _checked(value, value) if type(value) is int else moment_of(value, clock)


def moments_of(values: Any, clock: str) -> Values:
    """Return moments as an ``int64`` array.

    Parameters
    ----------
    values
        An array of integers as they are stored, for the clock ``run`` of 64 bits; for the clock ``time`` also
        of `numpy.datetime64`; for the clock ``run`` also a pair of arrays: run numbers and luminosity blocks.
        The items of a list may be everything that :func:`moment_of` takes.

    Raises
    ------
    InvalidError
        As for :func:`moment_of`.
    """
    if clock == "run" and isinstance(values, tuple) and len(values) == 2:
        return _run_moments(np.asarray(values[0]), np.asarray(values[1]))
    if clock == "run" and isinstance(values, range):
        values = list(values)
    if isinstance(values, Sequence) and not isinstance(values, str | range):
        return np.array([moment_of(value, clock) for value in values], np.int64)
    array = np.asarray(values)
    wanted = "of datetime64" if clock == "time" else "a pair of arrays: runs and luminosity blocks"
    if array.ndim != 1:
        raise InvalidError(
            f"many moments are a one-dimensional array of integers, or {wanted}; this array has {array.ndim} "
            "dimensions"
        )
    if array.dtype.kind == "M" and clock == "time":
        return _nanoseconds(array)
    if array.dtype.kind in "OU":
        return np.array([moment_of(value, clock) for value in array.tolist()], np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidError(
            f"many moments are an array of integers, or {wanted}; {array.dtype} cannot hold every moment"
        )
    if clock == "run" and array.dtype.itemsize < 8 and array.any():
        raise InvalidError(
            f"moments of the run clock have 64 bits, and these are of type {array.dtype}: give a pair of "
            "arrays, (runs, blocks), with blocks of 0 for the beginnings of runs"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > FOREVER:
        raise InvalidError(f"moment {int(array.max())} is out of range: the last one is {FOREVER}")
    return np.ascontiguousarray(array, np.int64)


def shown(moment: int, clock: str) -> str:
    """Return a moment as text.

    Examples
    --------
    >>> shown(1_767_225_600_000_000_000, "time"), shown(30064771073, "run"), shown(FOREVER, "time")
    ('2026-01-01T00:00:00Z', '7:1', 'forever')
    """
    if moment in (BEGINNING, FOREVER):
        return "beginning" if moment == BEGINNING else "forever"
    if clock == "run":
        return f"{moment >> RUN_BITS}:{moment & LUMI_MAX}"
    seconds, nanoseconds = divmod(moment, 10**9)
    try:
        text = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    except OverflowError:
        return f"{moment} ns"
    return text + (f".{nanoseconds:09}".rstrip("0") if nanoseconds else "") + "Z"


def _checked(moment: int, value: Any) -> int:
    if BEGINNING <= moment <= FOREVER:
        return moment
    raise InvalidError(f"moment {value} is out of range: the clock counts from {BEGINNING} to {FOREVER}")


def _integer_moment(value: Any, wanted: str) -> int:
    if isinstance(value, bool | np.bool_ | float | np.floating):
        raise InvalidError(f"{value!r} is not a moment: give {wanted}; a float cannot hold nanoseconds")
    try:
        return _checked(operator.index(value), value)
    except TypeError:
        raise InvalidError(f"{value!r} is not a moment: give {wanted}") from None


def _datetime_moment(value: datetime) -> int:
    if value.tzinfo is None:
        raise InvalidError(f"{value.isoformat()} has no time zone; add one, such as tzinfo=datetime.UTC")
    # A timestamp of pandas has nanoseconds as well.
    nanoseconds: int = getattr(value, "nanosecond", 0)
    return (value - EPOCH) // timedelta(microseconds=1) * 1000 + nanoseconds


def _text_moment(value: str) -> int:
    fraction = FRACTION.search(value)
    text = value[: fraction.start() + 7] + value[fraction.end() :] if fraction else value
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidError(
            f"{value!r} cannot be read as a time; write one such as 2026-01-01T00:00:00Z"
        ) from None
    if time.tzinfo is None:
        utc = time.isoformat() + "Z"
        raise InvalidError(f"{value!r} has no time zone; write {utc} if it is UTC")
    nanoseconds = int(fraction[1][6:].ljust(3, "0")) if fraction else 0
    return _checked(_datetime_moment(time) + nanoseconds, value)


def _nanoseconds(array: np.ndarray[Any, Any]) -> Values:
    if np.isnat(array).any():
        raise InvalidError("a moment is NaT, which is not a time")
    found = np.ascontiguousarray(array.astype("datetime64[ns]"))
    if (found.astype(array.dtype) != array).any():
        raise InvalidError("a moment does not fit into 64 bits of nanoseconds since 1970: years 1678 to 2262")
    return found.view(np.int64)


def _run_moment(value: Any) -> int:
    if not isinstance(value, tuple | list):
        moment = _integer_moment(value, "a pair of a run and a luminosity block, or their packed integer")
        is_short = isinstance(value, int) or getattr(getattr(value, "dtype", None), "itemsize", 8) < 8
        if is_short and 0 < moment <= LUMI_MAX:
            raise InvalidError(
                f"{moment} as an integer is block {moment} of run 0: write ({moment}, 0) for the beginning "
                f"of run {moment}, or (0, {moment}) for that block"
            )
        return moment
    try:
        run, block = (operator.index(part) for part in value)
    except (TypeError, ValueError):
        raise InvalidError(
            f"{value!r} is not a moment: give a pair of a run and a luminosity block"
        ) from None
    if not (0 <= run <= RUN_MAX and 0 <= block <= LUMI_MAX):
        raise InvalidError(
            f"run {run}, luminosity block {block} is out of range: runs go to {RUN_MAX}, blocks to {LUMI_MAX}"
        )
    return run << RUN_BITS | block


def _run_moments(runs: np.ndarray[Any, Any], blocks: np.ndarray[Any, Any]) -> Values:
    if (
        runs.dtype.kind not in "iu"
        or blocks.dtype.kind not in "iu"
        or runs.shape != blocks.shape
        or runs.ndim != 1
    ):
        raise InvalidError(
            "runs and luminosity blocks must be arrays of integers of the same length; they have the shapes "
            f"{runs.shape} and {blocks.shape} and the types {runs.dtype} and {blocks.dtype}"
        )
    if runs.size and (
        min(runs.min(), blocks.min()) < 0 or int(runs.max()) > RUN_MAX or int(blocks.max()) > LUMI_MAX
    ):
        raise InvalidError(
            f"a run or luminosity block is out of range: runs go to {RUN_MAX}, blocks to {LUMI_MAX}"
        )
    moments: Values = runs.astype(np.int64) << RUN_BITS | blocks.astype(np.int64)
    return moments

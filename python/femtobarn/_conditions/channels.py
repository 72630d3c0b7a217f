"""Channels of series: integers of 64 bits that distinguish sectors, crates or wires."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError

__all__ = ["channel_of", "channels_of"]

CHANNEL_MIN, CHANNEL_MAX = -(2**63), 2**63 - 1


def channel_of(value: Any) -> int:
    """Return a channel as a Python integer.

    Raises
    ------
    InvalidError
        If the value is not an integer of 64 bits.

    Examples
    --------
    >>> import numpy as np
    >>> channel_of(np.uint8(7))
    7
    """
    try:
        channel = operator.index(value)
    except TypeError:
        channel = CHANNEL_MAX + 1
    if not CHANNEL_MIN <= channel <= CHANNEL_MAX:
        raise InvalidError(f"{value!r} is not a channel: give an integer of 64 bits")
    return channel


def channels_of(values: Any, count: int) -> Values:
    """Return channels as an ``int64`` array: those of an array, or one channel `count` times.

    Raises
    ------
    InvalidError
        If a value is not an integer of 64 bits, or the array does not have `count` items.
    """
    if np.ndim(values) == 0:
        return np.full(count, channel_of(values), np.int64)
    channels = np.asarray(values)
    if channels.size == 0:
        channels = channels.astype(np.int64)
    if channels.dtype.kind not in "iu" or (channels.size and int(channels.max()) > CHANNEL_MAX):
        raise InvalidError(f"channels must be integers of 64 bits, not {channels.dtype}")
    if channels.shape != (count,):
        raise InvalidError(f"give one channel, or one for each of {count}; there are {channels.size}")
    return np.ascontiguousarray(channels, np.int64)

"""Sizes in bytes as users write them, such as ``"64 MB"`` or ``"1 MiB"``."""

from __future__ import annotations

import re

from ._exceptions import InvalidError, WrongTypeError

__all__ = ["bytes_of_size"]

UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
SIZE_END = 2.0**64


def bytes_of_size(text: str) -> int:
    """Return a size such as ``"64 MB"`` or ``"1 MiB"`` as a number of bytes.

    Examples
    --------
    >>> bytes_of_size("64 MB"), bytes_of_size("1 MiB"), bytes_of_size("500 kB")
    (64000000, 1048576, 500000)
    """
    if not isinstance(text, str):
        raise WrongTypeError(f'{text!r} is not a size; write one such as "64 MB"')
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmgt]i?|)b?\s*", text.lower())
    if match is None:
        raise InvalidError(f'{text!r} cannot be read as a size; write one such as "64 MB"')
    size = float(match[1]) * UNITS[match[2]]
    if not 1 <= size < SIZE_END:
        raise InvalidError(f"invalid size {text!r}: must be 1 byte or more, and less than 16 EiB")
    return int(size)

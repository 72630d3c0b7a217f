"""Checksums of payloads; the length of the text determines the algorithm."""

from __future__ import annotations

import hashlib
import re

from .._exceptions import CorruptError

__all__ = ["check_sum"]

ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}
"""Algorithms by the number of hexadecimal digits."""


def check_sum(data: bytes, wanted: str, place: str) -> None:
    """Refuse bytes that do not have a checksum.

    Parameters
    ----------
    wanted
        MD5, SHA-1 or SHA-256 in hexadecimal, or a text such as ``sha256:...``.
    place
        The file or the row that the bytes are in, for the error.

    Raises
    ------
    CorruptError
        If the checksum differs, or is none of these.
    """
    digits = re.sub(r"^(md5|sha1|sha256):", "", wanted.strip().lower())
    algorithm = ALGORITHMS.get(len(digits))
    if algorithm is None or not re.fullmatch(r"[0-9a-f]+", digits):
        raise CorruptError(f"{place}: {wanted!r} is neither an MD5 nor a SHA-1 nor a SHA-256")
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if found != digits:
        raise CorruptError(
            f"{place} is damaged: its {algorithm.upper()} is {found}, and should be {digits}; fetch it again"
        )

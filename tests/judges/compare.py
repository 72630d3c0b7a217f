"""Compares values in the format of tests/judges/README.md, and finds their differences.

Floating-point numbers are equal if they have the same value and sign. A reader may print a number of single
precision with its shortest digits (0.1 for 0.10000000149), which is equal if it rounds to that number.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = Any
ABSENT = object()


def lines(path: Path) -> list[Json]:
    """The entries of a dump."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def differences(expected: list[Json], actual: list[Json], lossy: dict[str, float] | None = None) -> list[str]:
    """The differences of two dumps, as texts; fields in `lossy` may differ by their relative error there."""
    found: list[str] = []
    if len(expected) != len(actual):
        found.append(f"{len(expected)} entries expected, {len(actual)} found")
    for entry, (left, right) in enumerate(zip(expected, actual, strict=False)):
        for name in sorted({*left, *right}):
            place = f"entry {entry}, {name}"
            tolerance = (lossy or {}).get(name)
            same = exactly if tolerance is None else nearly(tolerance)
            found += compare(place, left.get(name, ABSENT), right.get(name, ABSENT), same)
    return found


def compare(place: str, left: Json, right: Json, same: Callable[[float, float], bool]) -> Iterator[str]:
    """The differences of two values."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from compare(f"{place}.{key}", left.get(key, ABSENT), right.get(key, ABSENT), same)
    elif isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            yield f"{place}: {len(left)} items expected, {len(right)} found"
        for index, pair in enumerate(zip(left, right, strict=False)):
            yield from compare(f"{place}[{index}]", *pair, same)
    elif not same_leaf(left, right, same):
        yield f"{place}: {shown(left)} expected, {shown(right)} found"


def same_leaf(left: Json, right: Json, same: Callable[[float, float], bool]) -> bool:
    """Whether two scalar values are equal."""
    if isinstance(left, float) or (isinstance(right, float) and isinstance(left, int)):
        return (
            isinstance(right, int | float) and not isinstance(right, bool) and same(float(left), float(right))
        )
    return type(left) is type(right) and bool(left == right)


def exactly(left: float, right: float) -> bool:
    """Whether two numbers have the same value and sign, or round to the same number of single precision."""
    if left == right:
        return math.copysign(1, left) == math.copysign(1, right)
    return single(left) == left and single(right) == left


def nearly(tolerance: float) -> Callable[[float, float], bool]:
    """Whether two numbers are equal within a relative tolerance, which is absolute below one."""
    return lambda left, right: abs(left - right) <= tolerance * max(1.0, abs(left))


def single(value: float) -> float:
    """The nearest number of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def plain(value: Json) -> Json:
    """A Python value in the format of dumps, with NaN and infinities as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def shown(value: Json) -> str:
    """A short text of the value."""
    text = "nothing" if value is ABSENT else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Sums over a file that tell whether a reader returns the written values.

A path such as `Muon.pt` has `[count of finite numbers, their sum, sum of their magnitudes]`; text and bytes
count as numbers. A path followed by `#`, of lists and of text, has `[count, sum of sizes, sum of their
squares]`, which reveals wrong list boundaries even if no number is lost. Missing values are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Sums = dict[str, list[float]]
# Readers add in different orders, and print single precision with its shortest digits.
TOLERANCE = 1e-6


def of_layout(layout: Any, path: str = "", found: Sums | None = None) -> Sums:
    """The sums of an awkward layout, without variants, whose layout differs between readers."""
    found = {} if found is None else found
    if layout.is_union or layout.is_unknown:
        return found
    if layout.is_option or layout.is_indexed:
        return of_layout(layout.project(), path, found)
    if layout.is_record:
        for name in layout.fields:
            of_layout(layout.content(name)[: len(layout)], below(path, name), found)
        return found
    if layout.is_regular:
        return of_layout(layout.content[: len(layout) * layout.size], path, found)
    if layout.is_list:
        layout = layout.to_ListOffsetArray64(start_at_zero=True)
        offsets = np.asarray(layout.offsets)
        put(found, f"{path}#", np.diff(offsets), squares=True)
        return of_layout(layout.content[: offsets[-1]], path, found)
    put(found, path, np.asarray(layout.data))
    return found


def below(path: str, name: str) -> str:
    """The path of a member."""
    return f"{path}.{name}" if path else name


def put(found: Sums, path: str, values: Any, *, squares: bool = False) -> None:
    """Add the sums of a column; all levels of nested lists have the same path."""
    values = values.astype(np.float64)
    values = values[np.isfinite(values)]
    magnitudes = values**2 if squares else np.abs(values)
    new = [len(values), float(values.sum()), float(magnitudes.sum())]
    found[path] = [a + b for a, b in zip(found.get(path, [0, 0.0, 0.0]), new, strict=True)]


def differences(expected: Sums, actual: Sums) -> list[str]:
    """The columns whose sums differ or are missing; columns without any value may be missing."""
    wrong = []
    for path, sums in expected.items():
        other = actual.get(path, [0, 0.0, 0.0])
        near = (abs(a - b) <= TOLERANCE * max(1.0, sums[2]) for a, b in zip(sums, other, strict=True))
        if sums[0] != other[0] or not all(near):
            wrong.append(f"{path}: {sums} expected, {actual.get(path, 'nothing')} found")
    return wrong

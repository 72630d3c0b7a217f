"""Labels beside lines and points, placed so that they cover neither one another nor the data.

Positions are fractions of a panel's width and height; the size of a text is estimated from its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from femtobarn_reports.style import GREY, INK

__all__ = ["BEHIND_TEXT", "Ending", "Labels", "label_ends", "spread"]

LINE_INCHES = 0.155
"""Height of a line of text."""

LETTER_INCHES = 0.073
"""Mean width of a letter."""

PLACES = tuple((side, lines) for lines in (-1, 1, 0, -2.4, 2.4, -4, 4) for side in (-1, 1))
"""Candidate positions of a point's label, best first: left or right, and lines below or above."""

BEHIND_TEXT: Any = {"facecolor": "white", "alpha": 0.8, "pad": 0.8, "linewidth": 0}


@dataclass(frozen=True)
class Ending:
    """The end of a line that is to be labelled."""

    place: float
    """Fraction of the panel's height."""
    text: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[Ending], inches: float) -> None:
    """Label lines beside their ends, at the right edge of a panel of this height."""
    ordered = sorted(ends, key=lambda end: end.place)
    line = LINE_INCHES / inches
    sizes = [line * (end.text.count("\n") + 1.4) for end in ordered]
    for place, end in zip(spread([end.place for end in ordered], sizes), ordered, strict=True):
        axes.annotate(
            end.text, (1.0, place), (8, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", color=end.colour, fontsize=9.5, linespacing=1.15, annotation_clip=False,
        )  # fmt: skip


def spread(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move ascending positions apart as little as possible, so that labels of these sizes do not overlap.

    Examples
    --------
    >>> [round(place, 9) for place in spread([0.5, 0.5, 0.9], [0.2, 0.2, 0.1])]
    [0.4, 0.6, 0.9]
    >>> [round(place, 9) for place in spread([0.98, 1.0], [0.2, 0.2])]
    [0.7, 0.9]
    """
    groups: list[tuple[list[float], list[float]]] = []
    for place, size in zip(places, sizes, strict=True):
        groups.append(([place], [size]))
        while len(groups) > 1 and _centre(*groups[-2]) + sum(groups[-2][1]) / 2 > _bottom(*groups[-1]):
            later = groups.pop()
            groups[-1] = (groups[-1][0] + later[0], groups[-1][1] + later[1])
    found: list[float] = []
    for wanted, high in groups:
        floor = _bottom(wanted, high)
        for size in high:
            found.append(floor + size / 2)
            floor += size
    return found


def _centre(places: list[float], sizes: list[float]) -> float:
    """The centre of a group of touching labels, nearest to their wanted positions, and inside the panel."""
    half, floor, middles = sum(sizes) / 2, 0.0, []
    for place, size in zip(places, sizes, strict=True):
        middles.append(place - (floor + size / 2) + half)
        floor += size
    return min(max(sum(middles) / len(middles), min(half, 0.5)), max(1.0 - half, 0.5))


def _bottom(places: list[float], sizes: list[float]) -> float:
    return _centre(places, sizes) - sum(sizes) / 2


class Labels:
    """The labels of points in one panel, kept off the data drawn there.

    Parameters
    ----------
    width, height
        Of the panel (inches).
    """

    def __init__(self, axes: Axes, width: float, height: float) -> None:
        self._axes = axes
        self._size = np.array([width, height])
        self._taken: list[Any] = []

    def keep_off(self, x: Any, y: Any) -> None:
        """Keep later labels off this line (data coordinates)."""
        steps = np.linspace(0, len(x) - 1, 300)
        x, y = np.interp(steps, range(len(x)), x), np.interp(steps, range(len(y)), y)
        self._taken.append(np.stack([self._fraction(x, 0), self._fraction(y, 1)], axis=1) * self._size)

    def _fraction(self, values: Any, axis: int) -> Any:
        low, high = self._axes.get_ylim() if axis else self._axes.get_xlim()
        return (np.asarray(values, float) - low) / (high - low)

    def name(self, x: float, y: float, text: str) -> None:
        """Write a text beside a point, at the candidate position that covers least."""
        at = np.array([self._fraction(x, 0), self._fraction(y, 1)]) * self._size
        boxes = [self._box(at, text, *place) for place in PLACES]
        far = [2 * abs(lines) for _, lines in PLACES]
        costs = [self._cost(*box) + distance for box, distance in zip(boxes, far, strict=True)]
        best = min(range(len(PLACES)), key=costs.__getitem__)
        low, high = boxes[best]
        # Later labels are kept off this one.
        self._taken.append(
            np.array([[i, j] for i in np.linspace(low[0], high[0], 20) for j in (low[1], high[1])])
        )
        self._write(x, y, text, *PLACES[best])

    def _write(self, x: float, y: float, text: str, side: float, lines: float) -> None:
        leader = {"arrowstyle": "-", "color": GREY, "linewidth": 0.8} if abs(lines) > 2 else None
        self._axes.annotate(
            text, (x, y), (9 * side, 11 * lines), textcoords="offset points", va="center", fontsize=9,
            ha="left" if side > 0 else "right", color=INK, zorder=7, bbox=BEHIND_TEXT,
            arrowprops=leader,
        )  # fmt: skip

    def _box(self, at: Any, text: str, side: float, lines: float) -> tuple[Any, Any]:
        """Lower and upper corner of a label (inches)."""
        width, middle = LETTER_INCHES * len(text), at[1] + lines * 11 / 72
        left = at[0] + 9 / 72 if side > 0 else at[0] - 9 / 72 - width
        return np.array([left, middle - LINE_INCHES / 2]), np.array([left + width, middle + LINE_INCHES / 2])

    def _cost(self, low: Any, high: Any) -> float:
        """The cost of a position: the dots under the label, and the inches outside the panel."""
        under = sum(int(((low <= dots) & (dots <= high)).all(axis=1).sum()) for dots in self._taken)
        outside = float(np.maximum(-low, 0).sum() + np.maximum(high - self._size, 0).sum())
        return under + 1000 * outside

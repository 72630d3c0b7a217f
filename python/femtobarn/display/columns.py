"""The members of the items of a collection as columns, and the positions and momenta that they make.

Members of records in items have dotted names: ``momentum.x``. Numbers are found by the names that
experiments give them, whatever their case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

from .._schema.meanings import TIMES
from .._schema.types import ElementLink, Link, Node, Optional, Primitive, Record, Reduced, String, innermost

__all__ = ["Columns", "Numbers", "flat_values", "shown_value"]

Numbers = npt.NDArray[np.float64]

SHOWN_ITEMS = 6
"""Items of a list of numbers that a table shows."""

INTEGER_MAX = 2**53
"""Largest integer of JavaScript; larger ones are shown as texts."""

DIGITS = 6
"""Significant digits of numbers in a scene: more than a picture or a table shows."""


class _LazyNumbers(Mapping[str, Numbers]):
    """Members as numbers, each made when it is asked for: an event has thousands, few of which are drawn."""

    def __init__(self, stored: dict[str, ak.Array]) -> None:
        self.stored = stored
        self.made: dict[str, Numbers] = {}

    def __getitem__(self, path: str) -> Numbers:
        if path not in self.made:
            self.made[path] = _as_numbers(self.stored[path])
        return self.made[path]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.stored, *self.made)))

    def __len__(self) -> int:
        return len({*self.stored, *self.made})


class Columns:
    """The members of all items of one collection.

    Parameters
    ----------
    items
        An array of records.
    node
        The class of the records.
    """

    def __init__(self, items: ak.Array, node: Record) -> None:
        self.count = len(items)
        self.leaves: dict[str, tuple[Node, ak.Array]] = dict(_leaves(items, node))
        """Type and values of each member that is not a record, by its dotted name."""
        self.numbers = _LazyNumbers(
            {path: values for path, (leaf, values) in self.leaves.items() if _is_number(leaf)}
        )
        """The members that are numbers; NaN where they are missing."""
        self._by_lower = {path.lower(): path for path in reversed(self.numbers.stored)}

    def add(self, computed: dict[str, Numbers]) -> None:
        """Add members that are computed of others; tables do not show them."""
        self.numbers.made.update(computed)
        self._by_lower.update({name.lower(): name for name in computed})

    def number(self, *names: str) -> Numbers | None:
        """Return the first member of these names, or None."""
        found = (self._by_lower.get(name) for name in names)
        return next((self.numbers[name] for name in found if name is not None), None)

    def triple(self, *prefixes: str) -> tuple[Numbers, Numbers, Numbers] | None:
        """Return x, y and z of the first record that has all of them; an empty prefix is the item itself."""
        for prefix in prefixes:
            x, y, z = (self.number(f"{prefix}{axis}") for axis in "xyz")
            if x is not None and y is not None and z is not None:
                return x, y, z
        return None

    def momentum(self) -> tuple[Numbers, Numbers, Numbers] | None:
        """Return transverse momenta, azimuths and pseudorapidities; None if they are not known."""
        eta, phi = self.number("eta"), self.number("phi")
        if eta is not None and phi is not None:
            pt = self.number("pt", "et")
            energy = self.number("energy", "e")
            if pt is None and energy is not None:
                pt = energy / np.cosh(eta)
            return None if pt is None else (pt, phi, eta)
        vector = self.triple("p", "momentum.", "p4.")
        return None if vector is None else _polar(*vector)

    def across(self) -> tuple[Numbers, Numbers] | None:
        """Return transverse momenta and azimuths of items without a momentum along the beam."""
        for size, angle in (("pt", "phi"), ("met", "met_phi"), ("met", "phi")):
            pt, phi = self.number(size), self.number(angle)
            if pt is not None and phi is not None:
                return pt, phi
        vector = self.triple("p", "momentum.")
        return None if vector is None else _polar(*vector)[:2]

    def position(self) -> tuple[Numbers, Numbers, Numbers] | None:
        """Return positions in the unit of the model; one that is known along the beam alone lies on it."""
        found = self.triple("", "position.", "vertex.", "pos.")
        z = self.number("z")
        if found is None and z is not None and self.momentum() is None:
            return np.zeros(self.count), np.zeros(self.count), z
        return found

    def table(self) -> dict[str, list[Any]]:
        """Return the columns of a table of members, without links, in the order of the class."""
        return {
            path: [shown_value(value) for value in (values if _is_time(leaf) else values.to_list())]
            for path, (leaf, values) in self.leaves.items()
            if not isinstance(innermost(leaf), Link | ElementLink)
        }


def flat_values(values: ak.Array) -> tuple[npt.NDArray[np.int64], ak.Array]:
    """Return the values of all items without missing ones, and the item of each.

    Examples
    --------
    >>> items, values = flat_values(ak.Array([[7, 8], [], [9]]))
    >>> items.tolist(), values.to_list()
    ([0, 0, 2], [7, 8, 9])
    """
    items = np.arange(len(values))
    if values.ndim > 1:
        items, values = np.repeat(items, ak.to_numpy(ak.num(values))), ak.flatten(values)
    is_there = ~ak.to_numpy(ak.is_none(values))
    return items[is_there], ak.drop_none(values)


def shown_value(value: Any) -> Any:
    """Return a value for a table and for JSON, which has no NaN: short lists as they are, long ones cut.

    Examples
    --------
    >>> shown_value(1 / 3), shown_value(float("nan")), shown_value([1, 2]), shown_value(list(range(9)))
    (0.333333, 'nan', '1, 2', '0, 1, 2, 3, 4, 5, ... (9)')
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        shown = ", ".join(str(shown_value(each)) for each in value[:SHOWN_ITEMS])
        return shown if len(value) <= SHOWN_ITEMS else f"{shown}, ... ({len(value)})"
    if isinstance(value, dict):
        return ", ".join(f"{name}={shown_value(each)}" for name, each in value.items())
    return str(value)


def _leaves(items: ak.Array, node: Record, prefix: str = "") -> Iterator[tuple[str, tuple[Node, ak.Array]]]:
    for field in node.fields:
        if isinstance(field.type, Record) and not field.type.is_tuple:
            yield from _leaves(items[field.name], field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, (field.type, items[field.name])


def _is_number(node: Node) -> bool:
    inner = node.item if isinstance(node, Optional) else node
    return isinstance(inner, Primitive | Reduced) and not isinstance(inner, String)


def _is_time(node: Node) -> bool:
    """Whether values are times, which awkward lists as numbers."""
    inner = node.item if isinstance(node, Optional) else node
    return isinstance(inner, Primitive) and inner.meaning is not None and inner.meaning.kind in TIMES


def _as_numbers(values: ak.Array) -> Numbers:
    return np.asarray(ak.to_numpy(ak.fill_none(values, np.nan, axis=0)), np.float64)


def _polar(x: Numbers, y: Numbers, z: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return transverse momenta, azimuths and pseudorapidities; NaN along the beam."""
    pt = np.hypot(x, y)
    with np.errstate(divide="ignore", invalid="ignore"):
        return pt, np.arctan2(y, x), np.arcsinh(z / np.where(pt > 0, pt, np.nan))

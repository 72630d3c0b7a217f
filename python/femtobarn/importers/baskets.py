"""Branches of plain numbers, whose baskets are read without uproot.

A NanoAOD has 1,500 branches of numbers and lists of numbers, with a basket for every few thousand entries
of each. The extension module reads many at once, by several threads and without holding the interpreter;
a basket that is not as ROOT usually writes it, or damaged, is left to uproot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import uproot
from awkward.contents import Content

from femtobarn._femtobarn import read_branches

__all__ = ["Baskets", "Numbers", "read"]


@dataclass(frozen=True)
class Numbers:
    """What entries of a branch hold: numbers of one type or arrays of a fixed shape, or lists of either.

    Parameters
    ----------
    dtype
        The type of a number, in the byte order of this machine.
    """

    is_list: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, branch: Any) -> Numbers | None:
        """What a branch holds, if it is that."""
        try:
            interpretation = branch.interpretation
        except Exception:
            return None
        is_list = type(interpretation) is uproot.AsJagged and interpretation.header_bytes == 0
        content = interpretation.content if is_list else interpretation
        if type(content) is not uproot.AsDtype or content.to_dtype.names is not None:
            return None
        stored, wanted = content.from_dtype, content.to_dtype
        if stored.shape != wanted.shape or stored.base.newbyteorder("=") != wanted.base:
            return None
        return cls(is_list, wanted.base, wanted.shape)

    def layout(self, values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> Content:
        """The layout of some entries, from all their numbers in a row."""
        content = ak.contents.NumpyArray(values)
        length = len(values)
        for size in reversed(self.shape):
            length //= size
            content = ak.contents.RegularArray(content, size, length)
        return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content) if self.is_list else content


@dataclass(frozen=True)
class Baskets:
    """Where a branch of plain numbers lies: all that is needed to read it.

    Parameters
    ----------
    places
        Where the keys of the baskets begin in the file.
    edges
        The first entry of each basket, and the one after the last.
    """

    numbers: Numbers
    places: np.ndarray[Any, Any]
    edges: np.ndarray[Any, Any]

    @classmethod
    def of(cls, branch: Any) -> Baskets | None:
        """The baskets of a branch, if it is one of plain numbers."""
        numbers = Numbers.of(branch)
        try:
            if numbers is None or 0 in numbers.shape or branch.embedded_baskets:
                return None
            edges = np.array(branch.entry_offsets, np.int64)
        except Exception:
            return None  # The branch is damaged: what of it, uproot says when it reads.
        return cls(numbers, np.array(branch.member("fBasketSeek")[: len(edges) - 1], np.int64), edges)


def read(
    data: memoryview, wanted: Mapping[int, Baskets], start: int, stop: int, *, threads: int
) -> dict[int, Content]:
    """Entries ``start:stop`` of branches, by the same numbers; those that uproot has to read are left out.

    Parameters
    ----------
    data
        The bytes of the file.
    """
    branches = [
        (
            each.numbers.is_list,
            int(np.prod(each.numbers.shape, dtype=np.int64)),
            each.numbers.dtype.itemsize,
            each.places.view(np.uint8).data,
            each.edges.view(np.uint8).data,
        )
        for each in wanted.values()
    ]
    layouts = {}
    found = read_branches(data, branches, start, stop, threads)
    for (number, each), buffers in zip(wanted.items(), found, strict=True):
        if buffers is not None:
            values, offsets = buffers
            numbers = np.frombuffer(memoryview(values), each.numbers.dtype)
            layouts[number] = each.numbers.layout(numbers, np.frombuffer(memoryview(offsets), np.int64))
    return layouts

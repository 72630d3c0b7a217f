"""Branches of plain numbers, whose baskets are read without uproot.

A NanoAOD file has 1,500 branches of numbers and of lists of numbers, each with a basket for every few
thousand entries. The extension module reads many branches at once, in several threads and without the GIL.
uproot reads the branches with baskets in an unusual form, and reports damaged ones.
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
    """The entries of a branch: numbers of one type, or arrays of one shape, or lists of either.

    Parameters
    ----------
    dtype
        Type of a number, in native byte order.
    """

    is_list: bool
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, branch: Any) -> Numbers | None:
        """Return the form of the entries of a branch, or None if it has other entries."""
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
        """Return the layout of entries, from their numbers and, for lists, offsets (shape (entries + 1,))."""
        content = ak.contents.NumpyArray(values)
        length = len(values)
        for size in reversed(self.shape):
            length //= size
            content = ak.contents.RegularArray(content, size, length)
        return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content) if self.is_list else content


@dataclass(frozen=True)
class Baskets:
    """The position of a branch of plain numbers in its file.

    Parameters
    ----------
    places
        Offsets in the file at which the keys of the baskets begin: shape (baskets,).
    edges
        First entry of each basket, and the number of entries: shape (baskets + 1,).
    """

    numbers: Numbers
    places: np.ndarray[Any, Any]
    edges: np.ndarray[Any, Any]

    @classmethod
    def of(cls, branch: Any) -> Baskets | None:
        """Return the baskets of a branch, or None if it is not one of plain numbers."""
        numbers = Numbers.of(branch)
        try:
            if numbers is None or 0 in numbers.shape or branch.embedded_baskets:
                return None
            edges = np.array(branch.entry_offsets, np.int64)
        except Exception:
            return None  # The branch is damaged; uproot reports how when it reads it.
        return cls(numbers, np.array(branch.member("fBasketSeek")[: len(edges) - 1], np.int64), edges)


def read(
    data: memoryview, wanted: Mapping[int, Baskets], start: int, stop: int, *, threads: int
) -> dict[int, Content]:
    """Return entries ``start:stop`` of branches, by the keys of `wanted`, without those that uproot has to
    read.

    Parameters
    ----------
    data
        The bytes of the file.
    threads
        Threads that read.
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

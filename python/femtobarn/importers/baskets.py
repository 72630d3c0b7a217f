"""Baskets of plain numbers, read from the bytes of a file.

A NanoAOD has 1,500 branches of numbers and lists of numbers, with a basket for every few thousand entries
of each. uproot takes 0.15 ms for a basket, ten times as long as decompressing it. Here is the short way for
what is as ROOT usually writes it; whatever else is found, damage too, is left to uproot.

A basket is a key, at whose end stand the fields of TBasket, and data: numbers, and for lists the places
where entries begin, counted from the beginning of the key. See ROOT's TKey, TBasket and RZip.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np
import uproot
import xxhash
from awkward.contents import Content

__all__ = ["Baskets", "Numbers"]

KEY = struct.Struct(">ihiIhh")
"""fNbytes, fVersion, fObjlen, fDatime, fKeylen, fCycle."""

BASKET = struct.Struct(">hiiiib")
"""fVersion, fBufferSize, fNevBufSize, fNevBuf, fLast, and whether there are offsets."""

BLOCK_HEADER = 9
"""Two letters for the algorithm, one byte for its version, and two sizes of three bytes."""

CHECKSUM = 8
"""Bytes of the XXH64 before a block of LZ4."""

DECOMPRESSORS = {b"ZL": uproot.ZLIB(1), b"XZ": uproot.LZMA(1), b"L4": uproot.LZ4(1), b"ZS": uproot.ZSTD(1)}


class _Unusual(Exception):
    """A basket is not as ROOT usually writes it."""


@dataclass(frozen=True)
class Numbers:
    """What entries of a branch hold: numbers of one type, or lists of them."""

    is_list: bool
    stored: np.dtype[Any]
    dtype: np.dtype[Any]

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
        return cls(is_list, content.from_dtype, content.to_dtype)

    def layout(self, values: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> Content:
        """The layout of some entries."""
        content = ak.contents.NumpyArray(values)
        return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content) if self.is_list else content


@dataclass(frozen=True)
class Baskets:
    """Where a branch of plain numbers lies: all that is needed to read it, without uproot.

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
            if numbers is None or branch.embedded_baskets:
                return None
            edges = np.array(branch.entry_offsets, np.int64)
        except Exception:
            return None  # The branch is damaged: what of it, uproot says when it reads.
        return cls(numbers, np.array(branch.member("fBasketSeek")[: len(edges) - 1], np.int64), edges)

    def read(self, data: memoryview, start: int, stop: int) -> Content | None:
        """Entries ``start:stop``; none if uproot has to read them.

        Parameters
        ----------
        data
            The bytes of the file.
        """
        try:
            baskets = list(self._wanted(data, start, stop))
            if self.numbers.is_list:
                return _lists(baskets, self.numbers)
            return _plain(baskets, self.numbers, stop - start)
        except Exception:
            return None

    def _wanted(self, data: memoryview, start: int, stop: int) -> Iterator[_Basket]:
        first = int(np.searchsorted(self.edges, start, "right")) - 1
        for number in range(first, int(np.searchsorted(self.edges, stop))):
            low, high = int(self.edges[number]), int(self.edges[number + 1])
            wanted = max(start, low) - low, min(stop, high) - low
            yield _basket(data, int(self.places[number]), high - low, *wanted)


@dataclass(frozen=True)
class _Basket:
    """The data of a basket, and which of its entries are wanted."""

    data: Any
    border: int
    key_bytes: int
    entries: int
    first: int
    last: int


def _basket(data: memoryview, place: int, entries: int, first: int, last: int) -> _Basket:
    key_and_stored, _, size, _, key_bytes, _ = KEY.unpack_from(data, place)
    *_, found, end, _ = BASKET.unpack_from(data, place + key_bytes - BASKET.size)
    border = end - key_bytes
    stored = data[place + key_bytes : place + key_and_stored]
    if found != entries or not 0 <= border <= size or len(stored) != key_and_stored - key_bytes:
        raise _Unusual
    plain = stored if len(stored) == size else _decompressed(stored, size)
    return _Basket(plain, border, key_bytes, entries, first, last)


def _decompressed(stored: memoryview, size: int) -> bytes:
    parts, place, done = [], 0, 0
    while done < size:
        algorithm = bytes(stored[place : place + 2])
        packed = int.from_bytes(stored[place + 3 : place + 6], "little")
        unpacked = int.from_bytes(stored[place + 6 : place + BLOCK_HEADER], "little")
        place += BLOCK_HEADER
        block = stored[place : place + packed]
        place += packed
        if algorithm == b"L4":
            checksum, block = block[:CHECKSUM], block[CHECKSUM:]
            if xxhash.xxh64_digest(block) != checksum:
                raise _Unusual
        part = DECOMPRESSORS[algorithm].decompress(block, unpacked)
        if len(part) != unpacked or unpacked == 0:
            raise _Unusual
        parts.append(part)
        done += unpacked
    if done != size:
        raise _Unusual
    return bytes(parts[0]) if len(parts) == 1 else b"".join(map(bytes, parts))


def _plain(baskets: list[_Basket], numbers: Numbers, entries: int) -> Content:
    """Numbers, or arrays of a fixed size of them."""
    values, done = np.empty(entries, numbers.dtype), 0
    for basket in baskets:
        if basket.border != basket.entries * numbers.stored.itemsize:
            raise _Unusual
        found = np.frombuffer(basket.data, numbers.stored, basket.entries)[basket.first : basket.last]
        values[done : done + len(found)] = found
        done += len(found)
    if done != entries:
        raise _Unusual
    return numbers.layout(values, np.empty(0, np.int64))


def _lists(baskets: list[_Basket], numbers: Numbers) -> Content:
    offsets: list[np.ndarray[Any, Any]] = [np.zeros(1, np.int64)]
    values: list[np.ndarray[Any, Any]] = [np.empty(0, numbers.dtype)]
    total, itemsize = 0, numbers.stored.itemsize
    for basket in baskets:
        places = _places(basket, itemsize)
        wanted = places[basket.first : basket.last + 1]
        found = np.frombuffer(basket.data, numbers.stored, basket.border // itemsize)
        values.append(found[wanted[0] : wanted[-1]])
        offsets.append(wanted[1:] - wanted[0] + total)
        total += int(wanted[-1] - wanted[0])
    joined = np.concatenate(values, dtype=numbers.dtype.base)
    return numbers.layout(joined, np.concatenate(offsets))


def _places(basket: _Basket, itemsize: int) -> np.ndarray[Any, Any]:
    """Where the entries of a basket begin among its items, and where the last one ends."""
    stored = np.frombuffer(basket.data, ">i4", offset=basket.border)
    if len(stored) != basket.entries + 2:
        raise _Unusual
    places = stored[1:].astype(np.int64) - basket.key_bytes
    places[-1] = basket.border
    items, rest = np.divmod(places, itemsize)
    if places[0] != 0 or rest.any() or (np.diff(places) < 0).any():
        raise _Unusual
    return items

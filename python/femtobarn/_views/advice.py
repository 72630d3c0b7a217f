"""Advice on the compression of a container: the space that its fields would need, and their reading speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._femtobarn import packed_fields
from .._sizes import bytes_of_size

if TYPE_CHECKING:
    from .._femtobarn import ViewHandle

__all__ = ["Advice", "FieldAdvice", "Packed", "advice_of"]

COMPRESSIONS = ("none", "lz4", "zstd")
"""Compressions of a new container, in the order of the engine."""


@dataclass(frozen=True)
class Packed:
    """The space and the time that a field would need with one compression."""

    stored: float
    """Bytes on disk."""
    seconds: float
    """Seconds of one core to unpack all of it."""


@dataclass(frozen=True)
class FieldAdvice:
    """The measurements of a field, by a sample of its values."""

    path: str
    """The dotted name; the offsets of a list count as the list."""
    memory: int
    """Bytes of its values in memory."""
    stored: int
    """Bytes on disk, as the container has it."""
    packed: dict[str, Packed]
    """The costs in a new container, by compression: ``none``, ``lz4`` and ``zstd``."""
    best: str
    """The compression with which it is read soonest."""


@dataclass(frozen=True)
class Advice:
    """The compression that a new container of the same objects should have."""

    fields: list[FieldAdvice]
    """The fields, the largest first."""
    bandwidth: int
    """Bytes a second that the storage was assumed to deliver."""
    packed: dict[str, Packed]
    """The costs of all fields together, by compression."""
    best: str
    """The compression with which all fields are read soonest."""


def advice_of(handle: ViewHandle, bandwidth: str, sample: str) -> Advice:
    """Measure the fields of a container; see :meth:`femtobarn.View.advise`."""
    rate, size = bytes_of_size(bandwidth), bytes_of_size(sample)
    fields = []
    for path, memory, stored, sizes in packed_fields(handle, size):
        packed = {name: Packed(*each) for name, each in zip(COMPRESSIONS, sizes, strict=True)}
        fields.append(FieldAdvice(path, memory, stored, packed, _best(packed, rate)))
    fields.sort(key=lambda field: -field.memory)
    packed = {name: _sum(field.packed[name] for field in fields) for name in COMPRESSIONS}
    return Advice(fields, rate, packed, _best(packed, rate))


def _sum(parts: Iterable[Packed]) -> Packed:
    listed = list(parts)
    return Packed(sum(part.stored for part in listed), sum(part.seconds for part in listed))


def _best(packed: dict[str, Packed], bandwidth: int) -> str:
    """Return the compression with which storage and one core, one after the other, take least time."""
    return min(packed, key=lambda name: packed[name].stored / bandwidth + packed[name].seconds)

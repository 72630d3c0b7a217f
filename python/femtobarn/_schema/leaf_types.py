"""Types of single values: numbers, truth values and texts.

``types`` has those that are made of others.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any

import numpy as np

from .meanings import Meaning

__all__ = ["DTYPES", "NAMED_REDUCED", "Node", "Primitive", "Reduced", "String"]

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "byte": np.dtype(np.uint8),
    "char": np.dtype(np.uint8),
    **{
        name: np.dtype(name)
        for name in (
            ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
        )
    },
}
"""The NumPy type of each primitive in memory. The extension module reads this."""


NAMED_REDUCED = ("float16", "double32")
"""Reduced precisions without parameters: half, and ROOT's Double32_t (single on disk)."""


class Node:
    """A type of field."""

    __slots__ = ()

    def to_json(self) -> Any:
        """Return the type in the JSON form of class definitions."""
        raise NotImplementedError

    def __str__(self) -> str:
        raise NotImplementedError

    # For annotations such as `fb.link["A"] | None`.
    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - `|` would call this method again

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007 - as above


@dataclass(frozen=True)
class Primitive(Node):
    """A number, character or truth value of fixed size."""

    name: str
    meaning: Meaning | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of the values."""
        return DTYPES[self.name]

    @property
    def dtype_name(self) -> str:
        """Name of the primitive in memory."""
        return self.name

    def to_json(self) -> Any:
        return self.name if self.meaning is None else self.meaning.to_json(self.name)

    def __str__(self) -> str:
        return self.name if self.meaning is None else str(self.meaning)


@dataclass(frozen=True)
class Reduced(Node):
    """A real number that has less precision on disk than in memory."""

    kind: str
    bits: int = 16
    min: float = 0.0
    max: float = 0.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy type of the values in memory."""
        return DTYPES[self.dtype_name]

    @property
    def dtype_name(self) -> str:
        """Name of the primitive in memory."""
        return "float64" if self.kind == "double32" else "float32"

    def to_json(self) -> Any:
        if self.kind in NAMED_REDUCED:
            return self.kind
        if self.kind == "truncated":
            return {"truncated": {"bits": self.bits}}
        return {"quantised": {"bits": self.bits, "min": self.min, "max": self.max}}

    def __str__(self) -> str:
        if self.kind in NAMED_REDUCED:
            return self.kind
        if self.kind == "truncated":
            return f"truncated({self.bits})"
        return f"quantised({self.bits}, {self.min:g}, {self.max:g})"


@dataclass(frozen=True)
class String(Node):
    """UTF-8 text."""

    meaning: Meaning | None = None

    def to_json(self) -> Any:
        return "string" if self.meaning is None else self.meaning.to_json("string")

    def __str__(self) -> str:
        return "string" if self.meaning is None else str(self.meaning)

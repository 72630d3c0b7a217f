"""Conditions that are functions of arrays: ``where=lambda event: event.pt > 20``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._data.casts import Values
from .._exceptions import FemtobarnError, InvalidError
from .._lazy import ak
from .array_terms import values_of

__all__ = ["FunctionTerm"]


@dataclass(frozen=True)
class FunctionTerm:
    """A function of the objects' array, whose fields are read when it uses them."""

    function: Callable[[Any], Any]
    paths: set[str] = field(default_factory=set)
    """Paths of the fields that it has used so far."""
    is_condition = True

    @property
    def text(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__qualname__", repr(self.function)).rpartition(".")[2]

    def values(self, array: ak.Array) -> Values:
        """Return the function's truth value for each entry, masked where it is missing.

        Raises
        ------
        InvalidError
            If the function fails, or does not return one value for each entry.
        """
        try:
            found = self.function(array)
        except FemtobarnError:
            raise
        except Exception as error:
            raise InvalidError(f"{self.text} failed: {type(error).__name__}: {error}") from error
        return values_of(found, len(array), self.text)

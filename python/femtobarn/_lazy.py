"""Libraries for arrays, and modules, each imported when an attribute of it is first used.

A program that appends objects, or reads them one by one, needs none of them. Importing them takes most of the
time of importing Femtobarn, starts threads, and costs memory in each of hundreds of jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import awkward as ak
    import numexpr

__all__ = ["LazyModule", "ak", "numexpr"]


class LazyModule:
    """A stand-in for a module, which is imported when one of its attributes is first read."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)  # The next read of this attribute does not come here.
        return value


if not TYPE_CHECKING:
    ak = LazyModule("awkward")
    numexpr = LazyModule("numexpr")

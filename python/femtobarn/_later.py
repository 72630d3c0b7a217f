"""Libraries for arrays, each imported when something of it is first used.

Who appends objects or reads them one by one needs none of them. They would take most of the time that
importing Femtobarn takes, start threads, and fill the memory of each of hundreds of jobs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import awkward as ak
    import numexpr

__all__ = ["ak", "numexpr"]


class Later:
    """Stands for a module: its attributes are the module's."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)  # Asked for once only.
        return value


if not TYPE_CHECKING:
    ak = Later("awkward")
    numexpr = Later("numexpr")

"""Makes uproot quick with thousands of fields, without changing what it does.

For each field it asks each description of a field for its parent, through a function that is called anew for
each question. Here an answer becomes an attribute, which is found without that function.
"""

from __future__ import annotations

from typing import Any

from uproot.models.RNTuple import MetaData

__all__: list[str] = []


def _attribute(self: Any, name: str) -> Any:
    if name.startswith("_"):
        return self.__dict__[name]
    value = self.__dict__[name] = self.__dict__["_fields"][name]
    return value


def _set(self: Any, name: str, value: Any) -> None:
    self.__dict__["_fields"][name] = value
    self.__dict__.pop(name, None)


MetaData.__getattr__ = _attribute
MetaData.__setattr__ = _set

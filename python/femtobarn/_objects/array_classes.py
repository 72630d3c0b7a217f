"""Classes of awkward's records and arrays for declared classes. This module imports awkward."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

import awkward as ak

from .._exceptions import InvalidError, NotFoundError
from .behaviours import array_behavior, derived, field_names, own_names
from .link_arrays import LINKS
from .vectors import is_installed, kind_of, vector

__all__ = ["behavior_of"]


class Behavior(dict[Any, Any]):
    """Behaviours of arrays, which are not pickled: those of the program that reads the pickle count."""

    def __reduce__(self) -> tuple[Any, ...]:
        return array_behavior, ()


def behavior_of(classes: Mapping[str, type[Any]]) -> Behavior:
    """Return awkward's behaviours for links and for classes by name."""
    behavior, vectors = Behavior(LINKS), dict[str, list[str]]()
    for name, cls in classes.items():
        if name in LINKS:
            continue
        try:
            kind = _kind(cls)
        except (InvalidError, NotFoundError):
            continue  # It refers to a class that is not declared yet, or cannot be stored.
        behavior[name] = _class_for(ak.Record, name, cls, kind)
        behavior["*", name] = _class_for(ak.Array, name, cls, kind)
        if kind:
            vectors.setdefault(kind, []).append(name)
    if vectors:
        behavior |= {key: value for key, value in _of_vectors(vectors) if key not in behavior}
    return behavior


def _kind(cls: type[Any]) -> str:
    """Return vector's name of a class's vectors; empty if it has none, or vector is not installed."""
    fields = field_names(cls)
    return kind_of(fields) if issubclass(cls, vector) and is_installed() else ""


def _class_for(plain: type[Any], name: str, cls: type[Any], kind: str) -> type[Any]:
    """Return the class of records, or of arrays."""
    part = plain.__name__
    attributes: dict[str, Any] = {"__module__": __name__, "__qualname__": name + part}
    without = derived(plain, cls, **attributes)
    if not kind:
        return without
    base = getattr(_backend(), f"{kind[:-2]}{part}{kind[-2:]}")

    def validate(value: Any) -> None:
        try:
            base.__awkward_validation__(value)
        except TypeError:
            value.__class__ = type(value)._incomplete

    own = [name for name in own_names(cls) if not name.startswith("__")]
    attributes["__awkward_validation__"] = validate
    attributes["_incomplete"] = without  # The class of those of which not all components were read.
    attributes |= {
        name: inspect.getattr_static(cls, name)
        for name in own
        if name not in field_names(cls) and hasattr(base, name) and not hasattr(plain, name)
    }
    return derived(base, cls, **attributes)


def _of_vectors(names: Mapping[str, list[str]]) -> Iterator[tuple[Any, Any]]:
    """Yield vector's behaviours, also with the names of declared classes in the place of vector's."""
    for key, value in _backend().behavior.items():
        # Functions without a name cannot be pickled, but awkward pickles behaviours of arrays that it has
        # joined.
        value = partial(_call, key) if isinstance(value, FunctionType) else value
        parts = key if isinstance(key, tuple) else (key,)
        choices = [[part, *names.get(part, [])] if isinstance(part, str) else [part] for part in parts]
        for chosen in itertools.product(*choices):
            yield (chosen if isinstance(key, tuple) else chosen[0]), value


def _call(key: Any, *arguments: Any, **named: Any) -> Any:
    """Call the function that vector has for a key of its behaviours."""
    return _backend().behavior[key](*arguments, **named)


def _backend() -> Any:
    return import_module("vector.backends.awkward")


def __getattr__(name: str) -> Any:
    """Return a class by its name: pickles of arrays may have it. Those of an unknown class are plain."""
    for part, base in (("Record", ak.Record), ("Array", ak.Array)):
        if name.endswith(part) and not name.startswith("_"):
            of = name.removesuffix(part)
            return array_behavior().get(of if base is ak.Record else ("*", of), base)
    raise AttributeError(name)

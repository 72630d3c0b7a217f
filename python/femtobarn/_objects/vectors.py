"""Classes whose fields are the components of a vector have the methods of scikit-hep's vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .._exceptions import InvalidError, UnsupportedError

__all__ = ["check_components", "forwarded", "is_installed", "kind_of", "vector"]

ADVICE = (
    "classes that derive from fb.vector need vector, which is not installed: pip install 'femtobarn[vector]'"
)

AZIMUTHAL = (("px", "py"), ("pt", "phi"), ("x", "y"), ("rho", "phi"))
LONGITUDINAL = ("pz", "eta", "theta", "z")
TEMPORAL = ("E", "e", "energy", "M", "m", "mass", "t", "tau")
COMPONENTS = frozenset([*(name for pair in AZIMUTHAL for name in pair), *LONGITUDINAL, *TEMPORAL])
OF_MOMENTUM = frozenset({"px", "py", "pt", "pz", "E", "e", "energy", "M", "m", "mass"})


class vector:
    """Base of persistent classes whose fields are the components of a vector.

    Their objects and arrays have the properties and methods of scikit-hep's vector, such as ``mass``,
    ``deltaR`` and ``+``, as vectors of two, three or four dimensions. The names of the fields are those
    of that library: ``pt`` and ``phi``, or ``px`` and ``py``; ``eta``, or ``pz``; ``mass``, or ``E``; and
    others. A field goes before a property of the same name. The library is needed when they are used.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> @fb.persistent
    ... class Muon(fb.vector):
    ...     pt: fb.float32
    ...     eta: fb.float32
    ...     phi: fb.float32
    ...     mass: fb.float32 = 0.1056
    >>> @fb.persistent
    ... class Pair:
    ...     muons: list[Muon]
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     pairs = txn.database("mc", create=True).container("pairs", Pair, create=True)
    ...     oid = pairs.append(Pair(muons=[Muon(pt=30, eta=0.1, phi=0), Muon(pt=50, eta=-0.2, phi=3)]))
    >>> muons = fed["mc/pairs"].arrays().muons
    >>> round(float((muons[:, 0] + muons[:, 1]).mass[0]), 1)
    78.1
    >>> first, second = fed["mc/pairs"][0].muons
    >>> round(float(first.deltaR(second)), 2)
    3.01
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not is_installed() or name not in _names(kind_of(_fields_of(self))):
            hint = "" if name.startswith("_") or is_installed() else f"; {ADVICE}"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
        return _attribute(self, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **named: Any) -> Any:
        return getattr(ufunc, method)(*map(_vector_of, operands), **named)

    def __add__(self, other: Any) -> Any:
        return _vector_of(self) + _vector_of(other)

    def __sub__(self, other: Any) -> Any:
        return _vector_of(self) - _vector_of(other)

    def __mul__(self, factor: float) -> Any:
        return _vector_of(self) * factor

    def __rmul__(self, factor: float) -> Any:
        return factor * _vector_of(self)

    def __truediv__(self, divisor: float) -> Any:
        return _vector_of(self) / divisor

    def __neg__(self) -> Any:
        return -_vector_of(self)

    def __radd__(self, other: Any) -> Any:
        is_start_of_sum = isinstance(other, int) and other == 0
        return _vector_of(self) if is_start_of_sum else _vector_of(other) + _vector_of(self)


def check_components(cls: type[Any]) -> None:
    """Check the fields of a class that derives from :class:`vector`; others are not looked at.

    Raises
    ------
    InvalidError
        If they are not a vector, or more than one.
    """
    if not issubclass(cls, vector):
        return
    fields = _fields_of(cls)
    components = components_of(fields)
    if len(components) < 2:
        raise InvalidError(
            f"class {cls.__name__} derives from fb.vector, but has no fields of a vector, such as pt and "
            "phi, or px and py"
        )
    more = [name for name in fields if name in COMPONENTS and name not in components]
    if more:
        raise InvalidError(
            f"class {cls.__name__} derives from fb.vector, whose components are {', '.join(components)}; "
            f"rename {', '.join(more)}, which would be other components"
        )


def components_of(fields: Iterable[str]) -> list[str]:
    """Return the fields that are components of a vector."""
    names = set(fields)
    found = next((list(pair) for pair in AZIMUTHAL if names.issuperset(pair)), [])
    for choices in (LONGITUDINAL, TEMPORAL):
        chosen = next((name for name in choices if name in names), None)
        if chosen is None:
            break
        found.append(chosen)
    return found


def kind_of(fields: Iterable[str]) -> str:
    """Return vector's name of vectors with these fields, such as ``"Momentum4D"``."""
    components = components_of(fields)
    kind = "Momentum" if OF_MOMENTUM.intersection(components) else "Vector"
    return f"{kind}{len(components)}D"


def forwarded(fields: Iterable[str]) -> dict[str, Any]:
    """Return the properties and methods of vector for objects with these fields, if it is installed."""
    names = _names(kind_of(fields)) if is_installed() else ()
    return {name: property(_getter(name)) for name in names}


@cache
def is_installed() -> bool:
    """Tell whether scikit-hep's vector is."""
    return find_spec("vector") is not None


def _getter(name: str) -> Callable[[Any], Any]:
    return lambda value: _attribute(value, name)


@cache
def _names(kind: str) -> frozenset[str]:
    names = dir(getattr(library(), f"{kind[:-2]}Object{kind[-2:]}"))
    return frozenset(name for name in names if not name.startswith("_"))


def library() -> Any:
    """Return scikit-hep's vector.

    Raises
    ------
    UnsupportedError
        If it is not installed.
    """
    if not is_installed():
        raise UnsupportedError(ADVICE)
    return import_module("vector")


def _fields_of(value: Any) -> list[str]:
    found = getattr(value, "__dataclass_fields__", None)
    return list(found) if found is not None else list(value.fields)


def _vector_of(value: Any) -> Any:
    """Return a value that has components as a vector; other values as they are."""
    if not isinstance(value, vector) or any(
        each.__module__.startswith("awkward.") for each in type(value).__mro__
    ):
        return value
    return library().obj(**{name: getattr(value, name) for name in components_of(_fields_of(value))})


def _attribute(value: Any, name: str) -> Any:
    found = getattr(_vector_of(value), name)
    if not callable(found):
        return found

    def method(*arguments: Any, **named: Any) -> Any:
        return found(*map(_vector_of, arguments), **named)

    return method

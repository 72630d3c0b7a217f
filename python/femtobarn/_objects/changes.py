"""The arguments of updates and deletions: the entries of the objects, and columns of their new values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._data.arrays import Tree, columns_of
from .._exceptions import InvalidError
from .._oid import Oid, OidArray, OidRange
from .._schema.declared_fields import surplus_of
from .._schema.types import Definition, Field, Record

if TYPE_CHECKING:
    from .objects import LinkRef, Object

__all__ = ["Chosen", "entries_of", "entry_of", "is_single", "new_values", "plain_values"]

PLAIN = (bool, int, float, str, np.number)

Chosen: TypeAlias = (
    "int | Oid | Object | LinkRef | OidRange | OidArray | Sequence[Any] | np.ndarray[Any, Any]"
)
"""One or many objects of a container: OIDs, objects, links, or entries."""


def is_single(chosen: Any) -> bool:
    """Return whether one object is chosen, and not several."""
    if type(chosen) in (int, Oid):
        return True
    if isinstance(chosen, OidRange | OidArray):
        return False
    return not isinstance(chosen, Sequence | np.ndarray) or isinstance(chosen, str | bytes)


def entries_of(chosen: Any, place: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return the entries of objects in their container.

    Parameters
    ----------
    chosen
        As :data:`Chosen`.
    place
        Numbers of the database and of the container that is changed.

    Raises
    ------
    InvalidError
        If an object is in another container, or `chosen` is not of a type of :data:`Chosen`.

    Examples
    --------
    >>> entries_of([Oid(1, 2, 7), 3], (1, 2))
    array([7, 3], dtype=uint64)
    """
    if isinstance(chosen, OidRange | OidArray):
        _check_place((chosen.database, chosen.container), place)
        return chosen.entries
    if isinstance(chosen, np.ndarray) and chosen.dtype.kind in "iu":
        if chosen.ndim != 1 or (chosen.size and int(chosen.min()) < 0):
            raise InvalidError("entries must be integers of 0 or more, in one dimension")
        return chosen.astype(np.uint64)
    several = [chosen] if is_single(chosen) else chosen
    return np.array([entry_of(each, place) for each in several], np.uint64)


def entry_of(chosen: Any, place: tuple[int, int]) -> int:
    """Return the entry of one object in its container; see :func:`entries_of`."""
    if isinstance(chosen, int | np.integer) and not isinstance(chosen, bool) and chosen >= 0:
        return int(chosen)
    oid = getattr(chosen, "oid", chosen)
    if not isinstance(oid, Oid):
        raise InvalidError(
            f"{chosen!r} does not name an object; give an OID, an object, or an entry of 0 or more"
        )
    _check_place((oid.database, oid.container), place)
    return oid.entry


def _check_place(found: tuple[int, int], place: tuple[int, int]) -> None:
    if found != place:
        raise InvalidError(
            f"the object is in container {found[0]}-{found[1]}, not in this one, {place[0]}-{place[1]}; "
            "use the container that it is in"
        )


def plain_values(values: Any, named: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of :func:`new_values` by field if all are single numbers and texts, else None."""
    if values is not None and type(values) is not dict:
        return None
    given = named if values is None else {**values, **named}
    return given if all(isinstance(value, PLAIN) for value in given.values()) else None


def new_values(values: Any, named: Mapping[str, Any], definition: Definition, single: bool) -> Tree:
    """Return the new values as columns: a record with a member for each changed field, its dotted path.

    Parameters
    ----------
    values
        A mapping of fields to values, a record array, or an object of the class, of which all fields are
        changed; None if all are in `named`.
    named
        More fields with their values.
    definition
        The class of the objects.
    single
        Whether each value is that of one object; otherwise it is an array with one item for each object.

    Raises
    ------
    InvalidError
        If no field is given, or a value does not fit its field.
    NotFoundError
        If a field does not exist; near misses are named.
    """
    given = {**_fields_of(values, definition), **named}
    if not given:
        raise InvalidError("no fields to change; give at least one")
    fields = tuple(Field(path, definition.resolve(path)) for path in given)
    columns = {path: [value] for path, value in given.items()} if single else given
    return columns_of(columns, Record("", fields))


def _fields_of(values: Any, definition: Definition) -> Mapping[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return values
    if hasattr(type(values), "__femtobarn__"):
        names = [field.name for field in definition.fields]
        surplus, _ = surplus_of(values, names, definition.name)
        if surplus is not None:
            raise InvalidError(surplus)
        return {name: getattr(values, name) for name in names}
    if hasattr(values, "fields"):
        return {name: values[name] for name in values.fields}
    raise InvalidError(f"{type(values).__name__} has no fields; give a mapping of fields to values")

"""What stored numbers, texts and lists stand for in Python: times, enumerations, paths, sets.

ROOT has no such types, or only with a dictionary of the class, so values are stored as numbers, texts and
lists that every reader knows, and the class says what they mean.

==============  ==========================================================  ==================================
kind            stored as                                                   in arrays
==============  ==========================================================  ==================================
``datetime``    int64, nanoseconds since 1970 in UTC without leap seconds   ``datetime64[ns]``
``date``        int32, days since 1970-01-01                                ``datetime64[D]``
``enum``        the members' values: integers, or texts                     integers, or texts
``flag``        integers                                                    integers
``path``        text with ``/`` between folders                             texts
``set``         list without duplicates, in ascending order                 lists
==============  ==========================================================  ==================================
"""

from __future__ import annotations

import datetime
import enum
import json
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._exceptions import InvalidError, near_misses

__all__ = ["TIMES", "Meaning", "enumeration_meaning", "storing"]

TIMES = {"datetime": np.dtype("datetime64[ns]"), "date": np.dtype("datetime64[D]")}
"""NumPy's type of each kind of time."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)

_ENUMERATIONS: dict[str, type[enum.Enum]] = {}
"""Enumerations of declared classes by name; a later one of a name replaces an earlier one."""


@dataclass(frozen=True)
class Meaning:
    """What the values of a stored type stand for."""

    kind: str
    name: str = ""
    """Of an enumeration, its name."""
    members: tuple[tuple[str, int | str], ...] = ()
    """Of an enumeration, its members' names and values."""

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Meaning:
        """Return the meaning that the JSON form of a type describes."""
        members = ((name, value) for name, value in form.get("members", ()))
        return cls(form["is"], form.get("name", ""), tuple(members))

    def to_json(self, stored: Any) -> dict[str, Any]:
        """Return the JSON form of a type with this meaning, which is stored as the type of form `stored`."""
        form: dict[str, Any] = {"of": stored, "is": self.kind}
        if self.name:
            form |= {"name": self.name, "members": [list(member) for member in self.members]}
        return {"meaning": form}

    def __str__(self) -> str:
        return self.name or self.kind

    @property
    def is_enumeration(self) -> bool:
        """Whether values are members of an enumeration, or combinations of these."""
        return self.kind in ("enum", "flag")

    @cached_property
    def values(self) -> frozenset[int | str]:
        """Values of the members of an enumeration."""
        return frozenset(value for _, value in self.members)

    @cached_property
    def enumeration(self) -> type[enum.Enum]:
        """The enumeration: the declared one with the same members, or else one made of the names."""
        declared = _ENUMERATIONS.get(self.name)
        if declared is not None and enumeration_meaning(declared, "").members == self.members:
            return declared
        make: Any = enum.Flag if self.kind == "flag" else enum.Enum
        made: type[enum.Enum] = make(self.name, list(self.members))
        return made

    def to_stored(self, value: Any) -> Any:
        """Return the stored form of a value.

        Raises
        ------
        ValueError
            If the value does not have this meaning.
        """
        return _TO_STORED[self.kind](self, value)

    def to_python(self, value: Any) -> Any:
        """Return what a stored value stands for. A number that no member of an enumeration has stays one."""
        if self.kind == "datetime":
            return EPOCH + datetime.timedelta(microseconds=value // 1000)
        if self.kind == "date":
            return EPOCH.date() + datetime.timedelta(days=value)
        if self.kind == "path":
            return pathlib.Path(value)
        if self.kind == "set":
            return set(value)
        try:
            return self.enumeration(value)
        except ValueError:
            return value

    def constant(self, text: str) -> int | str:
        """Return the stored form of a text in a condition: a time, or the name of a member.

        Raises
        ------
        ValueError
            If the text is neither.
        """
        if self.is_enumeration:
            named = dict(self.members)
            if text in named or text in self.values:
                return named.get(text, text)
            raise ValueError(f"{text!r} is no member of {self.name}{near_misses(text, named)}")
        if self.kind in TIMES:
            stored: int = self.to_stored(_time_of(text, self.kind))
            return stored
        return text


def storing(form: str) -> Callable[[Any], Any]:
    """Return the function that returns the stored form of values. The extension module calls this.

    Parameters
    ----------
    form
        JSON form of the type.
    """
    return Meaning.from_json(json.loads(form)["meaning"]).to_stored


def enumeration_meaning(cls: type[enum.Enum], where: str) -> Meaning:
    """Return the meaning of the values of an enumeration, and remember the enumeration.

    Raises
    ------
    InvalidError
        If its values are not integers of 64 bits, nor texts.
    """
    members = tuple((name, member.value) for name, member in cls.__members__.items())
    kinds = {type(value) for _, value in members}
    fit = kinds == {str} or (kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for _, value in members))
    if not fit:
        raise InvalidError(
            f"{where} is of {cls.__name__}, whose values are not all integers of 64 bits, nor all texts; "
            "give its members such values"
        )
    if where:
        _ENUMERATIONS[cls.__name__] = cls
    return Meaning("flag" if issubclass(cls, enum.Flag) else "enum", cls.__name__, members)


def _time_of(text: str, kind: str) -> np.datetime64:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no {kind}; write it as in ISO 8601, such as '2026-11-27'") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(moment)


def _stored_datetime(_: Meaning, value: Any) -> int:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(
                f"{value!r} has no time zone; make it with datetime.now(timezone.utc), or add one with "
                ".replace(tzinfo=timezone.utc)"
            )
        # A time of pandas has nanoseconds as well.
        stored = (value - EPOCH) // MICROSECOND * 1000 + getattr(value, "nanosecond", 0)
    elif isinstance(value, np.datetime64):
        stored = _checked_time(np.asarray(value), "datetime").item()
    else:
        raise ValueError(
            f"{value!r} is no datetime; give a datetime with a time zone, or numpy.datetime64 in UTC"
        )
    if not -(1 << 63) < stored < 1 << 63:
        raise ValueError(f"{value!r} is not between 1677-09-21 and 2262-04-12")
    return int(stored)


def _stored_date(_: Meaning, value: Any) -> int:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (value - EPOCH.date()).days
    if isinstance(value, np.datetime64):
        return int(_checked_time(np.asarray(value), "date").item())
    raise ValueError(f"{value!r} is no date; give a datetime.date, or numpy.datetime64")


def stored_times(values: Any, kind: str) -> Any:
    """Return times of NumPy, shape (n,), as the integers that they are stored as, int64.

    Raises
    ------
    ValueError
        If one is missing (NaT), or does not fit.

    Examples
    --------
    >>> stored_times(np.array(["1970-01-02"], "M8[D]"), "datetime")
    array([86400000000000])
    """
    return _checked_time(values, kind)


def times_of(values: Any) -> list[datetime.datetime | datetime.date]:
    """Return times of NumPy as those of Python, as :meth:`Meaning.to_python` does.

    Examples
    --------
    >>> times_of(np.array(["2026-11-27"], "M8[D]"))
    [datetime.date(2026, 11, 27)]
    """
    kind = next(kind for kind, dtype in TIMES.items() if dtype == values.dtype)
    return list(map(Meaning(kind).to_python, values.astype(np.int64).tolist()))


def _checked_time(values: Any, kind: str) -> Any:
    if np.isnat(values).any():
        raise ValueError("a time is missing (NaT); declare the field | None, and give None")
    converted = values.astype(TIMES[kind])
    if kind == "datetime" and (converted.astype(values.dtype) != values).any():
        raise ValueError("a time is not between 1677-09-21 and 2262-04-12")
    stored = converted.astype(np.int64)
    if kind == "date" and stored.size and (abs(stored) >= 1 << 31).any():
        raise ValueError("a date is more than 2^31 days from 1970")
    return stored


def _stored_path(_: Meaning, value: Any) -> str:
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is no path; give a pathlib.Path, or a text")


def _stored_member(meaning: Meaning, value: Any) -> int | str:
    stored = value.value if isinstance(value, enum.Enum) else value
    stored = stored.item() if isinstance(stored, np.generic) else stored
    if isinstance(value, enum.Enum) and type(value).__name__ != meaning.name:
        raise ValueError(f"{value!r} is of {type(value).__name__}, not of {meaning.name}")
    is_combination = meaning.kind == "flag" and isinstance(stored, int) and not isinstance(stored, bool)
    if is_combination or (type(stored) in (int, str) and stored in meaning.values):
        return stored  # type: ignore[no-any-return]
    raise ValueError(f"{value!r} is no member of {meaning.name}")


def _stored_set(_: Meaning, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise ValueError(f"{value!r} is no set")
    items = set(value.tolist() if isinstance(value, np.ndarray) else value)
    try:
        return sorted(items, key=lambda item: item.value if isinstance(item, enum.Enum) else item)
    except TypeError:
        raise ValueError(f"{value!r} has items of several types") from None


_TO_STORED: dict[str, Callable[[Meaning, Any], Any]] = {
    "datetime": _stored_datetime,
    "date": _stored_date,
    "enum": _stored_member,
    "flag": _stored_member,
    "path": _stored_path,
    "set": _stored_set,
}

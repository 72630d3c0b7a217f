"""The meanings of stored numbers, texts and lists in Python: times, enumerations, paths, sets, elements.

ROOT has no such types, or only with a dictionary of the class, so values are stored as numbers, texts and
lists that every reader knows, and the class states their meaning.

==============  ==========================================================  ==================================
kind            stored as                                                   in arrays
==============  ==========================================================  ==================================
``datetime``    int64, nanoseconds since 1970 in UTC without leap seconds   ``datetime64[ns]``
``date``        int32, days since 1970-01-01                                ``datetime64[D]``
``enum``        the members' values: integers, or texts                     integers, or texts
``flag``        integers                                                    integers
``path``        text with ``/`` between folders                             texts
``set``         list without duplicates, in ascending order                 lists
``element``     integers, the index in a collection of the same object      integers
==============  ==========================================================  ==================================
"""

from __future__ import annotations

import datetime
import enum
import json
import pathlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from operator import or_
from typing import Any

import numpy as np

from .._exceptions import InvalidError, near_misses

__all__ = [
    "ELEMENT",
    "INTEGERS",
    "TIMES",
    "Meaning",
    "enumeration_meaning",
    "json_value",
    "stored_times",
    "storing",
    "time_of",
    "times_of",
]

TIMES = {"datetime": np.dtype("datetime64[ns]"), "date": np.dtype("datetime64[D]")}
"""NumPy's type of each kind of time."""

ELEMENT = "element"

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

STORED = {
    "datetime": ("int64",),
    "date": ("int32",),
    "enum": ("int32", "int64", "string"),
    "flag": ("int64",),
    "path": ("string",),
    ELEMENT: INTEGERS,
}
"""Types that values with each meaning are stored as; a set is a list."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
DAYS = ((datetime.date.min - EPOCH.date()).days, (datetime.date.max - EPOCH.date()).days)
"""First and last date that Python has."""

FRACTION = re.compile(r"(\.\d{6})(\d+)")
"""Digits of a time in ISO 8601 that Python's times do not have."""

MISSING = "a time is missing (NaT); declare the field | None, and give None"

_ENUMERATIONS: dict[tuple[str, str], list[type[enum.Enum]]] = {}
"""Enumerations of declared classes by kind and name, those declared last first."""


@dataclass(frozen=True)
class Meaning:
    """The meaning of a stored type's values."""

    kind: str
    name: str = ""
    """Of an enumeration, its name. Of an element its collection, or the member with the key of that."""
    members: tuple[tuple[str, int | str], ...] = ()
    """Of an enumeration, its members' names and values. Of an element with a key, collections and keys."""

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> Meaning:
        """Return the meaning that the JSON form of a type describes."""
        members = ((name, value) for name, value in form.get("members", ()))
        return cls(form["is"], form.get("name", ""), tuple(members))

    def to_json(self, stored: Any) -> dict[str, Any]:
        """Return the JSON form of a type with this meaning, which is stored as the type of form `stored`."""
        form: dict[str, Any] = {"of": stored, "is": self.kind}
        if self.name:
            form["name"] = self.name
        if self.members:
            form["members"] = [list(member) for member in self.members]
        return {"meaning": form}

    def __str__(self) -> str:
        if self.is_element:
            return f"element[{' | '.join(name for name, _ in self.members) or self.name}]"
        return self.name or self.kind

    def is_of(self, stored: str) -> bool:
        """Whether values of a stored type, in its JSON form, can have this meaning."""
        return stored in STORED.get(self.kind, ()) or (self.kind == "set" and stored.startswith("{"))

    @property
    def is_enumeration(self) -> bool:
        """Whether values are members of an enumeration, or combinations of these."""
        return self.kind in ("enum", "flag")

    @property
    def is_element(self) -> bool:
        """Whether values are indices in a collection, which are read as integers."""
        return self.kind == ELEMENT

    @cached_property
    def values(self) -> frozenset[int | str]:
        """Values of the members of an enumeration."""
        return frozenset(value for _, value in self.members)

    @cached_property
    def mask(self) -> int:
        """The sum of all flags."""
        return reduce(or_, (value for _, value in self.members if isinstance(value, int)), 0)

    @property
    def enumeration(self) -> type[enum.Enum]:
        """The enumeration: a declared one that has these members, or else one made of them."""
        for declared in _ENUMERATIONS.get((self.kind, self.name), ()):
            if set(self.members) <= set(_members_of(declared)):
                return declared
        return _made(self)

    def to_stored(self, value: Any) -> Any:
        """Return the stored form of a value.

        Raises
        ------
        ValueError
            If the value does not have this meaning.
        """
        to_stored = _TO_STORED.get(self.kind)
        return value if to_stored is None else to_stored(self, value)

    def to_python(self, value: Any) -> Any:
        """Return the meaning of a stored value. A number without a member of the enumeration stays one."""
        if self.kind == "datetime":
            return EPOCH + datetime.timedelta(microseconds=value // 1000)
        if self.kind == "date":
            try:
                return EPOCH.date() + datetime.timedelta(days=value)
            except OverflowError:  # Beyond the years of Python's dates.
                return np.datetime64(value, "D")
        if self.kind == "path":
            return pathlib.Path(value)
        if self.kind == "set":
            return set(value)
        if self.is_element:
            return value
        try:
            return self.enumeration(value)
        except Exception:  # Its own `_missing_` may raise anything.
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
            raise ValueError(f"{text!r} is not a member of {self.name}{near_misses(text, named)}")
        if self.kind in TIMES:
            stored: int = self.to_stored(time_of(text, self.kind))
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
    members = _members_of(cls)
    if not members:
        raise InvalidError(
            f"{where} is of {cls.__name__}, which has no members; name an enumeration with some"
        )
    kinds = {type(value) for _, value in members}
    fit = kinds == {str} or (kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for _, value in members))
    if not fit:
        raise InvalidError(
            f"{where} is of {cls.__name__}, whose values are not all integers of 64 bits, nor all strings; "
            "give its members such values"
        )
    kind = "flag" if issubclass(cls, enum.Flag) else "enum"
    known = _ENUMERATIONS.setdefault((kind, cls.__name__), [])
    if cls in known:
        known.remove(cls)
    known.insert(0, cls)
    return Meaning(kind, cls.__name__, members)


def _members_of(cls: type[enum.Enum]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, member.value) for name, member in cls.__members__.items())


@cache
def _made(meaning: Meaning) -> type[enum.Enum]:
    """Return an enumeration for a program that declares none; its members can be pickled."""
    make: Any = enum.Flag if meaning.kind == "flag" else enum.Enum
    made: Any = make(meaning.name, list(meaning.members))
    made.__reduce_ex__ = lambda member, _: (_member_of, (meaning, member.value))
    return made  # type: ignore[no-any-return]


def _member_of(meaning: Meaning, value: Any) -> Any:
    return meaning.to_python(value)


def time_of(text: str, kind: str = "datetime") -> np.datetime64:
    """Return the time that a text in ISO 8601 names; one without a zone is in UTC.

    Raises
    ------
    ValueError
        If it names none.

    Examples
    --------
    >>> time_of("2026-11-27T10:00:00.123456789+01:00")
    np.datetime64('2026-11-27T09:00:00.123456789')
    """
    finer = FRACTION.search(text)
    try:
        moment = datetime.datetime.fromisoformat(FRACTION.sub(r"\1", text))
        if finer is not None and len(finer[2]) > 3:
            raise ValueError("more than nanoseconds")
    except ValueError:
        raise ValueError(f"{text!r} is not a {kind}; write it as in ISO 8601, such as '2026-11-27'") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    nanoseconds = int(finer[2].ljust(3, "0")) if finer is not None else 0
    return np.datetime64(moment) + np.timedelta64(nanoseconds, "ns") if nanoseconds else np.datetime64(moment)


def _parsed(cls: Any, text: str) -> Any:
    try:
        return cls.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a {cls.__name__}; write it as in ISO 8601") from None


def json_value(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has, from which it can be stored again.

    Raises
    ------
    TypeError
        If there is none.
    """
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, set):
        return _stored_set(Meaning("set"), value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _stored_datetime(_: Meaning, value: Any) -> int:
    if isinstance(value, str):  # As JSON has it.
        value = _parsed(datetime.datetime, value)
    if isinstance(value, datetime.datetime):
        if value != value:  # pandas' NaT
            raise ValueError(MISSING)
        if value.tzinfo is None:
            raise ValueError(
                f"{value!r} has no time zone; make it with datetime.now(timezone.utc), or add one with "
                ".replace(tzinfo=timezone.utc)"
            )
        # A time of pandas has nanoseconds as well.
        stored = (value - EPOCH) // MICROSECOND * 1000 + getattr(value, "nanosecond", 0)
    elif isinstance(value, np.datetime64):
        stored = stored_times(np.asarray(value), "datetime").item()
    else:
        raise ValueError(
            f"{value!r} is not a datetime; give a datetime with a time zone, or numpy.datetime64 in UTC"
        )
    if not -(1 << 63) < stored < 1 << 63:
        raise ValueError(f"{value!r} is not between 1677-09-21 and 2262-04-12")
    return int(stored)


def _stored_date(_: Meaning, value: Any) -> int:
    if value is not None and value != value:
        raise ValueError(MISSING)
    if isinstance(value, str):
        value = _parsed(datetime.date, value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (value - EPOCH.date()).days
    if isinstance(value, np.datetime64):
        return int(stored_times(np.asarray(value), "date").item())
    raise ValueError(f"{value!r} is not a date; give a datetime.date, or numpy.datetime64")


def times_of(values: Any) -> list[datetime.datetime | datetime.date]:
    """Return times of NumPy as those of Python, as :meth:`Meaning.to_python` does.

    Examples
    --------
    >>> times_of(np.array(["2026-11-27"], "M8[D]"))
    [datetime.date(2026, 11, 27)]
    """
    kind = next(kind for kind, dtype in TIMES.items() if dtype == values.dtype)
    return list(map(Meaning(kind).to_python, values.astype(np.int64).tolist()))


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
    if np.isnat(values).any():
        raise ValueError(MISSING)
    converted = values.astype(TIMES[kind])
    if (converted.astype(values.dtype) != values).any():
        if kind == "date":
            raise ValueError("a date has a time of day; convert it first, such as x.astype('datetime64[D]')")
        if np.datetime_data(values.dtype)[0] in ("ps", "fs", "as"):
            raise ValueError("a time is finer than nanoseconds")
        raise ValueError("a time is not between 1677-09-21 and 2262-04-12")
    stored = converted.astype(np.int64)
    if kind == "date" and stored.size and (stored.min() < DAYS[0] or stored.max() > DAYS[1]):
        raise ValueError("a date is not between the years 1 and 9999")
    return stored


def _stored_path(_: Meaning, value: Any) -> str:
    if isinstance(value, pathlib.PurePath):
        return value.as_posix()
    if isinstance(value, str):
        return pathlib.PurePath(value).as_posix()
    raise ValueError(f"{value!r} is not a path; give a pathlib.Path or a str")


def _stored_member(meaning: Meaning, value: Any) -> int | str:
    stored = value.value if isinstance(value, enum.Enum) else value
    stored = stored.item() if isinstance(stored, np.generic) else stored
    if isinstance(value, enum.Enum) and not _is_member(value, meaning):
        raise ValueError(f"{value!r} is of {type(value).__qualname__}, not of {meaning.name} as it is stored")
    if isinstance(stored, int | str) and not isinstance(stored, bool):
        is_combination = meaning.kind == "flag" and isinstance(stored, int) and not stored & ~meaning.mask
        if is_combination or stored in meaning.values:
            return stored
    raise ValueError(f"{value!r} is not a member of {meaning.name}")


def _is_member(value: enum.Enum, meaning: Meaning) -> bool:
    """Whether a member of an enumeration is one of that which is stored: another one may have its name."""
    known, of = dict(meaning.members), type(value)
    if of.__name__ != meaning.name:
        return False
    if meaning.kind == "enum":
        return bool(known.get(value.name) == value.value)
    return all(known.get(name, flag) == flag for name, flag in _members_of(of))


def _stored_set(_: Meaning, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise ValueError(f"{value!r} is not a set")
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

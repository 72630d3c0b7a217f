"""Readings: values of slow control as they were taken, checked and converted a column at a time.

Whole columns are converted at once. Only if a column has a value that does not fit are its values looked at
one by one, to find which; the others are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, near_misses
from .._schema.types import Definition, Node, Primitive, String
from .channels import CHANNEL_MAX, CHANNEL_MIN
from .clocks import BEGINNING, FOREVER, moment_of

__all__ = [
    "CHANNEL",
    "PLAIN_ROW",
    "TIME",
    "UNITS",
    "WITHOUT_ROW_MAX",
    "Problem",
    "ReadingForm",
    "Readings",
    "inferred_class",
]

TIME, CHANNEL = "time", "channel"
"""Names of the columns that are not fields of the class."""

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds of each unit of time."""

YEARS = "1678", "2262"
"""Texts of years from the first to before the second fit into 64 bits of nanoseconds since 1970."""

PLAIN_ROW = {"value": 0.0}
"""A row of the class of plain values."""

WITHOUT_ROW_MAX = 1000
"""If none of this many first lines or messages is well-formed, a new series has the class of plain values."""

TRUTHS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


class Problem(NamedTuple):
    """A line or message that was refused."""

    number: int
    """Its number, from 1 on."""
    reason: str
    """The reason why the line is refused."""


@dataclass(frozen=True)
class Readings:
    """Values of one class, in the order in which they were taken."""

    moments: Values
    channels: Values
    fields: dict[str, Values]

    def __len__(self) -> int:
        return len(self.moments)

    def where(self, kept: Values | slice) -> Readings:
        """Return the readings at some positions, or those that a mask selects."""
        fields = {name: values[kept] for name, values in self.fields.items()}
        return Readings(self.moments[kept], self.channels[kept], fields)

    @classmethod
    def empty(cls) -> Readings:
        """Return no readings."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), {})

    @classmethod
    def joined(cls, parts: Sequence[Readings]) -> Readings:
        """Return readings one after the other."""
        if len(parts) == 1:
            return parts[0]
        fields = {name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields}
        return cls(
            np.concatenate([part.moments for part in parts]),
            np.concatenate([part.channels for part in parts]),
            fields,
        )


class ReadingForm:
    """The form of a series' readings: the fields of its class, the unit of times, the names of channels.

    Raises
    ------
    InvalidError
        If the class has fields other than numbers, truth values and texts.
    """

    def __init__(
        self,
        definition: Definition,
        *,
        unit: str | None = None,
        channels: Mapping[str, int] | None = None,
        channel: int = 0,
    ) -> None:
        self.definition = definition
        self.channel = channel
        """The channel of a reading that has none."""
        self._scale, self._takes_floats = UNITS[unit or "ns"], unit not in (None, "ns")
        self._channels = dict(channels or {})
        self._fields = definition.record.by_name
        self.names = (TIME, CHANNEL, *self._fields)
        """Names of all columns."""
        for name, node in self._fields.items():
            if not isinstance(node, String) and not (
                isinstance(node, Primitive) and node.dtype.kind in "biuf"
            ):
                raise InvalidError(
                    f"field {name!r} of class {definition.name} is {node}; a recorder takes numbers, truth "
                    "values and texts"
                )

    def readings(
        self, columns: Mapping[str, Sequence[Any]], numbers: Sequence[int]
    ) -> tuple[Readings, list[Problem]]:
        """Return readings from columns of plain values or texts, without those that do not fit.

        Parameters
        ----------
        columns
            The values by :attr:`names`.
        numbers
            The number of the line or message of each.
        """
        wrong: dict[int, str] = {}
        count = len(numbers)
        moments = _converted(columns[TIME], self._moments, self._moment, np.int64, TIME, wrong)
        channels = _converted(columns[CHANNEL], self._channels_of, self._channel_of, np.int64, CHANNEL, wrong)
        fields = {
            name: _converted(columns[name], *_converters(node), name, wrong)
            for name, node in self._fields.items()
        }
        found = Readings(moments, channels, fields)
        if wrong:
            kept = np.ones(count, bool)
            kept[list(wrong)] = False
            found = found.where(kept)
        return found, [Problem(numbers[position], wrong[position]) for position in sorted(wrong)]

    def fault_of(self, row: Any) -> str | None:
        """Return the problem with the names in a row, if there is one. The channel may be left out."""
        if not isinstance(row, dict):
            return f"{_short(row)} is not an object with {', '.join(self.names)}"
        for name in self.names:
            if name not in row and name != CHANNEL:
                return f"it has no {name!r}"
        for name in row:
            if name not in self.names:
                return f"class {self.definition.name} has no field {name!r}{near_misses(name, self.names)}"
        return None

    def _moments(self, values: Sequence[Any]) -> Values:
        kinds = set(map(type, values))
        if kinds == {str}:
            if values[0][-1:] == "Z":
                return _iso_moments([value[:-1] for value in values if value[-1:] == "Z"], len(values))
            if values[0][-6:] == "+00:00":
                zoneless = [value[:-6] for value in values if value[-6:] == "+00:00"]
                return _iso_moments(zoneless, len(values))
            values = list(map(float if self._takes_floats else int, _plain_numbers(values)))
        elif not kinds <= ({int, float} if self._takes_floats else {int}):
            raise ValueError("a time of another type")
        if self._takes_floats:
            return _scaled(np.array(values, np.float64), self._scale)
        return _below_forever(np.array(values, np.int64))

    def _moment(self, value: Any) -> int:
        if isinstance(value, str):
            try:
                value = (float if self._takes_floats else int)(_plain_numbers([value])[0])
            except ValueError:
                return _below_forever_one(moment_of(value, "time"))
        if self._takes_floats and type(value) in (int, float):
            return int(_scaled(np.array([value], np.float64), self._scale)[0])
        if isinstance(value, float):
            raise InvalidError(f"{value!r} is not a time in nanoseconds; give the unit of times")
        return _below_forever_one(moment_of(value, "time"))

    def _channels_of(self, values: Sequence[Any]) -> Values:
        kinds = set(map(type, values))
        if kinds == {int}:
            return np.array(values, np.int64)
        if kinds != {str}:
            raise ValueError("a channel of another type")
        if self._channels:
            known = self._channels
            return np.array([known[value] for value in values], np.int64)
        return np.array(list(map(int, _plain_numbers(values))), np.int64)

    def _channel_of(self, value: Any) -> int:
        if isinstance(value, str):
            if value in self._channels:
                return self._channels[value]
            if not value.removeprefix("-").isdecimal():
                hint = near_misses(value, self._channels)
                raise InvalidError(f"channel {value!r} is not in the table of channels{hint}")
            value = int(value)
        if type(value) is not int or not CHANNEL_MIN <= value <= CHANNEL_MAX:
            raise InvalidError(f"{_short(value)} is not a channel: give a name, or an integer of 64 bits")
        return value


def inferred_class(row: Mapping[str, Any], name: str = "Value") -> dict[str, Any]:
    """Return a class for the fields of a row: numbers become ``float64``.

    Examples
    --------
    >>> inferred_class({"time": 0, "channel": 1, "value": 3, "unit": "V"})["fields"]
    [{'name': 'value', 'type': 'float64'}, {'name': 'unit', 'type': 'string'}]
    """
    kinds = {bool: "bool", int: "float64", float: "float64", str: "string"}
    fields = []
    for field, value in row.items():
        if field in (TIME, CHANNEL):
            continue
        if type(value) not in kinds:
            raise InvalidError(
                f"no class follows from field {field!r}, which is {_short(value)}; give the class"
            )
        fields.append({"name": field, "type": kinds[type(value)]})
    if not fields:
        raise InvalidError("no class follows from a value without fields; give at least 'value'")
    return {"name": name, "fields": fields}


def _converted(
    values: Sequence[Any],
    convert: Callable[[Sequence[Any]], Values],
    convert_one: Callable[[Any], Any],
    kind: Any,
    name: str,
    wrong: dict[int, str],
) -> Values:
    """Return a column as an array, and add the positions of values that do not fit, with the reasons."""
    if not len(values):
        return np.zeros(0, kind)
    try:
        return convert(values)
    except (ValueError, TypeError, OverflowError, KeyError):
        pass
    found = np.zeros(len(values), kind)
    for position, value in enumerate(values):
        try:
            found[position] = convert_one(value)
        except (ValueError, TypeError, OverflowError) as error:
            reason = str(error) if isinstance(error, InvalidError) else f"{_short(value)} does not fit"
            wrong.setdefault(position, f"{name}: {reason}")
    return found


def _converters(node: Node) -> tuple[Callable[[Sequence[Any]], Values], Callable[[Any], Any], Any]:
    """Return how a column of a type is converted, how one value is, and the type in NumPy."""
    if isinstance(node, String):
        return _texts, _text, object
    assert isinstance(node, Primitive)
    kind = node.dtype
    if kind.kind == "b":
        return _truths, _truth, kind
    return (lambda values: _numbers(values, kind)), (lambda value: _number(value, kind)), kind


def _texts(values: Sequence[Any]) -> Values:
    if set(map(type, values)) != {str}:
        raise ValueError("a text of another type")
    return np.array(values, object)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidError(f"{_short(value)} is not a string")
    return value


def _truths(values: Sequence[Any]) -> Values:
    if set(map(type, values)) != {bool}:
        raise ValueError("a truth value of another type")
    return np.array(values, bool)


def _truth(value: Any) -> bool:
    found = value if isinstance(value, bool) else TRUTHS.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidError(f"{_short(value)} is not a truth value")
    return found


def _numbers(values: Sequence[Any], kind: np.dtype[Any]) -> Values:
    types = set(map(type, values))
    is_real = kind.kind == "f"
    if types == {str}:
        values = list(map(float if is_real else int, _plain_numbers(values)))
    elif not types <= ({int, float} if is_real else {int}):
        raise ValueError("a number of another type")
    if not is_real:
        return np.array(values, kind)
    found = np.array(values, np.float64)
    if kind != np.float64:
        if (np.isfinite(found) & (np.abs(found) > np.finfo(kind).max)).any():
            raise OverflowError(f"a number is out of the range of {kind}")
        found = found.astype(kind)
    return found


def _number(value: Any, kind: np.dtype[Any]) -> Any:
    try:
        is_whole = kind.kind != "f" and type(value) is float and value.is_integer()
        return _numbers([int(value) if is_whole else value], kind)[0]
    except (ValueError, TypeError, OverflowError):
        raise InvalidError(f"{_short(value)} is not a number of type {kind}") from None


def _plain_numbers(values: Sequence[str]) -> Sequence[str]:
    """Return texts; refuse those that are numbers only in Python's source code, such as 1_000."""
    if "_" in "".join(values):
        raise ValueError("a text is not a number")
    return values


def _iso_moments(texts: list[str], count: int) -> Values:
    """Return times in ISO 8601, without their zone, which is UTC. All have to have it."""
    if len(texts) != count:
        raise ValueError("a time has another zone")
    array = np.array(texts)
    years = array.astype("U4")
    if min(map(len, texts)) < 19 or (years < YEARS[0]).any() or (years >= YEARS[1]).any():
        raise ValueError("a time is too short, or out of range")
    moments: Values = array.astype("datetime64[ns]").view(np.int64)
    return moments


def _scaled(times: Values, scale: int) -> Values:
    """Return times in nanoseconds, from real numbers in a larger unit."""
    whole = np.floor(times)
    if not (np.abs(whole) < FOREVER // scale).all():
        raise InvalidError("the time is out of range: the clock has 64 bits of nanoseconds since 1970")
    moments: Values = whole.astype(np.int64) * scale + np.rint((times - whole) * scale).astype(np.int64)
    return moments


def _below_forever(moments: Values) -> Values:
    if int(moments.max()) >= FOREVER:
        raise OverflowError("a time is out of range")
    return moments


def _below_forever_one(moment: int) -> int:
    if not BEGINNING <= moment < FOREVER:
        raise InvalidError(f"{moment} is out of range: the clock has 64 bits of nanoseconds since 1970")
    return moment


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

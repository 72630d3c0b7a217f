"""Typed values of a TOML file; errors name the file, the table and the key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from femtobarn import InvalidError

__all__ = ["Parser", "parse_size", "suggestion"]

_MISSING: Any = object()

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}


class Parser:
    """A table of a TOML file. Keys that were never asked for are an error at :meth:`end`."""

    def __init__(self, where: str, table: Any) -> None:
        if not isinstance(table, Mapping):
            raise InvalidError(f"{where} must be a table, not {table!r}")
        self.where = where
        self._table = table
        self._asked: set[str] = set()

    def names(self) -> list[str]:
        """Return all keys."""
        return list(self._table)

    def everything(self) -> dict[str, Any]:
        """Return the whole table without checks."""
        self._asked |= set(self._table)
        return dict(self._table)

    def some(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of the given keys that are present, without checks."""
        self._asked |= set(names)
        return {name: self._table[name] for name in names if name in self._table}

    def text(self, name: str, default: str = _MISSING) -> str:
        """Return a text."""
        return str(self._get(name, default, str, "text"))

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of some words; the first is the default."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise InvalidError(f"{self.where}: {name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        return bool(self._get(name, default, bool, "true or false"))

    def number(self, name: str, default: float = _MISSING, *, above: float | None = None) -> float:
        """Return a number that is at least 0, and larger than `above` if that is given."""
        value = float(self._get(name, default, (int, float), "a number"))
        if value < 0 or (above is not None and value <= above):
            least = "at least 0" if above is None else f"above {above:g}"
            raise InvalidError(f"{self.where}: {name} must be {least}, not {value:g}")
        return value

    def whole(self, name: str, default: int = _MISSING, *, least: int = 0) -> int:
        """Return a whole number."""
        value = int(self._get(name, default, int, "a whole number"))
        if value < least:
            raise InvalidError(f"{self.where}: {name} must be at least {least}, not {value}")
        return value

    def size(self, name: str, default: int = _MISSING) -> int:
        """Return bytes, given as a number or as ``"64 KiB"``."""
        value = self._get(name, default, (int, str), 'bytes, such as 1000 or "64 KiB"')
        if isinstance(value, str):
            return parse_size(value)
        if value < 0:
            raise InvalidError(f"{self.where}: {name} must be at least 0, not {value}")
        return int(value)

    def wholes(self, name: str) -> list[int]:
        """Return whole numbers, ascending, each at least 1."""
        values = self._get(name, _MISSING, list, "a list of whole numbers")
        good = all(isinstance(value, int) and value > 0 for value in values)
        if not (values and good and values == sorted(set(values))):
            raise InvalidError(
                f"{self.where}: {name} must be a list of ascending numbers from 1 on, not {values}"
            )
        return list(values)

    def numbers(self, name: str) -> list[float]:
        """Return numbers, ascending, each above 0."""
        values = self._get(name, _MISSING, list, "a list of numbers")
        good = all(isinstance(value, int | float) and value > 0 for value in values)
        if not (values and good and values == sorted(set(values))):
            raise InvalidError(
                f"{self.where}: {name} must be a list of ascending numbers above 0, not {values}"
            )
        return [float(value) for value in values]

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty if the key is absent."""
        values = self._get(name, [], list, "a list of texts")
        if not all(isinstance(value, str) for value in values):
            raise InvalidError(f"{self.where}: {name} must be a list of strings, not {values}")
        return list(values)

    def table(self, name: str) -> Parser:
        """Return a table inside this one, empty if the key is absent."""
        return Parser(f"{self.where}, {name}", self._get(name, {}, Mapping, "a table"))

    def tables(self, name: str) -> list[Parser]:
        """Return a list of tables, empty if the key is absent."""
        values = self._get(name, [], list, "a list of tables")
        return [Parser(f"{self.where}, {name} {number}", value) for number, value in enumerate(values, 1)]

    def end(self) -> None:
        """Refuse keys that were never asked for.

        Raises
        ------
        InvalidError
            If there is one; the text names the closest known key.
        """
        for name in self._table:
            if name not in self._asked:
                raise InvalidError(f"{self.where}: unknown key {name!r}{suggestion(name, self._asked)}")

    def _get(self, name: str, default: Any, kind: Any, what: str) -> Any:
        self._asked.add(name)
        value = self._table.get(name, default)
        if value is _MISSING:
            raise InvalidError(f"{self.where} lacks {name}")
        wrong = isinstance(value, bool) and kind is not bool
        if wrong or not isinstance(value, kind):
            raise InvalidError(f"{self.where}: {name} must be {what}, not {value!r}")
        return value


def parse_size(text: str) -> int:
    """Return the number of bytes that a text gives.

    Examples
    --------
    >>> parse_size("64 MB"), parse_size("1 MiB"), parse_size("500 kB")
    (64000000, 1048576, 500000)
    """
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmg]i?|)b?\s*", text.lower())
    if match is None:
        raise InvalidError(f'invalid size {text!r}: write a number and a unit, such as "64 MB" or "64 KiB"')
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < 1:
        raise InvalidError(f"invalid size {text!r}: must be at least one byte")
    return size


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error text that names the candidates closest to an unknown name.

    Examples
    --------
    >>> suggestion("clinets", ["clients", "steps"])
    "; did you mean 'clients'?"
    >>> suggestion("x", ["clients", "steps"])
    '; there are clients, steps'
    """
    known = sorted(set(candidates))
    spelling = {each.lower(): each for each in known}
    close = [spelling[each] for each in difflib.get_close_matches(name.lower(), spelling)]
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if not known:
        return "; there are none"
    return f"; there {'is' if len(known) == 1 else 'are'} {', '.join(known)}"

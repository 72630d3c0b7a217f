"""Readings from text: JSON lines, CSV, and messages whose payload is a number or a JSON object."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from .._exceptions import InvalidError
from .readings import CHANNEL, TIME, Problem, ReadingForm, Readings

__all__ = ["CsvLines", "JsonLines", "LineParser", "messages_to_readings", "row_of_message"]

SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""Reads a JSON value at a position; returns it, and the position after it."""

Result = tuple[Readings, list[Problem]]


class LineParser(Protocol):
    """A parser of lines in one format."""

    def first_row(self, lines: Sequence[str]) -> dict[str, Any] | None:
        """Return a well-formed row, from which the class of a new series follows; None if there is none."""

    def parse(self, lines: list[str], numbers: Sequence[int], form: ReadingForm) -> Result:
        """Return the readings of lines, none of them empty, and the problems."""


class JsonLines:
    """Lines of which each has a JSON object, such as ``{"time": 17, "channel": 3, "value": 1.5}``."""

    def first_row(self, lines: Sequence[str]) -> dict[str, Any] | None:
        """Return the first object."""
        for line in lines:
            row = _json_or_none(line)
            if isinstance(row, dict):
                return row
        return None

    def parse(self, lines: list[str], numbers: Sequence[int], form: ReadingForm) -> Result:
        """Return the readings of lines, and the problems."""
        try:
            scanned = [SCAN(line, 0) for line in lines]
        except (StopIteration, ValueError, RecursionError):
            return self._parse_each(lines, numbers, form)
        rows, ends = zip(*scanned, strict=True)
        if list(ends) != list(map(len, lines)):
            return self._parse_each(lines, numbers, form)
        return rows_to_readings(rows, numbers, form)

    def _parse_each(self, lines: list[str], numbers: Sequence[int], form: ReadingForm) -> Result:
        rows = list(map(_json_or_none, lines))
        malformed = [
            Problem(number, "it is not a JSON object")
            for number, row in zip(numbers, rows, strict=True)
            if row is None
        ]
        kept = [(number, row) for number, row in zip(numbers, rows, strict=True) if row is not None]
        readings, problems = rows_to_readings([row for _, row in kept], [number for number, _ in kept], form)
        return readings, sorted(malformed + problems)


class CsvLines:
    """Lines with values between commas; the first line has the names."""

    def __init__(self) -> None:
        self.head: list[str] | None = None

    def first_row(self, lines: Sequence[str]) -> dict[str, Any] | None:
        """Return the first line after the head, with numbers where texts are numbers."""
        head = _cells(lines[0])
        cells = [_cells(line) for line in lines[1:]]
        found = next((row for row in cells if len(row) == len(head)), None)
        if found is None:
            return None
        return {name: _guessed(cell) for name, cell in zip(head, found, strict=True)}

    def parse(self, lines: list[str], numbers: Sequence[int], form: ReadingForm) -> Result:
        """Return the readings of lines, and the problems."""
        if self.head is None:
            self.head = self._checked_head(_cells(lines[0]), form)
            lines, numbers = lines[1:], numbers[1:]
        width = len(self.head)
        split: Callable[[str], list[str]] = _cells if any('"' in line for line in lines) else _split
        rows = list(map(split, lines))
        problems: list[Problem] = []
        if set(map(len, rows)) - {width}:
            sizes = zip(numbers, rows, strict=True)
            problems = [
                Problem(number, f"it has {len(row)} values, not {width}")
                for number, row in sizes
                if len(row) != width
            ]
            kept = [position for position, row in enumerate(rows) if len(row) == width]
            rows, numbers = [rows[each] for each in kept], [numbers[each] for each in kept]
        columns: dict[str, Sequence[Any]] = dict(zip(self.head, zip(*rows, strict=True), strict=False))
        columns = {name: columns.get(name, ()) for name in self.head}
        columns.setdefault(CHANNEL, [form.channel] * len(rows))
        readings, more = form.readings(columns, numbers)
        return readings, sorted(problems + more)

    def _checked_head(self, head: list[str], form: ReadingForm) -> list[str]:
        fault = form.fault_of(dict.fromkeys(head))
        if fault is not None or len(set(head)) < len(head):
            raise InvalidError(
                f"the first line of the CSV must have the names {','.join(form.names)}, in any order; "
                f"{fault or 'a name occurs twice'}"
            )
        return head


def rows_to_readings(rows: Sequence[Any], numbers: Sequence[int], form: ReadingForm) -> Result:
    """Return the readings of JSON values, and the problems."""
    try:
        if set(map(type, rows)) <= {dict} and sum(map(len, rows)) == len(rows) * len(form.names):
            parts = list(zip(*map(itemgetter(*form.names), rows), strict=True))
            return form.readings(dict(zip(form.names, parts or [()] * len(form.names), strict=True)), numbers)
    except KeyError:
        pass
    faults = [form.fault_of(row) for row in rows]
    named = zip(numbers, faults, strict=True)
    problems = [Problem(number, fault) for number, fault in named if fault is not None]
    kept = [position for position, fault in enumerate(faults) if fault is None]
    columns = {name: [rows[each].get(name, form.channel) for each in kept] for name in form.names}
    readings, more = form.readings(columns, [numbers[each] for each in kept])
    return readings, sorted(problems + more)


def messages_to_readings(rows: Sequence[Any], numbers: Sequence[int], form: ReadingForm) -> Result:
    """Return the readings of messages, from :func:`row_of_message`; a None is a payload that is not JSON."""
    problems = [
        Problem(number, "its payload is neither a number nor a JSON object")
        for number, row in zip(numbers, rows, strict=True)
        if row is None
    ]
    kept = [position for position, row in enumerate(rows) if row is not None]
    readings, more = rows_to_readings([rows[each] for each in kept], [numbers[each] for each in kept], form)
    return readings, sorted(problems + more)


def row_of_message(channel: str, payload: bytes, arrival: int) -> dict[str, Any] | None:
    """Return a message as a row; values that the payload lacks follow from the topic and the time of arrival.

    Examples
    --------
    >>> row_of_message("sector7", b"1350.5", 17)
    {'time': 17, 'channel': 'sector7', 'value': 1350.5}
    >>> row_of_message("sector7", b'{"time": 3, "value": 1}', 17)
    {'time': 3, 'channel': 'sector7', 'value': 1}
    """
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    around: Mapping[str, Any] = {TIME: arrival, CHANNEL: channel}
    if isinstance(value, dict):
        return {**around, **value}
    return {**around, "value": value} if type(value) in (bool, int, float) else None


def _json_or_none(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _split(line: str) -> list[str]:
    return line.split(",")


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _guessed(cell: str) -> Any:
    if cell in ("true", "false"):
        return cell == "true"
    try:
        return float(cell)
    except ValueError:
        return cell

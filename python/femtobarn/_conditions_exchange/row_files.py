"""CSV and JSON lines: a condition in each row.

Its columns are ``since``, ``until``, ``channel`` and the fields of its class.
Times are texts in ISO 8601 or integers of nanoseconds; runs are ``RUN:BLOCK`` or runs alone. An empty
``until``, or none, is forever. A line of JSON with ``series`` and ``class`` begins a series; it is followed
by its conditions. Without such a line, and in CSV, the caller names the series, and gives the class or has it
inferred.
"""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._conditions.clocks import BEGINNING, FOREVER, bound_of, moment_of, shown
from .._conditions.payloads import LinkedPayload, Payload
from .._exceptions import CorruptError, InvalidError, NotFoundError
from .._schema.classes import definition_of
from .._schema.types import Definition
from .checksums import check_sum
from .json_values import from_json, from_text, inferred
from .sources import Options, Rows, SourceSeries, SourceTag, wanted

__all__ = ["VALIDITY", "RowFileSource", "moment_from", "series_of", "text_moment"]

VALIDITY = ("since", "until", "channel")
ENDS = {"beginning": BEGINNING, "forever": FOREVER, "": FOREVER, None: FOREVER}
INTEGER = re.compile(r"-?\d+")
DIGITS_MAX = 20
"""Digits of an integer of 64 bits, with its sign. Python refuses to read some thousands."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|nan)", re.IGNORECASE)


class RowFileSource:
    """A file of rows."""

    system = "rows"

    def __init__(self, path: str, options: Options, *, is_csv: bool) -> None:
        if not Path(path).is_file():
            raise NotFoundError(f"there is no file {path}")
        self.location = str(Path(path).resolve())
        self._path = path
        self._options = options
        self._is_csv = is_csv
        self._lines: dict[str, int] = {}

    def series(self) -> list[SourceSeries]:
        """Return the series of the file."""
        found = [self._csv_series()] if self._is_csv else self._json_series()
        names = wanted((each.tag for each in found), self._options.only, self._path)
        return [each for each in found if each.tag in names]

    def global_tags(self) -> list[SourceTag]:
        """Return no global tags: rows have none."""
        return []

    # ---- CSV

    def _csv_series(self) -> SourceSeries:
        with Path(self._path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="", strict=True)
            try:
                names = list(reader.fieldnames or [])
            except (csv.Error, UnicodeDecodeError) as error:
                raise CorruptError(f"{self._path}, line 1: {error}") from None
            if "since" not in names or len(set(names)) < len(names):
                raise CorruptError(
                    f"{self._path}: the first line must have the names of columns, each once, and one "
                    "must be 'since'"
                )
            try:
                rows = [(reader.line_num, row) for row in reader]
            except (csv.Error, UnicodeDecodeError) as error:
                raise CorruptError(f"{self._path}, line {reader.line_num}: {error}") from None
        for line, row in rows:
            if "" in row or None in row.values():
                raise CorruptError(f"{self._path}, line {line}: it does not have {len(names)} cells")
        definition = self._options.definition
        fields = [name for name in names if name not in VALIDITY]
        if definition is None:
            cells = [{name: _guess(row[name]) for name in fields} for _, row in rows]
            definition = inferred(_unmixed(cells, rows, fields), self._class_name(), self._path)
        values = [
            (line, {**row, **_converted(row, definition, f"{self._path}, line {line}")}) for line, row in rows
        ]
        return self._series(self._header({}), values, definition)

    # ---- JSON lines

    def _json_series(self) -> list[SourceSeries]:
        headers: list[dict[str, Any]] = []
        groups: list[list[tuple[int, dict[str, Any]]]] = []
        for line, offset, row in self._json_lines():
            if "class" in row and "since" not in row:
                headers.append(row)
                groups.append([])
                continue
            if not groups:
                headers.append({})
                groups.append([])
            if isinstance(row.get("payload"), dict) and "data" in row["payload"]:
                row["payload"] = self._payload_key(row, offset, f"{self._path}, line {line}")
            groups[-1].append((line, row))
        return [self._json_group(header, rows) for header, rows in zip(headers, groups, strict=True)]

    def _json_lines(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the number of each line, its offset, and its object."""
        with Path(self._path).open("rb") as file:
            offset = 0
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        row = json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise CorruptError(f"{self._path}, line {number}: not JSON: {error}") from None
                    if not isinstance(row, dict):
                        raise CorruptError(f"{self._path}, line {number}: not an object of JSON")
                    yield number, offset, row
                offset += len(line)

    def _json_group(self, header: dict[str, Any], rows: list[tuple[int, dict[str, Any]]]) -> SourceSeries:
        header = self._header(header)
        if header["class"]:
            definition = Definition.from_json(header["class"])
            if definition.name == definition_of(LinkedPayload).name:
                return self._series(header, rows, None)
        else:
            fields = [{name: row[name] for name in row if name not in VALIDITY} for _, row in rows]
            definition = self._options.definition or inferred(fields, self._class_name(), self._path)
        record = definition.record
        values = [
            (line, {**row, **from_json(row, record, f"{self._path}, line {line}")}) for line, row in rows
        ]
        return self._series(header, values, definition)

    def _payload_key(self, row: dict[str, Any], offset: int, place: str) -> str:
        payload = row["payload"]
        if not isinstance(payload.get("sha256"), str):
            raise CorruptError(f"{place}: the payload has no sha256")
        key = f"{row.get('source_hash') or payload['sha256']} {payload['sha256']} {payload.get('name')}"
        self._lines.setdefault(key, offset)
        return key

    def payload(self, key: str) -> Payload:
        """Return the payload of a line, checked."""
        with Path(self._path).open("rb") as file:
            file.seek(self._lines[key])
            form = json.loads(file.readline())["payload"]
        try:
            data = base64.b64decode(form["data"], validate=True)
        except ValueError:
            raise CorruptError(f"{self._path}: payload {key} is not base64") from None
        check_sum(data, form["sha256"], f"{self._path}: payload {key}")
        texts = {name: str(form.get(name, "")) for name in ("name", "media_type", "details")}
        return Payload.from_bytes(data, **texts)

    # ---- both

    def _header(self, header: dict[str, Any]) -> dict[str, Any]:
        options = self._options
        series = header.get("series") or options.series
        if series is None:
            raise InvalidError(f"{self._path} does not name a series; name one, such as tpc/gain (--series)")
        return {
            "series": series,
            "class": header.get("class") or {},
            "clock": options.clock or header.get("clock") or "time",
            "overlap": options.overlap or header.get("overlap") or "newest",
        }

    def _class_name(self) -> str:
        words = re.split(r"\W|_", (self._options.series or "Condition").rpartition("/")[2])
        name = "".join(word[:1].upper() + word[1:] for word in words)
        return name if name[:1].isalpha() else f"Condition{name}"

    def _series(
        self, header: dict[str, Any], rows: list[tuple[int, dict[str, Any]]], definition: Definition | None
    ) -> SourceSeries:
        made = series_of(header, definition, self._path)
        for line, row in rows:
            place = f"{self._path}, line {line}"
            since = moment_from(row.get("since"), made.clock, place, is_begin=True)
            until = moment_from(row.get("until"), made.clock, place)
            if until <= since:
                raise CorruptError(f"{place}: the validity from {since} to {until} ends before it begins")
            value = row.get("payload") if definition is None else row
            if definition is None and not isinstance(value, str):
                raise CorruptError(f"{place}: it has no payload")
            made.rows.add(since, until, value, _channel(row.get("channel"), place))
        return made


def series_of(header: dict[str, Any], definition: Definition | None, place: str) -> SourceSeries:
    """Return a series without conditions, from its path, clock and rule of overlaps."""
    database, slash, container = str(header["series"]).partition("/")
    if not slash or header["clock"] not in ("time", "run"):
        raise CorruptError(
            f"{place}: {header['series']!r} on clock {header['clock']!r} is not a series; its path is "
            "such as tpc/gain, "
            "its clock is time or run"
        )
    if header["overlap"] not in ("newest", "open", "refuse"):
        raise CorruptError(f"{place}: overlap {header['overlap']!r} is neither newest nor open nor refuse")
    return SourceSeries(
        str(header["series"]), container, header["clock"], header["overlap"], Rows(), definition, database
    )


def text_moment(moment: int, clock: str) -> str | int:
    """Return a moment as text that :func:`moment_from` reads without loss."""
    text = shown(moment, clock)
    return moment if text.endswith(" ns") else text


def moment_from(value: Any, clock: str, place: str, *, is_begin: bool = False) -> int:
    """Return the moment that a text or an integer stands for."""
    if isinstance(value, str | None) and value in ENDS and not (is_begin and value in ("", None)):
        return ENDS[value]
    try:
        if clock == "run" and isinstance(value, str):
            run, _, block = value.partition(":")
            return moment_of((int(run), int(block or 0)), clock)
        if isinstance(value, str) and INTEGER.fullmatch(value):
            value = int(value)
        return bound_of(tuple(value) if isinstance(value, list) else value, clock)
    except (InvalidError, ValueError) as error:
        raise CorruptError(f"{place}: {error}") from None


def _channel(value: Any, place: str) -> int:
    if value in (None, ""):
        return 0
    is_integer = (isinstance(value, str) and INTEGER.fullmatch(value)) or type(value) is int
    if is_integer and len(str(value)) <= DIGITS_MAX:
        return int(value)
    raise CorruptError(f"{place}: channel {str(value)[:40]!r} is not an integer of 64 bits")


def _guess(text: str) -> Any:
    """Return the value that a cell looks like."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if INTEGER.fullmatch(text):
        return int(text) if len(text) <= DIGITS_MAX else text
    if NUMBER.fullmatch(text):
        return float(text)
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _unmixed(
    cells: list[dict[str, Any]], rows: list[tuple[int, dict[str, str]]], fields: list[str]
) -> list[dict[str, Any]]:
    """Return cells, as texts in those columns in which some look like texts and others do not."""
    for field in fields:
        kinds = {type(each[field]) for each in cells}
        if len(kinds) > 1 and not kinds <= {int, float}:
            for each, (_, row) in zip(cells, rows, strict=True):
                each[field] = row[field]
    return cells


def _converted(row: dict[str, str], definition: Definition, place: str) -> dict[str, Any]:
    missing = [name for name in definition.record.by_name if name not in row]
    if missing:
        raise CorruptError(f"{place}: there is no column {', '.join(missing)}")
    return {
        name: from_text(row[name], node, f"{place}, column {name}")
        for name, node in definition.record.by_name.items()
    }

"""The SQLite files that exports write and imports read.

Tables: ``series``; ``iov``, the resolved validities, without overlaps; ``value``, the conditions as JSON;
``payload``, bytes; ``global_tag``. A view for each series, named by its path, shows its conditions with a
column for each field.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from .._conditions.payloads import LinkedPayload, Payload
from .._exceptions import CorruptError
from .._schema.classes import definition_of
from .._schema.types import Definition
from .checksums import check_sum
from .json_values import from_json
from .row_files import series_of
from .sources import Options, SourceSeries, SourceTag, wanted
from .sqlite_files import application_of, require_columns

__all__ = ["APPLICATION", "SCHEMA", "SqliteExport"]

APPLICATION = 0x46454D43
"""FEMC."""

VERSION = 1

SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE series (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, class TEXT NOT NULL, clock TEXT NOT NULL,
    overlap TEXT NOT NULL, csn INTEGER NOT NULL);
CREATE TABLE value (
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL REFERENCES series (id), condition TEXT NOT NULL);
CREATE TABLE iov (
    series INTEGER NOT NULL REFERENCES series (id), channel INTEGER NOT NULL, since INTEGER NOT NULL,
    until INTEGER NOT NULL, since_text TEXT NOT NULL, until_text TEXT NOT NULL,
    value INTEGER NOT NULL REFERENCES value (id), PRIMARY KEY (series, channel, since)) WITHOUT ROWID;
CREATE TABLE payload (
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, name TEXT NOT NULL, media_type TEXT NOT NULL,
    details TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE global_tag (name TEXT PRIMARY KEY, message TEXT NOT NULL);
"""

TABLES = {
    "series": ("id", "path", "class", "clock", "overlap"),
    "iov": ("series", "channel", "since", "until", "value"),
    "value": ("id", "condition"),
    "payload": ("id", "sha256", "name", "media_type", "details", "data"),
    "global_tag": ("name", "message"),
}


class SqliteExport:
    """An SQLite file of an export that is open for reading."""

    system = "export"

    def __init__(self, connection: sqlite3.Connection, path: str, options: Options) -> None:
        if application_of(connection) != (APPLICATION, VERSION):
            raise CorruptError(f"{path} was not exported by this version of Femtobarn")
        require_columns(connection, TABLES, path, "an export of conditions")
        self.location = str(Path(path).resolve())
        self._connection = connection
        self._path = path
        self._options = options

    def series(self) -> list[SourceSeries]:
        """Return the series of the file."""
        rows = self._connection.execute(
            "SELECT path, id, class, clock, overlap FROM series ORDER BY path"
        ).fetchall()
        known = {path: facts for path, *facts in rows}
        return [self._series(path, *known[path]) for path in wanted(known, self._options.only, self._path)]

    def _series(self, path: str, number: int, form: str, clock: str, overlap: str) -> SourceSeries:
        definition = Definition.from_json(form)
        is_linked = definition.name == definition_of(LinkedPayload).name
        header = {"series": path, "clock": clock, "overlap": overlap}
        made = series_of(header, None if is_linked else definition, self._path)
        found = self._connection.execute(
            "SELECT channel, since, until, value, condition FROM iov LEFT JOIN value ON value.id = iov.value "
            "WHERE iov.series = ? ORDER BY channel, since",
            (number,),
        )
        for channel, since, until, value, condition in found:
            place = f"{self._path}: condition of {path} in channel {channel} since {since}"
            if condition is None:
                raise CorruptError(f"{place}: table value has no row {value}")
            if until <= since:
                raise CorruptError(f"{place}: it ends before it begins")
            made.rows.add(since, until, self._value(condition, definition, is_linked, place), channel)
        return made

    def _value(self, condition: str, definition: Definition, is_linked: bool, place: str) -> Any:
        try:
            form = json.loads(condition)
        except (ValueError, RecursionError, TypeError):
            raise CorruptError(f"{place}: its value is not JSON") from None
        if not is_linked:
            return from_json(form, definition.record, place)
        row = self._connection.execute(
            "SELECT sha256 FROM payload WHERE id = ?", (form.get("payload"),)
        ).fetchone()
        if row is None:
            raise CorruptError(f"{place}: table payload has no row {form.get('payload')}")
        return f"{form.get('source_hash') or row[0]} {form['payload']}"

    def global_tags(self) -> list[SourceTag]:
        """Return the global tag of the export, if it had one, with all of its series."""
        if self._options.only:
            return []
        paths = [path for (path,) in self._connection.execute("SELECT path FROM series")]
        rows = self._connection.execute("SELECT name, message FROM global_tag").fetchall()
        return [SourceTag(name, {path: path for path in paths}, "open", message) for name, message in rows]

    def payload(self, key: str) -> Payload:
        """Return the payload with a number, checked."""
        number = key.rpartition(" ")[2]
        sha256, name, media_type, details, data = self._connection.execute(
            "SELECT sha256, name, media_type, details, data FROM payload WHERE id = ?", (number,)
        ).fetchone()
        check_sum(data, sha256, f"{self._path}: row {number} of payload")
        return Payload.from_bytes(data, name=name, media_type=media_type, details=details)

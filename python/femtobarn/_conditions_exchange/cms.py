"""SQLite files of the conditions database of CMS: tables TAG, IOV and PAYLOAD, and those of global tags.

A tag becomes a series with ``overlap="open"``. Of several rows with one tag and one since, the one that was
inserted last counts, as for CMS. The hash of a payload is the SHA-1 of the name of its class and its bytes.

Times: ``Time`` has seconds since 1970 in the upper 32 bits and nanoseconds in the lower, ``Run`` has run
numbers, and ``Lumi`` has a run in the upper 32 bits and a luminosity block in the lower, as we have.
"""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any, Literal

from .._conditions.clocks import FOREVER, RUN_MAX
from .._conditions.payloads import Payload
from .._exceptions import CorruptError, InvalidError
from .sources import Options, Rows, SourceSeries, SourceTag, checked_run, container_name, wanted
from .sqlite_files import columns_by_table, require_columns

__all__ = ["CmsSource"]

TABLES = {
    "TAG": ("NAME", "TIME_TYPE", "END_OF_VALIDITY"),
    "IOV": ("TAG_NAME", "SINCE", "PAYLOAD_HASH", "INSERTION_TIME"),
    "PAYLOAD": ("HASH", "OBJECT_TYPE", "DATA"),
}
CLOCKS: dict[str, Literal["time", "run"]] = {"Time": "time", "Run": "run", "Lumi": "run"}
MASK = 2**64 - 1
HALF = 2**32 - 1


class CmsSource:
    """A CondDB file of CMS that is open for reading."""

    system = "cms"

    def __init__(self, connection: sqlite3.Connection, path: str, options: Options) -> None:
        require_columns(connection, TABLES, path, "a conditions database of CMS")
        self.location = str(Path(path).resolve())
        self._connection = connection
        self._path = path
        self._options = options
        self._has_streamers = "STREAMER_INFO" in columns_by_table(connection)["PAYLOAD"]

    def series(self) -> list[SourceSeries]:
        """Return a series for each tag."""
        rows = self._connection.execute("SELECT NAME, TIME_TYPE, END_OF_VALIDITY FROM TAG ORDER BY NAME")
        tags = {name: (time_type, end) for name, time_type, end in rows}
        return [self._series(tag, *tags[tag]) for tag in wanted(tags, self._options.only, self._path)]

    def _series(self, tag: str, time_type: str, end: Any) -> SourceSeries:
        if time_type not in CLOCKS:
            raise InvalidError(
                f"{self._path}: tag {tag} has time type {time_type!r}, for which there is no clock; name the "
                "tags to import without it"
            )
        limit = self._end(end, time_type, f"{self._path}: END_OF_VALIDITY of tag {tag}")
        rows = Rows()
        previous = None
        for number, since, key in self._iovs(tag):
            place = f"{self._path}: row {number} of IOV, tag {tag}"
            if since == previous:
                continue
            previous = since
            moment = _moment(since, time_type, place)
            if moment < limit:
                rows.add(moment, limit, key)
        return SourceSeries(tag, container_name(tag), CLOCKS[time_type], "open", rows)

    # The column of a TIMESTAMP has numeric affinity: without the cast, every text would be greater.
    def _iovs(self, tag: str) -> list[tuple[int, int, str]]:
        """Return the rows of a tag by since, those inserted last first, each with its number."""
        found = self._connection.execute(
            "SELECT rowid, SINCE, PAYLOAD_HASH FROM IOV "
            "WHERE TAG_NAME = ? AND CAST(INSERTION_TIME AS TEXT) <= ? "
            "ORDER BY SINCE, INSERTION_TIME DESC",
            (tag, self._options.snapshot or "9999"),
        ).fetchall()
        for number, since, _ in found:
            if not isinstance(since, int):
                raise CorruptError(
                    f"{self._path}: row {number} of IOV, tag {tag}: SINCE {since!r} is not an integer"
                )
        return found

    def _end(self, end: Any, time_type: str, place: str) -> int:
        """Return the first moment at which no condition of a tag is valid, from the last at which one is."""
        if not isinstance(end, int) or end <= 0 or end >= 2**63 - 1:
            return FOREVER
        if time_type == "Run":
            return FOREVER if end >= RUN_MAX else checked_run(end + 1, 0, place)
        return min(_moment(end, time_type, place) + 1, FOREVER)

    def global_tags(self) -> list[SourceTag]:
        """Return the global tags whose tags are all imported; they are locked."""
        tables = columns_by_table(self._connection)
        if "GLOBAL_TAG" not in tables or "GLOBAL_TAG_MAP" not in tables or self._options.only:
            return []
        rows = self._connection.execute(
            "SELECT NAME, DESCRIPTION, RELEASE, SNAPSHOT_TIME FROM GLOBAL_TAG ORDER BY NAME"
        ).fetchall()
        found = []
        for name, description, release, snapshot in rows:
            mapped = self._mapped(name)
            self._check_snapshot(name, snapshot)
            parts = [description, release and f"release {release}", snapshot and f"snapshot {snapshot}"]
            found.append(SourceTag(name, mapped, "locked", ", ".join(part for part in parts if part)))
        return found

    def _mapped(self, name: str) -> dict[str, str]:
        """Return the containers of a global tag by record, and label if there is one."""
        existing = {tag for (tag,) in self._connection.execute("SELECT NAME FROM TAG")}
        mapped = {}
        for number, record, label, tag in self._connection.execute(
            "SELECT rowid, RECORD, LABEL, TAG_NAME FROM GLOBAL_TAG_MAP WHERE GLOBAL_TAG_NAME = ?", (name,)
        ):
            if tag not in existing:
                raise CorruptError(
                    f"{self._path}: row {number} of GLOBAL_TAG_MAP: global tag {name} has a tag {tag}, "
                    "which is not "
                    "in TAG"
                )
            mapped[container_name(record if label in ("", "-", None) else f"{record}@{label}")] = (
                container_name(tag)
            )
        return mapped

    def _check_snapshot(self, name: str, snapshot: str | None) -> None:
        """Refuse a global tag that sees other conditions than those that are imported."""
        if not snapshot:
            return
        times = sorted((str(snapshot), self._options.snapshot or "9999"))
        (differing,) = self._connection.execute(
            "SELECT count(*) FROM IOV JOIN GLOBAL_TAG_MAP USING (TAG_NAME) "
            "WHERE GLOBAL_TAG_NAME = ? AND CAST(IOV.INSERTION_TIME AS TEXT) > ? "
            "AND CAST(IOV.INSERTION_TIME AS TEXT) <= ?",
            (name, *times),
        ).fetchone()
        if differing:
            raise InvalidError(
                f"{self._path}: global tag {name} is of {snapshot}, and {differing} conditions of its "
                "tags were "
                f"inserted between then and {self._options.snapshot or 'now'}; import with "
                f"snapshot={str(snapshot)!r} "
                "(--snapshot), or name the tags to import without global tags"
            )

    def payload(self, key: str) -> Payload:
        """Return the payload with a hash, checked."""
        streamers = "STREAMER_INFO" if self._has_streamers else "''"
        row = self._connection.execute(
            f"SELECT OBJECT_TYPE, DATA, {streamers} FROM PAYLOAD WHERE HASH = ?", (key,)
        ).fetchone()
        if row is None:
            (number, tag) = self._connection.execute(
                "SELECT rowid, TAG_NAME FROM IOV WHERE PAYLOAD_HASH = ?", (key,)
            ).fetchone()
            raise CorruptError(
                f"{self._path}: row {number} of IOV, tag {tag}: payload {key} is not in PAYLOAD"
            )
        object_type, data, streamer = row
        data = data.encode() if isinstance(data, str) else data
        found = hashlib.sha1(object_type.encode() + data, usedforsecurity=False).hexdigest()
        if found != key.lower():
            raise CorruptError(
                f"{self._path}: the payload of class {object_type} with hash {key} in PAYLOAD is "
                "damaged: its SHA-1 is "
                f"{found}; copy the tag again"
            )
        details = streamer.decode(errors="replace") if isinstance(streamer, bytes) else str(streamer or "")
        return Payload.from_bytes(data, name=object_type, details=details.replace("\0", ""))


def _moment(value: int, time_type: str, place: str) -> int:
    """Return a time of CMS as a moment of our clock."""
    value &= MASK
    if time_type == "Run":
        return checked_run(value, 0, place)
    if time_type == "Lumi":
        return checked_run(value >> 32, value & HALF, place)
    seconds, nanoseconds = value >> 32, value & HALF
    moment = seconds * 10**9 + nanoseconds
    if nanoseconds >= 10**9:
        raise CorruptError(f"{place}: {value} has {nanoseconds} nanoseconds in its lower 32 bits")
    return moment

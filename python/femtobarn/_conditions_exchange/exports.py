"""Exporting conditions, with their resolved validities, to SQLite, JSON lines or CSV."""

from __future__ import annotations

import base64
import csv
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .._conditions.jobs import Job
from .._conditions.payloads import LinkedPayload, payload_bytes
from .._conditions.series import Interval, Series
from .._exceptions import ExistsError, InvalidError, StorageError, check_progress
from .._schema.classes import definition_of
from .._schema.meanings import json_value
from .._schema.types import List, String
from .json_values import check_exportable, to_json
from .row_files import text_moment
from .sqlite_exports import SCHEMA

__all__ = ["export_conditions"]

BATCH = 5_000
"""Conditions that are read at once."""

SUFFIXES = {
    ".sqlite": "sqlite", ".db": "sqlite", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip

Progress = Callable[[int, int], None]
Ranges = list[tuple[int, Interval]]


def export_conditions(
    job: Job,
    path: str | Path,
    series: Iterable[str] | None = None,
    *,
    format: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Export conditions and their resolved validities to a new file, which :func:`import_conditions` reads.

    Conditions that newer ones hide are left out. A condition that a newer one interrupts has two validities.

    Parameters
    ----------
    job
        The conditions, such as ``fed.conditions("prod-2026")``.
    path
        A file that does not exist. Its suffix determines the format: ``.sqlite`` or ``.db``; ``.json`` or
        ``.jsonl`` for JSON lines; ``.csv`` for one series.
    series
        Paths of series; all of the job if not given.
    format
        ``"sqlite"``, ``"json"`` or ``"csv"``, if the suffix does not determine it.
    progress
        Function that is called with the number of series that are done, and of all.

    Returns
    -------
    int
        Number of validities.

    Raises
    ------
    ExistsError
        If the file exists.
    UnsupportedError
        If the conditions of a series have links.

    Examples
    --------
    >>> import femtobarn as fb, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fed = fb.create(folder / "lhc.fed")
    >>> form = {"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}
    >>> with fed.transaction() as txn:
    ...     oid = txn.series("tpc/gain", form, create=True).put({"value": 1.5}, since="2026-01-01T00:00:00Z")
    >>> fb.export_conditions(fed.conditions(), folder / "gains.csv")
    1
    >>> print((folder / "gains.csv").read_text(), end="")
    since,until,channel,value
    2026-01-01T00:00:00Z,forever,0,1.5
    """
    if progress is not None:
        check_progress(progress, "done, total")
    file, tell = Path(path), progress or (lambda done, total: None)
    chosen = format or SUFFIXES.get(file.suffix.lower())
    if chosen not in WRITERS:
        raise InvalidError(
            f"the name of {file} must end with .sqlite, .json or .csv, or give the format (--format)"
        )
    names = [series] if isinstance(series, str) else list(job if series is None else series)
    wanted = {name: job[name] for name in names}
    for name, each in wanted.items():
        if not _is_linked(each):
            check_exportable(each.definition.record, name)
    return _written(file, lambda partial: WRITERS[chosen](job, partial, wanted, tell))


def _written(file: Path, write: Callable[[Path], int]) -> int:
    """Write a new file, which appears when it is complete."""
    if file.exists():
        raise ExistsError(f"{file} exists; choose another name or remove it")
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        count = write(partial)
        partial.rename(file)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{file} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _is_linked(series: Series) -> bool:
    return series.definition.name == definition_of(LinkedPayload).name


def _ranges(series: Series) -> Ranges:
    """Return the conditions with their resolved validities, by channel and time."""
    return [(channel, one) for channel in series.channels() for one in series.intervals(channel=channel)]


def _with_values(series: Series, ranges: Ranges) -> Iterator[tuple[int, Interval, dict[str, Any]]]:
    """Yield ranges with their conditions in JSON; those with linked payloads have the link."""
    fields = list(series.definition.record.by_name)
    for first in range(0, len(ranges), BATCH):
        part = ranges[first : first + BATCH]
        values = series.fetch([one.entry for _, one in part if one.entry is not None], fields).to_list()
        for (channel, one), value in zip(part, values, strict=True):
            yield channel, one, value if _is_linked(series) else to_json(value)


def _write_csv(job: Job, file: Path, wanted: dict[str, Series], progress: Progress) -> int:
    if len(wanted) != 1:
        raise InvalidError(
            f"CSV has one series in a file, not {len(wanted)}; name one, or export to .sqlite or .json"
        )
    ((path, series),) = wanted.items()
    if _is_linked(series):
        raise InvalidError(f"CSV cannot hold the payloads of {path}; export to .sqlite or .json")
    record = series.definition.record
    ranges = _ranges(series)
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["since", "until", "channel", *record.by_name])
        for channel, one, value in _with_values(series, ranges):
            cells = [_cell(value[name], node) for name, node in record.by_name.items()]
            moments = (text_moment(moment, series.clock) for moment in (one.since, one.until))
            rows.writerow([*moments, channel, *cells])
    progress(1, 1)
    return len(ranges)


def _cell(value: Any, node: Any) -> Any:
    if isinstance(node, String) or (isinstance(node, List) and node.is_bytes) or value is None:
        return value
    return value if isinstance(value, str) else json.dumps(value, default=json_value)


def _write_json(job: Job, file: Path, wanted: dict[str, Series], progress: Progress) -> int:
    count = 0
    with file.open("w", encoding="utf-8") as out:
        for number, (path, series) in enumerate(wanted.items(), 1):
            head = {"series": path, "class": series.definition.to_json()}
            out.write(json.dumps({**head, "clock": series.clock, "overlap": series.overlap}) + "\n")
            for channel, one, value in _with_values(series, _ranges(series)):
                moments = {
                    "since": text_moment(one.since, series.clock),
                    "until": text_moment(one.until, series.clock),
                }
                if _is_linked(series):
                    assert one.entry is not None
                    payload = series.object_at(one.entry).payload
                    texts = {
                        name: getattr(payload, name) for name in ("name", "media_type", "details", "sha256")
                    }
                    data = base64.b64encode(payload_bytes(payload)).decode()
                    value = {"payload": {**texts, "data": data}, "source_hash": value["source_hash"]}
                out.write(json.dumps({**moments, "channel": channel, **value}, default=json_value) + "\n")
                count += 1
            progress(number, len(wanted))
    return count


def _write_sqlite(job: Job, file: Path, wanted: dict[str, Series], progress: Progress) -> int:
    connection = sqlite3.connect(file)
    try:
        connection.executescript(SCHEMA)
        tag = job.global_tag
        if tag is not None:
            connection.execute("INSERT INTO global_tag VALUES (?, ?)", (tag["name"], tag["message"]))
        payloads: dict[tuple[Any, ...], int] = {}
        for number, (path, series) in enumerate(wanted.items(), 1):
            _write_table(connection, number, path, series, payloads)
            progress(number, len(wanted))
        connection.commit()
        (count,) = connection.execute("SELECT count(*) FROM iov").fetchone()
        return int(count)
    finally:
        connection.close()


def _write_table(
    connection: sqlite3.Connection,
    number: int,
    path: str,
    series: Series,
    payloads: dict[tuple[Any, ...], int],
) -> None:
    form = json.dumps(series.definition.to_json())
    connection.execute(
        "INSERT INTO series VALUES (?, ?, ?, ?, ?, ?)",
        (number, path, form, series.clock, series.overlap, series.csn),
    )
    stored: dict[int, int] = {}
    for channel, one, value in _with_values(series, _ranges(series)):
        assert one.entry is not None
        if one.entry not in stored:
            if _is_linked(series):
                value["payload"] = _payload_number(connection, series, one.entry, value["payload"], payloads)
            text = json.dumps(value, default=json_value)
            cursor = connection.execute("INSERT INTO value (series, condition) VALUES (?, ?)", (number, text))
            stored[one.entry] = int(cursor.lastrowid or 0)
        texts = (series.shown(one.since), series.shown(one.until))
        row = (number, channel, one.since, one.until, *texts, stored[one.entry])
        connection.execute("INSERT INTO iov VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    fields = "".join(
        f", json_extract(condition, {_text('$.' + json.dumps(name))}) AS {_name(name)}"
        for name in series.definition.record.by_name
    )
    connection.execute(
        f"CREATE VIEW {_name(path)} AS SELECT channel, since_text AS since, until_text AS until{fields} "
        f"FROM iov JOIN value ON value.id = iov.value WHERE iov.series = {number}"
    )


def _payload_number(
    connection: sqlite3.Connection,
    series: Series,
    entry: int,
    link: dict[str, Any],
    payloads: dict[tuple[Any, ...], int],
) -> int:
    """Return the row of a payload, which is written once."""
    key = tuple(link.values())
    if key not in payloads:
        payload = series.object_at(entry).payload
        row = (payload.sha256, payload.name, payload.media_type, payload.details, payload_bytes(payload))
        cursor = connection.execute(
            "INSERT INTO payload (sha256, name, media_type, details, data) VALUES (?, ?, ?, ?, ?)", row
        )
        payloads[key] = int(cursor.lastrowid or 0)
    return payloads[key]


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


WRITERS: dict[str, Callable[[Job, Path, dict[str, Series], Progress], int]] = {
    "sqlite": _write_sqlite,
    "json": _write_json,
    "csv": _write_csv,
}

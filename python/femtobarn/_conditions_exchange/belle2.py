"""Local databases of Belle II: the SQLite file that ``b2conditionsdb download`` writes, and its payloads.

A series has the conditions of one payload name in one global tag. Experiment and run are the two numbers of
the clock ``run``: the experiment is the run number, and the run is the luminosity block. So ``at((12,
4300))`` asks for run 4300 of experiment 12. Validities contain their last run; a negative last run stands for
all runs of the experiment, a negative last experiment for no end. Of two payloads that are valid the one with
the higher revision counts, so they are put in the order of revisions with ``overlap="newest"``.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from .._conditions.clocks import FOREVER
from .._conditions.global_tags import State
from .._conditions.payloads import Payload
from .._exceptions import CorruptError, InvalidError, NotFoundError
from .checksums import check_sum
from .sources import Options, Rows, SourceSeries, SourceTag, checked_run, container_name, run_end, wanted
from .sqlite_files import application_of, require_columns

__all__ = ["APPLICATION", "Belle2Source"]

APPLICATION = 0xB2CDB
SCHEMA = 1

TABLES = {
    "globaltags": ("globalTagName", "globalTagStatus"),
    "iov_payloads": (
        "globalTagName",
        "payloadName",
        "revision",
        "checksum",
        "firstExp",
        "firstRun",
        "finalExp",
        "finalRun",
        "payloadUrl",
    ),
}

STATES: dict[str, State] = {"PUBLISHED": "frozen", "VALIDATED": "locked", "INVALID": "locked"}
"""Our states of global tags; all others are open."""

IOVS = (
    "SELECT payloadName, revision, checksum, payloadUrl, firstExp, firstRun, finalExp, finalRun FROM "
    "iov_payloads "
    "WHERE globalTagName = ? ORDER BY payloadName, revision, firstExp, firstRun, finalExp, finalRun"
)


class Belle2Source:
    """A local database of Belle II that is open for reading."""

    system = "belle2"

    def __init__(self, connection: sqlite3.Connection, path: str, options: Options) -> None:
        if application_of(connection) != (APPLICATION, SCHEMA):
            raise InvalidError(
                f"{path} is not a local database of Belle II with schema {SCHEMA}: its application and "
                "schema are "
                f"{application_of(connection)}"
            )
        require_columns(connection, TABLES, path, "a local database of Belle II")
        self.location = str(Path(path).resolve())
        self._connection = connection
        self._path = path
        self._options = options
        self._folder = Path(options.payloads or Path(path).parent)
        self._files: dict[str, tuple[str, int, str]] = {}

    def _tags(self) -> dict[str, str]:
        rows = self._connection.execute(
            "SELECT globalTagName, globalTagStatus FROM globaltags ORDER BY globalTagName"
        )
        states = dict(rows.fetchall())
        return {name: states[name] for name in wanted(states, self._options.only, self._path)}

    def series(self) -> list[SourceSeries]:
        """Return a series for each payload name of each global tag."""
        return [series for tag in self._tags() for series in self._series_of(tag)]

    def _series_of(self, tag: str) -> list[SourceSeries]:
        found: dict[str, SourceSeries] = {}
        for row in self._connection.execute(IOVS, (tag,)):
            name, revision, checksum, url = row[:4]
            place = f"{self._path}: {name} revision {revision} in global tag {tag}, validity {row[4:]}"
            since, until = _validity(row[4:], place)
            if name not in found:
                container = container_name(f"{name}@{tag}")
                found[name] = SourceSeries(f"{tag}/{name}", container, "run", "newest", Rows())
            key = f"{checksum} {name} {revision}"
            found[name].rows.add(since, until, key)
            self._files[key] = name, revision, url
        return list(found.values())

    def global_tags(self) -> list[SourceTag]:
        """Return the global tags, each with its payload names."""
        tags = []
        for tag, status in self._tags().items():
            names = self._connection.execute(
                "SELECT DISTINCT payloadName FROM iov_payloads WHERE globalTagName = ?", (tag,)
            ).fetchall()
            mapped = {container_name(name): container_name(f"{name}@{tag}") for (name,) in names}
            tags.append(SourceTag(tag, mapped, STATES.get(status, "open"), f"{status} at Belle II"))
        return tags

    def payload(self, key: str) -> Payload:
        """Return the payload with a key, from its file."""
        name, revision, url = self._files[key]
        checksum = key.partition(" ")[0]
        if ".." in url.split("/"):
            raise CorruptError(f"{self._path}: the address {url} of a payload leads out of its folder")
        candidates = [
            self._folder / checksum[:2] / f"{name}_r{revision}.root",
            self._folder / f"dbstore_{name}_rev_{revision}.root",
            self._folder / url.lstrip("/"),
        ]
        existing = [path for path in candidates if path.is_file()]
        if not existing:
            raise NotFoundError(
                f"there is no file of payload {name} revision {revision} in {self._folder}, neither "
                f"{' nor '.join(str(path.relative_to(self._folder)) for path in candidates)}; name the "
                "folder of the "
                "payloads (--payloads)"
            )
        damage = None
        for path in existing:
            payload = Payload.from_file(path)
            try:
                check_sum(payload.data, checksum, str(path))
            except CorruptError as error:
                damage = error
            else:
                payload.name, payload.details = name, f"revision {revision}"
                return payload
        assert damage is not None
        raise damage


def _validity(numbers: tuple[int, ...], place: str) -> tuple[int, int]:
    """Return a validity from the first and last experiment and run, which it contains."""
    if not all(isinstance(number, int) for number in numbers):
        raise CorruptError(f"{place}: experiments and runs must be integers")
    first_experiment, first_run, last_experiment, last_run = numbers
    since = checked_run(first_experiment, first_run, place)
    if last_experiment < 0:
        return since, FOREVER
    until = (
        run_end(last_experiment, 2**32 - 1, place)
        if last_run < 0
        else run_end(last_experiment, last_run, place)
    )
    if until <= since:
        raise CorruptError(f"{place}: it ends before it begins")
    return since, until

"""The reader of a source, chosen by the given format or by the kind of the file."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._exceptions import InvalidError, NotFoundError
from . import belle2, sqlite_exports
from .belle2 import Belle2Source
from .cms import CmsSource
from .crest import CrestSource
from .nopayloaddb import NopayloaddbSource
from .row_files import RowFileSource
from .sources import FORMATS, Format, Options, Source, kinds_checked
from .sqlite_exports import SqliteExport
from .sqlite_files import application_of, is_sqlite, reading

__all__ = ["opened"]

ROW_SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}


@contextmanager
def opened(source: str, format: Format | None, options: Options) -> Iterator[Source]:
    """Open a source for reading.

    Raises
    ------
    InvalidError
        If the format is not given and cannot be recognised from the source.
    """
    if urllib.parse.urlsplit(source).scheme in ("http", "https"):
        yield _server(source, format, options)
        return
    if not Path(source).is_file():
        raise NotFoundError(f"there is no file {source}")
    chosen = format or ROW_SUFFIXES.get(Path(source).suffix.lower())
    if chosen in ("csv", "json"):
        yield RowFileSource(source, options, is_csv=chosen == "csv")
        return
    if not is_sqlite(source):
        raise InvalidError(
            f"{source} is neither an SQLite file nor a server, and its name does not end with .csv, "
            ".json or .jsonl; "
            f"give its format (--format), one of {', '.join(FORMATS)}"
        )
    with reading(source) as connection:
        application, _ = application_of(connection)
        if format == "belle2" or (format is None and application == belle2.APPLICATION):
            yield Belle2Source(connection, source, options)
        elif format == "sqlite" or (format is None and application == sqlite_exports.APPLICATION):
            yield SqliteExport(connection, source, options)
        else:
            yield CmsSource(connection, source, options)


def _server(address: str, format: Format | None, options: Options) -> Source:
    if format is None and address.rstrip("/").endswith("cdb_rest"):
        format = "nopayloaddb"
    if format == "nopayloaddb":
        with kinds_checked(address):
            return NopayloaddbSource(address, options)
    if format == "crest":
        return CrestSource(address, options)
    raise InvalidError(f"say what {address} serves: format nopayloaddb or crest (--format)")

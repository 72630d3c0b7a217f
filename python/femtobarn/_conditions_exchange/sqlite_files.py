"""SQLite files of other programs, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .._exceptions import CorruptError, InvalidError, NotFoundError

__all__ = ["application_of", "columns_by_table", "is_sqlite", "reading", "require_columns"]

MAGIC = b"SQLite format 3\x00"


def is_sqlite(path: str | Path) -> bool:
    """Tell whether a file is an SQLite database."""
    with Path(path).open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def reading(path: str | Path) -> Iterator[sqlite3.Connection]:
    """Open an SQLite file for reading. Errors of SQLite become errors that name the file.

    Raises
    ------
    NotFoundError
        If there is no such file.
    CorruptError
        If SQLite cannot read it.
    """
    if not Path(path).is_file():
        raise NotFoundError(f"there is no file {path}")
    connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
    try:
        yield connection
    except sqlite3.Error as error:
        raise CorruptError(f"SQLite cannot read {path}: {error}") from error
    finally:
        connection.close()


def application_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of the application that wrote a file, and that of its schema."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def columns_by_table(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the names of the columns of every table and view, all in capitals."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    names = [name for (name,) in rows]
    return {
        name.upper(): {row[1].upper() for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")}
        for name in names
    }


def require_columns(
    connection: sqlite3.Connection, wanted: Mapping[str, tuple[str, ...]], path: str | Path, kind: str
) -> None:
    """Refuse a file that lacks a table or a column.

    Raises
    ------
    InvalidError
        With the name of the first that is missing.
    """
    found = columns_by_table(connection)
    for table, columns in wanted.items():
        if table.upper() not in found:
            raise InvalidError(f"{path} is not {kind}: it has no table {table}")
        for column in columns:
            if column.upper() not in found[table.upper()]:
                raise InvalidError(f"{path} is not {kind}: table {table} has no column {column}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

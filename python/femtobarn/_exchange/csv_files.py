"""CSV files as sources of an import.

pyarrow reads them, block by block, twice: which type all values of a column have, and whether some are
missing, is known only at the end of the file. pyarrow takes the lines behind a quote that is not closed for
one value, so that a file with an odd number of quotes is searched for such a quote.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .._exceptions import CorruptError, FemtobarnError, InvalidError
from .file_source import FileSource
from .table_files import TableFile, table_source
from .text_streams import TextStream, reading, text_stream

__all__ = ["open_csv"]

BLOCK_BYTES = 4 << 20
"""Bytes of text that are read at a time; a row is shorter."""

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None")
"""Texts that stand for a missing value. ``nan`` is a number."""

DELIMITERS = (";", "\t", ",")
"""Candidates if the first line is a single name: the one that it contains most often."""

IMPLIED = {"int64": ("uint64", "double"), "uint64": ("double",), "date": ("time",)}
"""Other types that all values of a type have; those of int64 have uint64 if none is negative."""

NUMBERS = ("int64", "uint64", "double")
"""Types whose values pyarrow reads also between spaces."""

SHOWN_TEXT_MAX = 60
"""Characters of a wrong line that an error shows."""


@contextmanager
def open_csv(path: Path, delimiter: str) -> Iterator[FileSource]:
    """Open a CSV file, plain or compressed by gzip, whose first line has the names of the columns.

    Parameters
    ----------
    delimiter
        The character between two values; another one if it is not in the first line.

    Raises
    ------
    CorruptError
        If the file is damaged, a quote is not closed, or its text is not UTF-8; the text names the line.
    DeniedError
        If the file may not be read.
    InvalidError
        If a line has more or fewer values than the first, or two columns have one name.
    """
    import pyarrow as pa

    reader = _Reader(path, delimiter)
    types, missing = reader.guess_types()
    file = TableFile(pa.schema(types), path.stat().st_size, lambda columns: reader.batches(types, columns))
    yield table_source(path, file, missing, reader.position)


def _types() -> dict[str, Any]:
    """Return the types that columns can have, in the order of preference."""
    import pyarrow as pa

    return {
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "date": pa.date32(),
        "time": pa.timestamp("ns"),
        "time with zone": pa.timestamp("ns", "UTC"),
        "text": pa.string(),
    }


class _Reader:
    """Reads a file, and knows where it is in it."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self._path = path
        self._delimiter = delimiter
        self._stream: TextStream | None = None

    def position(self) -> int:
        """Return the number of bytes of the file that were read."""
        return 0 if self._stream is None else self._stream.position()

    def guess_types(self) -> tuple[dict[str, Any], set[str]]:
        """Return the type of each column, and the names of the columns in which values are missing."""
        import pyarrow as pa

        types = _types()
        names = self._names()
        possible = dict.fromkeys(names, tuple(types))
        filled: set[str] = set()
        missing: set[str] = set()
        for batch in self.batches(dict.fromkeys(names, pa.string()), is_first=True):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                possible[name] = _possible(column, possible[name], types)
                missing |= {name} if column.null_count else set()
                filled |= {name} if column.null_count < len(column) else set()
        return {name: types[possible[name][0] if name in filled else "text"] for name in names}, missing

    def batches(
        self, types: Mapping[str, Any], columns: list[str] | None = None, *, is_first: bool = False
    ) -> Iterator[Any]:
        """Yield columns of all rows, batch by batch.

        The first reading takes one thread, which knows the numbers of rows, for errors.
        """
        import pyarrow as pa
        import pyarrow.csv as pc

        wrong: list[Any] = []

        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        with text_stream(self._path) as stream, reading(self._path):
            self._stream = stream
            file = _CountedQuotes(stream.file) if is_first else stream.file
            try:
                yield from pc.open_csv(
                    file,
                    pc.ReadOptions(use_threads=not is_first, block_size=BLOCK_BYTES),
                    pc.ParseOptions(
                        delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse
                    ),
                    pc.ConvertOptions(
                        column_types=types,
                        null_values=MISSING,
                        strings_can_be_null=True,
                        include_columns=columns,
                    ),
                )
            except pa.ArrowInvalid as error:
                raise self._error(str(error), wrong[0] if wrong else None) from error
        if isinstance(file, _CountedQuotes) and file.count % 2:
            self._refuse_open_quote()

    def _names(self) -> list[str]:
        """Return the names of the columns, and determine their separator if it is not the expected one."""
        for line, names in self._rows():
            if len(names) == 1 and any(mark in names[0] for mark in DELIMITERS):
                self._delimiter = max(DELIMITERS, key=names[0].count)
                _, names = next(self._rows())
            if any("\ufffd" in name for name in names):
                raise CorruptError(f"line {line} of {self._path} is not UTF-8")
            double = [name for name, count in Counter(names).items() if count > 1]
            if double:
                raise InvalidError(f"{self._path} has several columns {double[0]!r}; rename them")
            if all(map(_is_number, names)):
                what = f"line {line} of {self._path} has numbers in the place of the names of columns"
                raise InvalidError(f"{what}: {', '.join(names[:3])}; put a line with names before it")
            return names
        raise InvalidError(f"{self._path} is empty; its first line must have the names of the columns")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that are not empty, as pyarrow counts them, each with the number of its last line."""
        with text_stream(self._path) as stream, reading(self._path):
            lines = io.TextIOWrapper(stream.file, "utf-8-sig", errors="replace", newline="")
            rows = csv.reader(lines, delimiter=self._delimiter)
            yield from ((rows.line_num, row) for row in rows if row)

    def _refuse_open_quote(self) -> None:
        """Refuse a quote that is not closed, or after whose end a value continues.

        Quotes inside values that are not in quotes, such as in 5", are none of these.
        """
        first = 1
        with text_stream(self._path) as stream, reading(self._path), _values_of_any_length():
            lines = io.TextIOWrapper(stream.file, "utf-8-sig", errors="replace", newline="")
            rows = csv.reader(lines, delimiter=self._delimiter, strict=True)
            try:
                for _ in rows:
                    first = rows.line_num + 1
            except csv.Error as error:
                if rows.line_num > first or "end of data" in str(error):
                    raise CorruptError(
                        f"line {first} of {self._path} opens a quote that is not closed, so that the lines "
                        "below would be a part of the value; close it, or write a quote inside quotes twice"
                    ) from error

    def _error(self, reason: str, wrong: Any) -> FemtobarnError:
        found = re.search(r"Row #(\d+)", reason)
        number = wrong.number if wrong is not None else int(found[1]) if found else None
        line = None
        with contextlib.suppress(csv.Error):  # Python's reader has a limit for the length of values.
            line = next((line for n, (line, _) in enumerate(self._rows(), 1) if n == number), None)
        place = f"line {line} of {self._path}" if line is not None else str(self._path)
        # pyarrow finds no columns in a first line that has no end.
        may_be_open = ("straddl" in reason or "infer" in reason) if wrong is None else "\n" in wrong.text
        if may_be_open:
            self._refuse_open_quote()
        if wrong is None:
            return CorruptError(f"{place} cannot be read: {reason}")
        values, columns = wrong.actual_columns, wrong.expected_columns
        text = wrong.text if len(wrong.text) <= SHOWN_TEXT_MAX else f"{wrong.text[:SHOWN_TEXT_MAX]}..."
        return InvalidError(f"{place} has {values} values, but there are {columns} columns: {text!r}")


@contextmanager
def _values_of_any_length() -> Iterator[None]:
    """Let Python's reader take values of more than 128 KiB, such as the text after an open quote."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class _CountedQuotes(io.RawIOBase):
    """Hands bytes on, and counts the quotes among them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        read = self._file.read(size)
        self.count += read.count(b'"')
        return read


def _possible(values: Any, among: tuple[str, ...], types: Mapping[str, Any]) -> tuple[str, ...]:
    """Return those of some types that all values of an array of texts have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = values.drop_null()
    trimmed = pc.ascii_trim_whitespace(given)
    for name in among:
        try:
            converted = (trimmed if name in NUMBERS else given).cast(types[name])
        except pa.ArrowInvalid:
            continue
        also = set(IMPLIED.get(name, ()))
        if name == "int64" and len(converted) and pc.min(converted).as_py() < 0:
            also.discard("uint64")
        return tuple(
            each for each in among if each == name or each in also or not len(given) or each == "text"
        )
    return ("text",)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""Sources of readings: lines of standard input or of a file, and the loop that records from a source."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .._exceptions import InvalidError
from .._schema.classes import definition_of
from .._schema.types import Definition
from .reading_lines import LineParser, Result
from .readings import PLAIN_ROW, WITHOUT_ROW_MAX, Problem, ReadingForm, Readings, inferred_class
from .recorders import Recorder, existing_series

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["LineSource", "Recording", "Source"]

BLOCK_BYTES = 1 << 18
"""Bytes that are read at once."""

LINE_BYTES_MAX = 1 << 20
"""Limit of a line; a longer one is refused."""

PIPE_BYTES = 1 << 20
"""Size of a pipe's buffer that is asked for, so that more lines come at once."""

POLL_SECONDS = 0.2
"""How long a source is waited for at most before the recording looks whether it has to stop."""


class Source(Protocol):
    """Where readings come from."""

    def wait(self, seconds: float) -> bool:
        """Wait for more; return whether there is something to read, or the end."""

    def first_row(self) -> dict[str, Any] | None:
        """Return one of the rows that arrived, from which the class of a new series follows."""

    def read(self, form: ReadingForm | None) -> Result | None:
        """Return the rows that arrived, None at the end. Without a form, keep all rows for the next call."""

    def committed(self) -> None:
        """Learn that everything that was read is durable."""


class LineSource:
    """Lines from a file descriptor."""

    def __init__(self, descriptor: int, parser: LineParser) -> None:
        self._descriptor, self._parser = descriptor, parser
        self._rest = b""
        self._lines: list[str] = []
        self._numbers: list[int] | range = []
        self._number = 0
        self._problems: list[Problem] = []
        self._is_at_end = self._is_in_long_line = False
        with contextlib.suppress(OSError, AttributeError):  # Only a pipe has this buffer.
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def wait(self, seconds: float) -> bool:
        """Wait until there are bytes to read, or the end."""
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def first_row(self) -> dict[str, Any] | None:
        """Return the first well-formed row of the lines that were read."""
        row = self._parser.first_row(self._lines) if self._lines else None
        return PLAIN_ROW if row is None and len(self._lines) > WITHOUT_ROW_MAX else row

    def read(self, form: ReadingForm | None) -> Result | None:
        """Return the readings of the lines that came."""
        if form is None or not (self._lines or self._problems):
            if self._is_at_end:
                return None
            self._take(os.read(self._descriptor, BLOCK_BYTES))
        if form is None or not self._lines:
            return Readings.empty(), self._taken_problems()
        readings, problems = self._parser.parse(self._lines, self._numbers, form)
        problems = sorted(problems + self._taken_problems())
        self._lines, self._numbers = [], []
        return readings, problems

    def committed(self) -> None:
        """Do nothing: the writer of a pipe does not learn the fate of its lines."""

    def _taken_problems(self) -> list[Problem]:
        problems, self._problems = self._problems, []
        return problems

    def _take(self, block: bytes) -> None:
        self._is_at_end = not block
        whole, newline, rest = (self._rest + block).rpartition(b"\n")
        if self._is_at_end:
            whole, rest = rest, b""
        self._rest = rest
        if newline or (self._is_at_end and whole):
            self._split(whole)
        if len(self._rest) > LINE_BYTES_MAX:
            # The end of the line is discarded as well, when it arrives.
            self._rest, self._is_in_long_line = b"", True

    def _split(self, whole: bytes) -> None:
        try:
            lines = list(map(str.strip, whole.decode().split("\n")))
        except UnicodeDecodeError:
            lines = [_decoded(line) for line in whole.split(b"\n")]
        first = self._number + 1
        self._number += len(lines)
        numbers: list[int] | range = range(first, first + len(lines))
        if self._is_in_long_line:
            self._problems.append(Problem(first, f"it is longer than {LINE_BYTES_MAX:,} bytes"))
            lines[0], self._is_in_long_line = "", False
        if not all(lines):
            numbers = [first + each for each, line in enumerate(lines) if line]
            lines = [line for line in lines if line]
        self._numbers = [*self._numbers, *numbers] if self._lines else numbers
        self._lines += lines


def _decoded(line: bytes) -> str:
    # A line that is not UTF-8 becomes a character with which no JSON begins, so that it is refused.
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        return "\ufffd"


@dataclass
class Recording:
    """Records from a source until it ends, or :attr:`stop` is called."""

    federation: Federation
    path: str
    source: Source
    definition: Definition | None = None
    """Class of a new series; by default it follows from the first value."""
    form: dict[str, Any] = field(default_factory=dict)
    """Further arguments of :class:`ReadingForm`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further arguments of :class:`Recorder`."""
    is_strict: bool = False
    report: Callable[[list[Problem]], None] = lambda _: None
    """Called with the problems of a block."""
    progress: Callable[[Recording], None] = lambda _: None
    """Is called once a second."""

    def __post_init__(self) -> None:
        self.malformed = 0
        """Number of lines or messages that were refused."""
        self.recorder: Recorder | None = None
        self._is_stopping = False
        self._form: ReadingForm | None = None
        self._told = time.monotonic()
        series = existing_series(self.federation.conditions(), self.path)
        if series is not None:
            self.definition = series.definition
        if self.definition is not None:
            self._begin(self.definition)

    def stop(self) -> None:
        """End as soon as the readings so far are durable; a signal handler may call it."""
        self._is_stopping = True

    def run(self) -> None:
        """Record.

        Raises
        ------
        InvalidError
            If the recording is strict and a line or message is malformed; those before it are durable, and
            so are those that came with it.
        """
        try:
            while not self._is_stopping:
                due_in = self.recorder.due_in() if self.recorder is not None else POLL_SECONDS
                if self.source.wait(min(due_in, POLL_SECONDS)) and not self._take():
                    break
                self._commit_if_due()
                if time.monotonic() - self._told >= 1:
                    self._told = time.monotonic()
                    self.progress(self)
        finally:
            if self.recorder is not None:
                self.recorder.commit()
                self.source.committed()

    def _take(self) -> bool:
        """Read from the source; return whether it may have more."""
        result = self._read()
        if self._form is None:
            row = self.source.first_row()
            if row is None and result is not None:
                return True
            self._begin(definition_of(inferred_class(row or PLAIN_ROW)))
            result = self._read()
        if result is None:
            return False
        readings, problems = result
        assert self.recorder is not None
        if problems:
            self._refuse(readings, problems)
        self.recorder.add(readings)
        return True

    def _read(self) -> Result | None:
        """Read without looking for cycles, of which JSON has none: 2.9 instead of 4.3 us a value."""
        is_on = gc.isenabled()
        gc.disable()
        try:
            return self.source.read(self._form)
        finally:
            if is_on:
                gc.enable()

    def _refuse(self, readings: Readings, problems: list[Problem]) -> None:
        self.malformed += len(problems)
        if not self.is_strict:
            self.report(problems)
            return
        assert self.recorder is not None
        self.recorder.add(readings)
        raise InvalidError(f"line {problems[0].number} was not taken: {problems[0].reason}")

    def _begin(self, definition: Definition) -> None:
        self._form = ReadingForm(definition, **self.form)
        self.recorder = Recorder(
            self.federation, self.path, definition, is_stopping=lambda: self._is_stopping, **self.settings
        )

    def _commit_if_due(self) -> None:
        if self.recorder is None:
            return
        if self.recorder.due_in() == 0:
            self.recorder.commit()
        if not len(self.recorder):
            # Also if all that came was malformed: a broker waits for the acknowledgements of these, too.
            self.source.committed()

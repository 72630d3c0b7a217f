"""The commands ``conditions record`` and ``conditions reduce``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import _federations
from .._conditions.mqtt_source import Broker, MqttSource, is_broker
from .._conditions.reading_lines import CsvLines, JsonLines, LineParser
from .._conditions.reading_sources import LineSource, Recording, Source
from .._conditions.readings import UNITS, Problem
from .._conditions.recorders import BATCH
from .._conditions.reductions import reductions_of
from .._exceptions import InvalidError, NotFoundError
from .._schema.classes import definition_of
from .._schema.types import Definition
from .output import emit, table

__all__ = ["record", "record_arguments", "reduce", "reduce_arguments"]

PARSERS: dict[str, type[LineParser]] = {"jsonl": JsonLines, "csv": CsvLines}

PROBLEMS_SHOWN_MAX = 20
"""Problems of one block of lines that are printed; the others are counted."""


def record_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``record``."""
    parser.add_argument("federation", metavar="FEDERATION", help="folder, or root://host//name")
    parser.add_argument("series", metavar="SERIES", help="such as dcs/hv; it is made if it does not exist")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        default="-",
        help="a file, a topic such as mqtt://localhost:1883/dcs/hv/#, or - for standard input, the default",
    )
    parser.add_argument(
        "--format",
        choices=PARSERS,
        help="format of lines: JSON (the default), or CSV, the default of files named .csv",
    )
    parser.add_argument(
        "--class", dest="class_", metavar="CLASS",
        help="class of a new series, in JSON or a file; by default it follows from the first value",
    )  # fmt: skip
    parser.add_argument(
        "--channels", metavar="FILE", help="channels by their names, in JSON or TOML: sector7 = 7"
    )
    parser.add_argument("--channel", type=int, default=0, help="channel of values without a channel (0)")
    parser.add_argument(
        "--time-unit",
        choices=UNITS,
        help="unit of times that are numbers; ns by default, which must be integers",
    )
    parser.add_argument(
        "--every", metavar="SECONDS", type=float, default=1.0, help="seconds between commits (1)"
    )
    parser.add_argument(
        "--batch", metavar="VALUES", type=int, default=BATCH, help="also commit after this many values"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first malformed line or message")
    parser.add_argument(
        "--client-id",
        metavar="NAME",
        help="name for which the broker keeps messages while this program does not run",
    )
    parser.add_argument(
        "--acknowledge-durable",
        action="store_true",
        help="acknowledge messages to the broker after their commit, not on arrival",
    )
    parser.add_argument("-m", "--message", default="", help="reason, for the list of commits")


def record(options: argparse.Namespace) -> None:
    """Record values until their source ends, or a signal comes."""
    if options.every <= 0 or options.batch <= 0:
        raise InvalidError("--every and --batch must be greater than 0")
    began = time.monotonic()
    with _federations.open(options.federation) as federation, _source(options) as source:
        recording = Recording(
            federation,
            options.series,
            source,
            _class_of(options.class_),
            form={
                "unit": options.time_unit,
                "channels": _channels(options.channels),
                "channel": options.channel,
            },
            settings={
                "every": options.every,
                "batch": options.batch,
                "message": options.message,
                "tell": _print_note,
            },
            is_strict=options.strict,
            report=_Reports("message" if is_broker(options.source) else "line"),
            progress=_Progress(),
        )
        with _stopped_by_signals(recording):
            recording.run()
        _summarise(options, recording, time.monotonic() - began)


def reduce_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``reduce``."""
    parser.add_argument("federation", metavar="FEDERATION", help="folder, or root://host//name")
    parser.add_argument("file", metavar="FILE", help="reductions in TOML")
    parser.add_argument("--since", metavar="TIME", help="derive anew from this time on")
    parser.add_argument("--until", metavar="TIME", help="derive anew up to this time")


def reduce(options: argparse.Namespace) -> None:
    """Run the reductions of a file."""
    reductions = reductions_of(_read(options.file))
    with _federations.open(options.federation) as federation:
        done = federation.conditions.reduce(
            reductions, since=_time(options.since), until=_time(options.until)
        )
    rows = [
        [each.series, f"{each.raw:,}", f"{each.put:,}", f"{each.gaps:,}", str(each.csn or "")]
        for each in done
    ]
    head = ["series", "raw read", "put", "gaps", "commit"]
    emit(options, [asdict(each) for each in done], table(head, rows, right={1, 2, 3, 4}))


def _time(text: str | None) -> Any:
    """Return a time of the command line: an integer as it is stored, or a text."""
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


@contextmanager
def _source(options: argparse.Namespace) -> Iterator[Source]:
    if is_broker(options.source):
        name = options.client_id or f"femtobarn-{Path(options.federation).stem}-{options.series}"
        source = MqttSource(
            Broker.parse(options.source),
            name,
            acknowledges_durable=options.acknowledge_durable,
            tell=_print_note,
        )
        try:
            yield source
        finally:
            source.close()
    elif options.source == "-":
        yield LineSource(sys.stdin.fileno(), PARSERS[options.format or "jsonl"]())
    else:
        path = Path(options.source)
        if not path.exists():
            raise NotFoundError(f"there is no file {path}")
        suffix = path.suffix.lower().removeprefix(".")
        with path.open("rb") as file:
            yield LineSource(
                file.fileno(), PARSERS[options.format or ("csv" if suffix == "csv" else "jsonl")]()
            )


@contextmanager
def _stopped_by_signals(recording: Recording) -> Iterator[None]:
    """Let SIGINT and SIGTERM end a recording; a second signal of the same kind has its previous effect."""
    before: dict[int, Any] = {}

    def stop(number: int, _: object) -> None:
        recording.stop()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)


class _Reports:
    """Prints the problems of lines or messages."""

    def __init__(self, noun: str) -> None:
        self._noun = noun

    def __call__(self, problems: list[Problem]) -> None:
        for number, reason in problems[:PROBLEMS_SHOWN_MAX]:
            _print_note(f"{self._noun} {number:,} was not taken: {reason}")
        if len(problems) > PROBLEMS_SHOWN_MAX:
            last = problems[-1].number
            _print_note(
                f"{len(problems) - PROBLEMS_SHOWN_MAX:,} more up to {self._noun} {last:,} were not taken"
            )


class _Progress:
    """Prints a line a second, if standard error is a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._recorded, self._time = 0, time.monotonic()

    def __call__(self, recording: Recording) -> None:
        recorder = recording.recorder
        if not self._is_shown or recorder is None:
            return
        now = time.monotonic()
        rate = (recorder.recorded - self._recorded) / (now - self._time)
        self._recorded, self._time = recorder.recorded, now
        print(
            f"{recorder.recorded:,} values, {rate:,.0f} values/s, {recording.malformed:,} malformed, "
            f"commit {recorder.csn or '-'}",
            file=sys.stderr,
        )


def _print_note(text: str) -> None:
    print(f"femtobarn: {text}", file=sys.stderr, flush=True)


def _summarise(options: argparse.Namespace, recording: Recording, seconds: float) -> None:
    recorder = recording.recorder
    facts = {
        "values": recorder.recorded if recorder is not None else 0,
        "repeated": recorder.repeated if recorder is not None else 0,
        "malformed": recording.malformed,
        "commits": recorder.commits if recorder is not None else 0,
        "csn": recorder.csn if recorder is not None else None,
        "seconds": round(seconds, 3),
    }
    text = (
        f"recorded {facts['values']:,} values into {options.series} in {facts['commits']:,} commits, "
        f"{facts['malformed']:,} malformed and {facts['repeated']:,} repeated ones left out"
    )
    emit(options, facts, text)


def _class_of(text: str | None) -> Definition | None:
    """Return the class that a text or a file is, in JSON."""
    if text is None:
        return None
    if not text.lstrip().startswith("{"):
        return definition_of(_read(text))
    try:
        return definition_of(json.loads(text))
    except ValueError as error:
        raise InvalidError(f"the class {text} cannot be read: {error}") from None


def _channels(path: str | None) -> dict[str, int]:
    """Return channels by their names, from a file."""
    table = {} if path is None else _read(path)
    if not isinstance(table, dict) or any(type(channel) is not int for channel in table.values()):
        raise InvalidError(f"{path} is not a table of channels; it must have an integer for each name")
    return table


def _read(path: str) -> Any:
    """Return the content of a file in TOML or JSON."""
    text = Path(path).read_text()
    try:
        return tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
    except ValueError as error:
        raise InvalidError(f"{path} cannot be read: {error}") from None

"""A federation with every kind of series, and the answers of a series at many moments."""

from __future__ import annotations

import random
from typing import Any, Literal

import numpy as np

import femtobarn as fb

__all__ = [
    "CHANNELS", "END", "PATHS", "RUNS", "Event", "Gain", "Level", "Mixed", "Plain", "Pointer",
    "answers", "assert_same", "fill", "mixed", "moments",
]  # fmt: skip


@fb.persistent
class Gain:
    value: fb.float64
    status: fb.uint8 = 0


@fb.persistent
class Level:
    value: fb.float64


@fb.persistent
class Part:
    number: fb.int16
    widths: list[fb.float32]


@fb.persistent
class Mixed:
    """A payload of every kind of column."""

    note: str
    widths: list[fb.float64]
    words: list[str]
    raw: bytes
    best: fb.float32 | None
    part: Part
    maybe: Part | None
    parts: list[Part]
    axes: fb.array[fb.float32, Literal[3]]
    bits: fb.bitset(5)  # type: ignore[valid-type]
    either: fb.int32 | str
    half: fb.float16
    coarse: fb.quantised(12, 0, 8)  # type: ignore[valid-type]
    short: fb.truncated(16)  # type: ignore[valid-type]


@fb.persistent
class Event:
    time: fb.int64
    run: fb.uint32
    block: fb.uint32


@fb.persistent
class Pointer:
    event: fb.link[Event]


def mixed(n: int) -> Mixed:
    part = Part(number=n, widths=[n / 3] * (n % 3))
    return Mixed(
        note="é" * (n % 5),
        widths=[n / 7] * (n % 4),
        words=["w" * i for i in range(n % 3)],
        raw=b"abc"[: n % 4],
        best=None if n % 2 else n / 3,
        part=part,
        maybe=None if n % 3 else part,
        parts=[part] * (n % 3),
        axes=[n, 0, -n],
        bits=[n % 2 == 0] * 5,
        either=n if n % 2 else str(n),
        half=n / 3,
        coarse=n % 8 / 3,
        short=n / 3,
    )


END = 200
OVERLAPS: list[Literal["newest", "open"]] = ["newest", "open"]
PATHS = ["tpc/newest", "tpc/open", "tpc/refuse", "beam/spot"]
CHANNELS = [0, 1, 7]


def fill(fed: fb.Federation, seed: int = 1, count: int = 40) -> None:
    """Put series on both clocks and with each rule of overlaps, with gaps, and events."""
    rng = random.Random(seed)
    with fed.transaction(message="conditions") as txn:
        for overlap in OVERLAPS:
            series = txn.series(f"tpc/{overlap}", Gain, create=True, overlap=overlap)
            for n in range(count):
                since = rng.randrange(END)
                until = since + rng.randrange(1, 20)
                series.put(Gain(value=n), since=since, until=until, channel=rng.choice(CHANNELS[:2]))
        refuse = txn.series("tpc/refuse", Gain, create=True, overlap="refuse")
        refuse.extend(
            {"value": np.arange(10.0), "status": np.zeros(10, int)},
            since=np.arange(0, END, 20), until=np.arange(0, END, 20) + 15,
        )  # fmt: skip
        spots = txn.series("beam/spot", Mixed, create=True, clock="run")
        for n in range(count // 2):
            run = rng.randrange(END // 10)
            spots.put(mixed(n), since=(run, rng.randrange(5)), until=(run + 2, 0))
        events = txn.database("run7", create=True).container("events", Event, create=True)
        times = [rng.randrange(60, 90) for _ in range(50)]
        events.extend({"time": times, "run": [t // 10 for t in times], "block": [t % 10 for t in times]})


def moments(series: fb.Series, since: int = 0, until: int = END) -> np.ndarray[Any, Any]:
    """All moments of a range; on the clock of runs, each ten blocks are a run."""
    times = np.arange(since, until)
    return times if series.clock == "time" else times // 10 << 32 | times % 10


def answers(series: fb.Series, times: np.ndarray[Any, Any]) -> list[Any]:
    """The answers of a series at many moments in each channel."""
    return [series.at(times, channel=channel).to_list() for channel in CHANNELS]


def assert_same(job: fb.Job, file: fb.Job, since: int = 0, until: int = END) -> None:
    for path in PATHS:
        times = moments(job[path], since, until)
        assert answers(file[path], times) == answers(job[path], times), path


RUNS: dict[str, Any] = {"since_run": (6, 0), "until_run": (9, 0)}
"""The bounds of runs that fit to the times from 60 to 90."""


class Plain:
    """The model: all conditions in the order of their insertion (channel, since, until, value, number)."""

    def __init__(self, overlap: str) -> None:
        self.overlap = overlap
        self.rows: list[list[float]] = []
        self.value = 0.0

    def apply(self, series: fb.SeriesWriter, kind: str, channel: int, since: int, length: int) -> None:
        """Change the series and the model alike."""
        self.value += 1.0
        if kind in ("put", "extend"):
            self.rows.append([channel, since, since + length, self.value, len(self.rows)])
            validity = {"since": since, "until": since + length}
            if kind == "put":
                series.put(Level(value=self.value), channel=channel, **validity)
            else:
                many = {name: [moment] for name, moment in validity.items()}
                series.extend({"value": [self.value]}, channel=channel, **many)
        elif kind == "end" and any(r[0] == channel and r[1] < since < r[2] for r in self.rows):
            series.end(at=since, channel=channel)
            self.end(channel, since)
        elif kind == "correct" and self.at(channel, since) is not None:
            series.correct(Level(value=self.value), at=since, channel=channel)
            self.correct(channel, since, self.value)

    def at(self, channel: int, t: int) -> float | None:
        begun = [row for row in self.rows if row[0] == channel and row[1] <= t]
        if self.overlap == "open":
            begun = [max(begun, key=lambda row: (row[1], row[4]))] if begun else []
        valid = [row for row in begun if t < row[2]]
        return max(valid, key=lambda row: row[4])[3] if valid else None

    def end(self, channel: int, t: int) -> None:
        for row in self.rows:
            if row[0] == channel and row[1] < t < row[2]:
                row[2] = t

    def correct(self, channel: int, t: int, value: float) -> None:
        wanted = self.at(channel, t)
        next(row for row in self.rows if row[3] == wanted)[3] = value

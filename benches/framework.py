"""The parts of a benchmark: chapters of figures, whose sides do the same work and have targets to reach.

A **side** is one command, or several concurrent processes of it; each prints one JSON object (see README.md).
A **figure** compares sides: as bars, or as curves where sides have an `x` or their samples have `points`.
A **target** is a number computed from the medians of a figure, with its bounds.
A **chapter** is a module of `chapters/` with `TITLE`, `INTRO`, `PREPARATIONS` and `FIGURES`.

In commands `{data}` and `{work}` stand for the folders of data and of scratch files, `{index}` for the number
of a process among the concurrent ones, `{processes}` for their number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal

Json = dict[str, Any]
Role = Literal["ours", "peer", "limit"]
Seconds = Literal["wall", "cpu"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    `name` is its name in tables; sides of one name with several `x` form one curve. The command `before` is
    run once, untimed, ahead of each run. All `processes` together may use `cores` CPUs. `needs` are programs
    of the machine, and `variables` those of the environment, without which the side is left out.
    """

    name: str
    command: tuple[str, ...]
    role: Role = "peer"
    x: float | None = None
    processes: int = 1
    cores: int = 1
    before: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key of its samples."""
        return self.name if self.x is None else f"{self.name} @ {self.x:g}"


def warmed(side: Side) -> Side:
    """Return the side with a sequential read of its data before each run.

    The first reader of a file determines whether the page cache holds it in large or small folios, and the
    file may have been evicted since.
    """
    data = (part for part in side.command if part.startswith("{data}/"))
    return replace(side, before=("peers", "warm", *data))


@dataclass(frozen=True)
class Target:
    """A number computed from a figure's results, and its bounds."""

    text: str
    measure: Callable[[Results], float]
    at_least: float | None = None
    at_most: float | None = None

    def judge(self, results: Results) -> Json:
        """Return the number, and whether it is within the bounds."""
        value = self.measure(results)
        good = not math.isnan(value)
        good = good and (self.at_least is None or value >= self.at_least)
        good = good and (self.at_most is None or value <= self.at_most)
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {"text": self.text, "value": value, **bounds, "reached": good}


@dataclass(frozen=True)
class Figure:
    """A comparison. `unit` names the items, `x` the horizontal axis of curves, `by` the seconds drawn.

    If samples have `points`, `y` names the vertical axis, with its unit.
    """

    name: str
    title: str
    unit: str
    sides: tuple[Side, ...]
    targets: tuple[Target, ...] = ()
    by: Seconds = "wall"
    x: str | None = None
    y: str | None = None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Chapter:
    """The contents of a module of `chapters/`."""

    name: str
    title: str
    intro: str
    preparations: tuple[Preparation, ...]
    figures: tuple[Figure, ...]

    @staticmethod
    def of(name: str, module: ModuleType) -> Chapter:
        """Return the contents of a module."""
        return Chapter(name, module.TITLE, module.INTRO, module.PREPARATIONS, module.FIGURES)


@dataclass(frozen=True)
class Preparation:
    """A command that makes a file or folder of data, which later runs reuse.

    Data that need `variables` of the environment are not made without them.
    """

    makes: str
    command: tuple[str, ...]
    variables: tuple[str, ...] = ()


@dataclass
class Results:
    """The samples of a figure's sides, and numbers computed from them; NaN for sides without samples."""

    samples: dict[str, list[Json]] = field(default_factory=dict)

    def median(self, key: str, value: Callable[[Json], float]) -> float:
        """The median of `value` over a side's samples."""
        each = self.samples.get(key, [])
        return float(statistics.median(map(value, each))) if each else math.nan

    def rate(self, key: str, by: Seconds = "wall") -> float:
        """Items per second."""
        return self.median(key, lambda sample: sample["items"] / max(sample[f"{by}_s"], 1e-9))

    def cpu_per_100_mb(self, key: str) -> float:
        """CPU seconds per 100 MB of payload."""
        return self.median(key, lambda sample: sample["cpu_s"] / max(sample["bytes"], 1) * 1e8)

    def disk_over_payload(self, key: str) -> float:
        """Bytes on disk per byte of payload; NaN for samples without `disk_bytes`."""
        return self.median(key, lambda sample: sample.get("disk_bytes", math.nan) / max(sample["bytes"], 1))

    def points(self, key: str) -> list[tuple[float, float]]:
        """The curve of a side's samples, each point a median."""
        runs = [sample.get("points", []) for sample in self.samples.get(key, [])]
        return [(at[0][0], float(statistics.median(y for _, y in at))) for at in zip(*runs, strict=True)]


# ---- targets for chapters


def faster(ours: str, peer: str, at_least: float, by: Seconds = "wall") -> Target:
    """The ratio of our rate to the peer's."""
    text = f"{ours} / {peer}{', CPU' if by == 'cpu' else ''}"
    return Target(text, lambda r: r.rate(ours, by) / r.rate(peer, by), at_least=at_least)


def best_of(ours: str, peers: tuple[str, ...], at_least: float, by: Seconds = "wall") -> Target:
    """The ratio of our rate to that of the best peer."""
    text = f"{ours} / best of {', '.join(peers)}{', CPU' if by == 'cpu' else ''}"
    return Target(text, lambda r: r.rate(ours, by) / best(r, peers, by), at_least=at_least)


def best(results: Results, peers: tuple[str, ...], by: Seconds = "wall") -> float:
    """The rate of the best peer with samples."""
    rates = [results.rate(peer, by) for peer in peers]
    return max((rate for rate in rates if not math.isnan(rate)), default=math.nan)


def rate(ours: str, at_least: float, by: Seconds = "wall") -> Target:
    """Our rate."""
    text = f"{ours}, a {'CPU ' if by == 'cpu' else ''}second"
    return Target(text, lambda r: r.rate(ours, by), at_least=at_least)


def cpu_per_100_mb(ours: str, at_most: float) -> Target:
    """CPU seconds per 100 MB."""
    return Target(f"{ours}, CPU s for 100 MB", lambda r: r.cpu_per_100_mb(ours), at_most=at_most)


def disk_over_payload(ours: str, at_most: float) -> Target:
    """Bytes on disk per byte of payload."""
    return Target(f"{ours}, bytes on disk / payload", lambda r: r.disk_over_payload(ours), at_most=at_most)


def never_falls(keys: tuple[str, ...], at_least: float = 0.95) -> Target:
    """The smallest ratio of a side's rate to that of the side before; a bound below 1 allows for noise."""

    def least(results: Results) -> float:
        rates = [results.rate(key) for key in keys]
        return min(now / before for before, now in pairwise(rates))

    return Target(f"{keys[0]} to {keys[-1]}: each / the one before", least, at_least=at_least)


def flat(key: str, at_most: float = 1.2) -> Target:
    """The ratio of the highest to the lowest point of a curve."""

    def spread(results: Results) -> float:
        costs = [y for _, y in results.points(key)]
        return max(costs) / min(costs)

    return Target(f"{key}: dearest / cheapest", spread, at_most=at_most)


def at_last(key: str, at_least: float, text: str) -> Target:
    """The last point of a curve."""
    return Target(f"{key}: {text}", lambda r: r.points(key)[-1][1], at_least=at_least)


def highest(key: str, at_most: float, text: str) -> Target:
    """The highest point of a curve."""
    return Target(f"{key}: {text}", lambda r: max(y for _, y in r.points(key)), at_most=at_most)

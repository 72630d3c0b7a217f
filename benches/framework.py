"""What a benchmark is: figures of sides that do the same work, and the targets that they have to reach.

A **side** is one command, or several processes of it at once; each prints one JSON object (see README.md).
A **figure** compares sides: as bars, or as curves where sides have an `x` or their samples have `points`.
A **target** is a number made from the medians of a figure, and what it has to be.
A **chapter** is a module of `chapters/` with `TITLE`, `INTRO`, `PREPARATIONS` and `FIGURES`.

In commands `{data}` and `{work}` stand for the folders of data and of scratch files, `{index}` for the number
of the process among those that run at once, `{processes}` for how many they are.
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

    `name` is what tables call it; sides of one name and several `x` are one curve. `before` is run once,
    untimed, ahead of each run. `cores` is how many processors the whole side may use; `processes` run the
    command at once. `needs` are programs of the machine without which the side is left out.
    """

    name: str
    command: tuple[str, ...]
    role: Role = "peer"
    x: float | None = None
    processes: int = 1
    cores: int = 1
    before: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What its samples are kept under."""
        return self.name if self.x is None else f"{self.name} @ {self.x:g}"


def warmed(side: Side) -> Side:
    """A side before which the data that it reads are read in order.

    How the kernel keeps a file in memory, in large pieces or small ones, depends on who read it first, and
    what is in memory may have left it since.
    """
    data = (part for part in side.command if part.startswith("{data}/"))
    return replace(side, before=("peers", "warm", *data))


@dataclass(frozen=True)
class Target:
    """A number that is made from a figure's results, and its bounds."""

    text: str
    measure: Callable[[Results], float]
    at_least: float | None = None
    at_most: float | None = None

    def judged(self, results: Results) -> Json:
        """The number, and whether it is within the bounds."""
        value = self.measure(results)
        good = not math.isnan(value)
        good = good and (self.at_least is None or value >= self.at_least)
        good = good and (self.at_most is None or value <= self.at_most)
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {"text": self.text, "value": value, **bounds, "reached": good}


@dataclass(frozen=True)
class Figure:
    """A comparison. `unit` names the items; `x` what the curves run over; `by` whose seconds are drawn.

    Where samples have `points`, `y` says what those mean, with the unit.
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
    """A module of `chapters/`, looked through."""

    name: str
    title: str
    intro: str
    preparations: tuple[Preparation, ...]
    figures: tuple[Figure, ...]

    @staticmethod
    def of(name: str, module: ModuleType) -> Chapter:
        """What the module holds."""
        return Chapter(name, module.TITLE, module.INTRO, module.PREPARATIONS, module.FIGURES)


@dataclass(frozen=True)
class Preparation:
    """A command that makes a file or folder of the data, which is kept from run to run."""

    makes: str
    command: tuple[str, ...]


@dataclass
class Results:
    """The samples of a figure's sides, and numbers made from them; NaN for what was not measured."""

    samples: dict[str, list[Json]] = field(default_factory=dict)

    def median(self, key: str, value: Callable[[Json], float]) -> float:
        """The median of what `value` makes of a side's samples."""
        each = self.samples.get(key, [])
        return float(statistics.median(map(value, each))) if each else math.nan

    def rate(self, key: str, by: Seconds = "wall") -> float:
        """Items a second."""
        return self.median(key, lambda sample: sample["items"] / max(sample[f"{by}_s"], 1e-9))

    def cpu_per_100_mb(self, key: str) -> float:
        """CPU seconds for 100 MB of payload."""
        return self.median(key, lambda sample: sample["cpu_s"] / max(sample["bytes"], 1) * 1e8)

    def disk_over_payload(self, key: str) -> float:
        """Bytes on disk for each byte of payload; samples without `disk_bytes` have none."""
        return self.median(key, lambda sample: sample.get("disk_bytes", math.nan) / max(sample["bytes"], 1))

    def points(self, key: str) -> list[tuple[float, float]]:
        """The medians of the curve that a side's samples hold."""
        runs = [sample.get("points", []) for sample in self.samples.get(key, [])]
        return [(at[0][0], float(statistics.median(y for _, y in at))) for at in zip(*runs, strict=True)]


# ---- targets that chapters use


def faster(ours: str, peer: str, at_least: float, by: Seconds = "wall") -> Target:
    """Ours handles so many times the peer's items in the same time."""
    text = f"{ours} / {peer}{', CPU' if by == 'cpu' else ''}"
    return Target(text, lambda r: r.rate(ours, by) / r.rate(peer, by), at_least=at_least)


def best_of(ours: str, peers: tuple[str, ...], at_least: float, by: Seconds = "wall") -> Target:
    """Ours handles so many times the items of the best of the peers."""
    text = f"{ours} / best of {', '.join(peers)}{', CPU' if by == 'cpu' else ''}"
    return Target(text, lambda r: r.rate(ours, by) / best(r, peers, by), at_least=at_least)


def best(results: Results, peers: tuple[str, ...], by: Seconds = "wall") -> float:
    """The items a second of the best of the peers that are there."""
    rates = [results.rate(peer, by) for peer in peers]
    return max((rate for rate in rates if not math.isnan(rate)), default=math.nan)


def rate(ours: str, at_least: float, by: Seconds = "wall") -> Target:
    """So many items a second."""
    text = f"{ours}, a {'CPU ' if by == 'cpu' else ''}second"
    return Target(text, lambda r: r.rate(ours, by), at_least=at_least)


def cpu_per_100_mb(ours: str, at_most: float) -> Target:
    """CPU seconds for 100 MB."""
    return Target(f"{ours}, CPU s for 100 MB", lambda r: r.cpu_per_100_mb(ours), at_most=at_most)


def disk_over_payload(ours: str, at_most: float) -> Target:
    """Bytes on disk for each byte of payload."""
    return Target(f"{ours}, bytes on disk / payload", lambda r: r.disk_over_payload(ours), at_most=at_most)


def never_falls(keys: tuple[str, ...], at_least: float = 0.95) -> Target:
    """The rate of each of the sides is that of the one before or more; a bound below 1 allows for noise."""

    def least(results: Results) -> float:
        rates = [results.rate(key) for key in keys]
        return min(now / before for before, now in pairwise(rates))

    return Target(f"{keys[0]} to {keys[-1]}: each / the one before", least, at_least=at_least)


def flat(key: str, at_most: float = 1.2) -> Target:
    """The dearest point of a curve costs at most so many times the cheapest."""

    def spread(results: Results) -> float:
        costs = [y for _, y in results.points(key)]
        return max(costs) / min(costs)

    return Target(f"{key}: dearest / cheapest", spread, at_most=at_most)


def highest(key: str, at_most: float, text: str) -> Target:
    """No point of a curve lies above a bound."""
    return Target(f"{key}: {text}", lambda r: max(y for _, y in r.points(key)), at_most=at_most)

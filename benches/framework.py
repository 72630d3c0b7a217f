"""The parts of a benchmark: chapters of figures, whose sides do the same work and have targets to reach.

A **side** is one command, or several concurrent processes of it; each prints one JSON object (see README.md).
A **figure** compares sides: as bars, or as curves where sides have an `x` or their samples have `points`.
A **target** is a number computed from the medians of a figure, with its bounds.
A **headline** is what a user would feel of a figure: one of our sides beside the machine's limit and the best
peer, and the target that it has to reach.
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

GROUPS = (
    "Taking data",
    "Committing",
    "Reading back and selecting",
    "Finding single objects",
    "Python",
    "Conditions",
    "Through a server",
    "A server under load",
    "Caches",
    "Stores and copies",
    "Redirects",
    "Several servers",
    "Growth",
)
"""What headlines are about, in the order of the life of data."""


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
    """A number computed from a figure's results, its bounds, and why it is `missed`, if it is."""

    text: str
    measure: Callable[[Results], float]
    at_least: float | None = None
    at_most: float | None = None
    missed: str = ""

    def times(self, value: float) -> float:
        """How many times better than asked a number is."""
        if self.at_least is not None:
            return value / self.at_least
        return (self.at_most or math.nan) / value if value else math.inf

    def judge(self, results: Results) -> Json:
        """Return the number, and whether it is within the bounds.

        It is NaN if samples lack what is needed, since a run of half an hour must not be lost for that.
        """
        try:
            value = self.measure(results)
        except (KeyError, IndexError):
            value = math.nan
        good = not math.isnan(value)
        good = good and (self.at_least is None or value >= self.at_least)
        good = good and (self.at_most is None or value <= self.at_most)
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {"text": self.text, "value": value, **bounds, "reached": good, "missed": self.missed}


@dataclass(frozen=True)
class Measure:
    """A number of a side that headlines compare, and whether less of it is better."""

    unit: str
    of: Callable[[Results, str], float]
    less: bool = False

    def best(self, results: Results, keys: tuple[str, ...]) -> Json:
        """The best of the sides that have samples, with its number."""
        found = {key: value for key in keys if not math.isnan(value := self.of(results, key))}
        name = (min if self.less else max)(found, key=found.__getitem__, default=" or ".join(keys))
        return {"name": name, "value": found.get(name, math.nan)}


@dataclass(frozen=True)
class Headline:
    """What a user would feel of a figure, in plain words.

    `ours`, `limits` and `peers` are keys of sides, of which the best limit and the best peer are shown, or
    else the reason why there is `no_limit` or `no_peer`. The target `wanted` must grow with our number, or
    fall with it.
    """

    group: str
    text: str
    ours: str
    measure: Measure
    wanted: Target
    limits: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    no_limit: str = ""
    no_peer: str = ""

    def judge(self, results: Results) -> Json:
        """Return the numbers of all sides, and the one that ours has to reach."""
        verdict = self.wanted.judge(results)
        ours = self.measure.of(results, self.ours)
        times = self.wanted.times(verdict["value"])
        wanted = ours * times if self.measure.less else ours / times if times else math.nan
        return {
            "group": self.group, "text": self.text, "unit": self.measure.unit, "less": self.measure.less,
            "ours": {"name": self.ours, "value": ours},
            "limit": self.measure.best(results, self.limits) if self.limits else {"reason": self.no_limit},
            "peer": self.measure.best(results, self.peers) if self.peers else {"reason": self.no_peer},
            "wanted": wanted,
            "reached": verdict["reached"], "missed": verdict["missed"],
        }  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A comparison. `unit` names the items, `x` the horizontal axis of curves, `by` the seconds drawn.

    If samples have `points`, `y` names the vertical axis, with its unit. What `headlines` want are targets of
    the figure, too.
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
    headlines: tuple[Headline, ...] = ()

    @property
    def all_targets(self) -> tuple[Target, ...]:
        """The targets, each once, those of headlines first."""
        return tuple(dict.fromkeys((*(each.wanted for each in self.headlines), *self.targets)))


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

    Data that need programs of the machine (`needs`), or `variables` of the environment, are not made without
    them.
    """

    makes: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass
class Results:
    """The samples of a figure's sides, and numbers computed from them; NaN for sides without samples.

    Those that were taken again, because other processes ran, count no more.
    """

    samples: dict[str, list[Json]] = field(default_factory=dict)
    repeated: dict[str, list[Json]] = field(default_factory=dict)

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

    def member(self, key: str, name: str) -> float:
        """A member of the samples; NaN if one lacks it."""
        return self.median(key, lambda sample: sample.get(name, math.nan))

    def points(self, key: str) -> list[tuple[float, float]]:
        """The curve of a side's samples, each point a median."""
        runs = [sample.get("points", []) for sample in self.samples.get(key, [])]
        return [(at[0][0], float(statistics.median(y for _, y in at))) for at in zip(*runs, strict=True)]

    def heights(self, key: str) -> list[float]:
        """The curve's numbers; one that is NaN for a side without samples."""
        return [y for _, y in self.points(key)] or [math.nan]


# ---- measures of headlines


def per_second(items: str, by: Seconds = "wall") -> Measure:
    """Items a second."""
    return Measure(f"{items} a {'CPU ' if by == 'cpu' else ''}second", lambda r, key: r.rate(key, by))


def megabytes(by: Seconds = "wall") -> Measure:
    """MB of payload a second."""

    def measured(results: Results, key: str) -> float:
        return results.median(key, lambda sample: sample["bytes"] / max(sample[f"{by}_s"], 1e-9) / 1e6)

    return Measure(f"MB a {'CPU ' if by == 'cpu' else ''}second", measured)


def microseconds(item: str, by: Seconds = "wall") -> Measure:
    """Microseconds for an item, which is named with its article."""
    unit = f"us{' of CPU' if by == 'cpu' else ''} {item}"
    return Measure(unit, lambda r, key: 1e6 / r.rate(key, by), less=True)


def member(unit: str, name: str, scale: float = 1.0) -> Measure:
    """A member of the samples, of which less is better."""
    return Measure(unit, lambda r, key: scale * r.member(key, name), less=True)


def last(unit: str, less: bool = True) -> Measure:
    """The last point of a curve."""
    return Measure(unit, lambda r, key: r.heights(key)[-1], less)


CPU_FOR_100_MB = Measure("CPU s for 100 MB", lambda r, key: r.cpu_per_100_mb(key), less=True)


# ---- targets for chapters


def explained(target: Target, missed: str) -> Target:
    """The target with a sentence that says why it is missed."""
    return replace(target, missed=missed)


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
        costs = results.heights(key)
        return max(costs) / min(costs)

    return Target(f"{key}: dearest / cheapest", spread, at_most=at_most)


def at_last(key: str, at_least: float, text: str) -> Target:
    """The last point of a curve."""
    return Target(f"{key}: {text}", lambda r: r.heights(key)[-1], at_least=at_least)


def highest(key: str, at_most: float, text: str) -> Target:
    """The highest point of a curve."""
    return Target(f"{key}: {text}", lambda r: max(r.heights(key)), at_most=at_most)

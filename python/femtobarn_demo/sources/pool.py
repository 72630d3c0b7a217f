"""A pool of generated events on disk, which is repeated under new numbers to give any number of events.

Generating an event takes some 30 ms, writing it less than one, so only repeated events can saturate
writers; the GIOD tests repeated events, too. Repeated events differ in nothing but their number: sizes and
rates are real, event counts in spectra are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector import simulate
from femtobarn_demo.sources.model import PARTS
from femtobarn_demo.sources.parametric import ParametricGenerator
from femtobarn_demo.sources.pythia import Generator, GeneratorSettings
from femtobarn_demo.sources.raw import EVENT_PERIOD, RawEvents

__all__ = ["EventPool"]

FORMAT = 2
"""Version of stored pools: raise it when the same seed gives different events."""

BATCH = 25
"""Events that are generated and simulated together."""

_TRUTH = "Particles"


@dataclass(frozen=True)
class EventPool:
    """Generated events and the particles that they were made from.

    Parameters
    ----------
    events
        The events, as run 0 from number 0.
    particles
        Final-state particles, the simulation's truth: see `Generator.generate`.
    """

    events: RawEvents
    particles: Jagged

    @classmethod
    def load(
        cls,
        cache: Path,
        *,
        events: int = 200,
        seed: int = 1,
        settings: GeneratorSettings | None = None,
        progress: bool = True,
    ) -> EventPool:
        """Read the pool from the cache folder, or generate it and keep it there.

        Parameters
        ----------
        cache
            A folder, which is created if it is missing.
        events, seed, settings
            Input of the generator; equal values give equal pools.
        progress
            Show a progress bar on standard error while generating.
        """
        settings = settings or GeneratorSettings()
        physics = f"{settings.momentum_min:g}-{settings.pileup:g}-{settings.pileup_pool}"
        path = cache / f"pool-{FORMAT}-{seed}-{events}-{physics}.npz"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            cls.generate(events=events, seed=seed, settings=settings, progress=progress)._save(path)
        return cls._read(path)

    @classmethod
    def generate(
        cls, *, events: int, seed: int, settings: GeneratorSettings | None = None, progress: bool = False
    ) -> EventPool:
        """Generate a pool with Pythia, without keeping it."""
        return cls.made_by(Generator(seed, settings), events=events, seed=seed, progress=progress)

    @classmethod
    def made_by(
        cls, generator: Generator | ParametricGenerator, *, events: int, seed: int, progress: bool = False
    ) -> EventPool:
        """Generate a pool with a given generator; the seed is that of the detector."""
        random = np.random.default_rng([seed, FORMAT])
        batches: list[tuple[Jagged, Array, Array, dict[str, Jagged]]] = []
        with tqdm(total=events, desc="generating events", unit="event", disable=not progress) as bar:
            for done in range(0, events, BATCH):
                particles, scale, interactions = generator.generate(min(BATCH, events - done))
                batches.append((particles, scale, interactions, simulate(particles, random)))
                bar.update(len(particles))
        raw = RawEvents(
            run=0,
            first=0,
            interactions=np.concatenate([batch[2] for batch in batches]),
            momentum_scale=np.concatenate([batch[1] for batch in batches]),
            parts={part: _append([batch[3][part] for batch in batches]) for part in PARTS},
        )
        return cls(raw, _append([batch[0] for batch in batches]))

    def __len__(self) -> int:
        return len(self.events)

    def batches(
        self, *, run: int, events: int, size: int, first: int = 0, period: int = EVENT_PERIOD
    ) -> Iterator[RawEvents]:
        """Events ``first`` to ``first + events`` of a run, in batches that share the pool's memory.

        A batch ends early at the end of the pool: events on both sides of it could not share memory.
        """
        number, last = first, first + events
        while number < last:
            start = number % len(self)
            stop = min(start + min(size, last - number), len(self))
            picked = self.events.slice(start, stop)
            yield replace(picked, run=run, first=number, period=period)
            number += stop - start

    def _save(self, path: Path) -> None:
        """Write to a temporary name and rename, so that an existing pool is always complete."""
        arrays = {"interactions": self.events.interactions, "momentum_scale": self.events.momentum_scale}
        for part, rows in {**self.events.parts, _TRUTH: self.particles}.items():
            arrays[f"{part}/"] = rows.offsets
            arrays |= {f"{part}/{name}": column for name, column in rows.columns.items()}
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        partial.replace(path)

    @classmethod
    def _read(cls, path: Path) -> EventPool:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        parts = {part: _unpack(part, arrays) for part in PARTS}
        raw = RawEvents(0, 0, arrays["interactions"], arrays["momentum_scale"], parts)
        return cls(raw, _unpack(_TRUTH, arrays))


def _unpack(part: str, arrays: dict[str, Array]) -> Jagged:
    prefix = f"{part}/"
    columns = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix) and name != prefix
    }
    return Jagged(arrays[prefix], columns)


def _append(batches: list[Jagged]) -> Jagged:
    """Concatenate the events of batches."""
    counts = np.concatenate([batch.counts for batch in batches])
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    names = batches[0].columns
    return Jagged(offsets, {name: np.concatenate([batch[name] for batch in batches]) for name in names})

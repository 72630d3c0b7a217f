"""A batch of raw events in the form in which it is written: six arrays of parts and one of headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import awkward as ak
import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn.linking import Target, links
from femtobarn_demo.sources.detector.state import HOUR, as_measured
from femtobarn_demo.sources.model import PARTS, collection_of, element_class

__all__ = ["EVENT_PERIOD", "START", "RawEvents"]

START = 1_777_615_200_000_000_000
"""Time of event 0: 2026-05-01T06:00:00Z (ns since 1970)."""

BUNCH_SPACING = 25
"""Time between bunch crossings (ns)."""

BUNCHES = 3564
"""Bunch crossings in one turn of the LHC."""

EVENT_PERIOD = 1_000_000
"""Mean time between recorded events (ns), unless a pool is asked for another."""


@dataclass(frozen=True)
class RawEvents:
    """Consecutive raw events of one run.

    Parameters
    ----------
    run
        Run number.
    first
        Number of the first event.
    interactions, momentum_scale
        Shape (events,): collisions in the event; transverse momentum of its hard process (GeV).
    parts
        Columns of each of the six parts.
    period
        Mean time between events (ns).
    """

    run: int
    first: int
    interactions: Array
    momentum_scale: Array
    parts: Mapping[str, Jagged]
    period: int = EVENT_PERIOD

    def __len__(self) -> int:
        return len(self.interactions)

    @property
    def nbytes(self) -> int:
        """Bytes of payload in the parts."""
        return sum(part.nbytes for part in self.parts.values())

    def slice(self, start: int, stop: int) -> RawEvents:
        """The events ``start:stop`` of the batch; nothing is copied."""
        parts = {name: part.slice(start, stop) for name, part in self.parts.items()}
        return replace(
            self,
            first=self.first + start,
            interactions=self.interactions[start:stop],
            momentum_scale=self.momentum_scale[start:stop],
            parts=parts,
        )

    @property
    def numbers(self) -> Array:
        """Shape (events,): numbers of the events."""
        return np.arange(self.first, self.first + len(self), dtype=np.uint64)

    @property
    def crossings(self) -> Array:
        """Shape (events,): bunch crossings since `START`."""
        number = self.numbers
        return number * np.uint64(self.period // BUNCH_SPACING) + number * number % np.uint64(BUNCHES)

    @property
    def times(self) -> Array:
        """Shape (events,): times of the events (ns since 1970)."""
        return np.uint64(START) + self.crossings * np.uint64(BUNCH_SPACING)

    def as_measured(self) -> RawEvents:
        """Return the events as the detector measured them, in the state that it had at their times."""
        hours = (self.times - np.uint64(START)) / HOUR
        return replace(self, parts=as_measured(self.parts, hours))

    def part(self, name: str) -> ak.Array:
        """The objects of one part, of the class ``name``."""
        rows = self.parts[name].to_awkward(element_class(name))
        return ak.Array(_record(self._identity() | {collection_of(name): rows.layout}))

    def headers(self, targets: Mapping[str, Target]) -> ak.Array:
        """The `RawEvent` objects.

        Parameters
        ----------
        targets
            The objects of this batch that were written for each part.
        """
        columns = self._identity()
        columns |= {
            "time": self.times,
            "bunch_crossing": (self.crossings % np.uint64(BUNCHES)).astype(np.uint16),
            "interactions": self.interactions,
            "momentum_scale": self.momentum_scale,
        }
        for name, link_field in PARTS.items():
            columns[link_field] = links(targets[name], len(self)).layout
        return ak.Array(_record(columns))

    def _identity(self) -> dict[str, Array | ak.contents.Content]:
        """The two fields that every object of an event carries."""
        return {
            "run": np.full(len(self), self.run, np.uint32),
            "event": self.numbers,
        }


def _record(columns: Mapping[str, Array | ak.contents.Content]) -> ak.contents.RecordArray:
    contents = [
        ak.contents.NumpyArray(column) if isinstance(column, np.ndarray) else column
        for column in columns.values()
    ]
    return ak.contents.RecordArray(contents, list(columns))

"""Sources of events: LHC-like collisions in a toy detector, with the classes of the GIOD papers.

Pythia 8 (`pythia`) generates collisions, or `parametric` where it is not installed; `detector` simulates
the raw data, and `model` has their classes. `pool` keeps a few events on disk and repeats them, to give any
number of events in batches (`raw`)::

    from pathlib import Path
    from femtobarn_demo.sources import EventPool, RAW_CLASSES

    pool = EventPool.load(Path("cache"), events=200, seed=1)
    for batch in pool.batches(run=7, events=2000, size=12):
        pixel_hits = batch.part("PixelHits")     # awkward: 12 * {run, event, hits: var * {...}}

The size, structure and cost of these events are realistic; their physics is a toy. Pythia needs the
extra `demo`.
"""

from femtobarn_demo.sources.model import CONTAINERS, PARTS, RAW_CLASSES
from femtobarn_demo.sources.parametric import ParametricGenerator
from femtobarn_demo.sources.pool import EventPool
from femtobarn_demo.sources.pythia import GeneratorSettings
from femtobarn_demo.sources.raw import START, RawEvents

__all__ = [
    "CONTAINERS",
    "PARTS",
    "RAW_CLASSES",
    "START",
    "EventPool",
    "GeneratorSettings",
    "ParametricGenerator",
    "RawEvents",
]

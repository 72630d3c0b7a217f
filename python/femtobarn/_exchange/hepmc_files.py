"""HepMC files as sources of an import: events with particles and vertices, and the run, which links lead to.

pyhepmc reads them, HepMC3 as well as HepMC2. Momenta are converted to GeV and lengths to mm. Particles and
vertices of an event are linked to each other by their positions in the event: ``end_vertex`` by the index
``end_vertexIdx``, ``particles_out`` by a list of indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._exceptions import CorruptError, UnsupportedError
from .._lazy import ak
from .._schema.meanings import Meaning
from .._schema.types import Definition, Field, Link, List, Optional, Primitive, Record, String
from .column_layouts import BATCH_VALUES, Numbers, lists, map_of, option, records, texts
from .file_source import FileSource, RunSource
from .text_streams import reading, text_stream

if TYPE_CHECKING:
    from pyhepmc import GenEvent, GenEventData

__all__ = ["open_hepmc"]

INT, LONG, REAL, TEXT = Primitive("int32"), Primitive("int64"), Primitive("float64"), String()
READERS = {b"HepMC::Asciiv3": "ReaderAscii", b"HepMC::IO_GenEvent": "ReaderAsciiHepMC2"}
"""The reader of each format, by a text near the begin of its files."""
HEAD_BYTES = 256
END = b"-END_EVENT_LISTING"
"""The last line of a file ends with this text."""
END_BYTES = 64

MOMENTUM = ("px", "py", "pz", "e")
POSITION = ("x", "y", "z", "t")
PDF_INTEGERS = ("parton_id1", "parton_id2", "pdf_id1", "pdf_id2")
PDF_REALS = ("x1", "x2", "scale", "xf1", "xf2")
AS_FIELDS = ("GenCrossSection", "GenPdfInfo")
"""Attributes of events that are fields of their own."""

CROSS_SECTION = Record(
    "HepMCCrossSection",
    (
        Field("xsec", List(REAL), "for each weight, in pb"),
        Field("xsec_err", List(REAL)),
        Field("accepted_events", LONG),
        Field("attempted_events", LONG),
    ),
)
PARTICLE_INDEX, VERTEX_INDEX = (
    Primitive("int32", Meaning("element", name)) for name in ("particles", "vertices")
)
PDF_INFO = Record(
    "HepMCPdfInfo",
    (*(Field(name, INT) for name in PDF_INTEGERS), *(Field(name, REAL) for name in PDF_REALS)),
)
PARTICLE = Record(
    "HepMCParticle",
    (
        Field("pid", INT),
        Field("status", INT),
        *(Field(name, REAL, "in GeV") for name in MOMENTUM),
        Field("generated_mass", REAL, "in GeV"),
        Field("production_vertexIdx", Optional(VERTEX_INDEX), "missing for beams"),
        Field("end_vertexIdx", Optional(VERTEX_INDEX)),
        Field("attributes", map_of(TEXT)),
    ),
)
VERTEX = Record(
    "HepMCVertex",
    (
        Field("status", INT),
        *(Field(name, REAL, "in mm") for name in POSITION),
        Field("particles_inIdx", List(PARTICLE_INDEX)),
        Field("particles_outIdx", List(PARTICLE_INDEX)),
        Field("attributes", map_of(TEXT)),
    ),
)
TOOL = Record("HepMCTool", tuple(Field(name, TEXT) for name in ("name", "version", "description")))
RUN = Definition(
    "HepMCRun",
    1,
    (
        Field("file", TEXT, "the file it was imported from"),
        Field("tools", List(TOOL), "the generator and the programs after it"),
        Field("weight_names", List(TEXT), "in the order of the weights of each event"),
        Field("attributes", map_of(TEXT)),
    ),
)
EVENT = Definition(
    "HepMCEvent",
    1,
    (
        Field("run", Link(RUN.name), "what the file says once about all its events"),
        Field("event_number", LONG),
        Field("weights", List(REAL), "in the order of the run's weight_names"),
        Field("event_pos", Record("HepMCPosition", tuple(Field(name, REAL, "in mm") for name in POSITION))),
        Field("cross_section", Optional(CROSS_SECTION), "as estimated when the event was generated"),
        Field("pdf_info", Optional(PDF_INFO)),
        Field("attributes", map_of(TEXT)),
        Field("particles", List(PARTICLE)),
        Field("vertices", List(VERTEX)),
    ),
)


@contextmanager
def open_hepmc(path: Path) -> Iterator[FileSource]:
    """Open a HepMC3 or HepMC2 file of text, plain or compressed by gzip.

    Raises
    ------
    CorruptError
        If the file is not a HepMC file, is damaged, or has no end; the text has the number of good events.
    UnsupportedError
        If pyhepmc is not installed.
    """
    with text_stream(path) as stream:
        reader = _Reader(path, stream.file)
        run = RunSource(RUN, "run", reader.run)
        yield FileSource(
            "events",
            EVENT,
            path.stat().st_size,
            "",
            reader.batches,
            position=stream.position,
            run=run,
        )


class _CountedEvents:
    """Hands bytes on, and counts the events that begin in them.

    The readers of HepMC end where they cannot read on, as if there were no more events.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.events = 0
        self.end = b"\n"

    def readinto(self, buffer: memoryview) -> int:
        size = int(self._file.readinto(buffer))  # type: ignore[attr-defined]
        read = bytes(buffer[:size])
        self.events += (self.end[-2:] + read).count(b"\nE ")
        self.end = (self.end + read)[-END_BYTES:]
        return size


class _Event(NamedTuple):
    """An event as arrays, which outlive the object of pyhepmc that it was read into."""

    number: int
    momentum_unit: float
    """In GeV."""
    length_unit: float
    """In mm."""
    cross_section: dict[str, Any] | None
    pdf_info: dict[str, Any] | None
    places: list[Numbers]
    data: GenEventData


class _Reader:
    """Reads the events of a file once."""

    def __init__(self, path: Path, file: Any) -> None:
        try:
            import pyhepmc
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "HepMC files are read by pyhepmc, which is not installed: pip install 'femtobarn[generators]'"
            ) from error
        with reading(path):
            head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
        readers = [name for begin, name in READERS.items() if begin in head]
        if not readers:
            raise CorruptError(f"{path} is not a HepMC file of text: it begins with {head[:20]!r}")
        self._path = path
        self._counted = _CountedEvents(file)
        # The reader does not keep the stream alive.
        self._stream = pyhepmc.io.pyiostream(self._counted)
        self._reader = getattr(pyhepmc.io, readers[0])(self._stream)
        self._event = pyhepmc.GenEvent()
        self._number = 0

    def batches(self, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Yield columns of all events."""
        while events := self._next_events():
            columns = _columns(events)
            yield {name: columns[name] for name in fields}

    def run(self) -> dict[str, Any]:
        """Return the run."""
        info = self._event.run_info
        names = tuple(TOOL.by_name)
        return {
            "file": str(self._path),
            "tools": [{name: getattr(each, name) for name in names} for each in info.tools] if info else [],
            "weight_names": list(info.weight_names) if info else [],
            "attributes": {name: str(value) for name, value in info.attributes.items()} if info else {},
        }

    def _next_events(self) -> list[_Event]:
        events: list[_Event] = []
        size = 0
        while size < BATCH_VALUES and self._read():
            event = _gathered(self._event)
            events.append(event)
            size += len(event.data.particles) + len(event.data.vertices) + len(event.data.weights)
        return events

    def _read(self) -> bool:
        """Read the next event; return whether there is one."""
        with reading(self._path):
            is_read = self._reader.read_event(self._event) and not self._reader.failed()
        if is_read:
            self._number += 1
            return True
        if self._counted.events != self._number or END not in self._counted.end:
            raise CorruptError(
                f"{self._path} is damaged, or was not written to its end: {self._number:,} events can be read"
            )
        return False


def _gathered(event: GenEvent) -> _Event:
    import pyhepmc

    data = pyhepmc.GenEventData()
    event.write_data(data)
    vertices, section, pdf = event.numpy.vertices, event.cross_section, event.pdf_info
    weights = range(max(1, len(event.weights)))
    return _Event(
        event.event_number,
        0.001 if event.momentum_unit == pyhepmc.Units.MEV else 1.0,
        10.0 if event.length_unit == pyhepmc.Units.CM else 1.0,
        None
        if section is None
        else {
            "xsec": [section.xsec(n) for n in weights],
            "xsec_err": [section.xsec_err(n) for n in weights],
            "accepted_events": section.accepted_events,
            "attempted_events": section.attempted_events,
        },
        None if pdf is None else {name: getattr(pdf, name) for name in PDF_INFO.by_name},
        [getattr(vertices, name) for name in POSITION],
        data,
    )


def _columns(events: list[_Event]) -> dict[str, Any]:
    """Return the fields of events as columns."""
    every = [event.data for event in events]
    count_particles = [len(data.particles) for data in every]
    count_vertices = [len(data.vertices) for data in every]
    # Positions of the first particle and the first vertex of each event in the columns.
    firsts = [np.cumsum([0, *counts])[:-1] for counts in (count_particles, count_vertices)]
    attributes = _Attributes(every, firsts)
    particles = np.concatenate([data.particles for data in every])
    vertices = np.concatenate([data.vertices for data in every])
    relations = _relations(every, firsts, len(particles), len(vertices))
    mass = np.where(particles["is_mass_set"], particles["mass"], _mass(particles))
    # HepMC converts the units of all but the position of the event.
    momentum_unit = np.repeat([event.momentum_unit for event in events], count_particles)
    length_unit = np.array([event.length_unit for event in events])
    particle_columns = {
        **{name: particles[name] for name in ("pid", "status")},
        **{name: particles[name] * momentum_unit for name in MOMENTUM},
        "generated_mass": mass * momentum_unit,
        **{name: relations[name] for name in ("production_vertexIdx", "end_vertexIdx")},
        "attributes": attributes.of_particles(len(particles)),
    }
    vertex_columns = {
        "status": vertices["status"],
        **{
            name: np.concatenate([event.places[n] * event.length_unit for event in events])
            for n, name in enumerate(POSITION)
        },
        **{name: relations[name] for name in ("particles_inIdx", "particles_outIdx")},
        "attributes": attributes.of_vertices(len(vertices)),
    }
    weights = [data.weights for data in every]
    return {
        "run": np.zeros(len(events), np.uint64),
        "event_number": np.array([event.number for event in events]),
        "weights": lists([len(each) for each in weights], ak.contents.NumpyArray(np.concatenate(weights))),
        "event_pos": records(
            {
                name: np.array([getattr(data.event_pos, name) for data in every]) * length_unit
                for name in POSITION
            }
        ),
        "cross_section": ak.from_iter([event.cross_section for event in events]).layout,
        "pdf_info": ak.from_iter([event.pdf_info for event in events]).layout,
        "attributes": attributes.of_events(len(events)),
        "particles": lists(count_particles, records(particle_columns)),
        "vertices": lists(count_vertices, records(vertex_columns)),
    }


def _mass(particles: Numbers) -> Numbers:
    """Return the mass of each momentum, negative where it is spacelike, as HepMC does."""
    square = particles["e"] ** 2 - sum(particles[name] ** 2 for name in ("px", "py", "pz"))
    mass: Numbers = np.sign(square) * np.sqrt(np.abs(square))
    return mass


def _relations(
    every: list[GenEventData], firsts: list[Numbers], particles: int, vertices: int
) -> dict[str, Any]:
    """Return the vertices of each particle and the particles of each vertex, as positions in the event.

    In a pair of links, particle n of the event is n, from 1 on, and vertex n is -n. The first of a pair is a
    vertex, if the particle comes out of it.
    """
    counts = [len(data.links1) for data in every]
    first_particle, first_vertex = (np.repeat(first, counts) for first in firsts)
    one, two = (np.concatenate([getattr(data, name) for data in every]) for name in ("links1", "links2"))
    columns = {}
    for is_chosen, of_particle, of_vertex in (
        (one < 0, "production_vertexIdx", "particles_outIdx"),
        (one > 0, "end_vertexIdx", "particles_inIdx"),
    ):
        particle = (np.maximum(one, two) - 1)[is_chosen]
        vertex = (-np.minimum(one, two) - 1)[is_chosen]
        positions = np.full(particles, -1, np.int32)
        positions[particle + first_particle[is_chosen]] = vertex
        columns[of_particle] = option(positions, positions >= 0)
        owner = vertex + first_vertex[is_chosen]
        items = particle[np.argsort(owner, kind="stable")].astype(np.int32)
        columns[of_vertex] = lists(np.bincount(owner, minlength=vertices), ak.contents.NumpyArray(items))
    return columns


class _Attributes:
    """Attributes of all events: their owner 0 is the event, n from 1 on a particle, and -n a vertex."""

    def __init__(self, every: list[GenEventData], firsts: list[Numbers]) -> None:
        counts = [len(data.attribute_id) for data in every]
        self._owners = np.concatenate([np.array(data.attribute_id, np.int64) for data in every])
        self._names = [name for data in every for name in data.attribute_name]
        self._texts = [text for data in every for text in data.attribute_string]
        self._events = np.repeat(np.arange(len(every)), counts)
        self._first_particle, self._first_vertex = (np.repeat(first, counts) for first in firsts)

    def of_events(self, count: int) -> Any:
        is_other = np.array([name not in AS_FIELDS for name in self._names], bool)
        return self._maps((self._owners == 0) & is_other, self._events, count)

    def of_particles(self, count: int) -> Any:
        return self._maps(self._owners > 0, self._first_particle + self._owners - 1, count)

    def of_vertices(self, count: int) -> Any:
        return self._maps(self._owners < 0, self._first_vertex - self._owners - 1, count)

    def _maps(self, is_chosen: Numbers, owners: Numbers, count: int) -> Any:
        chosen = np.flatnonzero(is_chosen)
        chosen = chosen[np.argsort(owners[chosen], kind="stable")]
        pairs = {
            "_0": texts(self._names[each] for each in chosen),
            "_1": texts(self._texts[each] for each in chosen),
        }
        return lists(np.bincount(owners[chosen], minlength=count), records(pairs))

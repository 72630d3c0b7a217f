"""LHE files as sources of an import: the events with their particles, and the run, which links lead to.

pylhe reads them. Fields have the names of the format, but for the mothers of a particle, which are links to
particles of the same event: ``mother1`` by the index ``motherIdx1``. The format counts particles from 1, an
index from 0; where it has 0, there is no mother, and the index is -1.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._exceptions import CorruptError, UnsupportedError
from .._lazy import ak
from .._schema.meanings import Meaning
from .._schema.types import Definition, Field, Link, List, Primitive, Record, String
from .column_layouts import BATCH_VALUES, lists, map_of, maps, records, texts
from .file_source import FileSource, RunSource
from .text_streams import reading, text_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pylhe import LHEEvent, LHEFile

__all__ = ["open_lhe"]

INT, REAL, TEXT = Primitive("int32"), Primitive("float64"), String()

PARTICLE_NUMBERS = {
    **dict.fromkeys(("id", "status", "mother1", "mother2", "color1", "color2"), INT),
    **dict.fromkeys(("px", "py", "pz", "e", "m", "lifetime", "spin"), REAL),
}
MOTHERS = {"mother1": "motherIdx1", "mother2": "motherIdx2"}
"""Fields of indices for the members that count particles from 1."""
PARTICLE_INDEX = Primitive("int32", Meaning("element", "particles"))
PARTICLE = Record(
    "LHEParticle",
    tuple(
        Field(MOTHERS[name], PARTICLE_INDEX, "-1 if there is none") if name in MOTHERS else Field(name, node)
        for name, node in PARTICLE_NUMBERS.items()
    ),
)
EVENT_NUMBERS = ("weight", "scale", "aqed", "aqcd")
RUN_NUMBERS = {
    "beamA": INT,
    "beamB": INT,
    "energyA": REAL,
    "energyB": REAL,
    "PDFgroupA": INT,
    "PDFgroupB": INT,
    "PDFsetA": INT,
    "PDFsetB": INT,
    "weightingStrategy": INT,
}
PROCESS = {"procId": INT, "xSection": REAL, "error": REAL, "unitWeight": REAL}
GENERATOR = {"name": TEXT, "version": TEXT, "description": TEXT}
WEIGHT = {"id": TEXT, "name": TEXT, "group": TEXT}
HEADER = {"tag": TEXT, "xml": TEXT}


def _list_of(name: str, members: dict[str, Any]) -> List:
    return List(Record(name, tuple(Field(member, node) for member, node in members.items())))


RUN = Definition(
    "LHERun",
    1,
    (
        Field("file", TEXT, "the file it was imported from"),
        Field("version", TEXT, "version of the format"),
        *(Field(name, node) for name, node in RUN_NUMBERS.items()),
        Field("processes", _list_of("LHEProcess", PROCESS), "cross sections and their errors in pb"),
        Field("generators", _list_of("LHEGenerator", GENERATOR)),
        Field("weights", _list_of("LHEWeight", WEIGHT), "in the order of the weights of each event"),
        Field("comment", TEXT, "what precedes the header"),
        Field("header", _list_of("LHEHeader", HEADER), "the other elements of the header"),
    ),
)


@contextmanager
def open_lhe(path: Path) -> Iterator[FileSource]:
    """Open an LHE file, plain or compressed by gzip.

    Raises
    ------
    CorruptError
        If the file is not an LHE file, is damaged, or has no end; the text names the line or the event.
    UnsupportedError
        If pylhe is not installed.
    """
    fields = (
        Field("run", Link(RUN.name), "what the file says once about all its events"),
        Field("pid", INT, "number of the process"),
        *(Field(name, REAL) for name in EVENT_NUMBERS),
        Field("weights", List(REAL), "in the order of the run's weights; not a number where there is none"),
        Field("scales", map_of(REAL)),
        Field("attributes", map_of(TEXT)),
        Field("comments", List(TEXT)),
        Field("particles", List(PARTICLE)),
    )
    with text_stream(path) as stream:
        reader = _Reader(path, stream.file)
        run = RunSource(RUN, "run", reader.run)
        yield FileSource(
            "events",
            Definition("LHEEvent", 1, fields),
            path.stat().st_size,
            "",
            reader.batches,
            position=stream.position,
            run=run,
        )


class _Reader:
    """Reads the events of a file once, and knows the weights that it has seen so far."""

    def __init__(self, path: Path, file: Any) -> None:
        try:
            from pylhe import LHEFile
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "LHE files are read by pylhe, which is not installed: pip install 'femtobarn[generators]'"
            ) from error
        self._path = path
        self._number = 0
        with self._translated_errors():
            self._file: LHEFile = LHEFile.frombuffer(file)
        self._events = iter(self._file.events)
        initrwgt = self._file.header.initrwgt if self._file.header is not None else None
        self._weights = {each.id: n for n, each in enumerate(initrwgt.iter_weights() if initrwgt else ())}

    def batches(self, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Yield columns of all events."""
        while events := self._next_events():
            columns = self._columns(events)
            yield {name: columns[name] for name in fields}

    def run(self) -> dict[str, Any]:
        """Return the run, with the weights of all events that were read."""
        init, header = self._file.init, self._file.header
        known = _declared_weights(header) if header is not None else {}
        blank = {"name": "", "group": ""}
        return {
            "file": str(self._path),
            "version": self._file.version or "",
            **{name: getattr(init.initInfo, name) for name in RUN_NUMBERS},
            "processes": [{name: getattr(each, name) for name in PROCESS} for each in init.procInfo],
            "generators": [{name: getattr(each, name) for name in GENERATOR} for each in init.generators],
            "weights": [{"id": name, **known.get(name, blank)} for name in self._weights],
            "comment": self._file.comment or "",
            "header": _elements(header) if header is not None else [],
        }

    def _next_events(self) -> list[LHEEvent]:
        events: list[LHEEvent] = []
        size = 0
        with self._translated_errors():
            for event in self._events:
                found, said = len(event.particles), event.eventinfo.nparticles
                if found != said:
                    raise ValueError(f"the next one has {found} particles, but its first line says {said}")
                events.append(event)
                self._number += 1
                size += 1 + len(event.particles) + len(event.weights)
                if size >= BATCH_VALUES:
                    break
        return events

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        # pylhe ends with a warning where the text is no XML, as if the file had no more events.
        with reading(self._path), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                yield
            except RuntimeWarning as error:
                raise CorruptError(
                    f"{self._path} is not an LHE file, is damaged, or was not written to its end: {error}"
                ) from error
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, ValueError) as error:
                raise CorruptError(
                    f"{self._path} is damaged after {self._number:,} events: {error}"
                ) from error

    def _columns(self, events: list[LHEEvent]) -> dict[str, Any]:
        infos = [event.eventinfo for event in events]
        values = chain.from_iterable(
            map(attrgetter(*PARTICLE_NUMBERS), chain.from_iterable(e.particles for e in events))
        )
        numbers = np.fromiter(values, np.float64).reshape(-1, len(PARTICLE_NUMBERS))
        # Integers of 32 bits are made of those of 64 where their range is checked.
        particles = {
            name: numbers[:, n].astype(np.int64) if node is INT else numbers[:, n]
            for n, (name, node) in enumerate(PARTICLE_NUMBERS.items())
        }
        for name, index in MOTHERS.items():
            particles[index] = particles.pop(name) - 1
        comments = texts(chain.from_iterable(event.optional for event in events))
        return {
            "run": np.zeros(len(events), np.uint64),
            "pid": np.array([info.pid for info in infos]),
            **{name: np.array([getattr(info, name) for info in infos]) for name in EVENT_NUMBERS},
            "weights": self._weights_of(events),
            "scales": maps([event.scales for event in events], "f8"),
            "attributes": maps([event.attributes for event in events], "str"),
            "comments": lists([len(event.optional) for event in events], comments),
            "particles": lists([len(event.particles) for event in events], records(particles)),
        }

    def _weights_of(self, events: list[LHEEvent]) -> Any:
        """Return the weights of each event in the order of the run, which gets those that it lacks."""
        order: Sequence[str] = list(self._weights)
        found: list[float] = []
        counts = []
        for event in events:
            if list(event.weights) != order:
                for name in event.weights:
                    self._weights.setdefault(name, len(self._weights))
                order = list(self._weights)
            values = [event.weights.get(name, np.nan) for name in order] if event.weights else []
            counts.append(len(values))
            found += values
        return lists(counts, ak.contents.NumpyArray(np.array(found, np.float64)))


def _declared_weights(header: Any) -> dict[str, dict[str, str]]:
    """Return the description and the group of each weight that the header has, by its id."""
    known = {}
    for entry in header.initrwgt.entries:
        members = getattr(entry, "weights", None)
        group = "" if members is None else entry.attributes.get("name") or entry.attributes.get("type", "")
        for weight in [entry] if members is None else members:
            known[weight.id] = {"name": weight.name, "group": group}
    return known


def _elements(header: Any) -> list[dict[str, str]]:
    from xml.etree import ElementTree

    return [
        {"tag": each.tag, "xml": ElementTree.tostring(each, encoding="unicode")}
        for each in header.extra_elements
    ]

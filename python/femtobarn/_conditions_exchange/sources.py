"""The sources of an import: series with their conditions, payloads, and global tags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .._conditions.clocks import FOREVER, LUMI_MAX, RUN_BITS, RUN_MAX
from .._conditions.global_tags import State
from .._conditions.payloads import Payload
from .._exceptions import CorruptError, FemtobarnError, NotFoundError, near_misses
from .._schema.types import Definition

__all__ = [
    "FORMATS",
    "Format",
    "Options",
    "Rows",
    "Source",
    "SourceSeries",
    "SourceTag",
    "checked_run",
    "container_name",
    "kinds_checked",
    "run_end",
    "wanted",
]

Format = Literal["cms", "belle2", "nopayloaddb", "crest", "csv", "json", "sqlite"]
FORMATS: tuple[Format, ...] = ("cms", "belle2", "nopayloaddb", "crest", "csv", "json", "sqlite")

RESERVED = ("payloads", "condition_imports")
"""Containers that imports make beside the series."""

NAME_MAX = 180
"""Characters of a container's name that come from the name of a tag."""


@dataclass(frozen=True)
class Options:
    """The caller's options for a source."""

    only: tuple[str, ...] = ()
    """The tags to import, all if empty."""
    payloads: str | None = None
    """The folder or the address of the payloads."""
    snapshot: str | None = None
    """A time: rows that were inserted into the source later are ignored."""
    clock: Literal["time", "run"] | None = None
    overlap: Literal["newest", "open", "refuse"] | None = None
    end: Literal["inclusive", "exclusive"] | None = None
    """Whether validities of nopayloaddb contain their last moment."""
    series: str | None = None
    """The series that the conditions of a CSV file belong to."""
    definition: Definition | None = None
    """The class of conditions, inferred if not given."""


@dataclass
class Rows:
    """Some conditions: their validities, and a value or the hash of a payload for each."""

    since: list[int] = field(default_factory=list)
    until: list[int] = field(default_factory=list)
    channel: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    """Objects of the series' class; or keys of payloads: the hash that the source has, optionally with a
    blank and a text that makes it unique."""

    def add(self, since: int, until: int, value: Any, channel: int = 0) -> None:
        """Append a condition."""
        self.since.append(since)
        self.until.append(until)
        self.channel.append(channel)
        self.values.append(value)


@dataclass
class SourceSeries:
    """A series of a source."""

    tag: str
    """Its name in the source."""
    container: str
    """The name of its container."""
    clock: Literal["time", "run"]
    overlap: Literal["newest", "open", "refuse"]
    rows: Rows
    """Its conditions in the order in which they are put."""
    definition: Definition | None = None
    """The class of its conditions; None if they are payloads."""
    database: str | None = None
    """The database, if the source names it."""


@dataclass
class SourceTag:
    """A global tag of a source."""

    name: str
    series: dict[str, str]
    """The name of a container for each name by which jobs ask."""
    state: State = "open"
    message: str = ""


@contextmanager
def kinds_checked(place: str) -> Iterator[None]:
    """Report values of kinds that a format does not have, wherever in a source they are found.

    Raises
    ------
    CorruptError
        If the code that reads the source fails with an error of Python.
    """
    try:
        yield
    except FemtobarnError:
        raise
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise CorruptError(
            f"{place} has a value of a kind that its format does not have: {error!r}"
        ) from error


class Source(Protocol):
    """A database of another system."""

    system: str
    """Name of the system, which is also that of the database of its series by default."""
    location: str
    """The file or the address, as it is remembered."""

    def series(self) -> list[SourceSeries]:
        """Return the series."""

    def global_tags(self) -> list[SourceTag]:
        """Return the global tags."""

    def payload(self, key: str) -> Payload:
        """Return the payload with a hash, checked."""


def container_name(tag: str) -> str:
    """Return the name of a container for a tag: characters that names must not contain become ``_``.

    Examples
    --------
    >>> container_name("BeamSpot_v1.2 (offline)")
    'BeamSpot_v1_2__offline_'
    """
    name = re.sub(r"[^\w@+=,~-]", "_", tag)[:NAME_MAX]
    return f"_{name}" if name[:1] in ("-", "~", "") or name in RESERVED else name


def checked_run(run: int, block: int, place: str) -> int:
    """Return a run and a luminosity block as a moment, or refuse them with the row that they are in."""
    if 0 <= run <= RUN_MAX and 0 <= block <= LUMI_MAX:
        return run << RUN_BITS | block
    raise CorruptError(
        f"{place}: ({run}, {block}) is out of range; the first number goes to {RUN_MAX}, the second to "
        f"{LUMI_MAX}"
    )


def run_end(run: int, block: int, place: str) -> int:
    """Return the moment after a last run and luminosity block; the end of the clock if they are beyond it."""
    if run > RUN_MAX:
        return FOREVER
    if block >= LUMI_MAX:
        return FOREVER if run == RUN_MAX else checked_run(run + 1, 0, place)
    return checked_run(run, block, place) + 1


def wanted(names: Iterable[str], only: tuple[str, ...], place: str) -> list[str]:
    """Return the names to import, and refuse those that the source does not have."""
    found = list(names)
    for name in only:
        if name not in found:
            raise NotFoundError(f"{place} has no tag {name!r}{near_misses(name, found)}")
    return [name for name in found if not only or name in only]

"""Series: the conditions of one kind as of a snapshot, by the time at which they are valid."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from .._data.casts import Values
from .._data.results import as_library
from .._exceptions import ClosedError, InvalidError, NotFoundError
from .._femtobarn import payload_definition
from .._oid import Oid
from .._query.paths import Expressions
from .._query.projections import Projection
from .._schema.types import Definition
from .._views.view import View
from .channels import channel_of, channels_of
from .clocks import BEGINNING, FOREVER, bound_of, is_many, moment_of, moments_of, shown
from .plots import draw_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .._femtobarn import SeriesHandle
    from .._objects.objects import Object

__all__ = ["Interval", "Series", "payload_of"]

DEFINITIONS_MAX = 1024
"""Classes that a process keeps parsed."""


@dataclass(frozen=True)
class Interval:
    """A range of a series' clock with one answer."""

    since: int
    """The first moment of the range."""
    until: int
    """The first moment after the range."""
    entry: int | None
    """The entry of the condition that is valid in all of it; None in a gap. :meth:`Series.fetch` and
    :meth:`Series.object_at` take it."""


class Series:
    """The conditions of one kind as of a snapshot. Threads may share it.

    The snapshot alone determines the condition that is valid at a moment. The validities of a part of the
    clock are read at the first look-up in it; later look-ups there read only the conditions that they return.
    """

    def __init__(self, path: str, sources: Sequence[View], handle: SeriesHandle) -> None:
        self.path = path
        """Path of the series, such as ``"tpc/gain"``."""
        self.sources = tuple(sources)
        """The containers with all conditions, hidden ones included. That of the series is the first; those of
        branches in front of it follow. Entries of conditions are counted through all of them."""
        self.clock, self.overlap = handle.settings
        self._handle = handle
        self._is_checked = self.clock == "run"
        """Whether the moments of look-ups are checked, even if they are of type ``int``."""

    @property
    def view(self) -> View:
        """The container with all conditions of the series, hidden ones included.

        Raises
        ------
        InvalidError
            If the series is that of a branch, which has several containers: :attr:`sources`.
        """
        if len(self.sources) > 1:
            names = " and ".join(view.name for view in self.sources)
            raise InvalidError(
                f"{self.path} is read from {names}; use sources, or fetch and object_at for entries of "
                "conditions"
            )
        return self.sources[0]

    @property
    def csn(self) -> int:
        """The commit as of which the conditions are read; of a branch, those that were put into it."""
        return self.sources[-1].snapshot.csn

    @property
    def definition(self) -> Definition:
        """The class of the conditions, without the fields of their validity."""
        return payload_of(self.sources[0]._handle.definition)

    def at(
        self,
        when: Any,
        expressions: Expressions = None,
        *,
        channel: Any = 0,
        required: bool = False,
        library: str = "ak",
    ) -> Any:
        """Return the conditions that were valid at a moment, or at many.

        Parameters
        ----------
        when
            A moment of the series' clock: an integer as it is stored; a datetime with a time zone or a text
            such as ``"2026-01-01T00:00:00Z"``; or a pair of a run and a luminosity block. Many moments: an
            array of integers or of `numpy.datetime64`, a list, or a pair of arrays: runs and blocks.
        expressions
            For many moments: the fields to read, as for :meth:`View.arrays`; those of the class if not given.
        channel
            A channel; for many moments also an array, one for each.
        required
            Whether a gap is an error.
        library
            For many moments: the kind of the result, as for :meth:`View.arrays`.

        Returns
        -------
        Object or None, or an array with a condition or a missing value for each moment
            None stands for a gap: nothing was valid.

        Raises
        ------
        NotFoundError
            If there is a gap and `required` is true.
        InvalidError
            If a moment is malformed or out of range.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Gain:
        ...     value: fb.float32
        >>> with fed.transaction() as txn:
        ...     gains = txn.series("tpc/gain", Gain, create=True)
        ...     day = gains.put(Gain(value=1.5), since=0, until=100)
        ...     hour = gains.put(Gain(value=2.0), since=50, until=60)
        >>> gain = fed.conditions()["tpc/gain"]
        >>> gain.at(10).value, gain.at(55).value, gain.at(60).value, gain.at(100)
        (1.5, 2.0, 1.5, None)
        >>> gain.at([10, 55, 100], "value").to_list()
        [{'value': 1.5}, {'value': 2.0}, None]
        """
        if type(when) is not int or self._is_checked:
            if is_many(when, self.clock):
                return self._at_many(when, expressions, channel, required, library)
            when = self._moment(when)
        try:
            found = self._handle.at(self.sources, when, channel)
        except (OverflowError, TypeError):
            raise self._malformed(when, channel) from None
        if found is None and required:
            raise self._gap(when, channel)
        return found

    def entries_at(self, when: Any, *, channel: Any = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the conditions at many moments as entries, which :meth:`fetch` takes.

        Returns
        -------
        entries, positions : numpy.ndarray
            The different entries (``uint64``), and for each moment the position of its entry there, or -1 for
            a gap (``int64``).
        """
        times = self._moments(when)
        channels, one = None, 0
        if np.ndim(channel) == 0:
            one = channel_of(channel)
        else:
            channels = channels_of(channel, len(times)).view(np.uint8).data
        entries, positions = self._handle.entries_at(times.view(np.uint8).data, channels, one)
        return np.frombuffer(memoryview(entries), np.uint64), np.frombuffer(memoryview(positions), np.int64)

    def fetch(
        self, entries: Sequence[int] | Values, expressions: Expressions = None, *, library: str = "ak"
    ) -> Any:
        """Read fields of conditions by their entries, in the order given.

        Parameters
        ----------
        entries
            Entries, as :meth:`intervals`, :meth:`segments` and :meth:`entries_at` return them.
        expressions, library
            The fields to read, those of the class if not given, and the kind of the result, as for
            :meth:`View.arrays`.
        """
        if expressions is None:
            expressions = list(self.definition.record.by_name)
        return self.sources[0]._fetched(self._handle, entries, expressions, library)

    def object_at(self, entry: int) -> Object:
        """Return the condition with an entry.

        Raises
        ------
        NotFoundError
            If there is none, or it was deleted.
        """
        view, local = self._place_of(entry)
        found: Object = view.object_at(local)
        return found

    def oid(self, entry: int) -> Oid:
        """Return the OID of the condition with an entry."""
        view, local = self._place_of(entry)
        return view.oid(local)

    def _place_of(self, entry: int) -> tuple[View, int]:
        if len(self.sources) == 1:
            return self.sources[0], entry
        place, local = self._handle.place_of(entry)
        return self.sources[place], local

    def interval(self, when: Any, *, channel: SupportsIndex = 0) -> Interval:
        """Return the range around a moment in which the same condition is valid, or none is.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Flag", "fields": [{"name": "on", "type": "bool"}]}
        >>> with fed.transaction() as txn:
        ...     flags = txn.series("tpc/flag", form, create=True)
        ...     oid = flags.put({"on": True}, since=50, until=60)
        >>> fed.conditions()["tpc/flag"].interval(55)
        Interval(since=50, until=60, entry=0)
        """
        return self._interval(self._moment(when), channel_of(channel))

    def intervals(
        self, since: Any = None, until: Any = None, *, channel: SupportsIndex = 0
    ) -> list[Interval]:
        """Return the ranges of a part of the clock in which a condition is valid, in order."""
        columns = self.segments(since, until, channel=channel)
        return [Interval(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def segments(
        self, since: Any = None, until: Any = None, *, channel: SupportsIndex = 0
    ) -> tuple[Values, Values, Values]:
        """Return :meth:`intervals` as arrays: beginnings, ends (``int64``) and entries (``uint64``)."""
        columns = self._handle.intervals(channel_of(channel), *self._range(since, until))
        begins, ends, entries = (
            np.frombuffer(memoryview(column), kind)
            for column, kind in zip(columns, ("i8", "i8", "u8"), strict=True)
        )
        return begins, ends, entries

    def channels(self, since: Any = None, until: Any = None) -> list[int]:
        """Return the channels with a valid condition at some time in a part of the clock."""
        return self._handle.channels(*self._range(since, until))

    def plot(
        self,
        field: str | None = None,
        since: Any = None,
        until: Any = None,
        *,
        channel: SupportsIndex | Iterable[SupportsIndex] | None = None,
        axes: Axes | None = None,
    ) -> Axes:
        """Draw a number of the conditions by the time at which they are valid. Gaps stay empty.

        Parameters
        ----------
        field
            Path of the number; not needed if the class has only one.
        since, until
            The part of the clock to draw; without them, from the first to the last change.
        channel
            One channel or several; all if not given, of which there may be ten.
        axes
            Where to draw; by default a new picture.

        Raises
        ------
        InvalidError
            If the field is not a number, or the field or the channels must be named.
        UnsupportedError
            If Matplotlib, the extra ``plots``, is not installed.
        """
        channels = None
        if channel is not None:
            channels = [channel_of(one) for one in (channel if isinstance(channel, Iterable) else [channel])]
        begin = BEGINNING if since is None else self._moment(since)
        end = FOREVER if until is None else self._moment(until)
        return draw_series(self, field, begin, end, channels, axes)

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers of the database, of the container, and of the commit that made its state.

        Series of the same version in one federation have the same conditions. That of a branch has these
        numbers for each of its :attr:`sources`.
        """
        return tuple(self._handle.version)

    def shared_entries(self, other: Series) -> int:
        """Return how many entries, from the first on, stand for the same conditions in both series."""
        shared = 0
        if self.sources[0].snapshot.federation.uuid == other.sources[0].snapshot.federation.uuid:
            mine, others = self.version, other.version
            for place, view in enumerate(self.sources):
                end = 3 * (place + 1)
                if mine[:end] != others[:end]:
                    break
                shared += view._handle.entries
        return shared

    @property
    def version_name(self) -> str:
        """Name of the version, such as ``57-1f0c9ab24d3e``, which no other conditions ever have.

        It has the number and the random identifier of the commit that made the version; on a branch, those of
        each container.
        """
        return self._handle.version_name()

    def shown(self, moment: int) -> str:
        """Return a moment of the series' clock as text."""
        return shown(moment, self.clock)

    def __iter__(self) -> Iterator[Object]:
        """Return the objects of all conditions, hidden ones too, but not those that a branch corrected."""
        if len(self.sources) == 1:
            return iter(self.sources[0])
        replaced = {self._place_of(entry) for entry in self._handle.replaced_entries()}
        objects = ((view, each) for view in self.sources for each in view)
        return (each for view, each in objects if (view, each.entry) not in replaced)

    def __len__(self) -> int:
        """Return the number of conditions, hidden ones included; one that a branch corrected counts once."""
        return self._handle.conditions

    def __repr__(self) -> str:
        try:
            return f"<Series {self.path!r}: {len(self):,} conditions of class {self.definition.name}>"
        except ClosedError:
            return f"<Series {self.path!r} of a closed federation>"

    def _at_many(
        self, when: Any, expressions: Expressions, channel: Any, required: bool, library: str
    ) -> Any:
        entries, positions = self.entries_at(when, channel=channel)
        if required and (gaps := np.flatnonzero(positions < 0)).size:
            first = int(gaps[0])
            channels = channels_of(channel, len(positions))
            raise self._gap(int(self._moments(when)[first]), int(channels[first]))
        if expressions is None:
            expressions = list(self.definition.record.by_name)
        base = self.sources[0]
        array = base.snapshot._in_order([self.fetch(entries, expressions)], positions)
        return as_library(array, Projection.of(expressions, base.definition).record, library)

    def _moment(self, when: Any) -> int:
        return moment_of(when, self.clock)

    def _moments(self, when: Any) -> Values:
        return moments_of(when, self.clock)

    def _interval(self, moment: int, channel: int) -> Interval:
        return Interval(*self._handle.interval(channel, moment))

    def _range(self, since: Any, until: Any) -> tuple[int, int]:
        return (
            BEGINNING if since is None else bound_of(since, self.clock),
            FOREVER if until is None else bound_of(until, self.clock),
        )

    def _malformed(self, when: int, channel: Any) -> InvalidError:
        bound_of(when, self.clock)
        return InvalidError(f"{channel!r} is not a channel: give an integer of 64 bits for one moment")

    def _gap(self, moment: int, channel: int) -> NotFoundError:
        around = self._interval(moment, channel)
        return NotFoundError(
            f"{self.path} has no condition at {self.shown(moment)} for channel {channel}: there is a gap "
            f"from {self.shown(around.since)} to {self.shown(around.until)}"
        )


@functools.lru_cache(maxsize=DEFINITIONS_MAX)
def payload_of(definition: str) -> Definition:
    """Return the class of a series' conditions, from that of its objects in JSON."""
    return Definition.from_json(payload_definition(definition))

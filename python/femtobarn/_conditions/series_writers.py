"""Writing series: conditions put, ended and corrected within a transaction.

Invariants
----------
1. A condition is changed where it is, except on a branch: there, one of a container behind that of the branch
   is replaced by an object of the branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from .._data.arrays import Tree, columns_of, tree_length
from .._data.casts import Values
from .._exceptions import ClosedError, ExistsError, InvalidError, NotFoundError, near_misses
from .._femtobarn import SeriesHandle
from .._oid import Oid, OidRange
from .channels import channel_of, channels_of
from .clocks import FOREVER, is_many, moment_of, moments_of, shown
from .series import Series, payload_of

if TYPE_CHECKING:
    from .._views.view import View
    from .._writers import ContainerWriter

__all__ = ["SeriesWriter", "with_validity"]

VALIDITY = ("since", "until", "channel")

REPLACED = "replaced_entry"
"""The field of a branch's objects with the entry of the condition that they replace, or -1."""


class SeriesWriter:
    """A series within a transaction, to put, end and correct conditions."""

    def __init__(
        self,
        path: str,
        container: ContainerWriter,
        settings: tuple[str, str],
        behind: Sequence[View] = (),
    ) -> None:
        self.path = path
        """Path of the series, such as ``"tpc/gain"``."""
        self.container = container
        """The container that holds the conditions; of a branch, those that were put into it."""
        self.clock, self.overlap = settings
        self._behind = tuple(behind)
        self._first_entry = sum(view._handle.entries for view in behind)
        self.definition = payload_of(container._handle.definition)
        """The class of the conditions, without the fields of their validity."""
        self._names = list(self.definition.record.by_name)

    def put(self, condition: Any, *, since: Any, until: Any = None, channel: SupportsIndex = 0) -> Oid:
        """Insert a condition, and return its OID.

        Parameters
        ----------
        condition
            An object of the series' class, or a dictionary.
        since, until
            The first moment at which it is valid, and the first at which it is not any more. Without `until`
            it is valid until further notice.
        channel
            The channel.

        Raises
        ------
        InvalidError
            If the validity is empty or reversed, a moment is malformed, or the condition does not fit the
            class.
        ExistsError
            If a condition of the channel is valid at the same time, and the series refuses overlaps.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Voltage:
        ...     volts: fb.float32
        >>> with fed.transaction(message="HV of sector 3") as txn:
        ...     voltages = txn.series("tpc/hv", Voltage, create=True)
        ...     voltages.put(Voltage(volts=1350.0), since="2026-01-01T00:00:00Z", channel=3)
        Oid(1, 1, 0)
        """
        channel = channel_of(channel)
        begin = moment_of(since, self.clock)
        end = FOREVER if until is None else moment_of(until, self.clock)
        if begin >= end:
            raise self._empty(begin, end)
        if self.overlap == "refuse":
            self._check_free(np.array([begin]), np.array([end]), np.array([channel]))
        values = self._values_of(condition)
        validity = {"since": begin, "until": end, "channel": channel}
        return self.container.append({**validity, **self._replaced(-1), **values})

    def extend(self, conditions: Any, *, since: Any, until: Any = None, channel: Any = 0) -> OidRange:
        """Insert many conditions, and return their OIDs.

        Parameters
        ----------
        conditions
            Arrays or objects of the series' class, as for :meth:`ContainerWriter.extend`.
        since, until
            A moment for all conditions, or an array with one for each, as for :meth:`Series.at`. Without
            `until` they are valid until further notice.
        channel
            A channel for all conditions, or an array with one for each.

        Raises
        ------
        InvalidError
            If a validity is empty or reversed, lengths differ, or a condition does not fit the class. Nothing
            is inserted then.
        ExistsError
            If two conditions of a channel are valid at the same time, and the series refuses overlaps.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Voltage", "fields": [{"name": "volts", "type": "float32"}]}
        >>> with fed.transaction(message="HV of two sectors") as txn:
        ...     voltages = txn.series("tpc/hv", form, create=True)
        ...     voltages.extend({"volts": [1350, 1360]}, since="2026-01-01T00:00:00Z", channel=[1, 2])
        OidRange(1, 1, 0, 2)
        """
        columns = columns_of(conditions, self.definition.record)
        length = tree_length(columns)
        begins = self._moments(since, length)
        ends = self._moments(FOREVER if until is None else until, length)
        channels = channels_of(channel, length)
        lengths = {"conditions": length, "since": len(begins), "until": len(ends)}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{count} of {name}" for name, count in lengths.items())
            raise InvalidError(f"the numbers of values differ: {listed}")
        if (reversed_at := np.flatnonzero(begins >= ends)).size:
            first = reversed_at[0]
            raise self._empty(int(begins[first]), int(ends[first]))
        if self.overlap == "refuse":
            self._check_free(begins, ends, channels)
        first_entry = self.container.num_entries
        replaced = [np.full(length, -1)] if self._behind else []
        self.container.extend_columns(with_validity(columns, begins, ends, channels, *replaced))
        place = self.container.database_id, self.container.container_id
        return OidRange(*place, first_entry, first_entry + length)

    def end(self, *, at: Any, channel: SupportsIndex = 0) -> int:
        """End the conditions that began before a moment and are valid at it: they are valid until then.

        Returns
        -------
        int
            Number of conditions that were ended, including those that newer ones hide.

        Raises
        ------
        NotFoundError
            If there are none.
        """
        moment, channel = moment_of(at, self.clock), channel_of(channel)
        where = f"channel == {channel} and since < {moment} and until > {moment}"
        entries = self.entries(where)
        if not len(entries):
            raise NotFoundError(
                f"{self.path} has no condition of channel {channel} to end at {shown(moment, self.clock)}: "
                "none that began before is valid then"
            )
        self.shorten(entries, moment)
        return len(entries)

    def correct(self, condition: Any, *, at: Any, channel: SupportsIndex = 0) -> Oid:
        """Replace the values of the condition that is valid at a moment; its validity stays.

        Earlier snapshots keep the old values. A dictionary may have only some of the fields. To correct only
        a part of the validity, :meth:`put` a condition for that part.

        Raises
        ------
        NotFoundError
            If nothing is valid at the moment.
        """
        series = self.series()
        found = series.at(at, channel=channel, required=True)
        values = self._values_of(condition)
        oid: Oid = found.oid
        if (oid.database, oid.container) != (self.container.database_id, self.container.container_id):
            return self._replace(series, series.interval(at, channel=channel).entry, values)
        self.container.update(oid, values)
        return oid

    def series(self) -> Series:
        """Return the series with the changes of this transaction so far."""
        views = [*self._behind, self.container.view()]
        return Series(self.path, views, SeriesHandle.open([view._handle for view in views]))

    def entries(self, where: str) -> Values:
        """Return the entries of the conditions that meet a condition, those that newer ones hide included."""
        own = self.container.view()
        if not self._behind:
            return own.entries(where)
        found, replaced, first = [], [], 0
        for view in (*self._behind, own):
            found.append(view.entries(where).astype(np.int64) + first)
            first += view._handle.entries
            if REPLACED in view.fields:
                replaced.append(view.arrays(REPLACED, f"{REPLACED} >= 0", library="np")[REPLACED])
        return np.setdiff1d(np.concatenate(found), np.concatenate(replaced)).astype(np.uint64)

    def shorten(self, entries: Values, until: int) -> None:
        """End conditions at a moment, by their entries."""
        own = entries[entries >= self._first_entry] - np.uint64(self._first_entry)
        self.container.update(own, {"until": np.full(len(own), until)})
        series = self.series()
        for entry in entries[entries < self._first_entry].tolist():
            self._replace(series, entry, {"until": until})

    def remove(self, entries: Values) -> None:
        """Delete conditions, by their entries."""
        own = entries[entries >= self._first_entry] - np.uint64(self._first_entry)
        series = self.series()
        if self._behind:
            # One that replaces another must stay, or the other would be valid again.
            stored = self.container.view().fetch(own, ["since", REPLACED], library="np")
            stays = np.asarray(stored[REPLACED]) >= 0
            self.container.update(own[stays], {"until": np.asarray(stored["since"])[stays]})
            own = own[~stays]
        self.container.delete(own)
        for entry in entries[entries < self._first_entry].tolist():
            self._replace(series, entry, {"until": series.object_at(entry)["since"]})

    def _replace(self, series: Series, entry: int | None, changes: dict[str, Any]) -> Oid:
        """Put a condition with some other values in the place of one that is behind the branch."""
        assert entry is not None
        old = series.object_at(entry)
        values = {name: old[name] for name in (*VALIDITY, *self._names)}
        return self.container.append({**values, **changes, **self._replaced(entry)})

    def _replaced(self, entry: int) -> dict[str, int]:
        return {REPLACED: entry} if self._behind else {}

    def __len__(self) -> int:
        return len(self.container)

    def __repr__(self) -> str:
        try:
            return f"<SeriesWriter {self.path!r}: {len(self):,} conditions of class {self.definition.name}>"
        except ClosedError:
            return f"<SeriesWriter {self.path!r} of a closed federation>"

    def _moments(self, when: Any, count: int) -> Values:
        """Return many moments, or one moment `count` times."""
        if is_many(when, self.clock):
            return moments_of(when, self.clock)
        return np.full(count, moment_of(when, self.clock), np.int64)

    def _values_of(self, condition: Any) -> dict[str, Any]:
        if isinstance(condition, dict):
            extra = [name for name in condition if name not in self._names]
            if extra:
                hint = near_misses(extra[0], self._names)
                raise InvalidError(f"class {self.definition.name} has no field {extra[0]!r}{hint}")
            return condition
        missing = [name for name in self._names if not hasattr(condition, name)]
        if missing:
            raise InvalidError(
                f"{condition!r} is not a condition of class {self.definition.name}: it has no "
                f"{', '.join(missing)}"
            )
        return {name: getattr(condition, name) for name in self._names}

    def _empty(self, since: int, until: int) -> InvalidError:
        since_text, until_text = (shown(moment, self.clock) for moment in (since, until))
        return InvalidError(
            f"the validity from {since_text} to {until_text} is empty; it must end after it begins"
        )

    def _check_free(self, begins: Values, ends: Values, channels: Values) -> None:
        """Refuse validities that overlap each other, or those of the series."""
        order = np.lexsort((begins, channels))
        begins, ends, channels = begins[order], ends[order], channels[order]
        clashes = np.flatnonzero((channels[1:] == channels[:-1]) & (begins[1:] < ends[:-1]))
        if clashes.size:
            first = clashes[0] + 1
            raise self._overlap(int(channels[first]), int(begins[first]), int(ends[first]))
        existing = self.series()
        for channel in np.unique(channels).tolist():
            chosen = channels == channel
            span = int(begins[chosen].min()), int(ends[chosen].max())
            taken = existing.intervals(*span, channel=channel)
            starts = np.array([interval.since for interval in taken], np.int64)
            stops = np.array([interval.until for interval in taken], np.int64)
            first_after = np.searchsorted(stops, begins[chosen], "right")
            is_taken = np.append(starts, FOREVER)[first_after] < ends[chosen]
            if is_taken.any():
                clash = np.flatnonzero(is_taken)[0]
                raise self._overlap(channel, int(begins[chosen][clash]), int(ends[chosen][clash]))

    def _overlap(self, channel: int, since: int, until: int) -> ExistsError:
        since_text, until_text = (shown(moment, self.clock) for moment in (since, until))
        return ExistsError(
            f"{self.path} has a condition of channel {channel} between {since_text} and {until_text} "
            "already, and refuses overlaps; end that one first, or correct it"
        )


def with_validity(columns: Tree, *integers: Values) -> Tree:
    """Return the columns of a series' class, from those of its payload.

    Parameters
    ----------
    integers
        Beginnings, ends and channels, and for a branch the entries of the conditions that are replaced.
    """
    _, length, names, contents = columns
    validity = [
        ("primitive", "int64", np.ascontiguousarray(each, np.int64).view(np.uint8)) for each in integers
    ]
    return ("record", length, (*VALIDITY, REPLACED)[: len(integers)] + tuple(names), (*validity, *contents))

"""Runs of reductions: which part of the clock is derived anew, and how far the last run came.

Each run is one transaction. How far it came is in the container ``<series>-runs`` beside the derived series:
the reduction, and the commit and the number of entries as of which each raw series was read. Conditions that
were inserted, updated, ended or deleted since then tell what to derive. If that commit was given up by a
vacuum, everything is derived; only what differs is put.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .._exceptions import InvalidError, NotFoundError
from .clocks import BEGINNING, FOREVER, bound_of, shown
from .corrections import corrected_ranges
from .derived_series import put_differences, stored_before
from .reductions import RawField, Reduction
from .segments import Segments, read_segments
from .series import Series

if TYPE_CHECKING:
    from .._federations import Federation
    from .._transactions import Transaction
    from .._views.view import View

__all__ = ["Reduced", "reduce_all"]

RUN = {
    "name": "ReductionRun",
    "fields": [
        {"name": "reduction", "type": "string"},
        {"name": "raw_csn", "type": "uint64"},
        {"name": "raw_entries", "type": {"list": "uint64"}},
        {"name": "newest", "type": "int64"},
    ],
}


@dataclass(frozen=True)
class Reduced:
    """The result of a reduction."""

    series: str
    """Path of the derived series."""
    put: int
    """Number of conditions that were put."""
    gaps: int
    """Number of ranges in which nothing is valid any more."""
    raw: int
    """Number of raw conditions that were read."""
    raw_csn: int
    """The commit as of which the raw series were read."""
    csn: int | None
    """The commit of the derived conditions; None if nothing had to change."""


def reduce_all(
    federation: Federation, reductions: Iterable[Reduction], since: Any = None, until: Any = None
) -> list[Reduced]:
    """Run reductions one after the other; see :meth:`Conditions.reduce`."""
    return [_Run(federation, reduction, since, until).result() for reduction in reductions]


@dataclass(frozen=True)
class _State:
    """How far the last run came."""

    raw_csn: int
    raw_entries: list[int]
    newest: int


class _Run:
    """One run of a reduction."""

    def __init__(self, federation: Federation, reduction: Reduction, since: Any, until: Any) -> None:
        self.federation, self.reduction = federation, reduction
        self.range = None if since is None and until is None else (since, until)
        self.text = json.dumps(asdict(reduction), default=str, sort_keys=True)

    def result(self) -> Reduced:
        """Derive what has to be derived, and commit it."""
        reduction = self.reduction
        raw = reduction.raw
        clock = self._clock(raw)
        message = f"reduce {', '.join(each.series for each in raw.values())} to {reduction.to}"
        with self.federation.transaction(message=message) as txn:
            # The lock of the series is taken first: nobody else derives it meanwhile.
            writer = txn.series(reduction.to, reduction.form(), create=True, clock=clock, overlap="newest")
            job = self.federation.conditions()
            series = {name: job[field.series] for name, field in raw.items()}
            entries = [each.view._handle.entries for each in series.values()]
            state = self._state(txn)
            changed = self._changed(series, raw, state, entries)
            newest = self._newest(series, state, entries)
            spans = self._spans(series, raw, changed, newest)
            count, derived = self._derive(series, raw, spans, writer.series())
            put, gaps = put_differences(writer, derived, spans, reduction.compared, job.csn)
            is_complete = self.range is None
            if is_complete and (put or gaps or state is None or state.raw_entries != entries):
                self._keep_state(txn, job.csn, entries, newest)
            elif not put and not gaps:
                txn.rollback()
        return Reduced(reduction.to, put, gaps, count, job.csn, txn.csn)

    def _clock(self, raw: dict[str, RawField]) -> Any:
        job = self.federation.conditions()
        clocks = {job[field.series].clock for field in raw.values()}
        if len(clocks) > 1:
            raise InvalidError(f"{self.reduction.to}: its series have different clocks")
        return clocks.pop()

    def _changed(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        state: _State | None,
        entries: list[int],
    ) -> dict[int | None, tuple[int, int]]:
        """Return the ranges in which raw conditions have changed, by channel; those of None are of all."""
        if self.range is not None:
            clock = next(iter(series.values())).clock
            ends = (BEGINNING, FOREVER)
            begin, end = (
                default if given is None else bound_of(given, clock)
                for given, default in zip(self.range, ends, strict=True)
            )
            if begin >= end:
                raise InvalidError(
                    f"the range from {shown(begin, clock)} to {shown(end, clock)} is empty; it must end "
                    "after it begins"
                )
            return {None: (begin, end)}
        before = None if state is None else self._views_before(series, raw, state.raw_csn)
        if state is None or before is None:
            return {None: (BEGINNING, FOREVER)}
        changed: dict[int | None, tuple[int, int]] = {}
        for (name, one), start in zip(series.items(), state.raw_entries, strict=True):
            fixed = raw[name].channel
            ranges = corrected_ranges(before[name], one.view, raw[name].name_in(one))
            for channel, (begin, end) in chain(ranges.items(), _inserted(one, start)):
                if fixed in (None, channel):
                    key = channel if fixed is None else None
                    first, last = changed.get(key, (begin, end))
                    changed[key] = min(first, begin), max(last, end)
        return changed

    def _views_before(
        self, series: dict[str, Series], raw: dict[str, RawField], csn: int
    ) -> dict[str, View] | None:
        """Return the raw containers as of the last run; None if they cannot be compared with those of now."""
        try:
            job = self.federation.conditions(csn=csn)
        except NotFoundError:
            return None
        views = {}
        for name, now in series.items():
            before = job[now.path]
            is_same_container = before.version[:2] == now.version[:2]
            if not is_same_container or raw[name].name_in(now) not in before.definition.record.by_name:
                return None
            views[name] = before.view
        return views

    def _newest(self, series: dict[str, Series], state: _State | None, entries: list[int]) -> int:
        """Return the moment at which the newest raw condition begins."""
        newest = BEGINNING if state is None else state.newest
        starts = [0] * len(entries) if state is None else state.raw_entries
        for one, start in zip(series.values(), starts, strict=True):
            new = one.view.arrays("since", entry_start=start, library="np")["since"]
            newest = max(newest, int(new.max()) if len(new) else BEGINNING)
        return newest

    def _spans(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        changed: dict[int | None, tuple[int, int]],
        newest: int,
    ) -> dict[int, tuple[int, int]]:
        """Return the range to derive of each channel."""
        spans: dict[int, tuple[int, int]] = {}
        for channel in self._channels(series, raw):
            ranges = [changed[key] for key in (channel, None) if key in changed]
            ranges += self._unfinished(newest)
            if not ranges:
                continue
            begin, end = min(begin for begin, _ in ranges), max(end for _, end in ranges)
            span = self.reduction.span(begin, end, newest)
            if span[0] < span[1]:
                spans[channel] = span
        return spans

    def _unfinished(self, newest: int) -> list[tuple[int, int]]:
        """Return the range that the last run could not derive yet, because it had not ended."""
        if self.range is not None or self._last is None:
            return []
        _, done = self.reduction.span(BEGINNING, FOREVER, self._last.newest)
        _, end = self.reduction.span(BEGINNING, FOREVER, newest)
        return [(done, end)] if done < end else []

    def _channels(self, series: dict[str, Series], raw: dict[str, RawField]) -> list[int]:
        found = [set(one.channels()) for name, one in series.items() if raw[name].channel is None]
        channels = set.intersection(*found) if found else {0}
        wanted = self.reduction.channels
        return sorted(channels if wanted is None else channels & set(wanted))

    def _derive(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        spans: dict[int, tuple[int, int]],
        stored: Series,
    ) -> tuple[int, dict[int, Segments]]:
        """Return the number of raw conditions that were read, and the new segments by channel."""
        befores = stored_before(stored, list(spans), {channel: span[0] for channel, span in spans.items()})
        derived: dict[int, Segments] = {}
        count = 0
        for span in set(spans.values()):
            channels = [channel for channel, each in spans.items() if each == span]
            read = {}
            for name, one in series.items():
                field, fixed = raw[name].name_in(one), raw[name].channel
                found = read_segments(one, channels if fixed is None else [fixed], *span, [field])
                count += sum(map(len, found.values()))
                read[name] = {
                    channel: _as_value(found[channel if fixed is None else fixed], field)
                    for channel in channels
                }
            for channel in channels:
                segments = {name: each[channel] for name, each in read.items()}
                derived[channel] = self.reduction.derive(segments, span[0], befores[channel])
        return count, derived

    def _state(self, txn: Transaction) -> _State | None:
        """Return how far the last run came; None if there was none, or it was of another reduction."""
        self._last: _State | None = None
        path = f"{self.reduction.to}-runs"
        if path in self.federation:
            run = self.federation[path][-1]
            if run.reduction == self.text:
                self._last = _State(
                    int(run.raw_csn), [int(each) for each in run.raw_entries], int(run.newest)
                )
        return self._last

    def _keep_state(self, txn: Transaction, csn: int, entries: list[int], newest: int) -> None:
        database, _, name = self.reduction.to.partition("/")
        runs = txn.database(database).container(f"{name}-runs", RUN, create=True)
        runs.append({"reduction": self.text, "raw_csn": csn, "raw_entries": entries, "newest": newest})


def _inserted(series: Series, start: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return the ranges from the first condition on that was inserted into each channel."""
    new = series.view.arrays(["since", "channel"], entry_start=start, library="np")
    for channel in np.unique(new["channel"]).tolist():
        yield channel, (int(new["since"][new["channel"] == channel].min()), FOREVER)


def _as_value(segments: Segments, field: str) -> Segments:
    return Segments(segments.since, segments.until, {"value": segments.fields[field]}, segments.entries)

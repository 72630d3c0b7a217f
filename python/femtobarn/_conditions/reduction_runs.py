"""Runs of reductions: the part of the clock to derive anew, and the state after the last run.

Each run is one transaction. Its state is in the container ``<series>-runs`` beside the derived series: the
reduction, and the commit and the number of entries as of which each raw series was read. Conditions that were
inserted, updated, ended or deleted since then determine the ranges to derive. If the state cannot be compared
any more, because its commit was given up or a series was made again, the run is like a first one: everything
is derived, and only differences are put. A run of unchanged series reads and commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from .._exceptions import CorruptError, InvalidError, NotFoundError
from .clocks import BEGINNING, FOREVER, moment_of, shown
from .corrections import Ranges, corrected_ranges, inserted_ranges, newest_beginning
from .derived_series import put_differences, stored_before
from .reductions import RawField, Reduction
from .segments import Segments, read_segments
from .series import Series

if TYPE_CHECKING:
    from .._federations import Federation
    from .._transactions import Transaction

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
        """Derive the conditions that are due, and commit them."""
        reduction = self.reduction
        raw = reduction.raw
        clock = self._clock(raw)
        message = f"reduce {', '.join(each.series for each in raw.values())} to {reduction.to}"
        with self.federation.transaction(message=message) as txn:
            # The lock of the series is taken first: nobody else derives it meanwhile.
            writer = txn.series(reduction.to, reduction.form(), create=True, clock=clock, overlap="newest")
            job = self.federation.conditions()
            series = {name: job[field.series] for name, field in raw.items()}
            state, corrected = self._since_last_run(series, raw)
            newest = self._newest(series, state, corrected)
            done = reduction.done(newest)
            stored = writer.series()
            spans = self._spans(series, raw, state, corrected, done, stored)
            count, derived = self._derive(series, raw, spans, done, stored)
            put, gaps = put_differences(writer, derived, spans, reduction.compared, job.csn)
            is_complete = self.range is None
            if is_complete and (put or gaps or corrected is not None):
                entries = [one.view._handle.entries for one in series.values()]
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

    def _since_last_run(
        self, series: dict[str, Series], raw: dict[str, RawField]
    ) -> tuple[_State | None, dict[str, Ranges] | None]:
        """Return how far the last run came, and where conditions were corrected since then.

        Returns
        -------
        state
            None if there was no run before, or the series as it read them cannot be compared with the current
            ones.
        corrected
            For each name the corrected ranges; None if the raw series are as the last run has read them.
        """
        state = self._state()
        if state is None:
            return None, {}
        if all(one.version[2] <= state.raw_csn for one in series.values()):
            return state, None
        corrected = {}
        try:
            job = self.federation.conditions(csn=state.raw_csn)
            for name, now in series.items():
                before, field = job[now.path], raw[name].name_in(now)
                is_same_container = before.version[:2] == now.version[:2]
                if not is_same_container or field not in before.definition.record.by_name:
                    return None, {}
                corrected[name] = corrected_ranges(before.view, now, field)
        except (NotFoundError, CorruptError):
            return None, {}
        return state, corrected

    def _changed(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        state: _State | None,
        corrected: dict[str, Ranges] | None,
    ) -> dict[int | None, tuple[int, int]]:
        """Return the ranges in which raw conditions have changed, by channel; those of None are of all."""
        if self.range is not None:
            return {None: self._given_range(next(iter(series.values())).clock)}
        if state is None:
            return {None: (BEGINNING, FOREVER)}
        changed: dict[int | None, tuple[int, int]] = {}
        for (name, one), start in zip(series.items(), state.raw_entries, strict=True):
            fixed = raw[name].channel
            found = (corrected or {}).get(name, {})
            for channel, (begin, end) in chain(found.items(), inserted_ranges(one, start).items()):
                if fixed in (None, channel):
                    key = channel if fixed is None else None
                    first, last = changed.get(key, (begin, end))
                    changed[key] = min(first, begin), max(last, end)
        return changed

    def _given_range(self, clock: str) -> tuple[int, int]:
        assert self.range is not None
        begin, end = (
            default if given is None else moment_of(given, clock)
            for given, default in zip(self.range, (BEGINNING, FOREVER), strict=True)
        )
        if begin >= end:
            raise InvalidError(
                f"the range from {shown(begin, clock)} to {shown(end, clock)} is empty; it must end "
                "after it begins"
            )
        return begin, end

    def _newest(
        self, series: dict[str, Series], state: _State | None, corrected: dict[str, Ranges] | None
    ) -> int:
        """Return the moment at which the newest raw condition begins."""
        ends = [end for ranges in (corrected or {}).values() for _, end in ranges.values()]
        if state is None or any(end >= state.newest for end in ends):
            # The newest one may have been deleted.
            return max(newest_beginning(one.view, 0) for one in series.values())
        new = zip(series.values(), state.raw_entries, strict=True)
        return max(state.newest, *(newest_beginning(one.view, start) for one, start in new))

    def _spans(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        state: _State | None,
        corrected: dict[str, Ranges] | None,
        done: int,
        stored: Series,
    ) -> dict[int, tuple[int, int]]:
        """Return the range to derive of each channel; it ends at `done` unless something is stored behind."""
        is_complete = self.range is None
        if is_complete and corrected is None:
            return {}
        changed = self._changed(series, raw, state, corrected)
        late = set(stored.channels(done)) if done < FOREVER else set()
        unfinished = []
        if is_complete and state is not None and self.reduction.done(state.newest) < done:
            unfinished = [(self.reduction.done(state.newest), done)]
        spans: dict[int, tuple[int, int]] = {}
        for channel in self._channels(series, raw, stored):
            ranges = [changed[key] for key in (channel, None) if key in changed] + unfinished
            if is_complete and channel in late:
                ranges.append((done, FOREVER))
            if not ranges:
                continue
            begin, end = self.reduction.span(min(begin for begin, _ in ranges), max(end for _, end in ranges))
            if channel not in late:
                end = min(end, done)
            if begin < end:
                spans[channel] = begin, end
        return spans

    def _channels(self, series: dict[str, Series], raw: dict[str, RawField], stored: Series) -> list[int]:
        """Return the channels that can be derived, or were derived before."""
        found = [set(one.channels()) for name, one in series.items() if raw[name].channel is None]
        channels = set.intersection(*found) if found else {0}
        channels |= set(stored.channels())
        wanted = self.reduction.channels
        return sorted(channels if wanted is None else channels & set(wanted))

    def _derive(
        self,
        series: dict[str, Series],
        raw: dict[str, RawField],
        spans: dict[int, tuple[int, int]],
        done: int,
        stored: Series,
    ) -> tuple[int, dict[int, Segments]]:
        """Return the number of raw conditions that were read, and the new segments by channel.

        Nothing is derived from `done` on.
        """
        befores = stored_before(stored, list(spans), {channel: span[0] for channel, span in spans.items()})
        derived: dict[int, Segments] = {}
        count = 0
        for span in set(spans.values()):
            channels = [channel for channel, each in spans.items() if each == span]
            range_read = span[0], max(span[0], min(span[1], done))
            read = {}
            for name, one in series.items():
                field, fixed = raw[name].name_in(one), raw[name].channel
                found = read_segments(one, channels if fixed is None else [fixed], *range_read, [field])
                count += sum(map(len, found.values()))
                read[name] = {
                    channel: _as_value(found[channel if fixed is None else fixed], field)
                    for channel in channels
                }
            for channel in channels:
                segments = {name: each[channel] for name, each in read.items()}
                derived[channel] = self.reduction.derive(segments, span[0], befores[channel])
        return count, derived

    def _state(self) -> _State | None:
        """Return how far the last run came; None if there was none, or it was of another reduction."""
        path = f"{self.reduction.to}-runs"
        if path not in self.federation:
            return None
        run = self.federation[path][-1]
        if run.reduction != self.text:
            return None
        return _State(int(run.raw_csn), [int(each) for each in run.raw_entries], int(run.newest))

    def _keep_state(self, txn: Transaction, csn: int, entries: list[int], newest: int) -> None:
        database, _, name = self.reduction.to.partition("/")
        runs = txn.database(database).container(f"{name}-runs", RUN, create=True)
        runs.append({"reduction": self.text, "raw_csn": csn, "raw_entries": entries, "newest": newest})


def _as_value(segments: Segments, field: str) -> Segments:
    return Segments(segments.since, segments.until, {"value": segments.fields[field]}, segments.entries)

"""Derived series: only differences are put, so that a later run changes as little as possible.

1. A condition that answers as the new one does stays as it is, with the entries that it was derived from.
2. Earlier commits answer as they did.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.casts import Values
from .clocks import BEGINNING, FOREVER
from .segments import Differences, Segments, differences_of, read_segments
from .series import Series
from .series_writers import SeriesWriter

__all__ = ["cut", "put_differences", "stored_before"]


def stored_before(
    series: Series, channels: list[int], starts: dict[int, int]
) -> dict[int, dict[str, Any] | None]:
    """Return the conditions that are valid up to a moment of each channel."""
    if not channels:
        return {}
    moments = np.array([max(starts[channel] - 1, -(2**63)) for channel in channels], np.int64)
    found = series.at(moments, channel=np.array(channels, np.int64)).to_list()
    return dict(zip(channels, found, strict=True))


def put_differences(
    writer: SeriesWriter,
    derived: dict[int, Segments],
    spans: dict[int, tuple[int, int]],
    compared: tuple[str, ...],
    csn: int,
) -> tuple[int, int]:
    """Make a series answer within a range of each channel as new segments do.

    Returns
    -------
    put, cut
        Numbers of conditions that were put, and of ranges in which nothing is valid any more.
    """
    stored = writer.series()
    names = list(writer.definition.record.by_name)
    put: list[tuple[int, Segments]] = []
    gaps: list[tuple[int, int, int]] = []
    for span in set(spans.values()):
        channels = [channel for channel in derived if spans[channel] == span]
        old = read_segments(stored, channels, *span, compared)
        for channel in channels:
            changes = differences_of(old[channel], derived[channel], compared)
            parts, gap = _around_gaps(changes, derived[channel])
            put += [(channel, part) for part in parts if len(part)]
            gaps += [(channel, *each) for each in gap]
    for channel, since, until in gaps:
        cut(writer, channel, since, until)
    count = sum(len(part) for _, part in put)
    if count:
        parts = [part for _, part in put]
        columns = {name: np.concatenate([each.fields[name] for each in parts]) for name in parts[0].fields}
        kinds = {name: node.dtype for name, node in writer.definition.record.by_name.items()}  # type: ignore[attr-defined]
        columns["raw_csn"] = np.full(count, csn)
        writer.extend(
            {name: columns[name].astype(kinds[name]) for name in names},
            since=np.concatenate([each.since for each in parts]),
            until=np.concatenate([each.until for each in parts]),
            channel=np.concatenate([np.full(len(each), channel) for channel, each in put]),
        )
    return count, len(gaps)


def _around_gaps(changes: Differences, derived: Segments) -> tuple[list[Segments], list[tuple[int, int]]]:
    """Return the conditions to put, and the range to cut before: that from the first gap to the last.

    A cut searches the container, so there is only one for each channel; conditions that are valid between the
    gaps are put again after it.
    """
    if len(changes.gaps) <= 1:
        return [changes.put], changes.gaps
    begin, end = changes.gaps[0][0], changes.gaps[-1][1]
    outside = [changes.put.within(BEGINNING, begin), changes.put.within(end, FOREVER)]
    return [outside[0], derived.within(begin, end), outside[1]], [(begin, end)]


def cut(writer: SeriesWriter, channel: int, since: int, until: int) -> None:
    """Make a gap. Conditions that were valid after it are put again, unless they were hidden."""
    stored = writer.series()
    if writer.overlap == "open":
        # Conditions that newer ones hide are not valid any more.
        entries = np.unique(stored.segments(since, until, channel=channel)[2])
    else:
        entries = writer.entries(f"channel == {channel} and since < {until} and until > {since}")
    validity = stored.fetch(entries, ["since", "until"], library="np")
    begins, ends = np.asarray(validity["since"]), np.asarray(validity["until"])
    end = int(ends.max(initial=until))
    starts, stops, valid = stored.segments(until, end, channel=channel)
    chosen = np.isin(valid, entries) & (stops > until)
    again = stored.fetch(valid[chosen])
    is_before: Values = begins < since
    writer.shorten(entries[is_before], since)
    writer.remove(entries[~is_before])
    if len(again):
        writer.extend(
            again,
            since=np.maximum(starts[chosen], until),
            until=np.minimum(stops[chosen], end),
            channel=channel,
        )

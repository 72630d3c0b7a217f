"""Lists of events of many containers, with the moments of the events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError
from .._snapshots import Snapshot
from .._views.picked import PickedView
from .._views.view import View
from .event_joins import Moments, iterate_moments

__all__ = ["EventList", "Events", "each_once", "read_event_list"]

Events = View | Sequence[View] | Any
"""A view, several views, or OIDs or links of events in any form that :meth:`Snapshot.fetch` takes."""


@dataclass(frozen=True)
class EventList:
    """Events, container by container, and in each by entry; each event once."""

    views: tuple[View, ...]
    """The containers, each with all its entries."""
    entries: tuple[Values, ...]
    """The entries of the events in each container."""
    moments: dict[str, Values]
    """The moments of all events, on each clock."""
    orders: dict[str, Values]
    """The positions of all events in the order of each clock; events of the same moment stay as they lie."""

    def __len__(self) -> int:
        return sum(map(len, self.entries))

    @property
    def places(self) -> Values:
        """The container of each event, as its position in `views`."""
        return np.repeat(np.arange(len(self.entries)), [len(each) for each in self.entries])


def read_event_list(
    snapshot: Snapshot, events: Events, where: str | None, moments: Mapping[str, Moments]
) -> EventList:
    """Read which events there are, and their moments.

    Parameters
    ----------
    snapshot
        Where OIDs are looked up.
    where
        Only events that meet this condition.

    Raises
    ------
    InvalidError
        If containers have classes with other fields.
    """
    chosen: dict[tuple[int, int], tuple[View, list[Values]]] = {}
    for view in _views(snapshot, events):
        place = view.oids.database, view.oids.container
        whole = view._within(range(view._handle.entries))
        chosen.setdefault(place, (whole, []))[1].append(view.entries(where))
    views = tuple(view for view, _ in chosen.values())
    for view in views[1:]:
        if view.typenames() != views[0].typenames():
            raise InvalidError(
                f"events of {views[0].name} and {view.name} have different fields; plan them separately, or "
                "give views of one version of their class: view.as_class(version)"
            )
    entries = tuple(each_once(np.concatenate(parts)) for _, parts in chosen.values())
    found: dict[str, list[Values]] = {clock: [np.empty(0, np.int64)] for clock in moments}
    for view, of_view in zip(views, entries, strict=True):
        picked = view if len(of_view) == len(view) else PickedView(view, of_view)
        for batch in iterate_moments(picked, moments):
            for clock, each in batch.items():
                found[clock].append(each)
    joined = {clock: np.concatenate(parts) for clock, parts in found.items()}
    orders = {clock: np.argsort(each, kind="stable") for clock, each in joined.items()}
    return EventList(views, entries, joined, orders)


def _views(snapshot: Snapshot, events: Events) -> list[View]:
    if isinstance(events, View):
        return [events]
    if isinstance(events, list | tuple) and all(isinstance(each, View) for each in events):
        return list(events)
    return snapshot.views_of(events)


def each_once(values: Values) -> Values:
    """Return values in ascending order, each once. It is faster than `np.unique`, which hashes integers.

    Examples
    --------
    >>> import numpy as np
    >>> each_once(np.array([3, 1, 3]))
    array([1, 3])
    """
    if (values[1:] > values[:-1]).all():
        return values
    ordered = np.sort(values)
    kept: Values = ordered[np.append(True, ordered[1:] > ordered[:-1])]
    return kept

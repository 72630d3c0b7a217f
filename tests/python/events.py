"""Classes of raw objects and of events with links to them, which several files of tests write."""

from __future__ import annotations

import femtobarn as fb

__all__ = ["Event", "Hit", "Raw", "Track", "fill"]


@fb.persistent
class Hit:
    x: fb.float32
    charge: fb.int16


@fb.persistent
class Raw:
    number: fb.uint64
    hits: list[Hit]


@fb.persistent
class Track:
    pt: fb.float32
    seed: fb.element_link[Raw] = None


@fb.persistent
class Event:
    run: fb.uint32
    event: fb.uint64
    met: float
    name: str
    tracks: list[Track]
    raw: fb.link[Raw] = None
    all_raw: list[fb.link[Raw]] = fb.field(default_factory=list)
    note: str | None = None


def fill(fed: fb.Federation, events: int = 10) -> list[fb.Oid]:
    """Write raw objects into one database, and events that link to them into another."""
    with fed.transaction(message="fill") as txn:
        raw = txn.database("raw", create=True).container("objects", Raw, create=True)
        reco = txn.database("reco", create=True).container("events", Event, create=True)
        oids = []
        for number in range(events):
            hits = [Hit(x=number + 0.5 * k, charge=k) for k in range(number % 4)]
            link = raw.append(Raw(number=number, hits=hits))
            tracks = [Track(pt=10.0 * k, seed=(link, k)) for k in range(number % 4)]
            event = Event(run=7, event=number, met=number / 2, name=f"e{number}", tracks=tracks)
            event.raw, event.all_raw = link, [link] * (number % 3)
            event.note = "odd" if number % 2 else None
            oids.append(reco.append(event))
    return oids

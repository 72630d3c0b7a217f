"""Loops over objects: their cost per object, which neighbours share without changing a value."""

from __future__ import annotations

import pickle
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb
from femtobarn._data.results import layout_of
from femtobarn._views.view import BLOCK_ENTRIES

MEMBERS = [f"m{number}" for number in range(30)]
OBJECTS = 2 * BLOCK_ENTRIES + 88


@pytest.fixture
def events(fed: fb.Federation) -> fb.View:
    """Event `i` has `i % 4` muons with 30 members each, and a jet if `i` is even."""
    members = [{"name": name, "type": "float32"} for name in MEMBERS]
    muons = {"list": {"record": {"class": "Muon", "fields": members}}}
    jet = {"record": {"class": "Jet", "fields": [{"name": "pt", "type": "float32"}]}}
    fields = [
        {"name": "run", "type": "int32"},
        {"name": "muons", "type": muons},
        {"name": "jets", "type": {"list": {"list": jet}}},
    ]
    counts = np.arange(OBJECTS) % 4
    values = ak.unflatten(np.arange(counts.sum(), dtype=np.float32), counts)
    rows = {
        "run": np.arange(OBJECTS),
        "muons": ak.zip({name: values + number for number, name in enumerate(MEMBERS)}),
        "jets": [[[{"pt": i}]] if i % 2 == 0 else [] for i in range(OBJECTS)],
    }
    with fed.transaction() as txn:
        form = {"name": "Event", "fields": fields}
        txn.database("d", create=True).container("events", form, create=True).extend(rows)
    return fed["d/events"]


def test_a_loop_and_arrays_give_the_same_values(events: fb.View) -> None:
    arrays = events.arrays()
    for event, expected in zip(events, arrays, strict=True):
        assert event.muons.m7.to_list() == expected.muons.m7.to_list()
        assert event.jets.to_list() == expected.jets.to_list()
    assert [event.muons[-1].m3 for event in events[3::4]] == arrays.muons[3::4, -1].m3.to_list()


def test_a_loop_over_pairs_of_one_view_gives_each_object_its_own(events: fb.View) -> None:
    few = events[:6]
    for first in few:
        for second in few:
            assert len(first.muons) == first.run % 4
            assert len(second.muons) == second.run % 4


def test_the_muons_of_an_event_are_an_array_as_before(events: fb.View) -> None:
    (muons,) = (event.muons for event in events if event.run == 7)
    assert muons.fields == MEMBERS
    assert len(muons) == 3
    assert muons[muons.m0 > muons.m0[0]].m1.to_list() == muons.m1.to_list()[1:]
    assert str(muons.type).startswith("3 * Muon[")
    again = pickle.loads(pickle.dumps(muons))
    assert again.to_list() == muons.to_list() == events[7].muons.to_list()
    assert len(pickle.dumps(muons)) < 100_000  # The muons of other events are not pickled.


def test_records_of_a_block_are_prepared_once_however_many_members_they_have(
    events: fb.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of NanoAOD took 745 us for `event.Muon.pt`: all 74 members were made anew for each event."""
    made: list[int] = []

    def counted(tree: Any, node: Any) -> Any:
        made.append(len(tree[2]))
        return layout_of(tree, node)

    monkeypatch.setattr("femtobarn._objects.objects.layout_of", counted)
    assert sum(len(event.muons) for event in events) == sum(i % 4 for i in range(OBJECTS))
    assert made == [len(MEMBERS)] * 3
    assert events._layouts is None

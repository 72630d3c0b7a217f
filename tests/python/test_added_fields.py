"""Fields added to the objects of a container."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import femtobarn as fb

an: Any = fb
FORM = {
    "name": "Event",
    "fields": [{"name": "run", "type": "int32"}, {"name": "pt", "type": {"list": "float64"}}],
}


@pytest.fixture
def runs(fed: fb.Federation) -> fb.Federation:
    """Two containers of one class; an event of the first is deleted."""
    with fed.transaction() as txn:
        for name in ("run1", "run2"):
            container = txn.database(name, create=True).container("events", FORM, create=True)
            container.extend({"run": range(4), "pt": [[], [1.0], [2.0, 3.0], [4.0]]})
    with fed.transaction() as txn:
        txn.database("run1").container("events").delete(1)
    return fed


def test_fields_are_computed_given_or_the_same_for_all(runs: fb.Federation) -> None:
    before = runs.snapshot()
    with runs.transaction() as txn:
        events = txn.database("run1").container("events")
        events.add_field("ht", an.float32, "sum(pt)", description="scalar sum [GeV]")
        assert events[1].ht == 5.0
        events.append({"run": 9, "pt": [7.0], "ht": 7.0})
        events.add_field("day", dt.date, default=dt.date(2026, 11, 27))
        events.add_field("tags", list[str], [["a"], [], ["b", "c"], []])
        events.add_field("weight", an.float64 | None)
    view = runs["run1/events"]
    assert view.arrays(["run", "ht", "tags", "weight"]).to_list() == [
        {"run": 0, "ht": 0.0, "tags": ["a"], "weight": None},
        {"run": 2, "ht": 5.0, "tags": [], "weight": None},
        {"run": 3, "ht": 4.0, "tags": ["b", "c"], "weight": None},
        {"run": 9, "ht": 7.0, "tags": [], "weight": None},
    ]
    assert {each.day for each in view} == {dt.date(2026, 11, 27)}
    assert view.definition.fields[2].description == "scalar sum [GeV]"
    assert before["run1/events"].fields == ["run", "pt"]
    assert view.as_class(1).fields == ["run", "pt"]
    assert runs.check(full=True).problems == []


def test_containers_with_the_same_field_have_the_same_version(runs: fb.Federation) -> None:
    for name in ("run1", "run2"):
        with runs.transaction() as txn:
            txn.database(name).container("events").add_field("ht", an.float32, "sum(pt)")
    assert runs["run1/events"].definition == runs["run2/events"].definition
    assert runs.collection("*/events")["ht"].to_list() == [0.0, 5.0, 4.0, 0.0, 1.0, 5.0, 4.0]
    with runs.transaction() as txn:
        txn.database("run1").container("events").add_field("one", int)
        txn.database("run2").container("events").add_field("other", int)
    assert [runs[f"{name}/events"].definition.version for name in ("run1", "run2")] == [3, 4]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("run", int), fb.ExistsError, "field 'run' of class Event exists; choose another name"),
        (("_x", int), fb.InvalidError, "a name that fields cannot have"),
        (("oid", int), fb.InvalidError, "a name that fields cannot have"),
        (("x", complex), fb.InvalidError, "two fb.float64"),
        (("x", int, [1, 2]), fb.InvalidError, "2 values were given for 3 objects"),
        (("x", int, ["a", "b", "c"]), fb.InvalidError, "'x' is int64, which cannot hold"),
        (("x", float, "pt"), fb.InvalidError, "'x' is float64, which cannot hold"),
        (("x", float, "nope"), fb.NotFoundError, "field 'nope' does not exist"),
    ],
)
def test_a_field_that_cannot_be_is_not_added(
    runs: fb.Federation, arguments: tuple[Any, ...], error: type[Exception], told: str
) -> None:
    with runs.transaction() as txn:
        events = txn.database("run1").container("events")
        with pytest.raises(error, match=told):
            events.add_field(*arguments)
        events.append({"run": 5, "pt": []})
    assert runs["run1/events"].fields == ["run", "pt"]
    assert runs["run1/events"].definition.version == 1

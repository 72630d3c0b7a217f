"""Conditions that are functions of arrays: they select as texts do, and read only what they use."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb
from femtobarn._query.selection import Selection
from femtobarn._query.syntax import parsed
from femtobarn._views.lazy_arrays import lazy_array


@fb.persistent
class LazyRun:
    number: fb.int32


@fb.persistent
class LazyMuon:
    charge: fb.int8
    pt: fb.float64
    hits: list[fb.int32]
    tag: str


@fb.persistent
class LazyEvent:
    name: str
    run: fb.int32
    z: fb.float64 | None
    muons: list[LazyMuon]
    best: LazyMuon | None
    corner: fb.array[fb.float32, Literal[2]]
    either: fb.int32 | str
    of: fb.link[LazyRun] = None


def muon(number: int) -> LazyMuon:
    return LazyMuon(charge=(-1) ** number, pt=10.0 * number, hits=list(range(number)), tag="xy"[number % 2])


@pytest.fixture
def events(fed: fb.Federation) -> fb.View:
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        runs = database.container("runs", LazyRun, create=True)
        made = database.container("events", LazyEvent, create=True)
        for number in range(12):
            run = runs.append(LazyRun(number=number % 3))
            event = LazyEvent(
                name=("tt", "ww")[number % 2],
                run=number,
                z=None if number % 3 == 0 else float(number),
                muons=[muon(each) for each in range(number % 4)],
                best=muon(number) if number % 4 else None,
                corner=[number, -number],
                either=number if number % 2 else "even",
            )
            event.of = None if number == 5 else run
            made.append(event)
    with fed.transaction() as txn:
        txn.database("d").container("events").delete(fed["d/events"].oid(10))
    return fed["d/events"]


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], bool], set[str]]] = {
    "number": (lambda ev: ev.run > 3, lambda e: e["run"] > 3, {"run"}),
    "text": (lambda ev: ev.name == "tt", lambda e: e["name"] == "tt", {"name"}),
    "optional": (lambda ev: ev.z > 3, lambda e: e["z"] is not None and e["z"] > 3, {"z"}),
    "is missing": (lambda ev: ak.is_none(ev.best), lambda e: e["best"] is None, {"best.charge"}),
    "list": (lambda ev: ak.num(ev.muons) == 2, lambda e: len(e["muons"]) == 2, {"muons.charge"}),
    "items": (
        lambda ev: ak.sum(ev.muons.pt, axis=1) > 20,
        lambda e: sum(each["pt"] for each in e["muons"]) > 20,
        {"muons.charge", "muons.pt"},
    ),
    "texts of items": (
        lambda ev: ak.any(ev["muons", "tag"] == "y", axis=1),
        lambda e: any(each["tag"] == "y" for each in e["muons"]),
        {"muons.charge", "muons.tag"},
    ),
    "member": (
        lambda ev: ev.best.pt > 40,
        lambda e: e["best"] is not None and e["best"]["pt"] > 40,
        {"best.charge", "best.pt"},
    ),
    "fixed": (lambda ev: ev.corner[:, 1] < -5, lambda e: e["corner"][1] < -5, {"corner"}),
    "variant": (
        lambda ev: [isinstance(each, str) for each in ev.either.to_list()],
        lambda e: isinstance(e["either"], str),
        {"either"},
    ),
    "link": (
        lambda ev: ak.fill_none(ev.of.number == 1, False),
        lambda e: e["run"] % 3 == 1 and e["run"] != 5,
        {"of"},
    ),
    "several": (
        lambda ev: (ev.run < 9) & (np.abs(ev.z) > 2),
        lambda e: e["run"] < 9 and e["z"] is not None and e["z"] > 2,
        {"run", "z"},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_select_as_in_python(events: fb.View, name: str) -> None:
    function, in_python, _ = FUNCTIONS[name]
    expected = [row["run"] for row in (event.to_dict() for event in events) if in_python(row)]
    assert events.arrays("run", where=function).run.to_list() == expected
    assert events.arrays(where=function).run.to_list() == expected
    assert events.entries(function).tolist() == expected
    assert [run for batch in events.iterate("run", function, step_size=5) for run in batch.run] == expected
    assert events[2:8].arrays("run", where=function).run.to_list() == [n for n in expected if 2 <= n < 8]
    picked = [9, 1, 7]
    assert events[picked].arrays("run", where=function).run.to_list() == [n for n in picked if n in expected]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_the_fields_that_are_used_are_read(events: fb.View, name: str) -> None:
    function, _, paths = FUNCTIONS[name]
    used: set[str] = set()
    first = function(lazy_array(events, range(6), used))
    assert used == paths
    assert ak.to_list(function(lazy_array(events, range(6), used))) == ak.to_list(first)
    assert ak.to_list(function(lazy_array(events, range(6), set()))) == ak.to_list(
        function(events[:6].arrays())
    )


def test_a_selection_knows_the_fields_that_its_function_uses(events: fb.View) -> None:
    selection = Selection.of(lambda ev: ev.run > 3, events.definition)
    assert selection is not None
    events._scan(selection, range(12)).entries()
    assert selection.paths_of_terms == ["run"]


def test_a_function_is_not_taken_for_a_text_of_its_name(fed: fb.Federation) -> None:
    """Both left out the same clusters."""
    with fed.transaction() as txn:
        form = {"name": "Flag", "fields": [{"name": "good", "type": "bool"}]}
        txn.database("d", create=True).container("flags", form, create=True).extend({"good": [False] * 3})

    def good(events: ak.Array) -> Any:
        return ~events.good

    view = fed["d/flags"]
    assert view.entries("good").tolist() == []
    assert view.entries(good).tolist() == [0, 1, 2]


def not_for_each(events: ak.Array) -> Any:
    return events.muons.pt > 5


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda ev: ev.rum > 3, "where '<lambda>': <lambda> failed: AttributeError: no field named 'rum'"),
        (not_for_each, "where 'not_for_each': 'not_for_each' has several values per entry"),
        (lambda ev: ev.name, "is neither a number nor a truth value"),
        (lambda ev: ev.run, "gives numbers"),
        (lambda ev: ev.run[:2] > 1, "has several values per entry"),
        (lambda ev: 1 / 0, "ZeroDivisionError"),
        (lambda ev: None, "gives NoneType"),
        (lambda ev: np.array([True]), "has several values per entry"),
    ],
)
def test_functions_that_cannot_be_conditions_are_refused(
    events: fb.View, function: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(fb.InvalidError, match=reason):
        events.arrays("run", where=function)


def test_threads_parse_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # CPython 3.11 counts the depth of the trees of all threads together, and one may fail with a SystemError.
    parse, parsing, most = ast.parse, 0, 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal parsing, most
        parsing += 1
        most = max(most, parsing)
        time.sleep(0.001)
        parsing -= 1
        return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", counted)
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(parsed, [f"x > {number}" for number in range(20)]))
    assert [ast.unparse(tree) for tree in trees] == [f"x > {number}" for number in range(20)]
    assert most == 1

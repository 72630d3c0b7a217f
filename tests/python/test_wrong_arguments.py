"""Invalid arguments: the error has Python's own type where there is one, and always Femtobarn's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb

OBJECT: Any = fb.Object
HALF = "a\ud800"
"""A text with half a surrogate pair, which Python can hold and UTF-8 cannot."""


@fb.persistent
class Event:
    run: fb.int32
    name: str
    previous: fb.link[Event]


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[fb.Federation]:
    with fb.create(tmp_path / "lhc.fed") as federation:
        with federation.transaction() as txn:
            events = txn.database("d", create=True).container("events", Event, create=True)
            oid = events.append(Event(run=1, name="a", previous=None))
            events.append(Event(run=2, name="b", previous=oid))
        yield federation


WRONG_TYPES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "where": (lambda fed: fed["d/events"].arrays(where=7), "where must be a string such as"),
    "entries": (lambda fed: fed["d/events"].entries(np.array([True])), "where must be a string such as"),
    "container": (
        lambda fed: fed[0],
        r"names of containers must be strings, such as fed\[.run7/events.\], not 0",
    ),
    "snapshot": (lambda fed: fed.snapshot()[None], "names of containers must be strings"),
    "item": (lambda fed: fed["d/events"][0][0], "an object has fields by name"),
    "head": (lambda fed: fed["d/events"].head("a"), "head takes a number of objects, not 'a'"),
    "sample": (lambda fed: fed["d/events"].sample(1.5), "sample takes a number of objects, not 1.5"),
    "display": (lambda fed: fed["d/events"].display(count="a"), "display takes a number of objects, not 'a'"),
    "slice": (lambda fed: fed["d/events"]["a":], "positions in d/events are whole numbers, not 'a'"),
    "step": (lambda fed: fed["d/events"][::0.5], "positions in d/events are whole numbers, not 0.5"),
    "slice of picked": (lambda fed: fed["d/events"][[1, 0]][:1.0], "positions in d/events are .* not 1.0"),
    "slice of several": (
        lambda fed: fed.snapshot().collection("d/events")[:"b"],
        "positions in d/events are whole numbers, not 'b'",
    ),
    "slice of OIDs": (lambda fed: fed["d/events"].oids[:"a"], "positions in the range of OIDs are"),
    "range": (lambda fed: fed["d/events"].arrays(entry_stop="5"), "positions in d/events are .* not '5'"),
    "step_size": (lambda fed: fed["d/events"].iterate(step_size=2.5), "2.5 is not a size; .* or a number of"),
    "position": (lambda fed: fed["d/events"][0.5], "d/events takes a position, .* not 0.5"),
    "entry": (lambda fed: fed["d/events"].object_at("a"), "entries are whole numbers, not 'a'"),
    "OID of another container": (
        lambda fed: fed["d/events"].object_at(fb.Oid(9, 9, 0)),
        "entries are whole numbers, not",
    ),
    "OID": (lambda fed: fed.snapshot().object(3), r"3 is not an OID, such as Oid\(3, 7, 12\)"),
    "object": (lambda fed: OBJECT(), r"objects are read from a view, such as view\[0\]"),
    "fields": (lambda fed: fed["d/events"].arrays([1]), "names of fields must be strings, not 1"),
    "progress": (
        lambda fed: fed["d/events"].export(fed.path + "/x.root", progress=3),
        "progress must be a function of done, total.*, not 3",
    ),
    "check": (lambda fed: fed.check(progress=True), "progress must be a function .*; got True"),
    "database": (lambda fed: fed.transaction().database(7), "database must be a string, not 7"),
    "persistent": (lambda fed: fb.persistent(*[3]), "fb.persistent takes a class, not 3"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_argument_of_a_wrong_type_is_a_wrong_type_error(fed: fb.Federation, name: str) -> None:
    """These showed Python's internals: 'function' object has no attribute 'strip', 'bool' is not callable."""
    attempt, text = WRONG_TYPES[name]
    with pytest.raises(fb.WrongTypeError, match=text) as raised:
        attempt(fed)
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, fb.InvalidError)


def store(fed: fb.Federation, act: Callable[[fb.ContainerWriter], Any]) -> None:
    with fed.transaction() as txn:
        act(txn.database("d").container("events"))


HALVES: list[Callable[[fb.Federation], Any]] = [
    lambda fed: store(fed, lambda events: events.append(Event(run=1, name=HALF, previous=None))),
    lambda fed: store(fed, lambda events: events.extend({"run": [1], "name": [HALF], "previous": [None]})),
    lambda fed: store(
        fed, lambda events: events.extend({"run": [1], "name": np.array([HALF]), "previous": [None]})
    ),
    lambda fed: store(fed, lambda events: events.update(0, name=HALF)),
    lambda fed: fed.find("d/events", name=HALF),
    lambda fed: fed[HALF],
    lambda fed: fed["d/events"].entries(f"{HALF} > 1"),
    lambda fed: fed.transaction(message=HALF),
    lambda fed: fed.transaction().database(HALF, create=True),
    lambda fed: fed.transaction().database("d").container(HALF, Event, create=True),
]


@pytest.mark.parametrize("number", range(len(HALVES)))
def test_a_surrogate_is_refused_as_invalid(fed: fb.Federation, number: int) -> None:
    """It was a bare UnicodeEncodeError, and of lists a RuntimeError about a cast in C++."""
    with pytest.raises(fb.InvalidError):
        HALVES[number](fed)
    assert HALF not in fed.snapshot()


def test_setting_stored_attributes_is_refused_with_advice(fed: fb.Federation) -> None:
    """It said that Object has no attribute 'run'."""
    event: Any = fed["d/events"][0]
    with pytest.raises(AttributeError, match=r"are read-only.*container.update\(Oid\(1, 1, 0\), run=...\)"):
        event.run = 3
    with pytest.raises(AttributeError, match=r"are read-only.*container.update"):
        event.new = 3


def test_objects_convert_to_dictionaries(fed: fb.Federation) -> None:
    """`dict(event)` said that an int is not an instance of str."""
    event = fed["d/events"][1]
    assert dict(event) == {"run": 2, "name": "b", "previous": event.previous}
    assert dict(event.previous) == {"run": 1, "name": "a", "previous": None}
    assert event.keys() == event.fields


def test_field_named_keys_is_the_field(fed: fb.Federation) -> None:
    form = {"name": "Piano", "fields": [{"name": "keys", "type": "int32"}]}
    with fed.transaction() as txn:
        txn.database("d").container("pianos", form, create=True).append({"keys": 88})
    piano: Any = fed["d/pianos"][0]
    assert piano.keys == 88


def test_repr_works_after_the_federation_was_closed(fed: fb.Federation) -> None:
    """`repr(obj)` raised ClosedError, so that a notebook or a debugger could not show a traceback."""
    view, snapshot, txn = fed["d/events"], fed.snapshot(), fed.transaction()
    database = txn.database("d")
    held = [view, view[0], view[1].previous, view[1:], view[[1]], snapshot, txn, database]
    held += [database.container("events"), fed, view.oids, view[[1]].oids, view["previous"]]
    before = list(map(repr, held))
    assert not any("closed" in text for text in before)
    fed.close()
    assert repr(held[0]) == "<View 'd/events': of a closed federation>"
    assert repr(held[1]) == "<object 0 of a closed federation>"
    after = list(map(repr, held))
    assert ["closed" in text for text in after[:6]] == [True, True, False, True, True, True]
    assert all(after)


def test_missing_database_or_container_is_refused_with_advice_to_create(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        with pytest.raises(
            fb.NotFoundError, match=r'"e" does not exist.*; pass create=True to make the data'
        ):
            txn.database("e")
        with pytest.raises(fb.NotFoundError, match=r"did you mean.*; pass create=True to make the container"):
            txn.database("d").container("event", Event)


def test_changed_class_of_the_same_version_is_refused_with_advice(fed: fb.Federation) -> None:
    """`evolve=True` was answered with the advice to pass `evolve=True`."""
    changed = {"name": "Event", "version": 1, "fields": [{"name": "run", "type": "int64"}]}
    advice = {
        1: r"raise the version, as in @fb.persistent\(version=2\), and pass evolve=True",
        2: r"pass evolve=True to convert its objects",
    }
    with fed.transaction() as txn:
        database = txn.database("d")
        for evolve, version in ((True, 1), (False, 1), (False, 2)):
            with pytest.raises(fb.InvalidError, match=advice[version]):
                database.container("events", changed | {"version": version}, evolve=evolve)


@pytest.mark.parametrize("name", ["..", "*", "q?", "a;1", "-rf", "a:b", "~"])
def test_names_with_special_meaning_in_paths_shells_or_root_are_refused(
    fed: fb.Federation, name: str
) -> None:
    with fed.transaction() as txn:
        database = txn.database("d")
        for attempt in (
            lambda: txn.database(name, create=True),
            lambda: database.container(name, Event, create=True),
            lambda: txn.rename("d", name),
            lambda: txn.rename("d/events", name),
        ):
            with pytest.raises(fb.InvalidError, match="name"):
                attempt()

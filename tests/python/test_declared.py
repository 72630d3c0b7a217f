"""Objects are stored with every field that their class declares, and refuse what it does not declare."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

import femtobarn as fb


@fb.persistent
class P:
    px: fb.float32


@fb.persistent
class Q(P):
    pz: fb.float32


@fb.persistent(name="P", version=2)
class NewP:
    px: fb.float32
    py: fb.float32


@fb.persistent
class Event:
    run: fb.uint32
    best: P
    points: list[P] = fb.field(default_factory=list)


@dataclasses.dataclass
class Plain:
    px: float
    mass: float


class Duck:
    px = 1.0
    name = "not a dataclass, so its other attributes are ignored"


Q_IN_P = "field 'pz' of class Q would be lost, since class P as stored has none; store Q in a container"


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[fb.Federation]:
    with fb.create(tmp_path / "lhc.fed") as federation:
        yield federation


def test_object_with_surplus_fields_is_refused_by_every_method(fed: fb.Federation) -> None:
    """A container of P took `Q(px=1, pz=2)` and dropped `pz`; a dictionary with it was refused."""
    both = Q(px=1, pz=2)
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        points = database.container("p", P, create=True)
        events = database.container("e", Event, create=True)
        oid = points.append(P(px=1))
        for attempt in (
            lambda: points.append(both),
            lambda: points.extend([both]),
            lambda: points.extend([{"px": 1}, both]),
            lambda: points.update(oid, both),
            lambda: events.append(Event(run=1, best=both)),
            lambda: events.append({"run": 1, "best": P(px=1), "points": [P(px=1), both]}),
            lambda: events.extend({"run": [1], "best": [both], "points": [[]]}),
            lambda: events.extend({"run": [1], "best": [P(px=1)], "points": [[both]]}),
        ):
            with pytest.raises(fb.InvalidError, match=Q_IN_P):
                attempt()
        assert len(points) == 1
        assert len(events) == 0


def test_object_that_was_read_is_refused_if_fields_would_be_lost(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        wide = database.container("q", Q, create=True)
        wide.append(Q(px=1, pz=2))
        points = database.container("p", P, create=True)
        with pytest.raises(fb.InvalidError, match="field 'pz' of class Q would be lost"):
            points.append(wide.view()[0])
        assert wide.append(wide.view()[0]).entry == 1
        assert wide.view()[1].pz == 2


def test_fields_of_objects_of_one_class_are_checked_once(fed: fb.Federation) -> None:
    """Each object and each record in it was checked anew, which took most of the time of a skim."""
    looked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looked
        looked += event == "call" and frame.f_code.co_name == "surplus_of"

    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        events = database.container("events", Event, create=True)
        for run in range(100):
            events.append(Event(run=run, best=P(px=run), points=[P(px=1)]))
        wide = database.container("q", Q, create=True)
        wide.append(Q(px=1, pz=2))
        points = database.container("p", P, create=True)
        points.append(P(px=1))
        skim, narrow = database.container("skim", Event, create=True), points.view()
        sys.setprofile(count)
        for event in events.view():
            skim.append(event)
        sys.setprofile(None)
        assert 1 <= looked <= 3
        assert skim.view()["best.px"].to_list() == list(range(100))
        for _ in range(2):
            points.append(narrow[0])
            with pytest.raises(fb.InvalidError, match="field 'pz' of class Q would be lost"):
                points.append(wide.view()[0])


def test_object_of_a_newer_version_is_refused_with_advice_to_evolve(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        points = txn.database("d", create=True).container("p", P, create=True)
        with pytest.raises(fb.InvalidError, match=r"'py' of class P would be lost.*evolve=True"):
            points.append(NewP(px=1, py=2))


def test_surplus_fields_are_refused_in_any_dataclass_but_not_in_other_objects(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        points = txn.database("d", create=True).container("p", P, create=True)
        with pytest.raises(fb.InvalidError, match="'mass' of class Plain would be lost"):
            points.append(Plain(1, 2))
        points.append(Duck())
        points.append(P(px=2))
        assert points.view()["px"].to_list() == [1, 2]


def test_undeclared_attribute_is_refused_with_near_misses() -> None:
    """`setattr(P(px=1), "Px", 9)` was accepted, and the old value stored."""
    point = P(px=1)
    with pytest.raises(AttributeError, match="class P declares no field 'Px'; did you mean 'px'"):
        point.Px = 9  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="declares no field 'mass'"):
        Q(px=1, pz=2).mass = 3  # type: ignore[attr-defined]
    point.px = 2
    assert point == P(px=2)


@fb.persistent
class Rich:
    x: fb.float32
    items: list[int] = fb.field(default_factory=list)
    name: str = "none"
    calls: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self._squares: list[float] = [self.x**2]

    @property
    def doubled(self) -> float:
        return self.x * 2

    @doubled.setter
    def doubled(self, value: float) -> None:
        self.x = value / 2

    @functools.cached_property
    def slow(self) -> float:
        return self.x + 1

    def scaled(self, factor: float) -> Rich:
        return dataclasses.replace(self, x=self.x * factor)


def test_persistent_classes_keep_the_features_of_dataclasses() -> None:
    rich, other = Rich(x=3), Rich(x=1, items=[1], name="a")
    assert (rich.items, rich.name, rich._squares, other._squares) == ([], "none", [9], [1])
    assert rich.items is not Rich(x=1).items
    rich.doubled = 10
    rich._private = 1  # type: ignore[attr-defined]
    rich.calls = 4  # type: ignore[misc]
    assert (rich.x, rich.slow, rich.scaled(2).x, Rich.calls) == (5, 6, 10, 0)
    assert copy.copy(rich) == copy.deepcopy(rich) == pickle.loads(pickle.dumps(rich)) == rich
    assert repr(rich) == "Rich(x=5.0, items=[], name='none')"
    with pytest.raises(TypeError, match=r"missing 1 required keyword-only argument: 'x'"):
        Rich()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        Rich(x=1, y=2)  # type: ignore[call-arg]
    assert list(inspect.signature(Rich).parameters) == ["x", "items", "name"]


def test_class_with_its_own_init_keeps_it() -> None:
    class Counted:
        x: fb.int32

        def __init__(self, x: int) -> None:
            self.x = x + 1

    class Loud:
        x: fb.int32

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

    class Given:
        x: fb.int32
        scale: dataclasses.InitVar[int]

        def __post_init__(self, scale: int) -> None:
            self.x *= scale

    assert fb.persistent(Counted)(1).x == 2
    loud: Any = fb.persistent(Loud)(x=1)  # type: ignore[call-arg]
    loud.anything = 2
    assert fb.persistent(Given)(x=2, scale=3).x == 6  # type: ignore[call-arg]


def test_derived_classes_that_are_not_persistent_may_have_other_attributes(fed: fb.Federation) -> None:
    """They inherited the setter, which knew only the fields of the persistent class."""

    @dataclasses.dataclass
    class Heavy(P):
        mass: float

    class Caching(P):
        def __init__(self, px: float) -> None:
            super().__init__(px=px)
            self.cache: dict[str, float] = {}

    @fb.persistent
    class Watched(P):
        py: fb.float32

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)

    heavy, caching = Heavy(px=1, mass=2), Caching(3)
    heavy.mass, caching.px = 3, 4
    assert (heavy.mass, caching.px, caching.cache) == (3, 4, {})
    assert Watched(px=1, py=2).py == 2
    with pytest.raises(AttributeError, match="class Watched declares no field 'pz'; there are px, py"):
        Watched(px=1, py=2).pz = 3
    with fed.transaction() as txn:
        points = txn.database("d", create=True).container("p", P, create=True)
        points.append(caching)
        with pytest.raises(fb.InvalidError, match=r"'mass' of class Heavy would be lost.*store Heavy in"):
            points.append(heavy)
        assert points.view()["px"].to_list() == [4]

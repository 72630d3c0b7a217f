"""Objects and arrays have the methods and properties of their class, if that is declared here."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class CrossingFill:
    number: fb.int32

    def label(self) -> str:
        return f"fill {self.number}"


@fb.persistent
class CrossingMuon(fb.vector):
    pt: fb.float64
    eta: fb.float64
    phi: fb.float64
    mass: fb.float64 = 0.105

    def scaled(self, by: float) -> Any:
        return self.pt * by

    @property
    def is_hard(self) -> Any:
        return self.pt > 20


class Weighted:
    weight: fb.float64

    def doubled(self) -> Any:
        return 2 * self.weight


@fb.persistent
class Crossing(Weighted):
    weight: fb.float64
    quality: fb.int32 = 3
    best: CrossingMuon
    muons: list[CrossingMuon]
    fill: fb.link[CrossingFill] = None

    def doubled(self) -> Any:
        return super().doubled() + 1

    @property
    def fill_number(self) -> Any:
        fill: Any = self.fill
        return fill.number

    @property
    def hard(self) -> Any:
        muons: Any = self.muons
        return muons[muons.is_hard]

    @staticmethod
    def unit() -> str:
        return "GeV"

    def __repr__(self) -> str:
        return f"Crossing of weight {self.weight}"

    def __len__(self) -> int:
        return len(self.muons)


def muon(number: int) -> CrossingMuon:
    return CrossingMuon(pt=10.0 * number, eta=0.1 * number, phi=0.2 * number)


@pytest.fixture
def crossings(fed: fb.Federation) -> fb.View:
    with fed.transaction() as txn:
        database = txn.database("run", create=True)
        fills = database.container("fills", CrossingFill, create=True)
        oids = [fills.append(CrossingFill(number=number)) for number in (7, 8)]
        events = database.container("crossings", Crossing, create=True)
        for number in range(4):
            muons = [muon(each) for each in range(number)]
            event = Crossing(weight=number + 0.5, quality=number, best=muon(5), muons=muons)
            event.fill = oids[number % 2]
            events.append(event)
    return fed["run/crossings"]


def test_objects_are_instances_of_their_class(crossings: fb.View) -> None:
    assert all(isinstance(event, Crossing) for event in crossings)
    event: Any
    for number, event in enumerate(crossings):
        assert isinstance(event, fb.Object)
        assert event.doubled() == 2 * number + 2
        assert event.quality == number, "not the default, which is an attribute of the class"
        assert event.fill_number == 7 + number % 2
        assert event.fill.label() == f"fill {7 + number % 2}"
        assert event.unit() == "GeV"
        assert repr(event) == f"Crossing of weight {number + 0.5}"
        assert len(event) == number
        assert event.hard.pt.to_list() == [10.0 * each for each in range(3, number)]
    first: Any = crossings[1]
    again = crossings[1]
    assert first == again
    assert len({first, again, crossings[2]}) == 2
    assert pickle.loads(pickle.dumps(first)).doubled() == first.doubled()
    assert copy.copy(first) == first
    assert dir(first) == sorted(set(dir(first)))
    with pytest.raises(AttributeError, match="read-only"):
        first.quality = 5
    with pytest.raises(AttributeError, match="class Crossing has no field 'wieght'; did you mean 'weight'"):
        _ = first.wieght
    assert (first.oid, first.class_name, first.fields[0]) == (again.oid, "Crossing", "weight")


def test_records_and_arrays_have_the_methods(crossings: fb.View) -> None:
    best = crossings[3].best
    assert isinstance(best, CrossingMuon)
    assert (best.scaled(2), best.is_hard, best.mass) == (100.0, True, 0.105)
    muons = crossings[3].muons
    assert muons.scaled(3).to_list() == [0.0, 30.0, 60.0]
    assert muons[2].is_hard == False  # noqa: E712 - it is NumPy's
    assert isinstance(muons[2], CrossingMuon)
    events = crossings.arrays()
    assert events.doubled().to_list() == [2.0, 4.0, 6.0, 8.0]
    assert events.quality.to_list() == [0, 1, 2, 3]
    assert events.muons.scaled(1).to_list() == [[], [0.0], [0.0, 10.0], [0.0, 10.0, 20.0]]
    assert events.fill_number.to_list() == [7, 8, 7, 8]
    assert events[2].doubled() == 6.0
    assert events[2].fill.label() == "fill 7"
    batch = next(iter(crossings.iterate(["weight", "muons"], step_size=3)))
    assert batch.doubled().to_list() == [2.0, 4.0, 6.0]
    assert "Array" in repr(events)


def test_links_lead_to_fields_of_all_targets_at_once(crossings: fb.View) -> None:
    events = crossings.arrays("fill")
    assert events.fill.number.to_list() == [7, 8, 7, 8]
    assert not hasattr(events.fill, "nummer")
    assert not hasattr(events[0].fill, "nummer")


def test_vectors(crossings: fb.View) -> None:
    event = crossings[3]
    first, second, third = event.muons
    assert first.deltaR(second) == pytest.approx(np.hypot(0.1, 0.2))
    assert event.best.px == pytest.approx(50 * np.cos(1.0))
    assert event.best.deltaR(third) == pytest.approx(np.hypot(0.3, 0.6))
    assert (event.best + event.best).mass == pytest.approx(0.21)
    assert sum([event.best, event.best]).pt == pytest.approx(100)
    assert (2 * event.best - event.best / 2).pt == pytest.approx(75)
    assert (-event.best).px == pytest.approx(-event.best.px)
    assert muon(5).px == pytest.approx(event.best.px), "also before it is stored"
    assert not hasattr(muon(5), "unknown")
    muons = crossings.arrays().muons
    pairs = ak.combinations(muons, 2, fields=["one", "other"])
    masses = (pairs.one + pairs.other).mass
    assert ak.num(masses).to_list() == [0, 0, 1, 3]
    assert ak.all(masses > 0.2)
    assert ak.flatten(pairs.one.deltaR(pairs.other)).to_list() == pytest.approx(
        [np.hypot(0.1, 0.2)] * 2 + [np.hypot(0.2, 0.4), np.hypot(0.1, 0.2)]
    )


def test_fields_that_are_no_vector_are_refused() -> None:
    with pytest.raises(fb.InvalidError, match=r"class Odd derives from fb\.vector, but has no fields"):

        @fb.persistent
        class Odd(fb.vector):
            x: fb.float32


def test_arrays_are_pickled_for_programs_with_and_without_the_class(
    crossings: fb.View, tmp_path: Path
) -> None:
    events = crossings.arrays()
    joined = ak.concatenate([events.muons, events.muons])
    for array in (events, events[1], events.muons, joined):
        again = pickle.loads(pickle.dumps(array))
        assert again.to_list() == array.to_list()
        assert type(again) is type(array)
    (tmp_path / "joined").write_bytes(pickle.dumps(joined))
    code = f"import pickle; a = pickle.load(open({str(tmp_path / 'joined')!r}, 'rb')); print(a.pt.to_list())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(joined.pt.to_list())


def test_objects_that_were_read_can_be_stored_again(crossings: fb.View, fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        other = txn.database("other", create=True).container("crossings", Crossing, create=True)
        other.append(crossings[2])
        other.extend(crossings.arrays())
        other.append(Crossing(weight=1, best=crossings[1].best, muons=[crossings[3].best]))
    assert [event.doubled() for event in fed["other/crossings"]] == [6.0, 2.0, 4.0, 6.0, 8.0, 3.0]
    assert fed["other/crossings"][5].muons.pt.to_list() == [50.0]


def test_classes_declared_later_and_anew_count(fed: fb.Federation) -> None:
    form = {"name": "LateClass", "fields": [{"name": "x", "type": "int32"}]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container("late", form, create=True).extend({"x": [4]})
    assert not hasattr(fed["d/late"][0], "half")

    def declare(half: Any) -> type[Any]:
        made: type[Any] = type("LateClass", (), {"__annotations__": {"x": fb.int32}, "half": half})
        return fb.persistent(made)

    declare(lambda self: self.x / 2)
    assert fed["d/late"][0].half() == 2
    assert fed["d/late"].arrays().half().to_list() == [2]
    declare(lambda self: self.x // -2)
    assert fed["d/late"][0].half() == -2


def test_modules_may_use_a_name_twice(fed: fb.Federation) -> None:
    def declare(module: str, field: str) -> type[Any]:
        fields = {"__annotations__": {field: fb.int32}, "__module__": module}
        made: type[Any] = fb.persistent(type("UsedTwice", (), fields))
        return made

    ours = declare(__name__, "x")
    with fed.transaction() as txn:
        txn.database("d", create=True).container("used", ours, create=True).append(ours(x=1))
    theirs = declare("elsewhere", "y")
    assert isinstance(fed["d/used"][0], ours)
    assert not isinstance(fed["d/used"][0], theirs)


def test_a_class_of_the_same_name_with_other_fields_is_another_one(fed: fb.Federation) -> None:
    form = {"name": "CrossingFill", "fields": [{"name": "colour", "type": "string"}]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container("paint", form, create=True).extend({"colour": ["red"]})
    paint = fed["d/paint"][0]
    assert not isinstance(paint, CrossingFill)
    assert paint.colour == "red"


def test_older_versions_have_the_methods_and_defaults(fed: fb.Federation) -> None:
    first = {"name": "Aged", "version": 1, "fields": [{"name": "x", "type": "int32"}]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container("aged", first, create=True).extend({"x": [4]})

    @fb.persistent(version=2)
    class Aged:
        x: fb.int32
        y: fb.int32 = 7

        def total(self) -> Any:
            return self.x + self.y

    assert isinstance(fed["d/aged"][0], Aged)
    assert fed["d/aged"][0].total() == 11
    with pytest.raises(AttributeError, match="y"):
        fed["d/aged"].arrays().total()


def test_parts_of_vectors_are_read(crossings: fb.View) -> None:
    assert crossings.arrays("muons.pt").muons.scaled(2).to_list()[2] == [0.0, 20.0]
    assert crossings.arrays("best.pt").best.is_hard.to_list() == [True] * 4
    assert next(iter(crossings.iterate("muons.pt", step_size=2))).muons.pt.to_list() == [[], [0.0]]
    muons = crossings.arrays("muons").muons
    assert ak.without_field(muons, "mass").scaled(2).to_list()[1] == [0.0]
    with pytest.raises(AttributeError, match="mass"):
        _ = crossings.arrays("muons.pt").muons.mass
    with pytest.raises(AttributeError, match="quality"):
        _ = crossings.arrays("weight").quality
    sums = ak.sum(muons, axis=1)
    assert sums.mass[2] == pytest.approx((crossings[2].muons[0] + crossings[2].muons[1]).mass)


def test_methods_of_a_class_override_those_of_vectors(fed: fb.Federation) -> None:
    @fb.persistent
    class OwnVector(fb.vector):
        pt: fb.float64
        phi: fb.float64
        p: fb.float64

        def deltaphi(self, other: Any) -> str:
            return "mine"

        @property
        def beta(self) -> str:
            return "mine, too"

    @fb.persistent
    class HoldsVectors:
        all: list[OwnVector]
        one: OwnVector

    one = OwnVector(pt=1, phi=2, p=77)
    with fed.transaction() as txn:
        made = txn.database("d", create=True).container("c", HoldsVectors, create=True)
        made.append(HoldsVectors(all=[one], one=one))
    read: Any = fed["d/c"][0]
    arrays = fed["d/c"].arrays()
    for each in (one, read.one, read.all, read.all[0], arrays.one):
        assert each.deltaphi(each) == "mine"
        assert each.beta == "mine, too"
    assert (read.one.p, read.all.p.to_list(), arrays.one.p.to_list()) == (77, [77], [77])
    assert read.one.px == pytest.approx(np.cos(2))
    with pytest.raises(fb.InvalidError, match="rename mass, which would be other components"):

        @fb.persistent
        class TwoVectors(fb.vector):
            pt: fb.float64
            phi: fb.float64
            eta: fb.float64
            mass: fb.float64
            E: fb.float64


def test_a_class_that_cannot_be_used_disturbs_no_other(crossings: fb.View, fed: fb.Federation) -> None:
    with pytest.raises(fb.InvalidError):

        @fb.persistent
        class Refused:
            x: object

    @fb.persistent
    class Link:
        x: fb.int32

    class Registered:
        known: ClassVar[list[str]] = []

        def __init_subclass__(cls, **named: Any) -> None:
            Registered.known.append(cls.__name__)

    @fb.persistent
    class SubRegistered(Registered):
        x: fb.int32

    class Slotted:
        __slots__ = ("_hidden",)

        def three(self) -> int:
            return 3

    @fb.persistent
    class SubSlotted(Slotted):
        x: fb.int32

    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        for cls in (SubRegistered, SubSlotted):
            database.container(cls.__name__, cls, create=True).append(cls(x=5))
    assert [fed[f"d/{name}"][0].x for name in ("SubRegistered", "SubSlotted")] == [5, 5]
    assert fed["d/SubSlotted"].arrays().x.to_list() == [5]
    assert Registered.known == ["SubRegistered"]
    assert crossings.arrays("fill").fill[0].oid == fed["run/fills"][0].oid


def test_errors_of_properties_are_their_own(fed: fb.Federation) -> None:
    @fb.persistent
    class Failing:
        x: fb.int32

        @property
        def broken(self) -> Any:
            x: Any = self.x
            return x.nothing

        def like(self) -> Any:
            return type(self)(x=self.x + 1)

    with fed.transaction() as txn:
        txn.database("d", create=True).container("c", Failing, create=True).append(Failing(x=5))
    read: Any = fed["d/c"][0]
    with pytest.raises(AttributeError, match="'int' object has no attribute 'nothing'"):
        _ = read.broken
    assert read.like() == Failing(x=6)
    with pytest.raises(fb.NotFoundError, match="entry 5 of 1"):
        fb.Object(read, 5)


def test_records_are_compared_by_identity_and_can_be_copied(crossings: fb.View) -> None:
    best = crossings[0].best
    assert best in [best]
    assert len({best, crossings[1].best}) == 2
    assert copy.copy(best).pt == best.pt

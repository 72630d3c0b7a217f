"""Objects of a container on the catalogue's page, decoded in a browser, equal those that Python reads."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from looking import Looking, looking_into

import femtobarn as fb


@fb.persistent
class Hit:
    layer: fb.uint8
    charge: fb.float32


@fb.persistent
class Track:
    pt: fb.float32
    hits: list[Hit]


@fb.persistent
class Event:
    number: fb.int32
    name: str
    weight: fb.float64 | None
    tracks: list[Track]


@fb.persistent(name="Event", version=2)
class Event2:
    number: fb.int64
    name: str
    weight: fb.float64 | None
    tracks: list[Track]
    quality: fb.int16 = fb.field(default=-1)


DELETED = [0, 3, 4, 150, 199]


def event(number: int) -> Event:
    hits = [Hit(layer=layer, charge=number / 8 + layer) for layer in range(number % 3)]
    tracks = [Track(pt=0.1 * number + 20 * index, hits=hits) for index in range(number % 4)]
    return Event(number=number, name=f"<b>{number}", weight=None if number % 3 else number / 7, tracks=tracks)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    """Events in several commits, with deleted and updated ones, then of a newer class, and more of these."""
    folder = tmp_path_factory.mktemp("looking")
    with fb.create(folder / "lhc.fed") as fed:
        for first in range(0, 200, 50):
            with fed.transaction() as txn:
                events = txn.database("run7", create=True).container("events", Event, create=True)
                events.extend([event(number) for number in range(first, first + 50)])
        with fed.transaction() as txn:
            events = txn.database("run7").container("events")
            events.delete(DELETED)
            events.update(7, weight=1e300)
        with fed.transaction() as txn:
            txn.database("run7").container("events", Event2, evolve=True)
        with fed.transaction() as txn:
            events = txn.database("run7").container("events")
            events.append(Event2(number=2**60, name="é", weight=float("nan"), tracks=[], quality=7))
        with looking_into(fed, folder, "run7/events") as page:
            yield page


def as_told(value: Any) -> Any:
    """A value as JavaScript gets it."""
    if isinstance(value, dict):
        return {name: as_told(it) for name, it in value.items()}
    if isinstance(value, list):
        return [as_told(it) for it in value]
    if isinstance(value, float) and value != value:
        return "NaN"
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


@pytest.mark.parametrize("csn", [4, 5, 6, 7])
def test_objects_are_those_that_python_reads_at_the_same_commit(looking: Looking, csn: int) -> None:
    expected = looking.federation.snapshot(csn=csn)["run7/events"].arrays().to_list()
    told = looking.open(f"/lhc.fed/@{csn}/run7.root", "events")
    assert told["entries"] == {4: 200, 5: 200, 6: 200, 7: 201}[csn]
    objects = looking.ask("objects", first=0, count=300)
    assert objects["next"] == told["entries"]
    assert [it["value"] for it in objects["objects"]] == [as_told(it) for it in expected]
    deleted = set(DELETED) if csn > 4 else set()
    assert [it["entry"] for it in objects["objects"]] == sorted(set(range(told["entries"])) - deleted)


@pytest.mark.parametrize(
    "path", ["number", "weight", "tracks.pt", "tracks.hits.charge", "tracks.#", "quality"]
)
def test_histograms_equal_those_by_python(looking: Looking, path: str) -> None:
    view = looking.federation["run7/events"]
    array = view.arrays(path.removesuffix(".#"))
    for name in path.split("."):
        array = [len(tracks) for tracks in array] if name == "#" else array[name]
    flat: list[Any] = array if isinstance(array, list) else array.to_list()
    while any(isinstance(it, list) for it in flat):
        flat = [item for items in flat for item in items]
    numbers = np.array([it for it in flat if it is not None], float)
    described = looking.open("/lhc.fed/@7/run7.root", "events")
    assert path in [number["path"] for number in described["numbers"]]
    told = looking.ask("plot", x=path, axes=[{"bins": 40, "low": 1, "high": 60}])
    counts, _ = np.histogram(numbers, bins=40, range=(1, 60))
    # The last bin of NumPy has its upper edge, too.
    counts[-1] -= np.count_nonzero(numbers == 60)
    assert told["counts"] == counts.tolist()
    assert told["numbers"] == len(numbers)
    assert told["objects"] == 196
    assert (told["below"], told["above"]) == ((numbers < 1).sum(), (numbers >= 60).sum())
    finite = numbers[np.isfinite(numbers)]
    assert told["invalid"] == len(numbers) - len(finite)
    (sums,) = told["sums"]
    assert (sums["least"], sums["greatest"]) == (finite.min(), finite.max())
    assert sums["mean"] == pytest.approx(finite.mean())


def test_people_see_the_first_objects_and_a_histogram(looking: Looking) -> None:
    shown = looking.shown(field="tracks.pt", csn=6)
    assert "<b>1\tnone\t[{pt: 0.1, hits: [{layer: 0, charge: 0.125}]}]\t-1" in shown
    assert re.search(r"\d+ numbers of 195 objects: 0\.1 to \d+\.\d+, mean ", shown)
    bars = looking.page.value("document.querySelectorAll('#histogram .bar').length")
    assert bars == 100
    looking.page.value("document.getElementById('inside-more').click()")
    looking.page.wait_for("document.getElementById('inside-objects').tBodies[0].rows.length === 20")
    bins = "document.getElementById('inside-bins')"
    looking.page.value(f"({bins}.value = 7, {bins}.dispatchEvent(new Event('change')))")
    looking.page.wait_for("document.querySelectorAll('#histogram .bar').length === 7")
    assert "bins=7" in looking.page.value("location.search")


def test_the_page_shows_the_reason_when_nothing_can_be_read(looking: Looking) -> None:
    with pytest.raises(AssertionError, match='RNTuple "none"'):
        looking.open("/lhc.fed/@7/run7.root", "none")
    with pytest.raises(AssertionError, match="the server answered 404"):
        looking.open("/lhc.fed/@7/run8.root", "events")


def test_webassembly_is_allowed_to_the_worker_alone(looking: Looking) -> None:
    policies = {}
    for path in ("catalogue", "pages/inside.js", "pages/inside_worker.js"):
        with urllib.request.urlopen(f"http://127.0.0.1:{looking.port}/{path}", timeout=30) as answer:
            policies[path] = answer.headers["content-security-policy"]
    worker = policies.pop("pages/inside_worker.js")
    assert worker == "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'"
    assert set(policies.values()) == {"default-src 'self'"}

"""Conditions on texts, lists, missing values and links, compared with the same conditions in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import femtobarn as fb


@fb.persistent
class TermRun:
    number: fb.int32
    label: str


@fb.persistent
class TermMuon:
    pt: fb.float64
    eta: fb.float64
    tag: str
    hits: list[fb.int32]


@fb.persistent
class TermEvent:
    run: fb.int32
    name: str
    note: str | None
    z: fb.float64 | None
    muons: list[TermMuon]
    cells: list[fb.float32]
    best: TermMuon | None
    of: fb.link[TermRun] = None


def muon(event: int, number: int) -> TermMuon:
    hits = list(range(number))
    return TermMuon(pt=10.0 * number + event, eta=number - 1.0, tag="xy"[number % 2], hits=hits)


@pytest.fixture
def events(fed: fb.Federation) -> fb.View:
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        runs = database.container("runs", TermRun, create=True)
        made = database.container("events", TermEvent, create=True)
        for number in range(12):
            run = runs.append(TermRun(number=number % 3, label="abc"[number % 3]))
            muons = [muon(number, each) for each in range(number % 4)]
            event = TermEvent(
                run=number,
                name=("tt", "ww", "zz")[number % 3],
                note=None if number % 2 else "n\u00f6te",
                z=None if number % 3 == 0 else float(number),
                muons=muons,
                cells=[0.5 * number] * (number % 2),
                best=muons[0] if muons else None,
            )
            event.of = None if number == 5 else run
            made.append(event)
    with fed.transaction() as txn:
        made = txn.database("d").container("events")
        made.delete(fed["d/events"].oid(10))
    return fed["d/events"]


def pts(event: Any) -> list[float]:
    return [each["pt"] for each in event["muons"]]


CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "name == 'tt'": lambda e: e["name"] == "tt",
    "'tt' != name": lambda e: e["name"] != "tt",
    "name in ('tt', 'ww')": lambda e: e["name"] in ("tt", "ww"),
    "name not in ['tt'] and run < 6": lambda e: e["name"] != "tt" and e["run"] < 6,
    "note == 'nöte'": lambda e: e["note"] == "nöte",
    "not note == 'nöte'": lambda e: False,
    "note is None": lambda e: e["note"] is None,
    "note is not None or run == 3": lambda e: e["note"] is not None or e["run"] == 3,
    "z > 3": lambda e: e["z"] is not None and e["z"] > 3,
    "not z > 3": lambda e: e["z"] is not None and e["z"] <= 3,
    "z is None": lambda e: e["z"] is None,
    "run in (1, 2, 11)": lambda e: e["run"] in (1, 2, 11),
    "run not in (1, 2)": lambda e: e["run"] not in (1, 2),
    f"run in {tuple(range(1, 90, 2))}": lambda e: e["run"] % 2 == 1,
    "any(muons.pt > 20)": lambda e: any(pt > 20 for pt in pts(e)),
    "not any(muons.pt > 20)": lambda e: not any(pt > 20 for pt in pts(e)),
    "all(muons.pt > 5)": lambda e: all(pt > 5 for pt in pts(e)),
    "any(muons.pt > 12 and abs(muons.eta) < 0.5)": lambda e: any(
        m["pt"] > 12 and abs(m["eta"]) < 0.5 for m in e["muons"]
    ),
    "any((muons.pt > 12) & (muons.tag == 'y'))": lambda e: any(
        m["pt"] > 12 and m["tag"] == "y" for m in e["muons"]
    ),
    "any(muons.pt > run + 9)": lambda e: any(pt > e["run"] + 9 for pt in pts(e)),
    "any(muons.pt > muons.pt[0])": lambda e: any(pt > pts(e)[0] for pt in pts(e)),
    "sum(muons.pt) > 30 and run > 3": lambda e: sum(pts(e)) > 30 and e["run"] > 3,
    "sqrt(sum(muons.pt ** 2)) > 25": lambda e: math.sqrt(sum(pt**2 for pt in pts(e))) > 25,
    "count(muons.pt > 12) == 2": lambda e: sum(pt > 12 for pt in pts(e)) == 2,
    "count(muons.pt) == 2": lambda e: len(pts(e)) == 2,
    "max(muons.pt) > 25": lambda e: max(pts(e), default=0) > 25,
    "not max(muons.pt) > 25": lambda e: pts(e) != [] and max(pts(e)) <= 25,
    "min(muons.eta) < 0": lambda e: any(m["eta"] < 0 for m in e["muons"]),
    "mean(muons.pt) > 14": lambda e: pts(e) != [] and sum(pts(e)) / len(pts(e)) > 14,
    "muons.pt[0] > 5": lambda e: pts(e)[:1] > [5],
    "muons[1].pt > 15": lambda e: len(pts(e)) > 1 and pts(e)[1] > 15,
    "muons.pt[-1] > 20": lambda e: pts(e) != [] and pts(e)[-1] > 20,
    "sum(muons.pt[:2]) > 20": lambda e: sum(pts(e)[:2]) > 20,
    "len(muons.pt[muons.eta > -0.5]) == 1": lambda e: sum(m["eta"] > -0.5 for m in e["muons"]) == 1,
    "nmuons == 2 and len(muons) == 2": lambda e: len(pts(e)) == 2,
    "any(muons.tag in ('y', 'z'))": lambda e: any(m["tag"] == "y" for m in e["muons"]),
    "any(muons.hits == 1)": lambda e: any(1 in m["hits"] for m in e["muons"]),
    "count(muons.hits) > 2": lambda e: sum(len(m["hits"]) for m in e["muons"]) > 2,
    "any(cells > 2)": lambda e: any(cell > 2 for cell in e["cells"]),
    "best is None": lambda e: e["best"] is None,
    "best.pt > 3": lambda e: e["best"] is not None and e["best"]["pt"] > 3,
    "of is None": lambda e: e["run"] == 5,
    "of.number == 1": lambda e: e["run"] % 3 == 1 and e["run"] != 5,
    "not of.number == 1": lambda e: e["run"] % 3 != 1 and e["run"] != 5,
    "of.label == 'b' or of.label == name": lambda e: e["run"] % 3 == 1 and e["run"] != 5,
    "of.number + run > 4": lambda e: e["run"] != 5 and e["run"] % 3 + e["run"] > 4,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_select_as_in_python(events: fb.View, condition: str) -> None:
    rows = [event.to_dict() for event in events]
    expected = [row["run"] for row in rows if CONDITIONS[condition](row)]
    assert events.arrays("run", where=condition).run.to_list() == expected
    assert events.arrays(where=condition).run.to_list() == expected
    assert [run for batch in events.iterate("run", condition, step_size=5) for run in batch.run] == expected


@pytest.mark.parametrize(
    ("condition", "error", "reason"),
    [
        ("any(muons.pt > 20 & abs(muons.eta) < 2.4)", fb.InvalidError, "& binds more tightly"),
        ("muons.pt > 3", fb.InvalidError, r"write any\(muons\.pt > 0\), muons\.pt\[0\] or len\(muons\)"),
        ("name == 3", fb.InvalidError, "name is string, and 3 is not"),
        ("name in ('tt', 3)", fb.InvalidError, "name is string, and 3 is not"),
        ("name > 'a'", fb.InvalidError, "texts have no order here"),
        ("run == 'a'", fb.InvalidError, "'a' is string, and run is not"),
        ("any(run > 3)", fb.InvalidError, r"where 'any\(run > 3\)': .* is no list"),
        ("any(muons.tp > 3)", fb.NotFoundError, "field 'tp' does not exist in muons; .* pt"),
        ("of.nummer == 1", fb.NotFoundError, "did you mean 'number'"),
        ("run is 3", fb.InvalidError, "is and is not are for None alone"),
        ("run in 3", fb.InvalidError, r"in is followed by a list of .*, such as in \(1, 2\)"),
        ("muons.pt[0]", fb.InvalidError, r"gives numbers \(float64\), not truth values"),
        ("any()", fb.InvalidError, "any takes one argument"),
        ("any(muons)", fb.InvalidError, "cannot be evaluated"),
        ("cells[muons.pt > 3] > 4", fb.InvalidError, "cannot be evaluated"),
        ("any(muons.pt > 3 for x in y)", fb.InvalidError, "cannot be used in a condition"),
        ("any(open('x'))", fb.NotFoundError, "function 'open' does not exist"),
        ("muons.pt.sum() > 3", fb.NotFoundError, "function 'muons.pt.sum' does not exist"),
        ("any(muons.__class__ == 3)", fb.NotFoundError, "'__class__' does not exist"),
        ("len(muons.hits) == 1", fb.InvalidError, "no number of items per entry"),
        ("any(muons.tag == tag)", fb.NotFoundError, "'tag' does not exist"),
    ],
)
def test_what_cannot_be_is_refused_with_advice(
    events: fb.View, condition: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        events.arrays("run", where=condition)

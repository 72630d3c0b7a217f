"""Conditions on texts, lists, missing values and links, compared with the same conditions in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

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
    corner: fb.array[fb.float32, Literal[3]]
    words: list[str]
    some: list[fb.int32] | None
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
                corner=[number, 1, 2],
                words=list("bab"[: number % 4]),
                some=None if number % 5 == 0 else [1] * (number % 2),
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
    "any(cells > z)": lambda e: e["z"] is not None and any(cell > e["z"] for cell in e["cells"]),
    "any(muons.pt > 15 or muons.pt > z)": lambda e: any(
        pt > 15 or (e["z"] is not None and pt > e["z"]) for pt in pts(e)
    ),
    "any(corner > run)": lambda e: any(each > e["run"] for each in e["corner"]),
    "len(corner[corner > 1]) == 2": lambda e: sum(each > 1 for each in e["corner"]) == 2,
    "sum(muons.hits[:1]) >= 0 and words[0] == 'b'": lambda e: e["words"][:1] == ["b"],
    "len(words[words == 'b']) == 1": lambda e: e["words"].count("b") == 1,
    "some is None": lambda e: e["some"] is None,
    "len(some) == 1": lambda e: e["some"] is not None and len(e["some"]) == 1,
    "count(muons) == 1": lambda e: len(pts(e)) == 1,
    "min(cells) < 100 and max(cells) > 2": lambda e: any(cell > 2 for cell in e["cells"]),
    "name in ('tt', 'zz', 'longer than all')": lambda e: e["name"] in ("tt", "zz"),
    "any(muons.pt // -1 < -10)": lambda e: any(pt // -1 < -10 for pt in pts(e)),
    "run % -5 == -1": lambda e: e["run"] % -5 == -1,
    "run in (1, 2.0, 2.5)": lambda e: e["run"] in (1, 2),
    "run < 2**3 and any(cells < 10**2)": lambda e: e["run"] < 8 and bool(e["cells"]),
    "of.number + run > 4": lambda e: e["run"] != 5 and e["run"] % 3 + e["run"] > 4,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_select_as_in_python(events: fb.View, condition: str) -> None:
    rows = [event.to_dict() for event in events]
    expected = [row["run"] for row in rows if CONDITIONS[condition](row)]
    assert events.arrays("run", where=condition).run.to_list() == expected
    assert events.arrays(where=condition).run.to_list() == expected
    assert [run for batch in events.iterate("run", condition, step_size=5) for run in batch.run] == expected


def test_batches_without_any_target_of_a_link_have_no_match(events: fb.View) -> None:
    assert events[5:6].arrays("run", where="of.number == 1 or of.label == 'b'").run.to_list() == []
    found = [len(batch) for batch in events.iterate("run", "of.number == 2 or run == 5", step_size=1)]
    assert sum(found) == 4


def test_texts_that_end_in_a_zero_differ_from_those_without(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        form = {"name": "Text", "fields": [{"name": "name", "type": "string"}]}
        texts = txn.database("d", create=True).container("texts", form, create=True)
        texts.extend({"name": ["a", "a\0", "b", "", "\0"]})
    view = fed["d/texts"]
    assert view.entries("name in ('a', '')").tolist() == [0, 3]
    assert view.entries(r"name in ('a\0', 'b')").tolist() == [1, 2]


def test_nan_is_no_extremum(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        form = {"name": "Values", "fields": [{"name": "x", "type": {"list": "float64"}}]}
        values = txn.database("d", create=True).container("values", form, create=True)
        values.extend({"x": [[math.nan], [math.nan, 1.0], []]})
    view = fed["d/values"]
    assert view.entries("min(x) > -5 or max(x) < 5").tolist() == [1]
    assert view.entries("not min(x) > 5").tolist() == [1]


def test_large_integers_are_compared_exactly(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        form = {"name": "Number", "fields": [{"name": "n", "type": "int64"}]}
        numbers = txn.database("d", create=True).container("numbers", form, create=True)
        numbers.extend({"n": [2**53 + 1, 2**53, 2**63 - 1, -(2**63)]})
    view = fed["d/numbers"]
    many = ", ".join(map(str, range(40)))
    assert view.entries(f"n in (0.5, {many}, {2**53})").tolist() == [1]
    assert view.entries("n // -1 < 0 and n % -1 == 0").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("condition", "error", "reason"),
    [
        ("any(muons.pt > 20 & abs(muons.eta) < 2.4)", fb.InvalidError, "& binds more tightly"),
        ("muons.pt > 3", fb.InvalidError, r"write any\(muons\.pt > 0\), muons\.pt\[0\] or len\(muons\)"),
        ("name == 3", fb.InvalidError, "name is string, and 3 is not"),
        ("name in ('tt', 3)", fb.InvalidError, "name is string, and 3 is not"),
        ("name > 'a'", fb.InvalidError, "texts have no order here"),
        ("run == 'a'", fb.InvalidError, "'a' is string, and run is not"),
        ("any(run > 3)", fb.InvalidError, r"where 'any\(run > 3\)': .* is not a list"),
        ("any(muons.tp > 3)", fb.NotFoundError, "field 'tp' does not exist in muons; .* pt"),
        ("of.nummer == 1", fb.NotFoundError, "did you mean 'number'"),
        ("run is 3", fb.InvalidError, "is and is not are only for None"),
        ("run in 3", fb.InvalidError, r"in is followed by a list of .*, such as in \(1, 2\)"),
        ("muons.pt[0]", fb.InvalidError, r"gives numbers \(float64\), not truth values"),
        ("any()", fb.InvalidError, "any takes one argument"),
        ("any(muons)", fb.InvalidError, "cannot be evaluated"),
        ("cells[muons.pt > 3] > 4", fb.InvalidError, "cannot be evaluated"),
        ("any(muons.pt > 3 for x in y)", fb.InvalidError, "cannot be used in a condition"),
        ("any(open('x'))", fb.NotFoundError, "function 'open' does not exist"),
        ("muons.pt.sum() > 3", fb.NotFoundError, "function 'muons.pt.sum' does not exist"),
        ("any(muons.__class__ == 3)", fb.NotFoundError, "'__class__' does not exist"),
        ("sum(muons.pt[::0]) > 1", fb.InvalidError, "the step of a slice is not 0"),
        ("run == 9**9**9", fb.InvalidError, "is too large"),
        ("any(cells > 1 << 100000000000)", fb.InvalidError, "is too large"),
        ("any(cells == 9223372036854775808)", fb.InvalidError, "more than 64 bits"),
        ("any(sqrt(cells, cells) > 1)", fb.InvalidError, "sqrt takes one argument"),
        ("any(cells @ cells > 1)", fb.InvalidError, "cannot be used in a condition"),
        ("name[0] == 't'", fb.InvalidError, "a part of a text cannot be chosen"),
        ("run[0] == 1", fb.InvalidError, "an item of one value cannot be chosen"),
        ("mouns.pt[0] > 1", fb.NotFoundError, "where 'mouns.pt.*did you mean 'muons'"),
        ("not " * 5000 + "run > 1", fb.InvalidError, "too many parts within each other"),
        ("len(muons.hits) == 1", fb.InvalidError, "no number of items per entry"),
        ("any(muons.tag == tag)", fb.NotFoundError, "'tag' does not exist"),
    ],
)
def test_invalid_terms_of_conditions_are_refused_with_advice(
    events: fb.View, condition: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        events.arrays("run", where=condition)

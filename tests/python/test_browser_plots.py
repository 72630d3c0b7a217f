"""Histograms of expressions on the catalogue's page equal those of the Python program that the page shows."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pytest
from looking import Looking, looking_into

import femtobarn as fb


@fb.persistent
class BrowserHit:
    charge: fb.float32 | None


@fb.persistent
class BrowserMuon:
    pt: fb.float32
    eta: fb.float32
    is_good: bool
    hits: list[BrowserHit]


@fb.persistent
class BrowserEvent:
    run: fb.int32
    x: fb.float64
    z: fb.float64 | None
    is_real: bool
    Muon: list[BrowserMuon]
    jet_pt: list[fb.float32]
    jet_eta: list[fb.float32]
    corner: fb.array[fb.float32, Literal[2]]
    begun: datetime


@fb.persistent
class BrowserNote:
    text: str


def event(number: int, generator: np.random.Generator) -> BrowserEvent:
    def muon() -> BrowserMuon:
        charges = generator.integers(-3, 4, generator.poisson(1)).tolist()
        return BrowserMuon(
            pt=generator.exponential(20),
            eta=generator.normal(0, 1.5),
            is_good=bool(generator.random() > 0.3),
            hits=[BrowserHit(charge=charge or None) for charge in charges],
        )

    jets = generator.poisson(1.5)
    return BrowserEvent(
        run=number % 7,
        x=float("nan") if number % 50 == 0 else generator.normal(),
        z=None if number % 3 == 0 else generator.normal(1, 2),
        is_real=number % 2 == 0,
        Muon=[muon() for _ in range(generator.poisson(1.2))],
        jet_pt=generator.exponential(30, jets).tolist(),
        jet_eta=generator.normal(0, 2, jets).tolist(),
        corner=[number, -number],
        begun=datetime(2026, 11, 27, second=number % 60, tzinfo=UTC),
    )


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    """Two commits of events, with deleted ones, and more objects than Python reads at once."""
    folder = tmp_path_factory.mktemp("plots")
    generator = np.random.default_rng(5)
    with fb.create(folder / "lhc.fed") as fed:
        for first in (0, 300):
            with fed.transaction() as txn:
                events = txn.database("run7", create=True).container("events", BrowserEvent, create=True)
                events.extend([event(number, generator) for number in range(first, first + 300)])
        with fed.transaction() as txn:
            txn.database("run7").container("events").delete(where="run == 3")
            txn.database("run7").container("notes", BrowserNote, create=True).append(BrowserNote(text="<b>"))
        with looking_into(fed, folder, "run7/events") as page:
            yield page


PLOTS: list[dict[str, str]] = [
    {"field": "run"},
    {"field": "Muon.pt"},
    {"field": "nMuon"},
    {"field": "Muon.nhits"},
    {"field": "z"},
    {"field": "Muon.pt * cosh(Muon.eta)"},
    {"field": "sqrt(x**2 + run**2) / 2"},
    {"field": "-x ** 2 + 2.5e0 * (x - 1) - (3 - x)"},
    {"field": "atan2(Muon.eta, Muon.pt) + max(Muon.pt, x) - min(Muon.eta, 0)"},
    {"field": "log10(Muon.pt) + exp(-abs(Muon.eta))"},
    {"field": "jet_pt * cosh(jet_eta)"},
    {"field": "corner / 2"},
    {"field": "sum(Muon.pt)"},
    {"field": "max(Muon.pt) - mean(Muon.eta)"},
    {"field": "Muon.hits.charge * 2"},
    {"field": "count(Muon.hits.charge)"},
    {"field": "Muon.pt * z"},
    {"field": "1 ** x"},
    {"field": "Muon.pt", "where": "nMuon > 2"},
    {"field": "Muon.pt", "where": "0 < x <= 1.5 & run == 2 | is_real"},
    {"field": "x", "where": "!(z > 1)"},
    {"field": "x", "where": "not z > 1 or not is_real"},
    {"field": "x", "where": "z > 1 | run != 4"},
    {"field": "run", "where": "x != 0"},
    {"field": "run", "where": "any(Muon.pt > 20 & abs(Muon.eta) < 2.4)"},
    {"field": "run", "where": "all(Muon.is_good) & nMuon > 0"},
    {"field": "run", "where": "count(Muon.pt > 20) == 2"},
    {"field": "run", "where": "any(Muon.hits.charge > 1)"},
    {"field": "Muon.eta", "where": "Muon.pt > 20"},
    {"field": "Muon.eta * 2", "where": "Muon.is_good and Muon.pt > z"},
    {"field": "Muon.pt", "second": "Muon.eta"},
    {"field": "run", "second": "Muon.pt / 2", "where": "nMuon > 1"},
    {"field": "z", "second": "x"},
    {"field": "run", "second": "Muon.pt", "where": "Muon.eta > 0"},
    {"field": "Muon.pt", "second": "Muon.pt", "where": "Muon.is_good"},
]


@pytest.mark.parametrize("chosen", PLOTS, ids=lambda chosen: " ".join(chosen.values()))
def test_the_page_and_its_program_make_the_same_histogram(looking: Looking, chosen: dict[str, str]) -> None:
    assert "Fetched" in looking.shown(**chosen)
    program: str = looking.page.value("document.getElementById('inside-snippet').textContent")
    opening, _, counting = program.partition("view.hist")
    names: dict[str, Any] = {}
    exec(f"{opening}found = view.hist{counting}", names)
    with names["fed"]:
        found = names["found"]
    titles = looking.page.value(
        "[...document.querySelectorAll('#histogram rect title')].map(it => it.textContent)"
    )
    drawn = [
        np.array(re.findall(r"-?[\d.]+(?:e[-+]\d+)?", title.replace(",", " ")), float) for title in titles
    ]
    # The middle of each bin or cell, and what is in it.
    middles = np.array([each[:-1].reshape(-1, 2).mean(axis=1) for each in drawn])
    counts, _ = np.histogramdd(
        middles, [axis.edges for axis in found.axes], weights=[each[-1] for each in drawn]
    )
    assert counts.sum() > 0
    assert counts.tolist() == found.values().tolist()


@pytest.mark.parametrize(
    ("chosen", "marked", "reason"),
    [
        ({"field": "Moun.pt * 2"}, "Moun.pt", "there is no number Moun.pt"),
        ({"field": "sqrt(x"}, "(", "this parenthesis is not closed"),
        ({"field": "x", "where": "run = 7"}, "=", "compare with =="),
        ({"field": "x", "where": "run"}, "run", "this is a number; compare it"),
        ({"field": "x", "where": "Muon.pt > 7"}, "Muon.pt > 7", "make one of them by any(...) or all(...)"),
        ({"field": "Muon.pt * Muon.hits.charge"}, "Muon.pt * Muon.hits.charge", "do not go together"),
        ({"field": "x", "second": "x *"}, "\u00a0", "a number or a name is missing at its end"),
        ({"field": "alert(1)"}, "alert", "there is no function alert"),
        ({"field": "constructor"}, "constructor", "there is no number constructor"),
        ({"field": "toString(x)"}, "toString", "there is no function toString"),
        ({"field": "x + <b>1"}, "<", "a number or a name is missing before it"),
        ({"field": "(" * 499 + "x"}, "(", "this parenthesis is not closed"),
        ({"field": "x" * 501}, "x", "more than 500 characters"),
    ],
)
def test_errors_in_an_expression_are_marked(
    looking: Looking, chosen: dict[str, str], marked: str, reason: str
) -> None:
    looking.shown(**chosen)
    assert looking.page.value("document.querySelector('#inside-wrong mark').textContent") == marked
    assert reason in looking.page.value("document.querySelector('#inside-wrong').textContent")
    assert looking.page.value("document.querySelectorAll('#inside [aria-invalid=true]').length") == 1
    assert not looking.page.value("document.querySelector('#inside-drawn').checkVisibility()")
    assert "object" in looking.page.value("document.querySelector('#inside-objects').tHead.textContent")


def test_lists_with_different_numbers_of_items_do_not_go_together(looking: Looking) -> None:
    shown = looking.shown(field="Muon.pt + jet_pt")
    assert "two lists have different numbers of items in an object" in shown
    assert looking.page.value("document.querySelector('#inside-error').hidden")


def test_people_type_a_condition_and_choose_bins_by_keys(looking: Looking) -> None:
    looking.shown(field="Muon.pt")
    page = looking.page
    facts = "document.getElementById('inside-facts').innerText"
    page.value("document.getElementById('inside-where').focus()")
    for key in [*"nMuon > 2", "Enter"]:
        page.press(key)
    expected = looking.federation["run7/events"].arrays("Muon.pt", where="nMuon > 2")
    numbers, objects = sum(len(each) for each in expected["Muon"]), len(expected)
    left = len(looking.federation["run7/events"].arrays("run"))
    page.wait_for(f"{facts}.includes('{numbers} numbers of {objects} of {left} objects')")
    page.value("document.getElementById('inside-bins').focus()")
    for key in ["7", "Enter"]:
        page.press(key)
    page.wait_for("document.querySelectorAll('#histogram .bar').length === 7")
    chosen = urllib.parse.parse_qs(page.value("location.search"))
    assert (chosen["?where"] if "?where" in chosen else chosen["where"]) == ["nMuon > 2"]
    assert chosen["bins"] == ["7"]
    assert page.faults() == []


@pytest.mark.parametrize(
    "chosen",
    [
        {"field": "x", "low": "Infinity"},
        {"field": "x", "low": "-1e308", "high": "1e308"},
        {"field": "x", "low": "1e308", "high": "-1e308"},
        {"field": "x", "bins": "many"},
        {"field": "x * 1e308"},
        {"field": "begun", "low": "-1e30", "high": "1e30"},
        {"field": "begun", "low": "noon"},
    ],
    ids=lambda chosen: " ".join(chosen.values()),
)
def test_ranges_that_cannot_be_drawn_are_replaced(looking: Looking, chosen: dict[str, str]) -> None:
    assert "Fetched" in looking.shown(**chosen)
    assert looking.page.value("document.querySelectorAll('#histogram :is(.bar, .cell)').length") > 0
    assert not re.search("NaN|Infinity", looking.page.value("document.getElementById('histogram').outerHTML"))
    assert looking.page.faults() == []


def test_a_container_without_numbers_shows_nothing_of_the_one_before(looking: Looking) -> None:
    looking.shown(field="Muon.pt")
    address = "?container=run7/notes&inside=true"
    looking.page.value(
        f"(history.pushState(null, '', '{address}'), dispatchEvent(new PopStateEvent('popstate')))"
    )
    looking.page.wait_for("document.getElementById('inside-objects').innerText.includes('<b>')")
    looking.page.wait_for("!document.getElementById('inside-drawn').checkVisibility()")
    assert not looking.page.value("document.getElementById('inside-form').checkVisibility()")


@pytest.mark.parametrize(("width", "is_dark"), [(1100, True), (360, False)])
def test_the_form_and_the_drawing_fit_into_windows(looking: Looking, width: int, is_dark: bool) -> None:
    looking.shown(field="Muon.pt * cosh(Muon.eta)", second="Muon.eta", where="nMuon > 1")
    page = looking.page
    page.open(page.value("location.href"), width=width, height=740, is_dark=is_dark)
    page.wait_for("document.querySelectorAll('#histogram .cell').length > 0")
    wide = "[...document.querySelectorAll('#details :is(form, input, svg, p, pre, label)')]"
    outside = (
        f"{wide}.filter(it => it.getBoundingClientRect().right > innerWidth).map(it => it.id || it.tagName)"
    )
    assert page.value(outside) == []
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert page.faults() == []

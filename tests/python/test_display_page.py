"""The page of the event display in a browser: it draws, items are picked, events are stepped through."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastjet", reason="the extra `demo` is not installed")

import display_events
from browser import Page, opened

import femtobarn as fb

NAME = "document.getElementById('name').textContent"
FIELDS = "document.getElementById('fields').innerText"
LINKS = "document.getElementById('relations').innerText"
FACTS = "({ ...document.documentElement.dataset })"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with two events."""
    folder = tmp_path_factory.mktemp("display")
    with fb.create(folder / "lhc.fed") as fed:
        return Path(display_events.store(fed).display().save(folder / "display.html"))


@pytest.fixture
def page(browser: Page, file: Path) -> Iterator[Page]:
    browser.open(file)
    yield browser
    assert browser.faults() == [], "it asks for nothing that its policy refuses"


def label(text: str) -> str:
    return f"[...document.querySelectorAll('#labels span')].find((it) => it.textContent.includes('{text}'))"


def button(text: str) -> str:
    every = "[...document.querySelectorAll('#relations button')]"
    return f"{every}.find((it) => it.textContent.startsWith('{text}'))"


def labels(page: Page) -> list[str]:
    found: list[str] = page.value(
        "[...document.querySelectorAll('#labels span')].map((it) => it.textContent)"
    )
    return sorted(found)


def test_click_on_a_jet_shows_its_fields_and_constituents(page: Page) -> None:
    before = page.value(FACTS)
    assert int(before["triangles"]) > 500
    middle, end = page.middle("document.getElementById('picture')"), page.middle(label("jet 25"))
    page.click(*(at + 0.75 * (to - at) for at, to in zip(middle, end, strict=True)))
    assert page.value(NAME) == "jet 1, 25.0 GeV"
    page.click_on(label("jet 120"))
    assert page.value(NAME) == "jet 0, 120 GeV"
    assert "mass\t9" in page.value(FIELDS)
    assert "links to: tracks" in page.value(LINKS)
    assert "cluster 0" in page.value(LINKS)
    after = page.value(FACTS)
    assert int(after["triangles"]) > int(before["triangles"]), "the jet and its constituents are marked"


def test_links_are_followed_and_back(page: Page) -> None:
    page.click_on(label("jet 120"))
    page.click_on(button("track 0"))
    assert "linked from: jets, tracks" in page.value(LINKS)
    assert "links to: pixels (3)" in page.value(LINKS)
    page.click_on(button("hit 2"))
    assert page.value(NAME) == "hit 2"
    assert "linked from: tracks, pixels" in page.value(LINKS)
    page.click_on("document.getElementById('back')")
    assert page.value(NAME) == "track 0, 10.0 GeV"
    page.click(3, 3)
    assert page.value(FACTS)["selected"] == "", "there is nothing at that place"


def test_keys_step_through_events_and_items(page: Page) -> None:
    assert page.value("document.title") == "run1/tags 0"
    assert page.value("document.getElementById('previous').disabled")
    page.press("ArrowRight")
    assert page.value("document.title") == "run1/tags 1"
    assert "jet 121 GeV" in labels(page)
    page.press("n")
    page.press("n")
    assert page.value(NAME) == "jet 1, 25.0 GeV"
    page.press("Escape")
    assert page.value(FACTS)["selected"] == ""
    page.press("ArrowRight")
    assert page.value(FACTS)["event"] == "1", "there is no third event"
    page.click_on("document.getElementById('previous')")
    assert page.value("document.title") == "run1/tags 0"
    place = page.middle(label("jet 120"))
    page.value("document.getElementById('picture').focus()")
    page.press("ArrowLeft")
    assert page.value("document.title") == "run1/tags 0"
    assert page.middle(label("jet 120")) != place, "on the picture, arrows turn it"


def test_nothing_stays_marked_in_the_next_event(page: Page) -> None:
    before = page.value(FACTS)["triangles"]
    page.press("n")
    assert page.value(FACTS)["triangles"] != before
    page.press("ArrowRight")
    page.press("ArrowLeft")
    assert page.value(FACTS)["triangles"] == before


def test_legend_and_threshold_hide_items(page: Page) -> None:
    assert labels(page) == ["jet 120 GeV", "jet 25.0 GeV", "missing 33.0 GeV"]
    page.value("document.getElementById('threshold').focus()")
    page.value("document.getElementById('threshold').value = 74")
    page.press("ArrowRight")
    assert labels(page) == ["jet 120 GeV", "missing 33.0 GeV"]
    lines = "[...document.querySelectorAll('#legend label')]"
    page.click_on(f"{lines}.find((it) => it.innerText.includes('jets'))")
    assert labels(page) == ["missing 33.0 GeV"]


@pytest.mark.parametrize(
    ("is_dark", "colours"),
    [(True, ["rgb(20, 26, 34)", "rgb(228, 232, 238)"]), (False, ["rgb(255, 255, 255)", "rgb(28, 36, 48)"])],
)
def test_phone_shows_the_picture_without_sideways_scrolling(
    browser: Page, file: Path, is_dark: bool, colours: list[str]
) -> None:
    browser.open(file, width=390, height=844, is_dark=is_dark)
    assert browser.value("document.documentElement.scrollWidth") == 390
    picture = "document.getElementById('picture')"
    assert browser.value(f"[{picture}.clientWidth, {picture}.clientHeight > 400]") == [390, True]
    assert int(browser.value(FACTS)["triangles"]) > 500
    style = "getComputedStyle(document.body)"
    assert browser.value(f"[{style}.backgroundColor, {style}.color]") == colours
    assert browser.faults() == []


def test_browser_without_webgl_shows_tables_and_the_reason(file: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "browser", "--disable-3d-apis") as page:
        page.open(file)
        assert "draws no 3D (WebGL)" in page.value("document.querySelector('[role=alert]').innerText")
        page.press("n")
        assert page.value(NAME) == "jet 0, 120 GeV"
        assert "mass\t9" in page.value(FIELDS)


def test_notebook_gets_a_frame_that_only_runs_scripts(
    browser: Page, fed: fb.Federation, tmp_path: Path
) -> None:
    shown = display_events.store(fed)[0].display()
    frame = shown._repr_html_()
    assert frame.startswith('<iframe title="run1/tags 0" sandbox="allow-scripts" srcdoc="')
    inside = re.search(r'srcdoc="([^"]*)"', frame)
    assert inside
    assert html.unescape(inside[1]) == shown.html()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><title>notebook</title>{frame}")
    browser.open(notebook)
    assert browser.faults() == []


def test_text_of_a_federation_cannot_leave_its_place(
    browser: Page, fed: fb.Federation, tmp_path: Path
) -> None:
    @fb.persistent
    class Note:
        text: str
        x: float
        y: float
        z: float

    text = "</script><script>document.title = 'hit'</script><b>"
    with fed.transaction() as txn:
        notes = txn.database("d", create=True).container("notes", Note, create=True)
        notes.append(Note(text=text, x=0, y=0, z=0))
    browser.open(Path(fed["d/notes"][0].display().save(tmp_path / "notes.html")))
    assert browser.value("document.title") == "d/notes 0"
    assert text in browser.value(FIELDS)
    assert browser.value("document.scripts.length") == 3

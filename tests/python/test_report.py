"""The report: numbers, pictures that are drawn without a warning, and one page that needs nothing else."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra `demo` is not installed")

from matplotlib.figure import Figure

from femtobarn_demo.calibration import Timeline
from femtobarn_demo.report import (
    HEADINGS,
    EventPicture,
    Movement,
    Report,
    Stage,
    draw_dimuon_spectrum,
    draw_event,
    draw_jet_momenta,
    draw_jet_response,
    draw_rates,
    draw_residuals,
    draw_responses,
    draw_timelines,
    draw_z_peak,
    invariant_mass,
    table,
)
from femtobarn_reports.page import Picture, figures
from femtobarn_reports.style import png, style, svg

WRITE = Stage("write <raw>", 4, 2000, 14000, 500_000_000, 2.0, 3.0)
NOTHING = Stage("nothing", 1, 0, 0, 0, 0.0, 0.0)


def test_stage_computes_its_rates() -> None:
    assert WRITE.megabytes_per_second == 250.0
    assert WRITE.events_per_second == 1000.0
    assert WRITE.cpu_per_100_megabytes == pytest.approx(0.6)
    assert (NOTHING.megabytes_per_second, NOTHING.events_per_second, NOTHING.cpu_per_100_megabytes) == (
        0,
        0,
        0,
    )
    first, second = table([WRITE, NOTHING])
    assert first == ("write <raw>", "4", "2,000", "14,000", "500.0", "2.00", "250", "1,000", "0.60")
    assert len(first) == len(second) == len(HEADINGS)


def test_mass_of_back_to_back_muons_is_their_energy() -> None:
    muon = {"pt": np.array([45.0]), "eta": np.zeros(1), "phi": np.zeros(1), "mass": np.array([0.106])}
    other = muon | {"phi": np.array([np.pi])}
    np.testing.assert_allclose(invariant_mass(muon, other), 2 * np.hypot(45.0, 0.106))
    np.testing.assert_allclose(invariant_mass(muon, muon), 0.212, atol=1e-6)


def toy_event(points: int, tracks: int, jets: int) -> EventPicture:
    random = np.random.default_rng(4)
    columns = {name: random.normal(size=tracks) for name in ("eta", "phi", "z0")}
    columns |= {"pt": random.exponential(5.0, tracks) + 0.5, "charge": random.choice([-1, 1], tracks)}
    columns["z0"] *= 0.04
    shape = np.stack(
        [random.exponential(40.0, jets), random.normal(size=jets), random.normal(size=jets)], axis=1
    )
    cells = np.stack([random.exponential(2.0, 300), random.normal(size=300), random.normal(size=300)], axis=1)
    owner = random.integers(-1, tracks, points) if tracks else np.full(points, -1)
    jet = random.integers(-1, jets, tracks) if jets else np.full(tracks, -1)
    return EventPicture(
        "run 1, event 2", random.normal(size=(points, 3)), columns, owner, jet, shape, cells, cells[:100]
    )


HOURS = np.linspace(0.0, 12.0, 50)
TIMELINE = Timeline(
    "Gain", "", HOURS, 1.0 - 0.01 * HOURS, [(0.0, 12.0, 1.0)], [(0.0, 6.0, 0.97), (6.0, 12.0, 0.91)]
)
POINTS = np.random.default_rng(1).uniform(-3.1, 3.1, 200), np.random.default_rng(2).normal(0.0, 3e-5, 200)
NO_POINTS = np.array([]), np.array([])

PICTURES: dict[str, Callable[[], Figure]] = {
    "rates": lambda: draw_rates([WRITE, NOTHING]),
    "z peak": lambda: draw_z_peak(np.random.default_rng(1).normal(91, 3, 500)),
    "no z": lambda: draw_z_peak(np.array([])),
    "spectrum": lambda: draw_dimuon_spectrum(np.random.default_rng(1).lognormal(2, 1, 500)),
    "no muons": lambda: draw_dimuon_spectrum(np.array([])),
    "jets": lambda: draw_jet_momenta(np.array([60.0, 70.0]), np.array([20.0, 60.0, 70.0])),
    "no jets": lambda: draw_jet_momenta(np.array([]), np.array([])),
    "response": lambda: draw_jet_response(np.array([60.0, 0.0]), np.array([50.0, 0.0])),
    "timelines": lambda: draw_timelines([TIMELINE, TIMELINE], 6),
    "responses": lambda: draw_responses(np.full(50, 0.9), np.full(50, 1.0)),
    "no clusters": lambda: draw_responses(np.array([]), np.array([])),
    "residuals": lambda: draw_residuals(POINTS, POINTS),
    "no residuals": lambda: draw_residuals(NO_POINTS, NO_POINTS),
    "event": lambda: draw_event(toy_event(500, 40, 8)),
    "empty event": lambda: draw_event(toy_event(0, 0, 0)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_without_a_warning(name: str) -> None:
    with style():
        figure = PICTURES[name]()
        assert isinstance(figure, Figure)
        scalable, pixels = svg(figure), png(figure, dpi=50)
    assert base64.b64decode(scalable.split(",")[1]).startswith(b"<?xml")
    assert base64.b64decode(pixels.split(",")[1]).startswith(b"\x89PNG")


def test_equal_figures_give_equal_bytes() -> None:
    with style():
        assert svg(draw_rates([WRITE])) == svg(draw_rates([WRITE]))


def test_event_picture_is_built_from_stored_objects() -> None:
    hits = [{"x": 0.1, "y": 0.0, "z": 0.5}, {"x": 0.2, "y": 0.0, "z": 1.0}]
    cells = {"cells": [{"cell": (40 << 10) | 3, "energy": 5.0}]}
    raw = ak.Array(
        [
            {
                "PixelHits": {"hits": hits},
                "StripHits": {"hits": hits[:1]},
                "EcalCells": cells,
                "HcalCells": cells,
            }
        ]
    )[0]
    track = {"pt": 2.0, "eta": 0.5, "phi": 1.0, "charge": 1, "z0": 0.0, "pixels": [1], "strips": [0]}
    tracks = ak.Array([{"run": 3, "event": 1234, "tracks": [track]}])[0]
    jets = ak.Array([{"jets": [{"pt": 50.0, "eta": 0.5, "phi": 1.0, "tracks": [{"element": 0}]}]}])[0]
    event = EventPicture.from_objects(raw, tracks, jets)
    assert event.title == "run 3, event 1,234"
    assert event.owner.tolist() == [-1, 0, 0]
    assert event.jet_of_track.tolist() == [0]
    assert event.facts == ["3 space points", "1 tracks"]


class Page(HTMLParser):
    """Counts tags and collects what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_valid_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    with style():
        picture = Picture("Rates & more", "<all>", svg(draw_rates([WRITE])), wide=True)
    movements = [Movement("<sealed>", "online"), Movement("copied", "both", 3_000_000, 1.5)]
    report = Report(
        title="A title",
        summary="What & why",
        tiles=[("2,000", "events")],
        stages=[WRITE],
        pictures=[picture],
        conditions=["a & b"],
        timelines=[],
        storage=["a & b were away"],
        movements=movements,
        notes=["a <note>"],
    )
    report.write(tmp_path / "demo" / "report.html")
    text = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert all(source.startswith("data:") for source in page.sources)
    assert not re.search(r"\$\w|https?://(?!www\.w3\.org)", re.sub(r"data:[^\"]*", "", text))
    for shown in (
        "write &lt;raw&gt;",
        "Rates &amp; more",
        "a &lt;note&gt;",
        "a &amp; b",
        "What &amp; why",
        "&lt;sealed&gt;",
    ):
        assert shown in text
    assert "<tr><th>copied</th><td>both</td><td>3.0</td><td>1.50</td><td>2</td></tr>" in text


def test_picture_without_a_neighbour_stands_alone() -> None:
    pictures = [Picture(name, "", "data:,", wide=name == "wide") for name in ("a", "b", "c", "wide", "d")]
    placings = re.findall(r'class="(\w+)"><h2>(\w+)', figures(pictures))
    assert placings == [("half", "a"), ("half", "b"), ("single", "c"), ("wide", "wide"), ("single", "d")]

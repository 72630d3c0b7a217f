"""The figures that users feel: chosen from figures that exist, missed ones first, in tables and a picture."""

from __future__ import annotations

import json
import math
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import headlines
import run
from chapters import NAMES
from framework import GROUPS, Chapter, Figure, Headline, Results, Side, explained, faster, per_second

ROOT = Path(__file__).resolve().parent.parent.parent
CHAPTERS = [Chapter.of(name, import_module(f"chapters.{name}")) for name in NAMES]
FIGURES = [figure for chapter in CHAPTERS for figure in chapter.figures]
ALL = [(figure, headline) for figure in FIGURES for headline in figure.headlines]
each_headline = pytest.mark.parametrize(("figure", "headline"), ALL, ids=[each.text for _, each in ALL])


def sample(seconds: float = 1.0) -> dict[str, Any]:
    """A sample with everything that some figure needs, and with all costs in proportion to some seconds."""
    rest = dict.fromkeys(
        ("check", "disk_bytes", "memory_bytes", "threads", "ours_s", "open_s", "copied_bytes"), 1
    )
    costs = dict.fromkeys(("wall_s", "cpu_s", "p99_us", "median_us"), seconds)
    return {"items": 1, "bytes": 1, **rest, **costs, "points": [[1, 1.0], [2, seconds]]}


def test_about_forty_figures_stand_for_all() -> None:
    texts = [headline.text for _, headline in ALL]
    assert 35 <= len(texts) <= 50
    assert len(set(texts)) == len(texts)
    assert {headline.group for _, headline in ALL} == set(GROUPS)


@each_headline
def test_headline_has_a_limit_and_a_peer_or_a_reason(figure: Figure, headline: Headline) -> None:
    roles = {side.key: side.role for side in figure.sides}
    assert roles[headline.ours] == "ours"
    assert {roles[key] for key in headline.limits} <= {"limit"}
    assert {roles[key] for key in headline.peers} <= {"peer"}
    assert bool(headline.limits) != bool(headline.no_limit)
    assert bool(headline.peers) != bool(headline.no_peer)


def test_every_limit_is_measured_or_there_is_none() -> None:
    reasons = {headline.no_limit for _, headline in ALL}
    assert not [each for each in reasons if "not measured" in each or each.startswith("as for")]


def test_limit_of_nothing_is_infinitely_better() -> None:
    """The bare server keeps nothing of idle sessions."""
    assert headlines.better({"less": True}, 0.0, 20.0) == math.inf
    assert headlines.better({"less": False}, 5.0, 0.0) == math.inf
    assert headlines.better({"less": True}, 40.0, 20.0) == 0.5


@each_headline
def test_wanted_number_does_not_depend_on_ours(figure: Figure, headline: Headline) -> None:
    """So the target goes with the number that the headline shows."""

    def wanted(seconds: float) -> float:
        samples = {side.key: [sample(seconds if side.key == headline.ours else 1.0)] for side in figure.sides}
        found: float = headline.judge(Results(samples))["wanted"]
        return found

    assert wanted(2.0) == pytest.approx(wanted(1.0))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_each_target_of_a_figure_is_judged_once(figure: Figure) -> None:
    texts = [target.text for target in figure.all_targets]
    assert len(set(texts)) == len(texts)
    assert {each.wanted for each in figure.headlines} <= set(figure.all_targets)


def test_figures_without_samples_are_not_measured_rather_than_missed() -> None:
    chapters = [run.recorded_chapter(chapter, chapter.figures, {}) for chapter in CHAPTERS]
    text = headlines.part({**run.origin(), "busy": [], "chapters": chapters})
    assert "**0 of 0 figures are missed**" in text
    assert text.count("\n- ") == len(ALL)
    assert headlines.picture({"chapters": chapters}) == ""


def recorded() -> dict[str, Any]:
    """The JSON of a run with three headlines: missed, behind a peer, and reached."""
    wanted = {
        "missed": explained(faster("missed", "peer", 0.5), "It waits for the disk."),
        "behind": explained(faster("behind", "peer", 0.5), "It waits, too."),
        "reached": faster("reached", "peer", 0.5),
    }
    told = [
        Headline(
            GROUPS[0], f"This is {ours}", ours, per_second("objects"), target, ("disk",), ("slow", "peer")
        )
        for ours, target in wanted.items()
    ]
    speeds = {"missed": 1, "behind": 8, "reached": 20, "peer": 10, "slow": 1, "disk": 100}
    roles = {name: "ours" if name in wanted else "limit" if name == "disk" else "peer" for name in speeds}
    sides = tuple(Side(name, ("program",), role) for name, role in roles.items())  # type: ignore[arg-type]
    figure = Figure("f", "F", "objects", sides, headlines=tuple(told))
    results = Results({name: [{**sample(), "items": speed}] for name, speed in speeds.items()})
    chapter = {"name": "c", "title": "C", "intro": "", "figures": [run.recorded(figure, results)]}
    done: dict[str, Any] = json.loads(json.dumps({**run.origin(), "busy": [], "chapters": [chapter]}))
    return done


def test_tables_list_missed_targets_first_with_the_reason() -> None:
    text = headlines.part(recorded())
    found = re.findall(r"^### (.*)$|^\| (This is \w+) \(", text, re.MULTILINE)
    assert [heading or row for heading, row in found] == [
        "Missed", "This is missed", "Reached, but a peer does better", "This is behind", GROUPS[0],
        "This is reached",
    ]  # fmt: skip
    assert (
        "(objects a second) | 5 | **1** | 100, disk | 10, peer | **0.1** | It waits for the disk. |" in text
    )
    assert "It waits, too." not in text
    assert "**1 of 3 figures are missed**, 1 more behind a peer." in text


def test_picture_marks_missed_targets_by_words_and_signs_in_light_and_dark() -> None:
    picture = headlines.picture(recorded())
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", picture)
    assert [text for text in shown if text.startswith("This is")] == [
        "This is missed", "This is behind", "This is reached",
    ]  # fmt: skip
    assert [text[0] for text in shown if text.endswith("objects a second")] == ["✗", "✓", "✓"]
    assert "@media (prefers-color-scheme: dark)" in picture
    assert not re.search(r"(?:fill|stroke): #", picture), "a colour that does not change in the dark"


def test_documents_have_markers_for_their_parts() -> None:
    for name, part in (("performance.md", "headlines"), ("measurements.md", "tables")):
        document = (ROOT / "docs" / name).read_text()
        assert document.count(f"<!-- {part}: written by `make bench` -->") == 1
        assert document.count(f"<!-- end of {part} -->") == 1
    assert (ROOT / "docs" / headlines.PICTURE).exists()

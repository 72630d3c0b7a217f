"""The page of what is in the federations of a server, in a browser, and the data that it asks for."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import opened
from server_settings import QUICK_STOP
from test_status_page import page, told
from waiting import wait_for

import femtobarn as fb


@fb.persistent
class Raw:
    number: fb.int32


@fb.persistent
class Track:
    pt: fb.float32


@fb.persistent
class Event:
    tracks: list[Track]
    raw: fb.link[Raw]


@fb.persistent
class Tag:
    event: fb.link[Event]
    best: fb.link[Track]


RUNS = 60
SECOND = 2 * RUNS


@dataclass
class Site:
    federation: fb.Federation
    server: fb.Server
    browser: Path

    def ask(self, path: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode(parameters)
        return told(self.server.port, f"/api/{path}/lhc.fed?{query}")

    def page(self, **chosen: object) -> str:
        return page(self.server.port, self.browser, f"catalogue?{urllib.parse.urlencode(chosen)}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Sixty databases with two containers each: `raw` by the first commit, `events` by the second one."""
    folder = tmp_path_factory.mktemp("site")
    with fb.create(folder / "lhc.fed") as fed:
        with fed.transaction(message="all runs taken") as txn:
            for run in range(RUNS):
                raw = txn.database(f"run{run:02}", create=True).container("raw", Raw, create=True)
                raw.extend({"number": range(run)})
        with fed.transaction(message="reconstructed") as txn:
            for run in range(RUNS):
                events = txn.database(f"run{run:02}").container("events", Event, create=True)
                events.append(Event(tracks=[Track(pt=1)], raw=None))
        fed.tag("first", csn=1)
        with fed.transaction(message="tags <b>of all</b>") as txn:
            txn.database("tags", create=True).container("tags", Tag, create=True)
        with fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
            yield Site(fed, server, folder / "browser")


def names_in(shown: str) -> list[str]:
    return re.findall(r'data-container="([^"]*)"', shown)


def test_containers_are_listed_page_by_page(site: Site) -> None:
    shown = site.page()
    assert f"lhc: {RUNS + 1} databases, {SECOND + 1} containers" in shown
    assert names_in(shown)[:3] == ["run00/raw", "run00/events", "run01/raw"]
    assert len(names_in(shown)) == 50
    assert f"1 to 50 of {SECOND + 1}" in shown
    last = site.page(offset=100)
    assert names_in(last)[-1] == "tags/tags"
    assert f"101 to {SECOND + 1} of {SECOND + 1}" in last


def test_containers_are_searched_filtered_and_sorted(site: Site) -> None:
    largest = site.page(search="run5* RAW", sort="objects", descending="true")
    assert names_in(largest) == [f"run{run}/raw" for run in range(59, 49, -1)]
    assert 'aria-sort="descending"' in largest
    assert f"10 match: {sum(range(50, 60))} objects" in largest
    assert names_in(site.page(**{"class": "Tag"})) == ["tags/tags"]
    assert "no containers match" in site.page(state="sealed")


def test_an_older_commit_shows_the_containers_of_its_time(site: Site) -> None:
    shown = site.page(csn=1)
    assert "1 of 3" in shown
    assert "all runs taken" in shown
    assert f"{RUNS} databases, {RUNS} containers" in shown
    assert all(name.endswith("/raw") for name in names_in(shown))
    assert ">first (1)<" in shown


def test_a_container_is_shown_with_its_fields_and_a_program_that_reads_it(site: Site, tmp_path: Path) -> None:
    shown = site.page(container="run07/raw", csn=2)
    assert "Raw, version 1; 7 objects" in shown
    (snippet,) = re.findall(r'<code id="snippet">(.*?)</code>', shown, re.DOTALL)
    program = html.unescape(snippet).replace("view.arrays()", "print(view.arrays()['number'].tolist())")
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout == f"{list(range(7))}\n"
    (file,) = re.findall(r'id="file" href="([^"]*)"', shown)
    with urllib.request.urlopen(f"http://127.0.0.1:{site.server.port}{file}", timeout=30) as answer:
        assert answer.read(4) == b"root"
    events = site.page(container="run07/events")
    for text in ("list&lt;Track&gt;", "tracks.pt", "link&lt;Raw&gt;"):
        assert text in events, text


def test_classes_are_drawn_with_their_links(site: Site) -> None:
    shown = site.page(view="classes")
    edges = re.findall(r'<g class="edge"><title>([^<]*)</title>', shown)
    assert sorted(edges) == ["event, best", "raw"], "a link to a track is one to the class that has tracks"
    assert f"{RUNS} objects in {RUNS}" in shown
    assert "event → Event, best → Track" in shown


def test_the_history_shows_commits_and_growth_and_no_markup_of_messages(site: Site) -> None:
    shown = site.page(view="history")
    assert "tags &lt;b&gt;of all&lt;/b&gt;" in shown
    assert 'class="area"' in shown
    assert [commit["message"] for commit in site.ask("commits", search="TAKEN")] == ["all runs taken"]
    changes = site.ask("commits", of=3)
    assert [(it["database"], it["container"], it["kind"]) for it in changes] == [
        ("tags", "", "created"),
        ("tags", "tags", "created"),
    ]
    growth = site.ask("growth")
    assert [point["objects"] for point in growth] == [1770, 1770 + RUNS, 1770 + RUNS]


def test_people_search_and_look_by_keys_and_step_back_in_the_browser(site: Site, tmp_path: Path) -> None:
    with opened(tmp_path / "profile") as tab:
        is_open = "document.querySelector('#details').open"
        link = "document.querySelector('a[data-container=\"run07/raw\"]')"

        def wait_until(condition: str) -> None:
            wait_for(lambda: tab.value(condition))

        tab.open(f"http://127.0.0.1:{site.server.port}/catalogue")
        wait_until("document.querySelectorAll('a[data-container]').length === 50")
        tab.click_on("document.querySelector('#search')")
        for letter in "07":
            tab.press(letter)
        wait_until("document.querySelectorAll('a[data-container]').length === 2")
        assert tab.value("location.search").endswith("search=07")
        tab.value(f"{link}.focus()")
        tab.press("Enter")
        wait_until(is_open)
        assert tab.value("document.querySelector('#details-name').textContent") == "run07/raw"
        tab.press("Escape")
        wait_until(f"!{is_open} && !location.search.includes('container')")
        assert tab.value(f"document.activeElement === {link}"), "whoever reads on by keys is where they were"
        tab.value("history.back()")
        wait_until(is_open)
        tab.value("history.back()")
        wait_until(f"!{is_open}")
        assert tab.value("document.querySelector('#search').value") == "07"
        tab.value("history.forward()")
        wait_until(is_open)
        assert tab.faults() == []


def test_a_client_without_the_right_to_read_sees_nothing(site: Site) -> None:
    with fb.serve(site.federation.path, port=0, address="127.0.0.1", anonymous="nothing") as server:
        for path in ("federations", "containers", "container", "commits", "growth"):
            query = "?database=run07&container=raw" if path == "container" else ""
            address = f"http://127.0.0.1:{server.port}/api/{path}/lhc.fed{query}"
            with (
                pytest.raises(urllib.error.HTTPError) as refused,
                urllib.request.urlopen(address, timeout=30),
            ):
                pass
            with refused.value as answer:
                assert answer.code in (401, 403), path
        assert told(server.port, "/api/federations") == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("containers/none.fed", 404),
        ("container/lhc.fed?database=run07&container=rows", 404),
        ("container/lhc.fed", 400),
        ("commits/lhc.fed?of=99", 404),
        ("containers/lhc.fed?sort=colour", 400),
        (f"containers/lhc.fed?search={'*' * 257}", 400),
    ],
)
def test_wrong_questions_are_refused(site: Site, path: str, code: int) -> None:
    address = f"http://127.0.0.1:{site.server.port}/api/{path}"
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(address, timeout=30):
        pass
    with refused.value as answer:
        assert answer.code == code
        if code == 404:
            assert json.load(answer)["error"]


def test_a_class_is_shown_as_it_was(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        for version, members in enumerate(({"a": fb.int32}, {"a": fb.int32, "b": fb.int32}), start=1):
            shape = fb.persistent(name="Shape", version=version)(
                type("Shape", (), {"__annotations__": members})
            )
            with fed.transaction() as txn:
                txn.database("run1", create=True).container("shapes", shape, create=True, evolve=True)
        with fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
            for csn in (1, 2):
                (shown,) = told(server.port, f"/api/federations/lhc.fed?csn={csn}")["classes"]
                assert shown["definition"]["version"] == csn


def test_a_snapshot_that_vacuum_has_removed_is_not_shown_in_part(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        for number in range(3):
            with fed.transaction() as txn:
                raw = txn.database("run1", create=True).container("raw", Raw, create=True)
                raw.append(Raw(number=number))
        with fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
            # Nor if the server has kept what it read of it.
            assert told(server.port, "/api/containers/lhc.fed?csn=1")["objects"] == 1
            fed.set_retention(keep_commits=1)
            fed.vacuum()
            with pytest.raises(urllib.error.HTTPError) as gone:
                told(server.port, "/api/containers/lhc.fed?csn=1")
            with gone.value as answer:
                assert answer.code == 404
                assert "horizon" in json.load(answer)["error"]
            (change,) = told(server.port, "/api/commits/lhc.fed?of=3")
            assert (change["kind"], change["objects"]) == ("changed", None), "what was before is gone"

"""Objects on the page of the catalogue: times, enumerations and links are shown as what they stand for."""

from __future__ import annotations

import datetime
import enum
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from looking import Looking, looking_into
from test_status_page import told

import femtobarn as fb


class Quality(enum.Enum):
    good = 1
    bad = 2


class Trigger(enum.Flag):
    muon = 1
    jet = 2
    met = 4


@fb.persistent
class SeenRaw:
    number: fb.int32


@fb.persistent
class SeenTrack:
    pt: fb.float32
    raw: fb.link[SeenRaw] | None


@fb.persistent
class SeenEvent:
    at: datetime.datetime
    day: datetime.date
    quality: Quality
    triggers: Trigger
    raw: fb.link[SeenRaw]
    tracks: list[SeenTrack]
    part: fb.element_link[SeenRaw]


AT = datetime.datetime(2027, 3, 1, 12, 30, 5, 250_000, datetime.UTC)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    """Events with links into their own database and into another one."""
    folder = tmp_path_factory.mktemp("objects")
    with fb.create(folder / "lhc.fed") as fed:
        with fed.transaction() as txn:
            raw7 = txn.database("raw7", create=True).container("raw", SeenRaw, create=True)
            run7 = txn.database("run7", create=True)
            own = run7.container("raw", SeenRaw, create=True)
            events = run7.container("events", SeenEvent, create=True)
            for number in range(30):
                theirs = raw7.append(SeenRaw(number=1000 + number))
                ours = own.append(SeenRaw(number=number))
                events.append(
                    SeenEvent(
                        at=AT + datetime.timedelta(seconds=number),
                        day=AT.date(),
                        quality=Quality.bad if number % 2 else Quality.good,
                        triggers=Trigger.muon | Trigger.met if number % 2 else Trigger(0),
                        raw=theirs if number % 3 else None,
                        tracks=[SeenTrack(pt=number, raw=ours), SeenTrack(pt=0, raw=None)],
                        part=(theirs, 5),
                    )
                )
        with looking_into(fed, folder, "run7/events") as page:
            yield page


def cells(looking: Looking, row: int) -> list[str]:
    texts = (
        f"[...document.getElementById('inside-objects').tBodies[0].rows[{row}].cells].map(it => it.innerText)"
    )
    found: list[str] = looking.page.value(texts)
    return found


def test_times_enumerations_and_links_are_shown_with_their_meanings(looking: Looking) -> None:
    looking.shown()
    assert cells(looking, 0)[1:5] == ["2027-03-01 12:30:05.25 UTC", "2027-03-01", "good", "0"]
    assert cells(looking, 1)[1:6] == [
        "2027-03-01 12:30:06.25 UTC",
        "2027-03-01",
        "bad",
        "muon | met",
        "raw7/raw 1",
    ]
    assert cells(looking, 1)[6] == "[{pt: 1, raw: run7/raw 1}, {pt: 0, raw: none}]"
    assert cells(looking, 1)[7] == "raw7/raw 1, element 5"
    assert cells(looking, 0)[5] == "none"


def test_an_axis_of_times_has_times(looking: Looking) -> None:
    shown = looking.shown(field="at")
    assert (
        "2027-03-01 12:30:05.25 UTC to 2027-03-01 12:30:34.25 UTC, mean 2027-03-01 12:30:19.75 UTC" in shown
    )
    ends = "[...document.querySelectorAll('#histogram :is(.start, .end:not(.name))')]"
    texts = looking.page.value(f"{ends}.map(it => it.textContent)")
    assert [text[:19] for text in texts] == ["2027-03-01 12:30:05", "2027-03-01 12:30:34"]


def test_people_follow_a_link_and_step_back(looking: Looking) -> None:
    looking.shown(entry=12)
    page = looking.page
    assert cells(looking, 1)[0] == "13"
    page.click_on("document.getElementById('inside-objects').tBodies[0].rows[1].cells[5].querySelector('a')")
    page.wait_for("document.getElementById('details-name').textContent === 'raw7/raw'")
    page.wait_for(
        "document.getElementById('inside-objects').tBodies[0].rows[0].cells[1]?.innerText === '1013'"
    )
    page.value("history.back()")
    page.wait_for("document.getElementById('details-name').textContent === 'run7/events'")
    page.wait_for("document.getElementById('inside-objects').tBodies[0].rows[1].cells[0]?.innerText === '13'")
    assert page.faults() == []


def test_links_are_looked_up_as_of_a_commit(looking: Looking) -> None:
    port = looking.port
    asked = {"database": "run7", "container": "events", "to": "1.1,0.2,0.9,7.1"}
    found = told(port, f"/api/links/lhc.fed?{urllib.parse.urlencode(asked)}")
    assert found == {"1.1": "raw7/raw", "0.2": "run7/raw"}
    for wrong in ("1", "x.1", "-1.1", ",".join(["0.1"] * 1001)):
        query = urllib.parse.urlencode({**asked, "to": wrong})
        with pytest.raises(urllib.error.HTTPError) as refused:
            told(port, f"/api/links/lhc.fed?{query}")
        with refused.value as answer:
            assert answer.code == 400
            assert json.load(answer)["error"]


def test_the_file_can_be_opened_in_jsroot(looking: Looking) -> None:
    looking.shown()
    address: str = looking.page.value("document.getElementById('jsroot').href")
    parts: dict[str, Any] = urllib.parse.parse_qs(address.partition("?")[2])
    assert address.startswith("https://root.cern/js/latest/?file=http://127.0.0.1:")
    assert parts["item"] == ["events"]
    with urllib.request.urlopen(parts["file"][0], timeout=30) as answer:
        assert answer.read(4) == b"root"

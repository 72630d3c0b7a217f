"""The routes of nopayloaddb over a federation's conditions, request by request."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from nopayloaddb_requests import NO_END, Requests
from server_settings import QUICK_STOP

import femtobarn as fb


@contextmanager
def served(federation: fb.Federation, anonymous: Literal["read", "all"] = "all") -> Iterator[Requests]:
    """The routes of a federation while it is served."""
    with fb.serve(
        federation.path, port=0, address="127.0.0.1", anonymous=anonymous, config=QUICK_STOP
    ) as server:
        [name] = server.exports
        yield Requests(f"http://127.0.0.1:{server.port}/conditions{name}/nopayloaddb/api/cdb_rest")


@pytest.fixture
def ask(fed: fb.Federation) -> Iterator[Requests]:
    """The routes of a served federation with the global tag ``prod`` and the payload type ``Beam``."""
    with served(fed) as requests:
        requests.ok("POST", "gt", {"name": "prod", "status": "unlocked", "author": "me"})
        requests.ok("POST", "pt", {"name": "Beam"})
        yield requests


def test_statuses_are_the_three_of_nopayloaddb(ask: Requests) -> None:
    assert [each["name"] for each in ask.ok("GET", "gtstatus")] == ["unlocked", "locked", "frozen"]
    assert ask.refused("POST", "gtstatus", {"name": "locked"})[0] == 409
    assert ask.refused("POST", "gtstatus", {"name": "testing"}) == (
        400,
        'unknown status "testing" of a global tag; the statuses are unlocked, locked, frozen',
    )


def test_payload_is_found_from_its_beginning_to_its_end(ask: Requests) -> None:
    name = ask.new_list("prod", "Beam")
    inserted = ask.insert(name, "Beam/00/a.dat", (5, 0), (7, 3))
    assert (inserted["payload_list"], inserted["comb_iov"]) == (name, "5.0000000000000000000")
    assert ask.ok("GET", "payloadiovs/?gtName=prod&majorIOV=7&minorIOV=2") == [
        ["Beam", "Beam/00/a.dat", "sum of Beam/00/a.dat", None, 5, 0, 7, 3, None]
    ]
    assert ask.ok("GET", "payload-iovs/query/?gtName=prod&majorIOV=5&minorIOV=0&shape=dict") == [
        {
            "payload_type_name": "Beam",
            "payload_url": "Beam/00/a.dat",
            "checksum": "sum of Beam/00/a.dat",
            "size": None,
            "major_iov": 5,
            "minor_iov": 0,
            "major_iov_end": 7,
            "minor_iov_end": 3,
            "revision": None,
        }
    ]
    for major, minor in ((4, 2**32 - 1), (7, 3), (2**31, 0), (-1, 0)):
        assert ask.valid("prod", major, minor) == {}


def test_late_iov_hides_only_overlapping_parts_of_others(ask: Requests) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "all", (0, 0))
    ask.insert(name, "late", (5, 0), (6, 0))
    found = [ask.valid("prod", run, 1)["Beam"] for run in (4, 5, 6)]
    assert found == [
        ("all", (0, 0), (5, 0)),
        ("late", (5, 0), (6, 0)),
        ("all", (6, 0), (NO_END, NO_END)),
    ]


def test_jobs_of_the_federation_read_the_same(ask: Requests, fed: fb.Federation) -> None:
    ask.insert(ask.new_list("prod", "Beam"), "Beam/00/a.dat", (5, 0), (7, 3))
    found = fed.conditions("prod")["nopayloaddb/Beam"]
    payload = found.at((6, 0))
    assert (payload.name, payload.media_type) == ("Beam/00/a.dat", "message/external-body")
    assert found.at((7, 3)) is None
    with pytest.raises(fb.NotFoundError, match=r"'Beam/00/a\.dat' are not in the federation"):
        fb.payload_bytes(payload)
    with fed.transaction() as txn:
        for path in fed.conditions.tag("prod")["series"].values():
            writer = txn.series(path[1], fb.Payload)
            writer.put(fb.Payload.from_bytes(b"map", name="map.root"), since=(9, 0))
    address = ask.valid("prod", 9, 0)["Beam"][0]
    root = ask.base.removesuffix("/nopayloaddb/api/cdb_rest")
    with urllib.request.urlopen(f"{root}/{address}", timeout=60) as answer:
        assert answer.read() == b"map"


def test_list_belongs_to_one_tag_and_a_clone_changes_alone(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "first", (0, 0))
    ask.ok("POST", "pt", {"name": "Cal"})
    ask.insert(ask.new_list("prod", "Cal"), "cal", (0, 0))
    clone = ask.ok("POST", "cloneGlobalTag/prod/test")
    assert (clone["name"], clone["status"], clone["payload_iov_count"]) == ("test", "unlocked", 2)
    assert ask.ok("GET", "gtPayloadLists/test") == {"Beam": "Beam@test", "Cal": "Cal@test"}

    ask.insert(name, "second", (5, 0))
    assert ask.valid("test", 6, 0)["Beam"][0] == "first"
    ask.insert("Beam@test", "third", (6, 0))
    assert ask.valid("prod", 6, 0)["Beam"][0] == "second"
    assert ask.valid("test", 6, 0)["Beam"][0] == "third"
    assert ask.valid("test", 5, 0) == {
        "Beam": ("first", (0, 0), (6, 0)),
        "Cal": ("cal", (0, 0), (NO_END, NO_END)),
    }
    assert ask.ok("GET", "gtPayloadLists/test") == {"Beam": "Beam_2", "Cal": "Cal@test"}
    assert ask.ok("GET", "payload-lists/by-name/Beam@test")["name"] == "Beam_2"
    status, reason = ask.refused("PUT", "pl_attach", {"payload_list": name, "global_tag": "test"})
    assert (status, reason.partition(";")[0]) == (409, 'payload list "Beam_1" belongs to global tag "prod"')
    ask.ok("PUT", "gt_change_status/test/locked")
    ask.insert("Cal@test", "next", (8, 0))
    assert (ask.valid("test", 9, 0)["Cal"][0], ask.valid("prod", 9, 0)["Cal"][0]) == ("next", "cal")
    assert fed.conditions.tag("test")["state"] == "locked"
    assert fed.conditions.check() == []


def test_locked_tag_accepts_only_iovs_that_hide_no_other(ask: Requests) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "a", (5, 0), (7, 0))
    ask.insert(name, "b", (9, 0))
    ask.ok("PUT", "gt_change_status/prod/locked")
    ask.insert(name, "between", (7, 0), (9, 0))
    ask.insert(name, "c", (10, 0))
    assert [ask.valid("prod", run, 0)["Beam"][0] for run in (6, 8, 9, 10)] == ["a", "between", "b", "c"]
    for start, end in (((6, 0), None), ((6, 0), (8, 0)), ((10, 0), None), ((4, 0), (6, 0))):
        iov = {"payload_url": "x", "checksum": "", "major_iov": start[0], "minor_iov": start[1]}
        if end is not None:
            iov |= {"major_iov_end": end[0], "minor_iov_end": end[1]}
        number = ask.ok("POST", "piov", iov)["id"]
        status, reason = ask.refused("PUT", "piov_attach", {"payload_list": name, "piov_id": number})
        assert status == 403
        assert "the global tag is locked" in reason
    ask.ok("POST", "pt", {"name": "Cal"})
    ask.insert(ask.new_list("prod", "Cal"), "cal", (0, 0))
    assert ask.ok("GET", "globalTag/prod?light=1")["status"] == "locked"
    spare = ask.ok("POST", "pl", {"payload_type": "Cal"})["name"]
    assert ask.refused("PUT", "pl_attach", {"payload_list": spare, "global_tag": "prod"})[0] == 403
    assert ask.refused("DELETE", "deleteGlobalTag/prod")[0] == 403


def test_frozen_tag_never_changes(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "a", (5, 0))
    ask.ok("PUT", "gt_change_status/prod/frozen")
    number = ask.ok("POST", "piov", {"payload_url": "x", "checksum": "", "major_iov": 9, "minor_iov": 0})[
        "id"
    ]
    for method, path, body in (
        ("PUT", "piov_attach", {"payload_list": "Beam@prod", "piov_id": number}),
        ("PUT", "gt_change_status/prod/unlocked", None),
        ("DELETE", "deleteGlobalTag/prod", None),
        ("DELETE", "deletePayloadIOV/prod/Beam/5/0", None),
    ):
        assert ask.refused(method, path, body)[0] == 403
    assert ask.valid("prod", 9, 0)["Beam"][0] == "a"
    assert fed.conditions.tag("prod")["state"] == "frozen"


def test_iovs_lists_types_and_tags_are_deleted_in_this_order(ask: Requests) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "a", (5, 0), (7, 3))
    ask.insert(name, "b", (9, 0))
    assert ask.refused("DELETE", "deletePayloadType/Beam")[0] == 409
    assert ask.refused("DELETE", f"deletePayloadList/{name}")[0] == 409
    assert ask.refused("DELETE", "deletePayloadIOV/prod/Beam/5/0/7/2")[0] == 404
    ask.ok("DELETE", "deletePayloadIOV/prod/Beam/5/0/7/3")
    ask.ok("DELETE", f"payload-iovs/prod/Beam/9/0/{NO_END}/{NO_END}/delete")
    assert ask.valid("prod", 6, 0) == {}
    ask.ok("DELETE", f"deletePayloadList/{name}")
    assert ask.ok("GET", "gtPayloadLists/prod") == {}
    ask.ok("DELETE", "deletePayloadType/Beam")
    assert ask.ok("GET", "pt") == []
    ask.ok("DELETE", "deleteGlobalTag/prod")
    assert ask.ok("GET", "globalTags") == []
    assert ask.refused("DELETE", "deleteGlobalTag/prod")[0] == 404


def test_deleted_tag_takes_its_lists_along_but_not_those_of_its_clones(ask: Requests) -> None:
    ask.insert(ask.new_list("prod", "Beam"), "a", (5, 0))
    ask.ok("POST", "cloneGlobalTag/prod/test")
    ask.ok("DELETE", "global-tags/prod/delete")
    assert ask.valid("test", 6, 0)["Beam"][0] == "a"
    ask.ok("DELETE", "global-tags/test/delete")
    ask.ok("POST", "gt", {"name": "prod", "status": "unlocked"})
    assert ask.ok("GET", "gtPayloadLists/prod") == {}
    assert [each["name"] for each in ask.ok("GET", "pt")] == ["Beam"]


def test_many_iovs_are_one_commit(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    before = fed.snapshot().csn
    iovs = [
        {"payload_url": f"{run}.dat", "major_iov": run, "minor_iov": 0, "payload_list": name}
        for run in range(500)
    ]
    assert ask.ok("POST", "bulk_piov", iovs) is None
    assert fed.snapshot().csn == before + 1
    assert ask.valid("prod", 321, 5)["Beam"] == ("321.dat", (321, 0), (322, 0))
    [tag] = ask.ok("GET", "globalTags")
    assert (tag["payload_lists_count"], tag["payload_iov_count"]) == (1, 500)


def test_lists_come_in_pages_searched_and_sorted(ask: Requests) -> None:
    name = ask.new_list("prod", "Beam")
    for run in range(5):
        ask.insert(name, f"{run}.dat", (run, 0))
    page = ask.ok("GET", "payload-iovs?page=2&page_size=2&sort=major_iov&order=desc")
    assert [row["payload_url"] for row in page["results"]] == ["2.dat", "1.dat"]
    assert (page["count"], page["total_pages"], page["page_size"]) == (5, 3, 2)
    assert ask.ok("GET", "payload-iovs?page=1&search=3.D")["count"] == 1
    assert ask.ok("GET", "payload-iovs?page=1&global_tag=other")["count"] == 0
    assert ask.ok("GET", "global-tags?page=1&status=locked")["count"] == 0
    assert ask.ok("GET", "payload-lists?page=1&payload_type=Beam")["results"][0]["iov_count"] == 5
    assert ask.ok("GET", "payload-types?page=x&page_size=-1")["count"] == 1


def test_series_of_the_federation_are_types_and_their_values_have_addresses(
    ask: Requests, fed: fb.Federation
) -> None:
    form = {"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}
    with fed.transaction() as txn:
        txn.series("tpc/gain", form, create=True, clock="run").put({"value": 1.5}, since=(5, 0))
        txn.series("tpc/hv", form, create=True).put({"value": 1350.0}, since=10**18, until=2 * 10**18)
    fed.conditions.create_tag("all")
    assert [each["name"] for each in ask.ok("GET", "pt")] == ["Beam", "tpc.gain", "tpc.hv"]
    address, *validity = ask.valid("all", 6, 0)["tpc.gain"]
    assert validity == [(5, 0), (NO_END, NO_END)]
    root = ask.base.removesuffix("/nopayloaddb/api/cdb_rest")
    assert Requests(root).ok("GET", address)["values"] == [{"value": 1.5}]
    assert ask.valid("all", 10**18 + 1, 0)["tpc.hv"][1:] == ((10**18, 0), (2 * 10**18, 0))
    number = ask.ok("POST", "piov", {"payload_url": "x", "checksum": "", "major_iov": 9, "minor_iov": 0})[
        "id"
    ]
    status, reason = ask.refused("PUT", "piov_attach", {"payload_list": "tpc.gain@all", "piov_id": number})
    assert status == 400
    assert "has objects of class Gain, not payloads" in reason


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "gt", {"name": "prod", "status": "unlocked"}, 409, 'global tag "prod" exists already'),
        ("POST", "gt", {"name": "a/b", "status": "unlocked"}, 400, 'invalid name "a/b" of a global tag'),
        ("POST", "gt", {"name": "x", "status": "open"}, 400, 'unknown status "open"'),
        ("POST", "gt", {"status": "unlocked"}, 400, "missing field `name`"),
        ("POST", "pt", {"name": "Beam"}, 409, 'payload type "Beam" exists already'),
        ("POST", "pt", {"name": "Beam_3"}, 400, "would be taken for a list"),
        ("POST", "pt", {"name": "Be*m"}, 400, "invalid container name"),
        ("POST", "pl", {"payload_type": "None"}, 404, 'payload type "None" does not exist'),
        (
            "PUT",
            "pl_attach",
            {"payload_list": "x", "global_tag": "prod"},
            404,
            'payload list "x" does not exist',
        ),
        ("PUT", "piov_attach", {"payload_list": "x", "piov_id": 7}, 404, "payload IOV 7 does not exist"),
        ("POST", "piov", {"payload_url": "x", "major_iov": "a", "minor_iov": 0}, 400, "invalid type"),
        (
            "POST",
            "piov",
            {"payload_url": "x", "major_iov": 7, "minor_iov": 0, "major_iov_end": 7, "minor_iov_end": 0},
            400,
            "must end after its beginning",
        ),
        ("POST", "cloneGlobalTag/none/other", None, 404, 'global tag "none" does not exist'),
        ("POST", "cloneGlobalTag/prod/prod", None, 409, 'global tag "prod" exists already'),
        ("PUT", "gt_change_status/none/locked", None, 404, 'global tag "none" does not exist'),
        ("PUT", "gt_change_status/prod/validated", None, 400, 'unknown status "validated"'),
        ("DELETE", "deletePayloadType/None", None, 404, 'payload type "None" does not exist'),
        ("DELETE", "deletePayloadList/None_1", None, 404, 'payload list "None_1" does not exist'),
        ("DELETE", "deletePayloadIOV/prod/Beam/x/0", None, 400, "names no IOV"),
        ("DELETE", "deletePayloadIOV/prod/Beam/7/0", None, 404, "has no list of payload type"),
        (
            "GET",
            "payloadiovs/?gtName=none&majorIOV=1&minorIOV=1",
            None,
            404,
            'global tag "none" does not exist',
        ),
        ("GET", "payloadiovs/?gtName=prod&majorIOV=now&minorIOV=1", None, 400, "majorIOV"),
        ("GET", "payloadiovs/?gtName=prod", None, 400, "majorIOV"),
        ("GET", "globalTag/none", None, 404, 'global tag "none" does not exist'),
        ("GET", "payload-lists/by-name/none", None, 404, 'payload list "none" does not exist'),
        ("GET", "user_settings/CDB_NONE/", None, 404, "there is no setting"),
        ("GET", "timeout", None, 404, "there is no route"),
    ],
)
def test_refused_requests_have_a_status_and_a_reason(
    ask: Requests, method: str, path: str, body: object, status: int, reason: str
) -> None:
    found, detail = ask.refused(method, path, body)
    assert (found, reason in detail) == (status, True), detail


def test_client_that_may_only_read_changes_nothing(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "a", (5, 0))
    before = fed.snapshot().csn
    with served(fed, anonymous="read") as readers:
        assert readers.valid("prod", 6, 0)["Beam"][0] == "a"
        for method, path in (
            ("POST", "pt"),
            ("PUT", "gt_change_status/prod/locked"),
            ("DELETE", "deletePayloadIOV/prod/Beam/5/0"),
        ):
            status, answer = readers(method, path, {"name": "Cal"})
            assert (status, answer) == (403, {"error": "anonymous may not change /lhc.fed"})
    assert fed.snapshot().csn == before


def test_query_sees_commits_of_another_process(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    ask.insert(name, "a", (5, 0))
    assert ask.valid("prod", 7, 0)["Beam"][0] == "a"
    payload = fb.Payload.from_bytes(b"", name="b", media_type="message/external-body")
    with fed.transaction() as txn:
        txn.series("nopayloaddb/Beam_1").put(payload, since=(6, 0), until=(8, 0))
    assert ask.valid("prod", 7, 0)["Beam"] == ("b", (6, 0), (8, 0))
    fed.conditions.change_tag("prod", state="frozen")
    ask.ok("POST", "cloneGlobalTag/prod/open")
    ask.insert("Beam@open", "c", (0, 0))
    assert (ask.valid("prod", 7, 0)["Beam"][0], ask.valid("open", 7, 0)["Beam"][0]) == ("b", "c")


def test_only_tags_whose_snapshot_was_given_up_are_errors(fed: fb.Federation) -> None:
    payload = fb.Payload.from_bytes(b"", name="a", media_type="message/external-body")
    with fed.transaction() as txn:
        txn.series("nopayloaddb/Beam", fb.Payload, create=True, clock="run").put(payload, since=(0, 0))
    csn = fed.snapshot().csn
    fed.conditions.create_tag("old", csn=csn)
    fed.conditions.create_tag("new")
    with fed.transaction() as txn:
        txn.series("nopayloaddb/Beam").put(payload, since=(5, 0))
    fed.untag(f"old@{csn}")
    fed.vacuum(keep_from=fed.snapshot().csn)
    with served(fed) as ask:
        assert [each["name"] for each in ask.ok("GET", "globalTags")] == ["new", "old"]
        assert ask.valid("new", 7, 0)["Beam"][:2] == ("a", (5, 0))
        status, reason = ask.refused("GET", "globalTag/old")
        assert (status, f'snapshot "{csn}, before the horizon' in reason) == (404, True), reason


def test_iov_out_of_the_clock_is_refused_and_nothing_is_stored(ask: Requests, fed: fb.Federation) -> None:
    name = ask.new_list("prod", "Beam")
    before = fed.snapshot().csn
    number = ask.ok("POST", "piov", {"payload_url": "x", "checksum": "", "major_iov": 2**31, "minor_iov": 0})[
        "id"
    ]
    status, reason = ask.refused("PUT", "piov_attach", {"payload_list": name, "piov_id": number})
    assert (status, reason[:16]) == (400, "(2147483648, 0) ")
    assert fed.snapshot().csn == before


def test_import_of_the_routes_gives_the_same_series(
    ask: Requests, fed: fb.Federation, tmp_path: Path
) -> None:
    name = ask.new_list("prod", "Beam")
    folder = tmp_path / "payloads"
    for number, (start, end) in enumerate(
        (((0, 0), None), ((5, 3), (7, 0)), ((6, 0), (6, 9)), ((20, 1), None))
    ):
        file = folder / f"{number}.dat"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"payload {number}")
        ask.insert(name, file.name, start, end, hashlib.md5(file.read_bytes()).hexdigest())
    ask.ok("POST", "cloneGlobalTag/prod/old")
    ask.ok("PUT", "gt_change_status/old/locked")
    with fb.create(tmp_path / "copy.fed") as copy:
        done = fb.import_conditions(copy, ask.base, payloads=str(folder))
        assert done.series == {"nopayloaddb/Beam_1": 6, "nopayloaddb/Beam@old": 6}
        for tag in ("prod", "old"):
            series = [each.conditions(tag)["nopayloaddb/Beam"] for each in (fed, copy)]
            shown = [[(it.since, it.until) for it in each.intervals()] for each in series]
            assert shown[0] == shown[1]
            assert len(shown[0]) == 6
            last = copy.conditions(tag)["nopayloaddb/Beam"].at((21, 0))
            assert (last.payload.name, fb.payload_bytes(last)) == ("3.dat", b"payload 3")
        with served(copy) as other:
            for run, block in ((0, 0), (4, 9), (5, 3), (6, 8), (6, 9), (7, 0), (20, 1)):
                assert other.valid("prod", run, block) == ask.valid("prod", run, block)
            other.insert("Beam@prod", "4.dat", (30, 0))
            assert other.valid("prod", 30, 0)["Beam"][0] == "4.dat"


def test_import_fetches_payloads_that_the_federation_has(
    ask: Requests, fed: fb.Federation, tmp_path: Path
) -> None:
    with fed.transaction() as txn:
        maps = txn.series("tpc/map", fb.Payload, create=True, clock="run")
        maps.put(fb.Payload.from_bytes(b"field map", name="map.root"), since=(1, 0))
    fed.conditions.create_tag("maps", ["tpc/map"])
    with fb.create(tmp_path / "copy.fed") as copy:
        fb.import_conditions(copy, ask.base, only=["maps"])
        found = copy.conditions("maps")["nopayloaddb/tpc_map"].at((2, 0))
        assert fb.payload_bytes(found) == b"field map"


def test_answer_from_memory_is_that_of_the_first_request(ask: Requests, fed: fb.Federation) -> None:
    """Other channels cut the clock into windows, of which the IOV crosses several."""
    count = 6000
    with fed.transaction() as txn:
        whole = fb.Payload.from_bytes(b"", name="whole")
        txn.series("nopayloaddb/Beam").put(whole, since=(5, 0), until=(6 * count, 0))
    for first in range(0, 7 * count, count):
        runs = np.arange(first, first + count)
        columns = {
            name: [value] * count
            for name, value in (
                ("data", b""),
                ("media_type", ""),
                ("name", ""),
                ("details", ""),
                ("sha256", ""),
            )
        }
        with fed.transaction() as txn:
            series = txn.series("nopayloaddb/Beam")
            series.extend(columns, since=(runs, 0 * runs), until=(runs + 1, 0 * runs), channel=1)
    fed.conditions.create_tag("all")
    assert len(fed.conditions("all")["nopayloaddb/Beam"]) == 7 * count + 1
    for run in (5, 3 * count, 6 * count - 1, 6 * count, 4):
        answers = [ask.ok("GET", f"payloadiovs/?gtName=all&majorIOV={run}&minorIOV=0") for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        assert [row[4:8] for row in answers[0]] == ([[5, 0, 6 * count, 0]] if 5 <= run < 6 * count else [])
    ask.insert("Beam@all", "new", (3 * count, 0), (3 * count + 1, 0))
    assert ask.valid("all", 3 * count, 0)["Beam"][0] == "new"

"""Conditions over HTTP: heads, pages that never change, payloads, and what caches keep of them."""

from __future__ import annotations

import gzip
import importlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conditions_site import Gain, Site, served_conditions
from waiting import free_port

import femtobarn as fb

SQUID = shutil.which("squid", path="/usr/sbin:/usr/bin")
jsonschema: Any = importlib.import_module("jsonschema")
MANY = 100_000
"""Conditions of a series with several windows."""


@pytest.fixture
def site(fed: fb.Federation) -> Iterator[Site]:
    with served_conditions(fed) as served:
        yield served


def grown(site: Site) -> None:
    """Add a series that is read in several windows."""
    with site.federation.transaction() as txn:
        beam = txn.series("beam/current", Gain, create=True)
        since = np.arange(MANY) * 10
        values = {"value": np.arange(MANY) * 0.5, "raw": [b""] * MANY}
        beam.extend(values, since=since, until=since + 7)


# ---- what is answered


def test_a_page_of_more_than_64_mib_is_refused(site: Site) -> None:
    """Pages were made in memory whatever they unpack to: here 200 MB of JSON of a file of some kilobytes."""
    with site.federation.transaction() as txn:
        large = txn.series("tpc/large", Gain, create=True)
        values = {"value": np.zeros(100), "raw": [bytes(1_000_000)] * 100}
        large.extend(values, since=np.arange(100), until=np.arange(1, 101))
    version = site.version("tpc/large")
    refused = site.ask(f"conditions/{version}/0-99/tpc/large")
    assert refused.code == 400
    assert "more than 64 MiB; ask for fewer at once" in refused.json["error"]
    parts = [site.ask(f"conditions/{version}/{first}-{first + 24}/tpc/large").json for first in (0, 75)]
    assert [len(part["values"]) for part in parts] == [25, 25]
    assert all(value["raw"] == "00" * 1_000_000 for part in parts for value in part["values"])
    assert (
        site.ask(f"conditions/{version}/0-99/tpc/large?fields=value").json["values"] == [{"value": 0.0}] * 100
    )


def test_answers_are_those_of_a_job(site: Site) -> None:
    grown(site)
    job = site.federation.conditions()
    moments = [-5, 0, 39, 40, 59, 60, 99, 100, 333_333, MANY * 10 - 4, MANY * 10]
    for series in ("tpc/gain", "beam/current"):
        for moment in moments:
            expected = job[series].at(moment)
            found = site.at(series, moment)
            if expected is None:
                assert found is None
            elif np.isnan(expected.value):
                assert found == {"value": "NaN", "raw": ""}
            else:
                assert found == {"value": expected.value, "raw": bytes(expected.raw).hex()}
    assert site.at("tpc/gain", 50, channel=7)["value"] == 3.0
    assert site.at("tpc/gain", 50, channel=8) is None
    assert site.at("run/state", 7 << 32 | 5)["value"] == 2.0
    version = site.version("beam/current")
    assert len(site.ask(f"series/{version}/beam/current").json["windows"]) > 1


def test_every_answer_matches_its_description(site: Site) -> None:
    description = site.ask("openapi.json").json
    site.federation.conditions.create_tag("prod", message="first")
    gain, map_ = (site.version(name) for name in ("tpc/gain", "tpc/map"))
    asked = {
        "/tags": "tags",
        "/heads": "heads",
        "/heads/{tag}": "heads/prod",
        "/series/{version}/{path}": f"series/{gain}/tpc/gain",
        "/windows/{version}/{number}/{path}": f"windows/{gain}/0/tpc/gain?digests=true",
        "/conditions/{version}/{entries}/{path}": f"conditions/{gain}/0-2/tpc/gain?fields=value",
        "/payloads/{version}/{entry}/{path}": f"payloads/{map_}/0/tpc/map",
    }
    assert set(asked) == set(description["paths"])
    for path, address in asked.items():
        answer = site.ask(address)
        assert answer.code == 200, address
        expected = description["paths"][path]["get"]["responses"]["200"]
        if "$ref" in expected:
            expected = description["components"]["responses"][expected["$ref"].rsplit("/", 1)[1]]
        if schema := expected["content"].get("application/json", {}).get("schema"):
            jsonschema.validate(answer.json, {**schema, "components": description["components"]})


def test_a_federation_without_commits_has_a_head(fed: fb.Federation) -> None:
    with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
        head = Site(fed, server).ask("heads").json
    assert (head["csn"], head["series"]) == (0, [])


def test_chosen_series_and_fields(site: Site) -> None:
    assert [it["series"] for it in site.ask("heads?series=tpc/").json["series"]] == ["tpc/gain", "tpc/map"]
    assert [it["series"] for it in site.ask("heads?series=tpc/map,run/state").json["series"]] == [
        "run/state",
        "tpc/map",
    ]
    version = site.version("tpc/gain")
    page = site.ask(f"conditions/{version}/0-9/tpc/gain?fields=value").json
    assert page == {"first": 0, "last": 2, "values": [{"value": 1.5}, {"value": "NaN"}, {"value": 3.0}]}


def test_a_branch_is_read_before_its_base(site: Site) -> None:
    site.federation.conditions.create_tag("prod")
    site.federation.conditions.create_tag("mc", copy_of="prod", branch=True)
    with site.federation.transaction() as txn:
        txn.series("tpc/gain", branch="mc").put(Gain(value=7.0, raw=b""), since=50, until=55)
        branched = txn.series("tpc/map", branch="mc")
        branched.put(fb.Payload.from_bytes(b"branched"), since=0, until=10)
    expected = {40: "NaN", 50: 7.0, 54: 7.0, 55: "NaN", 99: 1.5}
    assert {t: site.at("tpc/gain", t, head="heads/mc")["value"] for t in expected} == expected
    assert site.at("tpc/gain", 50, head="heads/prod")["value"] == "NaN"
    (head,) = site.ask("heads/mc?series=tpc/map").json["series"]
    assert site.ask(f"payloads/{head['version']}/2/{head['path']}").body == b"branched"
    assert len(site.ask(f"payloads/{head['version']}/0/{head['path']}").body) == 256


def test_a_head_counts_a_condition_that_a_branch_replaced_once(site: Site) -> None:
    site.federation.conditions.create_tag("prod", state="frozen")
    site.federation.conditions.create_tag("mc", copy_of="prod", branch=True)
    before = {each["series"]: each["conditions"] for each in site.ask("heads/mc").json["series"]}
    with site.federation.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc")
        branch.correct({"value": 2.5}, at=10)
        branch.correct({"value": 3.5}, at=10)
        branch.put(Gain(value=7.0, raw=b""), since=50, until=55)
    after = {each["series"]: each["conditions"] for each in site.ask("heads/mc").json["series"]}
    assert after == before | {"tpc/gain": before["tpc/gain"] + 1}


def test_digests_differ_exactly_when_values_differ(site: Site) -> None:
    """A corrected condition keeps its entry, and the same values may be at another one."""

    def digests(series: str) -> list[int]:
        intervals = site.ask(f"windows/{site.version(series)}/0/{series}?digests=true").json["intervals"]
        assert len(intervals["digest"]) == len(intervals["entry"])
        return list(intervals["digest"])

    before, maps = digests("tpc/gain"), digests("tpc/map")
    assert before[0] == before[2] != before[1], "a newer condition splits the first"
    with site.federation.transaction() as txn:
        gains = txn.series("tpc/gain")
        gains.correct(Gain(value=8.0, raw=b""), at=50)
        gains.put(Gain(value=1.5, raw=b"\x01\xff"), since=0, until=40)
        txn.series("tpc/map").correct(fb.Payload.from_bytes(b"other"), at=60)
    after = digests("tpc/gain")
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True, True]
    assert [one == other for one, other in zip(maps, digests("tpc/map"), strict=True)] == [True, False]


def test_deleted_conditions_are_null(site: Site) -> None:
    with site.federation.transaction() as txn:
        txn.database("tpc").container("gain").delete(1)
    version = site.version("tpc/gain")
    assert site.ask(f"conditions/{version}/0-2/tpc/gain").json["values"][1] is None
    assert site.at("tpc/gain", 50)["value"] == 1.5


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("heads/nothing", 404, "global tag"),
        ("heads?csn=999", 404, "commit 999"),
        ("series/1-000000000000/tpc/gain", 404, "no version"),
        ("series/99-000000000000/tpc/gain", 404, ""),
        ("series/x/tpc/gain", 404, "no version"),
        ("series/{version}/tpc/nothing", 404, "no version"),
        ("series/{version}/conditions", 404, "no version"),
        ("windows/{version}/1/tpc/gain", 404, "no window 1"),
        ("conditions/{version}/3/tpc/gain", 404, "no entries 3"),
        ("conditions/{version}/2-1/tpc/gain", 404, "no entries 2-1"),
        ("conditions/{version}/0-99999999/tpc/gain", 400, "too many"),
        ("conditions/{version}/a-b/tpc/gain", 400, "range of entries"),
        ("conditions/{version}/0-18446744073709551615/tpc/gain", 400, "too many"),
        ("conditions/{version}/0/tpc/gain?fields=nothing", 404, "nothing"),
        ("payloads/{version}/0/tpc/gain", 404, "no field data"),
        ("payloads/{version}/9/tpc/map", 404, ""),
    ],
)
def test_errors_have_a_status_and_the_reason(site: Site, path: str, code: int, text: str) -> None:
    answer = site.ask(path.format(version=site.version("tpc/gain")))
    assert answer.code == code, answer.body
    assert text in answer.json["error"]
    assert answer.headers["cache-control"] == "no-store"


# ---- payloads


def test_payloads_come_whole_and_in_ranges(site: Site) -> None:
    path = f"payloads/{site.version('tpc/map')}/0/tpc/map"
    whole = site.ask(path)
    assert whole.body == bytes(range(256))
    assert whole.headers["content-type"] == "application/octet-stream"
    assert 'filename="map-1.bin"' in whole.headers["content-disposition"]
    part = site.ask(path, {"Range": "bytes=10-19"})
    assert (part.code, part.body) == (206, bytes(range(10, 20)))
    assert part.headers["content-range"] == "bytes 10-19/256"
    beyond = site.ask(path, {"Range": "bytes=256-"})
    assert (beyond.code, beyond.headers["content-range"]) == (416, "bytes */256")


def test_a_stored_page_runs_nothing_in_a_browser(site: Site) -> None:
    page = site.ask(f"payloads/{site.version('tpc/map')}/1/tpc/map")
    assert page.headers["content-type"] == "text/html"
    assert page.headers["content-security-policy"] == "sandbox"
    assert page.headers["x-content-type-options"] == "nosniff"


def test_damaged_payload_is_not_sent(site: Site) -> None:
    with site.federation.transaction() as txn:
        bad = fb.Payload.from_bytes(b"good")
        bad.data = b"bad!"
        txn.series("tpc/map").put(bad, since=70)
    answer = site.ask(f"payloads/{site.version('tpc/map')}/2/tpc/map")
    assert answer.code == 500
    assert "damaged" in answer.json["error"]


# ---- what may be kept


def test_heads_live_short_and_pages_for_ever(site: Site) -> None:
    head = site.ask("heads")
    assert head.headers["cache-control"] == "public, max-age=10"
    csn = head.json["resolved_at"]
    pages = [f"heads?csn={csn}", f"series/{site.version('tpc/gain')}/tpc/gain"]
    for path in pages:
        answer = site.ask(path)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        again = site.ask(path, {"If-None-Match": answer.headers["etag"]})
        assert (again.code, again.body) == (304, b"")
    assert site.ask("heads", {"If-None-Match": head.headers["etag"]}).code == 304
    with site.federation.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0, raw=b""), since=50, until=55)
    later = site.ask("heads", {"If-None-Match": head.headers["etag"]})
    assert later.code == 200
    assert site.at("tpc/gain", 50, head=f"heads?csn={csn}")["value"] == "NaN"
    assert site.at("tpc/gain", 50)["value"] == 9.0
    assert site.version("tpc/map", f"heads?csn={csn}") == site.version("tpc/map")


def test_bodies_are_compressed_as_the_client_takes_them(site: Site) -> None:
    grown(site)
    path = f"windows/{site.version('beam/current')}/1/beam/current"
    plain = site.ask(path)
    assert "content-encoding" not in plain.headers
    packed = site.ask(path, {"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    zstd = site.ask(path, {"Accept-Encoding": "gzip, zstd"})
    assert zstd.headers["content-encoding"] == "zstd"
    assert len(zstd.body) < len(plain.body) / 4
    refused = site.ask(path, {"Accept-Encoding": "zstd;q=0, gzip;q=0"})
    assert "content-encoding" not in refused.headers
    tags = {answer.headers["etag"] for answer in (plain, packed, zstd)}
    assert len(tags) == 3
    assert {answer.headers["vary"] for answer in (plain, packed, zstd)} == {"accept-encoding"}


def test_versions_outlive_later_commits_as_long_as_a_tag_keeps_them(site: Site) -> None:
    gain, map_ = site.version("tpc/gain"), site.version("tpc/map")
    site.federation.conditions.create_tag("prod")
    with site.federation.transaction() as txn:
        txn.series("run/state").put(Gain(value=0.0, raw=b""), since=(9, 0))
    site.federation.conditions.change_tag("prod", state="frozen")
    with site.federation.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0, raw=b""), since=0)
    site.federation.set_retention(keep_commits=1)
    site.federation.vacuum()
    # Nothing of the versions was asked for before, so the server finds them by the tags.
    assert site.ask(f"series/{gain}/tpc/gain").json["entries"] == 3
    assert site.ask(f"series/{map_}/tpc/map").json["entries"] == 2
    assert site.version("tpc/gain", "heads/prod") == gain


def test_another_history_has_other_versions(site: Site, tmp_path: Path) -> None:
    """A copy of a federation that went on by itself has the same commit numbers, and other versions."""
    site.federation.backup(tmp_path / "copy")
    folder = tmp_path / "fork" / "lhc.fed"
    with fb.restore(tmp_path / "copy", folder) as other, fb.serve(folder, port=0) as server:
        fork = Site(other, server)
        assert fork.version("tpc/gain") == site.version("tpc/gain")
        for federation in (site.federation, other):
            with federation.transaction() as txn:
                txn.series("tpc/gain").put(Gain(value=9.0, raw=b""), since=0)
        heads = [it.ask("heads?series=tpc/gain").json for it in (site, fork)]
        assert heads[0]["csn"] == heads[1]["csn"]
        assert fork.version("tpc/gain") != site.version("tpc/gain")
        assert fork.ask(f"series/{site.version('tpc/gain')}/tpc/gain").code == 404


def test_many_ask_for_the_same_page_at_once(site: Site) -> None:
    grown(site)
    path = f"windows/{site.version('beam/current')}/1/beam/current"
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: site.ask(path), range(200)))
    assert {answer.code for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1


def test_squid_answers_the_second_job(site: Site, tmp_path: Path) -> None:
    if SQUID is None:
        pytest.skip("squid is not installed")
    with Squid(tmp_path) as squid:
        gain, map_ = site.version("tpc/gain"), site.version("tpc/map")
        pages = [
            f"series/{gain}/tpc/gain",
            f"windows/{gain}/0/tpc/gain",
            f"conditions/{gain}/0-1023/tpc/gain",
            f"payloads/{map_}/0/tpc/map",
        ]
        direct = [site.ask(path).body for path in pages]
        assert [site.ask(path, proxy=squid.port).body for path in pages] == direct
        second = [site.ask(path, proxy=squid.port) for path in pages]
        assert [answer.body for answer in second] == direct
        assert all(answer.headers["x-cache"].startswith("HIT") for answer in second)
        site.server.stop()
        assert [site.ask(path, proxy=squid.port).body for path in pages] == direct


class Squid:
    """A proxy with a cache in memory."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "squid.conf"
        self._config.write_text(
            f"http_port 127.0.0.1:{self.port}\n"
            "http_access allow localhost\nhttp_access deny all\n"
            "cache_mem 64 MB\nmaximum_object_size_in_memory 8 MB\n"
            "pid_filename none\naccess_log none\ncache_log /dev/null\nnetdb_filename none\n"
        )

    def __enter__(self) -> Squid:
        assert SQUID is not None
        self._process = subprocess.Popen(
            [SQUID, "-N", "-f", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, "squid has ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert time.monotonic() < until, "squid does not listen"
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=60)


# ---- rights


def test_rights_are_those_of_the_federation(fed: fb.Federation) -> None:
    with fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="nothing") as server:
        answer = Site(fed, server).ask("heads")
        assert answer.code == 401
        assert answer.json["error"]

"""Imports of other conditions databases, compared with the rule of each."""

from __future__ import annotations

import json
import random
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condition_sources import (
    CMS_TAGS,
    CMS_TIMES,
    CrestAnswers,
    belle2_answer,
    belle2_file,
    cms_answer,
    cms_file,
    serving,
)

import femtobarn as fb
from femtobarn._conditions_exchange.rest import bytes_at


def key_at(job: fb.Job, path: str, moment: Any) -> str | None:
    """The hash in the source of what is valid, whose bytes are checked as well."""
    found = job[path].at(np.int64(moment) if isinstance(moment, int) else moment)
    if found is None:
        return None
    assert fb.payload_bytes(found)
    key: str = found.source_hash
    return key


# ---- CMS


def cms_moment(time_type: str, time: int) -> int:
    """The moment of our clock, computed apart from the library."""
    if time_type == "Run":
        return time << 32
    return time if time_type == "Lumi" else (time >> 32) * 10**9 + (time & 0xFFFFFFFF)


@pytest.mark.parametrize("snapshot", [None, "2025-01-03 00:00:00"])
def test_imported_cms_tags_answer_like_cms(fed: fb.Federation, tmp_path: Path, snapshot: str | None) -> None:
    connection = cms_file(tmp_path / "cond.db", 3)
    if snapshot:
        connection.execute("UPDATE GLOBAL_TAG SET SNAPSHOT_TIME = ?", (snapshot,))
        connection.commit()
        with pytest.raises(fb.InvalidError, match=r"45 conditions of its tags were inserted between"):
            fb.import_conditions(fed, str(tmp_path / "cond.db"))
    calls: list[tuple[int, int]] = []
    done = fb.import_conditions(
        fed, str(tmp_path / "cond.db"), snapshot=snapshot, progress=lambda *call: calls.append(call)
    )
    assert calls[-1] == (sum(done.series.values()),) * 2
    assert len(fed["cms/payloads"]) == 6
    job, by_record = fed.conditions(), fed.conditions("140X_v1")
    assert by_record.global_tag is not None
    assert (by_record.global_tag["state"], list(by_record)) == (
        "locked",
        ["cms/AlignmentRcd", "cms/BeamSpotRcd", "cms/LaserRcd@laser"],
    )
    for tag, time_type in CMS_TAGS.items():
        path = "cms/" + tag.replace(".", "_")
        record = f"cms/{tag.partition('_')[0]}Rcd" + ("@laser" if "Laser" in tag else "")
        for step in range(-1, 102):
            time = CMS_TIMES[time_type](step)
            wanted = cms_answer(connection, tag, time, snapshot or "9999")
            assert key_at(job, path, cms_moment(time_type, time)) == wanted
            assert key_at(by_record, record, cms_moment(time_type, time)) == wanted
    assert job["cms/Laser_v7"].at(2**62).payload.name.startswith("Class")
    assert json.loads(job["cms/Laser_v7"].at(2**62).payload.details) == {"architecture": "x"}


@pytest.mark.parametrize(
    ("damage", "error", "text"),
    [
        ("UPDATE PAYLOAD SET DATA = x'00' WHERE rowid = 2", fb.CorruptError, "is damaged: its SHA-1 is"),
        ("DELETE FROM PAYLOAD WHERE rowid = 2", fb.CorruptError, r"row \d+ of IOV.* is not in PAYLOAD"),
        ("UPDATE IOV SET SINCE = 'x' WHERE rowid = 5", fb.CorruptError, "row 5 of IOV.*not an integer"),
        ("UPDATE IOV SET SINCE = 1 << 33 WHERE rowid = 50", fb.CorruptError, r"row 50 .*out of range"),
        ("UPDATE TAG SET TIME_TYPE = 'Hash'", fb.InvalidError, "has time type 'Hash'"),
        ("DROP TABLE IOV", fb.InvalidError, "it has no table IOV"),
        ("ALTER TABLE TAG RENAME TIME_TYPE TO KIND", fb.InvalidError, "table TAG has no column TIME_TYPE"),
        ("UPDATE GLOBAL_TAG_MAP SET TAG_NAME = 'gone'", fb.CorruptError, "has a tag gone, which is not"),
    ],
)
def test_damaged_cms_file_is_refused_and_nothing_is_imported(
    fed: fb.Federation, tmp_path: Path, damage: str, error: type[Exception], text: str
) -> None:
    with cms_file(tmp_path / "cond.db", 3) as connection:
        connection.execute(damage)
    before = fed.snapshot().csn
    with pytest.raises(error, match=text):
        fb.import_conditions(fed, str(tmp_path / "cond.db"))
    assert fed.snapshot().csn == before


def test_second_import_is_refused_unless_it_replaces_the_first(fed: fb.Federation, tmp_path: Path) -> None:
    source = str(tmp_path / "cond.db")
    connection = cms_file(tmp_path / "cond.db", 3)
    first = fb.import_conditions(fed, source)
    with pytest.raises(fb.ExistsError, match=r"was imported already: \d+ conditions are in cms/Align"):
        fb.import_conditions(fed, source)
    time = CMS_TIMES["Lumi"](50)
    (key,) = connection.execute("SELECT HASH FROM PAYLOAD WHERE rowid = 3").fetchone()
    row = ("BeamSpot_v1.2", time, key, "2025-01-09 00:00:00")
    connection.execute("DELETE FROM IOV WHERE TAG_NAME = 'BeamSpot_v1.2' AND SINCE >= ?", (time,))
    connection.execute("INSERT INTO IOV VALUES (?, ?, ?, ?)", row)
    connection.commit()
    fb.import_conditions(fed, source, again=True)
    assert len(fed["cms/payloads"]) == 6
    job = fed.conditions("140X_v1")
    for step in range(40, 60):
        moment = CMS_TIMES["Lumi"](step)
        assert key_at(job, "cms/BeamSpotRcd", moment) == cms_answer(connection, "BeamSpot_v1.2", moment)
    path = "cms/BeamSpot_v1_2"
    assert len(fed.conditions(csn=first.csn)[path]) == first.series[path]
    (tmp_path / "cond.db").rename(tmp_path / "moved.db")
    moved = str(tmp_path / "moved.db")
    with pytest.raises(fb.ExistsError, match=r"was imported from .* of .*cond\.db; import into another"):
        fb.import_conditions(fed, moved, again=True)
    done = fb.import_conditions(fed, moved, database="other", only="Laser_v7")
    assert list(done.series) == ["other/Laser_v7"]
    with pytest.raises(fb.NotFoundError, match="has no tag 'Laser_v8'"):
        fb.import_conditions(fed, moved, only=["Laser_v8"])


# ---- Belle II


def test_belle2_gives_the_highest_revision_that_is_valid(fed: fb.Federation, tmp_path: Path) -> None:
    connection = belle2_file(tmp_path / "b2", 5)
    source = str(tmp_path / "b2" / "metadata.sqlite")
    done = fb.import_conditions(fed, source)
    assert done.global_tags == ["main_0", "main_1"]
    chance = random.Random(1)
    for tag, state in (("main_0", "frozen"), ("main_1", "open")):
        job = fed.conditions(tag)
        assert job.global_tag is not None
        assert (job.global_tag["state"], sorted(job)) == (state, ["belle2/BeamSpot", "belle2/KLMAlignment"])
        for _ in range(300):
            moment = chance.randrange(9), chance.randrange(52)
            for path in job:
                wanted = belle2_answer(connection, tag, path.partition("/")[2], *moment)
                assert key_at(job, path, moment) == wanted
    again = fb.import_conditions(fed, source, again=True)
    assert (again.global_tags, again.kept) == (["main_1"], ["main_0"])


def test_damaged_belle2_database_is_refused(fed: fb.Federation, tmp_path: Path) -> None:
    connection = belle2_file(tmp_path / "b2", 5)
    source = str(tmp_path / "b2" / "metadata.sqlite")
    file = tmp_path / "b2" / "dbstore_BeamSpot_rev_3.root"
    data = file.read_bytes()
    file.write_bytes(b"damaged")
    with pytest.raises(fb.CorruptError, match=r"dbstore_BeamSpot_rev_3\.root is damaged: its MD5 is"):
        fb.import_conditions(fed, source)
    file.unlink()
    with pytest.raises(fb.NotFoundError, match="no file of payload BeamSpot revision 3 in"):
        fb.import_conditions(fed, source)
    file.write_bytes(data)
    connection.execute("INSERT INTO iovs VALUES (0, 3, 5, 7, 5, 6)")
    connection.commit()
    with pytest.raises(fb.CorruptError, match=r"BeamSpot revision 3 .*\(5, 7, 5, 6\): it ends before it"):
        fb.import_conditions(fed, source)
    connection.execute("PRAGMA user_version = 2")
    with pytest.raises(fb.InvalidError, match="not a local database of Belle II with schema 1"):
        fb.import_conditions(fed, source)


# ---- servers


@pytest.fixture
def recorded() -> dict[str, Any]:
    """Answers of nopayloaddb's own server at the commit that they name, and payloads by their addresses."""
    file = Path(__file__).with_name("nopayloaddb_answers.json")
    answers: dict[str, Any] = json.loads(file.read_text())
    return answers


def test_imported_nopayloaddb_tags_answer_like_their_server(
    fed: fb.Federation, tmp_path: Path, recorded: dict[str, Any]
) -> None:
    for url, text in recorded["payloads"].items():
        (tmp_path / url).parent.mkdir(exist_ok=True)
        (tmp_path / url).write_text(text)
    with serving(lambda path, _: recorded.get(path.removeprefix("/api/cdb_rest/"))) as server:
        address = f"{server}/api/cdb_rest"
        with pytest.raises(fb.InvalidError, match="does not say where payloads such as"):
            fb.import_conditions(fed, address)
        fb.import_conditions(fed, address, payloads=str(tmp_path))
        next(tmp_path.glob("*/*.dat")).write_text("damaged")
        with pytest.raises(fb.CorruptError, match=r"\.dat is damaged: its MD5 is"):
            fb.import_conditions(fed, address, payloads=str(tmp_path), database="other", again=True)
    job = fed.conditions("G4")
    assert job.global_tag is not None
    assert job.global_tag["state"] == "locked"
    for major, minor, rows in recorded["payloadiovs"]:
        # The server answers with payloads after their ends too; its clients ignore them.
        wanted = {name: checksum for name, checksum, *end in rows if [major, minor] < end}
        found = {path.partition("/")[2]: key_at(job, path, (major, minor)) for path in job}
        assert {name: key for name, key in found.items() if key} == wanted


def test_nopayloaddb_validity_contains_its_end_if_the_server_is_discrete(
    fed: fb.Federation, tmp_path: Path, recorded: dict[str, Any]
) -> None:
    payloads = recorded["globalTag/G4"]["payload_lists"][0]
    iov = payloads["payload_iov"][0]
    iov |= {"major_iov": 1, "minor_iov": 5, "major_iov_end": 1, "minor_iov_end": 7}
    payloads["payload_iov"] = [iov]
    recorded["globalTag/G4"]["payload_lists"] = [payloads]
    recorded["user_settings/CDB_IOV_MODE/"] = {"CDB_IOV_MODE": "discrete"}
    recorded["user_settings/CDB_PAYLOAD_BASE_URL/"] = {"CDB_PAYLOAD_BASE_URL": str(tmp_path)}
    (tmp_path / iov["payload_url"]).parent.mkdir()
    (tmp_path / iov["payload_url"]).write_text(recorded["payloads"][iov["payload_url"]])
    with serving(lambda path, _: recorded.get(path.removeprefix("/api/cdb_rest/"))) as server:
        address = f"{server}/api/cdb_rest"
        fb.import_conditions(fed, address)
        fb.import_conditions(fed, address, end="exclusive", database="b", again=True)
        iov["minor_iov_end"] = 2
        with pytest.raises(fb.CorruptError, match=r"IOV \d+ of payload list Beam2_4: it ends before"):
            fb.import_conditions(fed, address, database="c", again=True)
        iov["payload_url"], iov["minor_iov_end"] = "../secret.dat", 7
        with pytest.raises(fb.CorruptError, match="leads out of its folder"):
            fb.import_conditions(fed, address, database="c", again=True)
        iov["major_iov"], iov["major_iov_end"] = 10**18, 2**63 - 1
        with pytest.raises(fb.InvalidError, match="too large for a run"):
            fb.import_conditions(fed, address, database="c", again=True)
    job = fed.conditions()
    found = [job["nopayloaddb/Beam2_4"].at((1, block)) is not None for block in range(4, 9)]
    assert found == [False, True, True, True, False]
    assert job["b/Beam2_4"].at((1, 7)) is None


def test_imported_crest_tags_answer_like_crest(fed: fb.Federation) -> None:
    crest = CrestAnswers(2)
    with serving(crest) as address:
        with pytest.raises(fb.InvalidError, match=r"say what http.* serves"):
            fb.import_conditions(fed, f"{address}/api")
        fb.import_conditions(fed, f"{address}/api", format="crest")
        crest.payloads[next(iter(crest.payloads))] = b"damaged"
        with pytest.raises(fb.CorruptError, match="is damaged: its SHA256 is"):
            fb.import_conditions(fed, f"{address}/api", format="crest", only=["DCS"], database="other")
    job = fed.conditions("CREST-RUN3")
    for tag, unit in (("MDT-T0-01", 2**32), ("DCS", 10**9)):
        for step in range(-1, 102):
            moment = step * unit + 3
            assert key_at(job, f"crest/_{tag}", moment) == crest.answer(tag, moment)
    with pytest.raises(fb.UnavailableError, match="does not answer"):
        fb.import_conditions(fed, "http://127.0.0.1:9/api/cdb_rest")


# ---- answers and files that take too much

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer_once(listener: socket.socket, sent: bytes) -> None:
    """Answer the next request with these bytes, and close the connection."""
    client, _ = listener.accept()
    with client:
        client.recv(4096)
        client.sendall(sent)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"[" * 100_000, "is not JSON"),
        (bytes(65 << 20), "more than 64 MiB"),
        (b"\xff\xfe", "is not JSON"),
    ],
    ids=["deep", "large", "no text"],
)
def test_answers_that_take_too_much_are_refused(fed: fb.Federation, answer: bytes, why: str) -> None:
    """Answers were read whatever they had, and deep ones ended the program with a RecursionError."""
    with serving(lambda *_: answer) as address, pytest.raises(fb.CorruptError, match=why):
        fb.import_conditions(fed, f"{address}/api", format="crest")


@pytest.mark.parametrize(
    ("head", "error", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", fb.CorruptError, "more than 64 MiB"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]",
            fb.UnavailableError,
            r"^http\S+ broke off after 2 of 100",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n[", fb.CorruptError, "is not JSON"),
        (CHUNKED + b"x\r\n", fb.UnavailableError, "/api/.* broke off before the last chunk"),
        (CHUNKED + b"9\r\n[]", fb.UnavailableError, "broke off before the last chunk"),
        (b"SSH-2.0-x\r\n", fb.CorruptError, "as HTTP does"),
        (b"", fb.UnavailableError, "does not answer: Remote end closed connection"),
    ],
)
def test_answers_that_are_none_of_http_are_refused(
    fed: fb.Federation, head: bytes, error: type[Exception], why: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once, args=(listener, head))
        thread.start()
        with pytest.raises(error, match=why):
            fb.import_conditions(fed, f"http://127.0.0.1:{listener.getsockname()[1]}/api", format="crest")
        thread.join()


def test_small_payloads_take_little_memory(tmp_path: Path) -> None:
    """Memory for the largest payload, 1 GiB, was taken first, which fails where ``ulimit -v`` is less."""
    (tmp_path / "payload").write_bytes(b"small")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_once, args=(listener, b"HTTP/1.1 200 OK\r\n\r\nsmall"))
        thread.start()
        tracemalloc.start()
        try:
            for address in (tmp_path / "payload", f"http://127.0.0.1:{listener.getsockname()[1]}/"):
                assert bytes_at(str(address)) == b"small"
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()
        thread.join()


@pytest.mark.parametrize(
    "line",
    [
        '{"class": 7, "series": "a/b"}',
        '{"class": {"fields": 7}, "series": "a/b"}',
        '{"class": {"name": "C", "fields": [{"name": "x", "type": {"list": 7}}]}, "series": "a/b"}',
        '{"since": {}, "value": 1}',
        '{"since": [], "value": 1}',
        '{"since": [1, 2, 3], "value": 1}',
        '{"since": 1e400, "value": 1}',
        '{"since": 1, "channel": "' + "1" * 5000 + '", "value": 1}',
        '{"since": 1, "channel": 1' + "0" * 30 + ', "value": 1}',
        '{"since": 1, "value": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"since": 1, "value": ' + "[" * 900 + "]" * 900 + "}",
        '{"since": 1, "value": 1' + "0" * 30 + "}",
        '{"class": {"name": "LinkedPayload", "fields": []}, "series": "a/b"}\n'
        '{"since": 1, "payload": {"data": 7, "sha256": "x"}}',
        '{"since": 1, "payload": {"data": "", "sha256": 7}}',
        '{"since": 1, "": 1}',
    ],
)
def test_lines_of_wrong_kinds_are_refused(fed: fb.Federation, tmp_path: Path, line: str) -> None:
    """Some ended with an error of Python, such as a TypeError, that does not name the line."""
    (tmp_path / "rows.jsonl").write_text(line + "\n")
    with pytest.raises(fb.FemtobarnError):
        fb.import_conditions(fed, str(tmp_path / "rows.jsonl"), series="tpc/gain")


@pytest.mark.parametrize(
    "content",
    [
        b"since,value\n1,\xff\n",
        b"since,value\n1," + b"1" * 5000 + b"\n",
        b"since,value\n1," + b"[" * 100_000 + b"\n",
        b"since,channel,value\n1," + b"1" * 5000 + b",1\n",
        b"since,value\n1,\0\n",
        b"since,value\n1," + b"x" * 200_000 + b"\n",
    ],
)
def test_cells_of_wrong_kinds_are_refused_or_texts(
    fed: fb.Federation, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    try:
        done = fb.import_conditions(fed, str(tmp_path / "rows.csv"), series="tpc/gain")
    except fb.FemtobarnError:
        return
    assert done.series == {"tpc/gain": 1}


@pytest.mark.parametrize("digits", ["123456789012345678901234", "1" * 400, "0" * 30 + "1", "-" + "9" * 21])
def test_cells_of_more_digits_than_integers_have_are_texts(
    fed: fb.Federation, tmp_path: Path, digits: str
) -> None:
    """An identifier was stored as the nearest number with a fraction, one of 400 digits as infinity."""
    (tmp_path / "rows.csv").write_text(f"since,value,mixed\n1,{digits},{digits}\n2,{digits},07\n")
    fb.import_conditions(fed, str(tmp_path / "rows.csv"), series="tpc/gain")
    series = fed.conditions()["tpc/gain"]
    rows = [series.at(np.int64(moment)) for moment in (1, 2)]
    assert [(row.value, row.mixed) for row in rows] == [(digits, digits), (digits, "07")]

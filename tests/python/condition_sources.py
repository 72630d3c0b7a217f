"""Conditions databases of other systems with random contents, in the schemas that these systems document."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CMS_SCHEMA = """
CREATE TABLE TAG (
    NAME VARCHAR(100) PRIMARY KEY, TIME_TYPE VARCHAR(4) NOT NULL, OBJECT_TYPE VARCHAR(100) NOT NULL,
    SYNCHRONIZATION VARCHAR(10) NOT NULL, DESCRIPTION VARCHAR(4000) NOT NULL,
    LAST_VALIDATED_TIME BIGINT NOT NULL, END_OF_VALIDITY BIGINT NOT NULL, INSERTION_TIME TIMESTAMP NOT NULL,
    MODIFICATION_TIME TIMESTAMP NOT NULL);
CREATE TABLE PAYLOAD (
    HASH CHAR(40) PRIMARY KEY, OBJECT_TYPE VARCHAR(100) NOT NULL, DATA BLOB NOT NULL,
    STREAMER_INFO BLOB NOT NULL, VERSION VARCHAR(20) NOT NULL, INSERTION_TIME TIMESTAMP NOT NULL);
CREATE TABLE IOV (
    TAG_NAME VARCHAR(100) NOT NULL REFERENCES TAG (NAME), SINCE BIGINT NOT NULL,
    PAYLOAD_HASH CHAR(40) NOT NULL REFERENCES PAYLOAD (HASH), INSERTION_TIME TIMESTAMP NOT NULL,
    PRIMARY KEY (TAG_NAME, SINCE, INSERTION_TIME));
CREATE TABLE GLOBAL_TAG (
    NAME VARCHAR(100) PRIMARY KEY, VALIDITY BIGINT NOT NULL, DESCRIPTION VARCHAR(4000) NOT NULL,
    RELEASE VARCHAR(100) NOT NULL, SNAPSHOT_TIME TIMESTAMP NOT NULL, INSERTION_TIME TIMESTAMP NOT NULL);
CREATE TABLE GLOBAL_TAG_MAP (
    GLOBAL_TAG_NAME VARCHAR(100) NOT NULL, RECORD VARCHAR(100) NOT NULL, LABEL VARCHAR(100) NOT NULL,
    TAG_NAME VARCHAR(100) NOT NULL);
"""

CMS_TAGS = {"BeamSpot_v1.2": "Lumi", "Alignment_v3": "Run", "Laser_v7": "Time"}
CMS_TIMES: dict[str, Callable[[int], int]] = {
    "Lumi": lambda step: (300000 + step // 10) << 32 | step % 10,
    "Run": lambda step: 300000 + step,
    "Time": lambda step: (1_600_000_000 + step) << 32 | (step * 7919 % 1000) * 1_000_000,
}
"""The time of CMS for a step, in the units of a time type."""


def cms_file(path: Path, seed: int) -> sqlite3.Connection:
    """Make a CondDB file of CMS in which some conditions were replaced later."""
    chance = random.Random(seed)
    connection = sqlite3.connect(path)
    connection.executescript(CMS_SCHEMA)
    hashes = []
    for number in range(6):
        data, object_type = f"payload {number}".encode() * (number + 1), f"Class{number % 2}"
        key = hashlib.sha1(object_type.encode() + data).hexdigest()
        hashes.append(key)
        row = (key, object_type, data, b'{"architecture":"x"}', "dummy", "2025-01-01 00:00:00")
        connection.execute("INSERT INTO PAYLOAD VALUES (?, ?, ?, ?, ?, ?)", row)
    for tag, time_type in CMS_TAGS.items():
        end = -1 if time_type != "Run" else CMS_TIMES["Run"](80)
        now = "2025-01-01 00:00:00.000000"
        values = (tag, time_type, "Class", "any", "", -1, end, now, now)
        connection.execute("INSERT INTO TAG VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        for inserted in range(3):
            for step in chance.sample(range(100), 15):
                iov = (
                    tag,
                    CMS_TIMES[time_type](step),
                    chance.choice(hashes),
                    f"2025-01-0{inserted + 2} 00:00:00",
                )
                connection.execute("INSERT INTO IOV VALUES (?, ?, ?, ?)", iov)
    connection.execute(
        "INSERT INTO GLOBAL_TAG VALUES ('140X_v1', 1, 'data', '14_0_0', ?, ?)",
        ("2025-02-01 00:00:00",) * 2,
    )
    for tag, label in zip(CMS_TAGS, ("-", "", "laser"), strict=True):
        record = tag.partition("_")[0] + "Rcd"
        connection.execute("INSERT INTO GLOBAL_TAG_MAP VALUES ('140X_v1', ?, ?, ?)", (record, label, tag))
    connection.commit()
    return connection


def cms_answer(connection: sqlite3.Connection, tag: str, time: int, snapshot: str = "9999") -> str | None:
    """The hash of what is valid by the rule of CMS: the last since, and there the last insertion."""
    row = connection.execute(
        "SELECT PAYLOAD_HASH FROM IOV JOIN TAG ON NAME = TAG_NAME WHERE TAG_NAME = ? AND SINCE <= ? "
        "AND (END_OF_VALIDITY < 0 OR END_OF_VALIDITY >= ?) AND CAST(IOV.INSERTION_TIME AS TEXT) <= ? "
        "ORDER BY SINCE DESC, IOV.INSERTION_TIME DESC LIMIT 1",
        (tag, time, time, snapshot),
    ).fetchone()
    return None if row is None else str(row[0])


BELLE2_SCHEMA = """
PRAGMA application_id = 0xb2cdb;
PRAGMA user_version = 1;
CREATE TABLE baseUrls (baseUrlId INTEGER PRIMARY KEY, baseUrl text UNIQUE);
CREATE TABLE payloadNames (payloadNameId INTEGER PRIMARY KEY, payloadName TEXT UNIQUE);
CREATE TABLE payloads (
    payloadId INTEGER PRIMARY KEY, payloadNameId INTEGER NOT NULL, revision INTEGER NOT NULL,
    checksum text NOT NULL, payloadUrl text DEFAULT NULL, baseUrlId INTEGER NOT NULL,
    CONSTRAINT name_rev UNIQUE (payloadNameId, revision));
CREATE VIEW full_payloads AS SELECT payloadId, payloadName, revision, checksum, ifnull(payloadUrl,
    'dbstore/' || payloadName || '/dbstore_' || payloadName || '_rev_' || revision || '.root') AS payloadUrl,
    baseUrl FROM payloads NATURAL JOIN payloadNames NATURAL JOIN baseUrls;
CREATE TABLE globaltags (
    globalTagId INTEGER PRIMARY KEY, globalTagName text UNIQUE, globalTagStatus text NOT NULL);
CREATE TABLE iovs (
    globalTagId INTEGER NOT NULL, payloadId INTEGER NOT NULL, firstExp INTEGER NOT NULL,
    firstRun INTEGER NOT NULL,    finalExp INTEGER NOT NULL, finalRun INTEGER NOT NULL);
CREATE UNIQUE INDEX iov_index ON iovs (globalTagId, firstExp, firstRun, finalExp, finalRun, payloadId);
CREATE VIEW iov_payloads AS SELECT globalTagName, payloadId, payloadName, revision, checksum, firstExp,
    firstRun, finalExp, finalRun, payloadUrl, baseUrl
    FROM globaltags NATURAL JOIN iovs NATURAL JOIN full_payloads;
"""


def belle2_file(folder: Path, seed: int) -> sqlite3.Connection:
    """Make a local database of Belle II with its payloads, in both layouts of folders."""
    chance = random.Random(seed)
    folder.mkdir()
    connection = sqlite3.connect(folder / "metadata.sqlite")
    connection.executescript(BELLE2_SCHEMA)
    connection.execute("INSERT INTO baseUrls VALUES (1, 'http://conditions.example')")
    for number, state in enumerate(("PUBLISHED", "OPEN")):
        connection.execute("INSERT INTO globaltags VALUES (?, ?, ?)", (number, f"main_{number}", state))
    for name_number, name in enumerate(("BeamSpot", "KLMAlignment")):
        connection.execute("INSERT INTO payloadNames VALUES (?, ?)", (name_number, name))
        for revision in range(1, 6):
            data = f"{name} {revision // 2}".encode()
            checksum = hashlib.md5(data).hexdigest()
            payload_id = name_number * 10 + revision
            row = (payload_id, name_number, revision, checksum, None, 1)
            connection.execute("INSERT INTO payloads VALUES (?, ?, ?, ?, ?, ?)", row)
            flat, hashed = f"dbstore_{name}_rev_{revision}.root", f"{checksum[:2]}/{name}_r{revision}.root"
            file = folder / (flat if revision % 2 else hashed)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
    for _ in range(60):
        first = chance.randrange(6), chance.randrange(50)
        last = chance.choice(
            ((-1, -1), (first[0] + chance.randrange(3), -1), (first[0] + 1, chance.randrange(50)))
        )
        payload_id = chance.choice((0, 10)) + chance.randrange(1, 6)
        iov = chance.randrange(2), payload_id, *first, *last
        connection.execute("INSERT OR IGNORE INTO iovs VALUES (?, ?, ?, ?, ?, ?)", iov)
    connection.commit()
    return connection


def belle2_answer(connection: sqlite3.Connection, tag: str, name: str, exp: int, run: int) -> str | None:
    """The checksum of what is valid: of all that contain the run, the highest revision."""
    row = connection.execute(
        "SELECT checksum FROM iov_payloads WHERE globalTagName = :tag AND payloadName = :name "
        "AND (firstExp < :exp OR (firstExp = :exp AND firstRun <= :run)) "
        "AND (finalExp < 0 OR finalExp > :exp OR (finalExp = :exp AND (finalRun < 0 OR finalRun >= :run))) "
        "ORDER BY revision DESC LIMIT 1",
        {"tag": tag, "name": name, "exp": exp, "run": run},
    ).fetchone()
    return None if row is None else str(row[0])


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Any]) -> Iterator[str]:
    """Serve JSON, or bytes, that a function returns for a path and its parameters; None is not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            found = answer(urllib.parse.unquote(parts.path), dict(urllib.parse.parse_qsl(parts.query)))
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class CrestAnswers:
    """The answers of a CREST server, by its OpenAPI description, about tags with random conditions."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.payloads = {
            hashlib.sha256(data).hexdigest(): data for data in (f"crest {n}".encode() for n in range(4))
        }
        self.tags = {"MDT-T0-01": "run-lumi", "DCS": "time"}
        self.iovs: dict[str, list[dict[str, Any]]] = {}
        for tag, time_type in self.tags.items():
            unit = 2**32 if time_type == "run-lumi" else 10**9
            rows = [(chance.randrange(100) * unit, f"2025-01-01T00:{n:02}:00.000+0000", n) for n in range(40)]
            keys = list(self.payloads)
            self.iovs[tag] = [
                {"tagName": tag, "since": since, "insertionTime": time, "payloadHash": keys[n % 4]}
                for since, time, n in sorted(rows)
            ]

    def __call__(self, path: str, parameters: dict[str, str]) -> Any:
        """Answer a request."""
        if path == "/api/tags":
            return self._page(
                [{"name": n, "timeType": t, "endOfValidity": 0} for n, t in self.tags.items()], parameters
            )
        if path == "/api/iovs":
            return self._page(self.iovs[parameters["tagname"]], parameters)
        if path == "/api/globaltags":
            return self._page([{"name": "CREST-RUN3", "description": "first"}], parameters)
        if path == "/api/globaltagmaps/CREST-RUN3":
            entries = [{"label": f"/{tag}", "tagName": tag, "record": ""} for tag in self.tags]
            return {"size": len(entries), "format": "GlobalTagMapSetDto", "resources": entries}
        if path == "/api/payloads/data" and parameters["hash"] in self.payloads:
            if parameters["format"] == "BLOB":
                return self.payloads[parameters["hash"]]
            return {"hash": parameters["hash"], "objectType": "JSON", "objectName": "none", "version": "1"}
        return None

    @staticmethod
    def _page(resources: list[Any], parameters: dict[str, str]) -> dict[str, Any]:
        size, page = 25, int(parameters["page"])  # a server may give smaller pages than it was asked for
        pages = max(1, -(-len(resources) // size))
        part = resources[page * size : (page + 1) * size]
        facts = {"size": size, "totalElements": len(resources), "totalPages": pages, "number": page}
        return {"size": len(part), "format": "Set", "page": facts, "resources": part}

    def answer(self, tag: str, time: int) -> str | None:
        """The hash of what is valid: the last since, and there the last insertion."""
        valid = [row for row in self.iovs[tag] if row["since"] <= time]
        last = max(valid, key=lambda row: (row["since"], row["insertionTime"]), default=None)
        return None if last is None else str(last["payloadHash"])

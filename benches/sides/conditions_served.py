"""Conditions by nopayloaddb's routes: `conditions_served.py fill|ask|load|insert SIDE FOLDER COUNT ...`.

    fill SIDE FOLDER TYPES              payload types of 5,000 IOVs each, all in one global tag
    ask SIDE FOLDER TYPES REQUESTS      requests for all payloads of the tag at a random moment, one by one
    load SIDE FOLDER TYPES SECONDS      such requests by 32 connections of one thread of wrk
    insert nopayloaddb FOLDER COUNT     IOVs into an empty database, a thousand a request

SIDE is `femtobarn` or `nopayloaddb`, or `PROGRAM:THREADS` for `bare_answers`, a server in C that has all
answers of ours beforehand. CPU seconds are those of the server's processes, PostgreSQL's among them. All are
warm: some requests come before. The check is the sum of all answers, so all must give the same.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nopayloaddb
import numpy as np
import postgres
from servers import free_port, running, start

IOVS = 5000
LENGTH = 10
"""Runs of a validity."""
WARM_UP = 200
CONNECTIONS = 32
TAG = "bench"
ROUTES = "/api/cdb_rest"
PER_REQUEST = 1000


def main() -> None:
    """Run one side."""
    what, side, folder, *rest = sys.argv[1:]
    work: dict[str, Callable[..., None]] = {"fill": fill, "ask": ask, "load": load, "insert": insert}
    work[what](side, Path(folder), *map(int, rest))


def fill(side: str, folder: Path, types: int) -> None:
    """Make the database that is asked."""
    (fill_femtobarn if side == "femtobarn" else fill_nopayloaddb)(folder, types)


def name_of(number: int) -> str:
    """The name of a payload type."""
    return f"Type{number}"


def fill_femtobarn(folder: Path, types: int) -> None:
    """A series for each payload type, as clients of nopayloaddb make it."""
    import femtobarn as fb

    since = np.arange(IOVS) * LENGTH << 32
    with fb.create(folder) as federation:
        with federation.transaction() as txn:
            for number in range(types):
                urls = [f"{name_of(number)}/{iov}.root" for iov in range(IOVS)]
                details = [json.dumps({"checksum": md5(url), "size": n}) for n, url in enumerate(urls)]
                columns = {
                    "data": [b""] * IOVS, "media_type": ["message/external-body"] * IOVS, "name": urls,
                    "details": details, "sha256": [""] * IOVS,
                }  # fmt: skip
                series = txn.series(f"nopayloaddb/{name_of(number)}", fb.Payload, create=True, clock="run")
                series.extend(columns, since=since, until=since + (LENGTH << 32))
        federation.conditions.create_tag(TAG)


def fill_nopayloaddb(folder: Path, types: int) -> None:
    """The rows that nopayloaddb itself would make, by SQL: by requests they would take minutes."""
    nopayloaddb.create(folder)
    with postgres.serve(folder) as database:
        rows = ROWS.format(tag=TAG, types=types, iovs=IOVS, length=LENGTH)
        database.query(rows, nopayloaddb.DATABASE)


ROWS = """
INSERT INTO "GlobalTagStatus" (name, created) VALUES ('unlocked', now());
INSERT INTO "GlobalTag" (name, status_id, created, updated)
    SELECT '{tag}', id, now(), now() FROM "GlobalTagStatus";
INSERT INTO "PayloadType" (name, created) SELECT 'Type' || n, now() FROM generate_series(0, {types} - 1) n;
INSERT INTO "PayloadList" (id, name, global_tag_id, payload_type_id, created, updated)
    SELECT pt.id, pt.name || '_' || pt.id, gt.id, pt.id, now(), now() FROM "PayloadType" pt, "GlobalTag" gt;
INSERT INTO "PayloadIOV" (payload_url, checksum, size, major_iov, minor_iov, major_iov_end, minor_iov_end,
                          payload_list_id, created, updated, comb_iov)
    SELECT url, md5(url), n, n * {length}, 0, (n + 1) * {length}, 0, list, now(), now(), n * {length}
    FROM (SELECT pt.name || '/' || n || '.root' AS url, n, pl.id AS list
          FROM generate_series(0, {iovs} - 1) n, "PayloadList" pl
          JOIN "PayloadType" pt ON pl.payload_type_id = pt.id) AS iovs;
ANALYZE;
"""
"""nopayloaddb's rows. Without statistics PostgreSQL may choose a plan that does ten times the work."""


def md5(text: str) -> str:
    """The checksum that nopayloadclient computes."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


@contextmanager
def served(side: str, folder: Path) -> Iterator[tuple[http.client.HTTPConnection, str, Any]]:
    """A connection to a server, the path of its routes, and the server."""
    with tempfile.TemporaryDirectory(prefix="conditions") as scratch:
        if side == "femtobarn":
            with start("femtobarn", {"bench.fed": folder}, Path(scratch)) as server:
                connection = http.client.HTTPConnection("127.0.0.1", server.port)
                yield connection, f"/conditions/bench.fed/nopayloaddb{ROUTES}", server
        elif side == "nopayloaddb":
            with nopayloaddb.serve(folder) as peer:
                yield http.client.HTTPConnection("127.0.0.1", peer.port), ROUTES, peer
        else:
            command, port = with_answers(side, folder, Path(scratch)), free_port()
            with running([command[0], str(port), *command[1:]], port, Path(scratch)) as server:
                yield http.client.HTTPConnection("127.0.0.1", port), ROUTES, server


def with_answers(side: str, folder: Path, scratch: Path) -> list[str]:
    """The command, without its port, of a server that has the answers of ours for all validities."""
    with served("femtobarn", folder) as (connection, routes, _):
        bodies = [answer(connection, path_of(routes) + str(iov * LENGTH)) for iov in range(IOVS)]
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    answers = [head.format(len(body)).encode() + body for body in bodies]
    slot = 4 + max(map(len, answers))
    (scratch / "answers").write_bytes(
        b"".join((len(each).to_bytes(4, sys.byteorder) + each).ljust(slot) for each in answers)
    )
    program, _, threads = side.rpartition(":")
    return [program, str(scratch / "answers"), str(slot), "&majorIOV=", str(LENGTH), threads]


def path_of(routes: str) -> str:
    """The path of requests for all payloads, before their moment."""
    return f"{routes}/payloadiovs/?gtName={TAG}&minorIOV=0&majorIOV="


def ask(side: str, folder: Path, types: int, requests: int) -> None:
    """Ask for all payloads of the tag at random moments, and print the sample."""
    moments = [random.Random(9).randrange(IOVS * LENGTH) for _ in range(requests)]
    with served(side, folder) as (connection, routes, server):
        path = path_of(routes)
        for moment in moments[:WARM_UP]:
            answer(connection, path + str(moment))
        answers, times = [], []
        began, cpu = time.perf_counter(), server.cpu_seconds()
        for moment in moments:
            asked = time.perf_counter()
            answers.append(answer(connection, path + str(moment)))
            times.append(time.perf_counter() - asked)
        wall, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
    sample = {"items": requests, "bytes": sum(map(len, answers)), "wall_s": wall, "cpu_s": cpu}
    check = sum(checksum(json.loads(each), types) for each in answers) % 2**32
    print(json.dumps({**sample, "p99_us": 1e6 * float(np.quantile(times, 0.99)), "check": check}))


def load(side: str, folder: Path, types: int, seconds: int) -> None:
    """Send such requests by many connections at once, and print the sample."""
    with served(side, folder) as (connection, routes, server), tempfile.TemporaryDirectory() as scratch:
        path = path_of(routes)
        for moment in range(WARM_UP):
            checksum(json.loads(answer(connection, path + str(moment * LENGTH))), types)
        script = Path(scratch) / "requests.lua"
        script.write_text(SCRIPT.format(path=path, moments=IOVS * LENGTH))
        command = ["wrk", "--threads=1", f"--connections={CONNECTIONS}", f"--duration={seconds}"]
        cpu = server.cpu_seconds()
        done = subprocess.run(
            [*command, f"--script={script}", f"http://127.0.0.1:{connection.port}/"],
            capture_output=True,
            text=True,
            check=True,
        )
        cpu = server.cpu_seconds() - cpu
    seen = json.loads(done.stdout.splitlines()[-1])
    if seen.pop("failed"):
        raise SystemExit(f"some requests failed:\n{done.stdout}")
    print(json.dumps({**seen, "cpu_s": cpu, "check": 0}))


SCRIPT = """
request = function()
    return wrk.format("GET", "{path}" .. math.random(0, {moments} - 1))
end
done = function(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format(
        '{{"items": %d, "bytes": %d, "wall_s": %f, "p99_us": %f, "failed": %d}}\\n',
        summary.requests, summary.bytes, summary.duration / 1e6, latency:percentile(99), failed))
end
"""
"""What wrk asks for, and the sample that it prints."""


def answer(connection: http.client.HTTPConnection, path: str) -> bytes:
    """The body of an answer."""
    connection.request("GET", path)
    got = connection.getresponse()
    body = got.read()
    if got.status != 200:
        raise SystemExit(f"{path}: {got.status} {body[:500]!r}")
    return body


def checksum(rows: list[list[Any]], types: int) -> int:
    """The sum of an answer's rows: type, address, checksum, size, beginning and end."""
    if len(rows) != types:
        raise SystemExit(f"an answer has {len(rows)} of {types} payloads")
    return sum(zlib.crc32(json.dumps(row[:8]).encode()) for row in rows)


def insert(side: str, folder: Path, count: int) -> None:
    """Insert IOVs by nopayloaddb's bulk requests, and print the sample."""
    if side != "nopayloaddb":
        raise SystemExit("conditions.py inserts into a federation")
    nopayloaddb.create(folder)
    with served(side, folder) as (connection, routes, peer):
        peer.query(ROWS.format(tag=TAG, types=1, iovs=1, length=LENGTH))
        bodies = [
            [
                {"payload_list": "Type0_1", "payload_url": f"{iov}.root", "major_iov": iov, "minor_iov": 0}
                for iov in range(first, first + PER_REQUEST)
            ]
            for first in range(LENGTH, LENGTH + count, PER_REQUEST)
        ]
        began, cpu = time.perf_counter(), peer.cpu_seconds()
        for body in bodies:
            connection.request(
                "POST", f"{routes}/bulk_piov", json.dumps(body), {"Content-Type": "application/json"}
            )
            got = connection.getresponse()
            text = got.read()
            if got.status != 200:
                raise SystemExit(f"bulk_piov: {got.status} {text[:500]!r}")
        wall, cpu = time.perf_counter() - began, peer.cpu_seconds() - cpu
    print(json.dumps({"items": count, "bytes": 0, "wall_s": wall, "cpu_s": cpu, "check": 0}))


if __name__ == "__main__":
    main()

"""A server reads nearline databases in their store, for clients of every kind, if the store allows it."""

from __future__ import annotations

import http.client
import socket
import struct
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import SocketIO

import numpy as np
import pytest
from data_servers import data_servers
from file_server import run
from relay import Relay, relay
from s3_servers import S3_SERVERS, s3_server
from server_settings import QUICK_STOP
from stored_points import VALUES, Point, files
from waiting import wait_for

import femtobarn as fb

COMMITS = 4
EXTRA = 1.3
"""Limit of the bytes fetched from a store for each byte that a client needs."""


@dataclass
class Site:
    """A server of a federation whose database `run7` is in a store alone; `run8` is on the disk."""

    fed: fb.Federation
    server: fb.Server
    way: Relay
    """The way to the store."""
    content: bytes
    """The file of the database, as it was on the disk."""

    @property
    def root(self) -> str:
        return f"root://127.0.0.1:{self.server.port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def check_stayed(self) -> None:
        assert self.fed.where("run7")[0].state == "nearline"
        assert files(self.fed) == ["run8.root"]


@contextmanager
def site(top: Path, settings: str, way: Relay) -> Iterator[Site]:
    fed = fb.create(top / "lhc.fed")
    for name, commits in (("run7", COMMITS), ("run8", 1)):
        for _ in range(commits):
            with fed.transaction() as txn:
                points = txn.database(name, create=True).container("points", Point, create=True)
                points.extend({"x": VALUES})
    fed.tag("open")
    fed.seal("run7")
    content = (top / "lhc.fed/databases/run7.root").read_bytes()
    (top / "lhc.fed/storage.toml").write_text(f"[stores.store]\nin_place = true\n{settings}\n")
    fed.migrate("run7", "store")
    fed.evict("run7")
    with fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server:
        yield Site(fed, server, way, content)


@contextmanager
def s3_site(top: Path, kind: str) -> Iterator[Site]:
    """A site whose store is in a bucket."""
    with (
        pytest.MonkeyPatch.context() as environment,
        s3_server(kind, top / "s3") as url,
        relay(int(url.rpartition(":")[2])) as way,
    ):
        environment.setenv("AWS_ACCESS_KEY_ID", "ann")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
        settings = f"kind = 's3'\nurl = 'http://127.0.0.1:{way.port}'\nbucket = 'lhc'"
        with site(top, settings, way) as made:
            yield made


@contextmanager
def xrootd_site(top: Path, kind: str) -> Iterator[Site]:
    """A site whose store is on an XRootD server."""
    with data_servers(kind, top / "data") as (server, _), relay(server.port) as way:
        (server.folder / "store").mkdir()
        (server.folder / "store").chmod(0o777)
        with site(top, f"kind = 'xrootd'\nurl = 'root://127.0.0.1:{way.port}//data/store'", way) as made:
            yield made


@pytest.fixture(scope="module", params=[*S3_SERVERS, "ours", "xrootd"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with each kind of store on another machine."""
    made = s3_site if request.param in S3_SERVERS else xrootd_site
    with made(tmp_path_factory.mktemp("site"), request.param) as found:
        yield found


def get(site: Site, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=60)) as connection:
        connection.request("GET", path, headers={name.replace("_", "-"): it for name, it in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()


def test_xrdcp_copies_it_at_once_and_its_checksum_is_known(served: Site, tmp_path: Path) -> None:
    copy = tmp_path / "run7.root"
    before = served.way.bytes
    flags = run("xrdfs", served.root, "stat", "/lhc.fed/run7.root")
    assert f"{len(served.content)}" in flags
    assert "Offline" in flags
    assert "BackUpExists" in flags
    told = run("xrdfs", served.root, "query", "checksum", "/lhc.fed/run7.root")
    assert told.split() == ["adler32", f"{zlib.adler32(served.content):08x}"]
    assert served.way.bytes - before < 20_000, "nothing of the file was read"
    run("xrdcp", "--silent", "--cksum", "adler32:print", f"{served.root}//lhc.fed/run7.root", copy)
    assert copy.read_bytes() == served.content
    assert served.way.bytes - before < EXTRA * len(served.content)
    served.check_stayed()


def test_uproot_reads_its_columns_over_both_protocols(served: Site) -> None:
    import uproot

    for url in (f"{served.root}//lhc.fed/run7.root", f"{served.http}/lhc.fed/run7.root"):
        with uproot.open(url) as file:
            read = file["points"].arrays(entry_start=300_100, entry_stop=300_200)["x"]
        assert np.array_equal(read.to_numpy(), VALUES[100:200])
    served.check_stayed()


def test_ranges_over_http_are_those_of_the_file(served: Site, tmp_path: Path) -> None:
    url, part = f"{served.http}/lhc.fed/run7.root", tmp_path / "part"
    before = served.way.bytes
    run("curl", "-sf", "-r", "1000000-1099999", "-o", part, url)
    assert part.read_bytes() == served.content[1_000_000:1_100_000]
    assert served.way.bytes - before < EXTRA * 100_000
    answer, body = get(served, "/lhc.fed/run7.root", Range="bytes=100-199,5000000-5000099,7000-7099")
    assert answer.status == 206
    assert all(served.content[at : at + 100] in body for at in (100, 5_000_000, 7000))
    answer, _ = get(served, "/lhc.fed/run7.root", Range="bytes=0-9", Want_Digest="adler32")
    assert answer.getheader("Digest") == f"adler32={zlib.adler32(served.content):08x}"
    run("curl", "-sf", "-o", part, url)
    assert part.read_bytes() == served.content
    served.check_stayed()


def test_a_selection_costs_little_more_than_its_bytes(served: Site) -> None:
    count = COMMITS * len(VALUES)
    picks = (slice(700_000, 700_000 + count // 100), np.arange(0, count, 100_000))
    for pick in picks:
        # Without what is fetched for the next selection.
        with fb.open(f"{served.root}//lhc.fed", read_ahead_bytes=0) as fed:
            view = fed["run7/points"]
            before, at_first = served.way.bytes, read_bytes(fed)
            read = view[pick].arrays("x").x.to_numpy()
            needed = read_bytes(fed) - at_first
        assert read.tobytes() == np.tile(VALUES, COMMITS)[pick].tobytes()
        assert 0 < needed < len(served.content) / 4
        assert served.way.bytes - before < EXTRA * needed
    served.check_stayed()


def read_bytes(fed: fb.Federation) -> int:
    """The bytes that came from the server."""
    return sum(tier.bytes for tier in fed.read_statistics() if tier.name == "server")


def test_vector_reads_get_exactly_their_ranges(served: Site) -> None:
    client = pytest.importorskip("XRootD.client")
    from XRootD.client.flags import OpenFlags

    chunks = [(at, 2000) for at in range(4000, len(served.content) - 2000, 6000)]
    with client.File() as file:
        status, _ = file.open(f"{served.root}//lhc.fed/run7.root", OpenFlags.READ)
        assert status.ok, status.message
        before = served.way.bytes
        status, answer = file.vector_read(chunks[:1000])
        assert status.ok, status.message
        assert all(served.content[it.offset : it.offset + it.length] == it.buffer for it in answer.chunks)
        assert served.way.bytes - before < EXTRA * 1000 * 2000 + 1000 * 500, "with the heads of the answers"
    served.check_stayed()


def test_reads_that_arrive_together_wait_for_the_store_together(served: Site) -> None:
    with closing(socket.create_connection(("127.0.0.1", served.server.port), timeout=60)) as client:
        client.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        assert answer(client, b"")[:4] == struct.pack(">i", 0x520)
        answer(client, request(3007, struct.pack(">i8s4B", 1, b"tester", 0, 0, 5, 0)))
        opening = struct.pack(">HH12x", 0, 0x10)
        handle = answer(client, request(3010, opening, b"/lhc.fed/run7.root"))[:4]

        def read(at: int) -> bytes:
            return request(3013, struct.pack(">4sqi", handle, at, 1 << 20))

        assert answer(client, read(0)) == served.content[: 1 << 20]
        before = served.way.asked
        answer(client, read(1 << 20))
        each, before = served.way.asked - before, served.way.asked
        places = [number << 20 for number in range(2, 6)]
        served.way.hold()
        try:
            client.sendall(b"".join(map(read, places)))
            wait_for(lambda: served.way.asked - before > each * (len(places) - 1))
        finally:
            served.way.let_go()
        for at in places:
            assert answer(client, b"") == served.content[at : at + (1 << 20)]
    served.check_stayed()


def request(code: int, parameters: bytes, body: bytes = b"") -> bytes:
    """A request of XRootD's protocol."""
    return struct.pack(">HH16si", 1, code, parameters, len(body)) + body


def answer(client: socket.socket, asked: bytes) -> bytes:
    """Send a request, and return its whole answer."""
    client.sendall(asked)
    body, status = b"", 4000
    with client.makefile("rb", buffering=0) as answers:
        while status == 4000:
            _, status, length = struct.unpack(">HHi", whole(answers, 8))
            body += whole(answers, length)
    assert status == 0, body
    return body


def whole(answers: SocketIO, length: int) -> bytes:
    """So many bytes, in as many pieces as they come."""
    found = b""
    while len(found) < length:
        found += answers.read(length - len(found)) or b""
    return found


def test_snapshots_in_the_path_are_read_in_place(served: Site) -> None:
    import uproot

    with uproot.open(f"{served.http}/lhc.fed/@open/run7.root") as file:
        assert file["points"].num_entries == COMMITS * len(VALUES)
        read = file["points"].arrays(entry_stop=10)["x"]
    assert np.array_equal(read.to_numpy(), VALUES[:10])
    served.check_stayed()


def test_metrics_count_read_and_fetched_bytes(served: Site) -> None:
    def counted(name: str) -> int:
        _, text = get(served, "/metrics")
        line = next(it for it in text.decode().splitlines() if it.startswith(f"femtobarn_in_place_{name}{{"))
        return int(line.split()[-1])

    before = [counted("read_bytes_total"), counted("fetched_bytes_total")]
    get(served, "/lhc.fed/run7.root", Range="bytes=2000000-2009999")
    after = [counted("read_bytes_total"), counted("fetched_bytes_total")]
    assert [new - old for new, old in zip(after, before, strict=True)] == [10_000, 10_000]
    assert counted("left_copies_total") == 0


def test_a_silent_store_delays_no_reader_of_other_data(served: Site) -> None:
    with ThreadPoolExecutor(120) as readers:
        served.way.hold()
        try:
            waiting = [
                readers.submit(get, served, "/lhc.fed/run7.root", Range=f"bytes={at}-{at + 99}")
                for at in range(0, 120 * 40_000, 40_000)
            ]
            with fb.open(f"{served.root}//lhc.fed") as fed:
                assert fed["run8/points"][7].x == VALUES[7]
            answer, _ = get(served, "/lhc.fed/run8.root", Range="bytes=0-99")
            assert answer.status == 206
            assert not all(each.done() for each in waiting)
        finally:
            served.way.let_go()
        for at, each in enumerate(waiting):
            assert each.result()[1] == served.content[at * 40_000 : at * 40_000 + 100]
    served.check_stayed()


def test_a_file_stays_readable_in_place_while_it_is_staged(served: Site) -> None:
    with fb.open(f"{served.root}//lhc.fed") as fed:
        view = fed["run7/points"]
        assert view[3].x == VALUES[3]
        served.fed.stage("run7")
        before = served.way.bytes
        assert view[len(VALUES) + 3].x == VALUES[3]
        _, body = get(served, "/lhc.fed/run7.root", Range="bytes=500-599")
        assert body == served.content[500:600]
        assert served.way.bytes - before < 2_000_000, "new readers have the disk"
    served.fed.evict("run7")
    served.check_stayed()


@pytest.mark.parametrize("kind", S3_SERVERS)
def test_a_store_without_the_copy_is_an_error_with_the_reason(tmp_path: Path, kind: str) -> None:
    with s3_site(tmp_path, kind) as made:
        _, body = get(made, "/lhc.fed/run7.root", Range="bytes=0-99")
        assert body == made.content[:100]
        (copy,) = (tmp_path / "s3").rglob("*.root")
        copy.rename(copy.with_suffix(".away"))
        answer, body = get(made, "/lhc.fed/run7.root", Range="bytes=1000-1099")
        assert answer.status == 503, body
        command = ["xrdcp", "--silent", f"{made.root}//lhc.fed/run7.root", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode != 0
        assert "in bucket lhc at" in done.stderr
        copy.with_suffix(".away").rename(copy)
        made.fed.stage("run7")
        _, body = get(made, "/lhc.fed/run7.root", Range="bytes=1000-1099")
        assert body == made.content[1000:1100]

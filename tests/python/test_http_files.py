"""Files over HTTP, to clients of every kind: browsers, Python, curl, davix and gfal2."""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep, time
from typing import Any

import fsspec
import jsroot
import numpy as np
import pytest
import uproot

import femtobarn as fb

EVENTS = 20_000
CONTENT = np.random.default_rng(3).bytes(3_000_000)
"""More than is sent in one piece."""


@fb.persistent
class Event:
    number: fb.int64
    pt: list[fb.float32]


@dataclass
class Reply:
    code: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class FileServer:
    """A server of a federation and of a plain folder with files."""

    server: fb.Server
    folder: Path

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Send a request; an underscore in the name of a header stands for a hyphen."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())


def serve(folder: Path, setting: str = "", **options: Any) -> fb.Server:
    config = folder / "server.toml"
    config.write_text(f'[[export]]\nfolder = "{folder}/data"\n{setting}\n')
    return fb.serve(folder / "lhc.fed", port=0, address="127.0.0.1", config=config, **options)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileServer]:
    """A federation with two commits, and a folder that all clients may change."""
    with fb.create(tmp_path / "lhc.fed") as fed:
        for first in (0, EVENTS):
            with fed.transaction() as txn:
                events = txn.database("run7", create=True).container("events", Event, create=True)
                numbers = np.arange(first, first + EVENTS)
                events.extend({"number": numbers, "pt": [[float(each)] * (each % 3) for each in numbers]})
    (tmp_path / "data" / "below").mkdir(parents=True)
    (tmp_path / "data" / "large.bin").write_bytes(CONTENT)
    (tmp_path / "data" / "empty").touch()
    (tmp_path / "data" / "below" / "a & <b> ü.txt").write_text("text")
    with serve(tmp_path, '[http]\norigins = ["*"]', anonymous="all") as server:
        yield FileServer(server, tmp_path)


def run(*command: str | Path, code: int = 0) -> str:
    """Run a client that must end with a code; skip the test if it is not installed."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    # gfal's scripts need the interpreter that Debian's packages are for.
    variables = {**os.environ, "GFAL_PYTHONBIN": "/usr/bin/python3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout


# ---- reading


def test_uproot_reads_a_database_as_of_a_commit(files: FileServer) -> None:
    for place, count in (("", 2 * EVENTS), ("/@1", EVENTS), ("/@2", 2 * EVENTS)):
        with uproot.open(files.url(f"/lhc.fed{place}/run7.root")) as file:
            read = file["events"].arrays()
        assert read.number.to_list() == list(range(count))
        assert read.pt[-1].to_list() == [count - 1.0] * ((count - 1) % 3)


def test_fsspec_reads_any_part_of_a_file(files: FileServer) -> None:
    with fsspec.open(files.url("/data/large.bin"), block_size=70_000) as file:
        assert file.size == len(CONTENT)
        for start in (0, 2_999_000, 1_234_567):
            file.seek(start)
            assert file.read(5_000) == CONTENT[start : start + 5_000]
    listed = fsspec.filesystem("http").ls(files.url("/data/"), detail=False)
    assert files.url("/data/large.bin") in listed
    with fsspec.open(files.url("/data/below/a%20%26%20%3Cb%3E%20%C3%BC.txt"), "rt") as text:
        assert text.read() == "text"


def test_jsroot_in_a_browser_reads_from_another_site(
    files: FileServer, project: Path, tmp_path: Path
) -> None:
    chromium = shutil.which("chromium")
    reason = jsroot.absent() if chromium else "chromium is not installed"
    if reason or chromium is None:
        pytest.skip(reason or "")
    (tmp_path / "page.html").write_text(PAGE.replace("ADDRESS", files.url("/lhc.fed/@2/run7.root")))
    (tmp_path / "modules").symlink_to(jsroot.install(project / ".cache"))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        shown = run(
            chromium, "--headless", "--no-sandbox", "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom",
            f"http://127.0.0.1:{pages.server_port}/page.html",
        )  # fmt: skip
        pages.shutdown()
    found = re.search(r"<pre>(.*?)</pre>", shown)
    assert found is not None
    assert json.loads(found[1]) == {"entries": 2 * EVENTS, "sum": sum(range(2 * EVENTS))}


PAGE = """<!doctype html><pre></pre><script type="module">
import { openFile } from './modules/jsroot/modules/io.mjs';
import { TSelector } from './modules/jsroot/modules/tree.mjs';
import { rntupleProcess } from './modules/jsroot/modules/rntuple.mjs';
const shown = document.querySelector('pre');
try {
   const file = await openFile('ADDRESS'), selector = new TSelector;
   let entries = 0, sum = 0;
   selector.addBranch('number');
   selector.Process = function() { ++entries; sum += Number(this.tgtobj.number); };
   await rntupleProcess(await file.readObject('events'), selector);
   shown.textContent = JSON.stringify({ entries, sum });
} catch (error) {
   shown.textContent = JSON.stringify(String(error));
}
</script>"""


def test_bytes_are_kept_for_ever_where_they_never_change(files: FileServer) -> None:
    whole = files.ask("GET", "/lhc.fed/@1/run7.root")
    assert whole.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert files.ask("GET", "/lhc.fed/@1/run7.root").body == whole.body
    newest = files.ask("GET", "/lhc.fed/run7.root")
    assert newest.headers["Cache-Control"] == "no-store"
    assert newest.headers["ETag"] != whole.headers["ETag"]
    with fb.open(files.folder / "lhc.fed") as fed:
        fed.tag("winter 26", csn=1)
    tagged = files.ask("GET", "/lhc.fed/@winter%2026/run7.root")
    assert (tagged.body, tagged.headers["Cache-Control"]) == (whole.body, "no-store")
    assert files.ask("GET", "/lhc.fed/run7.root?fb.csn=1&stamp=17").body == whole.body
    wrong = {
        "/lhc.fed/@9/run7.root": 404,
        "/lhc.fed/@1/run7.root?fb.csn=1": 400,
        "/lhc.fed/@1/run7.root?fb.raw=1": 400,
    }
    for path, code in wrong.items():
        answer = files.ask("GET", path)
        assert (answer.code, answer.headers["Cache-Control"]) == (code, "no-store")
    plain = files.ask("HEAD", "/data/large.bin")
    assert (plain.code, plain.body, plain.headers["Content-Length"]) == (200, b"", str(len(CONTENT)))
    known = files.ask("GET", "/data/large.bin", If_None_Match=plain.headers["ETag"])
    assert (known.code, known.body) == (304, b"")
    (files.folder / "data" / "large.bin").write_bytes(CONTENT[::-1])
    changed = files.ask("GET", "/data/large.bin", If_None_Match=plain.headers["ETag"])
    assert (changed.code, changed.body) == (200, CONTENT[::-1])
    part = files.ask("GET", "/data/large.bin", Range="bytes=0-9", If_Range=plain.headers["ETag"])
    assert (part.code, part.body) == (200, CONTENT[::-1])


@pytest.mark.parametrize("count", [1, 2, 1024])
def test_ranges_are_answered_as_they_were_asked_for(files: FileServer, count: int) -> None:
    rng = np.random.default_rng(count)
    starts, lengths = rng.integers(0, len(CONTENT) - 3_000, count), rng.integers(0, 2_900, count)
    ranges = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
    header = "bytes=" + ",".join(f"{first}-{last}" for first, last in ranges)
    answer = files.ask("GET", "/data/large.bin", Range=header)
    assert answer.code == 206
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    parts = [(answer.headers["Content-Range"], answer.body)] if count == 1 else parts_of(answer)
    expected = [(f"bytes {a}-{b}/{len(CONTENT)}", CONTENT[a : b + 1]) for a, b in ranges]
    assert parts == expected


def parts_of(answer: Reply) -> list[tuple[str, bytes]]:
    """The places and the bytes of an answer with several ranges."""
    boundary = b"\r\n--" + answer.headers["Content-Type"].partition("boundary=")[2].encode()
    parts, rest = [], answer.body
    while rest != boundary + b"--\r\n":
        assert rest.startswith(boundary + b"\r\n")
        head, _, rest = rest[len(boundary) + 2 :].partition(b"\r\n\r\n")
        kind, place = head.decode().split("\r\n")
        assert kind == "Content-Type: application/octet-stream"
        first, last = map(int, re.findall(r"(\d+)-(\d+)/", place)[0])
        parts.append((place.removeprefix("Content-Range: "), rest[: last + 1 - first]))
        rest = rest[last + 1 - first :]
    return parts


def test_ranges_outside_and_floods_of_ranges_are_refused(files: FileServer) -> None:
    beyond = files.ask("GET", "/data/large.bin", Range=f"bytes={len(CONTENT)}-")
    assert (beyond.code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")
    assert files.ask("GET", "/data/empty", Range="bytes=0-9").code == 416
    assert files.ask("GET", "/data/empty").body == b""
    many = files.ask("GET", "/data/large.bin", Range="bytes=" + ",".join(["0-9"] * 5_000))
    assert many.code == 400
    assert b"more than 4096 ranges" in many.body
    again = files.ask("GET", "/data/large.bin", Range="bytes=0-,0-,0-")
    assert again.code == 400
    assert files.ask("GET", "/data/large.bin", Range="bytes=9-5").body == CONTENT


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/data/../../etc/passwd", 403),
        ("/data/%2e%2e/%2e%2e/etc/passwd", 403),
        ("/data/a%00b", 400),
        ("/data/none", 404),
        ("/none", 404),
        ("/data/large.bin/x", 404),
        ("/data/" + "n" * 300, 400),
        ("/lhc.fed/catalogue.db", 404),
        ("/lhc.fed/.journals/x", 404),
    ],
)
def test_paths_that_lead_nowhere_are_errors(files: FileServer, path: str, code: int) -> None:
    answer = files.ask("GET", path)
    assert answer.code == code
    assert "error" in json.loads(answer.body)


def test_digests_are_those_of_the_bytes(files: FileServer) -> None:
    adler = f"adler32={zlib.adler32(CONTENT):08x}"
    assert files.ask("HEAD", "/data/large.bin", Want_Digest="adler32").headers["Digest"] == adler
    wanted = files.ask("GET", "/data/large.bin", Want_Digest="sha-512;q=1, md5;q=0.5, adler32;q=0.3")
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).digest()
    assert wanted.headers["Digest"] == "md5=" + base64.b64encode(md5).decode()
    assert "Digest" not in files.ask("HEAD", "/data/large.bin", Want_Digest="sha-512").headers


def test_folders_are_pages_and_json(files: FileServer) -> None:
    page = files.ask("GET", "/data/below")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b'href="/data/below/a%20%26%20%3Cb%3E%20%C3%BC.txt">a &amp; &lt;b&gt; \xc3\xbc.txt<' in page.body
    listed = json.loads(files.ask("GET", "/lhc.fed/@1/", Accept="application/json").body)
    assert [(each["name"], each["kind"]) for each in listed] == [("run7.root", "file")]
    assert listed[0]["size"] == int(files.ask("HEAD", "/lhc.fed/@1/run7.root").headers["Content-Length"])
    assert b'href="/data/large.bin"' in files.ask("GET", "//data/").body
    assert b'href="/lhc.fed/run7.root?fb.csn=1"' in files.ask("GET", "/lhc.fed/?fb.csn=1").body
    for path in ("/data/large.bin", "/lhc.fed/run7.root", "/lhc.fed/@1/run7.root"):
        tag = files.ask("HEAD", path).headers["ETag"].replace('"', "&quot;")
        folder = path.rpartition("/")[0]
        for asked in (path, folder):
            found = files.ask("PROPFIND", asked, Depth="1")
            assert found.code == 207
            assert f"<D:getetag>{tag}</D:getetag>" in found.body.decode()
    assert files.ask("PROPFIND", "/data/", Depth="infinity").code == 403


def test_scripts_of_other_sites_read_only_if_the_server_allows_it(files: FileServer, tmp_path: Path) -> None:
    asked = files.ask("OPTIONS", "/data/large.bin", Origin="https://root.cern")
    assert asked.code == 204
    assert asked.headers["Access-Control-Allow-Origin"] == "*"
    assert "range" in asked.headers["Access-Control-Allow-Headers"]
    answer = files.ask("GET", "/data/large.bin", Origin="https://root.cern", Range="bytes=0-1,5-6")
    assert "content-range" in answer.headers["Access-Control-Expose-Headers"]
    # A cache gives this answer to scripts, too.
    assert files.ask("GET", "/data/empty").headers["Access-Control-Allow-Origin"] == "*"
    with fb.serve(tmp_path / "data", port=0, address="127.0.0.1") as server:
        closed = FileServer(server, tmp_path).ask("GET", "/data/empty", Origin="https://root.cern")
    assert closed.code == 200
    assert "Access-Control-Allow-Origin" not in closed.headers


# ---- changing


def test_files_are_stored_renamed_and_removed(files: FileServer) -> None:
    assert files.ask("PUT", "/data/new/deep/file", CONTENT).code == 201
    stored = files.folder / "data" / "new" / "deep" / "file"
    assert stored.read_bytes() == CONTENT
    assert files.ask("PUT", "/data/new/deep/file", b"short").code == 204
    assert stored.read_bytes() == b"short"
    assert files.ask("PUT", "/data/new/deep/file", b"x", If_None_Match="*").code == 412
    tag = files.ask("HEAD", "/data/new/deep/file").headers["ETag"]
    assert files.ask("PUT", "/data/new/deep/file", b"x", If_Match='"other"').code == 412
    assert files.ask("PUT", "/data/new/deep/file", b"longer", If_Match=tag).code == 204
    assert files.ask("PUT", "/data/new/deep/file", b"x", Content_Range="bytes 0-0/9").code == 501
    assert files.ask("PUT", "/data/new", b"x").code == 409
    assert files.ask("MKCOL", "/data/folder").code == 201
    assert files.ask("MKCOL", "/data/folder").code == 405
    assert files.ask("MKCOL", "/data/none/folder").code == 409
    later = "Fri, 31 Dec 9999 23:59:59 GMT"
    assert files.ask("PUT", "/data/new/deep/file", b"longer", If_Modified_Since=later).code == 204
    assert files.ask("MOVE", "/data/new/deep/file", Destination="/data/none/file").code == 409
    assert files.ask("MOVE", "/data/new/deep/file", Destination="/data/new/deep/file").code == 403
    assert files.ask("MOVE", "/data/new/deep/file", Destination="http://other.site/data/x").code == 502
    assert files.ask("MOVE", "/data/none", Destination="/data/empty", Overwrite="F").code == 404
    moved = files.ask("MOVE", "/data/new/deep/file", Destination=files.url("/data/folder/moved"))
    assert moved.code == 201
    assert (files.folder / "data" / "folder" / "moved").read_bytes() == b"longer"
    refused = files.ask("MOVE", "/data/folder/moved", Destination="/data/empty", Overwrite="F")
    assert refused.code == 412
    assert files.ask("MOVE", "/data/folder/moved", Destination="/data/empty").code == 204
    assert files.ask("DELETE", "/data/empty").code == 204
    assert files.ask("DELETE", "/data/empty").code == 404
    assert files.ask("DELETE", "/data/new").code == 409
    assert files.ask("DELETE", "/data/folder").code == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MKCOL", "MOVE"])
def test_federations_are_changed_by_transactions_alone(files: FileServer, method: str) -> None:
    answer = files.ask(method, "/lhc.fed/run7.root", b"" if method == "PUT" else None, Destination="/data/x")
    assert answer.code == 405
    assert b"changed by transactions" in answer.body
    if method == "MOVE":
        assert files.ask("MOVE", "/data/empty", Destination="/lhc.fed/x.root").code == 403


def test_rights_are_those_of_other_protocols(files: FileServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with fb.serve(data, port=0, address="127.0.0.1", anonymous="read") as server:
        reader = FileServer(server, tmp_path)
        assert reader.ask("GET", "/data/empty").code == 200
        for method in ("PUT", "DELETE", "MKCOL"):
            assert reader.ask(method, "/data/other" if method != "DELETE" else "/data/empty").code == 403
        assert reader.ask("GET", "/data/empty", Authorization="Bearer x").code == 401
    with fb.serve(data, port=0, address="127.0.0.1", anonymous="nothing") as server:
        assert FileServer(server, tmp_path).ask("GET", "/data/empty").code in (401, 403)
        assert FileServer(server, tmp_path).ask("PROPFIND", "/data/").code in (401, 403)
    assert not (data / "other").exists()


def begin_upload(files: FileServer, path: str, *headers: str) -> socket.socket:
    """Send the head and the first half of an upload of CONTENT."""
    connection = socket.create_connection(("127.0.0.1", files.server.port))
    lines = [f"PUT {path} HTTP/1.1", "Host: x", f"Content-Length: {len(CONTENT)}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + CONTENT[: len(CONTENT) // 2])
    return connection


def uploads(files: FileServer) -> list[Path]:
    return list((files.folder / "data" / ".femtobarn-uploads").glob("*"))


def wait_for_uploads(files: FileServer, count: int) -> None:
    for _ in range(600):
        if len(uploads(files)) == count:
            return
        sleep(0.05)
    raise AssertionError(f"there are {len(uploads(files))} uploads")


def test_upload_that_is_cut_off_leaves_the_old_file(files: FileServer) -> None:
    with begin_upload(files, "/data/large.bin"):
        wait_for_uploads(files, 1)
        assert files.ask("GET", "/data/.femtobarn-uploads/").code == 404
        assert files.ask("GET", f"/data/.femtobarn-uploads/{uploads(files)[0].name}").code == 404
        assert b"femtobarn-uploads" not in files.ask("GET", "/data/").body
    wait_for_uploads(files, 0)
    assert files.ask("GET", "/data/large.bin").body == CONTENT


def test_conditions_hold_when_the_upload_ends(files: FileServer) -> None:
    with begin_upload(files, "/data/new", "If-None-Match: *") as first:
        wait_for_uploads(files, 1)
        assert files.ask("PUT", "/data/new", b"second", If_None_Match="*").code == 201
        first.sendall(CONTENT[len(CONTENT) // 2 :])
        assert first.recv(100).startswith(b"HTTP/1.1 412 ")
    assert files.ask("GET", "/data/new").body == b"second"
    wait_for_uploads(files, 0)


def test_uploads_of_servers_that_were_killed_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "data" / ".femtobarn-uploads"
    folder.mkdir(parents=True)
    for name, age in (("left", 7200), ("running", 60)):
        (folder / name).write_bytes(b"part")
        os.utime(folder / name, (time() - age, time() - age))
    with fb.serve(tmp_path / "data", port=0, address="127.0.0.1", anonymous="all"):
        assert [path.name for path in folder.iterdir()] == ["running"]


def test_server_that_stops_lets_a_download_end(files: FileServer) -> None:
    with socket.create_connection(("127.0.0.1", files.server.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(b"GET /data/large.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        stopping = threading.Thread(target=files.server.stop)
        received = connection.recv(30_000)
        stopping.start()
        while part := connection.recv(30_000):
            received += part
            sleep(0.01)
        stopping.join(30)
    assert received.endswith(CONTENT)


def test_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path, files: FileServer) -> None:
    with serve(tmp_path, 'faults = ["write:2+=ENOSPC"]', anonymous="all") as server:
        full = FileServer(server, tmp_path)
        assert full.ask("PUT", "/data/large.bin", CONTENT[::-1]).code == 507
        assert full.ask("GET", "/data/large.bin").body == CONTENT
    assert uploads(files) == []


def test_failing_disk_ends_an_answer_instead_of_filling_it_up(tmp_path: Path, files: FileServer) -> None:
    with serve(tmp_path, 'faults = ["read:1+=EIO"]', anonymous="all") as server:
        assert FileServer(server, tmp_path).ask("GET", "/data/large.bin").code == 500
    with (
        serve(tmp_path, 'faults = ["read:4+=EIO"]', anonymous="all") as server,
        pytest.raises(http.client.IncompleteRead),
    ):
        FileServer(server, tmp_path).ask("GET", "/data/large.bin")


# ---- the clients of sites


def test_curl_uploads_resumes_and_removes(files: FileServer, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(CONTENT)
    run("curl", "-sSf", "-T", source, "-H", "Expect: 100-continue", files.url("/data/by-curl"))
    copy.write_bytes(CONTENT[:1_000_000])
    run("curl", "-sSf", "-C", "-", "-o", copy, files.url("/data/by-curl"))
    assert copy.read_bytes() == CONTENT
    run("curl", "-sSf", "-X", "DELETE", files.url("/data/by-curl"))
    assert not (files.folder / "data" / "by-curl").exists()


def test_davix_reads_and_changes_files(files: FileServer, tmp_path: Path) -> None:
    listed = run("davix-ls", "-l", files.url("/data/"))
    assert re.search(r"^-.*\s3000000\s.*large\.bin$", listed, re.MULTILINE)
    assert re.search(r"^d.*below/?$", listed, re.MULTILINE)
    assert "run7.root" in run("davix-ls", files.url("/lhc.fed/@1/"))
    copy = tmp_path / "copy"
    run("davix-get", files.url("/data/large.bin"), copy)
    assert copy.read_bytes() == CONTENT
    run("davix-mkdir", files.url("/data/by-davix"))
    run("davix-put", copy, files.url("/data/by-davix/file"))
    # davix 0.8.4 ends with 255 whether it succeeded or not.
    run("davix-mv", files.url("/data/by-davix/file"), files.url("/data/by-davix/other"), code=255)
    assert (files.folder / "data" / "by-davix" / "other").read_bytes() == CONTENT
    run("davix-rm", files.url("/data/by-davix/other"))
    assert list((files.folder / "data" / "by-davix").iterdir()) == []


def test_gfal_copies_with_checksums(files: FileServer, tmp_path: Path) -> None:
    url = files.url("/data/large.bin")
    assert run("gfal-sum", url, "ADLER32").split()[-1] == f"{zlib.adler32(CONTENT):08x}"
    assert "3000000" in run("gfal-stat", url)
    assert "large.bin" in run("gfal-ls", "-l", files.url("/data/"))
    copy = tmp_path / "copy"
    run("gfal-copy", "-K", "ADLER32", url, f"file://{copy}")
    assert copy.read_bytes() == CONTENT
    run("gfal-copy", "-K", "ADLER32", "-p", f"file://{copy}", files.url("/data/by-gfal/deep/file"))
    assert (files.folder / "data" / "by-gfal" / "deep" / "file").read_bytes() == CONTENT
    run("gfal-rename", files.url("/data/by-gfal/deep/file"), files.url("/data/by-gfal/other"))
    run("gfal-rm", "-r", files.url("/data/by-gfal"))
    assert not (files.folder / "data" / "by-gfal").exists()

"""Files are read over HTTP by clients of every kind: browsers, Python, curl, davix and gfal2."""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import json
import re
import shutil
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import fsspec
import jsroot
import numpy as np
import pytest
import uproot
from file_server import CONTENT, EVENTS, FileServer, Reply, run, served_files

import femtobarn as fb


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileServer]:
    with served_files(tmp_path) as served:
        yield served


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

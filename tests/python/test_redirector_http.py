"""A server without data redirects clients of HTTP to servers that have it: ours, and XRootD's."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copying_servers import certified
from data_servers import DataServer, filled_servers, patient_run, redirector
from file_server import Reply, run
from followed import put, url_of
from server_settings import QUICK_STOP
from waiting import wait_for

import femtobarn as fb

CONTENT = np.random.default_rng(7).bytes(3_000_000)

Pair = tuple[DataServer, DataServer]

LOCAL: dict[str, Any] = {"port": 0, "address": "127.0.0.1"}


@pytest.fixture(params=["ours", "xrootd"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with filled_servers(request.param, tmp_path, CONTENT) as servers:
        yield servers


def url(server: fb.Server, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def ask(server: fb.Server, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
    """The redirector's own answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers, answer.read())


def location_of(server: fb.Server, path: str) -> str:
    """Where a client is sent that reads a file."""
    return str(ask(server, "GET", path).headers["Location"])


def curl(*options: str | Path) -> bytes:
    """The body that curl gets where it is redirected to."""
    command = ["curl", "--silent", "--show-error", "--fail", "--location", *options]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def test_requests_go_to_the_servers_that_have_the_files(pair: Pair) -> None:
    one, two = pair
    with redirector(one.url, two.url) as server:
        for method in ("GET", "HEAD", "PROPFIND", "DELETE"):
            answer = ask(server, method, "/data/two.bin?x.y=%20z&browser=1")
            assert (answer.code, answer.body) == (307, b""), answer
            assert answer.headers["Location"] == f"http://{two.address}/data/two.bin?x.y=%20z&browser=1"
            assert answer.headers["Cache-Control"] == "no-store"
        missing = ask(server, "GET", "/data/none.bin")
        assert missing.code == 404
        assert b'{"error":"no server for /data/none.bin: ' in missing.body
        assert ask(server, "GET", "/elsewhere").code == 404
        assert ask(server, "PATCH", "/data/two.bin").code == 405
        assert "COPY" in ask(server, "OPTIONS", "/data/two.bin").headers["Allow"]
        assert ask(server, "DELETE", "/data/none.bin").code == 404
        # A client is not sent to a server that it has tried in vain.
        for tried, left in ((one, two), (two, one)):
            for _ in range(3):
                answer = ask(server, "GET", f"/data/both.bin?tried={tried.host}")
                assert answer.headers["Location"].startswith(f"http://{left.address}/")
        assert ask(server, "GET", f"/data/one.bin?tried={one.host}").code == 503


def test_a_body_is_not_stored_and_not_asked_for(pair: Pair) -> None:
    with redirector(*(it.url for it in pair)) as server:
        # Without Expect the client sends the body before it looks at the answer.
        answer = ask(server, "PUT", "/data/new.bin", CONTENT)
        assert answer.code == 307
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
            connection.putrequest("PUT", "/data/new.bin")
            connection.putheader("Expect", "100-continue")
            connection.putheader("Content-Length", str(1 << 40))
            connection.endheaders()
            again = connection.getresponse()
            assert (again.status, again.headers["Location"]) == (307, answer.headers["Location"])
        assert not any(it.has("new.bin") for it in pair)


def test_clients_follow(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    source = tmp_path / "new"
    source.write_bytes(CONTENT)
    with redirector(one.url, two.url) as server:
        assert curl(url(server, "/data/two.bin")) == b"two.bin"
        assert (
            curl("--range", "2000000-2000999", url(server, "/data/both.bin")) == CONTENT[2_000_000:2_001_000]
        )
        for name, more in (("a.bin", ()), ("b.bin", ("--header", "Expect:"))):
            curl("--upload-file", source, *more, url(server, f"/data/{name}"))
            assert sum(it.has(name) for it in pair) == 1
            assert curl(url(server, f"/data/{name}")) == CONTENT
        # It is changed where it is.
        curl("--upload-file", source, url(server, "/data/two.bin"))
        assert (two.folder / "two.bin").read_bytes() == CONTENT
        assert not one.has("two.bin")
        curl("--request", "MKCOL", url(server, "/data/sub"))
        assert sum(it.has("sub") for it in pair) == 1
        curl("--request", "DELETE", url(server, "/data/two.bin"))
        assert not two.has("two.bin")
        # The client names the new place as it knows it.
        for to in (url(server, "/data/moved.bin"), url(server, "/data/again.bin")):
            name = "one.bin" if to.endswith("moved.bin") else "moved.bin"
            curl("--request", "MOVE", "--header", f"Destination: {to}", url(server, f"/data/{name}"))
            assert one.has(Path(to).name)
            assert not one.has(name)
        other = ("--header", "Destination: http://elsewhere/data/x", url(server, "/data/again.bin"))
        with pytest.raises(subprocess.CalledProcessError, match="22"):
            curl("--request", "MOVE", *other)


def test_grid_clients_follow(pair: Pair, tmp_path: Path) -> None:
    source, copy = tmp_path / "new", tmp_path / "copy"
    source.write_bytes(CONTENT)
    with redirector(*(it.url for it in pair)) as server:
        dav = url(server, "/data/davix.bin")
        run("davix-put", source, dav)
        assert sum(it.has("davix.bin") for it in pair) == 1
        run("davix-get", dav, copy)
        assert copy.read_bytes() == CONTENT
        run("davix-rm", dav)
        assert not any(it.has("davix.bin") for it in pair)
        grid = url(server, "/data/gfal.bin").replace("http://", "dav://")
        run("gfal-copy", source.as_uri(), grid)
        run("gfal-copy", "--force", grid, copy.as_uri())
        assert copy.read_bytes() == CONTENT


def test_python_follows(pair: Pair) -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with redirector(*(it.url for it in pair)) as server:
        files = fsspec.filesystem("http")
        assert files.cat(url(server, "/data/two.bin")) == b"two.bin"
        with files.open(url(server, "/data/both.bin"), block_size=100_000) as file:
            file.seek(1_000_000)
            assert file.read(1000) == CONTENT[1_000_000:1_001_000]


def test_servers_near_the_client_are_preferred(pair: Pair, tmp_path: Path) -> None:
    one, two = pair
    config = tmp_path / "near.toml"
    near = f'[[redirect.near]]\nclients = ["127.0.0.0/8"]\nservers = ["{two.host}"]'
    config.write_text(f"{QUICK_STOP.read_text()}\n{near}\n")
    with fb.serve(redirect_to=[one.url, two.url], config=config, **LOCAL) as server:
        wait_for(lambda: all(it["is_up"] for it in server.status()["data_servers"]))
        for _ in range(5):
            assert curl(url(server, "/data/both.bin")) == CONTENT
            patient_run("xrdcp", "-f", f"root://127.0.0.1:{server.port}//data/both.bin", tmp_path / "copy")
        # On a loaded machine a server that is near may be late for a moment.
        elsewhere, near_by = (it["redirects"] for it in server.status()["data_servers"])
        assert elsewhere + near_by == 10
        assert near_by > 5
        assert curl(url(server, "/data/one.bin")) == b"one.bin"
        two.stop()
        # It is late long before it is down.
        wait_for(lambda: f"http://{one.address}/" in location_of(server, "/data/both.bin"))
        assert all(it["is_up"] for it in server.status()["data_servers"])
        two.go_on()
        wait_for(lambda: f"http://{two.address}/" in location_of(server, "/data/both.bin"))


# The name of a folder or a database may begin as that of a snapshot does.
@pytest.mark.parametrize("folder", ["/store", "/store/@x"])
def test_snapshots_go_along(tmp_path: Path, folder: str) -> None:
    with (
        fb.create(tmp_path / "lhc.fed") as fed,
        fb.serve(f"{fed.path}={folder}/lhc.fed", port=0, address="127.0.0.1", config=QUICK_STOP) as one,
        redirector(f"root://127.0.0.1:{one.port}//store") as server,
    ):
        for count in (500, 7):
            put(fed, "run1/hits", count)
        put(fed, "@run2/hits", 7)
        fed.tag("winter", csn=1)
        first = curl(f"http://127.0.0.1:{one.port}{folder}/lhc.fed/run1.root?fb.csn=1")
        for path in ("@1/run1.root", "@winter/run1.root", "run1.root?fb.csn=1", "run1.root?fb.tag=winter"):
            assert curl(url(server, f"{folder}/lhc.fed/{path}")) == first
        assert curl(url(server, f"{folder}/lhc.fed/run1.root")) != first
        assert curl(url(server, f"{folder}/lhc.fed/@3/@run2.root")).startswith(b"root")
        assert ask(server, "GET", f"{folder}/lhc.fed/@9/run1.root").code == 404
        assert ask(server, "GET", f"{folder}/lhc.fed/@1/run1.root?fb.csn=1").code in {400, 404}
        assert url_of(one).endswith(f"/{folder}/lhc.fed")


def with_tls(folder: Path, setting: str = "") -> tuple[Path, Path]:
    """The configuration of servers with TLS, and the authority that signed their certificate."""
    certificate, key, authority = certified(folder)
    config = folder / "tls.toml"
    tls = f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"'
    config.write_text(f"{QUICK_STOP.read_text()}\n{tls}\n{setting}\n")
    return config, authority


def test_clients_with_tls_are_redirected_with_tls(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config, authority = with_tls(tmp_path)
    with (
        fb.serve(tmp_path / "data", anonymous="all", config=config, **LOCAL) as one,
        fb.serve(redirect_to=[f"root://127.0.0.1:{one.port}//data"], config=config, **LOCAL) as server,
    ):
        wait_for(lambda: server.status()["data_servers"][0]["is_up"])
        source = tmp_path / "new"
        source.write_bytes(CONTENT)
        for scheme, trust in (("https", ("--cacert", authority)), ("http", ())):
            there = f"{scheme}://127.0.0.1:{server.port}/data/{scheme}.bin"
            curl(*trust, "--upload-file", source, there)
            assert curl(*trust, there) == CONTENT
            told = run("curl", "--silent", "--head", *trust, there)
            assert f"location: {scheme}://127.0.0.1:{one.port}/data/{scheme}.bin" in told.lower()


def test_third_party_copies_are_made_by_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old.bin").write_bytes(CONTENT)
    config, authority = with_tls(tmp_path, '[copy]\nhosts = ["127.0.0.0/8"]')
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with (
        fb.serve(tmp_path / "data", anonymous="all", config=config, **LOCAL) as one,
        fb.serve(redirect_to=[f"roots://127.0.0.1:{one.port}//data"], config=config, **LOCAL) as server,
    ):
        wait_for(lambda: server.status()["data_servers"][0]["is_up"])
        here = f"https://127.0.0.1:{server.port}/data"
        for header, to, at in (("Source", "old", "pulled"), ("Destination", "pushed", "old")):
            order = ("--header", f"{header}: {here}/{to}.bin", f"{here}/{at}.bin")
            told = curl("--cacert", authority, "--request", "COPY", *order)
            assert b"success: Created" in told, told
        for name in ("pulled", "pushed"):
            assert (tmp_path / "data" / f"{name}.bin").read_bytes() == CONTENT

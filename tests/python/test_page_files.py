"""The files of the server's pages: compressed for clients that take gzip, and the same for all others."""

from __future__ import annotations

import gzip
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path

import pytest
from server_settings import QUICK_STOP

import femtobarn as fb

PAGES = Path(__file__).resolve().parents[2] / "crates/femtobarn-server/src/protocol/http/pages"
NAMES = sorted(file.name for file in PAGES.iterdir() if file.suffix in (".js", ".css", ".svg", ".wasm"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.Server]:
    folder = tmp_path_factory.mktemp("pages")
    with fb.serve(folder, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
        yield server


def got(server: fb.Server, path: str, taken: str | None) -> tuple[bytes, HTTPMessage]:
    headers = {} if taken is None else {"Accept-Encoding": taken}
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_compressed_for_clients_that_take_it(server: fb.Server, name: str) -> None:
    try:
        plain, headers = got(server, f"pages/{name}", None)
    except urllib.error.HTTPError as missing:
        missing.close()
        assert name == "inside.wasm"
        pytest.skip("the server was built without the target wasm32-unknown-unknown")
    assert headers["content-encoding"] is None
    assert headers["vary"] == "accept-encoding"
    packed, headers = got(server, f"pages/{name}", "br, GZIP;q=0.5")
    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "accept-encoding"
    assert gzip.decompress(packed) == plain == (PAGES / name).read_bytes()
    assert len(packed) < len(plain)


@pytest.mark.parametrize("path", ["", "catalogue"])
def test_pages_are_compressed_and_name_files_that_there_are(server: fb.Server, path: str) -> None:
    plain, _ = got(server, path, None)
    packed, headers = got(server, path, "gzip")
    assert gzip.decompress(packed) == plain
    assert headers["content-security-policy"] == "default-src 'self'"
    assert set(re.findall(r'"pages/([^"]*)"', plain.decode())) <= set(NAMES)


@pytest.mark.parametrize("taken", ["gzip;q=0", "identity", "br;q=1, gzip; q=0.0", "gzipped", ""])
def test_clients_that_take_no_gzip_get_plain_files(server: fb.Server, taken: str) -> None:
    content, headers = got(server, "pages/style.css", taken)
    assert headers["content-encoding"] is None
    assert content == (PAGES / "style.css").read_bytes()

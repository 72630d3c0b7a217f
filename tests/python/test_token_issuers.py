"""Keys of token issuers that a server fetches from them, and clients with such tokens."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from threading import Event, Thread
from time import monotonic, sleep

import pytest
from copying_servers import certified
from file_server import FileServer
from followed import put
from other_server import Server
from test_http_copies import token_and_keys
from test_serving import tool

import femtobarn as fb

METADATA = "/.well-known/openid-configuration"


class Issuer:
    """An issuer of tokens with a server over TLS, and what the server was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.metadata: dict[str, str] = {}
        self.keys: list[dict[str, str]] = []
        self.is_up = True
        self.go_on = Event()
        """It answers nothing before."""
        self.go_on.set()

    def answer(self, path: str) -> object | None:
        self.asked.append(path)
        self.go_on.wait(60)
        return {METADATA: self.metadata, "/keys": {"keys": self.keys}}.get(path) if self.is_up else None


class Handler(BaseHTTPRequestHandler):
    issuer: Issuer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        found = self.issuer.answer(self.path)
        text = json.dumps(found).encode()
        self.send_response(503 if found is None else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def issuing(certificate: Path, key: Path) -> Iterator[Issuer]:
    issuer = Issuer()
    with Server(("127.0.0.1", 0), type("IssuerHandler", (Handler,), {"issuer": issuer})) as server:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        issuer.url = f"https://localhost:{server.server_port}"
        issuer.metadata = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield issuer
        server.shutdown()
        thread.join(30)


def settings(folder: Path, certificate: Path, key: Path, issuer: Issuer) -> Path:
    there = folder / "server.toml"
    there.write_text(
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n[limits]\ndrain_seconds = 0\n'
        f'[auth]\naudiences = ["copies"]\n[[auth.issuer]]\nissuer = "{issuer.url}"\n'
    )
    return there


def until_answered(server: FileServer, code: int, token: str) -> None:
    """Ask until the answer is this one, as when keys are on their way."""
    end = monotonic() + 60
    while server.ask("GET", "/lhc.fed/", Authorization=f"Bearer {token}").code != code:
        assert monotonic() < end
        sleep(0.05)


@pytest.mark.judge
def test_keys_are_fetched_from_the_issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, root = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    monkeypatch.setenv("X509_CERT_DIR", str(root.parent))
    fb.create(tmp_path / "lhc.fed").close()
    scope = "storage.read:/ storage.modify:/lhc.fed"
    with issuing(certificate, key) as issuer:
        old, keys = token_and_keys(tmp_path, scope, issuer.url, "first")
        issuer.keys = json.loads(keys.read_text())["keys"]
        config = settings(tmp_path, certificate, key, issuer)
        with fb.serve(tmp_path / "lhc.fed", port=0, address="127.0.0.1", config=config) as server:
            over_http = FileServer(server, tmp_path, root)
            assert over_http.ask("GET", "/lhc.fed/", Authorization=f"Bearer {old}").code == 200
            # Anonymous clients may only read here: the token counts in the catalogue and for files.
            monkeypatch.setenv("BEARER_TOKEN", old)
            url = f"roots://localhost:{server.port}"
            with fb.open(f"{url}//lhc.fed") as federation:
                put(federation, "run1/hits", 100_000)
                assert len(federation["run1/hits"]) == 100_000
            listed = subprocess.run(
                [tool("xrdfs"), url, "ls", "/lhc.fed"], check=True, capture_output=True, text=True
            )
            assert "/lhc.fed/run1.root" in listed.stdout
            assert issuer.asked == [METADATA, "/keys"]

            new, keys = token_and_keys(tmp_path, scope, issuer.url, "second")
            issuer.keys += json.loads(keys.read_text())["keys"]
            until_answered(over_http, 401, new)
            assert len(issuer.asked) == 2, "keys are fetched once a minute at most"
            server.reload()
            until_answered(over_http, 200, new)
            assert over_http.ask("GET", "/lhc.fed/", Authorization=f"Bearer {old}").code == 200
            issuer.is_up = False
            server.reload()
            while len(issuer.asked) < 5:
                sleep(0.01)
            until_answered(over_http, 200, new)


@pytest.mark.judge
def test_clients_wait_for_keys_that_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, root = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    fb.create(tmp_path / "lhc.fed").close()
    with issuing(certificate, key) as issuer, ThreadPoolExecutor() as pool:
        token, keys = token_and_keys(tmp_path, "storage.read:/", issuer.url, "first")
        monkeypatch.setenv("BEARER_TOKEN", token)
        issuer.keys = json.loads(keys.read_text())["keys"]
        issuer.go_on.clear()
        config = settings(tmp_path, certificate, key, issuer)
        with fb.serve(
            tmp_path / "lhc.fed", port=0, address="127.0.0.1", anonymous="nothing", config=config
        ) as server:
            over_http = FileServer(server, tmp_path, root)
            bearer = f"Bearer {token}"
            asked = [pool.submit(over_http.ask, "GET", "/lhc.fed/", Authorization=bearer) for _ in range(3)]
            opened = pool.submit(fb.open, f"roots://localhost:{server.port}//lhc.fed")
            while not issuer.asked:
                sleep(0.01)
            sleep(0.2)
            assert not any(each.done() for each in asked)
            assert not opened.done()
            issuer.go_on.set()
            assert [each.result().code for each in asked] == [200, 200, 200]
            opened.result().close()
            assert issuer.asked == [METADATA, "/keys"]


@pytest.mark.judge
def test_keys_are_not_fetched_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, root = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    fb.create(tmp_path / "lhc.fed").close()
    with issuing(certificate, key) as issuer:
        token, keys = token_and_keys(tmp_path, "storage.read:/", issuer.url, "first")
        issuer.keys = json.loads(keys.read_text())["keys"]
        config = settings(tmp_path, certificate, key, issuer)
        good = dict(issuer.metadata)
        for wrong in (
            {"jwks_uri": issuer.url.replace("localhost", "127.0.0.1") + "/keys"},
            {"jwks_uri": issuer.url.replace("https", "http") + "/keys"},
            {"jwks_uri": f"{issuer.url}/none"},
            {"issuer": "https://issuer.example"},
        ):
            issuer.metadata = good | wrong
            with fb.serve(tmp_path / "lhc.fed", port=0, address="127.0.0.1", config=config) as server:
                over_http = FileServer(server, tmp_path, root)
                answer = over_http.ask("GET", "/lhc.fed/", Authorization=f"Bearer {token}")
                assert answer.code == 401
                assert b"could not be fetched" in answer.body
        assert "/keys" not in issuer.asked

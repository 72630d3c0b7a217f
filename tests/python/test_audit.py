"""The audit log of a server: changes by clients of all protocols, each with who made it and from where."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from copying_servers import certified
from file_server import FileServer
from followed import put
from test_http_copies import ISSUER, token_and_keys
from test_serving import tool

import femtobarn as fb

pytestmark = pytest.mark.judge


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_changes_by_real_clients_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, root = certified(tmp_path)
    scope = "storage.read:/ storage.modify:/store storage.modify:/lhc.fed"
    token, keys = token_and_keys(tmp_path, scope)
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    monkeypatch.setenv("X509_CERT_DIR", str(root.parent))
    monkeypatch.setenv("BEARER_TOKEN", token)
    log, settings = tmp_path / "audit.log", tmp_path / "server.toml"
    settings.write_text(
        f'[audit]\nfile = "{log}"\n[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'[limits]\ndrain_seconds = 0\n[auth]\naudiences = ["copies"]\n'
        f'[[auth.issuer]]\nissuer = "{ISSUER}"\nkeys = "{keys}"\n'
    )
    (tmp_path / "store").mkdir()
    (tmp_path / "raw").write_bytes(b"raw")
    fb.create(tmp_path / "lhc.fed").close()
    with fb.serve(
        tmp_path / "lhc.fed",
        tmp_path / "store",
        port=0,
        address="127.0.0.1",
        anonymous="nothing",
        config=settings,
    ) as server:
        top = f"roots://localhost:{server.port}/"
        named = f"{top}/store/raw?authz=Bearer%20{token}"
        subprocess.run([tool("xrdcp"), "--silent", tmp_path / "raw", named], check=True)
        over_http, bearer = FileServer(server, tmp_path, root), f"Bearer {token}"
        assert over_http.ask("PUT", "/store/put", b"put", Authorization=bearer).code == 201
        assert over_http.ask("DELETE", "/store/put").code == 401
        with fb.open(f"{top}/lhc.fed") as federation:
            head = put(federation, "run1/hits", 10)
        log.rename(tmp_path / "audit.log.1")
        server.reload()
        assert over_http.ask("DELETE", "/store/put", Authorization=bearer).code == 204
    text = (tmp_path / "audit.log.1").read_text()
    assert token.split(".")[2] not in text, "a token is in the log"
    lines = lines_of(tmp_path / "audit.log.1")
    assert [(line["protocol"], line["what"], line["path"], line["outcome"]) for line in lines[:3]] == [
        ("root", "upload", "/store/raw", "done"),
        ("http", "upload", "/store/put", "done"),
        ("http", "remove", "/store/put", "denied"),
    ]
    assert [line.get("how") for line in lines[:3]] == ["token", "token", None]
    commits = [line for line in lines if line["what"] == "commit"]
    assert commits, lines
    assert commits[-1]["csn"] == head
    assert [name for line in commits for name in line.get("creates", [])] == ["run1"]
    for line in lines:
        assert line["from"] == "127.0.0.1"
        assert line is lines[2] or (line["user"], line["issuer"]) == ("transfers", ISSUER)
    after = lines_of(log)
    assert [(line["what"], line["outcome"]) for line in after] == [("remove", "done")]

"""The command `doctor` with a federation at a server: rights, state, certificate and token."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copying_servers import certified
from server_settings import QUICK_STOP
from waiting import free_port

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main
from femtobarn.cli.doctor.federation_server import look_at_server
from femtobarn.cli.doctor.finding import Finding
from femtobarn.cli.doctor.tokens import look_at_token


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return fb.create(tmp_path / "lhc.fed").path


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BEARER_TOKEN", raising=False)
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(tmp_path / "token"))


def by_subject(findings: Iterator[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def token(seconds: float) -> str:
    """A token that ends after so many seconds, without a signature."""
    claims = json.dumps({"exp": time.time() + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.signature"


def test_doctor_lists_the_servers_version_and_rights(folder: str) -> None:
    with fb.serve(folder, port=0, address="127.0.0.1") as server:
        found = by_subject(look_at_server(server.url("/lhc.fed")))
    assert {"federation", "latency", "locks", "space"} <= found.keys()
    assert found["server"].fact.startswith(f"femtobarn {fb.__version__}, up for")
    assert (found["rights"].verdict, "read-only" in found["rights"].fact) == ("note", True)
    with fb.serve(folder, port=0, address="127.0.0.1", anonymous="all") as server:
        found = by_subject(look_at_server(server.url("/lhc.fed")))
    assert found["rights"].fact == "this user may read and write"


def test_a_federation_that_a_server_lacks_is_not_found(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with fb.serve(folder, port=0, address="127.0.0.1") as server:
        assert main(["doctor", server.url("/lch.fed")]) == EXIT_CODES["not-found"]
    assert "it serves /lhc.fed" in capsys.readouterr().out


def test_a_server_that_does_not_answer_is_unavailable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"root://127.0.0.1:{free_port()}//lhc.fed"]) == EXIT_CODES["unavailable"]
    assert "is femtobarn serve running there?" in capsys.readouterr().out


def test_a_copy_that_follows_is_listed(folder: str, tmp_path: Path) -> None:
    with fb.serve(folder, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
        url = server.url("/lhc.fed")
        with fb.follow(url, tmp_path / "copy.fed", name="at site B") as follower:
            follower.catch_up()
            found = by_subject(look_at_server(url))
    assert found["follower"].fact == "at site B lacks 0 of the commits"


def test_certificates_are_looked_at(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, authority = certified(tmp_path)
    config = tmp_path / "tls.toml"
    config.write_text(f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n{QUICK_STOP.read_text()}')
    with fb.serve(folder, port=0, address="127.0.0.1", config=config) as server:
        url = f"roots://localhost:{server.port}//lhc.fed"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        untrusted = by_subject(look_at_server(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        trusted = by_subject(look_at_server(url))
    assert (untrusted["TLS"].kind, "not trusted" in untrusted["TLS"].fact) == ("unavailable", True)
    assert trusted["TLS"].verdict == "note"  # it ends in two days
    assert "TLSv1.3, a certificate that ends in" in trusted["TLS"].fact
    assert {"federation", "server"} <= trusted.keys()


def test_the_end_of_a_token_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(token(3 * 86400 + 3600))
    (good,) = look_at_token(is_secure=True)
    assert (good.verdict, good.fact) == ("ok", f"that of {tmp_path / 'token'} ends in 3 d")
    monkeypatch.setenv("BEARER_TOKEN", token(-10 * 86400))
    (ended,) = look_at_token(is_secure=True)
    assert (ended.kind, ended.fact) == ("denied", "that of BEARER_TOKEN ended 10 d ago")
    (unsent,) = look_at_token(is_secure=False)
    assert (unsent.verdict, unsent.remedy) == ("note", "open the federation as roots://")
    monkeypatch.setenv("BEARER_TOKEN", "no token")
    (opaque,) = look_at_token(is_secure=True)
    assert (opaque.verdict, opaque.fact) == ("note", "that of BEARER_TOKEN does not say when it ends")

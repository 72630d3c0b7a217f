"""Files are copied between servers without passing through the client (COPY), completely or not at all."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import sleep, time

import pytest
from copying_servers import Site, certified, copying, has_begun, left, xrootd
from file_server import CONTENT, FileServer, Reply, run, served_files
from other_server import OtherServer, other_server

import femtobarn as fb


@pytest.fixture
def near(tmp_path: Path) -> Iterator[FileServer]:
    with copying(tmp_path / "near") as served:
        yield served


@pytest.fixture
def other() -> Iterator[OtherServer]:
    with other_server(CONTENT) as served:
        yield served


def copy(server: FileServer, path: str, **headers: str) -> Reply:
    """Ask a server for a copy."""
    return server.ask("COPY", path, None, **headers)


def outcome(answer: Reply) -> str:
    """The last line of a copy's answer, whose other lines are markers."""
    assert answer.code == 202, answer.body
    assert answer.headers["Content-Type"] == "text/perf-marker-stream"
    *markers, last = answer.body.decode().splitlines()
    form = (
        "(Perf Marker\n    Timestamp: [0-9]+\n    Stripe Index: 0\n"
        "    Stripe Bytes Transferred: [0-9]+\n    Total Stripe Count: 1\nEnd\n)+"
    )
    assert re.fullmatch(form, "\n".join([*markers, ""]))
    return last


def test_files_are_pulled_and_pushed_between_two_servers(tmp_path: Path, near: FileServer) -> None:
    with served_files(tmp_path) as far:
        source = far.url("/data/large.bin")
        assert outcome(copy(near, "/data/new/pulled", Source=source)) == "success: Created"
        assert outcome(copy(near, "/data/empty", Source=far.url("/data/empty"))) == "success: Created"
        there = far.url("/data/deep/pushed")
        pushed = copy(near, "/data/new/pulled", Destination=there, RequireChecksumVerification="true")
        assert outcome(pushed) == "success: Created"
        assert (far.folder / "data/deep/pushed").read_bytes() == CONTENT
        old = far.url("/lhc.fed/@1/run7.root")
        assert outcome(copy(near, "/data/old.root", Source=old)) == "success: Created"
        assert (near.folder / "data/old.root").read_bytes() == far.ask("GET", "/lhc.fed/@1/run7.root").body
        assert copy(far, "/data/x", Source=near.url("/data/old.root")).code == 405
        assert "COPY" not in far.ask("OPTIONS", "/data/x").headers["Allow"]
    assert (near.folder / "data/new/pulled").read_bytes() == CONTENT
    assert left(near) == ["empty", "new/pulled", "old.root"]
    assert "COPY" in near.ask("OPTIONS", "/data/x").headers["Allow"]


def test_databases_are_pushed_and_never_pulled(tmp_path: Path, near: FileServer) -> None:
    with served_files(tmp_path):
        pass
    fed = tmp_path / "lhc.fed"
    with fb.serve(fed, port=0, address="127.0.0.1", config=near.folder / "copying.toml") as server:
        far = FileServer(server, tmp_path)
        whole = far.ask("GET", "/lhc.fed/@2/run7.root").body
        answer = copy(far, "/lhc.fed/@2/run7.root", Destination=near.url("/data/run7.root"))
        assert outcome(answer) == "success: Created"
        refused = copy(far, "/lhc.fed/run8.root", Source=near.url("/data/run7.root"))
        assert (refused.code, b"changed by transactions" in refused.body) == (405, True)
    assert (near.folder / "data/run7.root").read_bytes() == whole


def test_a_follower_pushes_its_databases_and_pulls_none(tmp_path: Path, near: FileServer) -> None:
    with served_files(tmp_path) as leader:
        url = leader.server.url("/lhc.fed")
        with fb.follow(url, tmp_path / "copy.fed") as follower:
            follower.catch_up()
            config = near.folder / "copying.toml"
            folder = f"{tmp_path}/copy.fed=/lhc.fed"
            with fb.serve(folder, port=0, address="127.0.0.1", anonymous="all", config=config) as server:
                there = FileServer(server, tmp_path)
                for path in ("/lhc.fed/run7.root", "/lhc.fed/@1/run7.root"):
                    answer = copy(there, path, Destination=near.url("/data/pushed.root"))
                    assert outcome(answer) == "success: Created"
                    whole = leader.ask("GET", path).body
                    assert (near.folder / "data/pushed.root").read_bytes() == whole
                for path in ("/lhc.fed/run7.root", "/lhc.fed/run8.root"):
                    refused = copy(there, path, Source=near.url("/data/pushed.root"))
                    assert (refused.code, b"changed by transactions" in refused.body) == (405, True)
            assert follower.catch_up().is_current
    assert [path.name for path in (tmp_path / "copy.fed/databases").iterdir()] == ["run7.root"]


def test_existing_files_stay_if_the_client_forbids_overwriting(near: FileServer, other: OtherServer) -> None:
    kept = near.folder / "data/kept"
    kept.write_bytes(b"old")
    assert copy(near, "/data/kept", Source=f"{other.url}/x", Overwrite="F").code == 412
    assert kept.read_bytes() == b"old"
    assert outcome(copy(near, "/data/kept", Source=f"{other.url}/x", Overwrite="T")).startswith("succ")
    assert kept.read_bytes() == CONTENT
    refused = copy(near, "/data/kept", Destination=f"{other.url}/x", Overwrite="F")
    assert outcome(refused) == f"failure: {other.url}/x exists already"
    assert other.stored is None
    assert copy(near, "/data/", Source=f"{other.url}/x").code == 409
    assert copy(near, "/data/none", Destination=f"{other.url}/x").code == 404


def test_checksums_of_both_servers_are_compared(near: FileServer, other: OtherServer) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    other.adler32 = "12345678"
    for way in ({"Source": f"{other.url}/x"}, {"Destination": f"{other.url}/x"}):
        path = "/data/pulled" if "Source" in way else "/data/here"
        assert "checksums differ: adler32" in outcome(copy(near, path, **way))
        assert outcome(copy(near, path, **way, RequireChecksumVerification="false")).startswith("succ")
        (near.folder / "data/pulled").unlink(missing_ok=True)
        other.tells_checksums = False
        assert "reports no adler32" in outcome(copy(near, path, **way, RequireChecksumVerification="true"))
        assert left(near) == ["here"]
        assert outcome(copy(near, path, **way)) == "success: Created"
        (near.folder / "data/pulled").unlink(missing_ok=True)
        other.tells_checksums = True


def test_copies_that_fail_leave_nothing(near: FileServer, other: OtherServer) -> None:
    other.cut_at = 1_000_000
    assert " broke off: " in outcome(copy(near, "/data/x", Source=f"{other.url}/x"))
    assert outcome(copy(near, "/data/x", Source=f"{other.url}/none")).endswith("404 Not Found")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
    assert "refused" in outcome(copy(near, "/data/x", Source=nobody))
    assert left(near) == []


def test_pushes_succeed_only_if_all_bytes_are_stored(near: FileServer, other: OtherServer) -> None:
    (near.folder / "data/large").write_bytes(CONTENT * 20)
    there = f"{other.url}/x"
    other.keeps = 7
    for demand in ({}, {"RequireChecksumVerification": "true"}):
        told = outcome(copy(near, "/data/large", Destination=there, **demand))
        assert told.endswith(f"has 7 bytes, but {20 * len(CONTENT)} were sent")
    other.takes = 1_000_000
    told = outcome(copy(near, "/data/large", Destination=there, RequireChecksumVerification="false"))
    assert re.fullmatch(f"failure: {there} answered after only [0-9]+ of {20 * len(CONTENT)} bytes", told)
    sleep(3)
    assert other.unwanted < 10 * len(CONTENT)


def test_copies_end_with_their_client(near: FileServer, other: OtherServer) -> None:
    other.stop_at = 2_000_000
    with socket.create_connection(("127.0.0.1", near.server.port)) as client:
        client.sendall(f"COPY /data/x HTTP/1.1\r\nHost: x\r\nSource: {other.url}/x\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 202 ")
        assert has_begun(near)
        gone = time()
    assert left(near) == []
    assert time() - gone < 8
    other.go_on.set()


def test_orders_that_are_not_understood_or_not_allowed(near: FileServer, tmp_path: Path) -> None:
    source = near.url("/data/x")
    for headers, code in [
        ({}, 400),
        ({"Source": source, "Destination": source}, 400),
        ({"Source": source, "Credential": "gridsite"}, 400),
        ({"Source": source, "TransferHeaderAuthorization": "Bearer x"}, 400),
        ({"Source": source, "TransferHeaderX-Token": "x"}, 400),
        ({"Source": source, "TransferHeaderProxy-Authorization": "x"}, 400),
        ({"Source": "file:///etc/passwd"}, 400),
        ({"Source": "http://192.168.0.1/x"}, 403),
        ({"Source": "http://[::1]/x"}, 403),
    ]:
        assert copy(near, "/data/new", **headers).code == code, headers
    (near.folder / "data/x").write_bytes(CONTENT)
    with copying(tmp_path / "reading", anonymous="read") as reading:
        (reading.folder / "data/x").write_bytes(CONTENT)
        assert copy(reading, "/data/new", Source=source).code == 403
        pushed = copy(reading, "/data/x", Destination=near.url("/data/pushed"))
        assert outcome(pushed) == "success: Created"
        refused = copy(near, "/data/x", Destination=reading.url("/data/pushed"))
        assert outcome(refused).endswith("answers 403 Forbidden")


def test_names_never_lead_to_addresses_that_are_not_public(tmp_path: Path, other: OtherServer) -> None:
    port = other.url.rpartition(":")[2]
    with copying(tmp_path, '[copy]\nhosts = ["*"]\n') as server:
        assert copy(server, "/data/x", Source=f"{other.url}/x").code == 403
        assert copy(server, "/data/x", Source="http://169.254.169.254/latest").code == 403
        named = copy(server, "/data/x", Source=f"http://localhost:{port}/x")
        assert outcome(named).endswith("copy.hosts does not allow localhost")
    with copying(tmp_path, '[copy]\nhosts = ["127.0.0.1", "*.cern.ch"]\n') as server:
        assert outcome(copy(server, "/data/x", Source=f"{other.url}/x")) == "success: Created"
        for place in ("https://127.0.0.2:9/x", "https://[::1]:9/x", "https://10.0.0.1/x"):
            other.redirect = place
            assert "copy.hosts does not allow" in outcome(copy(server, "/data/y", Source=f"{other.url}/x"))
        other.redirect = "file:///etc/passwd"
        assert outcome(copy(server, "/data/y", Source=f"{other.url}/x")).startswith("failure: ")
    assert other.asked
    assert not (tmp_path / "data/y").exists()


def test_redirects_are_followed_before_bytes_are_sent(near: FileServer, other: OtherServer) -> None:
    other.redirect = "/moved"
    assert outcome(copy(near, "/data/x", Source=f"{other.url}/x")) == "success: Created"
    assert outcome(copy(near, "/data/x", Destination=f"{other.url}/x")) == "success: Created"
    assert (other.stored, other.unwanted) == (CONTENT, 0)
    other.redirect = "/again"
    assert "more than 8 times" in outcome(copy(near, "/data/x", Source=f"{other.url}/x"))


# ---- TLS and tokens


@pytest.mark.parametrize("variable", ["X509_CERT_DIR", "SSL_CERT_FILE"])
def test_tokens_go_to_their_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    certificate, key, root = certified(tmp_path)
    monkeypatch.setenv(variable, str(root if variable == "SSL_CERT_FILE" else root.parent))
    setting = f'[copy]\nhosts = ["127.0.0.1"]\n[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    with ExitStack() as stack:
        server = stack.enter_context(copying(tmp_path, setting))
        first, second = (stack.enter_context(other_server(CONTENT, (certificate, key))) for _ in range(2))
        token = {"TransferHeaderAuthorization": "Bearer secret", "TransferHeaderX-Run": "7"}
        assert copy(server, "/data/x", Source=f"{first.url}/x", **token).code == 401
        server.certificate = root
        copied = copy(server, "/data/x", Source=f"{first.url}/x?authz=secret", Credential="none", **token)
        assert outcome(copied) == "success: Created"
        assert [(method, headers["Authorization"], headers["X-Run"]) for method, headers in first.asked] == [
            ("GET", "Bearer secret", "7"),
            ("HEAD", "Bearer secret", "7"),
        ]
        first.redirect = f"{second.url}/moved"
        assert outcome(copy(server, "/data/x", Source=f"{first.url}/x", **token)) == "success: Created"
        assert all(headers["Authorization"] is None for _, headers in second.asked)
        first.redirect = "http://127.0.0.1:9/x"
        assert "has no TLS" in outcome(copy(server, "/data/y", Source=f"{first.url}/x"))
        assert copy(server, "/data/y", Source="http://127.0.0.1:9/x").code == 403
        first.redirect = None
        untrusted = copy(server, "/data/y", Source=first.url.replace("localhost", "127.0.0.3") + "/x")
        assert untrusted.code == 403


ISSUER = "https://issuer.example"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token_and_keys(
    folder: Path, scope: str, issuer: str = ISSUER, key_id: str | None = None
) -> tuple[str, Path]:
    """A bearer token, and the file with the keys of its issuer."""
    key, keys, claims = (folder / name for name in ("issuer.key", "issuer.jwks", "claims"))
    run("openssl", "genrsa", "-out", key, "2048")
    modulus = run("openssl", "rsa", "-in", key, "-noout", "-modulus").strip().partition("=")[2]
    named = {} if key_id is None else {"kid": key_id}
    public = {"kty": "RSA", "alg": "RS256", "n": base64url(bytes.fromhex(modulus)), "e": "AQAB", **named}
    keys.write_text(json.dumps({"keys": [public]}))
    told = {"iss": issuer, "sub": "transfers", "aud": "copies", "exp": int(time()) + 600, "scope": scope}
    parts = [base64url(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", **named}, told)]
    claims.write_text(".".join(parts))
    run("openssl", "dgst", "-sha256", "-sign", key, "-out", folder / "signature", claims)
    return ".".join([*parts, base64url((folder / "signature").read_bytes())]), keys


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_gfal_copies_between_closed_servers_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    certificate, key, root = certified(tmp_path)
    token, keys = token_and_keys(tmp_path, "storage.read:/data storage.modify:/data")
    monkeypatch.setenv("X509_CERT_DIR", str(root.parent))
    monkeypatch.setenv("BEARER_TOKEN", token)
    setting = (
        f'[copy]\nhosts = ["127.0.0.1"]\n[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'[auth]\naudiences = ["copies"]\n[[auth.issuer]]\nissuer = "{ISSUER}"\nkeys = "{keys}"\n'
    )
    with (
        copying(tmp_path / "one", setting, anonymous="nothing") as one,
        copying(tmp_path / "two", setting, anonymous="nothing") as two,
    ):
        (one.folder / "data/here").write_bytes(CONTENT)
        top = "https://localhost:{}/data/".format
        gfal_copy(mode, top(one.server.port) + "here", top(two.server.port) + "there")
        assert (two.folder / "data/there").read_bytes() == CONTENT


# ---- the clients of sites, and XRootD's server


def gfal_copy(mode: str, source: str, destination: str) -> None:
    """Copy with checksums, and never through the client."""
    options = [f"HTTP PLUGIN:{name}=false" for name in ("ENABLE_STREAM_COPY", "ENABLE_FALLBACK_TPC_COPY")]
    run("gfal-copy", "-f", "-K", "ADLER32", "--copy-mode", mode, "-D", options[0], "-D", options[1],
        source, destination)  # fmt: skip


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_gfal_copies_between_two_servers(near: FileServer, tmp_path: Path, mode: str) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    with copying(tmp_path / "far") as far:
        gfal_copy(mode, near.url("/data/here"), far.url("/data/there"))
        assert (far.folder / "data/there").read_bytes() == CONTENT


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_davix_copies_between_two_servers(near: FileServer, tmp_path: Path, mode: str) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    with copying(tmp_path / "far") as far:
        run("davix-cp", "--copy-mode", mode, near.url("/data/here"), far.url("/data/there"))
        assert (far.folder / "data/there").read_bytes() == CONTENT


@pytest.mark.parametrize("mode", ["pull", "push"])
@pytest.mark.parametrize("direction", ["to XRootD", "from XRootD"])
def test_gfal_copies_between_xrootd_and_us(near: FileServer, mode: str, direction: str) -> None:
    with xrootd() as far:
        ours: FileServer | Site = near
        source, destination = (ours, far) if direction == "to XRootD" else (far, ours)
        (source.folder / "data/here").write_bytes(CONTENT)
        gfal_copy(mode, source.url("/data/here"), destination.url("/data/there"))
        assert (destination.folder / "data/there").read_bytes() == CONTENT


def test_curl_asks_for_a_copy_with_a_checksum_from_xrootd(near: FileServer) -> None:
    with xrootd() as far:
        (far.folder / "data/here").write_bytes(CONTENT)
        order = ["-H", f"Source: {far.url('/data/here')}", "-H", "RequireChecksumVerification: true"]
        told = run("curl", "-sSf", "-X", "COPY", *order, near.url("/data/there"))
    assert told.endswith("End\nsuccess: Created\n")
    assert (near.folder / "data/there").read_bytes() == CONTENT

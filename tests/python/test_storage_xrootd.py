"""Databases in a store on a server that speaks XRootD's protocol: ours, and XRootD's."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import uproot
from copying_servers import certified
from data_servers import DataServer, data_servers
from stored_points import VALUES, fill, is_right
from test_http_copies import ISSUER, token_and_keys

import femtobarn as fb


@pytest.fixture(params=["ours", "xrootd"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DataServer]:
    """A server with an empty folder for a store."""
    with data_servers(request.param, tmp_path / "site") as (server, _):
        (server.folder / "store").mkdir()
        (server.folder / "store").chmod(0o777)
        yield server


def store_at(fed: fb.Federation, url: str, more: str = "") -> None:
    """Give a federation the store `eos`."""
    settings = f"[stores.eos]\nkind = 'xrootd'\nurl = '{url}'\n{more}"
    (Path(fed.path) / "storage.toml").write_text(settings)


def stored(server: DataServer) -> list[Path]:
    """The files of a store, without its mark."""
    return [path for path in (server.folder / "store").rglob("*") if path.is_file() and path.suffix]


def test_databases_go_to_a_server_and_come_back(site: DataServer, tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run6", "run7")
    store_at(fed, f"{site.url}/store")
    copies = fed.migrate("*", "eos")
    assert sorted(file.stat().st_size for file in stored(site)) == sorted(copy.size for copy in copies)
    fed.evict("*")
    key = fed.where("run7")[0].copies[0].key
    assert key.endswith(".root")
    # A reader that knows nothing of the federation reads the copy where it is.
    with uproot.open(f"{site.url}/store/{key}") as file:
        assert np.array_equal(file["points"].arrays()["x"].to_numpy(), VALUES)
    assert is_right(fed, "run7")
    assert fed.where("run7")[0].state == "both"
    fed.discard_copy("run7", "eos")
    assert len(stored(site)) == 1
    (left,) = stored(site)
    left.write_bytes(left.read_bytes()[:-1] + b"?")
    with pytest.raises(fb.CorruptError, match="adler32"):
        fed.stage("run6")
    assert fed.where("run6")[0].state == "lost"


def test_a_server_that_hangs_has_lost_nothing(site: DataServer, tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run6", "run7", entries=1000)
    store_at(fed, f"{site.url}/store", "answer_seconds = 2")
    fed.migrate("run7", "eos")
    fed.evict("run7")
    site.stop()
    try:
        for hang in (lambda: fed.stage("run7"), lambda: fed.migrate("run6", "eos")):
            with pytest.raises(fb.UnavailableError):
                hang()
    finally:
        site.go_on()
    assert [where.state for where in fed.where()] == ["online", "nearline"]
    fed.migrate("run6", "eos")
    assert is_right(fed, "run7", 1000)
    fed.apply_storage_rules()
    assert sorted(file.suffix for file in stored(site)) == [".root", ".root"], (
        "nothing is left of what failed"
    )
    site.kill()
    with pytest.raises(fb.UnavailableError):
        fed.evict("run7")
    assert fed.where("run7")[0].state == "both"


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        ("write:1+=ENOSPC", fb.StorageError, "NoSpace"),
        ("write:1+=EACCES", fb.DeniedError, "NotAuthorized"),
        ("sync:2+=EIO", fb.UnavailableError, "cannot write"),
        ("open:2+=wait:900", fb.UnavailableError, "900 s"),
    ],
)
def test_refusals_of_a_server_raise_its_reason(
    fault: str, error: type[fb.FemtobarnError], text: str, tmp_path: Path
) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    with faulty(tmp_path, fault) as server:
        store_at(fed, f"root://127.0.0.1:{server.port}//data")
        with pytest.raises(error, match=text):
            fed.migrate("run7", "eos")
    assert fed.where("run7")[0].state == "online"


def test_a_server_that_sends_less_is_noticed(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    # The first read is for the checksum that the server tells.
    with faulty(tmp_path, "read:2=short:100") as server:
        store_at(fed, f"root://127.0.0.1:{server.port}//data")
        fed.migrate("run7", "eos")
        fed.evict("run7")
        with pytest.raises(fb.CorruptError, match="fewer than"):
            fed.stage("run7")
        assert fed.where("run7")[0].state == "lost"
        fed.stage("run7")
        assert is_right(fed, "run7", 1000), "it was looked for once more"


def test_the_token_is_sent_over_tls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, root = certified(tmp_path)
    token, keys = token_and_keys(tmp_path, "storage.read:/ storage.modify:/")
    monkeypatch.setenv("X509_CERT_DIR", str(root.parent))
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    (tmp_path / "data").mkdir()
    settings = tmp_path / "server.toml"
    settings.write_text(
        f'[[export]]\nfolder = "{tmp_path}/data"\n[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
        f'[auth]\naudiences = ["copies"]\n[[auth.issuer]]\nissuer = "{ISSUER}"\nkeys = "{keys}"\n'
        "[limits]\ndrain_seconds = 0\n"
    )
    with fb.serve(port=0, address="127.0.0.1", anonymous="nothing", config=settings) as server:
        store_at(fed, f"roots://localhost:{server.port}//data")
        with pytest.raises(fb.DeniedError):
            fed.migrate("run7", "eos")
        monkeypatch.setenv("BEARER_TOKEN", token)
        store_at(fed, f"root://localhost:{server.port}//data")
        with pytest.raises(fb.DeniedError):
            fed.migrate("run7", "eos")
        store_at(fed, f"roots://localhost:{server.port}//data")
        fed.migrate("run7", "eos")
        fed.evict("run7")
        assert is_right(fed, "run7", 1000)


def test_a_killed_process_leaves_nothing_that_looks_whole(site: DataServer, tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7")
    store_at(fed, f"{site.url}/store")
    script = (
        "import femtobarn as fb, os, sys\n"
        "def die(*told):\n"
        "    if told[2]: os.kill(os.getpid(), 9)\n"
        "fb.open(sys.argv[1]).migrate('run7', 'eos', progress=die)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(fed.path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert fed.where("run7")[0].state == "migrating"
    assert [path for path in stored(site) if not path.name.startswith(".part-")] == []
    fed.migrate("run7", "eos")
    fed.evict("run7")
    assert is_right(fed, "run7")


def faulty(folder: Path, fault: str) -> fb.Server:
    """Serve an empty folder that fails."""
    (folder / "data").mkdir()
    settings = folder / "server.toml"
    settings.write_text(
        f'[[export]]\nfolder = "{folder}/data"\nfaults = ["{fault}"]\n[limits]\ndrain_seconds = 0\n'
    )
    return fb.serve(port=0, address="127.0.0.1", anonymous="all", config=settings)

"""Our server as a data server of an XRootD cluster: clients of its manager find what it has."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_servers import QUICK, patient_run
from followed import put
from waiting import wait_for
from xrootd_cluster import Cluster, cluster

import femtobarn as fb


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    with cluster() as one:
        yield one


def command(one: Cluster, name: str) -> list[str]:
    return ["xrdcp", "--silent", "--force", f"{one.url}//store/{name}", "-"]


def fetched(one: Cluster, name: str) -> bytes:
    """A file of the cluster, as xrdcp copies it to its output."""
    asked = command(one, name)
    return subprocess.run(asked, check=True, capture_output=True, timeout=60, env=QUICK).stdout


def located(one: Cluster, path: str) -> set[int]:
    """The ports of the data servers that the manager names for a path."""
    done = subprocess.run(
        ["xrdfs", one.url, "locate", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 or "[3011]" in done.stderr, done.stderr
    return {int(line.split()[0].rsplit(":", 1)[1]) for line in done.stdout.splitlines() if line}


def test_clients_of_a_manager_find_files_of_the_server(site: Cluster, tmp_path: Path) -> None:
    ours, theirs = site.ours, site.theirs
    ours.put("ours.bin", b"ours")
    theirs.put("theirs.bin", b"theirs")
    for each in (ours, theirs):
        each.put("both.bin", b"both")
    with site.start_ours() as server:
        wait_for(site.is_ours_known)
        for name in ("ours", "theirs", "both"):
            assert fetched(site, f"{name}.bin") == name.encode()
        assert located(site, "/store/ours.bin") == {ours.port}
        assert located(site, "/store/both.bin") == {ours.port, theirs.port}
        over_http = ["curl", "-sSfL", f"http://127.0.0.1:{site.manager.port}/store/ours.bin"]
        assert subprocess.run(over_http, check=True, capture_output=True, timeout=60).stdout == b"ours"
        summed, _ = patient_run("xrdfs", site.url, "query", "checksum", "/store/ours.bin")
        assert summed.split() == ["adler32", f"{zlib.adler32(b'ours'):08x}"]
        # New files are made at either, and are found at once.
        source = tmp_path / "new"
        source.write_bytes(b"new")
        used = set()

        def are_both_used() -> bool:
            name = f"new{len(list(ours.store.iterdir()) + list(theirs.store.iterdir()))}.bin"
            patient_run("xrdcp", "--silent", source, f"{site.url}//store/{name}")
            assert fetched(site, name) == b"new"
            used.add((ours.has(name), theirs.has(name)))
            return used == {(True, False), (False, True)}

        wait_for(are_both_used)
        assert server.status()["exports"], "it is a server like any other"


def test_managers_learn_of_names_that_clients_make_and_remove(site: Cluster, tmp_path: Path) -> None:
    source = tmp_path / "new"
    source.write_bytes(b"new")
    with site.start_ours() as server:
        wait_for(site.is_ours_known)
        here = f"root://127.0.0.1:{server.port}"
        # The manager keeps that nobody has it.
        assert located(site, "/store/new.bin") == set()
        patient_run("xrdcp", "--silent", source, f"{here}//store/new.bin")
        wait_for(lambda: located(site, "/store/new.bin") == {server.port}, 10)
        patient_run("xrdfs", here, "mv", "/store/new.bin", "/store/moved.bin")
        wait_for(lambda: located(site, "/store/moved.bin") == {server.port}, 10)
        wait_for(lambda: located(site, "/store/new.bin") == set(), 10)
        patient_run("xrdfs", here, "rm", "/store/moved.bin")
        wait_for(lambda: located(site, "/store/moved.bin") == set(), 10)
        both = ("/store/one", "/store/two")
        for folder in both:
            assert located(site, folder) == set()
        patient_run("xrdcp", "--silent", source, f"{here}//store/one/new.bin")
        over_http = f"http://127.0.0.1:{server.port}/store/two/new.bin"
        patient_run("curl", "-sSf", "-T", source, over_http)
        wait_for(lambda: all(located(site, folder) == {server.port} for folder in both), 10)


def test_clients_wait_for_a_server_that_is_stopped(site: Cluster) -> None:
    site.ours.put("mine.bin", b"mine")
    for each in (site.ours, site.theirs):
        each.put("shared.bin", b"shared")
    for _ in range(2):
        with site.start_ours():
            wait_for(site.is_ours_known)
            assert fetched(site, "mine.bin") == b"mine"
        wait_for(lambda: not site.is_ours_known())
        for _ in range(4):
            assert fetched(site, "shared.bin") == b"shared"
    waiting = subprocess.Popen(command(site, "mine.bin"), stdout=subprocess.PIPE, env=QUICK)
    with site.start_ours():
        assert waiting.communicate(timeout=60)[0] == b"mine"


def test_the_login_is_repeated_when_cmsd_restarts(site: Cluster) -> None:
    site.ours.put("mine.bin", b"mine")
    with site.start_ours() as server:
        wait_for(site.is_ours_known)
        wait_for(lambda: server.status()["cluster"] == {"is_logged_in": True, "why_not": ""})
        site.ours.end("cmsd")
        wait_for(lambda: not site.is_ours_known())
        wait_for(lambda: "cmsd" in server.status()["cluster"]["why_not"])
        assert not server.status()["cluster"]["is_logged_in"]
        site.ours.run("cmsd")
        wait_for(site.is_ours_known)
        assert fetched(site, "mine.bin") == b"mine"


def test_databases_are_found_by_a_link_to_their_folder(site: Cluster) -> None:
    uproot = pytest.importorskip("uproot")
    folder = site.ours.folder / "lhc.fed"
    (site.ours.store / "lhc.fed").symlink_to(folder / "databases")
    with fb.create(folder) as fed, site.start_ours(f"{fed.path}=/store/lhc.fed"):
        wait_for(site.is_ours_known)
        put(fed, "run1/hits", 500)
        with uproot.open({f"{site.url}//store/lhc.fed/run1.root": "hits"}) as hits:
            assert hits.num_entries == 500
        put(fed, "run1/hits", 7)
        for csn, entries in ((1, 500), (2, 507)):
            with uproot.open({f"{site.url}//store/lhc.fed/run1.root?fb.csn={csn}": "hits"}) as hits:
                assert hits.num_entries == entries


def test_a_redirector_is_no_data_server(tmp_path: Path) -> None:
    config = tmp_path / "wrong.toml"
    config.write_text('[cluster]\ncmsd = "/run/olbd.admin"\n')
    with pytest.raises(fb.InvalidError, match=r"cluster\.cmsd"):
        fb.serve(redirect_to=["root://a//x"], port=0, address="127.0.0.1", config=config)

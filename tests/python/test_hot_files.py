"""The workload of hot files: a small run with real servers, and the figures computed from clients' reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wrong_workloads import assert_names_mistake

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import bundled_workloads, latest, load, read, run
from femtobarn_testbed.comparison import compare_variants
from femtobarn_testbed.hot import clients
from femtobarn_testbed.hot.clients import Task, Visit
from femtobarn_testbed.hot.phases import figures_of, rate_of, totals_of
from femtobarn_testbed.hot.tables import phases_table, rates_table, servers_table
from femtobarn_testbed.workload import scenarios_of

SERVERS = {"origin", "cache 1", "cache 2"}
PAGE = 4096
# The disks are fast, so that the clients open the hot file hundreds of times, but as slow as they are set to.
TINY = {
    "clients": 6,
    "processes": 1,
    "blocks": 8,
    "file_bytes": 3_000_000,
    "bytes_per_second": 400_000_000,
    "seeks_per_second": 4000,
    "before_seconds": 1,
    "hot_seconds": 4,
    "cold_seconds": 10,
    "cold_pause_seconds": 1.5,
    # If nobody had the hot file open at a cache for so long, its copy would leave, and be fetched again.
    "idle_seconds": 3,
    # A client that came back within two minutes would find the file hot.
    "comes_back": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run."""
    pytest.importorskip("XRootD")
    out = tmp_path_factory.mktemp("hot")
    settings = [text for name, value in TINY.items() for text in ("--set", f"{name}={str(value).lower()}")]
    assert main(["testbed", "run", "hot-files", *settings, "--out", str(out), "--scratch", str(out)]) == 0
    assert [path.suffix for path in out.iterdir()] == [".json"], "servers and files are gone"
    return out


@pytest.fixture
def done(folder: Path) -> dict[str, Any]:
    (path,) = latest([folder])
    return read(path)


@pytest.fixture
def phases(done: dict[str, Any]) -> dict[str, Any]:
    (point,) = done["points"]
    found: dict[str, Any] = point["phases"]
    return found


def test_clients_read_blocks_in_every_phase_without_failures(phases: dict[str, Any]) -> None:
    assert list(phases) == ["before", "hot", "cold"]
    for phase in phases.values():
        assert (phase["failures"], phase["failure_texts"]) == (0, [])
        assert phase["blocks"] > 0
        assert sum(phase["opened"].values()) > 0


def test_clients_are_at_all_servers_while_the_file_is_hot_and_at_the_origin_otherwise(
    phases: dict[str, Any],
) -> None:
    def used(phase: str) -> set[str]:
        return {server for server, opened in phases[phase]["opened"].items() if opened}

    assert used("before") == {"origin"}
    assert used("hot") == SERVERS
    assert used("cold") == {"origin"}
    assert not any(phases["before"]["redirects"].values()), "they asked the origin itself"
    # Clients went where they were redirected; one that could not open a file there asks once more.
    for phase in (phases["hot"], phases["cold"]):
        assert all(phase["redirects"][server] >= opened for server, opened in phase["opened"].items())
    hot = phases["hot"]["series"]
    assert all(max(hot["clients"][server]) > 0 for server in SERVERS)
    assert all(max(hot["bytes"][server]) > 0 for server in SERVERS)


def test_caches_fetch_each_page_once_and_drop_the_copies(
    done: dict[str, Any], phases: dict[str, Any]
) -> None:
    (site,) = done["sites"].values()
    pages = -(-site["hot_file_bytes"] // PAGE) * PAGE
    for cache in SERVERS - {"origin"}:
        assert 0 < phases["hot"]["fetched_bytes"][cache] <= pages
        assert max(phases["hot"]["series"]["kept_bytes"][cache]) > 0
        assert phases["cold"]["fetched_bytes"][cache] == 0
        assert phases["cold"]["series"]["kept_bytes"][cache][-1] == 0
    assert done["points"][0]["emptied_seconds"] is not None


def test_the_run_is_reported(folder: Path, done: dict[str, Any]) -> None:
    for tabulate, count in ((rates_table, 1), (phases_table, 3), (servers_table, 9)):
        head, rows = tabulate(done)
        assert len(rows) == count
        assert {len(row) for row in rows} == {len(head)}
    with pytest.raises(fb.InvalidError, match="hot file"):
        compare_variants(done)
    with pytest.raises(fb.InvalidError, match="hot file"):
        scenarios_of(done)
    pytest.importorskip("matplotlib")
    assert main(["testbed", "plot", str(folder)]) == 0
    assert (folder / "hot-files-rates.png").stat().st_size > 10_000
    assert "Rates and phases" in (folder / "report.html").read_text()


def test_figures_are_those_of_the_visits() -> None:
    names = {"127.0.0.2:1": "origin", "127.0.0.3:1": "cache 1"}
    visits = [
        Visit(0, "a.root", "127.0.0.2:1", 0.1, 3.0, [(0.5, 10), (2.9, 20), (4.1, 40)], ""),
        Visit(1, "b.root", "127.0.0.3:1", 1.2, 3.9, [(3.5, 80)], ""),
        Visit(1, "b.root", "", 3.9, 3.9, [], "no such file"),
    ]
    phase = figures_of(visits, 4, names, "a.root")
    assert totals_of(phase) == [10, 0, 20, 80]
    assert rate_of(phase) == 50.0
    assert phase["series"]["clients"] == {"origin": [1, 1, 1, 0], "cache 1": [0, 1, 1, 1]}
    assert phase["opened"] == {"origin": 1, "cache 1": 1}
    assert phase["hot_file_opened"] == {"origin": 1, "cache 1": 0}
    assert phase["hot_file_last_opened"] == {"origin": 0.1, "cache 1": None}
    assert (phase["failures"], phase["failure_texts"]) == (1, ["no such file"])


def test_reads_that_fail_and_bytes_that_differ_are_failures(tmp_path: Path) -> None:
    pytest.importorskip("XRootD")
    for name in ("served", "local"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.bin").write_bytes(name[:1].encode() * 100_000)
    with fb.serve(tmp_path / "served", port=0, address="127.0.0.1") as server:
        address = server.url("/served").removeprefix("root://")
        one_each = {0: [tmp_path / "local" / "a.bin"], 1: [tmp_path / "local" / "b.bin"]}
        visits: list[Visit] = []
        with clients.client_processes(1) as processes:
            processes.wait_until_ready()
            # On a busy machine, a client may not have begun when its time is over.
            while {visit.file for visit in visits} != {"a.bin", "b.bin"}:
                visits += processes.work(Task(address, one_each, 1000, 3, 0.0, 1), 1.5, lambda: None)
    for visit in visits:
        assert ("other bytes of a.bin" if visit.file == "a.bin" else "b.bin") in visit.failure


def test_a_run_without_xrootds_client_fails_with_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(fb.UnsupportedError, match="pip install xrootd"):
        run(load("hot-files"), scratch=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("servers = 3", "servers = 1", "count must be at least 2"),
        ("servers = 3", "servers = 300", "count must be at most 200"),
        ("files = 4 ", "files = 1 ", "files must be at least 2"),
        ('file_bytes = "100 MB"', 'file_bytes = "1 MB"', "file_bytes must be above cache_bytes"),
        ("block_bytes =", "block_byte =", "lacks block_bytes"),
        ("block_bytes = 65536", "block_bytes = 0", "block_bytes must be above 0"),
        ("comes_back = true", "comes_back = 1", "comes_back must be true or false"),
        ("seeks_per_second = 400", "seeks_per_second = 0", "seeks_per_second must be at least 1"),
        ("aim = 2.7", "aim = 0", "aim must be above 0"),
    ],
)
def test_load_names_the_mistake_in_a_workload_of_hot_files(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    text = bundled_workloads()["hot-files"].read_text().replace('"64 KiB"', "65536")
    assert_names_mistake(tmp_path, text, old, new, told)

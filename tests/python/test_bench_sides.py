"""Sides of benchmarks that work with PostgreSQL, several servers, tasks and coffea: small ones, whose own
checks prove what they did, and that those which are compared did the same."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import committers
import large_catalogue
import numpy as np
import pytest
import site_load
import tasks
from data import ROW
from postgres import Postgres
from postgres_servers import program
from site_servers import database_server

import femtobarn as fb

pytest.importorskip("uproot", reason="the extra `io` is not installed")
pytest.importorskip("coffea", reason="the extra `judge` is not installed")


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    """A folder that PostgreSQL's user, who is not root, can reach."""
    program("pgbench")
    with tempfile.TemporaryDirectory(prefix="sides") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture(scope="module")
def database(reachable: Path) -> Iterator[Postgres]:
    with database_server(reachable) as server:
        yield server


def test_committers_and_rows(database: Postgres, examples: Path, tmp_path: Path) -> None:
    ours = str(examples.parent / "ours")
    inserted = committers.inserts(database, tmp_path, "1")
    assert inserted["bytes"] == 1000 * inserted["items"] > 0
    for name in ("transactions", "publish", "served"):
        (tmp_path / name).mkdir()
    samples = [
        *(
            committers.here(database, tmp_path / work, ours, work, "0.3")
            for work in ("transactions", "publish")
        ),
        committers.at_servers(database, tmp_path / "served", [ours, "transactions", "0.3"], 2, 2),
    ]
    assert all(sample["items"] > 0 and sample["cpu_s"] > 0 for sample in samples)


def test_clients_of_servers_with_simulated_disks(
    database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_load, "PROCESSES", 1)
    disk = "bytes_per_second = 50_000_000, seeks_per_second = 10_000, cache_bytes = 100_000"
    for work, servers in (("read", 1), ("write", 2)):
        (tmp_path / work).mkdir()
        sample = site_load.at_servers(database, tmp_path / work, servers, (work, 4, "3", disk))
        assert (sample["items"], sample["bytes"]) == (12, 12 * 65_536)
    with fb.open(tmp_path / "write/0/bench.fed") as federation:
        assert federation.head() == 2 + 12


def test_a_catalogue_whose_rows_were_copied(
    reachable: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reachable / "large"
    monkeypatch.setattr(large_catalogue, "FEW", 10)
    monkeypatch.setattr(large_catalogue, "TOGETHER", 5)
    large_catalogue.prepare(folder, 30)
    for command in ("commit", "open"):
        monkeypatch.setattr(sys, "argv", ["", command, str(folder), "cpu"])
        monkeypatch.setitem(large_catalogue.TIMES, command, 5)
        assert large_catalogue.main() == 0
        points = json.loads(capsys.readouterr().out)["points"]
        assert [size for size, _ in points] == [10, 30]
    with large_catalogue.large(folder) as (_, places), fb.open(places[30]) as federation:
        assert len(federation.snapshot()) == 30


def test_tasks_write_the_same_rows_as_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = tmp_path / "rows.bin"
    rows = np.zeros(2 * tasks.OBJECTS, ROW)
    rows["event"] = np.arange(len(rows))
    pool.write_bytes(rows.tobytes())
    samples = []
    for side in ("one", "tasks"):
        monkeypatch.setattr(sys, "argv", ["", side, str(tmp_path / side), str(pool), "3", "zstd"])
        (tmp_path / side).mkdir()
        assert tasks.main() == 0
        samples.append(json.loads(capsys.readouterr().out))
    one, forked = samples
    assert (one["items"], one["bytes"], one["check"]) == (3, 3_000_000, forked["check"])
    assert forked["merge_us"] > 0


def test_a_processor_counts_the_same_in_all_sources(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    ak = pytest.importorskip("awkward")
    from coffea_events import USED, copy_to_tree, muons, over_file, over_view, spectra

    random = np.random.default_rng(1)
    counts = {name: random.poisson(4, 120) for name in ("Candidate", "Track", "Cluster", "Jet", "Muon")}
    columns = {
        name: ak.unflatten(
            random.exponential(2, counts[name.partition("_")[0]].sum()).astype(np.float32),
            counts[name.partition("_")[0]],
        )
        for name in (*USED, "Muon_pt")
    }
    file, tree, folder = tmp_path / "columns.root", tmp_path / "tree.root", tmp_path / "columns.fed"
    with uproot.recreate(file) as target:
        target.mkrntuple("events", columns)
    fields = [{"name": name, "type": {"list": "float32"}} for name in columns]
    with fb.create(folder) as federation, federation.transaction() as txn:
        own = txn.database("own", create=True)
        own.container("events", {"name": "Event", "fields": fields}, create=True).extend(columns)
    copy_to_tree(str(file), str(tree))
    for processor in (spectra, muons):
        sources = ((over_view, folder), (over_file, tree), (over_file, file))
        runs = [over(str(place), 30, processor) for over, place in sources]
        assert [parts for _, parts in runs] == [4, 4, 4]
        one, *others = [run() for run, _ in runs]
        assert [one, one] == others
        assert one["events"] == 120
        assert one["check"] > 0

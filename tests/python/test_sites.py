"""Several servers of one federation: each answers for all, and redirects clients to a database's home."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import uproot
from file_server import run
from followed import put, writer
from postgres_servers import Postgres
from sites import LEASE_SECONDS, Site, Sites
from waiting import wait_for

import femtobarn as fb
from femtobarn import cli
from soak.samples import sample_of


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def files(site: Site) -> list[str]:
    return sorted(path.name for path in (site.folder / "databases").iterdir())


def count(fed: fb.Federation, path: str) -> int:
    return len(fed[path].arrays("x"))


def put_at(site: Site, path: str, objects: int) -> None:
    """Write to a new database by a client of the server that is to have it."""
    with site.open() as fed:
        put(fed, path, objects)


def test_each_server_reads_its_own_files_and_redirects_clients_for_others(
    postgres: Postgres, tmp_path: Path
) -> None:
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(one, "run1/hits", 100)
        put_at(two, "run2/hits", 200)
        assert (files(one), files(two)) == (["run1.root"], ["run2.root"])
        for site in (one, two):
            with site.open() as fed:
                assert (count(fed, "run1/hits"), count(fed, "run2/hits")) == (100, 200)
                assert {database["name"] for database in fed.databases()} == {"run1", "run2"}
            for name, objects in {"run1": 100, "run2": 200}.items():
                copy = tmp_path / f"{site.name}-{name}.root"
                run("xrdcp", "--silent", site.url(f"{name}.root?fb.csn=2"), copy)
                run("xrdfs", f"{site.host}:{site.port}", "stat", f"/lhc.fed/{name}.root")
                with urllib.request.urlopen(site.http(f"{name}.root?fb.csn=2")) as answer:
                    assert answer.read() == copy.read_bytes()
                with uproot.open(site.url(f"{name}.root")) as file:
                    assert file["hits"].num_entries == objects
            listed = run("xrdfs", f"{site.host}:{site.port}", "ls", "-l", "/lhc.fed").splitlines()
            sizes = {line.split()[-1]: int(line.split()[-4]) for line in listed}
            copies = {
                f"/lhc.fed/{name}.root": tmp_path / f"{site.name}-{name}.root" for name in ("run1", "run2")
            }
            assert sizes == {path: copy.stat().st_size for path, copy in copies.items()}
        request = urllib.request.Request(one.http("run2.root"), method="HEAD")
        with urllib.request.urlopen(request) as answer:
            assert answer.url == two.http("run2.root")


def test_a_database_is_written_at_its_home_alone(postgres: Postgres, tmp_path: Path) -> None:
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(one, "run1/hits", 10)
        with fb.open(one.folder) as fed:
            put(fed, "run1/hits", 5)
            put(fed, "local/hits", 5)
        assert files(one) == ["local.root", "run1.root"]
        with fb.open(two.folder) as fed, pytest.raises(fb.NotFoundError):
            put(fed, "run1/hits", 5)
        with two.open() as fed:
            assert count(fed, "run1/hits") == 15
            assert len(fed["local/hits"]) == 5


def test_databases_of_other_servers_are_usable_while_one_is_offline(
    postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(one, "run1/hits", 10)
        put_at(two, "run2/hits", 10)
        for site in (one, two):
            with fb.open(site.folder) as fed:
                report = fed.check(full=True)
                assert (report.problems, report.databases, report.elsewhere) == ([], 1, 1)
        name = two.folder / "locks/storage"
        name.rename(name.with_suffix(".kept"))
        with fb.open(two.folder) as fed, pytest.raises(fb.FemtobarnError, match="start the server"):
            fed.check()
        name.with_suffix(".kept").rename(name)
        one.kill()
        with two.open() as fed:
            assert put(fed, "run2/hits", 5)
            assert count(fed, "run2/hits") == 15
        tried = ["xrdfs", f"{two.host}:{two.port}", "stat", "/lhc.fed/run1.root"]

        def is_said() -> bool:
            said = subprocess.run(tried, capture_output=True, text=True, check=False)
            return said.returncode != 0 and 'server "one"' in said.stderr

        wait_for(is_said, 20 * LEASE_SECONDS)
        with two.open() as fed, pytest.raises(fb.UnavailableError, match='server "one"'):
            count(fed, "run1/hits")
        assert cli.main(["servers", two.url()]) == 0
        assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["one", "away"]
        again = one.again()
        try:
            with two.open() as fed:
                wait_for(lambda: count(fed, "run1/hits") == 10, 20 * LEASE_SECONDS)
            put_at(again, "run1/hits", 1)
        finally:
            again.kill()


def test_a_server_with_the_same_disk_takes_over(postgres: Postgres, tmp_path: Path) -> None:
    with Sites(postgres, tmp_path, ["one", "two"], shared=True) as (one, two):
        put_at(one, "run1/hits", 10)
        one.kill()
        with two.open() as fed:

            def is_written() -> bool:
                try:
                    return put(fed, "run1/hits", 1) > 0
                except fb.UnavailableError:
                    return False

            wait_for(is_written, 20 * LEASE_SECONDS)
            assert count(fed, "run1/hits") == 11


def test_a_transaction_of_a_server_that_was_taken_over_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    with Sites(postgres, tmp_path, ["one", "two"], shared=True) as (one, two):
        put_at(one, "run1/hits", 10)
        with one.open() as fed:
            txn = fed.transaction()
            writer(txn, "run1/hits").extend({"x": np.zeros(3), "hits": [[1]] * 3})
            one.process.send_signal(signal.SIGSTOP)
            wait_for(lambda: files_written(two), 20 * LEASE_SECONDS)
            one.process.send_signal(signal.SIGCONT)
            with pytest.raises(fb.FemtobarnError):
                txn.commit()
        with two.open() as fed:
            assert count(fed, "run1/hits") == 11


def files_written(site: Site) -> bool:
    try:
        put_at(site, "run1/hits", 1)
    except fb.UnavailableError:
        return False
    return True


def test_a_database_moves_while_it_is_read_and_written(postgres: Postgres, tmp_path: Path) -> None:
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(one, "run1/hits", 100_000)
        written, is_over = 0, threading.Event()

        def write() -> None:
            nonlocal written
            with one.open() as fed:
                while not is_over.is_set() or written == 0:
                    # A transaction that the move overtakes is refused as a whole, and run again.
                    with contextlib.suppress(fb.ConflictError):
                        put(fed, "run1/hits", 10)
                        written += 10

        with one.open() as fed, ThreadPoolExecutor(1) as pool:
            before = fed.snapshot()
            writing = pool.submit(write)
            for _ in range(2):
                for site, other in ((two, one), (one, two)):
                    fed.move_database("run1", site.name)
                    assert (files(site), files(other)) == (["run1.root"], [])
                    assert fed.home("run1") == site.name
                    assert len(before["run1/hits"].arrays()) == 100_000
            is_over.set()
            writing.result()
            # This one has had the file open since before the first move.
            assert count(fed, "run1/hits") == 100_000 + written
        for site in (one, two):
            with site.open() as fed:
                assert count(fed, "run1/hits") == 100_000 + written
        with fb.open(one.folder) as fed:
            assert fed.check(full=True).sound


def test_servers_return_the_memory_of_databases_that_moved(postgres: Postgres, tmp_path: Path) -> None:
    # Each thread that received a part of a file kept its 4 MiB: after 60 moves that was 46 MB of these two
    # servers. Here are 16 moves.
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two), one.open() as fed:
        put(fed, "run1/hits", 100)

        def private_bytes() -> int:
            found = [sample_of(site.process.pid) for site in (one, two)]
            return sum(sample.private_bytes for sample in found if sample is not None)

        before = private_bytes()
        for _ in range(8):
            for site in (two, one):
                fed.move_database("run1", site.name)
        assert private_bytes() - before < 8 << 20


def test_clients_of_a_server_that_dies_continue_at_another_one(postgres: Postgres, tmp_path: Path) -> None:
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(two, "run2/hits", 10)
        put_at(two, "run3/hits", 20)
        with one.open() as fed:
            assert count(fed, "run2/hits") == 10
            one.kill()
            assert put(fed, "run2/hits", 5)
            assert (count(fed, "run2/hits"), count(fed, "run3/hits")) == (15, 20)
        with fb.open([one.url(), two.url()]) as fed:
            assert (count(fed, "run2/hits"), count(fed, "run3/hits")) == (15, 20)


def test_a_server_that_gets_another_name_keeps_its_clients(postgres: Postgres, tmp_path: Path) -> None:
    # A client that remembered the old name for one database, and was told the new name for another, had two
    # sessions. They had one id, so they ended each other for ever.
    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two), two.open() as fed:
        for run in ("run1", "run2"):
            put_at(one, f"{run}/hits", 10)
        put(fed, "run1/hits", 10)
        one.kill()
        renamed = Site(one.folder, "three", one.host, "one", one.port)
        try:
            wait_for(lambda: fed.home("run2") == "three", 20 * LEASE_SECONDS)
            with fed.transaction() as txn:
                for run in ("run1", "run2"):
                    writer(txn, f"{run}/hits").extend({"x": np.zeros(3), "hits": [[1]] * 3})
            assert (count(fed, "run1/hits"), count(fed, "run2/hits")) == (23, 13)
        finally:
            renamed.kill()


def test_operators_see_the_servers_and_empty_one(
    postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str, fails: bool = False) -> str:
        assert (cli.main(list(words)) != 0) == fails
        out, error = capsys.readouterr()
        return error if fails else out

    def shown() -> list[list[str]]:
        head, *rows = told("servers", two.url()).splitlines()
        assert head.split() == ["server", "is", "databases", "free", "load", "storage", "url"]
        return [[*row.split()[:3], *row.split()[-2:]] for row in rows]

    with Sites(postgres, tmp_path, ["one", "two"]) as (one, two):
        put_at(one, "run1/hits", 10)
        assert shown() == [["one", "active", "1", "one", one.url()], ["two", "active", "0", "two", two.url()]]
        assert told("drain", two.url(), "one") == "run1 is at two\none is drained: 1 database was moved\n"
        assert [row[:3] for row in shown()] == [["one", "draining", "0"], ["two", "active", "1"]]
        assert "is not active" in told("move-database", two.url(), "run1", "one", fails=True)
        assert "start one" in told("drain", two.url(), "two", fails=True)
        assert told("drain", two.url(), "one", "--undo") == "one gets databases again\n"
        assert told("move-database", two.url(), "run1", "one") == "run1 is at one\n"
        assert (files(one), files(two)) == (["run1.root"], [])
        assert 'did you mean "one"' in told("drain", two.url(), "onr", fails=True)

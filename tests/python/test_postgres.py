"""Federations whose catalogue is in PostgreSQL: they do what those with SQLite do, also behind a pooler,
through a server, and after crashes of writers and of PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from followed import Changes, Hit, contents, put, serve, url_of
from postgres_servers import POOLER_PORT, PORT, Postgres

import femtobarn as fb
from femtobarn.cli import main

WRITER = """
import sys
import femtobarn as fb

with fb.open(sys.argv[1]) as fed:
    for number in range(10_000):
        with fed.transaction() as txn:
            txn.database("run7").container("hits").extend({"x": [float(number)], "hits": [[number]]})
        print(number, flush=True)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


def test_all_kinds_of_changes_have_the_same_effect_as_with_sqlite(postgres: Postgres, tmp_path: Path) -> None:
    shown = []
    for kind, url in {"sqlite": None, "postgresql": postgres.url()}.items():
        with fb.create(tmp_path / f"{kind}.fed", catalogue=url) as fed:
            changes = Changes(fed, 3, tmp_path / kind)
            for _ in range(60):
                changes.make()
            tags = [(tag["name"], tag["csn"]) for tag in fed.tags()]
            history = [(row["csn"], row["message"].replace(f"/{kind}/", "/")) for row in fed.history()]
            shown.append((contents(fed.snapshot()), tags, history))
            assert fed.check(full=True).sound
        with fb.open(tmp_path / f"{kind}.fed") as again:
            assert contents(again.snapshot()) == shown[-1][0]
    assert shown[0] == shown[1]


def test_a_server_and_its_clients_need_not_know(postgres: Postgres, tmp_path: Path) -> None:
    path = str(tmp_path / "lhc.fed")
    assert main(["create", path, "--catalogue", postgres.url()]) == 0
    with fb.open(path) as fed, serve(fed) as server, fb.open(url_of(server)) as remote:
        put(remote, "run7/hits", 1000)
        for number in range(5):
            put(remote, "run8/hits", 10, seed=number)
        assert contents(remote.snapshot()) == contents(fed.snapshot())
        assert len(fed["run8/hits"]) == 50


def test_a_pooler_may_stand_between(postgres: Postgres, tmp_path: Path) -> None:
    postgres.start_pooler()
    with fb.create(tmp_path / "lhc.fed", catalogue=postgres.url(POOLER_PORT)) as fed:
        for number in range(10):
            put(fed, "run7/hits", 10, seed=number)
        assert postgres.ask("SELECT count(*) FROM pg_prepared_statements", POOLER_PORT) == "0"
        with fed.transaction() as txn:
            txn.database("run7").container("hits").delete(where="x < 0.5")
        fed.tag("first")
        fed.vacuum()
        assert len(fed["run7/hits"]) == len(fed.snapshot(tag="first")["run7/hits"])


@pytest.mark.parametrize("victim", ["writer", "postgresql"])
def test_acknowledged_commits_survive_a_kill(postgres: Postgres, tmp_path: Path, victim: str) -> None:
    with fb.create(tmp_path / "lhc.fed", catalogue=postgres.url()) as fed:
        with fed.transaction() as txn:
            txn.database("run7", create=True).container("hits", Hit, create=True)
        command = [sys.executable, "-c", WRITER, fed.path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(20):
                acknowledged = int(writer.stdout.readline())
            if victim == "postgresql":
                postgres.crash(PORT)
                postgres.start()
                for _ in range(20):
                    acknowledged = int(writer.stdout.readline())
            writer.kill()
            acknowledged += len(writer.stdout.read().split())
        numbers = [int(number) for number in fed["run7/hits"].arrays("x").x]
        assert numbers == list(range(len(numbers)))
        assert acknowledged < len(numbers) <= acknowledged + 2
        put(fed, "run7/hits", 10)
        assert fed.check(full=True).sound


def test_files_are_changed_in_place_only_after_lost_commits_have_ended(
    postgres: Postgres, tmp_path: Path
) -> None:
    """A process may have died after it sent a commit: what it wrote must not be taken for unused bytes.

    A look-up that finds no commit ends such commits.
    """
    with tarfile.open(Path(__file__).resolve().parent.parent / "golden" / "overtaken.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    path = tmp_path / "overtaken.fed"
    assert main(["move-catalogue", str(path), postgres.url()]) == 0
    with fb.open(path) as fed:
        schema = f"femtobarn_{fed.uuid.replace('-', '')}"
        lookups = f"SELECT value FROM {schema}.federation WHERE key = 'lookups'"
        seen = [postgres.ask(lookups)]
        for _ in range(2):
            # The fronts at first, then the chain of keys.
            assert len(fed.repair().done) > 0
            seen.append(postgres.ask(lookups))
            with (path / "databases" / "run1.root").open("ab") as file:
                file.write(bytes(5000))
        fed.seal("run1")
        seen.append(postgres.ask(lookups))
        fed.detach("run2", to=tmp_path / "run2.root")
        seen.append(postgres.ask(lookups))
    assert len(set(seen)) == 5, seen


def test_the_catalogue_of_a_served_federation_moves_while_clients_continue(
    postgres: Postgres, tmp_path: Path
) -> None:
    path = str(tmp_path / "lhc.fed")
    with fb.create(path) as fed, serve(fed) as server, fb.open(url_of(server)) as remote:
        changes = Changes(fed, 7, tmp_path)
        for new, to in ("far1", postgres.url()), ("far2", "sqlite"), ("far3", postgres.url()):
            for _ in range(20):
                changes.make()
            put(remote, f"{new}/hits", 10, seed=fed.head())
            fed.tag(f"before {fed.head()}")
            before, history, tags = contents(fed.snapshot()), fed.history(), fed.tags()
            kept = remote.snapshot()
            with fed.transaction() as txn, remote.transaction() as far:
                txn.database("begun", create=True).container("hits", Hit, create=True).extend(
                    {"x": [1.0], "hits": [[1]]}
                )
                far.database(new).container("hits").extend({"x": [2.0], "hits": [[2]]})
                assert main(["move-catalogue", path, to]) == 0
                assert contents(fed.snapshot()) == before
                assert (fed.history(), fed.tags()) == (history, tags)
            with fed.transaction() as txn:
                txn.drop("begun")
            assert contents(kept) == before
            fed.vacuum()
            put(remote, f"{new}/hits", 10, seed=fed.head())
            assert contents(remote.snapshot()) == contents(fed.snapshot())
            with fb.open(path) as other:
                assert other.check(full=True).sound
        report = fed.move_catalogue(postgres.url())
        assert (report.rows, report.origin) == (0, report.place)


def test_unsupported_operations_on_a_postgresql_catalogue_are_refused(
    postgres: Postgres, tmp_path: Path
) -> None:
    with fb.create(tmp_path / "lhc.fed", catalogue=postgres.url()) as fed:
        with pytest.raises(fb.UnsupportedError, match="pg_dump"):
            fed.backup(tmp_path / "backup")
        with pytest.raises(fb.UnsupportedError, match=r"catalogue\.toml"):
            fb.rebuild_catalogue(fed.path)
    with pytest.raises(fb.InvalidError, match="postgresql://"):
        fb.create(tmp_path / "other.fed", catalogue="mysql://host/database")

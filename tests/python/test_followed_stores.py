"""Copies of a federation whose databases are in stores: a follower's files, never incomplete or stale."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from followed import assert_same, put, url_of

import femtobarn as fb


def with_store(fed: fb.Federation, *others: Path) -> str:
    """Give a federation, and folders of copies, the store `mirror` beside it."""
    store = Path(fed.path).parent / "mirror"
    store.mkdir(exist_ok=True)
    settings = f"[stores.mirror]\nkind = 'folder'\npath = '{store}'\n"
    for folder in (Path(fed.path), *others):
        (folder / "storage.toml").write_text(settings)
    return settings


def leave(fed: fb.Federation, *names: str) -> None:
    """Seal databases, and leave them in the store alone."""
    for name in names:
        fed.seal(name)
        fed.migrate(name, "mirror")
        fed.evict(name)


def test_databases_in_stores_alone_are_not_copied(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    stores = with_store(fed)
    for name in ("run1", "run2"):
        put(fed, f"{name}/hits", 3000)
    leave(fed, "run1", "run2")
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        assert follower.catch_up().bytes < 50_000
        assert [it.state for it in fed.where("*")] == ["nearline"] * 2, "following stages nothing"
        with fb.open(tmp_path / "copy.fed") as copy:
            assert [it.state for it in copy.where("*")] == ["nearline"] * 2
            with pytest.raises(fb.FemtobarnError, match="mirror"):
                copy["run1/hits"].arrays()
        (tmp_path / "copy.fed/storage.toml").write_text(stores)
        with fb.open(tmp_path / "copy.fed") as copy:
            assert len(copy["run1/hits"].arrays()) == 3000
            assert [it.state for it in copy.where("*")] == ["both", "nearline"]
        fed.stage("run2")
        assert follower.catch_up().bytes > 50_000
        with fb.open(tmp_path / "copy.fed") as copy:
            assert [it.state for it in copy.where("*")] == ["both", "both"]
            assert_same(copy, fed, fed.snapshot().csn)
            assert copy.check(full=True).problems == []


def test_a_database_staged_at_the_leader_is_complete_at_the_copy(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    """The copy had the database while it was open, and knows which bytes it had."""
    fed, server = leader
    put(fed, "run1/hits", 3000)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        with_store(fed)
        leave(fed, "run1")
        follower.catch_up()
        assert list((tmp_path / "copy.fed/databases").glob("run1*")) == []
        fed.stage("run1")
        follower.catch_up()
    with fb.open(tmp_path / "copy.fed") as copy:
        assert_same(copy, fed, fed.head())
        assert copy.check(full=True).problems == []


def test_a_part_of_a_file_is_never_under_its_name(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 500_000)
    with_store(fed)
    leave(fed, "run1")
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        file = tmp_path / "copy.fed/databases/run1.root"
        sizes, is_over = set(), threading.Event()

        def look() -> None:
            if file.exists():
                sizes.add((file.stat().st_size, file.stat().st_blocks))

        def look_until_over() -> None:
            while not is_over.is_set():
                look()

        looking = threading.Thread(target=look_until_over)
        looking.start()
        fed.stage("run1")
        follower.catch_up()
        is_over.set()
        looking.join()
        look()
    assert len(sizes) == 1, "it appeared as a whole"
    assert [it.name for it in file.parent.iterdir()] == ["run1.root"]


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_file_of_an_interrupted_step_is_not_used(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path, asks_first: bool
) -> None:
    """A follower was killed after it had recorded that a database is in stores: it had the older file."""
    fed, server = leader
    put(fed, "run1/hits", 3000)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        file = tmp_path / "copy.fed/databases/run1.root"
        older = file.read_bytes()
        put(fed, "run1/hits", 3000)
        with_store(fed, tmp_path / "copy.fed")
        leave(fed, "run1")
        follower.catch_up()
    file.write_bytes(older)
    if asks_first:
        with fb.open(tmp_path / "copy.fed") as copy:
            copy.stage("run1")
            assert_same(copy, fed, fed.head())
            assert copy.check(full=True).problems == []
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        assert file.exists() == asks_first
    with fb.open(tmp_path / "copy.fed") as copy:
        assert_same(copy, fed, fed.head())


def test_a_copy_takes_the_next_store_if_one_has_lost_the_file(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 3000)
    settings = ""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        settings += f"[stores.{name}]\nkind = 'folder'\npath = '{tmp_path / name}'\n"
    (Path(fed.path) / "storage.toml").write_text(settings)
    fed.seal("run1")
    keys = {name: fed.migrate("run1", name)[0].key for name in ("first", "second")}
    fed.evict("run1")
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        (tmp_path / "first" / keys["first"]).unlink()
        (tmp_path / "copy.fed/storage.toml").write_text(settings)
        with fb.open(tmp_path / "copy.fed") as copy:
            copy.stage("run1")
            assert len(copy["run1/hits"].arrays()) == 3000
            with pytest.raises(fb.DeniedError, match="at the leader"):
                copy.apply_storage_rules()


def test_killed_followers_show_whole_files_alone(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    """Databases leave the leader's disk and come back, while followers are killed at any moment."""
    fed, server = leader
    with_store(fed)
    chance = random.Random(7)
    copy = tmp_path / "copy.fed"
    names = ["run1", "run2", "run3"]
    for name in names:
        put(fed, f"{name}/hits", 100_000)
    with fb.follow(url_of(server), copy) as follower:
        follower.catch_up()
    script = (
        "import sys, femtobarn as fb\nfollower = fb.follow(*sys.argv[1:])\nprint('ready', flush=True)\n"
        "while True: follower.step(1.0)"
    )
    command = [sys.executable, "-c", script, url_of(server), str(copy)]
    for number in range(8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                # The server has a file open that the follower reads, so it may have to stay.
                with contextlib.suppress(fb.BusyError):
                    name = names[number % 3]
                    if number < 3:
                        leave(fed, name)
                    elif fed.where(name)[0].state == "nearline":
                        fed.stage(name)
                    else:
                        fed.evict(name)
                time.sleep(chance.random() * 0.2)
            finally:
                process.kill()
        with fb.open(copy, stage=False) as here:
            for found in here.where("*"):
                if found.state != "nearline":
                    assert len(here[f"{found.database}/hits"].arrays()) == 100_000
    with fb.follow(url_of(server), copy) as follower:
        follower.catch_up()
    with_store(fed, copy)
    with fb.open(copy) as here:
        assert_same(here, fed, fed.head())
        assert here.check(full=True).problems == []

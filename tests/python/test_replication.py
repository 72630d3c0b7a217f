"""Copies of a federation: their contents at every moment, and after failures."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
from followed import Changes, Hit, assert_same, contents, put, serve, url_of, writer
from server_copies import Proxy

import femtobarn as fb


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_at_every_moment_an_older_state(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path, seed: int
) -> None:
    fed, server = leader
    changes = Changes(fed, seed, tmp_path)
    with fb.follow(url_of(server), tmp_path / "copy.fed", name="copy") as follower:
        for _ in range(25):
            for _ in range(changes.random.randrange(4)):
                changes.make()
            state = follower.catch_up()
            assert state.damaged_pages == 0
            with fb.open(tmp_path / "copy.fed") as copy:
                assert_same(copy, fed, state.csn)
                assert [tag["name"] for tag in copy.tags()] == [tag["name"] for tag in fed.tags()]
                assert copy.history() == fed.history()
    with fb.open(tmp_path / "copy.fed") as copy:
        report = copy.check(full=True)
        assert report.problems == [], report.problems


def test_a_copy_takes_no_changes_but_its_leaders(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 10)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        with fb.open(tmp_path / "copy.fed") as copy:
            with pytest.raises(fb.DeniedError, match=r"read-only|follows root://127\.0\.0\.1"):
                put(copy, "run1/hits", 1)
            file = tmp_path / "copy.fed/databases/run1.root"
            before = file.read_bytes()
            for change in (
                lambda: copy.tag("mine"),
                lambda: copy.vacuum(),
                lambda: copy.seal("run1"),
                lambda: copy.detach("run1"),
                lambda: copy.compact("run1/hits", all=True),
                lambda: copy.tidy(),
                lambda: copy.repair(),
            ):
                with pytest.raises(fb.DeniedError):
                    change()
            assert file.read_bytes() == before
            assert_same(copy, fed, 1)
        with pytest.raises(fb.BusyError, match="follower"):
            fb.follow(url_of(server), tmp_path / "copy.fed")
    with fb.create(tmp_path / "other.fed") as other:
        put(other, "run1/hits", 1)
    with pytest.raises(fb.ExistsError, match="it holds another federation"):
        fb.follow(url_of(server), tmp_path / "other.fed")


def test_a_copy_is_served_and_followed(leader: tuple[fb.Federation, fb.Server], tmp_path: Path) -> None:
    fed, server = leader
    put(fed, "run1/hits", 5000)
    with ExitStack() as stack:
        first = stack.enter_context(fb.follow(url_of(server), tmp_path / "first.fed", name="first"))
        first.catch_up()
        copy = stack.enter_context(fb.open(tmp_path / "first.fed"))
        copy_server = stack.enter_context(serve(copy))
        second = stack.enter_context(fb.follow(url_of(copy_server), tmp_path / "second.fed"))
        csn = put(fed, "run1/hits", 7)
        assert first.catch_up().csn == csn
        assert second.catch_up().csn == csn
        with fb.open(url_of(copy_server)) as remote, fb.open(tmp_path / "second.fed") as last:
            assert_same(remote, fed, csn)
            assert_same(last, fed, csn)
            with pytest.raises(fb.DeniedError):
                put(remote, "run1/hits", 1)


def test_a_snapshot_pinned_at_the_copy_stays_readable(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 20_000)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        with fb.open(tmp_path / "copy.fed") as copy:
            pinned = copy.snapshot()
            before = pinned["run1/hits"].arrays("x", library="np")["x"]
            for round in range(4):
                with fed.transaction() as txn:
                    writer(txn, "run1/hits").update(range(20_000), x=np.full(20_000, float(round)))
                follower.catch_up()
                fed.vacuum(keep_from=fed.snapshot().csn)
                put(fed, "run1/others", 2000, round)
                follower.catch_up()
                again = fb.open(tmp_path / "copy.fed").snapshot(csn=pinned.csn)
                assert np.array_equal(again["run1/hits"].arrays("x", library="np")["x"], before)
            assert copy.check(full=True).problems == []


def test_a_copy_gives_space_back_with_its_leader(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 10)
    copied = 0
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        for round in range(5):
            with fed.transaction() as txn:
                txn.database("run1").container("big", Hit, create=True).extend(
                    {
                        "x": np.random.default_rng(round).random(200_000),
                        "hits": ak.unflatten([], np.zeros(200_000, int)),
                    }
                )
            copied += follower.catch_up().bytes
            with fed.transaction() as txn:
                txn.drop("run1/big")
            follower.catch_up()
            fed.vacuum(keep_from=fed.snapshot().csn)
        follower.catch_up()
    blocks = [(Path(it) / "databases/run1.root").stat().st_blocks for it in (fed.path, tmp_path / "copy.fed")]
    assert blocks[1] <= 1.5 * blocks[0] + 10_000, blocks
    assert copied > 5 * 200_000 * 8 * 0.9


def test_a_follower_continues_after_kills_and_cut_connections(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    proxy = Proxy(server.port)
    command = [
        sys.executable,
        "-m",
        "femtobarn",
        "follow",
        url_of(server, proxy.port),
        str(tmp_path / "copy.fed"),
    ]
    generator = random.Random(5)
    try:
        for round in range(6):
            put(fed, f"run{round % 2}/hits", 8000, round)
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(generator.uniform(0.6, 1.6))
            proxy.set("cut")
            put(fed, f"run{round % 2}/hits", 500, round)
            proxy.set("pass")
            time.sleep(generator.uniform(0.0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if not (tmp_path / "copy.fed/catalogue.sqlite").exists():  # Killed before it had copied anything.
                continue
            with fb.open(tmp_path / "copy.fed") as copy:
                csn = copy.snapshot().csn
                assert csn == 0 or contents(copy.snapshot()) == contents(fed.snapshot(csn=csn))
        subprocess.run([*command, "--once"], check=True, timeout=60)
        with fb.open(tmp_path / "copy.fed") as copy:
            assert_same(copy, fed, fed.snapshot().csn)
            assert copy.check(full=True).problems == []
    finally:
        proxy.close()


def test_a_name_that_is_used_again_has_another_file_at_the_copy(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 1000)
    put(fed, "run2/hits", 10)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        for round in range(3):
            with fed.transaction() as txn:
                txn.drop("run1")
            fed.vacuum(keep_from=fed.snapshot().csn)
            csn = put(fed, "run1/hits", 500, round)
            assert follower.catch_up().csn == csn
            with fb.open(tmp_path / "copy.fed") as copy:
                assert_same(copy, fed, csn)
                assert copy.check(full=True).problems == []
        files = [len(list((Path(it) / "databases").iterdir())) for it in (fed.path, tmp_path / "copy.fed")]
        assert files[0] == files[1]


def test_paths_of_a_leader_stay_in_the_folder_of_the_copy(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 10)
    (tmp_path / "victim").write_text("mine")
    with sqlite3.connect(Path(fed.path) / "catalogue.sqlite") as catalogue:
        catalogue.execute("UPDATE databases SET path = 'databases/../../victim'")
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower, pytest.raises(fb.InvalidError):
        follower.catch_up()
    assert (tmp_path / "victim").read_text() == "mine"

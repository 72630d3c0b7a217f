"""Copies of federations with tens of thousands of commits, whose first snapshots are gone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from followed import assert_same, put, serve, url_of
from test_followed_stores import leave, with_store

import femtobarn as fb

STRETCH = 1000
"""By how much the numbers of commits are multiplied; in between are commits without changes."""

COMMITS = {
    "tags": ["csn"],
    "kept_snapshots": ["csn"],
    "databases": ["created", "sealed", "dropped"],
    "database_names": ["since", "until"],
    "containers": ["created", "dropped"],
    "container_names": ["since", "until"],
    "versions": ["csn"],
    "classes": ["created"],
    "link_targets": ["csn"],
    "replicas": ["as_of"],
}
"""The columns of the catalogue that have numbers of commits."""


def stretch(folder: Path) -> int:
    """Make a federation that has a thousand times as many commits; returns the newest."""
    with sqlite3.connect(folder / "catalogue.sqlite") as sql:
        sql.execute(f"UPDATE commits SET csn = csn * {STRETCH}")
        for table, columns in COMMITS.items():
            changes = ", ".join(f"{column} = {column} * {STRETCH}" for column in columns)
            sql.execute(f"UPDATE {table} SET {changes}")
        sql.execute(f"UPDATE federation SET value = CAST(value * {STRETCH} AS TEXT) WHERE key = 'horizon'")
        (head,) = sql.execute("SELECT max(csn) FROM commits").fetchone()
        sql.execute(
            f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {head} - 1) "
            "INSERT INTO commits SELECT i, randomblob(16), 0, '', '', '', 1 FROM n "
            f"WHERE i % {STRETCH} <> 0"
        )
    sql.close()
    return int(head)


@pytest.fixture
def long_history(tmp_path: Path) -> fb.Federation:
    """A federation of 30,000 commits and one snapshot, with a database that only a store has."""
    with fb.create(tmp_path / "lhc.fed") as fed:
        with_store(fed)
        for number in range(13):
            put(fed, f"run{number % 4}/hits", 100, number)
        leave(fed, "run0", "run1")
        fed.tag("early", csn=fed.snapshot().csn)
        for number in range(fed.head(), 30):
            put(fed, f"run{2 + number % 2}/hits", 100, number)
        fed.vacuum(keep_from=fed.head())
    assert stretch(tmp_path / "lhc.fed") == 30_000
    return fb.open(tmp_path / "lhc.fed")


def test_a_long_history_is_copied_in_parts_by_followers_that_are_killed(
    long_history: fb.Federation, tmp_path: Path
) -> None:
    fed, copy = long_history, tmp_path / "copy.fed"
    step_and_die = (
        "import os, sys, femtobarn as fb\n"
        "print(fb.follow(*sys.argv[1:]).step().csn, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    with serve(fed) as server:
        command = [sys.executable, "-c", step_and_die, url_of(server), str(copy)]
        assert int(subprocess.run(command, stdout=subprocess.PIPE).stdout) == 20_000
        assert (copy / "databases/run2.root").exists()
        for refused in (lambda: fb.open(copy).snapshot(), lambda: fb.open(copy)["run2/hits"]):
            with pytest.raises(fb.UnavailableError, match="not complete yet"):
                refused()
        assert int(subprocess.run(command, stdout=subprocess.PIPE).stdout) == 30_000, "it goes on"
        with fb.follow(url_of(server), copy) as follower:
            assert follower.catch_up().bytes == 0
        assert [it.state for it in fed.where()] == ["nearline", "nearline", "online", "online"]
    with_store(fed, copy)
    with fb.open(copy) as here:
        assert [it.state for it in here.where()] == ["nearline", "nearline", "online", "online"]
        assert_same(here, fed, 30_000)
        assert len(here.snapshot(tag="early")["run2/hits"]) == len(fed.snapshot(tag="early")["run2/hits"])


def test_a_part_of_a_federation_is_not_promoted(long_history: fb.Federation, tmp_path: Path) -> None:
    copy = tmp_path / "copy.fed"
    with serve(long_history) as server, fb.follow(url_of(server), copy) as follower:
        assert not follower.step().is_current
    with pytest.raises(fb.CorruptError, match="only a part of the federation"):
        fb.promote(copy, "root://new//lhc.fed", force=True)
    with serve(long_history) as server, fb.follow(url_of(server), copy) as follower:
        assert follower.catch_up().csn == 30_000

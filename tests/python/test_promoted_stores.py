"""Copies in stores after a promotion: only the new leader removes copies that are no longer needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from followed import put, serve, url_of
from test_followed_stores import leave, with_store

import femtobarn as fb
from femtobarn import cli

NEW = "root://new//lhc.fed"


def objects(fed: fb.Federation) -> set[str]:
    """The names of the databases that have an object in the store."""
    keys = [str(path) for path in (Path(fed.path).parent / "mirror").glob("*/*.root")]
    return {
        it.database for it in fed.where() for copy in it.copies if any(key.endswith(copy.key) for key in keys)
    }


def count(fed: fb.Federation) -> int:
    return len(list((Path(fed.path).parent / "mirror").glob("*/*.root")))


def purge(fed: fb.Federation, name: str) -> None:
    """Drop a database for good; its copies have to be removed from the stores."""
    with fed.transaction() as txn:
        txn.drop(name)
    put(fed, "latest/hits", 1)
    fed.vacuum(keep_from=fed.snapshot().csn)


def in_store(fed: fb.Federation, copy: Path, *names: str) -> None:
    with_store(fed)
    for name in names:
        put(fed, f"{name}/hits", 100)
    leave(fed, *names)
    with serve(fed) as server, fb.follow(url_of(server), copy) as follower:
        follower.catch_up()
    with_store(fed, copy)


def archives(fed: fb.Federation) -> set[str]:
    return {copy.key.split("/")[0] for it in fed.where() for copy in it.copies}


def test_the_new_leader_removes_discarded_objects_of_the_former_one(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        in_store(fed, tmp_path / "copy.fed", "run1", "run2", "run3")
        # The former leader has not removed yet what it discards.
        purge(fed, "run3")
        with serve(fed) as server:
            with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
                follower.catch_up()
            purge(fed, "run2")
            fb.promote(tmp_path / "copy.fed", NEW)
        for refused in (fed.apply_storage_rules, lambda: fed.discard_copy("run1", "mirror")):
            with pytest.raises(fb.DeniedError, match=r"led by|does not lead"):
                refused()
        with fb.open(tmp_path / "copy.fed") as copy:
            assert (objects(copy), count(copy)) == ({"run1"}, 3)
            assert copy.apply_storage_rules().removed == 2
            put(copy, "run4/hits", 10)
            leave(copy, "run4")
            assert len(archives(copy)) == 1, "it goes on under the same names"
            assert len(copy["run1/hits"].arrays()) == 100
            purge(copy, "run1")
            assert copy.apply_storage_rules().removed == 1
            assert (objects(copy), count(copy)) == ({"run4"}, 1)


@pytest.mark.parametrize("comes_back", [True, False])
def test_no_object_is_removed_before_a_leader_left_behind_is_notified_or_forgotten(
    tmp_path: Path, comes_back: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        with_store(fed)
        for name in ("run1", "run2"):
            put(fed, f"{name}/hits", 100)
        leave(fed, "run1", "run2")
        with serve(fed) as server:
            port = server.port
            with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
                follower.catch_up()
        with_store(fed, tmp_path / "copy.fed")
        assert cli.main(["promote", str(tmp_path / "copy.fed"), NEW, "--force"]) == 0
        with fb.open(tmp_path / "copy.fed") as copy:
            purge(copy, "run1")
            copy.stage("run2")
            copy.discard_copy("run2", "mirror")
            applied = copy.apply_storage_rules()
            assert (applied.removed, count(copy)) == (0, 2)
            assert "forget-leader" in applied.failed[0][1]
            assert len(fed["run1/hits"].arrays()) == 100, "the former leader still has it"
            if comes_back:
                with fb.serve(fed.path, port=port, address="127.0.0.1", anonymous="all"):
                    fb._replication.inform_former_leader(tmp_path / "copy.fed")
                with pytest.raises(fb.DeniedError):
                    fed.apply_storage_rules()
            else:
                assert cli.main(["forget-leader", str(tmp_path / "copy.fed")]) == 0
                assert "leads alone" in capsys.readouterr().out
            assert cli.main(["forget-leader", str(tmp_path / "copy.fed")]) != 0
            assert copy.apply_storage_rules().removed == 2
            assert count(copy) == 0


def test_a_leader_that_leads_again_removes_nothing_that_its_successor_needs(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        in_store(fed, tmp_path / "copy.fed", "run1", "run2")
        with serve(fed) as server:
            with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
                follower.catch_up()
            fb.promote(tmp_path / "copy.fed", NEW)
    fb.promote(tmp_path / "lhc.fed", url_of(server), force=True)
    with fb.open(tmp_path / "lhc.fed") as fed, fb.open(tmp_path / "copy.fed") as copy:
        purge(fed, "run1")
        fed.apply_storage_rules()
        assert count(fed) == 2
        assert len(copy["run1/hits"].arrays()) == 100
        put(fed, "run9/hits", 1)
        leave(fed, "run9")
        assert len(archives(fed)) == 2


def left_behind(tmp_path: Path, fed: fb.Federation, *, is_mounted: bool = True) -> fb.Promotion:
    """Promote a copy of a federation with two databases in a store while its leader does not answer."""
    in_store(fed, tmp_path / "copy.fed", "run1", "run2")
    fed.stage("run2")
    with serve(fed) as server, fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
    mirror, away = tmp_path / "mirror", tmp_path / "away"
    if not is_mounted:
        mirror.rename(away)
    done = fb.promote(tmp_path / "copy.fed", NEW, force=True)
    if not is_mounted:
        away.rename(mirror)
    return done


def test_a_leader_that_does_not_know_its_successor_removes_nothing_that_it_needs(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        done = left_behind(tmp_path, fed)
        assert (done.untold_leader is None, done.unmarked) == (False, [])
        purge(fed, "run1")
        (failed,) = fed.apply_storage_rules().failed
        assert "another leader of the federation" in failed[1]
        assert "generation 1" in failed[1]
        with pytest.raises(fb.DeniedError, match="generation 1"):
            fed.discard_copy("run2", "mirror")
        assert count(fed) == 2
        with fb.open(tmp_path / "copy.fed") as copy:
            assert len(copy["run1/hits"].arrays()) == 100
            assert cli.main(["forget-leader", str(tmp_path / "copy.fed")]) == 0
            purge(copy, "run1")
            assert copy.apply_storage_rules().removed == 1, "the new one removes what it needs no more"


def test_a_store_that_was_away_at_the_promotion_is_marked_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        (unmarked,) = left_behind(tmp_path, fed, is_mounted=False).unmarked
        assert unmarked.startswith("mirror: ")
        with fb.open(tmp_path / "copy.fed") as copy:
            copy.apply_storage_rules()
        purge(fed, "run1")
        assert "generation 1" in fed.apply_storage_rules().failed[0][1]
        assert count(fed) == 2

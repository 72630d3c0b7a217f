"""Copies that take the place of their leader, and copies that are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copying_servers import certified
from followed import assert_same, put, serve, url_of
from server_settings import QUICK_STOP
from test_http_copies import ISSUER, token_and_keys

import femtobarn as fb
from femtobarn import cli


def test_a_copy_of_another_history_is_refused(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        put(fed, "run1/hits", 10)
        fed.backup(tmp_path / "backup")
        put(fed, "run1/hits", 10)
        with serve(fed) as server, fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
            assert follower.catch_up().csn == 2
    fb.restore(tmp_path / "backup", tmp_path / "restored.fed")
    with fb.open(tmp_path / "restored.fed") as restored:
        for ahead in (False, True):
            if ahead:
                put(restored, "run1/hits", 1)
                put(restored, "run1/hits", 1)
            with serve(restored) as server, pytest.raises(fb.ConflictError, match="history"):
                fb.follow(url_of(server), tmp_path / "copy.fed")


def test_a_promotion_loses_nothing(leader: tuple[fb.Federation, fb.Server], tmp_path: Path) -> None:
    fed, server = leader
    put(fed, "run1/hits", 5000)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        with pytest.raises(fb.BusyError):
            fb.promote(tmp_path / "copy.fed", "root://new//lhc.fed")
    with fb.open(url_of(server)) as writer:
        last = put(writer, "run1/hits", 3)
    done = fb.promote(tmp_path / "copy.fed", "root://new//lhc.fed")
    assert (done.generation, done.untold_leader) == (1, None)
    assert "root://new//lhc.fed" in [it["name"] for it in server.status()["followers"]]
    assert done.csn == last
    for place in (fed, url_of(server)):
        with pytest.raises(fb.DeniedError, match=r"root://new//lhc\.fed"):
            put(fb.open(place) if isinstance(place, str) else place, "run1/hits", 1)
    with fb.open(tmp_path / "copy.fed") as copy:
        assert_same(copy, fed, done.csn)
        with serve(copy) as new, fb.follow(url_of(new), tmp_path / "third.fed") as third:
            third.catch_up()
        with (
            fb.follow(url_of(server), tmp_path / "third.fed") as late,
            pytest.raises(fb.DeniedError, match="generation 0"),
        ):
            late.step()
        csn = put(copy, "run1/hits", 2000, 7)
        put(copy, "run2/hits", 10)
        assert len(copy["run1/hits"]) == 7003
        copy.vacuum(keep_from=csn)
        copy.seal("run1")
        assert copy.check(full=True).problems == []
        with serve(copy) as new, fb.follow(url_of(new), tmp_path / "third.fed") as third:
            third.catch_up()
            with fb.open(tmp_path / "third.fed") as third_copy:
                assert_same(third_copy, copy, copy.snapshot().csn)


def test_a_promotion_takes_a_right_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key, root = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(root))
    (tmp_path / "server.toml").write_text(
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n[limits]\ndrain_seconds = 0\n'
        f'[auth]\naudiences = ["copies"]\n[[auth.issuer]]\nissuer = "{ISSUER}"\n'
        f'keys = "{tmp_path}/issuer.jwks"\n'
    )
    promote = ["promote", str(tmp_path / "copy.fed"), "roots://new//lhc.fed"]
    token, _ = token_and_keys(tmp_path, "storage.read:/ storage.modify:/ storage.stage:/")
    with (
        fb.create(tmp_path / "lhc.fed") as fed,
        fb.serve(
            fed.path, port=0, address="127.0.0.1", anonymous="write", config=tmp_path / "server.toml"
        ) as server,
    ):
        url = f"roots://localhost:{server.port}//lhc.fed"
        put(fb.open(url), "run1/hits", 10)
        with fb.follow(url, tmp_path / "copy.fed") as follower:
            follower.catch_up()
        for is_anonymous in (True, False):
            if not is_anonymous:
                monkeypatch.setenv("BEARER_TOKEN", token)
            put(fb.open(url), "run1/hits", 10)
            for more in ([], ["--force"]):
                assert cli.main([*promote, *more]) != 0
                assert "may not promote a copy of /lhc.fed" in capsys.readouterr().err
        put(fed, "run1/hits", 10)
        token, _ = token_and_keys(tmp_path, "storage.read:/ femtobarn.promote:/lhc.fed")
        monkeypatch.setenv("BEARER_TOKEN", token)
        assert cli.main(promote) == 0
        with pytest.raises(fb.DeniedError, match=r"is led by roots://new//lhc\.fed"):
            put(fed, "run1/hits", 1)
    with fb.open(tmp_path / "copy.fed") as copy:
        assert len(copy["run1/hits"]) == 40


def takes_no_changes(fed: fb.Federation) -> bool:
    try:
        put(fed, "run1/hits", 1)
    except fb.DeniedError as error:
        return "is led by root://new//lhc.fed" in str(error)
    return False


def test_a_leader_that_was_left_behind_is_stopped_when_it_comes_back(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        put(fed, "run1/hits", 50)
        with serve(fed) as server:
            port = server.port
            with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
                follower.catch_up()
        put(fed, "run1/hits", 1)
        with pytest.raises(fb.UnavailableError, match="with --force"):
            fb.promote(tmp_path / "copy.fed", "root://new//lhc.fed")
        assert cli.main(["promote", str(tmp_path / "copy.fed"), "root://new//lhc.fed", "--force"]) == 0
        with fb.open(tmp_path / "copy.fed") as copy:
            assert len(copy["run1/hits"]) == 50
            put(copy, "run1/hits", 9)
        command = [sys.executable, "-m", "femtobarn", "serve", str(tmp_path / "copy.fed"), "-p", "0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as new:
            put(fed, "run1/hits", 1)
            config = tmp_path / "quick.toml"
            shutil.copy(QUICK_STOP, config)
            with fb.serve(fed.path, port=port, address="127.0.0.1", anonymous="all", config=config):
                deadline = time.monotonic() + 30
                while time.monotonic() < deadline:
                    if takes_no_changes(fed):
                        break
                    time.sleep(0.2)
                else:
                    pytest.fail("the former leader still takes changes")
            new.terminate()
        with serve(fb.open(tmp_path / "copy.fed")) as server, pytest.raises(fb.ExistsError):
            fb.follow(url_of(server), fed.path)


def test_one_of_two_copies_is_promoted(leader: tuple[fb.Federation, fb.Server], tmp_path: Path) -> None:
    fed, server = leader
    put(fed, "run1/hits", 100)
    for name in ("b", "c"):
        with fb.follow(url_of(server), tmp_path / f"{name}.fed") as follower:
            follower.catch_up()
    fed.tag("late")
    assert fb.promote(tmp_path / "b.fed", "root://b//lhc.fed").generation == 1
    with fb.open(tmp_path / "b.fed") as copy:
        assert [tag["name"] for tag in copy.tags()] == ["late"], "what no commit dates is taken over, too"
    for force in (False, True):
        with pytest.raises(fb.ConflictError, match=r"root://b//lhc\.fed leads"):
            fb.promote(tmp_path / "c.fed", "root://c//lhc.fed", force=force)
    with (
        fb.follow(url_of(server), tmp_path / "c.fed") as follower,
        pytest.raises(fb.DeniedError, match=r"follow root://b//lhc\.fed"),
    ):
        follower.catch_up()


def test_a_promotion_that_was_interrupted_is_repeated_or_taken_back(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 100)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
    killed = (
        "import femtobarn as fb, os, sys, threading, time;"
        "threading.Thread(target=lambda: (time.sleep(float(sys.argv[3])), os._exit(9)), daemon=True).start();"
        "fb.promote(sys.argv[1], sys.argv[2])"
    )
    outcomes = set()
    for delay in (0.05, 0.1, 0.15, 0.2, 0.3):
        command = [
            sys.executable,
            "-c",
            killed,
            str(tmp_path / "copy.fed"),
            "root://new//lhc.fed",
            str(delay),
        ]
        done = subprocess.run(command, capture_output=True)
        # One may have been killed when it was done.
        outcomes.add(0 if b"needs no promotion" in done.stderr else done.returncode)
    if 0 not in outcomes:
        with serve(fb.open(fed.path)):
            assert fb.promote(tmp_path / "copy.fed", "root://new//lhc.fed").csn == 1
    with fb.open(tmp_path / "copy.fed") as copy:
        put(copy, "run1/hits", 1)
        assert copy.check(full=True).problems == []
    with fb.open(fed.path) as former:
        with pytest.raises(fb.DeniedError):
            put(former, "run1/hits", 1)
        with pytest.raises(fb.DeniedError, match="with --force"):
            fb.promote(fed.path, "root://old//lhc.fed")
        assert fb.promote(fed.path, "root://old//lhc.fed", force=True).generation == 2
        put(fb.open(fed.path), "run1/hits", 1)


def test_a_backup_of_a_copy_is_a_federation_of_its_own(
    leader: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> None:
    fed, server = leader
    put(fed, "run1/hits", 1000)
    with fb.follow(url_of(server), tmp_path / "copy.fed") as follower:
        follower.catch_up()
        with fb.open(tmp_path / "copy.fed") as copy:
            copy.backup(tmp_path / "backup")
    with fb.restore(tmp_path / "backup", tmp_path / "restored.fed") as restored:
        assert_same(restored, fed, 1)
        put(restored, "run1/hits", 5)
        assert restored.check(full=True).problems == [] or all(
            problem.kind == "Chain" for problem in restored.check(full=True).problems
        )

"""The simulated tape library: its drives and tapes, used by many processes, and as a federation's store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from stored_points import fill, is_right

import femtobarn as fb
from femtobarn_testbed.tape_library import Library, Play, main

SIZE = 1000
"""Bytes of the files of tests; each counts as a megabyte, so a tape has two of them."""

QUICK = Play(drives=2, byte_scale=1e6, tape_bytes=2e9, time_scale=0.0)


def library(folder: Path, play: Play, files: int = 0) -> Library:
    """Make a library of files: `0` and `1` on the first tape, `2` and `3` on the second, and so on."""
    folder.mkdir()
    made = Library(folder, play)
    for number in range(files):
        made.answer({"operation": "migrate", "key": str(number), "path": str(content(folder, number))})
    return made


def content(folder: Path, number: int) -> Path:
    path = folder / f"content-{number}"
    path.write_bytes(bytes([number]) * SIZE)
    return path


def stage(made: Library, key: str) -> dict[str, Any]:
    """Stage a file; returns what the drive did."""
    assert made.answer({"operation": "stage", "key": key, "path": str(made.folder / "staged")}) == {}
    assert (made.folder / "staged").read_bytes() == bytes([int(key)]) * SIZE
    return made.work()[-1]


def test_files_lie_on_tapes_one_after_the_other(tmp_path: Path) -> None:
    made = library(tmp_path / "library", QUICK, files=3)
    places = [made.answer({"operation": "query", "key": key}) for key in "012"]
    assert [(place["tape"], place["position"]) for place in places] == [
        ("T00001", 0), ("T00001", 1_000_000_000), ("T00002", 0),
    ]  # fmt: skip
    assert {place["size"] for place in places} == {SIZE}
    assert len({place["checksum"] for place in places}) == 3
    assert made.answer({"operation": "remove", "key": "0"}) == {}
    assert made.answer({"operation": "remove", "key": "0"}) == {}
    assert made.answer({"operation": "query", "key": "0"}) == {"exists": False}
    assert made.answer({"operation": "stage", "key": "0", "path": "nowhere"}) == {"exists": False}
    assert "no operation 'weigh'" in made.answer({"operation": "weigh", "key": "0"})["error"]
    again = {"operation": "migrate", "key": "1", "path": str(content(made.folder, 1))}
    assert made.answer(again)["tape"] == "T00002", "a place is written once"
    assert len(list((made.folder / "objects").iterdir())) == 2


def test_the_drive_that_was_idle_for_the_longest_time_takes_a_tape(tmp_path: Path) -> None:
    made = library(tmp_path / "library", QUICK, files=6)
    drives = [(one["drive"], one["tape"][-1]) for one in made.work()]
    assert drives == [(0, "1"), (0, "1"), (1, "2"), (1, "2"), (0, "3"), (0, "3")]
    first = stage(made, "0")
    assert (first["drive"], first["tape"]) == (1, "T00001")
    assert 60.0 <= first["mount_seconds"] <= 120.0
    assert first["locate_seconds"] == 0.0
    assert first["transfer_seconds"] == pytest.approx(1e9 / 300e6)
    back = stage(made, "0")
    assert (back["drive"], back["mount_seconds"]) == (1, 0.0)
    assert back["locate_seconds"] == pytest.approx(0.01), "it winds back by the file that it has read"
    counters = made.counters()
    assert (counters["mounts"], counters["files"], counters["bytes"]) == (4, 8, 8e9)
    assert counters["busy_seconds"] == pytest.approx(sum(one["busy_seconds"] for one in counters["drives"]))


def test_a_tape_stays_for_a_while_although_another_one_waits(tmp_path: Path) -> None:
    play = QUICK._replace(drives=1, mount_seconds=30.0, hold_seconds=60.0, time_scale=0.005)
    made = library(tmp_path / "library", play, files=3)
    began = [one["began"] for one in made.work()]
    took = 0.005 * sum(made.work()[1][part] for part in ("locate_seconds", "transfer_seconds"))
    assert began[2] - began[1] >= took + 0.3


def command(made: Library, **request: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(made.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return process


def test_processes_share_the_drives(tmp_path: Path) -> None:
    slow = QUICK._replace(time_scale=0.001, mount_seconds=60.0, hold_seconds=0.0)
    made = library(tmp_path / "library", QUICK, files=8)
    since, made = time.time(), made._replace(play=slow)
    processes = [
        command(made, operation="stage", key=str(number % 8), path=str(tmp_path / f"staged-{number}"))
        for number in range(16)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["{}\n"] * 16
    assert all((tmp_path / f"staged-{n}").read_bytes() == bytes([n % 8]) * SIZE for n in range(16))
    work = made.work(since)
    assert len(work) == 16
    for drive in range(2):
        mine = [one for one in work if one["drive"] == drive]
        assert mine
        for one, after in pairwise(mine):
            assert after["began"] >= one["began"] + 0.001 * _seconds(one), "one thing after the other"
            assert (after["mount_seconds"] > 0.0) == (after["tape"] != one["tape"])
    assert sum(map(_seconds, work)) == pytest.approx(made.counters(since)["busy_seconds"])


def _seconds(one: dict[str, Any]) -> float:
    return float(one["mount_seconds"] + one["locate_seconds"] + one["transfer_seconds"])


def test_a_killed_command_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    made = library(tmp_path / "library", QUICK._replace(time_scale=1.0))
    killed = command(made, operation="migrate", key="7", path=str(content(made.folder, 7)))
    while not made.work():
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert made.answer({"operation": "query", "key": "7"}) == {"exists": False}
    # The drive of the killed command has work until its time is over, so the next file gets another tape.
    quick = made._replace(play=QUICK._replace(tape_bytes=1e9))
    after = quick.answer({"operation": "migrate", "key": "8", "path": str(content(made.folder, 8))})
    assert (after["tape"], stage(quick, "8")["drive"]) == ("T00002", 1)


def test_a_file_that_is_written_again_is_never_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(tmp_path / "library", QUICK, files=1)

    def die(*_: object, **__: object) -> None:
        raise InterruptedError("killed")

    monkeypatch.setattr(Path, "unlink", die)
    with pytest.raises(InterruptedError):
        made.answer({"operation": "migrate", "key": "0", "path": str(content(made.folder, 0))})
    monkeypatch.undo()
    assert made.answer({"operation": "query", "key": "0"})["position"] == 1_000_000_000
    stage(made, "0")


def test_the_program_prints_counters_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = library(tmp_path / "library", QUICK, files=1)
    folder = ["--folder", str(made.folder)]
    assert main([*folder, "--drives", "3", "counters"]) == 0
    counters = json.loads(capsys.readouterr().out)
    assert (counters["mounts"], len(counters["drives"])) == (1, 3)
    program = [sys.executable, "-m", "femtobarn_testbed.tape_library", *folder]
    request = json.dumps({"operation": "migrate", "key": "9", "path": str(tmp_path / "nothing")})
    done = subprocess.run(program, input=request, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "nothing" in json.loads(done.stdout)["error"]


def test_a_federation_uses_it_as_a_store(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    made = Library(tmp_path / "library", Play(time_scale=0.0))
    fed = fill(tmp_path / "lhc.fed", "run7", "run8", entries=1000)
    (Path(fed.path) / "storage.toml").write_text(made.settings("tape"))
    copies = fed.migrate("*", "tape")
    assert [made.answer({"operation": "query", "key": copy.key})["checksum"] for copy in copies] == [
        copy.checksum for copy in copies
    ]
    fed.evict("*")
    assert is_right(fed, "run7", 1000)
    assert is_right(fed, "run8", 1000)
    fed.discard_copy("run8", "tape")
    assert made.answer({"operation": "query", "key": copies[1].key}) == {"exists": False}
    (stored,) = (tmp_path / "library/objects").iterdir()
    stored.write_bytes(b"other bytes")
    fed.evict("run7")
    with pytest.raises(fb.CorruptError, match="11 bytes"):
        fed.stage("run7")

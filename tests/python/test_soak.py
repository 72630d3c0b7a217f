"""The soak finds leaks and lost operations; a short run of it finds none on a site of three servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from machines import SERVERS
from postgres_servers import program

from soak.judge import check_ledger, operation_faults
from soak.log import Operation
from soak.run import is_judged, series_of
from soak.samples import FILE_KINDS, ProcessSample, Sample, sample_of, tasks_of, ticks_of
from soak.slopes import Rule, Series, trend_of

DEEDS = 12
"""Kinds of deeds of operators."""


def memory(values: np.ndarray, lives: list[int] | None = None) -> Series:
    """A series of samples, one in two seconds."""
    times = [2.0 * index for index in range(len(values))]
    return Series("memory", "MB", Rule(0.05, 5.0), times, values.tolist(), lives or [0] * len(values))


def noise(count: int, width: float) -> np.ndarray:
    return np.random.default_rng(7).normal(0.0, width, count)


def test_a_leak_below_the_noise_is_found() -> None:
    leak = np.linspace(0.0, 12.0, 900)
    trend = trend_of(memory(100.0 + leak + noise(900, 10.0)), 450.0)
    assert trend.verdict == "grows"
    assert trend.allowed == pytest.approx(5.3, abs=0.2)
    assert trend.low < 9.0 < trend.high
    assert "memory: grows" in str(trend)


def test_flat_series_pass_with_warm_up_outliers_and_steps_down() -> None:
    flat = 100.0 + noise(900, 10.0)
    flat[:200] -= np.linspace(90.0, 0.0, 200)
    flat[::10] += 500.0
    assert trend_of(memory(flat), 450.0).verdict == "flat"
    assert trend_of(memory(flat[::-1] - np.linspace(0.0, 50.0, 900)), 450.0).verdict == "flat"
    # It grows surely, but by less than the rule allows.
    assert trend_of(memory(100.0 + np.linspace(0.0, 4.0, 900)), 0.0).verdict == "flat"


def test_lives_of_a_server_are_looked_at_one_by_one() -> None:
    begun_anew = np.concatenate([np.full(300, 10.0), np.full(300, 90.0), np.full(300, 200.0)])
    lives = [1] * 300 + [2] * 300 + [3] * 300
    assert trend_of(memory(begun_anew + noise(900, 1.0), lives), 20.0).verdict == "flat"
    assert trend_of(memory(begun_anew + noise(900, 1.0)), 20.0).verdict == "grows"
    leaking = np.tile(np.linspace(100.0, 140.0, 300), 3)
    assert trend_of(memory(leaking + noise(900, 1.0), lives), 20.0).verdict == "grows"


def test_a_short_run_has_no_verdict() -> None:
    assert trend_of(memory(np.linspace(0.0, 100.0, 15)), 20.0).verdict == "short"
    assert trend_of(memory(np.empty(0)), 20.0).verdict == "short"
    assert trend_of(memory(np.linspace(0.0, 100.0, 60)), 20.0).verdict == "short"


def test_open_files_of_a_process_are_counted_by_kind(tmp_path: Path) -> None:
    # Other tests and libraries may open and close files of this process meanwhile.
    code = (
        "import os, socket; input('started'); kept, removed, other = "
        "open('kept', 'w'), open('removed', 'w'), socket.socket(); os.remove('removed'); input('opened')"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.read(7) == b"started"
        before = sample_of(child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.read(6) == b"opened"
        after = sample_of(child.pid)
        child.communicate(b"\n")
    assert before is not None
    assert after is not None
    more = {kind: count - before.open_files[kind] for kind, count in after.open_files.items()}
    assert more == {"sockets": 1, "files": 1, "removed files": 1, "other descriptors": 0}
    assert after.private_bytes > 0
    assert sample_of(2**22) is None


def test_a_process_that_has_ended_has_no_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert len(tasks_of(process.pid)) == 1
        process.communicate(b"\n")
        assert tasks_of(process.pid) == []


def test_speed_is_not_judged_while_other_processes_have_the_processors() -> None:
    grown = trend_of(memory(np.linspace(0.0, 1000.0, 90)), 0.0)
    slower, leaked = replace(grown, unit="s"), replace(grown, name="threads of server one", unit="")
    more = replace(leaked, growth=4 * leaked.allowed)
    assert [is_judged(it, 0.05) for it in (grown, slower, leaked, more)] == [True] * 4
    assert [is_judged(it, 0.5) for it in (grown, slower, leaked, more)] == [True, False, True, False]
    before = ticks_of(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert ticks_of(os.getpid()) > before, "it includes children that have ended"


def served(files: tuple[int, int, int], at: float) -> Sample:
    """A sample of servers with so many open files each."""
    servers = {
        name: ProcessSample(1, 0, 1, {kind: count if kind == "files" else 0 for kind in FILE_KINDS})
        for name, count in zip(SERVERS, files, strict=True)
    }
    return Sample(at, servers, {}, 1, 0, 0, 0, 1, 0.0)


def test_files_of_clients_that_move_are_no_leak_and_a_slow_one_is_found() -> None:
    moving = [served((40 + step // 6, 40, 40 - step // 6), 10.0 * step) for step in range(60)]
    leaking = [served((40 + step // 6,) * 3, 10.0 * step) for step in range(60)]
    away = [replace(each, servers={SERVERS[0]: each.servers[SERVERS[0]]}) for each in moving[::3]]
    for samples, verdict in (
        (moving, "flat"),
        (sorted(moving + away, key=lambda it: it.time), "flat"),
        (leaking, "grows"),
    ):
        found = {it.name: trend_of(it, 0.0).verdict for it in series_of(samples, [], 0.0, 600.0)}
        assert found["files of all servers"] == verdict
        assert found[f"files of server {SERVERS[0]}"] == "flat"


def told(number: int, outcome: str) -> Operation:
    return Operation("small", 3, number, 0.0, 0.0, outcome)


def test_entries_are_compared_with_the_outcomes_that_clients_received() -> None:
    operations = [told(1, "ok"), told(2, "conflict"), told(3, "unavailable"), told(4, "ok")]
    # Operation 5 is that in which the client was killed.
    for entries in ([(3, 1), (3, 4)], [(3, 1), (3, 3), (3, 4), (3, 5)]):
        assert list(check_ledger("small", entries, operations)) == []
    for entries, wrong in (
        ([(3, 1)], "operation 4 was acknowledged, and is lost"),
        ([(3, 1), (3, 4), (3, 1)], "operation 1 was committed 2 times"),
        ([(3, 1), (3, 2), (3, 4)], "operation 2 was refused (conflict), and is there"),
        ([(3, 1), (3, 4), (3, 6)], "there is an operation 6, which it has not begun"),
    ):
        assert list(check_ledger("small", entries, operations)) == [f"small 3: {wrong}"]
    assert len(list(operation_faults([*operations, told(5, "wrong"), told(6, "corrupt")]))) == 2


def test_a_short_run_finds_nothing(project: Path, examples: Path, tmp_path: Path) -> None:
    program("initdb")
    pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
    assert (examples / "registers").exists()
    paths = os.pathsep.join(str(project / name) for name in ("python", "tests", "examples/site"))
    short = ["--minutes", "0.1", "--rest", "0", "--pause", "0.3", "--interval", "0.5", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "soak", *short],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads((tmp_path / "soak.json").read_text())
    assert run["faults"] == []
    assert len({deed["name"] for deed in run["deeds"]}) == DEEDS
    assert min(kind["outcomes"].get("ok", 0) for kind in run["operations"].values()) > 0
    assert run["registers"] > 0
    assert {trend["verdict"] for trend in run["trends"]} <= {"flat", "short"}
    assert "Nothing was lost" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "servers.png").read_bytes().startswith(b"\x89PNG")

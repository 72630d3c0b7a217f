"""Benchmarks measure on a quiet machine: they notice other programs, refuse, mark and repeat."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import processes
from waiting import wait_for

import machine
import measurement
import report
import run
from framework import Figure, Results, Side
from machine import Activity
from progress import Progress, seconds_in_all

QUIET = Activity(3.0, 0.02, {"a processor": 0.01, "the disk": 0.0}, 8 << 30, {"editor (7)": 0.02})
SIDE = Side("Femtobarn", ("ours",), "ours")
SAMPLE = {"items": 1, "bytes": 1, "wall_s": 1.0, "cpu_s": 1.0, "check": 0}


def spin() -> int:
    """Start a process that spins and is nobody's child, so that it is none of ours; return its id."""
    starter = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', 'while True: pass']\n"
        "print(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid)"
    )
    done = subprocess.run([sys.executable, "-c", starter], stdout=subprocess.PIPE, check=True, text=True)
    return int(done.stdout)


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process that spins, which is not ours."""
    number = spin()
    try:
        wait_for(lambda: processes()[number].seconds > 0.0)
        yield number
    finally:
        os.kill(number, signal.SIGKILL)


def test_a_run_refuses_to_begin_beside_a_process_that_spins(
    spinning: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "look", partial(machine.look, 0.5))
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "keys"])
    with pytest.raises(SystemExit, match=r"the machine is busy: others use [\d.]+ of \d+ cores") as refused:
        run.main()
    assert "--busy" in str(refused.value)
    assert machine.check_quiet(busy=True), "it may be measured all the same, and says why it is busy"


def test_a_watch_counts_other_processes_and_not_ours(spinning: int) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as ours:
        watch = machine.Watch()
        begun = processes()[ours.pid].seconds
        wait_for(lambda: processes()[ours.pid].seconds > begun + 0.1)
        seen = watch.seen()
        ours.kill()
    numbers = {int(name.rpartition("(")[2].rstrip(")")): cores for name, cores in seen.by_process.items()}
    assert numbers[spinning] > 0
    assert ours.pid not in numbers


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (QUIET, None),
        (Activity(3.0, 1.0, {}, 8 << 30, {}), "others use 1.00 of"),
        (Activity(0.1, 0.5, {}, 8 << 30, {}), None),  # 0.05 s, which /proc hardly tells from nothing
        (Activity(3.0, 0.0, {"the disk": 0.3}, 8 << 30, {}), "processes wait for the disk 30% of the time"),
        (Activity(3.0, 0.0, {}, 1 << 30, {}), "1.0 GiB of memory are free"),
    ],
)
def test_a_machine_is_busy_for_a_reason(seen: Activity, reason: str | None) -> None:
    assert [each.startswith(reason or "") for each in seen.reasons()] == ([True] if reason else [])


def test_the_busiest_processes_are_named_first() -> None:
    seen = Activity(3.0, 2.0, {}, 8 << 30, {"idle (1)": 0.0, "make (2)": 0.5, "cc1 (3)": 1.5})
    assert seen.busiest() == ["cc1 (3): 1.50 cores", "make (2): 0.50 cores"]


def test_a_sample_beside_a_process_that_spins_is_repeated_then_marked(
    spinning: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = f"import time; time.sleep(0.3); print('''{SAMPLE}'''.replace(\"'\", '\"'))"
    monkeypatch.setattr(measurement, "command_line", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(measurement, "WORK", tmp_path / "work")
    monkeypatch.setattr(machine, "wait_for_quiet", lambda seconds: ["busy"])
    sampler, results = measurement.Sampler(10), Results({"Femtobarn": []})
    sampler.one_round(Figure("f", "F", "objects", (SIDE,)), results, print)
    assert sampler.repeats == 10 - measurement.REPEATS_OF_ONE_MAX
    assert len(results.repeated["Femtobarn"]) == measurement.REPEATS_OF_ONE_MAX
    [sample] = results.samples["Femtobarn"]
    assert sample["busy"][0].startswith("others use")
    assert sample["items"] == 1


def taken(monkeypatch: pytest.MonkeyPatch, busy: list[bool], repeats: int, besides: list[str]) -> Results:
    """The results of one round in which samples were busy or not."""
    turns = iter(busy)
    monkeypatch.setattr(
        measurement, "run_side", lambda side: {**SAMPLE, **({"busy": ["make"]} if next(turns) else {})}
    )
    monkeypatch.setattr(machine, "wait_for_quiet", lambda seconds: [])
    sampler, results = measurement.Sampler(repeats), Results({"Femtobarn": []})
    sampler.besides = besides
    sampler.one_round(Figure("f", "F", "objects", (SIDE,)), results, print)
    assert next(turns, None) is None, "every sample was asked for"
    return results


def test_a_quiet_sample_takes_the_place_of_a_busy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    results = taken(monkeypatch, [True, False], repeats=5, besides=[])
    assert results.samples == {"Femtobarn": [SAMPLE]}
    assert results.repeated == {"Femtobarn": [{**SAMPLE, "busy": ["make"]}]}


def test_busy_samples_count_once_repeats_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    results = taken(monkeypatch, [True], repeats=0, besides=["the disk"])
    assert results.samples == {"Femtobarn": [{**SAMPLE, "busy": ["the disk", "make"]}]}
    assert results.repeated == {}


def recorded(samples: list[dict[str, Any]], repeated: int, **more: Any) -> dict[str, Any]:
    """The JSON of a run of one side."""
    side = {"samples": samples, "repeated": [SAMPLE] * repeated}
    return {"chapters": [{"figures": [{"sides": [side]}]}], **more}


def test_the_report_has_the_load_of_the_machine() -> None:
    marked = {**SAMPLE, "busy": ["make"]}
    quiet = report.quietness(recorded([SAMPLE] * 20 + [marked], 2, busy=[]))
    assert (
        quiet == "1 of 21 samples were taken while other processes ran, 2 were taken again for that reason."
    )
    allowed = report.quietness(recorded([SAMPLE], 0, busy=["others use 1 core"]))
    assert allowed.startswith("**Measured on a busy machine** (others use 1 core): 0 of 1 samples")
    assert report.quietness(recorded([SAMPLE, marked], 0, busy=[])).startswith(
        "**Measured on a busy machine**: "
    )
    assert report.quietness(recorded([SAMPLE], 0)) == "It was not recorded what else ran on the machine."


def test_progress_has_the_figure_and_the_expected_end(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure(name, name, "objects", (SIDE,) * 2) for name in ("append", "scan")]
    progress = Progress(figures, 3, 1000.0)
    progress.begin(figures[0], 0)
    progress.begin(figures[1], 2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("round 1 of 3, figure 1 of 2, append; begun at ")
    assert second.startswith("round 3 of 3, figure 2 of 2, scan; done at about ")
    assert progress.done == 2.5


def test_a_run_ends_with_its_rounds_or_at_its_limit_but_not_before_its_first_round() -> None:
    assert seconds_in_all(60.0, 0.5, 3, 1000.0) == 360.0
    assert seconds_in_all(60.0, 0.5, 3, 200.0) == 200.0
    assert seconds_in_all(600.0, 0.5, 3, 200.0) == 1200.0

"""The driver of the benchmarks: figures and targets from samples, and processes that start at once."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from processes import tree_seconds
from servers import Server

import framework
import measurement
import page
import programs
import report
import run
from chapters import NAMES
from framework import Chapter, Figure, Results, Side
from programs import Unavailable

ROOT = Path(__file__).resolve().parent.parent.parent

WRITERS = tuple(Side("Femtobarn", ("ours",), "ours", x=number) for number in (1, 2))
FIGURE = Figure(
    name="append",
    title="Append objects",
    unit="objects",
    sides=(*WRITERS, Side("file", ("peers",), "limit", x=1)),
    targets=(
        framework.faster("Femtobarn @ 1", "file @ 1", 0.9),
        framework.cpu_per_100_mb("Femtobarn @ 1", 0.04),
        framework.never_falls(("Femtobarn @ 1", "Femtobarn @ 2")),
        framework.disk_over_payload("Femtobarn @ 1", 1.03),
    ),
    x="writers",
)


def sample(items: int, wall: float, cpu: float, **more: Any) -> dict[str, Any]:
    """The sample that a program prints for objects of 10,000 bytes."""
    return {"items": items, "bytes": items * 10_000, "wall_s": wall, "cpu_s": cpu, "check": 0, **more}


@pytest.fixture
def results() -> Results:
    """Three rounds; the middle one is the median."""
    rounds = (0.5, 1.0, 4.0)
    return Results({
        "Femtobarn @ 1": [sample(1000, wall, 0.005 * wall, disk_bytes=10_100_000) for wall in rounds],
        "Femtobarn @ 2": [sample(1000, 2 * wall, wall) for wall in rounds],
        "file @ 1": [sample(1000, 0.8 * wall, wall) for wall in rounds],
    })  # fmt: skip


def test_targets_use_medians(results: Results) -> None:
    judged = [target.judge(results) for target in FIGURE.targets]
    assert [round(each["value"], 6) for each in judged] == [0.8, 0.05, 0.5, 1.01]
    assert [each["reached"] for each in judged] == [False, False, False, True]


@pytest.mark.parametrize("name", NAMES)
def test_targets_refer_to_existing_sides(name: str) -> None:
    chapter = Chapter.of(name, import_module(f"chapters.{name}"))
    more = {
        "disk_bytes": 1,
        "memory_bytes": 1,
        "threads": 1,
        "median_us": 1,
        "p99_us": 1,
        "ours_s": 1,
        "open_s": 1,
        "copied_bytes": 1,
        "merge_us": 1,
        "points": [[1, 1], [2, 1]],
    }
    for figure in chapter.figures:
        done = Results({side.key: [sample(1, 1.0, 1.0, **more)] for side in figure.sides})
        for target in figure.all_targets:
            assert not math.isnan(target.judge(done)["value"]), (figure.name, target.text)


def test_server_cpu_time_is_that_of_its_process() -> None:
    before = time.process_time()
    found = Server(0, os.getpid()).cpu_seconds()
    assert before <= found <= time.process_time()


def test_target_without_samples_is_not_reached() -> None:
    judged = FIGURE.targets[0].judge(Results({"Femtobarn @ 1": [sample(1, 1, 1)]}))
    assert not judged["reached"]
    assert report.number(judged["value"]) == "not measured"


def test_target_is_not_reached_when_samples_lack_its_value() -> None:
    target = framework.Target("threads", lambda r: r.median("server", lambda s: s["threads"]), at_most=4)
    judged = target.judge(Results({"server": [sample(1, 1, 1)]}))
    assert math.isnan(judged["value"])
    assert not judged["reached"]


def test_headline_of_nothing_is_judged() -> None:
    nothing, none = (lambda results: 0.0), Results({})
    less = framework.Measure("threads", lambda results, side: 0.0, less=True)
    most = framework.Target("threads", nothing, at_most=4)
    assert framework.Headline("Read", "threads", "server", less, most).judge(none)["reached"]
    more = framework.Measure("rate", lambda results, side: 0.0)
    least = framework.Target("rate", nothing, at_least=4)
    assert not framework.Headline("Read", "rate", "server", more, least).judge(none)["reached"]


def test_flat_and_highest_use_the_medians_of_a_curve() -> None:
    points = [[[10, 1.0], [100, 1.5]], [[10, 3.0], [100, 1.5]], [[10, 2.0], [100, 9.0]]]
    results = Results({"open": [sample(1, 1, 1, points=each) for each in points]})
    assert results.points("open") == [(10, 2.0), (100, 1.5)]
    assert framework.flat("open").judge(results)["value"] == pytest.approx(2 / 1.5)
    assert framework.highest("open", 5, "ms").judge(results)["reached"]


def test_results_are_refused_when_sides_read_different_data(results: Results) -> None:
    results.samples["file @ 1"][0]["check"] = 1
    with pytest.raises(SystemExit, match="different data"):
        measurement.check_equal(FIGURE, results)


def test_concurrent_processes_start_together_and_the_slowest_counts() -> None:
    program = """if True:
        import json, sys
        print("ready", flush=True)
        assert sys.stdin.readline() == "\\n"
        index = int(sys.argv[1])
        times = {"p99_us": 10 * (1 + index), "median_us": 1 + index}
        costs = {"wall_s": 1.0 + index, "cpu_s": 0.5, "check": index}
        print(json.dumps({"items": 10, "bytes": 20, **costs, **times}))
    """
    summed = measurement.run_together([[sys.executable, "-c", program, str(index)] for index in range(3)])
    wanted = {"items": 30, "bytes": 60, "wall_s": 3.0, "cpu_s": 1.5, "check": 3, "p99_us": 30, "median_us": 2}
    assert {key: summed[key] for key in wanted} == wanted


def test_side_is_skipped_when_its_programs_are_missing() -> None:
    side = Side("peer", ("ours",), needs=("sh", "no-such-program"))
    results = Results({"peer": []})
    measurement.Sampler().one_round(Figure("f", "F", "objects", (side,)), results, print)
    assert results.samples == {"peer": []}
    with pytest.raises(Unavailable, match="missing programs: no-such-program"):
        measurement.run_side(side)


def test_packages_of_a_peer_are_installed_once_or_its_side_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def install(command: list[str]) -> str:
        if not is_reached:
            raise SystemExit("no registry is reached")
        installed.append(command[-3:])
        (tmp_path / ".cache" / "ducklake-1.5.5.draft").mkdir(parents=True)
        return ""

    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setattr(programs, "execute", install)
    installed: list[list[str]] = []
    is_reached = False
    side = Side("peer", ("ducklake.py", "{ducklake}"))
    with pytest.raises(Unavailable, match="DuckLake cannot be installed: no registry is reached"):
        programs.command_line(side.command)
    is_reached = True
    folder = tmp_path / ".cache" / "ducklake-1.5.5"
    assert [programs.ducklake_packages() for _ in range(2)] == [folder] * 2
    assert [[name.partition("==")[2] for name in names] for names in installed] == [["1.5.5"] * 3]


def test_side_and_its_data_are_skipped_when_its_variables_are_unset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SET", "/source")
    monkeypatch.setenv("EMPTY", "")
    variables = ("SET", "EMPTY", "NO_SUCH_VARIABLE")
    with pytest.raises(Unavailable, match="unset: EMPTY, NO_SUCH_VARIABLE"):
        measurement.run_side(Side("peer", ("ours",), variables=variables))
    monkeypatch.setattr(measurement, "DATA", tmp_path)
    measurement.prepare((framework.Preparation("{data}/rows", ("nothing",), variables=variables),))
    assert "rows skipped: unset: EMPTY, NO_SUCH_VARIABLE" in capsys.readouterr().err
    measurement.prepare((framework.Preparation("{data}/rows", ("nothing",), needs=("no-such-program",)),))
    assert "rows skipped: missing programs: no-such-program" in capsys.readouterr().err


def test_cpu_time_of_a_tree_includes_processes_that_have_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    run_it = f"subprocess.run([sys.executable, '-c', {burn!r}])"
    parent = f"import subprocess, sys\n{run_it}\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        assert tree_seconds(process.pid) >= 0.3
        process.communicate(b"\n")


def test_failed_figures_are_skipped_and_the_time_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_side(side: Side) -> dict[str, Any]:
        if side.name == "broken":
            raise SystemExit("it failed")
        return sample(1, 1, 1)

    monkeypatch.setattr(measurement, "run_side", run_side)
    monkeypatch.setattr(measurement, "prepare", lambda preparations: None)
    broken = Figure("bad", "Bad", "objects", (Side("broken", ("ours",)),))
    chapter = framework.Chapter("c", "C", "", (), (FIGURE, broken))
    assert set(run.measured({chapter: chapter.figures}, 3, 1e9, busy=True)) == {"append"}
    [results] = run.measured({chapter: (FIGURE,)}, 3, 1e9, busy=True).values()
    assert [len(samples) for samples in results.samples.values()] == [3, 3, 3]
    [results] = run.measured({chapter: (FIGURE,)}, 3, 0, busy=True).values()
    assert [len(samples) for samples in results.samples.values()] == [1, 1, 1]


def test_share_of_failures_is_shown_also_if_nothing_failed() -> None:
    sides = [{"samples": [{"failed": share}]} for share in (0, 0.25)]
    assert [report.failed(side) for side in sides] == [0, 25]
    assert report.failed({"samples": [{}]}) is None


def test_tables_and_page_show_every_side_and_target(results: Results) -> None:
    figure = run.recorded(FIGURE, results)
    chapter = {"name": "c", "title": "Writing", "intro": "Objects.", "figures": [figure]}
    made = {**run.origin(), "rounds": 3, "busy": ["others use 1 core"], "chapters": [chapter]}
    done = json.loads(json.dumps(made))
    document = "before\n<!-- tables: written by `make bench` -->\nold\n<!-- end of tables -->\nafter\n"
    renewed = report.renewed(document, "tables", report.tables(done))
    assert renewed.startswith("before\n")
    assert renewed.endswith("\nafter\n")
    assert "old" not in renewed
    assert "| **Femtobarn** | 2 | 500 | 1,000 | 5 | 10 |  |" in renewed
    assert renewed.count("**missed**") == 3
    shown = page.html(done)
    assert shown.count("<svg") == 1
    assert "1 of 4 targets are reached" in shown
    assert "<b>Measured on a busy machine</b>" in shown
    assert "**Measured on a busy machine** (others use 1 core)" in renewed

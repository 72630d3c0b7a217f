"""The testbed with real client processes: runs, their clean-up, and its commands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_tiers import MEMCACHED
from matplotlib.figure import Figure
from waiting import wait_for

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import latest, load, read, run, save
from femtobarn_testbed.conditions_plots import draw_event_costs
from femtobarn_testbed.event_costs import event_costs_of
from femtobarn_testbed.report import write_report
from femtobarn_testbed.sources import sources_table
from femtobarn_testbed.storage_plots import look_up_times

SMALL = (Path(__file__).parent / "small_workload.toml").read_text()


# Runs.


@pytest.mark.parametrize("variant", ["local", "served"])
def test_clients_perform_all_operations_of_the_workload(small: Path, tmp_path: Path, variant: str) -> None:
    done = run(load(small), scratch=tmp_path / "scratch", variants=[variant])
    assert not any((tmp_path / "scratch").iterdir())
    (one,) = done["points"]
    assert [row["kind"] for row in one["each_client"]].count("writer") == 2
    operations = one["operations"]
    for kind in ("read", "select", "tags", "compute", "write", "commit", "create", "drop", "open container"):
        assert operations[kind]["count"] > 0, kind
        assert operations[kind]["seconds"] > 0, kind
        assert sum(operations[kind]["histogram"]) == operations[kind]["count"]
    # Half of the tags pass, whose objects have 1,000 bytes.
    selected = operations["select"]["amount"] / operations["select"]["count"]
    assert selected == pytest.approx(20_000, rel=0.2)
    rates = one["throughput"]
    assert rates["bytes_per_second"] == pytest.approx(
        rates["read_bytes_per_second"] + rates["written_bytes_per_second"]
    )
    committed = operations["transaction"]["amount"] / one["window_seconds"]
    assert rates["written_bytes_per_second"] == pytest.approx(committed)
    assert 0 < one["efficiency"] < 1
    assert len(one["start"]) == 4
    for start in one["start"]:
        assert start["ready"] <= start["opened"] <= start["transaction"] <= start["first_object"]
    assert one["verdict"]["limit"]
    assert (one["resources"]["memory_bytes"]["server"] > 0) == (variant == "served")
    path = save(done, tmp_path / "runs")
    assert latest([tmp_path / "runs"]) == [path]
    assert read(path)["points"][0]["operations"]["read"]["count"] == operations["read"]["count"]


def test_sweep_over_simulated_disks_reports_their_use(tmp_path: Path) -> None:
    """Also covers clients in new interpreters, and the figures of the disks that the server simulates."""
    workload = load(
        "reconstruction",
        settings={"clients": [1, 4], "computation": 0.3, "half": 400, "quarter": 200},
        sweep={"warm_up_seconds": 0.5, "window_seconds": 1.5, "start": "program"},
    )
    done = run(workload, scratch=tmp_path, variants=["full computation"])
    assert [one["clients"] for one in done["points"]] == [1, 4]
    last = done["points"][-1]
    names = [disk["name"].rpartition("/")[2] for disk in last["resources"]["disks"]]
    assert names == ["disk0", "disk1", "disk2", "disk3"]
    assert sum(disk["bytes_per_second"] for disk in last["resources"]["disks"]) > 0
    assert all(one["throughput"]["bytes_per_second"] > 0 for one in done["points"])
    assert done["played"]["full computation"]["raw_bytes_per_second"] == 88_000_000
    assert done["knees"]["full computation"]["rate"] == "bytes_per_second"


def test_each_kind_has_its_own_federation_when_configured(tmp_path: Path) -> None:
    sweep = {"clients": [5], "warm_up_seconds": 0, "window_seconds": 1.0}
    workload = load("mixed", settings={"tagged": 2_000}, sweep=sweep)
    done = run(workload, scratch=tmp_path, variants=["one for each purpose"])
    (one,) = done["points"]
    assert len(one["resources"]["server_totals"]) == 3
    assert one["kinds"]["analysis"]["tags_per_second"] > 0
    assert one["kinds"]["acquisition"]["tags_per_second"] == 0


def test_jobs_look_up_the_conditions_of_their_events(tmp_path: Path) -> None:
    """Every job opens the federation anew, so there are several in the window."""
    variants = [
        "nothing kept, as the events lie",
        "one interval kept, in order of time",
        "all kept, in order of time, disk cache",
    ]
    workload = load(
        "conditions-sparse",
        settings={"events": 20_000, "files": 5, "physics": 0.0002, "events_per_job": 10},
        sweep={"clients": [2], "warm_up_seconds": 0, "window_seconds": 2.0},
    )
    done = run(workload, scratch=tmp_path / "scratch", variants=variants)
    assert not any((tmp_path / "scratch").iterdir())
    for one in done["points"]:
        operations = one["operations"]
        for kind in ("read", "look up", "compute", "event"):
            assert operations[kind]["count"] > 0, kind
        # Twelve series at each event, whose payload is 200 bytes; a part of those across the window's edges.
        for kind, amount in (("look up", 12), ("read", 200)):
            events = operations[kind]["amount"] / amount
            assert abs(events - operations[kind]["count"]) <= one["clients"]
        assert one["throughput"]["read_bytes_per_second"] > 0
    nothing, one_kept, everything = event_costs_of(done)
    assert nothing.requests > one_kept.requests > everything.requests
    assert done["points"][-1]["operations"]["open job"]["count"] > 0
    page = write_report([done], tmp_path / "report")
    assert (tmp_path / "report" / "conditions-sparse-events.png").is_file()
    assert "times less" in page.read_text()
    assert_no_text_is_struck_through(draw_event_costs(done))


def assert_no_text_is_struck_through(figure: Figure) -> None:
    """Check that the paper's line passes the texts of the rows on their left."""
    figure.draw_without_rendering()
    axes = figure.axes[1]
    (line,) = axes.lines
    *of_rows, _ = axes.texts
    assert len(of_rows) == 3
    for text in of_rows:
        assert text.get_window_extent().x0 > line.get_window_extent().x1


def test_jobs_look_up_conditions_on_a_simulated_disk(tmp_path: Path) -> None:
    workload = load(
        "conditions-storage",
        settings={"events": 10_000, "files": 5, "physics": 0.0002, "events_per_job": 10},
        sweep={"clients": [2], "warm_up_seconds": 0, "window_seconds": 1.0},
    )
    variants = ["one interval kept, disk", "one interval kept, memory"]
    done = run(workload, scratch=tmp_path / "scratch", variants=variants)
    disk, memory = (one["resources"] for one in done["points"])
    (used,) = disk["disks"]
    assert used["bytes_per_second"] > 0
    assert memory["disks"] == []
    assert set(look_up_times(done)["one interval kept"]) == {"disk", "memory"}
    write_report([done], tmp_path / "report")
    assert (tmp_path / "report" / "conditions-storage-storage.png").is_file()


def test_jobs_read_through_a_disk_cache_and_memcached(tmp_path: Path) -> None:
    if MEMCACHED is None:
        pytest.skip("memcached is not installed")
    workload = load(
        "conditions-tiers",
        settings={"events": 10_000, "files": 5, "physics": 0.0002, "events_per_job": 10},
        sweep={"clients": [2], "warm_up_seconds": 0, "window_seconds": 1.0},
    )
    done = run(workload, scratch=tmp_path / "scratch", variants=["both, memory"])
    read = done["points"][0]["read_from"]
    assert read["events"] > 0
    # The first job asked all of them: the caches were empty, and what one misses is asked of the next.
    disk, memcached, server = read["sources"]
    assert [each["name"] for each in read["sources"]] == ["disk cache", "memcached", "server"]
    assert disk["misses"] >= memcached["hits"]
    assert server["bytes"] > 0
    assert [(each["damaged"], each["failures"]) for each in read["sources"]] == [(0, 0)] * 3
    head, rows = sources_table(done)
    assert [row[head.index("source")] for row in rows] == ["disk cache", "memcached", "server"]
    assert "Reads of jobs for an event" in write_report([done], tmp_path / "report").read_text()


def test_jobs_read_from_several_servers_one_of_which_has_the_disk(tmp_path: Path) -> None:
    variants = ["by load, one of three slow", "in turn, one of three slow"]
    # On a busy machine hardly a job ends in two seconds.
    for seconds in (2.0, 10.0, 50.0):
        workload = load(
            "conditions-servers",
            settings={"events": 10_000, "files": 5, "physics": 0.0002, "events_per_job": 4},
            sweep={"clients": [2], "warm_up_seconds": 0, "window_seconds": seconds},
        )
        done = run(workload, scratch=tmp_path / "scratch", variants=variants)
        if all(point["operations"]["open job"]["count"] >= 10 for point in done["points"]):
            break
    for point in done["points"]:
        assert point["operations"]["look up"]["count"] > 0
        assert len(point["resources"]["disks"]) == 1
        # All servers answered requests, and no job had to leave a server out.
        assert [each["requests"] > 0 for each in point["resources"]["server_totals"]] == [True] * 3
        (server,) = point["read_from"]["sources"]
        assert server["bytes"] > 0
        assert server["failures"] == 0
    # A job that goes by load connects to three servers, one that goes to the next server to that one alone.
    by_load, in_turn = (
        sum(each["connections"] for each in point["resources"]["server_totals"])
        / point["operations"]["open job"]["count"]
        for point in done["points"]
    )
    assert by_load > 1.5 * in_turn
    assert "3 servers with copies" in write_report([done], tmp_path / "report").read_text()
    assert (tmp_path / "report" / "conditions-servers-latencies.png").is_file()


def test_run_reports_a_failed_client_and_cleans_up(small: Path, tmp_path: Path) -> None:
    small.write_text(SMALL.replace('read = "data{client}/items"', 'read = "data{client}/itmes"'))
    with pytest.raises(fb.UnavailableError, match=r"client \d \(reader\)") as caught:
        run(load(small), scratch=tmp_path / "scratch", variants=["local"])
    assert 'did you mean "items"' in str(caught.value)
    assert not any((tmp_path / "scratch").iterdir())


def test_before_command_runs_at_each_point(small: Path, tmp_path: Path) -> None:
    workload = load(small, sweep={"clients": [1, 2], "warm_up_seconds": 0, "window_seconds": 0.2})
    said = tmp_path / "said"
    done = run(workload, scratch=tmp_path / "scratch", variants=["local"], before=f"echo now >> {said}")
    assert said.read_text().split() == ["now", "now"]
    assert done["before"] == f"echo now >> {said}"
    with pytest.raises(fb.UnavailableError, match="ended with 3: too late"):
        run(workload, scratch=tmp_path / "scratch", before="echo too late >&2; exit 3")


def test_points_are_kept_when_a_later_one_fails(small: Path, tmp_path: Path) -> None:
    workload = load(small, sweep={"clients": [1, 2], "warm_up_seconds": 0, "window_seconds": 0.2})
    once, folder = f"mkdir {tmp_path}/only-once", tmp_path / "runs"
    with pytest.raises(fb.UnavailableError, match="only-once"):
        run(workload, scratch=tmp_path / "scratch", before=once, keep=lambda done: save(done, folder))
    (path,) = folder.iterdir()
    assert [one["clients"] for one in read(path)["points"]] == [1]
    assert write_report([read(path)], tmp_path / "report").is_file()


@pytest.mark.parametrize("start", ["fork", "program"])
def test_clients_exit_when_the_runner_is_killed(tmp_path: Path, start: str) -> None:
    with long_run(tmp_path, start) as (runner, mark):
        runner.kill()
        runner.wait()
    wait_for(lambda: not marked(mark))


def test_terminated_runner_cleans_up(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with long_run(tmp_path, "fork") as (runner, mark):
        assert list(scratch.iterdir())
        runner.terminate()
        assert runner.wait() == 128 + signal.SIGTERM
    assert not list(scratch.iterdir())
    wait_for(lambda: not marked(mark))


@contextlib.contextmanager
def long_run(tmp_path: Path, start: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A run of ten minutes, once its clients have started: its process, and the mark in its environment."""
    copied, scratch = tmp_path / "long.toml", tmp_path / "scratch"
    copied.write_text(SMALL.replace('start = "fork"', f'start = "{start}"'))
    scratch.mkdir()
    mark = f"TESTBED_MARK={uuid.uuid4()}"
    arguments = ["--variant", "served", "--clients", "2", "--window", "600", "--scratch", str(scratch)]
    runner = subprocess.Popen(
        [sys.executable, "-m", "femtobarn", "testbed", "run", str(copied), *arguments],
        env=dict(os.environ) | dict([mark.split("=")]),
        stderr=subprocess.DEVNULL,
    )
    try:
        # The runner, its resource tracker, its server, a client of each kind; what they are forked from.
        processes = 6 if start == "fork" else 5
        wait_for(lambda: len(marked(mark)) >= processes or runner.poll() is not None)
        assert runner.poll() is None
        yield runner, mark
    finally:
        runner.kill()
        runner.wait()


def marked(mark: str) -> list[int]:
    """Processes that have this mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


# The command line.


def test_commands_list_show_and_run_workloads(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["testbed", "list", "--json"]) == 0
    assert "reconstruction" in [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert main(["testbed", "show", "daq"]) == 0
    copied = tmp_path / "copied.toml"
    copied.write_text(capsys.readouterr().out)
    assert load(copied).title == load("daq").title
    out = tmp_path / "out"
    arguments = ["--out", str(out), "--variant", "local", "--clients", "1", "--window", "0.3"]
    assert main(["testbed", "run", str(small), *arguments, "--scratch", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "limit:" in captured.out
    assert len(latest([out])) == 1
    broken = tmp_path / "broken.toml"
    broken.write_text(SMALL.replace('read = "data{client}/items"', 'read = "data{client}/itmes"'))
    both = [str(broken), str(small), "--out", str(tmp_path / "both"), *arguments[2:]]
    assert main(["testbed", "run", *both, "--scratch", str(tmp_path)]) != 0
    captured = capsys.readouterr()
    assert "broken failed: client" in captured.err
    assert captured.err.strip().endswith("1 of 2 workloads failed: broken")
    assert [path.stem.partition("-")[0] for path in latest([tmp_path / "both"])] == [small.stem]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "reconstuction"], "did you mean 'reconstruction'"),
        (["run", "daq", "--clients", "1,x"], "numbers like 1,16,240"),
        (["run", "daq", "--set", "disks"], "NAME=VALUE"),
        (["run", "daq", "--set", "disk=3"], "did you mean 'disks'"),
        (["plot", "nowhere.json"], "nowhere.json"),
    ],
)
def test_commands_report_wrong_arguments(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["testbed", *arguments]) != 0
    assert told in capsys.readouterr().err

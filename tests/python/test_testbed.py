"""The testbed: what workloads may say, what is measured, what limits a run, and runs of real processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import bundled_workloads, latest, load, read, run, save
from femtobarn_testbed.recorder import Recorder, merge, quantile
from femtobarn_testbed.report import write_report
from femtobarn_testbed.verdict import judge, knee

SMALL = """
title = "a bit of everything"
[settings]
access = "local"
links = []
[[variant]]
name = "local"
[[variant]]
name = "served"
access = "server"
[play]
access = "$access"
[sweep]
clients = [4]
start = "fork"
warm_up_seconds = 0
window_seconds = 2
[open]
cache_bytes = 1_000_000
[[data]]
database = "data{client}"
each = "client"
[data.containers]
items = { objects = 40, size = 1_000, chunk = 7 }
tags = { objects = 40, tags_of = "items" }
[[client]]
name = "reader"
share = 0.5
interleave = 2
loop = [
  { read = "data{client}/items", objects = 3 },
  { select = "data{client}/tags", objects = 40, fraction = 0.5 },
  { compute = 0.01 },
]
[[client]]
name = "writer"
share = 0.5
commit = { events = 2, spread = 0.5 }
new_database_after = 60_000
reserve = "50 kB"
loop = [
  { write = "out{client}-{part}/items", objects = 2, size = 1_000 },
  { write = "out{client}-{part}/linked", objects = 2, size = 400, links = ["out{client}-{part}/items"] },
  { write = "out{client}-{part}/many", objects = 20, size = 100, bulk = true },
  { pair = "made{client}-{part}", size = 100 },
]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


# What a workload may say.


@pytest.mark.parametrize("name", bundled_workloads())
def test_every_bundled_workload_loads(name: str) -> None:
    workload = load(name)
    assert workload.title
    assert workload.name == name
    names = [scenario.name for scenario in workload.scenarios]
    assert len(set(names)) == len(names)


def test_settings_are_substituted_and_variants_override_them(small: Path) -> None:
    workload = load(small, sweep={"clients": [1, 2]})
    assert [scenario.simulation.access for scenario in workload.scenarios] == ["local", "server"]
    assert workload.scenarios[0].sweep.clients == (1, 2)
    changed = load(small, settings={"access": "server"})
    assert {scenario.simulation.access for scenario in changed.scenarios} == {"server"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "a bit', 'titel = "a bit', "lacks title"),
        ("objects = 3 }", "objekts = 3 }", "did you mean 'objects'"),
        ("objects = 3 }", "objects = 0 }", "objects must be at least 1"),
        ("objects = 3 }", 'objects = "3" }', "must be a whole number"),
        ('access = "$access"', 'access = "$acess"', "did you mean 'access'"),
        ('access = "server"\n[play]', 'access = "remote"\n[play]', "one of server, local"),
        ("clients = [4]", "clients = [4, 2]", "ascending"),
        ('access = "$access"', "disks = { count = 2 }\naccess = \"local\"", "simulated by a server"),
        ('name = "served"', 'name = "served"\nspeed = 3', "'speed' is not in [settings]"),
        ("{ compute = 0.01 },", "{ compute = 0.01, read = 'x' },", "must have exactly one of"),
        ("[sweep]", "[swep]", "lacks clients"),
        ("[settings]", "[settings", "is not TOML"),
    ],
)  # fmt: skip
def test_load_names_the_mistake_when_a_workload_is_invalid(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert old in SMALL
    path = tmp_path / "wrong.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(fb.InvalidError, match=r"wrong\.toml") as caught:
        load(path)
    assert told in str(caught.value)


def test_the_example_in_the_guide_loads(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "limits.md"
    (example,) = guide.read_text().split("```toml\n")[1:]
    path = tmp_path / "mine.toml"
    path.write_text(example.partition("```")[0])
    actions = {step.action for scenario in load(path).scenarios for step in scenario.kinds[0].loop}
    assert actions == {"read", "select", "write", "compute", "pair"}


def test_unknown_names_suggest_the_closest_known_name(small: Path) -> None:
    with pytest.raises(fb.NotFoundError, match="reconstruction"):
        load("reconstuction")
    with pytest.raises(fb.NotFoundError, match="served"):
        load(small).scenario("serve")
    with pytest.raises(fb.InvalidError, match="access"):
        load(small, settings={"acces": "local"})


def test_kinds_keep_their_shares_for_any_number_of_clients() -> None:
    scenario = load("mixed").scenarios[0]
    for clients in (5, 10, 50, 200):
        names = [scenario.kind_of(number).name for number in range(clients)]
        for kind in scenario.kinds:
            assert abs(names.count(kind.name) - kind.share * clients) <= 1


# What is measured.


def test_operations_across_the_window_count_for_the_part_inside() -> None:
    recorder = Recorder()
    recorder.add("write", 0.0, 4.0, 100.0)  # half of it is inside, its end is not counted before
    recorder.add("write", 4.0, 5.0, 10.0)
    recorder.add("write", 9.0, 13.0, 40.0)
    recorder.add("write", 20.0, 21.0, 1000.0)
    summary = recorder.summary(2.0, 10.0)["write"]
    assert summary["count"] == 2
    assert summary["seconds"] == pytest.approx(2.0 + 1.0 + 1.0)
    assert summary["amount"] == pytest.approx(50.0 + 10.0 + 10.0)
    assert summary["longest"] == pytest.approx(4.0)


def test_quantiles_are_exact_to_one_bucket() -> None:
    recorder = Recorder()
    times = np.random.default_rng(3).exponential(0.01, 5000)
    for took in times:
        recorder.add("read", 0.0, took)
    histogram = recorder.summary(0.0, 10.0)["read"]["histogram"]
    for share in (0.1, 0.5, 0.99):
        assert abs(math.log10(quantile(histogram, share) / np.quantile(times, share))) < 0.11


def test_merged_summaries_are_sums() -> None:
    a, b = Recorder(), Recorder()
    a.add("read", 0.0, 0.5, 1.0)
    b.add("read", 0.0, 0.001, 2.0)
    b.add("commit", 0.0, 0.1)
    total = merge([a.summary(0.0, 1.0), b.summary(0.0, 1.0)])
    assert total["read"]["count"] == sum(total["read"]["histogram"]) == 2
    assert total["read"]["amount"] == 3.0
    assert total["commit"]["seconds"] == pytest.approx(0.1)


# What limits a run.


def point(clients: int, rate: float, **resources: Any) -> dict[str, Any]:
    """A point as runs have them, with nothing used up unless it is said."""
    nothing = {
        "disks": [], "stolen_cores": 0.0, "machine_cores": 0.2, "server_cores": 0.1, "client_cores": 0.1,
        "network_share": 0.0, "disk_busy_share": 0.0,
    }  # fmt: skip
    shares = {"compute": 0.1, "read": 0.2, "commit": 0.1, "open container": 0.1}
    return {
        "clients": clients,
        "throughput": {"bytes_per_second": rate, "events_per_second": rate / 1e6},
        "efficiency": 0.1,
        "time_shares": shares | resources.pop("time_shares", {}),
        "resources": nothing | resources,
        "verdict": {"limit": "something", "evidence": "as seen"},
    }


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        ({"disks": [{"busy": 0.97, "seeking": 0.2}, {"busy": 0.5, "seeking": 0.1}]}, "disk bandwidth"),
        ({"disks": [{"busy": 0.97, "seeking": 0.8}]}, "disk seeks"),
        ({"machine_cores": 1.9, "server_cores": 1.2, "client_cores": 0.6}, "server CPU"),
        ({"machine_cores": 1.9, "server_cores": 0.6, "client_cores": 1.2}, "client CPU"),
        ({"machine_cores": 1.9}, "other processes"),
        ({"machine_cores": 1.0, "stolen_cores": 0.9, "server_cores": 1.0}, "server CPU"),
        ({"network_share": 0.9}, "network"),
        ({"disk_busy_share": 0.99, "time_shares": {"commit": 0.6}}, "disk bandwidth"),
        ({"time_shares": {"commit": 0.6}}, "catalogue commits"),
        ({"time_shares": {"open container": 0.6}}, "locks"),
        ({"time_shares": {"read": 0.6}}, "client latency"),
    ],
)  # fmt: skip
def test_verdict_names_the_resource_that_is_used_up(seen: dict[str, Any], limit: str) -> None:
    verdict = judge(point(1, 1e6, **seen), cores=2)
    assert verdict["limit"] == limit
    assert "%" in verdict["evidence"]


def test_verdict_is_client_cpu_when_clients_only_compute() -> None:
    computing = point(1, 1e6) | {"efficiency": 0.95}
    assert judge(computing, cores=2)["limit"] == "client CPU"


def test_knee_is_where_linear_scaling_meets_the_best_rate() -> None:
    bent = [point(1, 1.0), point(10, 10.0), point(20, 12.0), point(40, 11.4)]
    found = knee(bent)
    assert found is not None
    assert found["clients"] == pytest.approx(12.0)
    assert found["last_over_best"] == pytest.approx(0.95)
    straight = knee(bent[:2])
    assert straight is not None
    assert straight["clients"] is None
    assert straight["linearity"] == pytest.approx(1.0)
    assert knee([]) is None


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
    """Also new interpreters as clients, and figures of the disks that the server plays."""
    workload = load(
        "reconstruction",
        settings={"clients": [1, 8], "computation": 0.3},
        sweep={"warm_up_seconds": 0.5, "window_seconds": 1.5, "start": "program"},
    )
    done = run(workload, scratch=tmp_path, variants=["full computation"])
    assert [one["clients"] for one in done["points"]] == [1, 8]
    last = done["points"][-1]
    names = [disk["name"].rpartition("/")[2] for disk in last["resources"]["disks"]]
    assert names == ["disk0", "disk1", "disk2", "disk3"]
    assert sum(disk["bytes_per_second"] for disk in last["resources"]["disks"]) > 0
    assert all(one["throughput"]["bytes_per_second"] > 0 for one in done["points"])
    assert done["played"]["full computation"]["raw_bytes_per_second"] == 88_000_000
    assert done["knees"]["full computation"]["rate"] == "bytes_per_second"


def test_each_kind_has_its_own_federation_when_configured(tmp_path: Path) -> None:
    workload = load("mixed", sweep={"clients": [5], "warm_up_seconds": 0, "window_seconds": 1.0})
    done = run(workload, scratch=tmp_path, variants=["one for each purpose"])
    (one,) = done["points"]
    assert len(one["resources"]["server_totals"]) == 3
    assert one["kinds"]["analysis"]["tags_per_second"] > 0
    assert one["kinds"]["acquisition"]["tags_per_second"] == 0


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
    """A run of ten minutes, once its clients are there: its process, and what is in its environment."""
    copied, scratch = tmp_path / "long.toml", tmp_path / "scratch"
    copied.write_text(SMALL.replace('start = "fork"', f'start = "{start}"'))
    scratch.mkdir()
    mark = f"TESTBED_MARK={uuid.uuid4()}"
    arguments = ["--variant", "served", "--window", "600", "--scratch", str(scratch)]
    runner = subprocess.Popen(
        [sys.executable, "-m", "femtobarn", "testbed", "run", str(copied), *arguments],
        env=dict(os.environ) | dict([mark.split("=")]),
        stderr=subprocess.DEVNULL,
    )
    try:
        # The runner, its server, and four clients.
        wait_for(lambda: len(marked(mark)) >= 6 or runner.poll() is not None)
        assert runner.poll() is None
        yield runner, mark
    finally:
        runner.kill()
        runner.wait()


def marked(mark: str) -> list[int]:
    """Processes that have this in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def wait_for(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


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


def test_read_refuses_files_that_are_not_runs(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(fb.InvalidError, match="not a run"):
        read(other)
    other.write_text('{"workload": "x", "points": [], "format": 99}')
    with pytest.raises(fb.InvalidError, match="format 99"):
        read(other)
    with pytest.raises(fb.NotFoundError, match="has no runs"):
        latest([tmp_path])

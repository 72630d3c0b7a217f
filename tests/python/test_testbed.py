"""The testbed: its workload files, records of operations, verdicts and files of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_workloads import assert_names_mistake

import femtobarn as fb
from femtobarn_testbed import bundled_workloads, latest, load, read
from femtobarn_testbed.recorder import Recorder, merge, quantile
from femtobarn_testbed.sources import Sources, merge_sources
from femtobarn_testbed.streams import prepare_stream
from femtobarn_testbed.verdict import judge, knee

SMALL = (Path(__file__).parent / "small_workload.toml").read_text()


# Workload files.


@pytest.mark.parametrize("name", bundled_workloads())
def test_every_bundled_workload_loads(name: str) -> None:
    workload = load(name)
    assert workload.title
    assert workload.name == name
    assert workload.variants
    assert len(set(workload.variants)) == len(workload.variants)


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
        ('access = "$access"', 'servers = 2\naccess = "local"', 'several servers need access = "server"'),
        ('access = "$access"', 'servers = 2\naccess = "server"', "cannot write through several"),
        ('name = "served"', 'name = "served"\nspeed = 3', "'speed' is not in [settings]"),
        ("{ compute = 0.01 },", "{ compute = 0.01, read = 'x' },", "must have exactly one of"),
        ("{ compute = 0.01 },", "{ conditions = 'some', order = 'time' },", "one of nothing, one, all"),
        ("{ compute = 0.01 },", "{ conditions = 'all', order = 'time' },", "so it needs a [stream]"),
        ("[sweep]", "[swep]", "lacks clients"),
        ("[settings]", "[settings", "is not TOML"),
    ],
)  # fmt: skip
def test_load_names_the_mistake_when_a_workload_is_invalid(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert_names_mistake(tmp_path, SMALL, old, new, told)


def test_the_example_in_the_guide_loads(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "limits.md"
    (example,) = guide.read_text().split("```toml\n")[1:]
    path = tmp_path / "mine.toml"
    path.write_text(example.partition("```")[0])
    actions = {step.action for scenario in load(path).scenarios for step in scenario.kinds[0].loop}
    assert actions == {"read", "select", "write", "compute", "pair", "conditions"}


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


def test_conditions_are_on_the_disk_and_events_are_not(fed: fb.Federation, tmp_path: Path) -> None:
    scenario = load("conditions-storage", settings={"events": 1_000}).scenario("nothing kept, disk")
    assert scenario.simulation.disks is not None
    assert scenario.stream is not None
    for _ in prepare_stream(fed, scenario.stream, tmp_path, scenario.simulation.disks.name(0)):
        pass
    files = {path.stem: path.parent.name for path in Path(fed.path).rglob("*.root")}
    assert [name for name, folder in files.items() if folder == "disk0"] == ["conditions"]
    assert "stream0" in files


# Measurements.


def test_sources_are_in_the_order_of_asking_whatever_jobs_have_not_asked() -> None:
    def job(*names: str) -> Sources:
        done = Sources(events=2)
        done.add([fb.TierStatistics(name, 3, 1, 100, 0, 0) for name in names])
        return done

    jobs = [job("disk cache", "server"), None, job("memcached", "server"), job("server", "disk cache")]
    merged = merge_sources(jobs)
    assert merged is not None
    assert merged["events"] == 6
    assert [(each["name"], each["hits"], each["bytes"]) for each in merged["sources"]] == [
        ("disk cache", 6, 200),
        ("memcached", 3, 100),
        ("server", 9, 300),
    ]
    assert merge_sources([None]) is None


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


# The limit of a run.


def point(clients: int, rate: float, **resources: Any) -> dict[str, Any]:
    """A point of a run, in which no resource is used up unless an argument sets it."""
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

"""Planning: costs recovered from runs made of them, plans checked by hand, errors that name the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import load
from femtobarn_testbed.costs import RESOURCES, TERMS, Costs, fit, work_of
from femtobarn_testbed.disk import written_bytes_per_second
from femtobarn_testbed.planning import EXPERIMENTS, load_experiment, plan
from femtobarn_testbed.prediction import bounded_throughput, predict

SECONDS = {
    term: (number + 1) * (1e-9 if "bytes" in term else 1e-3 if term == "commits" else 1e-6)
    for number, term in enumerate(TERMS)
}
TRUE = Costs(
    {
        "client": SECONDS,
        "server": {term: 0.5 * seconds for term, seconds in SECONDS.items()},
        "elapsed": {term: 2.0 * seconds for term, seconds in SECONDS.items()},
    }
)

SMALL = """
title = "small"
duty = 0.5
margin = 0.2
[acquisition]
events_per_second = 10
compute = 0.4
objects = [{ count = 2, size = 1_000_000 }, { count = 1, size = 500_000, links = 2 }]
commit_events = 5
[[pass]]
name = "again"
times_a_year = 2
compute = 3.0
read = [{ count = 2, size = 1_000_000 }]
write = [{ size = 200_000, links = 1 }]
[[analysis]]
name = "tags"
tags_per_second = 1_000
fraction = 0.1
size = 2_000
[hardware]
disk_bytes_per_second = 10_000_000
disk_bytes = 1_000_000_000_000
server_cores = 4
network_bytes_per_second = 100_000_000
"""


def made_up(costs: Costs = TRUE) -> dict[str, Any]:
    """A run of the profile on a machine with exactly these costs, by one client that is never idle.

    Where the profile has eight clients that do not compute, all usable cores are in use.
    """
    workload = load("profile")
    points = []
    for scenario in workload.scenarios:
        work = work_of(scenario, scenario.kinds[0])
        computed = 1000 * sum(step.seconds for step in scenario.kinds[0].loop)
        window = 1000 * costs.of("elapsed", work) + computed
        moved = 1000 * (work["appended_bytes"] + work["extended_bytes"] + work["read_bytes"])
        clients = scenario.sweep.clients[-1] if not computed else 1
        cores = {f"{name}_cores": 1000 * costs.of(name, work) / window for name in ("client", "server")}
        used = 2 * costs.usable if clients > 1 else sum(cores.values())
        if clients == 1:
            # The growth is that of the use to which it leads.
            used = min(used / (1 - costs.contention * used / 2), 2.0)
        window *= sum(cores.values()) * costs.growth(used / 2) / used if clients > 1 else 1.0
        share = used / sum(cores.values())
        cores = {name: one * share for name, one in cores.items()}
        client = {"client": 0, "kind": "client", "bytes": {"write": moved}, "events": 1000}
        points.append(
            {
                "variant": scenario.name,
                "clients": clients,
                "window_seconds": window,
                "resources": cores,
                "operations": {"compute": {"seconds": computed}},
                "each_client": [client],
            }
        )
    return {
        "format": 1,
        "workload": "profile",
        "parameters": json.loads(json.dumps(workload.raw)),
        "machine": {"cores": 2},
        "points": points,
    }


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile-20260101T000000.json"
    path.write_text(json.dumps(made_up()))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_fit_recovers_the_costs_of_a_synthetic_profile() -> None:
    found = fit([made_up()])
    for resource in RESOURCES:
        assert found.seconds[resource] == pytest.approx(dict(TRUE.seconds[resource]), rel=1e-6)


def test_fit_finds_how_costs_grow_on_a_busy_machine() -> None:
    true = Costs(TRUE.seconds, contention=0.4, usable=0.9)
    found = fit([made_up(true)])
    assert found.contention == pytest.approx(0.4)
    assert found.usable == pytest.approx(0.9)
    for resource in RESOURCES:
        assert found.seconds[resource] == pytest.approx(dict(TRUE.seconds[resource]), rel=1e-6)
    for row in predict(true, made_up(true)):
        assert row["cores_error"] == pytest.approx(0.0, abs=1e-9)


def test_predicted_rate_of_disks_that_seek_for_each_page_is_the_measured_one() -> None:
    without = load("read-ahead").scenario("no read-ahead")
    free = Costs(dict.fromkeys(RESOURCES, dict.fromkeys(TERMS, 0.0)))
    # docs/scalability.md: 10.1 MB/s, in a time that is twice as fast.
    rate, limit = bounded_throughput(free, without, 240, 2)
    assert limit == "disks"
    assert rate / 2 == pytest.approx(10.1e6, rel=0.02)


def test_fit_gives_zero_and_never_negative_costs_for_free_work() -> None:
    free = SECONDS | {"appended_links": 0.0}
    found = fit([made_up(Costs(dict.fromkeys(RESOURCES, free)))])
    assert found.seconds["client"]["appended_links"] == pytest.approx(0.0, abs=1e-12)
    assert min(found.seconds["client"].values()) >= 0.0


def test_work_counts_requests_memory_and_simulated_disks_separately() -> None:
    tags = load("tags").scenario("tags")
    kept = work_of(tags, tags.kinds[0])
    # 200 objects of 10 KB are found again and again, in 4 MB of memory.
    assert (kept["kept_bytes"], kept["selected"], kept["disk_bytes"]) == (1e6, 0, 0)
    profile = load("profile").scenario("select 1 %")
    fetched = work_of(profile, profile.kinds[0])
    assert (fetched["kept_bytes"], fetched["selected"], fetched["read_bytes"]) == (0, 50, 200_000)
    for name, requests in (("read-ahead", 0), ("no read-ahead", 100)):
        scenario = load("read-ahead").scenario(name)
        work = work_of(scenario, scenario.kinds[0])
        assert (work["fetched"], work["disk_bytes"]) == (requests, 1e6)


def test_fit_refuses_too_few_points() -> None:
    run = made_up()
    run["points"] = run["points"][3:5]
    with pytest.raises(fb.InvalidError, match="at least 5 points to fit 5 costs, and has 2"):
        fit([run])


def test_costs_name_the_work_that_the_profile_lacks() -> None:
    costs = Costs({name: {"read": 1.0} for name in RESOURCES})
    with pytest.raises(fb.InvalidError, match="cost of commits"):
        costs.of("client", {"read": 1.0, "commits": 1.0})


def test_predict_is_exact_for_the_fitted_run() -> None:
    for row in predict(TRUE, made_up()):
        assert row["cores_error"] == pytest.approx(0.0, abs=1e-9)
        assert row["bytes_error"] == pytest.approx(0.0, abs=1e-9)


def test_predict_is_limited_by_computation_and_cores() -> None:
    run = made_up()
    run["points"] = [run["points"][0] | {"clients": 100}]
    (row,) = predict(TRUE, run)
    # A client uses 0.75 of a core; 100 of them would use 75 of the machine's 2.
    assert row["predicted_limit"] == "CPU"
    assert row["predicted_bytes_per_second"] == pytest.approx(row["bytes_per_second"] * 2 / 0.75)


def test_plan_equals_the_calculation_by_hand(small: Path) -> None:
    done = plan(load_experiment(small), TRUE)
    acquisition, again, tags = done["activities"]
    cost = {name: TRUE.seconds["client"][name] for name in TERMS}
    event = 3 * cost["appended"] + 2.5e6 * cost["appended_bytes"] + 2 * cost["appended_links"]
    event += cost["pauses"] + 2.5e6 * cost["cold_written_bytes"]
    per_commit = cost["commits"] + 2 * cost["opened"]
    assert acquisition["client_cpus"] == pytest.approx(10 * (event + per_commit / 5))
    assert acquisition["server_cpus"] == pytest.approx(acquisition["client_cpus"] / 2)
    assert again["events_per_second"] == pytest.approx(10 * 0.5 * 2)
    assert again["work"]["cold_read_bytes"] == again["work"]["read_bytes"] == 2e6
    assert "cold_read_bytes" not in tags["work"], "selection does not compute"
    assert again["bytes_per_second"] == pytest.approx(10 * 2.2e6)
    assert tags["bytes_per_second"] == pytest.approx(1000 * 0.1 * 2000)
    assert done["totals"]["physics_cpus"] == pytest.approx(10 * 0.4 + 10 * 3.0)
    assert done["totals"]["bytes_per_second"] == pytest.approx(47.2e6)
    year = 365.25 * 86_400
    assert done["totals"]["stored_bytes_per_year"] == pytest.approx(10 * 0.5 * year * (2.5e6 + 2 * 0.2e6))


def test_needs_keep_the_margin_and_name_the_limit(small: Path) -> None:
    needs = {need["what"]: need for need in plan(load_experiment(small), TRUE)["needs"]}
    assert needs["CPUs for physics"]["needed"] == 43  # 34 / 0.8 = 42.5
    assert needs["disks"]["limit"] == "a year's data"
    assert needs["disks"]["needed"] == 572  # 457.59 TB on disks of 1 TB, of which 0.8 are to be filled
    assert needs["servers"]["limit"] == "network"
    assert needs["servers"]["needed"] == 1
    assert all(need["margin"] >= 0.2 for need in needs.values())


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("margin = 0.2", "margin = 1.0", "small.toml: margin must be below 1"),
        ("compute = 0.4", "computing = 0.4", "small.toml, acquisition: unknown key 'computing'"),
        ("fraction = 0.1", "fraction = 2", "small.toml, analysis 1: fraction must be at most 1"),
        ("times_a_year = 2", "times_a_year = 2\nat_once = true", "small.toml, pass 1: .* at_once"),
        ("events_per_second = 10", "", "small.toml, acquisition lacks events_per_second"),
        ("server_cores = 4", "server_cores = 0", "small.toml, hardware: server_cores must be at least 1"),
        ('title = "small"', "title", "small.toml is not TOML"),
    ],
)
def test_load_experiment_names_file_and_key_when_invalid(small: Path, old: str, new: str, text: str) -> None:
    small.write_text(SMALL.replace(old, new))
    with pytest.raises(fb.InvalidError, match=text):
        load_experiment(small)


def test_unknown_experiment_suggests_the_closest_name() -> None:
    with pytest.raises(fb.NotFoundError, match="lhc1999"):
        load_experiment("lhc1998")


@pytest.mark.parametrize("name", EXPERIMENTS.by_name())
def test_bundled_experiments_can_be_planned(name: str) -> None:
    done = plan(load_experiment(name), TRUE)
    assert all(need["needed"] > 0 for need in done["needs"])


def test_plan_command_prints_tables_and_json(
    small: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(small), "--profile", str(profile)]) == 0
    text = capsys.readouterr().out
    assert "CPUs for physics" in text
    assert "appended_links" in text
    assert main(["plan", str(small), "--profile", str(profile), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["needs"][0]["needed"] == 43


def test_plan_command_checks_runs(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--check", str(profile), "--profile", str(profile)]) == 0
    assert "profile: read 4000 B" in capsys.readouterr().out


def test_plan_command_lists_and_shows_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--list"]) == 0
    assert "hllhc" in capsys.readouterr().out
    assert main(["plan", "lhc1999", "--show"]) == 0
    assert "[acquisition]" in capsys.readouterr().out


def test_disk_rate_is_measured_or_refused(
    small: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(small), "--profile", str(profile), "--json", "--disk"]
    assert main([*command, str(small.parent / "nowhere")]) != 0
    assert "nowhere" in capsys.readouterr().err
    try:
        rate = written_bytes_per_second(small.parent, blocks=2)
    except fb.InvalidError as error:
        pytest.skip(f"{error}")
    assert rate > 0


def test_plan_command_asks_for_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "lhc1999"]) != 0
    assert "testbed run profile" in capsys.readouterr().err

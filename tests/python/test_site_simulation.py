"""Simulated sites: stations against queueing theory, same seed, same numbers, effects of scenarios."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import simpy
from test_planning import made_up

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import load
from femtobarn_testbed.costs import RESOURCES, TERMS, Costs
from femtobarn_testbed.prediction import bounded_throughput
from femtobarn_testbed.simulation.model import Window, simulate
from femtobarn_testbed.simulation.queueing import queued_throughput
from femtobarn_testbed.simulation.recalls import simulate_recalls
from femtobarn_testbed.simulation.site_file import SITES, SiteFile, load_site
from femtobarn_testbed.simulation.stations import Link, Pool, Turns
from femtobarn_testbed.simulation.study import study

CHEAP = {"client": 1e-6, "server": 5e-7, "elapsed": 2e-6}
COSTS = Costs(
    {
        name: {
            term: seconds * (1e-3 if "bytes" in term else 1e3 if term == "commits" else 1.0) for term in TERMS
        }
        for name, seconds in CHEAP.items()
    }
)

SHORT = Window(warm_up_seconds=20.0, seconds=40.0)
ARRIVALS = 20_000

Station = Callable[[simpy.Environment, Random], Callable[[], Any]]


def mean_time(station: Station, per_second: float) -> float:
    """The mean time at a station of requests that arrive at random."""
    env, random = simpy.Environment(), Random(5)
    request, times = station(env, random), []

    def one() -> Generator[simpy.Event, Any, None]:
        began = env.now
        waited = request()
        yield waited if isinstance(waited, simpy.Event) else env.timeout(waited)
        times.append(env.now - began)

    def arrivals() -> Generator[simpy.Event, Any, None]:
        while True:
            yield env.timeout(random.expovariate(per_second))
            env.process(one())

    env.process(arrivals())
    env.run(until=ARRIVALS / per_second)
    return sum(times) / len(times)


def erlang_c(servers: int, offered: float) -> float:
    """The probability that a request waits, if `offered` of the servers are in use on average."""
    terms = [offered**number / math.factorial(number) for number in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


def test_pool_waits_as_m_m_c() -> None:
    def pool(env: simpy.Environment, random: Random) -> Callable[[], float]:
        station = Pool(env, 3, random)
        return lambda: station.serve(random.expovariate(1.0))

    expected = 1.0 + erlang_c(3, 2.1) / (3 - 2.1)
    assert mean_time(pool, 2.1) == pytest.approx(expected, rel=0.05)


def test_copies_make_a_pool_wait_as_m_d_1() -> None:
    def pool(env: simpy.Environment, random: Random) -> Callable[[], float]:
        station = Pool(env, 1, random, copies=7.0)
        return lambda: station.serve(1.0)

    # A tenth of a request per second, with seven copies each: 0.8 in use.
    assert mean_time(pool, 0.1) == pytest.approx(1 + 0.8 / (2 * (1 - 0.8)), rel=0.1)


def test_turns_of_many_committers_wait_as_m_d_1() -> None:
    def turns(env: simpy.Environment, random: Random) -> Callable[[], simpy.Event]:
        station = Turns(env, 10**9, 0.9, 0.1, random, copies=2.0)
        return lambda: station.commit(random.randrange(10**9))

    assert mean_time(turns, 0.2) == pytest.approx(1 + 0.6 / (2 * (1 - 0.6)), rel=0.1)


def test_one_committers_turn_has_all_commits_that_wait() -> None:
    env = simpy.Environment()
    station = Turns(env, 1, 1.0, 0.1, Random(1))
    ended: list[float] = []

    def one(at: float) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(at)
        yield station.commit(0)
        ended.append(env.now)

    for at in (0.0, 0.5, 0.6):
        env.process(one(at))
    env.run(until=10)
    assert ended == pytest.approx([1.1, 2.3, 2.3])
    assert station.counts() == (2, 3)


def test_link_shares_as_m_m_1_with_processor_sharing() -> None:
    def link(env: simpy.Environment, random: Random) -> Callable[[], simpy.Event]:
        station = Link(env, 1.0)
        return lambda: station.move(random.expovariate(1.0))

    assert mean_time(link, 0.6) == pytest.approx(1 / (1 - 0.6), rel=0.05)


def test_queue_meets_both_bounds_and_stays_below_them_between() -> None:
    seconds = {term: 1e-3 if term == "read" else 0.0 for term in TERMS}
    costs = Costs(dict.fromkeys(RESOURCES, seconds))
    scenario = load("read-ahead", settings={"disks": 0, "computation": 2.0}).scenarios[0]
    # A pass reads 100 objects: 0.2 CPU seconds, after a second of computation; 1 MB.
    few, limit = queued_throughput(costs, scenario, 1, 2)
    assert few == pytest.approx(1e6 / 1.1, rel=0.05)
    assert limit == "time of a client"
    many, limit = queued_throughput(costs, scenario, 60, 2)
    assert many == pytest.approx(1e7, rel=0.05)
    assert limit == "CPU"
    bound, _ = bounded_throughput(costs, scenario, 11, 2)
    between, _ = queued_throughput(costs, scenario, 11, 2)
    assert 0.7 * bound < between < 0.99 * bound


@pytest.fixture(scope="module")
def site() -> SiteFile:
    """The bundled site with fewer racks, and so fewer simulated clients, and two of its scenarios."""
    whole = load_site("hllhc")
    scenarios = {name: whole.scenarios[name] for name in ("as described", "8 partitions by database")}
    machines = replace(whole.machines, rack_servers=100)
    return replace(whole, machines=machines, scenarios=scenarios, loads=(0.25, 1.0))


def test_same_seed_gives_same_figures(site: SiteFile) -> None:
    first, again = (asdict(simulate(site, COSTS, 0.25, window=SHORT)) for _ in range(2))
    assert first == again
    assert first != asdict(simulate(site, COSTS, 0.25, seed=2, window=SHORT))


def test_commits_are_those_that_the_clients_make(site: SiteFile) -> None:
    point = simulate(site, COSTS, 0.25, window=SHORT)
    expected = 0.25 * sum(
        kind.count / (kind.commit_events * kind.event_seconds) for kind in site.clients if kind.commit_events
    )
    assert point.rates["commits"] == pytest.approx(expected, rel=0.1)
    used = point.utilisation["catalogue, order of commits"]
    turn = site.catalogue.turn_seconds + site.catalogue.commit_seconds
    assert used == pytest.approx(point.rates["commits"] * turn, rel=0.1)


def test_partitions_move_the_knee(site: SiteFile) -> None:
    done = study(site, COSTS, window=SHORT)
    one, eight = done["scenarios"]
    assert one["knee"]["resource"] == "catalogue, order of commits"
    assert one["knee"]["kind"] == "acquisition"
    assert eight["knee"]["load"] is None
    assert (
        one["points"][1]["latency"]["commit"]["median"]
        > 10 * eight["points"][1]["latency"]["commit"]["median"]
    )
    assert one["points"][1]["commits_per_turn"] > 1.2


def test_clients_of_a_failed_rack_continue_after_its_lease(site: SiteFile) -> None:
    point = simulate(site, COSTS, 1.0, window=SHORT, rack_fails=True)
    clients = site.number_of_clients / (site.machines.servers / site.machines.rack_servers)
    assert point.failure["clients"] == pytest.approx(clients, rel=0.4)
    lease = site.machines.lease_seconds
    assert point.failure["median_seconds"] is not None
    assert point.failure["p99_seconds"] is not None
    assert lease - 3 < point.failure["median_seconds"] < lease + 4
    assert point.failure["p99_seconds"] == pytest.approx(lease + 3, abs=3)
    assert point.failure["lost_seconds"]


def test_recall_takes_a_visit_if_drives_are_free(site: SiteFile) -> None:
    tapes = site.tapes
    done = simulate_recalls(tapes, 0.01)
    each = tapes.locate_seconds + tapes.database_bytes / tapes.bytes_per_second
    assert done["median_seconds"] == pytest.approx(tapes.mount_seconds + 5.5 * each, rel=0.1)
    assert simulate_recalls(tapes, 4.0)["median_seconds"] > 3 * done["median_seconds"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("servers = 2_000", "server = 2_000", "machines lacks servers"),
        ("cores = 32\nturn", "cores = 0\nturn", "catalogue: cores must be at least 1"),
        ("loads = [0.25, 0.5", "loads = [0.5, 0.25", "loads must be a list of ascending numbers"),
        ("commit_events = 20", "", "clients that write have commit_events"),
        ("{ gatherers = 16 }", "{ gatherer = 16 }", "unknown key 'gatherer'; did you mean 'gatherers'"),
        ("rack_servers = 40", "rack_servers = 4_000", "rack_servers must be at most servers"),
    ],
)
def test_load_site_names_table_and_key_when_invalid(tmp_path: Path, old: str, new: str, text: str) -> None:
    path, whole = tmp_path / "mine.toml", SITES.by_name()["hllhc"].read_text()
    assert old in whole
    path.write_text(whole.replace(old, new))
    with pytest.raises(fb.InvalidError, match=text):
        load_site(path)


def test_plan_command_simulates_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, mine = tmp_path / "profile-20260101T000000.json", tmp_path / "mine.toml"
    profile.write_text(json.dumps(made_up()))
    whole = SITES.by_name()["hllhc"].read_text()
    text = whole[: whole.index("[[scenario]]")].replace(
        "loads = [0.25, 0.5, 0.75, 1.0, 2.0, 4.0]", "loads = [0.2, 1.0]"
    )
    mine.write_text(text.replace("rack_servers = 40", "rack_servers = 400"))
    command = ["plan", str(mine), "--simulate", "--profile", str(profile)]
    assert main([*command, "--out", str(tmp_path / "report")]) == 0
    assert "first limit: catalogue, order of commits" in capsys.readouterr().out
    assert (tmp_path / "report" / "site.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "report" / "site.json").read_text())["clients"] == 100_000
    assert main(["plan", "--simulate", "--list"]) == 0
    assert "hllhc" in capsys.readouterr().out
    assert main(["plan", "hllhc", "--simulate", "--show"]) == 0
    assert "[machines]" in capsys.readouterr().out


def test_plan_command_checks_runs_by_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile-20260101T000000.json"
    run = made_up()
    profile.write_text(json.dumps(run))
    few = tmp_path / "few-20260101T000000.json"
    few.write_text(json.dumps(run | {"points": run["points"][:2]}))
    command = ["plan", "--check", str(few), "--simulate", "--profile", str(profile), "--json"]
    assert main(command) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["bytes_error"] == pytest.approx(0.0, abs=0.02)

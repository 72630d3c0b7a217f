"""Plans: events of many containers divided among jobs in the order of time, and what that saves."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

import femtobarn as fb
from femtobarn._conditions import plan_costs
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Event:
    time: fb.int64
    run: fb.uint32
    block: fb.uint32
    number: fb.int64
    energy: fb.float64


@fb.persistent
class Gain:
    value: fb.float64


@fb.persistent
class Pointer:
    event: fb.link[Event]


N = 300
"""Events of each container."""
FILES = ("raw1", "raw2", "raw3")
END = 1000
"""Events are taken from 0 to here, in nanoseconds; ten are a luminosity block, a hundred a run."""


def events_of(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    time = random.integers(0, END, N)
    return {
        "time": time,
        "run": time // 100,
        "block": time // 10 % 10,
        "number": seed * N + np.arange(N),
        "energy": random.random(N),
    }


@pytest.fixture
def job(fed: fb.Federation) -> fb.Job:
    """Events of three files in no order of time, some deleted; a series with gaps on each clock."""
    with fed.transaction() as txn:
        for name in FILES:
            txn.database(name, create=True).container("events", Event, create=True)
        gains = txn.series("tpc/gain", Gain, create=True)
        since = np.arange(100, 900, 25)
        for channel in (0, 3):
            gains.extend({"value": since * 1.0 + channel}, since=since, until=since + 20, channel=channel)
        spots = txn.series("beam/spot", Gain, create=True, clock="run")
        spots.extend({"value": [0.5, 0.6]}, since=[1 << 32, 7 << 32], until=[3 << 32, 9 << 32])
    # Each transaction adds clusters of its own.
    for start in range(0, N, 100):
        with fed.transaction() as txn:
            for seed, name in enumerate(FILES):
                columns = events_of(seed).items()
                events = txn.database(name).container("events")
                events.extend({field: values[start : start + 100] for field, values in columns})
    with fed.transaction() as txn:
        txn.database("raw2").container("events").delete([0, 7, N - 1])
    return fed.conditions()


BOTH: dict[str, Any] = {"time": "time", "run": ("run", "block")}
"""Where the moments of the events are on both clocks."""


def views(job: fb.Job) -> list[fb.View]:
    return [job.snapshot[f"{name}/events"] for name in FILES]


def read(job: fb.Job, plan: fb.JobPlan, *, moments: Any = "time", **options: Any) -> Iterator[ak.Array]:
    """The events of each job, with their gains, in one array."""
    for planned in plan:
        yield ak.concatenate(list(job.for_events(planned, ["tpc/gain"], moments=moments, **options)))


def intervals_needed(job: fb.Job, path: str, channel: int, jobs: list[list[int]]) -> int:
    """The different intervals with a moment, job by job and one by one."""
    series = job[path]
    found = [{series.interval(np.int64(moment), channel=channel) for moment in moments} for moments in jobs]
    return sum(each.entry is not None for of_job in found for each in of_job)


@pytest.mark.parametrize("where", [None, "energy < 0.1", "time >= 950 or time < 40", "time == 5"])
@pytest.mark.parametrize("jobs", [1, 7, 2000])
def test_every_event_is_in_one_job_in_the_order_of_time(job: fb.Job, where: str | None, jobs: int) -> None:
    expected = ak.concatenate([view.arrays(where=where) for view in views(job)])
    plan = job.plan_jobs(views(job), ["tpc/gain"], where, moments="time", jobs=jobs, channel=[0, 3])
    assert len(plan) == min(jobs, len(expected))
    sizes = [len(each) for each in plan]
    assert sum(sizes) == plan.num_events == len(expected)
    assert max(sizes) - min(sizes) <= 1
    found = list(read(job, plan, step_size=37))
    together = ak.concatenate(found)
    # Events of the same moment are in the order of the containers and of their entries.
    order = np.argsort(expected.time.to_numpy(), kind="stable")
    assert together.number.to_list() == expected.number[order].to_list()
    gains = job["tpc/gain"].at(together.time.to_numpy())
    assert together.tpc_gain.to_list() == gains.to_list()
    assert [each.first for each in plan] == [int(each.time[0]) for each in found]
    assert [each.last for each in plan] == [int(each.time[-1]) for each in found]
    # The counts are those of looking up every event.
    bounds = np.append(0, np.cumsum(sizes))
    times = expected.time.to_numpy()
    for costs, moments in ((plan.before, times), (plan.after, times[order])):
        divided = [moments[start:stop].tolist() for start, stop in pairwise(bounds)]
        needed = [intervals_needed(job, "tpc/gain", channel, divided) for channel in (0, 3)]
        assert costs.intervals == costs.series["tpc/gain"].intervals == sum(needed)
        assert costs.first.tolist() == [min(each) for each in divided]
        assert costs.last.tolist() == [max(each) for each in divided]
    assert plan.after.containers == sum(len(each.views) for each in plan)
    assert plan.after.intervals <= plan.before.intervals


@pytest.mark.parametrize("mask_bytes", [1 << 27, 0])
def test_clusters_are_counted_for_each_job(
    job: fb.Job, mask_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_costs, "MASK_BYTES_MAX", mask_bytes)
    plan = job.plan_jobs(views(job), ["tpc/gain"], moments="time", jobs=9)
    clusters = 0
    for planned in plan:
        for view, entries in zip(planned.views, planned.entries().values(), strict=True):
            found = view._handle.statistics("time")
            assert found is not None
            starts = np.frombuffer(memoryview(found[0]), np.int64)
            assert len(starts) > 1
            clusters += len(np.unique(np.searchsorted(starts, entries, "right")))
    assert plan.after.event_clusters == clusters
    # The whole series is one cluster, which every job with a valid condition reads.
    assert plan.after.series["tpc/gain"].clusters == plan.before.clusters == 9


def test_series_in_clusters_is_read_less_in_the_order_of_time(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        events = txn.database("raw", create=True).container("events", Event, create=True)
        time = np.random.default_rng(1).permutation(100)
        zero = np.zeros(100, int)
        events.extend({"time": time, "run": zero, "block": zero, "number": time, "energy": zero})
    for start in range(0, 100, 25):
        with fed.transaction() as txn:
            gains = txn.series("tpc/gain", Gain, create=True)
            since = np.arange(start, start + 25)
            gains.extend({"value": since * 1.0}, since=since, until=since + 1)
    job = fed.conditions()
    plan = job.plan_jobs(job.snapshot["raw/events"], moments="time", events_per_job=25)
    assert (plan.before.clusters, plan.after.clusters) == (16, 4)
    assert (plan.before.intervals, plan.after.intervals) == (100, 100)


def test_events_in_gaps_need_no_intervals(job: fb.Job) -> None:
    plan = job.plan_jobs(views(job), ["tpc/gain"], "time >= 900", moments="time", jobs=3)
    assert len(plan) == 3
    assert plan.after.series == {"tpc/gain": fb.SeriesCosts(0, 0)}
    for batch in read(job, plan):
        assert batch.tpc_gain.to_list() == [None] * len(batch)


def test_events_at_the_ends_of_the_clock_are_planned(fed: fb.Federation) -> None:
    form = {"name": "Moment", "fields": [{"name": "time", "type": "int64"}]}
    with fed.transaction() as txn:
        for name, times in (("both", [2**63 - 1, 0, -(2**63)]), ("last", [2**63 - 1])):
            txn.database(name, create=True).container("events", form, create=True).extend({"time": times})
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0)
    job = fed.conditions()
    plan = job.plan_jobs(job.snapshot["both/events"], moments="time", jobs=3)
    assert [each.first for each in plan] == [-(2**63), 0, 2**63 - 1]
    # The last number of the clock is no moment at which a condition is valid.
    assert plan.after.intervals == 1
    assert job.plan_jobs(job.snapshot["both/events"], moments="time", jobs=1).after.median_span == 2.0**64
    assert job.plan_jobs(job.snapshot["last/events"], moments="time", jobs=1).after.intervals == 0


def test_no_events_give_no_jobs(job: fb.Job, tmp_path: Path) -> None:
    plan = job.plan_jobs(views(job), where="energy > 2", moments=BOTH, jobs=5)
    assert len(plan) == plan.num_events == plan.after.intervals == 0
    assert plan.after.median_span == 0
    plan.write(tmp_path / "plan.json")
    assert len(fb.load_plan(tmp_path / "plan.json", job.federation)) == 0
    assert len(plan.plot().axes) == 2


def test_both_clocks_count_their_series(job: fb.Job) -> None:
    plan = job.plan_jobs(views(job), moments=BOTH, jobs=4, channel=0)
    assert plan.clock == "time"
    assert set(plan.after.series) == {"tpc/gain", "beam/spot"}
    by_run = job.plan_jobs(views(job), ["beam/spot"], moments=("run", "block"), jobs=4)
    assert by_run.clock == "run"
    runs: list[list[int]] = []
    for planned in by_run:
        [batch] = job.for_events(planned, {"beam/spot": "spot", "tpc/gain": "gain"}, moments=BOTH)
        runs.append((batch.run.to_numpy().astype(np.int64) << 32 | batch.block).to_list())
        assert batch.spot.to_list() == job["beam/spot"].at((batch.run, batch.block)).to_list()
        assert batch.gain.to_list() == job["tpc/gain"].at(batch.time).to_list()
    together = list(chain.from_iterable(runs))
    assert sorted(together) == together
    assert by_run.after.intervals == intervals_needed(job, "beam/spot", 0, runs)
    with pytest.raises(fb.InvalidError, match="give a mapping from clocks to moments"):
        job.plan_jobs(views(job), moments="time", jobs=2)


def test_links_views_and_repeated_events_are_planned_once(job: fb.Job) -> None:
    first, second, _ = views(job)
    picked = [first[[5, 3, 5]], second[10:20], first[3:8]]
    plan = job.plan_jobs(picked, ["tpc/gain"], moments="time", events_per_job=4)
    assert [len(each) for each in plan] == [3, 4, 4, 4]
    entries: dict[str, set[int]] = {}
    for planned in plan:
        for name, found in planned.entries().items():
            assert not entries.setdefault(name, set()) & set(found.tolist())
            entries[name] |= set(found.tolist())
    # Two of the first entries of the second file were deleted.
    assert entries == {"raw1/events": set(range(3, 8)), "raw2/events": set(range(12, 22))}
    with job.federation.transaction() as txn:
        tags = txn.database("tags", create=True).container("events", Pointer, create=True)
        oids = [second.oid(20), first.oid(9), first.oid(2)]
        tags.extend({"event": oids})
    now = job.federation.conditions()
    links = now.snapshot["tags/events"]["event"]
    for listed in (links, oids):
        of_links = now.plan_jobs(listed, ["tpc/gain"], moments="time", jobs=1)
        assert {name: found.tolist() for name, found in of_links[0].entries().items()} == {
            "raw1/events": [2, 9],
            "raw2/events": [20],
        }


def test_planned_job_is_small_and_reads_the_same_elsewhere(job: fb.Job, tmp_path: Path) -> None:
    plan = job.plan_jobs(views(job), ["tpc/gain"], "energy < 0.5", moments="time", jobs=5)
    plan.write(tmp_path / "plan.json")
    loaded = fb.load_plan(tmp_path / "plan.json", job.federation)
    assert repr(loaded) == repr(plan)
    assert loaded.before.series == plan.before.series
    assert loaded.before.first.tolist() == plan.before.first.tolist()
    for planned, again in zip(plan, loaded, strict=True):
        sent = pickle.dumps(planned)
        # Half of the entries, in no order: at most two bytes for each, beside what names the containers.
        assert len(sent) < 2 * len(planned) + 1500
        expected = [batch.to_list() for batch in planned.iterate(["number", "energy"])]
        for copy in (pickle.loads(sent), again):
            assert [batch.to_list() for batch in copy.iterate(["number", "energy"])] == expected


def test_plan_of_an_older_version_of_a_class_keeps_it(fed: fb.Federation, tmp_path: Path) -> None:
    form: dict[str, Any] = {"name": "Old", "fields": [{"name": "n", "type": "int64"}]}
    newer: dict[str, Any] = {
        "name": "Old",
        "version": 2,
        "fields": [*form["fields"], {"name": "more", "type": "int64"}],
    }
    with fed.transaction() as txn:
        for name, cls in (("d1", form), ("d2", newer)):
            events = txn.database(name, create=True).container("events", cls, create=True)
            fields = {"n": [3, 1], "more": [0, 0]}
            events.extend({each["name"]: fields[each["name"]] for each in cls["fields"]})
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0)
    job = fed.conditions()
    one, two = job.snapshot["d1/events"], job.snapshot["d2/events"]
    with pytest.raises(fb.InvalidError, match=r"d1/events and d2/events have different fields.*as_class"):
        job.plan_jobs([one, two], moments="n", jobs=1)
    plan = job.plan_jobs([one.as_class(2), two], moments="n", jobs=1)
    plan.write(tmp_path / "plan.json")
    for each in (plan, fb.load_plan(tmp_path / "plan.json", fed)):
        [batch] = each[0].iterate()
        assert batch.to_list() == [{"n": n, "more": 0} for n in (1, 1, 3, 3)]


def test_wrong_arguments_of_plans_are_refused(job: fb.Job, tmp_path: Path) -> None:
    events = views(job)
    for count in ({}, {"jobs": 0}, {"jobs": 1, "events_per_job": 1}, {"events_per_job": -1}):
        with pytest.raises(fb.InvalidError, match="either the number of jobs or the events_per_job"):
            job.plan_jobs(events, ["tpc/gain"], moments="time", **count)  # type: ignore[arg-type]
    with pytest.raises(fb.NotFoundError, match="gone"):
        job.plan_jobs(events, ["tpc/gain"], moments="gone", jobs=1)
    with pytest.raises(fb.InvalidError, match="there are no series"):
        job.plan_jobs(events, [], moments="time", jobs=1)
    plan = job.plan_jobs(events, ["tpc/gain"], moments=lambda batch: batch.time, jobs=2)
    with pytest.raises(fb.InvalidError, match="a function cannot be written"):
        plan.write(tmp_path / "plan.json")
    with pytest.raises(fb.InvalidError, match="give where to plan_jobs"):
        list(job.for_events(plan[0], ["tpc/gain"], where="energy < 0.5", moments="time"))
    with pytest.raises(fb.InvalidError, match="invalid step_size 0"):
        job.for_events(plan[0], ["tpc/gain"], moments="time", step_size=0)


def test_files_that_are_no_plan_for_the_federation_are_refused(job: fb.Job, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(fb.NotFoundError, match=r"plan\.json does not exist"):
        fb.load_plan(path, job.federation)
    plan = job.plan_jobs(views(job), ["tpc/gain"], moments="time", jobs=2)
    plan.write(path)
    with pytest.raises(fb.ExistsError, match=r"plan\.json exists"):
        plan.write(path)
    with pytest.raises(fb.StorageError, match="cannot be written"):
        plan.write(tmp_path / "gone" / "plan.json")
    with fb.create(tmp_path / "other.fed") as other, pytest.raises(fb.InvalidError, match="not of other"):
        fb.load_plan(path, other)
    facts = json.loads(path.read_text())
    for wrong in ("{", "[]", json.dumps({**facts, "format": 2}), json.dumps({**facts, "jobs": [{}]})):
        path.write_text(wrong)
        with pytest.raises(fb.InvalidError, match=r"plan\.json is not"):
            fb.load_plan(path, job.federation)


@pytest.mark.parametrize(("moments", "path"), [("time", "tpc/gain"), (("run", "block"), "beam/spot")])
def test_picture_has_a_bar_for_each_job(job: fb.Job, moments: Any, path: str) -> None:
    plan = job.plan_jobs(views(job), [path], moments=moments, jobs=6)
    above, below = plan.plot().axes
    for axes in (above, below):
        assert len(axes.patches) == 6
    boxes = [[bar.get_window_extent() for bar in axes.patches] for axes in (above, below)]
    widths = [sum(box.width for box in each) for each in boxes]
    assert widths[1] < widths[0] / 4
    lefts = [box.x0 for box in boxes[1]]
    assert lefts == sorted(lefts)


# The command.


def command(job: fb.Job, *arguments: str, series: tuple[str, ...] = ()) -> list[str]:
    """The arguments of the command for the events of all files."""
    events = [part for name in FILES for part in ("--events", f"{name}/events")]
    return ["conditions", "plan", str(job.federation.path), *series, *events, "--moments", "time", *arguments]


def test_command_prints_counts_and_writes_plan_and_picture(
    job: fb.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    wanted = command(job, "--run-moments", "run,block", "--where", "energy < 0.2", "--jobs", "5")
    assert main([*wanted, "--out", str(out), "--picture", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    plan = job.plan_jobs(views(job), where="energy < 0.2", moments=BOTH, jobs=5)
    assert f"{plan.num_events} events in 5 jobs, from 1970-01-01T00:00:00" in lines[0]
    [gains] = [line.split() for line in lines if line.startswith("intervals of tpc/gain")]
    before, after = (each.series["tpc/gain"].intervals for each in (plan.before, plan.after))
    assert gains[3:] == [str(before), str(after), f"{before / after:.3g}"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert repr(fb.load_plan(out, job.federation)) == repr(plan)
    assert main([*wanted, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["events"] for each in facts["jobs"]] == [len(each) for each in plan]
    assert facts["after"]["series"]["beam/spot"] == vars(plan.after.series["beam/spot"])


def test_command_refuses_impossible_plans(
    job: fb.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = ("tpc/gain",)
    assert main(command(job, "--jobs", "1", "--where", "energy > 2", series=series)) == 0
    assert capsys.readouterr().out == "no events, no jobs\n"
    picture = str(tmp_path / "plan.gone")
    code = main(command(job, "--events-per-job", "9", "--picture", picture, series=series))
    assert code == EXIT_CODES["unsupported"]
    assert "plan.gone cannot be drawn" in capsys.readouterr().err

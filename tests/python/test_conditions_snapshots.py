"""Snapshot files of conditions: they answer as the federation does, or raise an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from condition_samples import CHANNELS, END, PATHS, RUNS, Event, Gain, answers, assert_same, fill, moments
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import femtobarn as fb


@pytest.fixture
def full(fed: fb.Federation) -> fb.Federation:
    """A federation with conditions and events."""
    fill(fed)
    return fed


def test_file_answers_as_the_federation_within_its_range(full: fb.Federation, tmp_path: Path) -> None:
    job = full.conditions()
    job.write_snapshot(tmp_path / "prod.root", since=60, until=90, **RUNS)
    full.close()
    with fb.open(full.path) as again, fb.open_conditions(tmp_path / "prod.root") as file:
        job = again.conditions()
        assert_same(job, file, 60, 90)
        assert (list(file), len(file), file.csn, file.global_tag) == (sorted(PATHS), 4, job.csn, None)
        for path in PATHS:
            assert (file[path].clock, file[path].definition) == (job[path].clock, job[path].definition)
            for t in moments(job[path], 60, 90).tolist():
                one, other = file[path].at(t), job[path].at(t)
                assert (one and fields(one)) == (other and fields(other))


def fields(condition: fb.Object) -> dict[str, Any]:
    """The values of a condition without its validity, which is cut in a file."""
    return {name: each for name, each in condition.to_dict().items() if name not in ("since", "until")}


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10**6), since=st.integers(0, END - 1), length=st.integers(1, END))
def test_file_answers_as_the_federation_over_random_ranges(
    tmp_path_factory: pytest.TempPathFactory, seed: int, since: int, length: int
) -> None:
    folder, until = tmp_path_factory.mktemp("random"), min(since + length, END)
    with fb.create(folder / "lhc.fed") as fed:
        fill(fed, seed)
        job = fed.conditions()
        runs: dict[str, Any] = {"since_run": divmod(since, 10), "until_run": divmod(until, 10)}
        job.write_snapshot(folder / "prod.root", since=since, until=until, **runs)
        job.write_job_file(
            folder / "job.root",
            job.snapshot["run7/events"],
            moments={"time": "time", "run": ("run", "block")},
        )
        with (
            fb.open_conditions(folder / "prod.root") as file,
            fb.open_conditions(folder / "job.root") as needed,
        ):
            assert_same(job, file, since, until)
            events = job.snapshot["run7/events"]
            for path in PATHS:
                times = events.arrays(library="np")
                when = times["time"] if job[path].clock == "time" else (times["run"], times["block"])
                for channel in CHANNELS:
                    assert (
                        needed[path].at(when, channel=channel).to_list()
                        == job[path].at(when, channel=channel).to_list()
                    )


def test_moment_outside_the_range_is_an_error_and_not_a_gap(full: fb.Federation, tmp_path: Path) -> None:
    full.conditions().write_snapshot(tmp_path / "prod.root", since=60, until=90, **RUNS)
    with fb.open_conditions(tmp_path / "prod.root") as file:
        series = file["tpc/newest"]
        for t in (59, 90, -(2**63), 2**63 - 1):
            for call in (
                lambda t=t: series.at(t),
                lambda t=t: series.at(np.int64(t)),
                lambda t=t: series.at([70, t]),
                lambda t=t: series.entries_at([t, 70]),
                lambda t=t: series.interval(t),
            ):
                with pytest.raises(
                    fb.InvalidError, match=r"covers tpc/newest from .* to .*, not at .* wider range"
                ):
                    call()
        for ends in ((59, 70), (60, 91), (None, 91), (10, None), (0, 10)):
            with pytest.raises(fb.InvalidError, match=r"covers tpc/newest .*, not from .* to "):
                series.intervals(*ends)
            with pytest.raises(fb.InvalidError):
                series.channels(*ends)
        assert series.channels() == series.channels(60, 90)
        assert all(60 <= each.since < each.until <= 90 for each in series.intervals())
        spot = file["beam/spot"]
        with pytest.raises(fb.InvalidError, match="beam/spot"):
            spot.at((9, 0))
        with pytest.raises(fb.NotFoundError, match="has no series 'tpc/absent'"):
            file["tpc/absent"]
        with pytest.raises(fb.InvalidError, match="has conditions only"):
            _ = file.snapshot


def test_gap_is_cut_to_the_range(full: fb.Federation, tmp_path: Path) -> None:
    full.conditions().write_snapshot(tmp_path / "prod.root", ["tpc/refuse"], since=16, until=30)
    with fb.open_conditions(tmp_path / "prod.root") as file:
        refuse = file["tpc/refuse"]
        assert refuse.interval(17) == fb.Interval(16, 20, None)
        assert refuse.interval(25) == fb.Interval(20, 30, 0)
        with pytest.raises(fb.NotFoundError, match="there is a gap from"):
            refuse.at(17, required=True)


def test_file_without_bounds_answers_everywhere(full: fb.Federation, tmp_path: Path) -> None:
    job = full.conditions()
    job.write_snapshot(tmp_path / "prod.root")
    with fb.open_conditions(tmp_path / "prod.root") as file:
        assert_same(job, file)
        for t in (-(2**63), 2**63 - 1):
            assert file["tpc/newest"].at(t) is None
            assert file["tpc/newest"].at([t], "value").to_list() == [None]


def test_frozen_tag_gives_the_same_file_after_later_changes(full: fb.Federation, tmp_path: Path) -> None:
    full.conditions.create_tag("prod-2026", state="frozen")
    full.conditions("prod-2026").write_snapshot(tmp_path / "a.root")
    with full.transaction() as txn:
        txn.series("tpc/newest").put(Gain(value=99), since=0, until=END)
    full.conditions("prod-2026").write_snapshot(tmp_path / "b.root")
    full.conditions().write_snapshot(tmp_path / "c.root")
    a, b, c = (fb.open_conditions(tmp_path / f"{name}.root") for name in "abc")
    assert a.global_tag == {"name": "prod-2026", "state": "frozen"}
    assert a.facts["series"] == b.facts["series"]
    assert c["tpc/newest"].at(5).value == 99
    assert answers(a["tpc/newest"], np.arange(END)) == answers(b["tpc/newest"], np.arange(END))
    hashes = [{each["path"]: each["sha256"] for each in file.facts["series"]} for file in (a, c)]
    assert [path for path in PATHS if hashes[0][path] != hashes[1][path]] == ["tpc/newest"]


def test_job_file_is_smaller_and_has_the_conditions_of_the_events(
    full: fb.Federation, tmp_path: Path
) -> None:
    job = full.conditions()
    with full.transaction() as txn:
        many = txn.series("tpc/many", Gain, create=True)
        columns = {"value": np.random.default_rng(1).random(20_000), "status": np.zeros(20_000, int)}
        many.extend(columns, since=np.arange(20_000) * 2, until=np.arange(20_000) * 2 + 1)
    job = full.conditions()
    events = job.snapshot["run7/events"]
    clocks: dict[str, Any] = {"time": "time", "run": ("run", "block")}
    job.write_snapshot(tmp_path / "prod.root")
    job.write_job_file(tmp_path / "job.root", events, moments=clocks)
    assert (tmp_path / "job.root").stat().st_size < (tmp_path / "prod.root").stat().st_size / 2
    paths = ["tpc/newest", "tpc/many"]
    with fb.open_conditions(tmp_path / "job.root") as file:
        assert len(file["tpc/many"]) <= 15
        joined, expected = (
            ak.concatenate(list(each.for_events(events, paths, moments="time", channel=1))).to_list()
            for each in (file, job)
        )
        assert [
            [event[name] and event[name]["value"] for name in ("tpc_newest", "tpc_many")] for event in joined
        ] == [
            [event[name] and event[name]["value"] for name in ("tpc_newest", "tpc_many")]
            for event in expected
        ]
        with pytest.raises(
            fb.InvalidError, match="only at the moments of the events that it was written for"
        ):
            file["tpc/many"].at(0)
        covered = {t for t in range(END) if is_covered(file["tpc/many"], t)}
        assert covered == set(events["time"].to_list())
        assert file["tpc/many"].at(next(t for t in covered if t % 2)) is None


def is_covered(series: fb.Series, t: int) -> bool:
    try:
        series.at(t)
    except fb.InvalidError:
        return False
    return True


def test_job_file_covers_whole_gaps_and_only_moments_near_events(full: fb.Federation, tmp_path: Path) -> None:
    with full.transaction() as txn:
        events = txn.database("run8", create=True).container("events", Event, create=True)
        events.extend({"time": [17, 42], "run": [1, 1], "block": [0, 0]})
    job = full.conditions()
    job.write_job_file(tmp_path / "job.root", full["run8/events"], ["tpc/refuse"], moments="time")
    with fb.open_conditions(tmp_path / "job.root") as file:
        refuse = file["tpc/refuse"]
        assert [t for t in range(END) if is_covered(refuse, t)] == [*range(15, 20), *range(40, 55)]
        assert refuse.intervals() == [fb.Interval(40, 55, 0)]
        assert (refuse.intervals(15, 18), refuse.interval(16)) == ([], fb.Interval(15, 20, None))
        assert refuse.at(16, channel=99) is None
        for ends in ((15, 50), (15, 21), (30, None), (20, 40)):
            with pytest.raises(fb.InvalidError):
                refuse.intervals(*ends)
        nothing = full["run8/events"][:0]
    full.conditions().write_job_file(tmp_path / "none.root", nothing, ["tpc/refuse"], moments="time")
    with fb.open_conditions(tmp_path / "none.root") as file, pytest.raises(fb.InvalidError, match="job file"):
        file["tpc/refuse"].at(17)

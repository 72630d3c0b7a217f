"""Conditions: what was valid when, as of any commit, compared with a plain list of everything inserted."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from condition_samples import Level, Plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import femtobarn as fb


@fb.persistent
class Gain:
    value: fb.float64


JANUARY = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    """A federation with a series of one gain that a newer one interrupts."""
    with fed.transaction(message="first") as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.put(Gain(value=1.0), since=0, until=100)
        series.put(Gain(value=5.0), since=0, until=100, channel=3)
    with fed.transaction(message="second") as txn:
        txn.series("tpc/gain").put(Gain(value=2.0), since=40, until=60)
    return fed


def test_newer_condition_hides_the_older_one_while_it_is_valid(gains: fb.Federation) -> None:
    gain = gains.conditions()["tpc/gain"]
    assert [gain.at(t) and gain.at(t).value for t in (-1, 0, 39, 40, 59, 60, 99, 100)] == [
        None, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0, None,
    ]  # fmt: skip
    assert gain.at(50, channel=3).value == 5.0
    assert gain.at(50, channel=4) is None
    assert gain.channels() == [0, 3]
    assert [(i.since, i.until, i.entry) for i in gain.intervals()] == [(0, 40, 0), (40, 60, 2), (60, 100, 0)]


def test_job_reads_the_same_whatever_is_inserted_later(gains: fb.Federation) -> None:
    before, job = gains.conditions(csn=1), gains.conditions()
    assert before["tpc/gain"].at(50).value == 1.0
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0), since=0, until=1000)
    assert before["tpc/gain"].at(50).value == 1.0
    assert job["tpc/gain"].at(50).value == 2.0
    assert job["tpc/gain"].at(500) is None
    assert gains.conditions()["tpc/gain"].at(500).value == 9.0
    assert len(gains["tpc/gain"]) == 4


def test_many_moments_give_an_array_with_missing_values_for_gaps(gains: fb.Federation) -> None:
    gain = gains.conditions()["tpc/gain"]
    assert gain.at(np.array([45, -5, 10, 45]), "value").to_list() == [
        {"value": 2.0}, None, {"value": 1.0}, {"value": 2.0},
    ]  # fmt: skip
    assert gain.at([45, 45], "value", channel=np.array([0, 3])).value.to_list() == [2.0, 5.0]
    assert gain.at(np.array([], np.int64), "value").to_list() == []
    assert gain.at([10], library="np")["value"].tolist() == [1.0]
    entries, positions = gain.entries_at(range(0, 100, 10))
    assert entries.tolist() == [0, 2]
    assert positions.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]


def test_gap_is_an_error_where_a_condition_is_required(gains: fb.Federation) -> None:
    gain = gains.conditions()["tpc/gain"]
    assert gain.at(99, required=True).value == 1.0
    with pytest.raises(
        fb.NotFoundError, match=r"tpc/gain has no condition .* channel 0.* gap from .* to forever"
    ):
        gain.at(100, required=True)
    with pytest.raises(fb.NotFoundError, match="channel 7"):
        gain.at([5, 6], channel=[0, 7], required=True)


def test_open_series_ends_each_condition_where_the_next_begins(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("hv/state", Gain, create=True, overlap="open")
        series.extend({"value": [1.0, 2.0]}, since=[0, 100])
        series.put(Gain(value=1.5), since=50)
        series.put(Gain(value=7.0), since=200, until=300)
    state = fed.conditions()["hv/state"]
    assert [getattr(state.at(t), "value", None) for t in (-1, 0, 49, 50, 99, 100, 199, 200, 299, 300)] == [
        None, 1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 7.0, 7.0, None,
    ]  # fmt: skip


def test_overlap_is_refused_in_series_with_this_rule(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("hv/limit", Gain, create=True, overlap="refuse")
        series.extend({"value": [1.0, 2.0]}, since=[0, 200], until=[100, 300])
        for since, until in ((50, 60), (-5, 1), (99, 150), (0, 400), (150, 201)):
            with pytest.raises(fb.ExistsError, match="hv/limit has a condition of channel 0"):
                series.put(Gain(value=3.0), since=since, until=until)
        series.put(Gain(value=3.0), since=100, until=200)
        series.put(Gain(value=4.0), since=50, until=60, channel=1)
        with pytest.raises(fb.ExistsError):
            series.extend({"value": [1.0, 2.0]}, since=[500, 550], until=[600, 700])
    limit = fed.conditions()["hv/limit"]
    assert [limit.at(t).value for t in (99, 100, 199, 200)] == [1.0, 3.0, 3.0, 2.0]


def test_ended_condition_is_not_followed_by_one_that_it_hid(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        assert series.end(at=50) == 2
        with pytest.raises(fb.NotFoundError, match="has no condition of channel 0 to end at"):
            series.end(at=5000)
    now, before = gains.conditions()["tpc/gain"], gains.conditions(csn=2)["tpc/gain"]
    assert [now.at(t) for t in (50, 70)] == [None, None]
    assert now.at(49).value == 2.0
    assert before.at(70).value == 1.0


def test_correction_replaces_values_and_earlier_snapshots_keep_the_old_ones(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        oid = txn.series("tpc/gain").correct(Gain(value=2.5), at=50)
    assert gains.conditions()["tpc/gain"].at(41).value == 2.5
    assert gains.conditions(csn=2)["tpc/gain"].at(41).value == 2.0
    assert oid.entry == 2


def test_transaction_reads_its_own_conditions(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.put(Gain(value=1.0), since=0)
        assert series.series().at(5).value == 1.0
        series.put(Gain(value=2.0), since=3)
        assert series.series().at(5).value == 2.0


def test_times_of_all_kinds_mean_the_same(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.put(Gain(value=1.0), since="2026-01-01T00:00:00Z", until="2026-01-01T02:00:00+01:00")
    gain = fed.conditions()["tpc/gain"]
    stored = gain.at(JANUARY)
    assert (stored.since, stored.until) == (JANUARY, JANUARY + 3600 * 10**9)
    in_zone = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    for moment in (
        in_zone,
        "2026-01-01T00:00:00.000000001Z",
        np.datetime64("2026-01-01T00:30"),
        np.int64(JANUARY),
    ):
        assert gain.at(moment).value == 1.0
    assert gain.at(np.array(["2025-12-31T23:59:59", "2026-01-01"], "datetime64[s]"), "value").to_list() == [
        None, {"value": 1.0},
    ]  # fmt: skip
    assert gain.at([in_zone, datetime(2027, 1, 1, tzinfo=UTC)], "value").to_list() == [{"value": 1.0}, None]


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 1), "has no time zone"),
        ("2026-01-01T00:00:00", "has no time zone"),
        ("yesterday", "cannot be read as a time"),
        (1.5, "a float cannot hold nanoseconds"),
        (math.nan, "a float cannot hold nanoseconds"),
        (True, "not a moment"),
        (None, "not a moment"),
        (2**63, "out of range"),
        (np.datetime64("NaT"), "NaT"),
        (np.datetime64("3000-01-01"), "does not fit"),
        (np.array([1.0]), "float64"),
        (np.array([np.nan]), "float64"),
        (np.array([2**63], np.uint64), "out of range"),
        (np.array([[1]]), "2 dimensions"),
    ],
)
def test_moment_that_is_none_is_refused(gains: fb.Federation, moment: object, text: str) -> None:
    with pytest.raises(fb.InvalidError, match=text):
        gains.conditions()["tpc/gain"].at(moment)
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        with pytest.raises(fb.InvalidError, match=text):
            put_from(series, moment)


def put_from(series: fb.SeriesWriter, since: object) -> None:
    """Put a condition that is valid from a moment on; an array of one moment is for `extend`."""
    if isinstance(since, np.ndarray):
        series.extend({"value": [1.0]}, since=since)
    else:
        series.put(Gain(value=1.0), since=since)


def test_empty_and_reversed_validities_are_refused(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        for since, until in ((5, 5), (6, 5)):
            with pytest.raises(fb.InvalidError, match="is empty; it must end after it begins"):
                series.put(Gain(value=1.0), since=since, until=until)
            with pytest.raises(fb.InvalidError, match="is empty"):
                series.extend({"value": [1.0, 2.0]}, since=[0, since], until=[9, until])
        assert len(series) == 3


def test_runs_and_luminosity_blocks_are_a_clock(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("beam/spot", Gain, create=True, clock="run")
        series.put(Gain(value=1.0), since=(300_100, 0), until=(300_101, 5))
        with pytest.raises(fb.InvalidError, match="out of range"):
            series.put(Gain(value=1.0), since=(2**31, 0))
        with pytest.raises(fb.InvalidError, match="a pair of a run and a luminosity block"):
            series.put(Gain(value=1.0), since="300100")
    spot = fed.conditions()["beam/spot"]
    assert spot.at((300_100, 4_000_000_000)).value == 1.0
    assert spot.at((300_101, 5)) is None
    runs, blocks = np.array([300_100, 300_101, 300_101]), np.array([7, 4, 5])
    assert spot.at((runs, blocks), "value").to_list() == [{"value": 1.0}, {"value": 1.0}, None]
    assert spot.shown(spot.at((300_100, 9)).until) == "300101:5"


def test_run_numbers_are_not_taken_for_blocks_of_run_0(fed: fb.Federation, tmp_path: Path) -> None:
    first = fed.conditions()
    with fed.transaction() as txn:
        series = txn.series("beam/spot", Gain, create=True, clock="run")
        with pytest.raises(fb.InvalidError, match=r"write \(300100, 0\) for the beginning of run 300100"):
            series.put(Gain(value=1.0), since=300_100)
        series.put(Gain(value=1.0), since=(0, 7), until=(300_100, 0))
    spot = fed.conditions()["beam/spot"]
    for ask in (spot.at, spot.interval, lambda run: spot.at([run]), lambda run: spot.at(run, required=True)):
        with pytest.raises(fb.InvalidError, match="is block 300100 of run 0"):
            ask(300_100)
        with pytest.raises(fb.InvalidError, match="is block 300100 of run 0"):
            ask(np.array([300_100], np.uint32)[0])
    with pytest.raises(fb.InvalidError, match="are of type int32: give a pair of arrays"):
        spot.at(np.array([300_100], np.int32))
    with pytest.raises(fb.InvalidError, match="is block 300100 of run 0"):
        spot.at(range(300_100, 300_103))
    job, out = fed.conditions(), tmp_path / "out.root"
    for ask in (
        lambda run: job.write_snapshot(out, since_run=run),
        lambda run: fed.conditions.diff(first, None, since=run),
        lambda run: spot.plot(until=run),
    ):
        with pytest.raises(fb.InvalidError, match="is block 300100 of run 0"):
            ask(300_100)
    # Stored moments can be passed back.
    assert spot.at(0) is None
    assert spot.at((0, 7)).value == spot.at(1 << 32).value == spot.at(np.int64(7)).value == 1.0
    assert spot.interval((0, 7)).since == 7
    assert spot.intervals(7, 300_100 << 32) == [spot.interval((5, 0))]
    assert spot.at(spot.segments()[0]).value.to_list() == [1.0]


def test_class_and_settings_of_a_series_are_checked(gains: fb.Federation) -> None:
    taken = {"name": "Bad", "fields": [{"name": "since", "type": "int64"}]}
    with gains.transaction() as txn:
        with pytest.raises(fb.InvalidError, match='"since" is reserved for the validity'):
            txn.series("tpc/other", taken, create=True)
        with pytest.raises(fb.InvalidError, match="has overlap 'newest', not 'open'"):
            txn.series("tpc/gain", overlap="open")
        with pytest.raises(fb.NotFoundError, match="pass create=True"):
            txn.series("tpc/absent")
        txn.database("tpc").container("plain", Gain, create=True)
        with pytest.raises(fb.InvalidError, match="not a series of conditions"):
            txn.series("tpc/plain")
        with pytest.raises(fb.InvalidError, match="has no value"):
            txn.series("tpc/gain").put(object(), since=0)
    with pytest.raises(fb.InvalidError, match="not a series"):
        gains.conditions()["tpc/plain"]
    with pytest.raises(fb.NotFoundError, match='did you mean "gain"'):
        gains.conditions()["tpc/gian"]


def test_one_moment_and_one_channel_hold_for_all_conditions_of_extend(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.extend({"value": [1.0, 2.0, 3.0]}, since=10, until=20, channel=np.array([4, 5, 6], np.uint8))
        series.extend({"value": [7.0, 8.0]}, since=[20, 30], channel=np.int16(4))
    gain = fed.conditions()["tpc/gain"]
    assert [gain.at(15, channel=each).value for each in (4, 5, 6)] == [1.0, 2.0, 3.0]
    assert gain.at([15, 25, 35], "value", channel=np.int64(4)).value.to_list() == [1.0, 7.0, 8.0]
    assert [interval.since for interval in gain.intervals(channel=np.int64(4))] == [10, 20, 30]
    with fed.transaction() as txn:
        series = txn.series("beam/spot", Gain, create=True, clock="run")
        series.extend({"value": [1.0, 2.0]}, since=(7, 1), until=(7, 5), channel=[0, 1])
    assert fed.conditions()["beam/spot"].at((7, 4), channel=1).value == 2.0


@pytest.mark.parametrize("channel", ["x", 1.5, None, 2**63, "0 or channel == 3"])
def test_channel_that_is_none_is_refused(gains: fb.Federation, channel: Any) -> None:
    """A text became part of the selection of `end`, and a channel of 1.5 was read as 1."""
    gain = gains.conditions()["tpc/gain"]
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        for call in (
            lambda: gain.at(5, channel=channel),
            lambda: gain.at([5], channel=channel),
            lambda: gain.at([5], channel=[channel]),
            lambda: gain.at([5, 6], channel=[1]),
            lambda: gain.interval(5, channel=channel),
            lambda: gain.intervals(channel=channel),
            lambda: series.put(Gain(value=1.0), since=0, channel=channel),
            lambda: series.extend({"value": [1.0]}, since=0, channel=channel),
            lambda: series.end(at=5, channel=channel),
            lambda: series.correct(Gain(value=1.0), at=5, channel=channel),
        ):
            with pytest.raises(fb.InvalidError, match="channel"):
                call()
        assert len(series) == 3


def test_dictionary_holds_fields_of_the_class_and_not_the_validity(gains: fb.Federation) -> None:
    """A dictionary with `since` replaced the validity that had been checked."""
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        calls: list[Callable[[], object]] = [
            lambda: series.put({"value": 1.0, "since": 500}, since=0, until=10),
            lambda: series.correct({"until": 5}, at=50),
            lambda: series.put({"valeu": 1.0}, since=0),
        ]
        for call in calls:
            with pytest.raises(fb.InvalidError, match="class Gain has no field"):
                call()
        series.correct({"value": 2.5}, at=50)
    assert gains.conditions()["tpc/gain"].at(50).value == 2.5


def test_timestamps_of_pandas_keep_their_nanoseconds(fed: fb.Federation) -> None:
    pd = pytest.importorskip("pandas")
    with fed.transaction() as txn:
        series = txn.series("tpc/gain", Gain, create=True)
        series.put(Gain(value=1.0), since=pd.Timestamp("2026-01-01T00:00:00.000000001", tz="UTC"))
    gain = fed.conditions()["tpc/gain"]
    assert gain.at(JANUARY + 1).since == JANUARY + 1
    days = pd.date_range("2025-12-31", periods=3, tz="Europe/Paris")
    assert gain.at(days, "value").to_list() == [None, None, {"value": 1.0}]
    assert gain.at(np.array(["2026-01-01T00:00:00Z"]), "value").to_list() == [None]


def test_repr_works_after_the_federation_was_closed(gains: fb.Federation) -> None:
    gains.conditions.create_tag("prod")
    held = [gains.conditions(), gains.conditions("prod"), gains.conditions()["tpc/gain"], gains.conditions]
    with gains.transaction() as txn:
        held.append(txn.series("tpc/gain"))
        assert repr(held[-1]) == "<SeriesWriter 'tpc/gain': 3 conditions of class Gain>"
    assert repr(held[1]) == "<Job with global tag 'prod' of 'lhc' as of csn 3>"
    gains.close()
    assert ["closed" in text for text in map(repr, held)] == [True, True, True, False, True]


def test_class_of_conditions_evolves_and_earlier_jobs_keep_theirs(gains: fb.Federation) -> None:
    before = gains.conditions()["tpc/gain"]
    fields = [{"name": "value", "type": "float64"}, {"name": "error", "type": "float32", "default": 0.5}]
    with gains.transaction() as txn:
        series = txn.series("tpc/gain", {"name": "Gain", "version": 2, "fields": fields}, evolve=True)
        series.put({"value": 3.0, "error": 0.1}, since=10, until=20)
    after = gains.conditions()["tpc/gain"]
    assert before.at(50).fields == ["since", "until", "channel", "value"]
    assert (after.at(50).value, after.at(50).error) == (2.0, 0.5)
    assert after.at(15).value == 3.0


def test_conditions_are_read_and_written_through_a_server(gains: fb.Federation) -> None:
    with fb.serve(gains.path, port=0, anonymous="all") as server:
        remote = fb.open(server.url("/lhc.fed"))
        gain = remote.conditions()["tpc/gain"]
        assert [gain.at(t).value for t in (10, 50)] == [1.0, 2.0]
        assert gain.at(range(100), "value").value.to_list() == [
            2.0 if 40 <= t < 60 else 1.0 for t in range(100)
        ]
        with remote.transaction() as txn:
            txn.series("tpc/gain").put(Gain(value=3.0), since=50, until=70)
        remote.conditions.create_tag("far", state="frozen")
        assert remote.conditions("far")["tpc/gain"].at(55).value == 3.0
        assert gains.conditions("far")["tpc/gain"].at(55).value == 3.0
        assert gain.at(55).value == 2.0
        remote.close()


def test_series_is_a_container_like_any_other(gains: fb.Federation, tmp_path: Path) -> None:
    view = gains["tpc/gain"]
    assert view.fields == ["since", "until", "channel", "value"]
    assert view.definition.name == "Condition<Gain>"
    assert view.arrays("value", where="channel == 3").value.to_list() == [5.0]
    gains.seal("tpc")
    assert gains.conditions()["tpc/gain"].at(50).value == 2.0
    with fb.create(tmp_path / "other.fed") as other:
        other.attach(next(Path(gains.path).rglob("tpc.root")), "calibration")
        assert other.conditions()["calibration/gain"].at(50).value == 2.0
        assert list(other.conditions()) == ["calibration/gain"]


# ---- against a plain model

END = 30
INSERTION = st.tuples(
    st.sampled_from(["put", "put", "extend", "end", "correct"]),
    st.integers(0, 2),
    st.integers(0, END),
    st.integers(1, END),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(INSERTION, min_size=1, max_size=5), min_size=1, max_size=6),
    st.sampled_from(["newest", "open"]),
)
def test_every_snapshot_answers_as_the_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[str, int, int, int]]],
    overlap: Literal["newest", "open"],
) -> None:
    plain, expected = Plain(overlap), {}
    with fb.create(tmp_path_factory.mktemp("model") / "m.fed") as fed:
        for changes in commits:
            with fed.transaction() as txn:
                series = txn.series("tpc/gain", Level, create=True, overlap=overlap)
                for change in changes:
                    plain.apply(series, *change)
            csn = txn.csn or fed.head()
            expected[csn] = [[plain.at(channel, t) for t in range(2 * END)] for channel in range(3)]
        for csn, answers in expected.items():
            read = fed.conditions(csn=csn)["tpc/gain"]
            for channel in range(3):
                found = read.at(range(2 * END), "value", channel=channel).to_list()
                assert [row and row["value"] for row in found] == answers[channel], (csn, channel)
                single = [read.at(t, channel=channel) for t in range(2 * END)]
                assert [each and each.value for each in single] == answers[channel]

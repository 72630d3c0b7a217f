"""Differences between two jobs: the series, the ranges, and the events."""

from __future__ import annotations

import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femtobarn as fb
from femtobarn.cli import main


@fb.persistent
class Gain:
    value: fb.float64


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    """A series with one gain, and a global tag that names it."""
    with fed.transaction() as txn:
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0, until=100)
        txn.series("tpc/hv", Gain, create=True).put(Gain(value=math.nan), since=0)
    fed.conditions.create_tag("first", csn=fed.head())
    return fed


def test_same_conditions_do_not_differ(gains: fb.Federation) -> None:
    assert gains.conditions.diff("first", None) == []
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=1.0), since=10, until=20)
        txn.series("tpc/hv").put(Gain(value=math.nan), since=5)
    assert gains.conditions.diff("first", None) == []


def test_corrections_insertions_and_ends_differ(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        series = txn.series("tpc/gain")
        series.put(Gain(value=2.0), since=40, until=60)
        series.put(Gain(value=2.0), since=60, until=70)
        series.put(Gain(value=3.0), since=200, until=300)
        series.put(Gain(value=4.0), since=0, until=5, channel=1)
        series.end(at=90)
        txn.series("tpc/hv").correct(Gain(value=7.0), at=50)
    found = gains.conditions.diff("first", None)
    shown = [(each.series, each.channel, each.since, each.until, each.after) for each in found]
    assert shown == [
        ("tpc/gain", 0, 40, 70, {"value": 2.0}),
        ("tpc/gain", 0, 90, 100, None),
        ("tpc/gain", 0, 200, 300, {"value": 3.0}),
        ("tpc/gain", 1, 0, 5, {"value": 4.0}),
        ("tpc/hv", 0, 0, 2**63 - 1, {"value": 7.0}),
    ]
    part = gains.conditions.diff("first", None, ["tpc/gain"], since=50, until=95)
    assert [(each.since, each.until) for each in part] == [(50, 70), (90, 95)]
    assert str(part[0]).startswith("tpc/gain channel 0, 1970-01-01T00:00:00.00000005Z to ")
    times = np.array([39, 40, 69, 70, 95, 250])
    assert fb.changed(found, "tpc/gain", times).tolist() == [False, True, True, False, True, True]
    assert not fb.changed(found, "tpc/other", times).any()


def test_series_that_one_tag_lacks_differs_everywhere(gains: fb.Federation) -> None:
    gains.conditions.create_tag("gain-only", ["tpc/gain"])
    [found] = gains.conditions.diff("first", "gain-only")
    assert (found.series, found.since, found.after) == ("tpc/hv", 0, None)
    with pytest.raises(fb.InvalidError, match="neither of the two jobs has a series"):
        gains.conditions.diff("first", "gain-only", ["tpc/absent"])


def test_pickled_job_reads_the_same_in_another_process(gains: fb.Federation) -> None:
    job = gains.conditions("first")
    text = pickle.dumps(job)
    gains.conditions.change_tag("first", csn=0)
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=2.0), since=0, until=100)
    again = pickle.loads(text)
    assert again["tpc/gain"].at(5).value == 1.0
    assert again.csn == job.csn


VALIDITIES = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 3)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(VALIDITIES, VALIDITIES)
def test_differences_are_where_the_answers_differ(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[int, int, int]],
    second: list[tuple[int, int, int]],
) -> None:
    with fb.create(tmp_path_factory.mktemp("diff") / "d.fed") as fed:
        jobs = []
        for rows in (first, second):
            with fed.transaction() as txn:
                series = txn.series("tpc/gain", Gain, create=True)
                for since, length, value in rows:
                    series.put(Gain(value=value), since=since, until=since + length)
            jobs.append(fed.conditions())
        before, after = (job["tpc/gain"].at(range(40), "value").to_list() for job in jobs)
        found = fed.conditions.diff(*jobs)
        expected = [one != other for one, other in zip(before, after, strict=True)]
        assert fb.changed(found, "tpc/gain", range(40)).tolist() == expected
        for one, other in itertools.pairwise(found):
            assert one.until < other.since or (one.before, one.after) != (other.before, other.after)


def test_commands_print_differences_and_problems(
    gains: fb.Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conditions", "diff", gains.path, "first"]) == 0
    assert "no difference" in capsys.readouterr().out
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=2.0), since=40, until=60)
    assert main(["conditions", "diff", gains.path, "first", "--json", "--series", "tpc/gain"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["series"], found["channel"], found["after"]) == ("tpc/gain", 0, {"value": 2.0})
    assert main(["conditions", "diff", gains.path, "1", "first"]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["conditions", "check", gains.path]) == 0
    gains.untag(f"first@{gains.conditions.tag('first')['csn']}")
    assert main(["conditions", "check", gains.path]) == 7
    assert "no tag of the federation keeps" in capsys.readouterr().out

"""Runs of reductions after changes of every kind, which derive only what these can have changed."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Literal

import numpy as np
import pytest
from reduction_models import END, MS, NOTED, VALUE, Answers, Raw, answers, means, random_rows, same

import femtobarn as fb
from femtobarn._conditions import corrections, reduction_runs
from femtobarn._conditions.reductions import Reduction


def all_kinds(prefix: str) -> list[Reduction]:
    """A reduction of each kind of the series dcs/hv; the function has dcs/factor as well."""
    hv = fb.RawField("dcs/hv", "value")
    return [
        fb.DeadBand(to=f"off/{prefix}-band", source=hv, band=2),
        fb.Mean(to=f"off/{prefix}-mean", source=hv, every="20 ms"),
        fb.Function(
            to=f"off/{prefix}-power", inputs={"hv": hv, "factor": "dcs/factor"}, value="hv * (factor + 1)"
        ),
    ]


def put_factors(fed: fb.Federation) -> None:
    rng = random.Random(7)
    rows = [(t, channel, float(rng.randrange(3))) for channel in range(4) for t in (0, 50, 210, 330)]
    Raw(fed, "dcs/factor").put(rows)


def answers_of_all_kinds(fed: fb.Federation, prefix: str) -> list[Answers]:
    return [
        answers(fed, f"off/{prefix}-{kind}", channel, field)
        for kind, field in (("band", "value"), ("mean", "mean"), ("mean", "count"), ("power", "value"))
        for channel in range(4)
    ]


def assert_as_one_run(fed: fb.Federation, name: str) -> None:
    """Check that runs so far have derived what one run of other series derives now."""
    fed.conditions.reduce(all_kinds(name))
    found, expected = answers_of_all_kinds(fed, "all"), answers_of_all_kinds(fed, name)
    wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not same(a, b)]
    assert not wrong, (name, wrong)
    assert any(each is not None for row in expected for each in row)


def change_conditions(series: fb.SeriesWriter, rng: random.Random, step: int) -> None:
    """End, correct and delete some conditions: any, the newest one, or one that was ended."""
    for _ in range(rng.randrange(4)):
        at, channel = rng.randrange(END) * MS, rng.randrange(4)
        with contextlib.suppress(fb.NotFoundError):
            if rng.random() < 0.6:
                series.end(at=at, channel=channel)
            else:
                series.correct({"value": float(step)}, at=at, channel=channel)
    for _ in range(rng.randrange(3)):
        view = series.container.view()
        entries, rows = view.entries(), view.arrays(["since", "until"], library="np")
        ended = entries[rows["until"] < 2**62]
        newest = entries[np.argmax(rows["since"])]
        series.container.delete(
            int(rng.choice([rng.choice(entries), newest, rng.choice(ended if len(ended) else entries)]))
        )


@pytest.mark.parametrize("seed", range(6))
def test_runs_after_changes_of_every_kind_answer_as_one_run_after_all(fed: fb.Federation, seed: int) -> None:
    """They are put late, corrected, ended and deleted, in a channel all of them. Some runs follow a vacuum, a
    newer class, a series that was made again, or no change."""
    rng = random.Random(seed)
    overlap: Literal["open", "newest"] = "open" if seed % 2 else "newest"
    put_factors(fed)
    for step in range(14):
        is_newer = step >= 10
        if step == 8:
            with fed.transaction() as txn:
                txn.drop("dcs/hv")
        with fed.transaction() as txn:
            series = txn.series(
                "dcs/hv",
                NOTED if is_newer else VALUE,
                create=step in (0, 8),
                evolve=is_newer,
                overlap=overlap,
            )
            rows = random_rows(rng, 0, END - 60, 200 if step == 0 else 40 if step == 8 else 3)
            rows += [(END - 60 + rng.randrange(80), rng.randrange(3), 5.0)]
            rows += [(t, 3, float(t % 9)) for t in (0, 30, 90)] if step in (0, 8) else []
            series.extend(
                {
                    "value": [value for _, _, value in rows],
                    **({"note": [""] * len(rows)} if is_newer else {}),
                },
                since=[t * MS for t, _, _ in rows],
                until=[
                    2**63 - 1 if overlap == "open" and rng.random() < 0.7 else (t + rng.randrange(1, 40)) * MS
                    for t, _, _ in rows
                ],
                channel=[channel for _, channel, _ in rows],
            )
            if step:
                change_conditions(series, rng, step)
            if step in (3, 11):
                series.container.delete(where="channel == 3")
        if step == 6:
            fed.set_retention(keep_commits=1)
            fed.vacuum()
            fed.set_retention()
        fed.conditions.reduce(all_kinds("all"))
        if rng.random() < 0.5:
            assert [each.csn for each in fed.conditions.reduce(all_kinds("all"))] == [None] * 3
        if rng.random() < 0.5 or step == 13:
            assert_as_one_run(fed, f"once-{step}")


def test_channel_without_raw_conditions_has_no_derived_ones_either(fed: fb.Federation) -> None:
    put_factors(fed)
    raw = Raw(fed, "dcs/hv")
    raw.put([(t, channel, float(t)) for t in (0, 30, 90, 150) for channel in (0, 3)])
    fed.conditions.reduce(all_kinds("all"))
    with fed.transaction() as txn:
        txn.series("dcs/hv").container.delete(where="channel == 3")
    done = fed.conditions.reduce(all_kinds("all"))
    assert [(each.put, each.gaps) for each in done] == [(0, 1)] * 3
    job = fed.conditions()
    assert [job[each.to].channels() for each in all_kinds("all")] == [[0]] * 3


def test_deleting_an_ended_condition_shows_the_hidden_one_until_the_next(fed: fb.Federation) -> None:
    put_factors(fed)
    raw = Raw(fed, "dcs/hv")
    raw.put([(0, 0, 1.0), (180, 0, 5.0), (300, 0, 2.0)])
    raw.put([(100, 0, 9.0)], until=110)
    fed.conditions.reduce(all_kinds("all"))
    with fed.transaction() as txn:
        txn.series("dcs/hv").container.delete(3)
    fed.conditions.reduce(all_kinds("all"))
    for kind in ("band", "mean"):
        field = "value" if kind == "band" else "mean"
        assert set(answers(fed, f"off/all-{kind}", 0, field)[100:180]) == {1.0}
    assert_as_one_run(fed, "once")


def test_correction_and_late_value_read_raw_conditions_up_to_the_next_one(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(t, 0, float(t)) for t in range(END)])
    mean = fb.Mean(to="off/mean", source="dcs/hv", every="20 ms")
    fed.conditions.reduce(mean)
    with fed.transaction() as txn:
        txn.series("dcs/hv").correct({"value": 1000.0}, at=105 * MS)
    [done] = fed.conditions.reduce(mean)
    assert (done.put, done.raw) == (1, 20)
    with fed.transaction() as txn:
        txn.series("dcs/hv").put({"value": 7.0}, since=205 * MS + 1)
    [done] = fed.conditions.reduce(mean)
    assert (done.put, done.raw) == (1, 21)


def test_means_of_periods_that_are_not_finished_any_more_are_taken_back(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(0, 0, 1.0), (30, 1, 2.0), (50, 0, 3.0), (310, 0, 4.0)])
    mean = fb.Mean(to="off/mean", source="dcs/hv", every="20 ms")
    fed.conditions.reduce(mean)
    assert fed.conditions()["off/mean"].segments(channel=1)[1].max() == 300 * MS
    with fed.transaction() as txn:
        txn.series("dcs/hv").container.delete(3)
    raw.rows.pop()
    for _ in range(2):
        fed.conditions.reduce(mean)
        for channel in range(2):
            expected = means(raw, channel, 20, lambda x: sum(x) / len(x))
            assert same(answers(fed, "off/mean", channel, "mean"), expected)
    raw.put([(70, 0, 5.0)])
    fed.conditions.reduce(mean)
    assert same(answers(fed, "off/mean", 1, "mean"), means(raw, 1, 20, max))
    # Longer periods end earlier.
    fed.conditions.reduce(fb.Mean(to="off/mean", source="dcs/hv", every="50 ms"))
    assert same(answers(fed, "off/mean", 1, "max"), means(raw, 1, 50, max))
    with fed.transaction() as txn:
        txn.series("dcs/hv").container.delete(where="channel >= 0")
    fed.conditions.reduce(fb.Mean(to="off/mean", source="dcs/hv", every="50 ms"))
    assert fed.conditions()["off/mean"].channels() == []


def test_means_of_a_given_range_are_taken_back_as_well(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(0, 0, 1.0), (50, 0, 3.0), (90, 0, 3.0)])
    mean = fb.Mean(to="off/mean", source="dcs/hv", every="20 ms")
    fed.conditions.reduce(mean)
    raw.put([(310, 0, 4.0)])
    fed.conditions.reduce(mean, since=40 * MS)
    assert fed.conditions()["off/mean"].segments()[1].max() == 300 * MS
    with fed.transaction() as txn:
        txn.series("dcs/hv").container.delete(3)
    fed.conditions.reduce(mean, since=200 * MS)
    assert fed.conditions()["off/mean"].segments()[1].max() == 200 * MS
    raw.rows.pop()
    fed.conditions.reduce(mean)
    assert same(answers(fed, "off/mean", 0, "mean"), means(raw, 0, 20, lambda x: sum(x) / len(x)))


def test_series_that_was_made_again_is_derived_as_a_new_one(fed: fb.Federation) -> None:
    put_factors(fed)
    Raw(fed, "dcs/hv").put([(t, t % 2, float(t)) for t in range(0, END, 9)])
    fed.conditions.reduce(all_kinds("all"))
    with fed.transaction() as txn:
        txn.drop("dcs/hv")
    Raw(fed, "dcs/hv").put([(0, 0, 1.0), (30, 0, 2.0), (50, 0, 3.0)])
    fed.conditions.reduce(all_kinds("all"))
    assert_as_one_run(fed, "once")
    assert fed.conditions()["off/all-mean"].segments()[1].max() == 40 * MS


def test_last_version_that_is_damaged_cannot_be_compared_but_blocks_nothing(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_factors(fed)
    Raw(fed, "dcs/hv").put([(t, 0, float(t % 7)) for t in range(0, END, 5)])
    fed.conditions.reduce(all_kinds("all"))
    with fed.transaction() as txn:
        txn.series("dcs/hv").correct({"value": 100.0}, at=202 * MS)

    def damaged(*_: Any) -> None:
        raise fb.CorruptError("a page is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(reduction_runs, "corrected_ranges", damaged)
        done = fed.conditions.reduce(all_kinds("all"))
    assert [each.put > 0 for each in done] == [True] * 3
    assert_as_one_run(fed, "once")


@pytest.mark.parametrize("change", ["compact", "class", "vacuum"])
def test_unchanged_conditions_are_compared_once(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(t, 0, float(t % 7)) for t in range(0, END, 5)])
    band = fb.DeadBand(to="off/band", source=fb.RawField("dcs/hv", "value"), band=0.5)
    fed.conditions.reduce(band)
    if change == "compact":
        with fed.transaction() as txn:
            txn.series("dcs/hv").container.delete(3)
        fed.conditions.reduce(band)
        fed.compact("dcs/hv")
    elif change == "class":
        with fed.transaction() as txn:
            txn.series("dcs/hv", NOTED, evolve=True)
    else:
        raw.put([(END, 0, 3.0)])
        fed.set_retention(keep_commits=1)
        fed.vacuum()
    [done] = fed.conditions.reduce(band)
    assert done.csn is not None
    with monkeypatch.context() as patch:
        patch.setattr(reduction_runs, "corrected_ranges", None)
        [done] = fed.conditions.reduce(band)
    assert (done.csn, done.raw) == (None, 0)


def test_corrections_near_each_other_are_read_at_once(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = Raw(fed, "dcs/hv")
    for t in range(0, END, 20):
        raw.put([(t, 0, 1.0)])
    mean = fb.Mean(to="off/mean", source="dcs/hv", every="20 ms")
    fed.conditions.reduce(mean)
    with fed.transaction() as txn:
        for t in (60, 200, 320):
            txn.series("dcs/hv").correct({"value": 2.0}, at=t * MS)
    read = []

    class Conditions(corrections._Conditions):
        def __init__(self, view: fb.View, field: str, start: int, stop: int) -> None:
            read.append((start, stop))
            super().__init__(view, field, start, stop)

    monkeypatch.setattr(corrections, "_Conditions", Conditions)
    [done] = fed.conditions.reduce(mean)
    assert (done.put, read) == (3, [(3, 17)] * 2)

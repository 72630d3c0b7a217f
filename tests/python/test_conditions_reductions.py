"""Reductions of raw series to offline ones, compared with plain models moment by moment."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from reduction_models import (
    END,
    MS,
    STATE,
    VALUE,
    Answers,
    Found,
    Raw,
    answers,
    dead_band,
    means,
    random_rows,
    same,
)

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main


def power_at(hv: Found, current: Found, state: Found) -> float | None:
    """The model of a function of three series, under a condition."""
    if hv is None or current is None or state is None or not (state[1] == 1 or hv[1] > 10):
        return None
    return float(hv[1] * current[1] + 1)


# ---- against the models


@pytest.mark.parametrize("seed", range(4))
def test_runs_after_late_values_and_gaps_answer_as_the_models(fed: fb.Federation, seed: int) -> None:
    rng = random.Random(seed)
    raw = Raw(fed, "dcs/hv")
    reductions = [
        fb.DeadBand(to="off/band", source="dcs/hv", band=2.0),
        fb.Mean(to="off/mean", source="dcs/hv", every="20 ms"),
    ]
    expected: dict[int, list[Answers]] = {}
    for step in range(5):
        raw.put(random_rows(rng, step * 80, step * 80 + 80, 25))
        if step == 2:
            raw.put([(150, 1, 3.0), (165, 0, 1.0)], until=170)
        if step == 3:
            raw.put(random_rows(rng, 0, 240, 5))
        done = fed.conditions.reduce(reductions)
        assert all(each.put for each in done)
        model = [
            *(dead_band(raw, channel, 2.0) for channel in range(3)),
            *(means(raw, channel, 20, lambda x: sum(x) / len(x)) for channel in range(3)),
            *(means(raw, channel, 20, max) for channel in range(3)),
            *(means(raw, channel, 20, lambda x: float(np.std(x))) for channel in range(3)),
        ]
        expected[fed.head()] = model
    for csn, model in expected.items():
        found = [
            *(answers(fed, "off/band", channel, "value", csn) for channel in range(3)),
            *(answers(fed, "off/mean", channel, "mean", csn) for channel in range(3)),
            *(answers(fed, "off/mean", channel, "max", csn) for channel in range(3)),
            *(answers(fed, "off/mean", channel, "rms", csn) for channel in range(3)),
        ]
        assert all(map(same, found, model)), [
            i for i, (a, b) in enumerate(zip(found, model, strict=True)) if not same(a, b)
        ]
    head = fed.head()
    assert [(each.put, each.gaps, each.csn) for each in fed.conditions.reduce(reductions)] == [
        (0, 0, None)
    ] * 2
    assert [each.put for each in fed.conditions.reduce(reductions, since=0)] == [0, 0]
    assert fed.head() == head


@pytest.mark.parametrize("seed", range(3))
def test_function_of_series_under_a_condition_answers_as_the_model(fed: fb.Federation, seed: int) -> None:
    rng = random.Random(seed)
    hv, current, state = Raw(fed, "dcs/hv"), Raw(fed, "dcs/current"), Raw(fed, "dcs/state", STATE)
    power = fb.Function(
        to="off/power",
        inputs={"hv": "dcs/hv", "current": "dcs/current", "state": {"series": "dcs/state", "channel": 9}},
        value="hv * current + 1",
        where="state == 1 or hv > 10",
    )
    expected: dict[int, list[Answers]] = {}
    for step in range(4):
        hv.put(random_rows(rng, 0, 100 + 100 * step, 20))
        current.put(random_rows(rng, step * 100, step * 100 + 100, 20))
        state.put([(rng.randrange(END), 9, rng.randrange(3)) for _ in range(3)])
        [done] = fed.conditions.reduce(power)
        assert done.csn == fed.head()
        expected[fed.head()] = [
            [power_at(hv.at(channel, t), current.at(channel, t), state.at(9, t)) for t in range(END + 50)]
            for channel in range(3)
        ]
    for csn, model in expected.items():
        for channel in range(3):
            assert same(answers(fed, "off/power", channel, "value", csn), model[channel]), (csn, channel)
    job = fed.conditions()
    for condition in list(job["off/power"])[-20:]:
        volts = job["dcs/hv"].view.object_at(int(condition.hv_entry))
        amperes = job["dcs/current"].view.object_at(int(condition.current_entry))
        assert condition.value == volts.value * amperes.value + 1
        assert volts.channel == amperes.channel == condition.channel


def test_correction_derives_only_changed_conditions_again(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(t, 0, float(t // 10 % 7)) for t in range(0, END, 5)])
    reductions = [
        fb.DeadBand(to="off/band", source="dcs/hv", band=0.5),
        fb.Mean(to="off/mean", source="dcs/hv", every="20 ms"),
    ]
    fed.conditions.reduce(reductions)
    before = fed.head()
    old = [answers(fed, "off/band", 0, "value"), answers(fed, "off/mean", 0, "mean")]
    with fed.transaction(message="a wrong reading") as txn:
        txn.series("dcs/hv").correct({"value": 100.0}, at=202 * MS)
    raw.rows[40][2] = 100.0
    done = fed.conditions.reduce(reductions)
    # The second half of what was one condition of the dead band stays as it is.
    assert [each.put for each in done] == [1, 1]
    assert same(answers(fed, "off/band", 0, "value"), dead_band(raw, 0, 0.5))
    assert same(answers(fed, "off/mean", 0, "mean"), means(raw, 0, 20, lambda x: sum(x) / len(x)))
    assert answers(fed, "off/band", 0, "value", before) == old[0]
    assert answers(fed, "off/mean", 0, "mean", before) == old[1]
    newest = list(fed.conditions()["off/mean"])[-1]
    assert (newest.raw_csn, newest.raw_first, newest.raw_last) == (fed.head() - 1, 40, 43)
    assert fed.conditions(csn=newest.raw_csn)["dcs/hv"].view[newest.raw_first].value == 100.0
    assert [each.csn for each in fed.conditions.reduce(reductions)] == [None, None]
    done = fed.conditions.reduce(reductions, since=200 * MS, until=205 * MS)
    assert [(each.csn, each.raw > 0) for each in done] == [(None, True)] * 2
    assert fed.check(full=True).problems == []


def test_reduction_with_other_parameters_derives_all_ranges_again(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(t, 0, float(t % 7)) for t in range(0, END, 3)])
    for band in (10.0, 3.5, 0.5, 10.0):
        fed.conditions.reduce(fb.DeadBand(to="off/band", source="dcs/hv", band=band))
        assert same(answers(fed, "off/band", 0, "value"), dead_band(raw, 0, band))
    runs = [(run.raw_csn, list(run.raw_entries)) for run in fed["off/band-runs"]]
    assert [entries for _, entries in runs] == [[len(raw.rows)]] * 4


def test_nan_is_left_out_of_means_and_kept_by_dead_bands(fed: fb.Federation) -> None:
    raw = Raw(fed, "dcs/hv")
    raw.put([(0, 0, 1.0), (10, 0, math.nan), (15, 0, math.nan), (20, 0, 3.0), (40, 0, 0.0)])
    fed.conditions.reduce(
        [
            fb.DeadBand(to="off/band", source="dcs/hv", band=5.0),
            fb.Mean(to="off/mean", source="dcs/hv", every="40 ms"),
        ]
    )
    assert [i.since // MS for i in fed.conditions()["off/band"].intervals()] == [0, 10, 20]
    found = fed.conditions()["off/mean"].at(0)
    assert found.mean == pytest.approx((10 * 1 + 20 * 3) / 30)
    assert (found.count, found.min, found.max, found.raw_first, found.raw_last) == (2, 1.0, 3.0, 0, 3)


def test_runs_are_a_clock_of_dead_bands_and_only_some_channels_are_derived(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        raw = txn.series("beam/spot", VALUE, create=True, clock="run")
        raw.extend({"value": [1.0, 1.1, 2.0, 5.0]}, since=([7, 8, 9, 9], [0, 0, 0, 0]), channel=[0, 0, 0, 1])
    fed.conditions.reduce(fb.DeadBand(to="off/spot", source="beam/spot", band=0.5, channels=[0, 5]))
    spot = fed.conditions()["off/spot"]
    assert spot.channels() == [0]
    assert [spot.shown(each.since) for each in spot.intervals()] == ["7:0", "9:0"]
    with pytest.raises(fb.InvalidError, match="is block 8 of run 0"):
        fed.conditions.reduce(fb.DeadBand(to="off/spot", source="beam/spot", band=0.5), since=8)


@pytest.mark.parametrize(
    ("reduction", "text"),
    [
        (fb.Mean(to="off/x", source="dcs/hv", every="20 years"), "is not a length of time"),
        (fb.DeadBand(to="off/x", source=fb.RawField("dcs/hv", "volts"), band=1), "no field 'volts'"),
        (fb.DeadBand(to="off/x", source="dcs/note", band=1), "a reduction takes numbers"),
        (
            fb.Function(to="off/x", inputs={"hv": "dcs/hv"}, value="hv *"),
            "value 'hv \\*' is not an expression",
        ),
        (
            fb.Function(to="off/x", inputs={"hv": "dcs/hv"}, value="__import__('os')"),
            "off/x: value .*function",
        ),
        (fb.Function(to="off/x", inputs={"hv": "dcs/hv"}, value="hw + 1"), "hw"),
        (fb.Function(to="off/x", inputs={"hv": "dcs/hv"}, value="hv", where="hv + 1"), "gives numbers"),
    ],
)
def test_reduction_that_cannot_be_made_leaves_nothing(
    fed: fb.Federation, reduction: fb.DeadBand | fb.Mean | fb.Function, text: str
) -> None:
    Raw(fed, "dcs/hv").put([(0, 0, 1.0), (5, 0, 2.0)])
    form = {"name": "Note", "fields": [{"name": "text", "type": "string"}]}
    Raw(fed, "dcs/note", form).put([(0, 0, "a")])
    head = fed.head()
    with pytest.raises(fb.InvalidError, match=text):
        fed.conditions.reduce(reduction)
    assert fed.head() == head


# ---- from the shell

REDUCTIONS = """
[[reduction]]
kind = "dead-band"
from = "dcs/hv"
to = "off/band"
band = 0.5

[[reduction]]
kind = "mean"
from = "dcs/hv"
field = "value"
to = "off/mean"
every = "20 ms"

[[reduction]]
kind = "function"
to = "off/power"
inputs = { hv = "off/band", state = { series = "dcs/state", field = "code", channel = 0 } }
value = "2 * hv"
where = "state == 1"
"""


def test_file_of_reductions_is_run(
    fed: fb.Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Raw(fed, "dcs/hv").put([(0, 3, 1.0), (25, 3, 1.25), (45, 3, 2.0)])
    Raw(fed, "dcs/state", STATE).put([(0, 0, 0), (30, 0, 1)])
    file = tmp_path / "reductions.toml"
    file.write_text(REDUCTIONS)
    assert main(["conditions", "reduce", fed.path, str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["off/band", "3", "2", "0"], ["off/mean", "2", "2", "0"], ["off/power", "4", "2", "0"],
    ]  # fmt: skip
    power = fed.conditions()["off/power"]
    assert [getattr(power.at(t * MS, channel=3), "value", None) for t in (29, 30, 44, 45)] == [None, 2, 2, 4]
    assert main(["conditions", "reduce", fed.path, str(file), "--since", "0", "--json"]) == 0
    assert '"csn": null' in capsys.readouterr().out
    for text, reason in (
        ("", "there are no reductions"),
        (
            "[[reduction]]\nkind = 'median'",
            "reduction 1 has kind 'median'; there are dead-band, mean, function",
        ),
        ("[[reduction]]\nkind = 'mean'\nto = 'off/x'", "reduction 1, off/x: missing 2 required"),
        ("[[reduction", "cannot be read"),
    ):
        file.write_text(text)
        assert main(["conditions", "reduce", fed.path, str(file)]) == EXIT_CODES["invalid"]
        assert reason in capsys.readouterr().err

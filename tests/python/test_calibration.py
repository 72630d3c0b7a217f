"""Calibration of the demo: constants undo what the detector did, and digests see every change."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("pythia8mc", reason="the extra `demo` is not installed")
pytest.importorskip("fastjet", reason="the extra `demo` is not installed")

import femtobarn as fb
from femtobarn_demo.calibration import FINAL, PROMPT, put_nominal, timelines, typical_errors
from femtobarn_demo.calibration.constants import put_final
from femtobarn_demo.calibration.gains import REFERENCE
from femtobarn_demo.reconstruction import Constants
from femtobarn_demo.reprocessing import digest
from femtobarn_demo.sources import START, EventPool
from femtobarn_demo.sources.detector.state import HOUR, true_gains, true_shifts

EVENTS, HOURS = 20, 12


@pytest.fixture(scope="module")
def pool() -> EventPool:
    return EventPool.generate(events=EVENTS, seed=5)


def true_constants(hours: np.ndarray) -> Constants:
    constants = Constants.perfect(len(hours))
    constants.gains[:] = true_gains(hours)
    constants.shifts[:, :-1] = true_shifts(hours)
    return constants


def test_true_constants_undo_the_distortions_of_the_detector(pool: EventPool) -> None:
    (batch,) = pool.batches(run=1, events=EVENTS, size=EVENTS, period=HOURS * HOUR // EVENTS)
    measured = batch.as_measured()
    cells, strips = batch.parts["EcalCells"], batch.parts["StripHits"]
    assert np.abs(measured.parts["EcalCells"]["energy"] / cells["energy"] - 1.0).max() > 0.1
    assert np.abs(measured.parts["StripHits"]["x"] - strips["x"]).max() > 5e-5
    constants = true_constants((batch.times.astype(np.int64) - START) / HOUR)
    energy = constants.correct_energy(measured.parts["EcalCells"])["energy"]
    np.testing.assert_allclose(energy, cells["energy"], rtol=1e-6)
    moved_back = constants.correct_position(measured.parts["StripHits"])
    for name in ("x", "y"):
        np.testing.assert_allclose(moved_back[name], strips[name], atol=2e-7)


def test_times_of_events_are_spread_over_the_run(pool: EventPool) -> None:
    batches = list(pool.batches(run=1, events=EVENTS, size=7, period=HOURS * HOUR // EVENTS))
    times = np.concatenate([batch.times for batch in batches]).astype(np.int64)
    assert (np.diff(times) > 0).all()
    assert times[0] == START
    assert times[-1] - START == pytest.approx(HOURS * HOUR * (EVENTS - 1) / EVENTS, rel=1e-6)


def test_reference_is_the_median_of_another_perfect_sample(pool: EventPool) -> None:
    assert np.median(pool.events.parts["EcalCells"]["energy"]) == pytest.approx(REFERENCE, rel=0.03)


def test_final_constants_hide_the_nominal_ones_in_their_intervals(tmp_path: Path) -> None:
    fed = fb.create(tmp_path / "x.fed")
    put_nominal(fed, START)
    edges = START + np.linspace(0, HOURS * HOUR, HOURS + 1).astype(np.int64)
    middles = np.arange(HOURS) + 0.5
    put_final(fed, edges, true_gains(middles), true_shifts(middles))
    gain, shift = timelines(fed, HOURS)
    assert gain.prompt == [(0.0, 12.0, 1.0)]
    assert shift.prompt == [(0.0, 12.0, 0.0)]
    assert [bar[:2] for bar in gain.final] == [(hour, hour + 1.0) for hour in range(HOURS)]
    nominal, final = (typical_errors(fed.conditions(tag), HOURS) for tag in (PROMPT, FINAL))
    assert final[0] < 0.2 * nominal[0]
    assert final[1] < 0.2 * nominal[1]


def test_digest_sees_names_types_lengths_and_values() -> None:
    array = ak.Array([{"a": [1.0, 2.0], "b": 3}, {"a": [], "b": 4}])
    others = [
        ak.Array([{"c": [1.0, 2.0], "b": 3}, {"c": [], "b": 4}]),
        ak.Array([{"a": [1.0, 2.0], "b": 3.0}, {"a": [], "b": 4.0}]),
        ak.Array([{"a": [1.0], "b": 3}, {"a": [2.0], "b": 4}]),
        ak.Array([{"a": [1.0, np.nextafter(2.0, 3.0)], "b": 3}, {"a": [], "b": 4}]),
    ]
    assert digest([array]) == digest([ak.Array(array.to_list())])
    assert digest([array]) == digest([ak.concatenate([array, array])[2:]])
    assert digest([array]) not in {digest([other]) for other in others}

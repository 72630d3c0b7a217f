"""Events joined with their conditions, and run tables."""

from __future__ import annotations

import numpy as np
import pytest

import femtobarn as fb


@fb.persistent
class Event:
    time: fb.int64
    run: fb.uint32
    block: fb.uint32
    adc: fb.float64


@fb.persistent
class Gain:
    value: fb.float64


@fb.persistent
class Block:
    run: fb.uint32
    block: fb.uint32


N = 1000
BLOCK = 100
"""Length of a luminosity block in nanoseconds."""


@pytest.fixture
def taken(fed: fb.Federation) -> fb.Federation:
    """A thousand events of run 7 in no order of time, ten in each luminosity block; gains and a run table."""
    order = np.random.default_rng(5).permutation(N)
    blocks = np.arange(N // 10)
    with fed.transaction() as txn:
        events = txn.database("run7", create=True).container("events", Event, create=True)
        fields = {"time": order * 10, "run": np.full(N, 7), "block": order // 10, "adc": np.ones(N)}
        events.extend(fields)
        gains = txn.series("tpc/gain", Gain, create=True)
        gains.extend(
            {"value": blocks[:90] * 1.0}, since=blocks[:90] * BLOCK, until=blocks[:90] * BLOCK + BLOCK
        )
        spots = txn.series("beam/spot", Gain, create=True, clock="run")
        spots.put(Gain(value=0.5), since=(7, 0), until=(7, 50))
        table = txn.series("daq/blocks", Block, create=True)
        table.extend(
            {"run": np.full(100, 7), "block": blocks}, since=blocks * BLOCK, until=blocks * BLOCK + BLOCK
        )
    return fed


@pytest.mark.parametrize("step", [37, "64 MB"])
def test_events_have_the_conditions_of_their_moments(taken: fb.Federation, step: int | str) -> None:
    job = taken.conditions()
    events = job.snapshot["run7/events"]
    seen = 0
    for batch in job.for_events(events, ["tpc/gain"], ["adc"], moments="time", step_size=step):
        assert batch.fields == ["adc", "tpc_gain"]
        expected = events["time"][seen : seen + len(batch)].to_numpy() // BLOCK
        found = batch.tpc_gain.value.to_list()
        assert found == [block if block < 90 else None for block in expected]
        seen += len(batch)
    assert seen == N


def test_events_are_joined_by_run_and_block_and_by_a_function(taken: fb.Federation) -> None:
    job = taken.conditions()
    events = job.snapshot["run7/events"]
    [batch] = job.for_events(events, {"beam/spot": "spot"}, moments=("run", "block"))
    assert batch.fields == ["time", "run", "block", "adc", "spot"]
    assert [bool(spot) for spot in batch.spot.to_list()] == (batch.block < 50).to_list()
    [again] = job.for_events(
        events, ["beam/spot"], moments=lambda batch: batch.run.to_numpy().astype(np.int64) << 32 | batch.block
    )
    assert again.beam_spot.to_list() == batch.spot.to_list()


def test_selection_and_gaps_of_joined_events(taken: fb.Federation) -> None:
    job = taken.conditions()
    events = job.snapshot["run7/events"]
    [batch] = job.for_events(events, ["tpc/gain"], where="block < 3", moments="time", required=True)
    assert len(batch) == 30
    with pytest.raises(fb.NotFoundError, match="tpc/gain has no condition at"):
        list(job.for_events(events, ["tpc/gain"], moments="time", required=True))
    with pytest.raises(fb.InvalidError, match="two fields would be called adc"):
        list(job.for_events(events, {"tpc/gain": "adc"}, moments="time"))
    with pytest.raises(fb.NotFoundError, match="gone"):
        list(job.for_events(events, ["tpc/gone"], moments="time"))


def test_run_table_converts_times_and_runs_both_ways(taken: fb.Federation) -> None:
    table = fb.RunTable(taken.conditions()["daq/blocks"])
    times = np.array([0, 99, 100, 9999])
    runs = table.runs_at(times)
    assert [(run >> 32, run & 0xFFFFFFFF) for run in runs.tolist()] == [(7, 0), (7, 0), (7, 1), (7, 99)]
    assert table.times_of(runs).tolist() == [0, 0, 100, 9900]
    for wrong in (-1, 10_000):
        with pytest.raises(fb.NotFoundError, match="no luminosity block was taken at"):
            table.runs_at([wrong])
    with pytest.raises(fb.NotFoundError, match="does not have run and luminosity block 8:1"):
        table.times_of([(8, 1)])


def test_series_that_is_no_run_table_is_refused(taken: fb.Federation) -> None:
    with pytest.raises(fb.InvalidError, match="tpc/gain is not a run table"):
        fb.RunTable(taken.conditions()["tpc/gain"])
    with taken.transaction() as txn:
        txn.series("daq/blocks").put(Block(run=7, block=3), since=20_000, until=20_100)
    with pytest.raises(fb.InvalidError, match="has block 7:3 twice"):
        fb.RunTable(taken.conditions()["daq/blocks"])

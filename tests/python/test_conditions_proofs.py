"""Proofs of what jobs have read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb


@fb.persistent
class Gain:
    value: fb.float64


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    """A federation with two series and a global tag, which a later commit does not change."""
    with fed.transaction() as txn:
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0, until=100)
        txn.series("tpc/hv", Gain, create=True).put(Gain(value=5.0), since=0)
    fed.conditions.create_tag("prod")
    return fed


def proof_of(fed: fb.Federation) -> dict[str, Any]:
    """Return the proof of a job that read one series of the tag, as it comes back from a file."""
    job = fed.conditions("prod")
    assert job["tpc/gain"].at(50).value == 1.0
    proof: dict[str, Any] = json.loads(json.dumps(job.proof()))
    return proof


def test_a_proof_gives_the_same_job_again(gains: fb.Federation) -> None:
    proof = proof_of(gains)
    assert list(proof["series"]) == ["tpc/gain"]
    with gains.transaction() as txn:
        txn.series("tpc/gain").put(Gain(value=9.0), since=40, until=60)
    assert gains.conditions("prod")["tpc/gain"].at(50).value == 9.0
    again = gains.conditions.reopen(proof)
    assert again["tpc/gain"].at(50).value == 1.0
    assert again.proof() == proof


def test_a_proof_has_exactly_the_series_that_were_read(gains: fb.Federation) -> None:
    job = gains.conditions("prod")
    assert job.proof()["series"] == {}
    job["tpc/hv"].at(3)
    job["tpc/gain"].at(3)
    assert list(job.proof()["series"]) == ["tpc/gain", "tpc/hv"]
    assert job.proof() != gains.conditions().proof()


def test_any_change_of_a_proof_is_found(gains: fb.Federation) -> None:
    proof = proof_of(gains)

    def changed(values: Any) -> list[Any]:
        """Return copies of a value, each with one part that differs."""
        if isinstance(values, dict):
            found = [{**values, name: each} for name, value in values.items() for each in changed(value)]
            return [*found, *({k: v for k, v in values.items() if k != name} for name in values)]
        if isinstance(values, list):
            return [
                [*values[:n], each, *values[n + 1 :]]
                for n, value in enumerate(values)
                for each in changed(value)
            ]
        return [values + 1 if isinstance(values, int) else f"{values}x"]

    wrong = changed(proof)
    assert len(wrong) > 15
    for each in wrong:
        with pytest.raises((fb.CorruptError, fb.UnsupportedError)):
            gains.conditions.reopen(each)
    gains.conditions.reopen(copy.deepcopy(proof))


def test_a_proof_of_another_federation_is_refused(gains: fb.Federation, tmp_path: Path) -> None:
    with fb.create(tmp_path / "sps.fed") as other, pytest.raises(fb.InvalidError, match="federation 'lhc'"):
        other.conditions.reopen(proof_of(gains))


def test_another_history_is_refused(gains: fb.Federation, tmp_path: Path) -> None:
    """A copy that went on by itself has the same commit numbers, but other conditions."""
    gains.backup(tmp_path / "copy")
    with fb.restore(tmp_path / "copy", tmp_path / "fork.fed") as fork:
        assert fork.conditions.reopen(proof_of(gains))["tpc/gain"].at(50).value == 1.0
        for federation, value in ((gains, 2.0), (fork, 3.0)):
            with federation.transaction() as txn:
                txn.series("tpc/gain").put(Gain(value=value), since=40, until=60)
        job = gains.conditions("prod")
        job["tpc/gain"].at(50)
        with pytest.raises(fb.NotFoundError, match="differs from the proof"):
            fork.conditions.reopen(job.proof())


def test_reopening_a_vacuumed_snapshot_fails(gains: fb.Federation) -> None:
    proof = proof_of(gains)
    for value in range(3):
        with gains.transaction() as txn:
            txn.series("tpc/gain").put(Gain(value=value), since=0)
    gains.set_retention(keep_commits=1)
    gains.vacuum()
    with pytest.raises(fb.NotFoundError):
        gains.conditions.reopen(proof)

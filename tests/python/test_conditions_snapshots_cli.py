"""The commands that write snapshot files and job files and verify them: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Gain:
    value: fb.float64


@fb.persistent
class Event:
    time: fb.int64
    run: fb.uint32
    block: fb.uint32


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A federation with a series on each clock, events, and a frozen tag."""
    with fb.create(tmp_path / "lhc.fed") as fed:
        with fed.transaction() as txn:
            gains = txn.series("tpc/gain", Gain, create=True)
            gains.put(Gain(value=1.5), since="2026-01-01T00:00:00Z")
            gains.put(Gain(value=1.6), since="2026-03-01T00:00:00Z", until="2026-04-01T00:00:00Z")
            spots = txn.series("beam/spot", Gain, create=True, clock="run")
            spots.extend({"value": [0.5, 0.6]}, since=[7 << 32, 8 << 32], until=[8 << 32, 9 << 32])
            events = txn.database("run7", create=True).container("events", Event, create=True)
            events.append(Event(time=1_773_000_000_000_000_000, run=7, block=3))
        fed.conditions.create_tag("prod-2026", state="frozen")
    return str(tmp_path / "lhc.fed")


def facts_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON that a command prints."""
    assert main(["conditions", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def error_of(capsys: pytest.CaptureFixture[str], kind: str, *arguments: str) -> str:
    """The text of the error that a command ends with."""
    assert main(["conditions", *arguments]) == EXIT_CODES[kind]
    return capsys.readouterr().err


def test_snapshot_is_written_and_verified(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "prod.root")
    ranges = ["--since", "2026-03-10T00:00:00Z", "--until", "2026-05-01T00:00:00Z", "--since-run", "7:2"]
    facts = facts_of(capsys, "snapshot", location, out, "--tag", "prod-2026", *ranges)
    assert (facts["kind"], facts["global_tag"], facts["global_tag_state"]) == (
        "snapshot",
        "prod-2026",
        "frozen",
    )
    assert [(each["path"], each["conditions"], each["covered_ranges"]) for each in facts["series"]] == [
        ("beam/spot", 2, 1), ("tpc/gain", 2, 1),
    ]  # fmt: skip
    assert (facts["since"], facts["until_run"]) == ("2026-03-10T00:00:00Z", "forever")
    assert facts_of(capsys, "verify", out) == facts
    with fb.open_conditions(out) as file:
        assert file.sha256 == facts["sha256"]
        assert file["beam/spot"].at((7, 2)).value == 0.5
        with pytest.raises(fb.InvalidError):
            file["beam/spot"].at((7, 1))
    assert main(["conditions", "verify", out]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"verified {out}, ")
    assert "global tag prod-2026 (frozen)" in text
    assert f"root hash {facts['sha256']}" in text


def test_job_file_has_the_conditions_that_the_events_need(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "job.root")
    moments = ["--events", "run7/events", "--moments", "time", "--run-moments", "run,block"]
    facts = facts_of(capsys, "job-file", location, out, *moments)
    assert [(each["path"], each["conditions"]) for each in facts["series"]] == [
        ("beam/spot", 1),
        ("tpc/gain", 1),
    ]
    one = str(tmp_path / "one.root")
    facts = facts_of(capsys, "job-file", location, one, "tpc/gain", *moments[:4])
    assert [each["path"] for each in facts["series"]] == ["tpc/gain"]
    with fb.open_conditions(one) as file:
        assert file["tpc/gain"].at("2026-03-15T00:00:00Z").value == 1.6


def test_wrong_commands_name_the_mistake(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.root")
    events = ["--events", "run7/events"]
    assert "tpc/gain is on the clock time" in error_of(
        capsys, "invalid", "job-file", location, out, "tpc/gain", *events, "--run-moments", "run,block"
    )
    assert "RUN,BLOCK" in error_of(
        capsys, "invalid", "job-file", location, out, *events, "--run-moments", "run"
    )
    assert "RUN:BLOCK" in error_of(capsys, "invalid", "snapshot", location, out, "--since-run", "2026-01-01")
    assert "absent" in error_of(capsys, "not-found", "snapshot", location, out, "--tag", "absent")
    assert "does not exist" in error_of(capsys, "not-found", "verify", out)
    assert not Path(out).exists()
    facts_of(capsys, "snapshot", location, out)
    assert "exists; remove it" in error_of(capsys, "exists", "snapshot", location, out)
    content = Path(out).read_bytes()
    Path(out).write_bytes(content[: len(content) // 2])
    assert "out.root" in error_of(capsys, "corrupt", "verify", out)

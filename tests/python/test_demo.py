"""The demo, small: every step runs, the numbers agree, and the report is written."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pythia8mc", reason="the extra `demo` is not installed")
pytest.importorskip("fastjet", reason="the extra `demo` is not installed")
pytest.importorskip("uproot", reason="the extra `io` is not installed")

import femtobarn as fb
from femtobarn.importers import Samples
from femtobarn_demo.__main__ import main
from femtobarn_demo.acquisition import Block, reconstruct_block
from femtobarn_demo.calibration import FINAL, PROMPT, typical_errors
from femtobarn_demo.object_store import s3_server
from femtobarn_demo.reprocessing import repeat_block
from femtobarn_demo.steps import RUN_HOURS
from femtobarn_demo.workers import run_workers

EVENTS, POOL, RUNS = 24, 6, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Path:
    """A small demo that has been run."""
    try:
        Samples(project / ".cache" / "samples").fetch(progress=False)
    except fb.StorageError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("demo")
    size = ["--events", str(EVENTS), "--pool", str(POOL), "--runs", str(RUNS), "--clients", "1"]
    places = ["--folder", str(folder / "demo"), "--cache", str(project / ".cache")]
    assert main([*size, *places]) == 0
    return folder / "demo"


def test_federation_has_all_events_with_all_parts(folder: Path) -> None:
    snapshot = fb.open(folder / "events.fed").snapshot()
    for run in range(1, RUNS + 1):
        for container in ("raw_events", "pixel_hits", "trigger_towers"):
            events = snapshot[f"run{run}/{container}"].arrays(["run", "event"])
            assert events.event.to_list() == list(range((run - 1) * EVENTS // RUNS, run * EVENTS // RUNS))
            assert set(events.run.to_list()) == {run}
        for container in ("tracks", "clusters", "jets", "tags"):
            assert len(snapshot[f"run{run}-prompt/{container}"]) == EVENTS // RUNS


def test_links_lead_from_a_tag_to_raw_points_in_another_file(folder: Path) -> None:
    snapshot = fb.open(folder / "events.fed").snapshot()
    tag: Any = snapshot["run2-prompt/tags"][3]
    assert (tag.raw.run, tag.raw.event) == (tag.run, tag.event)
    track = max(tag.tracks.tracks, key=lambda track: track.pt)
    assert track.pt == pytest.approx(tag.lead_track_pt)
    points = tag.raw.pixels.hits
    assert len({points[index].particle for index in track.pixels}) == 1


def test_only_the_sealed_database_is_sealed(folder: Path) -> None:
    fed = fb.open(folder / "events.fed")
    states = {entry["name"]: entry["state"] for entry in fed.databases()}
    assert states["run1"] == "sealed"
    assert states["run2"] == "open"


def test_a_database_came_back_from_an_object_store(folder: Path) -> None:
    fed = fb.open(folder / "events.fed", stage=False)
    (residence,) = fed.where("run1")
    assert residence.state == "both"
    (copy,) = residence.copies
    (stored,) = (folder / "objects/lhc").rglob("*.root")
    assert stored.stat().st_size == copy.size == Path(residence.path).stat().st_size
    text = (folder / "report.html").read_text(encoding="utf-8")
    states = re.findall(r"<th>([a-z ]+)</th><td>(online|both|nearline)</td>", text)
    assert states == [
        ("sealed", "online"),
        ("copied to the object store", "both"),
        ("removed from the disk", "nearline"),
        ("read by a selection of tags", "both"),
    ]
    assert copy.key in text


def test_without_rclone_the_demo_fails_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert main(["--folder", str(tmp_path / "demo")]) == 1
    assert f"{tmp_path / 'rclone'} does not exist: pip install" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_an_object_store_that_does_not_start_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path / "objects") as url:
        port = int(url.rpartition(":")[2])
        with closing(socket.create_connection(("127.0.0.1", port), 5)):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    (tmp_path / "rclone").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    (tmp_path / "rclone").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(fb.UnavailableError, match="no room"), s3_server(tmp_path / "objects"):
        pass


def test_measured_constants_are_closer_to_the_truth_than_nominal_ones(folder: Path) -> None:
    fed = fb.open(folder / "events.fed")
    (gain, shift), (final_gain, final_shift) = (
        typical_errors(fed.conditions(tag), RUN_HOURS) for tag in (PROMPT, FINAL)
    )
    assert final_gain < 0.8 * gain
    assert final_shift < 0.6 * shift


def test_first_pass_is_reproduced_under_its_tag_only(folder: Path) -> None:
    fed = fb.open(folder / "events.fed")
    snapshot, block = fed.snapshot(), Block(2, 0, EVENTS // RUNS)
    stored, again = repeat_block(
        reconstruct_block(snapshot, fed.conditions(PROMPT), block), snapshot, block, PROMPT
    )
    assert stored == again
    stored, other = repeat_block(
        reconstruct_block(snapshot, fed.conditions(FINAL), block), snapshot, block, PROMPT
    )
    assert stored == again != other


def test_both_global_tags_are_frozen(folder: Path) -> None:
    fed = fb.open(folder / "events.fed")
    with pytest.raises(fb.DeniedError):
        fed.conditions.change_tag(PROMPT, csn=fed.head())
    assert {tag["name"]: tag["state"] for tag in fed.conditions.tags()} == {PROMPT: "frozen", FINAL: "frozen"}


def test_report_has_the_numbers_of_the_run(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert re.search(rf"write raw events</th><td>{RUNS}</td><td>{EVENTS}</td><td>{7 * EVENTS}</td>", text)
    assert text.count("<figure") == text.count("data:image/")
    assert "uproot reads the same 12 events" in text
    assert "the same bytes as before" in text


def prepare_failure(reason: str) -> Callable[[Callable[[int], None]], None]:
    """A worker that gets ready and then fails."""

    def work(_report_progress: Callable[[int], None]) -> None:
        raise ValueError(reason)

    return work


def test_run_workers_raises_the_traceback_of_a_failed_worker() -> None:
    with pytest.raises(RuntimeError, match="ValueError: the disk is full"):
        run_workers(prepare_failure, [("the disk is full",)], total=1, label="failing", progress=False)

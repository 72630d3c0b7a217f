"""Snapshot files of conditions as files: other readers, hashes, damage, and refusals."""

from __future__ import annotations

import gc
import hashlib
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uproot
from condition_samples import PATHS, RUNS, Event, Gain, Pointer, answers, fill, mixed, moments

import femtobarn as fb
from femtobarn._data.content_hash import ContentHash


@pytest.fixture
def full(fed: fb.Federation) -> fb.Federation:
    """A federation with conditions and events."""
    fill(fed)
    return fed


# ---- other readers


ROOT_SCRIPT = """
import json, sys, ROOT
reader = ROOT.RNTupleReader.Open(sys.argv[2], sys.argv[1])
frame = ROOT.RDataFrame(sys.argv[2], sys.argv[1])
columns = ["since", "until", "channel", "value"]
print(json.dumps([reader.GetNEntries(), {name: [float(x) for x in frame.Take[kind](name)]
    for name, kind in zip(columns, ["Long64_t"] * 3 + ["double"])}]))
"""


@pytest.mark.judge
def test_root_and_uproot_read_the_columns(full: fb.Federation, tmp_path: Path) -> None:
    pytest.importorskip("ROOT")
    job = full.conditions()
    job.write_snapshot(tmp_path / "prod.root", since=60, until=90)
    file = fb.open_conditions(tmp_path / "prod.root")
    expected = file["tpc/newest"].view.arrays(["since", "until", "channel", "value"], library="np")
    with uproot.open(tmp_path / "prod.root") as opened:
        found = opened["tpc_newest"].arrays(["since", "until", "channel", "value"])
        assert [found[name].to_list() for name in expected] == [each.tolist() for each in expected.values()]
        assert opened["beam_spot"]["note"].array().to_list() == file["beam/spot"].view["note"].to_list()
        (manifest,) = opened["conditions_manifest"].arrays().to_list()
    assert (manifest["csn"], manifest["federation"], manifest["sha256"]) == (job.csn, "lhc", file.sha256)
    assert [each["path"] for each in manifest["series"]] == list(file)
    command = [sys.executable, "-W", "ignore", "-c", ROOT_SCRIPT, str(tmp_path / "prod.root"), "tpc_newest"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, columns = json.loads(done.stdout.splitlines()[-1])
    assert count == len(file["tpc/newest"])
    assert columns == {name: each.astype(float).tolist() for name, each in expected.items()}


def test_hash_can_be_computed_from_the_specification(full: fb.Federation, tmp_path: Path) -> None:
    full.conditions().write_snapshot(tmp_path / "prod.root")
    file = fb.open_conditions(tmp_path / "prod.root")
    columns = file["tpc/newest"].view.arrays(library="np")
    lines = [f"record {len(file['tpc/newest'])} since,until,channel,value,status"]
    for name in ("since", "until", "channel", "value", "status"):
        digest = hashlib.sha256(columns[name].tobytes()).hexdigest()
        lines.append(f"primitive {len(columns[name])} {columns[name].dtype} {digest}")
    text = "".join(f"{line}\n" for line in lines)
    facts = next(each for each in file.facts["series"] if each["path"] == "tpc/newest")
    assert facts["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_hash_does_not_depend_on_batches_and_clusters(full: fb.Federation) -> None:
    for n in range(20, 23):
        with full.transaction() as txn:
            spots = txn.series("beam/spot")
            spots.put(mixed(n), since=(n, 0))
            spots.put(mixed(n + 1), since=(n, 1))
    view = full.conditions()["beam/spot"].view
    names = view.fields
    once = ContentHash()
    once.add(view.read_tree(names, 0, len(view)))
    for cuts in ([1], [7, 8, 9], list(range(1, len(view)))):
        parts = ContentHash()
        for start, stop in zip([0, *cuts], [*cuts, len(view)], strict=True):
            parts.add(view.read_tree(names, start, stop))
        assert parts.lines() == once.lines()


# ---- damage


@pytest.fixture
def fast_temporaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders in memory, because each damaged file is opened in one."""
    if Path("/dev/shm").is_dir():
        monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")


def damages(content: bytes) -> Iterator[bytes]:
    """The content with one byte changed at 300 places, and cut at 40."""
    rng = random.Random(7)
    for at in sorted(rng.sample(range(len(content)), 300)):
        yield content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    for length in [0, 1, len(content) - 1, *rng.sample(range(len(content)), 37)]:
        yield content[:length]


@pytest.mark.usefixtures("fast_temporaries")
def test_damage_is_detected_or_changes_no_answer(full: fb.Federation, tmp_path: Path) -> None:
    job = full.conditions()
    job.write_snapshot(tmp_path / "prod.root", since=60, until=90, **RUNS)
    expected = {path: answers(job[path], moments(job[path], 60, 90)) for path in PATHS}
    content, damaged = (tmp_path / "prod.root").read_bytes(), tmp_path / "damaged.root"
    texts: list[str] = []
    for number, other in enumerate(damages(content)):
        damaged.write_bytes(other)
        try:
            with fb.open_conditions(damaged) as file:
                found = {path: answers(file[path], moments(file[path], 60, 90)) for path in PATHS}
        except (fb.CorruptError, fb.InvalidError) as error:
            texts.append(str(error))
            continue
        assert number < 300, "a file that was cut was read"
        assert found == expected
    assert len(texts) > 50
    assert [text for text in texts if "damaged.root" not in text] == []


def test_changed_values_are_detected_though_their_pages_are_sound(
    full: fb.Federation, tmp_path: Path
) -> None:
    """The manifest of one file with the containers of another."""
    full.conditions().write_snapshot(tmp_path / "prod.root", ["tpc/refuse"])
    with fb.open_conditions(tmp_path / "prod.root") as file:
        facts = file._facts["tpc/refuse"]
        object.__setattr__(facts, "sha256", "0" * 64)
        with pytest.raises(
            fb.CorruptError, match=r"prod.root is damaged: series tpc/refuse does not match its hash"
        ):
            file["tpc/refuse"]
        with pytest.raises(fb.CorruptError, match="tpc/refuse"):
            file.verify()


# ---- refusals


def test_refused_snapshot_files_leave_nothing(full: fb.Federation, tmp_path: Path) -> None:
    with full.transaction() as txn:
        oid = txn.database("run7").container("events").append(Event(time=1, run=1, block=1))
        txn.series("daq/pointer", Pointer, create=True).put(Pointer(event=oid), since=0)
    job, out = full.conditions(), tmp_path / "out"
    out.mkdir()
    (out / "taken.root").write_text("mine")
    events = job.snapshot["run7/events"]
    calls: list[tuple[type[Exception], str, Any]] = [
        (fb.ExistsError, "taken.root exists", lambda: job.write_snapshot(out / "taken.root", PATHS)),
        (fb.NotFoundError, "folder", lambda: job.write_snapshot(out / "absent" / "a.root", PATHS)),
        (fb.UnsupportedError, "daq/pointer has links in the field event", lambda: job.write_snapshot(
            out / "a.root")),
        (fb.NotFoundError, "absent", lambda: job.write_snapshot(out / "a.root", ["tpc/absent"])),
        (fb.InvalidError, "no series", lambda: job.write_snapshot(out / "a.root", [])),
        (fb.InvalidError, "is empty", lambda: job.write_snapshot(out / "a.root", PATHS, since=5, until=5)),
        (fb.InvalidError, "mapping from clocks", lambda: job.write_job_file(
            out / "a.root", events, PATHS, moments="time")),
        (fb.InvalidError, "beam/spot is on the clock run", lambda: job.write_job_file(
            out / "a.root", events, PATHS, moments={"time": "time"})),
        (fb.NotFoundError, "absent", lambda: job.write_job_file(
            out / "a.root", events, ["tpc/open"], moments="absent")),
    ]  # fmt: skip
    for error, text, call in calls:
        with pytest.raises(error, match=text):
            call()
    assert [each.name for each in out.iterdir()] == ["taken.root"]
    assert (out / "taken.root").read_text() == "mine"

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.write_snapshot(out / "a.root", PATHS, progress=stop)
    assert [each.name for each in out.iterdir()] == ["taken.root"]


def test_other_files_are_not_snapshot_files(full: fb.Federation, tmp_path: Path) -> None:
    full["run7/events"].export(tmp_path / "events.root")
    with pytest.raises(
        fb.InvalidError, match=r"events.root is not a snapshot file .* no conditions_manifest"
    ):
        fb.open_conditions(tmp_path / "events.root")
    with pytest.raises(fb.NotFoundError, match="does not exist"):
        fb.open_conditions(tmp_path / "absent.root")
    full.conditions().write_snapshot(tmp_path / "prod.root", PATHS)
    with fb.open_conditions(tmp_path / "prod.root") as file:
        with pytest.raises(fb.InvalidError, match="is a snapshot file itself"):
            file.write_snapshot(tmp_path / "again.root")
        held = file["tpc/open"]
        assert repr(file).startswith("<ConditionsFile ")
    with pytest.raises(fb.ClosedError):
        held.at(5)
    assert "closed" in repr(held)


def test_series_outlives_the_file_object_and_leaves_no_folder(
    full: fb.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    full.conditions().write_snapshot(tmp_path / "prod.root", ["tpc/refuse"])
    refuse = fb.open_conditions(tmp_path / "prod.root")["tpc/refuse"]
    assert refuse.at(21).value == 1.0
    assert list((tmp_path / "temporary").iterdir())
    del refuse
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())


def test_file_is_compared_with_the_federation_and_pickled(full: fb.Federation, tmp_path: Path) -> None:
    """A version is of one federation: a file and a federation could have the same numbers by chance."""
    job = full.conditions()
    job.write_snapshot(tmp_path / "prod.root", ["tpc/newest"], since=60, until=90)
    bounds: dict[str, Any] = {"since": 60, "until": 90}
    with fb.open_conditions(tmp_path / "prod.root") as file:
        assert full.conditions.diff(file, job, ["tpc/newest"], **bounds) == []
        assert file["tpc/newest"].version != job["tpc/newest"].version
        with full.transaction() as txn:
            txn.series("tpc/newest").put(Gain(value=99), since=70, until=72)
        (difference,) = full.conditions.diff(file, None, ["tpc/newest"], **bounds)
        assert (difference.since, difference.until, difference.after) == (70, 72, {"value": 99, "status": 0})
        again = pickle.loads(pickle.dumps(file))
        assert (again.sha256, list(again)) == (file.sha256, list(file))
        again.close()


def test_file_is_read_from_a_folder_that_cannot_be_written(full: fb.Federation, tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    full.conditions().write_snapshot(folder / "prod.root", ["tpc/refuse"])
    (folder / "prod.root").chmod(0o444)
    folder.chmod(0o555)
    try:
        with fb.open_conditions(folder / "prod.root") as file:
            assert file["tpc/refuse"].at(21).value == 1.0
        assert [each.name for each in folder.iterdir()] == ["prod.root"]
    finally:
        folder.chmod(0o755)

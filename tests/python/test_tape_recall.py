"""The workload of recalls from tapes: small runs with a real server, and the figures computed from them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from wrong_workloads import assert_names_mistake

import femtobarn as fb
from femtobarn.cli import main
from femtobarn_testbed import bundled_workloads, latest, load, read, run
from femtobarn_testbed.comparison import compare_variants
from femtobarn_testbed.recall.fairness import fair_seconds
from femtobarn_testbed.recall.site import TapeSite
from femtobarn_testbed.recall.tables import clients_table, mounts_table
from femtobarn_testbed.workload import scenarios_of

# With few drives most files that are staged as asked for need a mount, however slow the machine is.
DRIVES = 2
TINY = {"files": 24, "tapes": 6, "drives": DRIVES, "clients": 3, "time_scale": 0.002}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run."""
    out = tmp_path_factory.mktemp("recall")
    settings = [text for name, value in TINY.items() for text in ("--set", f"{name}={value}")]
    arguments = ["--out", str(out), "--scratch", str(out)]
    assert main(["testbed", "run", "tape-recall", *settings, *arguments]) == 0
    return out


@pytest.fixture
def done(folder: Path) -> dict[str, Any]:
    (path,) = latest([folder])
    return read(path)


def test_the_order_of_tapes_takes_fewer_mounts(done: dict[str, Any]) -> None:
    points = {point["variant"]: point for point in done["points"]}
    assert list(points) == ["as asked for", "by tapes", "by tapes, 10 at a time"]
    as_asked, by_tapes = points["as asked for"], points["by tapes"]
    assert as_asked["estimates"] is None
    for point in (by_tapes, points["by tapes, 10 at a time"]):
        assert (point["estimates"]["done"], point["estimates"]["failed"]) == (24, 0)
        assert point["estimates"]["mean_error_seconds"] > 0.0
    # Six tapes, of which two may be in their drives at the beginning.
    assert 4 <= by_tapes["mounts"] <= 10
    assert as_asked["mounts"] > by_tapes["mounts"]


def test_every_file_is_recalled_once_and_drives_work_on_one_file_at_a_time(done: dict[str, Any]) -> None:
    for point in done["points"]:
        assert len({one["key"] for one in point["work"]}) == len(point["work"]) == TINY["files"]
        assert len(point["drives"]) == DRIVES
        for drive in range(DRIVES):
            mine = [one for one in point["work"] if one["drive"] == drive]
            for one, after in pairwise(mine):
                parts = ("mount_seconds", "locate_seconds", "transfer_seconds")
                assert after["began"] >= one["began"] + sum(one[part] for part in parts) - 0.001
        longest = max(one["began"] for one in point["work"])
        assert point["seconds"] >= longest
        assert point["busy_seconds"] <= point["seconds"] * DRIVES


def test_clients_have_their_files_and_a_fair_share(done: dict[str, Any]) -> None:
    for point in done["points"]:
        clients = point["clients"]
        assert [client["files"] for client in clients] == [12, 6, 6]
        assert max(client["seconds"] for client in clients) == point["seconds"]
        shares = [client["fair_seconds"] / point["seconds"] for client in clients]
        assert shares == pytest.approx([1.0, 0.75, 0.75])
    assert [row[:2] for row in clients_table(done)[1]] == [["1", "12"], ["2", "6"], ["3", "6"]]


def test_the_run_is_reported(folder: Path, done: dict[str, Any]) -> None:
    head, rows = mounts_table(done)
    assert len(rows) == 3
    assert {len(row) for row in rows} == {len(head)}
    with pytest.raises(fb.InvalidError, match="recalled files"):
        compare_variants(done)
    with pytest.raises(fb.InvalidError, match="recalled files"):
        scenarios_of(done)
    pytest.importorskip("matplotlib")
    assert main(["testbed", "plot", str(folder)]) == 0
    assert (folder / "tape-recall-drives.png").stat().st_size > 10_000
    page = (folder / "report.html").read_text()
    assert "Mounts and times" in page
    assert "clients at most" not in page


def test_fair_shares_are_those_of_a_server_that_divides_its_time() -> None:
    assert fair_seconds([6.0, 2.0, 1.0], 9.0) == [9.0, 5.0, 3.0]


def test_a_file_that_is_gone_from_the_library_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate = TapeSite.migrate

    def migrate_and_lose(site: TapeSite, *arguments: Any) -> None:
        migrate(site, *arguments)
        for stored in (site.tape_library.folder / "objects").iterdir():
            stored.write_bytes(b"other bytes")

    monkeypatch.setattr(TapeSite, "migrate", migrate_and_lose)
    workload = load("tape-recall", settings=TINY | {"files": 3})
    with pytest.raises(fb.FemtobarnError, match="bytes"):
        run(workload, scratch=tmp_path, variants=["by tapes"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("drives = 4", "drives = 0", "drives must be at least 1"),
        ("many_percent = 50", "many_percent = 101", "many_percent must be at most 100"),
        ('order = "tapes" ', 'order = "tape" ', "order must be one of tapes, asked"),
        ("files = 300", "files = 5", "each client needs a file"),
        ("mount_seconds = 90", "mount_second = 90", "lacks mount_seconds"),
        ("byte_scale = 50_000", "byte_scale = 0", "byte_scale must be above 0"),
    ],
)
def test_load_names_the_mistake_in_a_workload_of_recalls(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    text = bundled_workloads()["tape-recall"].read_text()
    assert_names_mistake(tmp_path, text, old, new, told)

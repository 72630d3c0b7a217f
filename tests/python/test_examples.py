"""The programs of examples/ run unchanged, and print the expected text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("uproot", reason="the extra `io` is not installed")
pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

PRINTED = {
    "events": ["10001 events", "selected: 1", "the largest energy is 13000.0"],
    "links": ["[42.0, 42.1, 42.2, 42.3, 42.4]", "[10.0, 10.0, 10.0]"],
    "snapshots": ["now: ['unknown', 'good']", "then: ['unknown', 'unknown']", "2 run 2 is good"],
    "served": ["commit 1: 1000 events", "commit 2: 2000 events"],
    "writers": ["part0 5000", "part3 5000", "20 commits"],
}


def printed(script: Path, *arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested(project: Path) -> None:
    names = {script.stem for script in (project / "examples").glob("*.py")}
    assert names == {*PRINTED, "histogram"}
    listed = (project / "examples" / "README.md").read_text()
    assert all(f"({name}.py)" in listed for name in names)


@pytest.mark.parametrize("name", PRINTED)
def test_example_prints_the_expected_text(project: Path, name: str) -> None:
    text = printed(project / "examples" / f"{name}.py")
    assert [part for part in PRINTED[name] if part not in text] == []


def test_histogram_example_draws_an_imported_file(project: Path, files: Samples, tmp_path: Path) -> None:
    picture = tmp_path / "mass.png"
    text = printed(project / "examples" / "histogram.py", files.path("nano_dimuon.root"), picture)
    assert text.endswith("pairs\n")
    assert int(text.split()[0]) > 10
    assert picture.read_bytes().startswith(b"\x89PNG")

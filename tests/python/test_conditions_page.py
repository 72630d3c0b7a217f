"""The page of conditions in a browser."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions_site import Gain, Site, served_conditions

import femtobarn as fb


@pytest.fixture
def site(fed: fb.Federation) -> Iterator[Site]:
    with served_conditions(fed) as served:
        yield served


def test_page_shows_the_intervals_in_a_browser(site: Site, tmp_path: Path) -> None:
    page = shown(f"{site.url}#series=tpc/gain", tmp_path)
    assert "tpc/gain" in page
    assert 'data-channels="2"' in page
    assert 'data-intervals="4"' in page


def test_page_marks_conditions_that_were_corrected_since_a_tag(site: Site, tmp_path: Path) -> None:
    site.federation.conditions.create_tag("prod")
    site.federation.conditions.change_tag("prod", state="frozen")
    address = f"{site.url}#series=tpc/gain&other=prod"
    assert 'data-changed="0"' in shown(address, tmp_path / "before")
    with site.federation.transaction() as txn:
        txn.series("tpc/gain").correct(Gain(value=8.0, raw=b""), at=50)
    # Another profile, since a browser keeps a head for ten seconds.
    assert 'data-changed="0"' not in shown(address, tmp_path / "after")


def shown(address: str, folder: Path) -> str:
    """Return a page as a browser has it after its script, which must have told no error."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    page = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", address],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert 'role="alert" hidden' in page
    assert "data-changed" in page
    return page

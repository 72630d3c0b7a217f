"""Bars of long calls: on a terminal and in a notebook if they are asked for, and nowhere else."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

import femtobarn as fb

OBJECTS = 3000


@pytest.fixture
def numbers(fed: fb.Federation) -> fb.View:
    form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container("numbers", form, create=True)
        container.extend({"n": range(OBJECTS)})
    return fed["d/numbers"]


LONG = """
import sys, femtobarn as fb
fed, path = fb.open(sys.argv[1]), sys.argv[2]
for batch in fed["d/numbers"].iterate(step_size=500, progress=True):
    pass
fed.export("d/numbers", path, progress=True)
fed.import_file(path, database="again", progress=True)
print(len(fed["again/numbers"]))
"""


def long_calls(numbers: fb.View, folder: Path, **streams: Any) -> subprocess.CompletedProcess[str]:
    place = numbers.snapshot.federation.path
    command = [sys.executable, "-c", LONG, place, str(folder / "numbers.parquet")]
    done = subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, **streams)
    assert done.stdout == f"{OBJECTS}\n"
    return done


def all_of(screen: io.FileIO) -> str:
    """Return what is written to a terminal until all programs have closed it."""
    parts = []
    with contextlib.suppress(OSError):  # So a terminal tells that it is closed.
        while part := screen.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()


def test_a_terminal_shows_a_bar_for_each_long_call(numbers: fb.View, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 160))
    with io.FileIO(ours) as screen, ThreadPoolExecutor(1) as reader:
        reading = reader.submit(all_of, screen)
        try:
            long_calls(numbers, tmp_path, stderr=theirs)
        finally:
            os.close(theirs)
        shown = reading.result()
    for title in ("d/numbers: ", "numbers.parquet: ", f"{tmp_path}/numbers.parquet: "):
        assert title in shown
    assert "3.00k" in shown
    assert " objects/s" in shown


def test_a_log_has_no_bars(numbers: fb.View, tmp_path: Path) -> None:
    assert long_calls(numbers, tmp_path, stderr=subprocess.PIPE).stderr == ""


@pytest.fixture(scope="module")
def run_in_notebook() -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    manager, client = start_new_kernel(startup_timeout=60)

    def run(code: str) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        reply = client.execute_interactive(code, timeout=60, output_hook=shown.append)
        assert reply["content"]["status"] == "ok", reply
        return [each["content"] for each in shown]

    try:
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_notebook_shows_a_widget(
    numbers: fb.View, run_in_notebook: Callable[[str], list[dict[str, Any]]]
) -> None:
    place = numbers.snapshot.federation.path
    code = f"import femtobarn as fb; view = fb.open({place!r})['d/numbers']\n"
    widget = "application/vnd.jupyter.widget-view+json"
    shown = run_in_notebook(code + "for each in view.iterate(step_size=500, progress=True): pass")
    assert [each for each in shown if widget in each.get("data", {})]
    shown = run_in_notebook(code + "for each in view.iterate(step_size=500): pass")
    assert not [each for each in shown if widget in each.get("data", {})]


def test_progress_is_called_with_the_entries_read(numbers: fb.View) -> None:
    told: list[tuple[int, int]] = []
    batches = numbers.iterate(
        where="n < 10", step_size=1000, progress=lambda done, total: told.append((done, total))
    )
    assert sum(map(len, batches)) == 10
    assert told == [(1000, OBJECTS), (2000, OBJECTS), (OBJECTS, OBJECTS)]
    an: Any = numbers
    with pytest.raises(fb.WrongTypeError, match="progress must be a function"):
        an.iterate(progress=3)

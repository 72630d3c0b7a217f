"""The start-up cost of a job counts: hundreds of jobs start at once on one machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import femtobarn as fb

ONE_OBJECT = """
import sys
import femtobarn as fb

@fb.persistent
class Raw:
    run: fb.uint32
    payload: list[fb.uint8]

federation = fb.open(sys.argv[1])
with federation.transaction() as txn:
    txn.database("daq", create=True).container("raw", Raw, create=True).append(Raw(run=7, payload=[1, 2]))
first = federation["daq/raw"][0]
assert (first.run, first.payload.tolist()) == (7, [1, 2])
"""
WITH_INDICES = """
index = {"meaning": {"of": "int32", "is": "element", "name": "jets"}}
jets = {"list": {"record": {"class": "Jet", "fields": [{"name": "pt", "type": "float32"}]}}}
fields = [{"name": "jets", "type": jets}, {"name": "leadingIdx", "type": index}]
with federation.transaction() as txn:
    events = txn.database("daq").container("events", {"name": "Event", "fields": fields}, create=True)
    events.append({"jets": [], "leadingIdx": -1})
assert federation["daq/events"][0].leadingIdx == -1
"""
ARRAYS = 'assert federation["daq/raw"].arrays("run", where="run * 2 == 14").to_list() == [{"run": 7}]\n'
LATE = {"awkward", "fsspec", "numexpr", "pandas", "pyarrow", "tqdm", "urllib.request", "yaml"}
TOLD = f"print(*{LATE} & set(sys.modules))\n"


def imported(script: str, location: str) -> set[str]:
    """The libraries that a new process has imported when it has run a script."""
    done = subprocess.run(
        [sys.executable, "-c", script + TOLD, location], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


IMPORTED = """
import sys
import numpy
before = set(sys.modules)
import femtobarn
new = set(sys.modules) - before
own = {name for name in new if name.partition(".")[0] == "femtobarn"}
print(len(own), len(new - own), *({"concurrent.futures", "hashlib", "logging", "tempfile"} & new))
"""
OWN_MODULES_MAX, OTHER_MODULES_MAX = 78, 34


def test_the_package_imports_few_modules_beside_those_of_numpy() -> None:
    """It imported 142 of its own and 81 others, which took three times as long as importing NumPy."""
    told = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True).stdout
    own, others, *late = told.split()
    assert (int(own) <= OWN_MODULES_MAX, int(others) <= OTHER_MODULES_MAX, late) == (True, True, [])


def test_the_command_line_imports_no_large_library() -> None:
    """It imported tqdm, HTTP, TLS and SQLite for each command, which few of them need."""
    late = {*LATE, "http.client", "sqlite3", "ssl"}
    parsed = "from femtobarn.cli import parser\nparser()\nimport sys\n"
    script = f"{parsed}print(*{late} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.split() == []


def test_names_of_late_modules_are_listed(tmp_path: Path) -> None:
    assert (
        imported("import femtobarn as fb; assert set(fb.__all__) <= set(dir(fb))\nimport sys\n", "") == set()
    )


def test_reading_single_objects_imports_no_large_library(tmp_path: Path) -> None:
    location = tmp_path / "lhc.fed"
    fb.create(location).close()
    assert imported(ONE_OBJECT, str(location)) == set()


def test_reading_numbers_beside_links_by_indices_imports_no_large_library(tmp_path: Path) -> None:
    location = tmp_path / "lhc.fed"
    fb.create(location).close()
    assert imported(ONE_OBJECT + WITH_INDICES, str(location)) == set()


def test_reading_single_remote_objects_imports_no_large_library(tmp_path: Path) -> None:
    fb.create(tmp_path / "lhc.fed").close()
    with fb.serve(tmp_path / "lhc.fed", port=0, address="127.0.0.1", anonymous="all") as server:
        assert imported(ONE_OBJECT, server.url("/lhc.fed")) == set()


def test_reading_arrays_imports_only_their_libraries(tmp_path: Path) -> None:
    location = tmp_path / "lhc.fed"
    fb.create(location).close()
    assert {"awkward", "numexpr"} <= imported(ONE_OBJECT + ARRAYS, str(location))

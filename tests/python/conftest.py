"""Fixtures and options of all Python tests.

On the integration machine (CI=true) a skipped test fails the run: everything that tests need is installed
there, so a skip would hide that something is missing.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from followed import serve
from written import Written, manifest

import femtobarn as fb

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

ROOT = Path(__file__).resolve().parent.parent.parent
INTEGRATION = os.environ.get("CI", "").lower() == "true"
# Test files that take half a minute or more. They run first and in this order, so that with several processes
# none of them starts last and delays the end. The two that need what ROOT writes do not start at once.
LONGEST = (
    "test_readers",
    "test_testbed_runs",
    "test_several_servers",
    "test_xrootd_suites",
    "test_rntuple_judges",
    "test_redirector",
    "test_storage_served",
    "test_cache",
    "test_demo",
    "test_tape_recall",
    "test_hot_files",
)


@pytest.fixture(scope="module", autouse=True)
def older_objects_stay() -> None:
    """Full collections, which `vacuum` makes too, look at the objects of one module of tests: to look at all
    imported modules and collected tests takes up to a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[fb.Federation]:
    """A new federation."""
    with fb.create(tmp_path / "lhc.fed") as federation:
        yield federation


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[tuple[fb.Federation, fb.Server]]:
    """A new federation, and its server."""
    with fb.create(tmp_path / "lhc.fed") as federation, serve(federation) as server:
        yield federation, server


@pytest.fixture(scope="session")
def project() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path | None:
    """The folder of real files, or None if there is none."""
    return data_folder()


def data_folder() -> Path | None:
    """The folder that FEMTOBARN_DATA names, or else one beside the project; only some machines have it."""
    for folder in (os.environ.get("FEMTOBARN_DATA"), ROOT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    return None


@pytest.fixture(scope="session")
def files(project: Path) -> Samples:
    """The sample files of public packages, fetched on first use."""
    from femtobarn import StorageError
    from femtobarn.importers.samples import Samples

    files = Samples(project / ".cache" / "samples")
    try:
        files.fetch(progress=False)
    except StorageError as error:
        pytest.skip(str(error))
    return files


@pytest.fixture(scope="session")
def by_root(project: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """RNTuples of every kind, written by real ROOT."""

    def write(folder: Path) -> None:
        script = project / "tests" / "judges" / "root_write.py"
        command: list[str | Path] = [sys.executable, "-W", "ignore", script, folder]
        subprocess.run(command, check=True, capture_output=True)

    return manifest(made_once("by-root", write, tmp_path_factory))


def made_once(name: str, make: Callable[[Path], None], factory: pytest.TempPathFactory) -> Path:
    """A folder that the first of several test processes makes, and all use."""
    top = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        top = top.parent
    folder = top / name
    with (top / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = top / f"{name}.part"
            make(part)
            part.rename(folder)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A copy of the testbed's small workload."""
    return Path(shutil.copy(Path(__file__).parent / "small_workload.toml", tmp_path / "small.toml"))


@pytest.fixture(scope="session")
def examples(project: Path) -> Path:
    """The folder of the crates' example programs: what FEMTOBARN_EXAMPLES names, so that no test waits for
    other builds, or what is built here. The whole workspace is built, as by `make build`, since a build of
    one crate would compile its dependencies anew with fewer features."""
    if folder := os.environ.get("FEMTOBARN_EXAMPLES"):
        return Path(folder)
    command = ["cargo", "build", "--workspace", "--locked", "--quiet", "--examples"]
    done = subprocess.run(
        [*command, "--message-format=json"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    messages = map(json.loads, done.stdout.splitlines())
    return next(Path(each["executable"]).parent for each in messages if each.get("executable"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, and deselect the tests of real files on machines without these files."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    if data_folder() is not None:
        return
    absent = [item for item in items if "shared_data" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=absent)
    items[:] = [item for item in items if item not in absent]


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Turn skips into a failure on the integration machine."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if INTEGRATION and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == 0:
        reporter.write_line("skipped tests are failures here", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

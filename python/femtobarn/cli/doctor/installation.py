"""Checks of the installation: versions, packages, limits of the process, the temporary folder, the clock."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ... import _femtobarn
from ..output import human_size, human_time
from .finding import Finding, note, ok, wrong

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["look_at_installation"]

PACKAGE = "femtobarn"

EXTRAS = {
    "io": "trees, Parquet, Arrow, CSV, HDF5 and pandas",
    "generators": "LHE and HepMC files",
    "plots": "pictures",
    "vector": "vectors of physics",
    "hist": "histograms",
    "polars": "lazy frames of Polars",
    "dask": "Dask: data frames, and tasks that write",
    "mqtt": "recording from MQTT",
    "plan": "simulated sites",
}
"""The extras for users, and their purposes; all other extras are for developers."""

OPEN_FILES_LOW = 1024
"""A process that works with many databases keeps some 300 files open, a transaction two for each database."""

TEMPORARY_LOW_BYTES = 1 << 30
"""Exports and benchmarks write there."""


def look_at_installation() -> Iterator[Finding]:
    """Look at the package and at the machine that it runs on."""
    yield ok("python", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield _versions()
    yield from _packages()
    yield _xrootd()
    yield _open_files()
    yield _temporary_folder()
    yield _clock()


def _versions() -> Finding:
    there = f"{_femtobarn.__version__} of {_femtobarn.__file__}"
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        fact = f"run from its sources in {Path(__file__).parents[4]}, with extension module {there}"
        return note(PACKAGE, fact, "run make setup there, which installs its requirements")
    if version != _femtobarn.__version__:
        fact = f"the package is of version {version}, its extension module of {there}"
        remedy = f"pip install --force-reinstall {PACKAGE}=={version}, or make extension in the sources"
        return wrong("unsupported", PACKAGE, fact, remedy)
    return ok(PACKAGE, f"version {version}, with its extension module {_femtobarn.__file__}")


def _packages() -> Iterator[Finding]:
    """Compare the installed packages with the requirements in the package's metadata."""
    # Imported late, as it takes a while and only this command needs it.
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(text) for text in metadata.requires(PACKAGE) or ()]
    except metadata.PackageNotFoundError:
        return
    required = [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    yield _package_group("packages", "", required)
    for extra, purpose in EXTRAS.items():
        of_extra = [each for each in requirements if each not in required and _is_of(extra, each)]
        yield _package_group(f"extra {extra}", purpose, of_extra)


def _is_of(extra: str, requirement: Requirement) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _package_group(subject: str, purpose: str, requirements: list[Requirement]) -> Finding:
    """Look at packages that are required together; without a purpose nothing works without them."""
    there, absent, unfit = [], [], []
    for requirement in requirements:
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            absent.append(requirement.name)
            continue
        if requirement.specifier.contains(version, prereleases=True):
            there.append(f"{requirement.name} {version}")
        else:
            unfit.append(f"{requirement.name} is {version} and must be {requirement.specifier}")
    extra = f"[{subject.removeprefix('extra ')}]" if purpose else ""
    install = f"pip install --upgrade '{PACKAGE}{extra}'"
    missing = f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
    if unfit or (absent and not purpose):
        return wrong("unsupported", subject, "; ".join(unfit + [missing] * bool(absent)), install)
    if absent:
        return note(subject, f"{missing}: needed for {purpose}", install)
    return ok(subject, ", ".join(there))


def _xrootd() -> Finding:
    """Look for XRootD's own client, which Femtobarn does not need, but whose users want it beside."""
    found = []
    if (program := shutil.which("xrdcp")) is not None:
        found.append(program)
    for name in ("xrootd", "fsspec-xrootd"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ok("XRootD's client", ", ".join(found) or "not installed; Femtobarn has its own")


def _open_files() -> Finding:
    soft, hard = (
        sys.maxsize if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    if soft >= OPEN_FILES_LOW:
        return ok("limits", f"a process may have {soft:,} files open")
    fact = f"a process may have {soft:,} files open, few for transactions with many databases"
    if hard >= OPEN_FILES_LOW:
        return note("limits", fact, f"ulimit -n {OPEN_FILES_LOW}")
    return note("limits", fact, f"ask the administrator to raise the hard limit, {hard:,}")


def _temporary_folder() -> Finding:
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return wrong("storage", "temporary folder", str(error), "set TMPDIR to a folder that can be written")
    fact = f"{folder} has {human_size(free)} free"
    if free < TEMPORARY_LOW_BYTES:
        return note("temporary folder", fact, "remove files there, or set TMPDIR to another folder")
    return ok("temporary folder", fact)


def _clock() -> Finding:
    now, built = time.time(), Path(_femtobarn.__file__).stat().st_mtime
    fact = human_time(datetime.fromtimestamp(now, UTC))
    if now < built:
        return note("clock", f"{fact} is before this release was installed", "let NTP set the clock")
    return ok("clock", fact)

"""The project's own Python environment, `.venv`.

Everything that a target of the Makefile needs is installed here and nowhere else. Names of packages come
from `pyproject.toml`, exact versions from `requirements/constraints.txt`; what was installed is remembered
as a stamp beside the packages, so that a second run costs nothing. Uses the standard library alone, since it
runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
ENVIRONMENT = ROOT / ".venv"
BIN = ENVIRONMENT / "bin"
PYTHON = BIN / "python"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
CARGO_FUZZ_VERSION = "0.13.2"


def requirements(groups: tuple[str, ...]) -> list[str]:
    """The requirements of the package, of its build, and of the named groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    found = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    waiting = list(groups)
    while waiting:
        for requirement in extras[waiting.pop()]:
            own = re.fullmatch(r"femtobarn\[(\w+)\]", requirement)
            if own:
                waiting.append(own[1])
            else:
                found.append(requirement)
    return sorted(set(found))


def prepare(groups: tuple[str, ...]) -> None:
    """Make `.venv` hold the named groups; returns at once where it already does."""
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    wanted = requirements(groups)
    stamp = ENVIRONMENT / f"stamp-{'-'.join(groups) or 'base'}"
    mark = hashlib.sha256("\n".join([*wanted, CONSTRAINTS.read_text()]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == mark:
        return
    install(PYTHON, ["--constraint", str(CONSTRAINTS), *wanted])
    _repair_root()
    stamp.write_text(mark)


def install(python: Path, arguments: list[str]) -> None:
    """Run pip in the environment of `python`."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def prepare_cargo_fuzz() -> None:
    """Build cargo-fuzz into `.cache/tools`, unless this version is there."""
    tools = CACHE / "tools"
    stamp = tools / f"stamp-cargo-fuzz-{CARGO_FUZZ_VERSION}"
    if stamp.exists():
        return
    command = ["cargo", "install", "--quiet", "--locked", "cargo-fuzz", "--version", CARGO_FUZZ_VERSION]
    # A target folder of its own would be thrown away; the workspace's must not be mixed with it.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tools / "target")}
    subprocess.run([*command, "--root", str(tools)], check=True, env=environment)
    shutil.rmtree(tools / "target", ignore_errors=True)
    stamp.touch()


def prepare_programs() -> None:
    """Install the programs that judge ours: XRootD's server and tools, its Python of Debian, a browser.

    Where that is not allowed, or not by apt, tests that need them are left out.
    """
    is_there = all(map(shutil.which, ("xrootd", "xrdcp", "xrdfs", "chromium")))
    if is_there or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]
    packages = ["xrootd-server", "xrootd-client", "xrootd-server-plugins", "xrootd-client-plugins"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "--quiet"], check=True, env=quiet)
    subprocess.run([*command, *packages, "python3-xrootd", "chromium"], check=True, env=quiet)


def pin() -> None:
    """Resolve every group anew in an empty environment and write the constraints file."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        install(python, requirements(tuple(extras)))
        frozen = subprocess.run(
            [str(python), "-m", "pip", "freeze", "--disable-pip-version-check"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    first = "# Written by `make pin`: what a resolve of every group of pyproject.toml gave.\n"
    CONSTRAINTS.write_text(first + frozen)


def _repair_root() -> None:
    """ROOT's wheel looks for its headers under the folder name of the machine that built it."""
    for packages in (ENVIRONMENT / "lib").glob("python3.*/site-packages"):
        alias = packages.with_name("mock_site_packages")
        if (packages / "ROOT").exists() and not alias.is_symlink():
            alias.symlink_to(packages.name)


if __name__ == "__main__":
    if sys.argv[1:] == ["pin"]:
        pin()
    else:
        prepare(tuple(sys.argv[1:]))

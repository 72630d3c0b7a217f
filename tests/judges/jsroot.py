"""JSROOT, to be run by Node: the released packages, each checked against the sum that is written here.

`npm ci` would fetch and build what JSROOT needs to draw as well; reading takes these two packages alone.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGES = {
    "jsroot@7.11.2": (
        "Pria+SspD6+BmGNg4C8UOtP5y7GiODS/FXgQMiCSgGxpbm9icezifQLcVTJF7RaMnCot6ko7CoZozudM1a204g=="
    ),
    # What it decompresses Zstandard with.
    "@oneidentity/zstd-js@1.0.3": (
        "Jm6sawqxLzBrjC4sg2BeXToa33yPzUmq20CKsehKY2++D/gHb/oSwVjNgT+RH4vys+r8FynrgcNzGwhZWMLzfQ=="
    ),
}
"""What is fetched, and the SHA-512 of each archive, as npm writes it into lock files."""


def absent() -> str | None:
    """The reason why JSROOT cannot be run here, if there is one."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def install(cache: Path) -> Path:
    """The folder of the packages, fetched if they are not there yet.

    Raises
    ------
    OSError
        If npm cannot fetch them, or what came is something else.
    """
    modules = cache / "-".join(["jsroot", *(name.rpartition("@")[2] for name in PACKAGES)]) / "node_modules"
    if modules.exists():
        return modules
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        for name, expected in PACKAGES.items():
            _unpack(_fetch(name, expected, Path(folder)), Path(folder) / "whole" / name.rpartition("@")[0])
        modules.parent.mkdir(exist_ok=True)
        (Path(folder) / "whole").rename(modules)
    return modules


def _fetch(name: str, expected: str, folder: Path) -> Path:
    """An archive with the sum that it should have."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise OSError(f"npm cannot fetch {name}: {done.stderr.strip()}")
    archive = folder / done.stdout.split()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != expected:
        raise OSError(f"{name} is not the package it should be: its SHA-512 is {found}")
    return archive


def _unpack(archive: Path, target: Path) -> None:
    """Make a folder of an archive, in which all is in the folder `package`."""
    with tarfile.open(archive) as package:
        package.extractall(target.with_name(f"{target.name}.part"), filter="data")
    (target.with_name(f"{target.name}.part") / "package").rename(target)
    target.with_name(f"{target.name}.part").rmdir()

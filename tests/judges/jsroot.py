"""Downloads JSROOT, to be run by Node: the released packages, verified by the checksums in this file.

`npm ci` would also fetch and build what JSROOT needs for drawing; reading needs only these two packages.
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
    # JSROOT's Zstandard decompressor.
    "@oneidentity/zstd-js@1.0.3": (
        "Jm6sawqxLzBrjC4sg2BeXToa33yPzUmq20CKsehKY2++D/gHb/oSwVjNgT+RH4vys+r8FynrgcNzGwhZWMLzfQ=="
    ),
}
"""The archives, and the SHA-512 of each in the form of npm's lock files."""


def absent() -> str | None:
    """The reason why JSROOT cannot run on this machine, or None."""
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
    """Download an archive, and verify its checksum."""
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
    """Unpack an archive, whose files are all in the folder `package`."""
    with tarfile.open(archive) as package:
        package.extractall(target.with_name(f"{target.name}.part"), filter="data")
    (target.with_name(f"{target.name}.part") / "package").rename(target)
    target.with_name(f"{target.name}.part").rmdir()

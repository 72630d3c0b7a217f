"""Checks of the file systems with the files of a federation: their kinds, and their space."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..output import human_duration, human_size
from .finding import Finding, note, ok, wrong

__all__ = ["FileSystem", "file_systems", "look_at_space", "look_at_type"]

NETWORK_TYPES = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "gfs2", "gpfs"),
        *("lustre", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs"),
    )
)
"""File systems that several machines mount. SQLite's log needs memory that all its users share, so they must
be on one machine; and some of these file systems have no locks."""

MEMORY_TYPES = frozenset({"ramfs", "tmpfs"})

MOUNTS = Path("/proc/self/mountinfo")

SPACE_LAST_BYTES = 64 << 20
"""Below this a commit may fail at any moment: each database that is written to grows by windows of 2 MiB."""

SPACE_LOW_FRACTION = 0.05
SPACE_LOW_DAYS = 30

DAY_SECONDS = 86400.0


@dataclass
class FileSystem:
    """A file system, and the bytes that a federation has on it."""

    place: Path
    """The first folder of the federation that is on it."""
    type: str
    bytes: int = 0
    """Bytes on it of the files of databases."""


def file_systems(folders: Iterable[Path]) -> dict[int, FileSystem]:
    """Return the file systems of folders, by their numbers, without those that do not answer."""
    found: dict[int, FileSystem] = {}
    for folder in folders:
        try:
            number = folder.stat().st_dev
        except OSError:
            continue
        if number not in found:
            found[number] = FileSystem(folder, _type_of(folder))
    return found


def look_at_type(system: FileSystem) -> Finding:
    """Tell whether the kind of a file system suits a federation."""
    if system.type in NETWORK_TYPES:
        return note(
            "file system",
            f"{system.place} is on {system.type}, which several machines can mount; the catalogue is safe "
            "only while all processes that open it run on one of them",
            "let clients of other machines come through femtobarn serve",
        )
    if system.type in MEMORY_TYPES:
        fact = f"{system.place} is on {system.type}: a restart of the machine removes the federation"
        return note("file system", fact, "keep what must last on a disk")
    return ok("file system", f"{system.place} is on {system.type}")


def look_at_space(system: FileSystem, created: float | None) -> Finding:
    """Compare the free space with the daily growth of the federation since it was made."""
    usage = shutil.disk_usage(system.place)
    fact = f"{system.place} has {human_size(usage.free)} free of {human_size(usage.total)}"
    age = 0.0 if created is None else time.time() - created
    lasts = None
    if age > DAY_SECONDS and system.bytes > 0:
        a_day = system.bytes / age * DAY_SECONDS
        lasts = usage.free / a_day
        fact += (
            f", which lasts for {human_duration(int(lasts * DAY_SECONDS))} at {human_size(int(a_day))} a day"
        )
    remedy = "femtobarn vacuum and evict give space back; new databases can be put on another disk (place)"
    if usage.free < SPACE_LAST_BYTES:
        return wrong("storage", "space", fact, remedy)
    if usage.free < usage.total * SPACE_LOW_FRACTION or (lasts is not None and lasts < SPACE_LOW_DAYS):
        return note("space", fact, remedy)
    return ok("space", fact)


def _type_of(folder: Path) -> str:
    """Return the type of the file system of a folder, as the kernel names it."""
    path, best, kind = folder.resolve(), Path(), "a file system of unknown type"
    for point, name in _mounts():
        # Of two mounts at one place the later one is seen.
        if path.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, name
    return kind


def _mounts() -> Iterator[tuple[Path, str]]:
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
        yield Path(point), after.split()[0]

"""A played tape library, which a federation uses as a store of kind ``commands``.

``python -m femtobarn_testbed.tape_library --folder F`` carries out one request of a federation, a line of
JSON on its standard input, and answers with a line of JSON (docs/storage.md). The files are real, in the
folder; drives and tapes are played: a request takes the time that mounting, winding and reading would take.

Each command is a process of its own, so all state is in an SQLite file; a transaction gives work to a drive.

Invariants:

1. A tape is in one drive at most, and a drive does one thing after the other.
2. Files lie on a tape one after the other. A place is written once; a removed file leaves a gap.
3. An object is known when its file is there as a whole. Killing a command loses the place and the time that
   it was given, and nothing else.

Only small modules of the standard library are imported, since every command starts an interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Library", "Play", "counters_of", "main"]

OPERATIONS = ("migrate", "stage", "remove", "query")
GIGABYTE = 1e9
LOOK_SECONDS = 0.01
"""How often a command that waits for a drive looks again, by the clock."""
LOCK_SECONDS = 60.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS tapes (name TEXT PRIMARY KEY, used REAL NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    key TEXT PRIMARY KEY, size INTEGER NOT NULL, checksum TEXT NOT NULL, tape TEXT NOT NULL,
    position INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS drives (
    number INTEGER PRIMARY KEY, tape TEXT UNIQUE, head REAL NOT NULL, free_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS work (
    began REAL NOT NULL, operation TEXT NOT NULL, key TEXT NOT NULL, drive INTEGER NOT NULL,
    tape TEXT NOT NULL, mount_seconds REAL NOT NULL, locate_seconds REAL NOT NULL,
    transfer_seconds REAL NOT NULL, bytes REAL NOT NULL
);
"""


class Play(NamedTuple):
    """The simulated library. Seconds and bytes are those of the real library."""

    drives: int = 4
    mount_seconds: float = 90.0
    """To take a tape out of a drive and another one in: between two thirds and four thirds of this."""
    locate_seconds_per_gb: float = 0.01
    """To wind past a gigabyte."""
    bytes_per_second: float = 300e6
    hold_seconds: float = 10.0
    """How long a tape stays in its drive after its last file although another tape is wanted."""
    tape_bytes: float = 12e12
    byte_scale: float = 1.0
    """Bytes that a byte of a file counts as."""
    time_scale: float = 1.0
    """Seconds by the clock for a played second; 0 plays no time."""

    def arguments(self) -> list[str]:
        """Return the options of the command line that give this."""
        return [text for name, value in self._asdict().items() for text in (_option(name), str(value))]


class Library(NamedTuple):
    """A library in a folder, which is made when it is first used."""

    folder: Path
    play: Play

    def command(self) -> list[str]:
        """Return the command of all four operations.

        It runs this file without the package, which halves the time to start.
        """
        return [sys.executable, "-I", "-S", __file__, "--folder", str(self.folder), *self.play.arguments()]

    def settings(self, store: str) -> str:
        """Return the table of ``storage.toml`` that makes this library a store."""
        command = json.dumps(self.command())
        lines = [f"[stores.{store}]", 'kind = "commands"', f"streams = {self.play.drives}"]
        lines += [f"{operation} = {command}" for operation in OPERATIONS]
        return "\n".join(lines) + "\n"

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request, and return the answer."""
        key, path = str(request["key"]), Path(request.get("path", ""))
        match request["operation"]:
            case "migrate":
                return self._migrate(key, path)
            case "stage":
                return self._stage(key, path)
            case "remove":
                return self._remove(key)
            case "query":
                return self._query(key)
            case other:
                return {"error": f"there is no operation {other!r}"}

    def work(self, since: float = 0.0) -> list[dict[str, Any]]:
        """Return the drives' operations since a time by the clock, in order, with the seconds of each."""
        with self._open() as database:
            rows = database.execute("SELECT * FROM work WHERE began >= ? ORDER BY began, rowid", [since])
            return [dict(row) for row in rows]

    def counters(self, since: float = 0.0) -> dict[str, Any]:
        """Return mounts, files, bytes and seconds since a time by the clock, of all drives and of each."""
        return counters_of(self.work(since), self.play.drives)

    def _migrate(self, key: str, path: Path) -> dict[str, Any]:
        size = path.stat().st_size
        tape, position = self._end_of_tape(size)
        self._use_drive("migrate", key, tape, position, size)
        stored = self._object(tape, position)
        stored.parent.mkdir(exist_ok=True)
        written = stored.with_suffix(f".{os.getpid()}")
        shutil.copyfile(path, written)
        written.replace(stored)
        row = (key, size, _adler32(stored), tape, position)
        with self._open() as database:
            older = database.execute("SELECT tape, position FROM files WHERE key = ?", [key]).fetchone()
            database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)
        if older is not None:
            self._object(*older).unlink(missing_ok=True)
        return self._query(key)

    def _stage(self, key: str, path: Path) -> dict[str, Any]:
        if (known := self._find(key)) is None:
            return {"exists": False}
        tape, position, size = known["tape"], known["position"], known["size"]
        self._use_drive("stage", key, tape, position, size)
        shutil.copyfile(self._object(tape, position), path)
        return {}

    def _remove(self, key: str) -> dict[str, Any]:
        if (known := self._find(key)) is not None:
            with self._open() as database:
                database.execute("DELETE FROM files WHERE key = ?", [key])
            self._object(known["tape"], known["position"]).unlink(missing_ok=True)
        return {}

    def _query(self, key: str) -> dict[str, Any]:
        return {"exists": False} if (known := self._find(key)) is None else {"exists": True} | known

    def _find(self, key: str) -> dict[str, Any] | None:
        with self._open() as database:
            found = database.execute(
                "SELECT size, checksum, tape, position FROM files WHERE key = ?", [key]
            ).fetchone()
        return None if found is None else dict(found)

    def _end_of_tape(self, size: int) -> tuple[str, int]:
        """Give a file the next place of the tape that is written, or of a new one."""
        bytes_ = size * self.play.byte_scale
        with self._open() as database:
            last = database.execute("SELECT name, used FROM tapes ORDER BY name DESC").fetchone()
            if last is None or last["used"] + bytes_ > self.play.tape_bytes:
                number = int(last["name"][1:]) + 1 if last else 1
                last = {"name": f"T{number:05}", "used": 0.0}
            database.execute(
                "INSERT OR REPLACE INTO tapes VALUES (?, ?)", [last["name"], last["used"] + bytes_]
            )
        return last["name"], int(last["used"])

    def _use_drive(self, operation: str, key: str, tape: str, position: int, size: int) -> None:
        """Wait until a drive has done this work."""
        while (done_at := self._take_drive(operation, key, tape, position, size)) is None:
            time.sleep(LOOK_SECONDS)
        while (rest := done_at - time.time()) > 0.0:
            time.sleep(rest)

    def _take_drive(self, operation: str, key: str, tape: str, position: int, size: int) -> float | None:
        """Give work to the drive that has the tape, or that may take it; None if that is not free.

        Returns when the work is done, by the clock.
        """
        play, bytes_ = self.play, size * self.play.byte_scale
        with self._open() as database:
            now = time.time()
            for number in range(play.drives):
                database.execute("INSERT OR IGNORE INTO drives VALUES (?, NULL, 0, 0)", [number])
            drive = database.execute("SELECT * FROM drives WHERE tape = ?", [tape]).fetchone()
            hold = 0.0
            if drive is None:
                # The drive that has been idle for the longest time; one without a tape before all others.
                choice = "SELECT * FROM drives WHERE number < ? ORDER BY tape IS NOT NULL, free_at, number"
                drive = database.execute(choice, [play.drives]).fetchone()
                hold = play.hold_seconds if drive["tape"] else 0.0
            if drive["free_at"] + hold * play.time_scale > now:
                return None
            mount, head = 0.0, drive["head"]
            if drive["tape"] != tape:
                mounts = database.execute("SELECT count(*) FROM work WHERE mount_seconds > 0").fetchone()[0]
                mount, head = play.mount_seconds * _spread(f"{tape} {mounts}"), 0.0
            locate = abs(position - head) / GIGABYTE * play.locate_seconds_per_gb
            transfer = bytes_ / play.bytes_per_second
            done_at: float = now + (mount + locate + transfer) * play.time_scale
            state = (tape, position + bytes_, done_at, drive["number"])
            database.execute("UPDATE drives SET tape = ?, head = ?, free_at = ? WHERE number = ?", state)
            row = (now, operation, key, drive["number"], tape, mount, locate, transfer, bytes_)
            database.execute("INSERT INTO work VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return done_at

    def _object(self, tape: str, position: int) -> Path:
        return self.folder / "objects" / f"{tape}-{position}"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the state for one transaction, which no other process interrupts."""
        if not self.folder.is_dir():
            raise FileNotFoundError(f"folder {self.folder} does not exist; make it first")
        with closing(sqlite3.connect(self.folder / "library.sqlite", timeout=LOCK_SECONDS)) as database:
            database.isolation_level = None
            database.row_factory = sqlite3.Row
            # The state survives a killed process, and need not survive a crash of the machine.
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA.split(";"):
                database.execute(statement)
            yield database
            database.execute("COMMIT")


def counters_of(work: list[dict[str, Any]], drives: int) -> dict[str, Any]:
    """Return mounts, files, bytes and seconds of this work, of all drives and of each."""
    each = [_sums([one for one in work if one["drive"] == number]) for number in range(drives)]
    return _sums(work) | {"drives": each}


def _sums(work: list[dict[str, Any]]) -> dict[str, Any]:
    parts = ("mount_seconds", "locate_seconds", "transfer_seconds")
    sums: dict[str, Any] = {part: sum(one[part] for one in work) for part in parts}
    return {
        "mounts": sum(one["mount_seconds"] > 0.0 for one in work),
        "files": len(work),
        "bytes": sum(one["bytes"] for one in work),
        "busy_seconds": sum(sums.values()),
        **sums,
    }


def _spread(text: str) -> float:
    """A number between two thirds and four thirds, which the text determines."""
    return 2.0 / 3.0 * (1.0 + zlib.crc32(text.encode()) / 2**32)


def _adler32(path: Path) -> str:
    value = 1
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            value = zlib.adler32(part, value)
    return f"adler32:{value:08x}"


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def main(arguments: list[str] | None = None) -> int:
    """Carry out a request, or print counters."""
    parser = argparse.ArgumentParser(prog="python -m femtobarn_testbed.tape_library", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the library is; it must exist")
    for name, value in Play._field_defaults.items():
        parser.add_argument(_option(name), type=type(value), default=value, help=f"({value:g})")
    text = "answer: a request on the standard input; counters: print the work of the drives"
    parser.add_argument("action", nargs="?", choices=("answer", "counters"), default="answer", help=text)
    chosen = vars(parser.parse_args(arguments))
    folder, action = chosen.pop("folder"), chosen.pop("action")
    library = Library(folder, Play(**chosen))
    if action == "counters":
        print(json.dumps(library.counters()))
        return 0
    try:
        answer = library.answer(json.loads(sys.stdin.readline()))
    except (OSError, sqlite3.Error) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())

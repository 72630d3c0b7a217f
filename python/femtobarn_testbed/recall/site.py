"""A federation whose files are only in a simulated tape library.

Invariants:

1. Files are written to the tapes in the order of their numbers, but for those that are written at once
   (`AT_ONCE`), without playing time.
2. :meth:`TapeSite.empty` leaves no file on the disk. Tapes stay in their drives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import femtobarn as fb

from ..data import Item, Payloads
from ..tape_library import Library, Play

__all__ = ["TapeSite"]

STORE = "tape"
AT_ONCE = 4
"""Files that are migrated and evicted at once; most of the time goes into starting commands."""


class TapeSite:
    """A federation, the files of which are on tapes.

    Parameters
    ----------
    folder
        An empty folder for both.
    files, file_bytes
        Number of databases, and payload of each.
    tapes
        Tapes that they fill evenly.
    byte_scale
        Bytes of the library that a byte of a file counts as.
    drives
        Drives of the library.
    """

    def __init__(
        self, folder: Path, files: int, file_bytes: int, tapes: int, byte_scale: float, drives: int
    ) -> None:
        self.names = [f"raw-{number:05}" for number in range(files)]
        self.federation = fb.create(folder / "lhc.fed")
        payloads = Payloads(seed=1)
        for name in self.names:
            with self.federation.transaction() as txn:
                items = txn.database(name, create=True).container("items", Item, create=True)
                items.append(Item(number=0, payload=payloads.one(file_bytes)))
            self.federation.seal(name)
        size = max(Path(one.path).stat().st_size for one in self.federation.where())
        # Half a file more than is needed, so that rounding does not begin another tape.
        each = -(-files // tapes) + 0.5
        (folder / "library").mkdir()
        full = each * size * byte_scale
        play = Play(drives=drives, byte_scale=byte_scale, tape_bytes=full, time_scale=0.0)
        self.tape_library = Library(folder / "library", play)

    def migrate(self, progress: Callable[[str], None]) -> None:
        """Write all files to the tapes."""
        self._play(self.tape_library.play)
        done = self._each(lambda name: self.federation.migrate(name, STORE))
        for count, _ in enumerate(done, 1):
            progress(f"writing files to tapes, {count} of {len(self.names)}")

    def empty(self, play: Play) -> None:
        """Remove all files from the disk, and let the library play like this from now on."""
        for _ in self._each(self.federation.evict):
            pass
        self._play(play._replace(tape_bytes=self.tape_library.play.tape_bytes))

    def work(self, since: float) -> list[dict[str, Any]]:
        """Return the work of the drives since a time by the clock; times are simulated seconds since then."""
        scale = self.tape_library.play.time_scale
        return [one | {"began": (one["began"] - since) / scale} for one in self.tape_library.work(since)]

    def _each(self, move: Callable[[str], Any]) -> Iterable[Any]:
        """Move all files, several at once, which begin in the order of their numbers."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(move, self.names)

    def _play(self, play: Play) -> None:
        self.tape_library = self.tape_library._replace(play=play)
        (Path(self.federation.path) / "storage.toml").write_text(self.tape_library.settings(STORE))

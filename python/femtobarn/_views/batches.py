"""Batches of entries: a range read part by part, with read-ahead of one part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import current_thread
from typing import TYPE_CHECKING

from .._bars import ProgressOption, check_progress_option, objects_bar
from .._exceptions import InvalidError
from .._sizes import bytes_of_size

if TYPE_CHECKING:
    from .._lazy import ak

__all__ = ["read_in_batches"]

FIRST_STEP_ENTRIES = 1000
"""Entries in the first batch of an iteration by bytes; each batch gives the size of an entry for the next."""
READER = "femtobarn-read-ahead"
"""How the names of threads begin that read ahead."""


def read_in_batches(
    read: Callable[[range], ak.Array],
    window: range,
    step_size: int | str,
    progress: ProgressOption = None,
    title: str = "",
) -> Iterator[ak.Array]:
    """Return the batches of a range.

    Parameters
    ----------
    read
        Reads a part of the range. It is called in another thread if there are several.
    step_size
        Entries of a batch, or its size in memory, such as ``"64 MB"``.
    progress, title
        As for :func:`objects_bar`.

    Raises
    ------
    InvalidError
        At once if `step_size` is less than one entry or not a size.
    """
    step, target = step_size if isinstance(step_size, int) else FIRST_STEP_ENTRIES, None
    if not isinstance(step_size, int):
        try:
            target = bytes_of_size(step_size)
        except InvalidError as error:
            raise type(error)(f"{error}, or a number of entries") from None
    if step < 1:
        raise InvalidError(f"invalid step_size {step_size}: must be 1 or more entries")
    check_progress_option(progress)
    return _with_progress(_read_ahead(read, window, step, target), len(window), progress, title)


def _with_progress(
    batches: Iterator[tuple[int, ak.Array]], total: int, progress: ProgressOption, title: str
) -> Iterator[ak.Array]:
    """Yield the arrays of batches, and report how many of the entries were read."""
    done = 0
    with objects_bar(progress, title) as advance:
        for entries, array in batches:
            done += entries
            if advance is not None:
                advance(done, total)
            yield array


def _read_ahead(
    read: Callable[[range], ak.Array], window: range, step: int, target: int | None
) -> Iterator[tuple[int, ak.Array]]:
    """Yield batches of `step` entries, or of about `target` bytes, with the number of entries that were read.

    A thread reads the next one meanwhile.
    """
    if 0 < len(window) <= step:
        yield len(window), read(window)
        return
    from concurrent.futures import ThreadPoolExecutor  # Programs that read few objects do without.

    reader = ThreadPoolExecutor(1, READER)
    try:
        part = window[:step]
        reading = reader.submit(read, part)
        while len(part):
            array, entries = reading.result(), len(part)
            if target is not None:
                step = _next_step(target, array.nbytes, entries)
            part = range(part.stop, min(part.stop + step, window.stop))
            if len(part):
                reading = reader.submit(read, part)
            yield entries, array
    finally:
        # Garbage is collected in any thread: an iterator that was left may end in the one that reads for it.
        reader.shutdown(wait=not current_thread().name.startswith(READER))


def _next_step(target: int, size: int, entries: int) -> int:
    """Return the entries that fill `target` bytes, if the next ones are as large as those just read."""
    per_entry = max(size, 1) / entries
    # At most ten times as many: the first entries may be smaller than the rest.
    return max(1, min(int(target / per_entry), entries * 10))

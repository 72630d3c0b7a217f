"""Files of text, plain or compressed by gzip, opened as a stream of bytes that counts the bytes read."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .._exceptions import CorruptError, DeniedError, FemtobarnError, StorageError

__all__ = ["TextStream", "reading", "text_stream"]

GZIP_MAGIC = b"\x1f\x8b"


class TextStream:
    """The uncompressed bytes of a file, and the number of bytes of the file that were read for them.

    Attributes
    ----------
    file
        Yields the uncompressed bytes.
    """

    def __init__(self, raw: io.BufferedReader, file: IO[bytes]) -> None:
        self.file = file
        self._raw = raw
        self._size = os.fstat(raw.fileno()).st_size

    def position(self) -> int:
        """Return the number of bytes of the file that were read; readers close it at its end."""
        return self._size if self._raw.closed else self._raw.tell()


@contextmanager
def text_stream(path: Path) -> Iterator[TextStream]:
    """Open a file; its first bytes decide whether it is compressed, not its name.

    Raises
    ------
    CorruptError, DeniedError, StorageError
        As for :func:`reading`, in whose block the stream has to be read, too.
    """
    with reading(path):
        raw = path.open("rb")
    with raw:
        with reading(path):
            is_compressed = raw.peek(2)[:2] == GZIP_MAGIC
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if is_compressed else raw  # type: ignore[assignment]
        yield TextStream(raw, file)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Translate the errors of reading a file.

    Raises
    ------
    CorruptError
        If the compressed bytes are damaged, or end early.
    DeniedError
        If the file may not be read.
    StorageError
        If the operating system cannot read it.
    """
    try:
        yield
    except FemtobarnError:
        raise
    except PermissionError as error:
        raise DeniedError(f"{path} may not be read: {error.strerror}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptError(f"{path} is damaged, or was not written to its end: {error}") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error

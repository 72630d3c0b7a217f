"""The exceptions of Femtobarn: one tree, each with a stable ``kind``.

A kind stands for the caller's reaction, not for the error's origin: retry the transaction (``conflict``,
``busy``, ``unavailable``), get permission (``denied``), correct the call (``invalid``, ``not-found``,
``exists``), open it again (``closed``), restore the file (``corrupt``), look after the disk (``storage``),
upgrade (``unsupported``), or report a bug (``internal``). Some are also derived from an exception of Python,
so that ``except KeyError`` catches a `NotFoundError` and ``except ValueError`` an `InvalidError`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ._conditions.merges import Conflict

__all__ = [
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "DeniedError",
    "ExistsError",
    "FemtobarnError",
    "InternalError",
    "InvalidError",
    "MergeConflictError",
    "NotFoundError",
    "StorageError",
    "UnavailableError",
    "UnsupportedError",
    "WrongTypeError",
]


class FemtobarnError(Exception):
    """Base of all errors that Femtobarn raises.

    Attributes
    ----------
    kind : str
        The kind of the error; the same word in Python, in Rust and in ``--json`` output.

    Examples
    --------
    >>> import femtobarn as fb
    >>> issubclass(fb.NotFoundError, KeyError), fb.NotFoundError.kind
    (True, 'not-found')
    """

    kind: ClassVar[str] = "internal"

    def __str__(self) -> str:
        # KeyError shows the repr of its argument.
        return str(self.args[0]) if self.args else self.__class__.__name__


class ConflictError(FemtobarnError):
    """Another transaction was the first to commit to a container that this one wrote or depends on."""

    kind = "conflict"


class NotFoundError(FemtobarnError, KeyError):
    """A federation, database, container, class, field or object does not exist."""

    kind = "not-found"


class ExistsError(FemtobarnError):
    """The name is taken."""

    kind = "exists"


class BusyError(FemtobarnError):
    """Another writer holds the lock; the text names the holder, and since when it holds the lock."""

    kind = "busy"


class UnavailableError(FemtobarnError, ConnectionError):
    """The server of a federation does not answer; the text names the server and the attempts.

    If the connection was lost during a commit, the text states that the outcome is unknown.
    """

    kind = "unavailable"


class DeniedError(FemtobarnError, PermissionError):
    """The caller lacks a permission: a token was refused or has expired, or a folder is read-only."""

    kind = "denied"


class InvalidError(FemtobarnError, ValueError):
    """The call asks for something impossible, such as storing text in a number."""

    kind = "invalid"


class MergeConflictError(InvalidError):
    """A branch and the series that it is merged into have both changed the same; nothing was merged.

    Attributes
    ----------
    conflicts : list of Conflict
        The ranges that both have changed.
    """

    def __init__(self, text: str, conflicts: list[Conflict] | None = None) -> None:
        super().__init__(text)
        self.conflicts = conflicts or []


class WrongTypeError(InvalidError, TypeError):
    """An argument has a type that the call does not accept, such as a function instead of a text."""


class CorruptError(FemtobarnError):
    """Bytes of a file are damaged, truncated or of another format."""

    kind = "corrupt"


class UnsupportedError(FemtobarnError):
    """The data are sound, but need a feature or a version that this release lacks."""

    kind = "unsupported"


class ClosedError(FemtobarnError):
    """The federation or transaction has been closed, or belongs to another process."""

    kind = "closed"


class StorageError(FemtobarnError, OSError):
    """The operating system refused a read or a write, for instance on a full disk."""

    kind = "storage"


class InternalError(FemtobarnError):
    """A bug in Femtobarn; please report it with the text of the error."""

    kind = "internal"


BY_KIND: dict[str, type[FemtobarnError]] = {
    error.kind: error
    for error in (
        ConflictError,
        NotFoundError,
        ExistsError,
        BusyError,
        UnavailableError,
        DeniedError,
        InvalidError,
        CorruptError,
        UnsupportedError,
        ClosedError,
        StorageError,
        InternalError,
    )
}
"""The exception of each kind; the extension module raises these."""


def near_misses(name: str, candidates: Iterable[str], *, further: Iterable[str] = (), limit: int = 3) -> str:
    """Return the end of an error text that suggests similar names.

    Parameters
    ----------
    candidates
        The existing names, which are listed if none is similar.
    further
        More existing names, which are suggested but not listed.
    limit
        Most names to suggest.

    Examples
    --------
    >>> near_misses("trakcs", ["tracks", "clusters"])
    "; did you mean 'tracks'?"
    >>> near_misses("x", ["tracks", "clusters"])
    '; there are clusters, tracks'
    """
    known = sorted(set(candidates))
    spelt: dict[str, list[str]] = {}
    for each in sorted({*known, *further}):
        spelt.setdefault(each.lower(), []).append(each)
    alike = difflib.get_close_matches(name.lower(), spelt, n=limit, cutoff=0.6)
    close = [each for word in alike for each in spelt[word]][:limit]
    if close:
        return f"; did you mean {' or '.join(repr(match) for match in close)}?"
    if not known:
        return "; there are none"
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f"; there {'is' if len(known) == 1 else 'are'} {shown}"


def missing_file(path: Path, pattern: str) -> NotFoundError:
    """Return the error of a file that does not exist, which names similar files of its folder.

    Parameters
    ----------
    pattern
        The files that could have been meant, such as ``"*.root"``.
    """
    folder = path.parent.absolute()
    others = [each.name for each in folder.glob(pattern)]
    if others:
        hint = near_misses(path.name, others)
    else:
        hint = f"; {folder} has no file {pattern}" if folder.is_dir() else f"; nor does the folder {folder}"
    return NotFoundError(f"file {path} does not exist{hint}")


def is_text(text: str) -> bool:
    """Tell whether UTF-8, in which files and catalogues are written, can hold a text."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(text: str, what: str) -> None:
    """Raise an error if a name or message is not a text that UTF-8 can hold.

    Examples
    --------
    >>> check_text("caf\\udce9", "where")
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.InvalidError: where 'caf\\udce9' has half of a surrogate pair, ...
    """
    if not isinstance(text, str):
        raise WrongTypeError(f"{what} must be a string, not {text!r}")
    if not is_text(text):
        raise InvalidError(f"{what} {text!r} has half of a surrogate pair, which UTF-8 cannot hold")


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text, or raise an error if no file can have it.

    Examples
    --------
    >>> path_text("caf\\ud800")
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.InvalidError: path 'caf\\ud800' has half of a surrogate pair, ...
    """
    text = os.fspath(path)
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidError(
            f"path {text!r} has half of a surrogate pair, which no name of a file can have"
        ) from None
    return text


def check_progress(progress: object, arguments: str) -> None:
    """Raise an error if the progress callback of a long operation cannot be called.

    `arguments` are the names of the callback's arguments, at least two, such as ``"done, total"``.
    """
    if progress is not None and not callable(progress):
        raise WrongTypeError(
            f"progress must be a function of {arguments}, such as "
            f"lambda {arguments}: print({arguments.split(', ')[-2]}), not {progress!r}"
        )

"""The exceptions of Femtobarn: one tree, each with a stable ``kind``.

A kind says what the caller should do, not where the error came from: try the transaction again
(``conflict``, ``busy``, ``unavailable``), get the right to (``denied``), correct the call (``invalid``,
``not-found``, ``exists``), restore the file (``corrupt``), or upgrade (``unsupported``). Where Python has an
exception for the same situation, ours is one of it too, so that ``except KeyError`` and ``except
ValueError`` do what they say.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

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
    "NotFoundError",
    "StorageError",
    "UnavailableError",
    "UnsupportedError",
    "WrongTypeError",
]


class FemtobarnError(Exception):
    """Base of all errors that Femtobarn raises on its own account.

    Attributes
    ----------
    kind : str
        What the caller can do about it; the same word in Python, in Rust and in ``--json`` output.

    Examples
    --------
    >>> import femtobarn as fb
    >>> issubclass(fb.NotFoundError, KeyError), fb.NotFoundError.kind
    (True, 'not-found')
    """

    kind: ClassVar[str] = "internal"

    def __str__(self) -> str:
        # KeyError would print the repr of its argument.
        return str(self.args[0]) if self.args else self.__class__.__name__


class ConflictError(FemtobarnError):
    """Another transaction committed first to a container that this one wrote or relied on."""

    kind = "conflict"


class NotFoundError(FemtobarnError, KeyError):
    """A federation, database, container, class, field or object does not exist."""

    kind = "not-found"


class ExistsError(FemtobarnError):
    """The name is taken already."""

    kind = "exists"


class BusyError(FemtobarnError):
    """Another writer holds the lock; the text says who and since when."""

    kind = "busy"


class UnavailableError(FemtobarnError, ConnectionError):
    """The server of a federation does not answer; the text says which and what was tried.

    Where it was lost while a transaction was published, the text says that the outcome is not known.
    """

    kind = "unavailable"


class DeniedError(FemtobarnError, PermissionError):
    """The caller lacks a right: a token that is refused or expired, or a folder that may only be read."""

    kind = "denied"


class InvalidError(FemtobarnError, ValueError):
    """The call asks for something impossible, such as storing text in a number."""

    kind = "invalid"


class WrongTypeError(InvalidError, TypeError):
    """An argument is of a type that the call cannot take, such as a function where text is wanted."""


class CorruptError(FemtobarnError):
    """Bytes in a file are damaged, truncated or not of the expected format."""

    kind = "corrupt"


class UnsupportedError(FemtobarnError):
    """The data are sound, but need a feature or a version that this release does not have."""

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
"""The exception of each kind; the extension module raises by it."""


def near_misses(name: str, candidates: Iterable[str], *, further: Iterable[str] = (), limit: int = 3) -> str:
    """Return the end of an error text that names what the caller may have meant.

    Parameters
    ----------
    candidates
        What there is, listed where nothing is like the name.
    further
        What else may be meant, but is not listed.

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


def is_text(text: str) -> bool:
    """Tell whether a text is one that UTF-8 can hold, in which files and catalogues are written."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(text: str, what: str) -> None:
    """Refuse names and messages that are no text.

    Examples
    --------
    >>> check_text("caf\\udce9", "where")
    Traceback (most recent call last):
    ...
    femtobarn._exceptions.InvalidError: where 'caf\\udce9' has half a surrogate pair, which is no character
    """
    if not isinstance(text, str):
        raise WrongTypeError(f"{what} {text!r} is not text")
    if not is_text(text):
        raise InvalidError(f"{what} {text!r} has half a surrogate pair, which is not a character")


def check_progress(progress: object, arguments: str) -> None:
    """Refuse what cannot be called to be told how far a long operation is."""
    if progress is not None and not callable(progress):
        raise WrongTypeError(
            f"progress is a function that is called with {arguments}, such as "
            f"lambda {arguments}: print({arguments.split(', ')[-2]}), not {progress!r}"
        )

"""The error of reports without Matplotlib, which draws their pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from femtobarn import UnsupportedError

__all__ = ["missing_matplotlib_told"]


@contextmanager
def missing_matplotlib_told() -> Iterator[None]:
    """Import modules that draw; if Matplotlib is missing, the error names the extra to install.

    Raises
    ------
    UnsupportedError
        If Matplotlib is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "matplotlib":
            raise
        raise UnsupportedError(
            "pictures need Matplotlib, which is not installed: pip install 'femtobarn[plots]'"
        ) from error

"""Federations from backups, or from the files of their databases alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ._federations import Federation
from ._femtobarn import identify as _identify
from ._femtobarn import rebuild_catalogue as _rebuild_catalogue
from ._femtobarn import restore as _restore
from ._upkeep import Progress, paths

__all__ = ["identify", "rebuild_catalogue", "restore"]


def restore(
    backups: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> Federation:
    """Make a federation from a full backup and the incremental backups after it, in their order.

    Every byte is verified.

    Parameters
    ----------
    backups
        Folder of the full backup, or a list of it and of the incremental backups.
    folder
        Folder to make.
    progress
        Called with the step, its subject, the bytes done and the bytes in all.

    Raises
    ------
    CorruptError
        If a backup is damaged.
    InvalidError
        If a backup does not continue the one before it.
    """
    return Federation(_restore(paths(backups), os.fspath(folder), progress))


def rebuild_catalogue(
    path: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Rebuild the catalogue of a federation from the files in its folder.

    Objects, OIDs, classes, names and commits are recovered from the databases; tags, retention and the name
    of the federation from the file `retained.json`, if it is there. Files attached from outside the folder
    have to be attached again. The old catalogue is kept under another name. No other process may have the
    federation open.

    Parameters
    ----------
    path
        Folder of the federation.
    name
        Name of the federation, by default the one it had, or that of the folder.
    progress
        Called with the step, its subject, the bytes done and the bytes in all.

    Returns
    -------
    dict
        The numbers of recovered `databases`, `containers`, `versions`, `commits` and `tags`, the newest
        commit as `head`, the files that were `left_out`, and the path of the `old_catalogue`.
    """
    return _rebuild_catalogue(os.fspath(path), name, progress)


def identify(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Identify a file: a database, with its federation and state, or another ROOT file."""
    return _identify(os.fspath(path))

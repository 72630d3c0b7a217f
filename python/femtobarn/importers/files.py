"""Opening a ROOT file and finding the tree in it, with an error for everything that can be wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import uproot

from femtobarn._exceptions import (
    CorruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
    near_misses,
)

__all__ = ["find_tree"]

MAGIC = b"root"
BIG_FILE_VERSION = 1_000_000
"""From this version on the positions in the file header have 8 bytes."""

USUAL_NAMES = ("Events", "events", "CollectionTree", "Delphes")
"""Taken when a file has several trees and none is asked for."""


def find_tree(path: str | os.PathLike[str], tree: str | None) -> Any:
    """Open a file and the tree in it.

    Parameters
    ----------
    path
        A file, or a URL that fsspec understands.
    tree
        Its name; without one the only tree, or the one with a usual name.

    Returns
    -------
    An uproot TTree.
    """
    location = os.fspath(path)
    if "://" not in location:
        _check_header(Path(location))
    try:
        file = uproot.open({location: None})
        classes: dict[str, str] = file.classnames(cycle=False)
    except Exception as error:
        raise CorruptError(f"{location} is not readable as a ROOT file: {_first_line(error)}") from error
    name = _choose(location, classes, tree)
    try:
        return file[name]
    except Exception as error:
        raise CorruptError(f"{location}: tree {name!r} is not readable: {_first_line(error)}") from error


def _check_header(path: Path) -> None:
    """Refuse what is no ROOT file or lacks its end, before the parser trips over it."""
    if path.is_dir():
        raise InvalidError(f"{path} is a folder; name one ROOT file")
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except FileNotFoundError as error:
        others = [other.name for other in path.parent.glob("*.root")]
        raise NotFoundError(f"no file {path}{near_misses(path.name, others)}") from error
    if not header.startswith(MAGIC):
        raise CorruptError(f"{path} is not a ROOT file: it begins with {header[:4]!r} instead of {MAGIC!r}")
    wide = int.from_bytes(header[4:8], "big", signed=True) >= BIG_FILE_VERSION
    end = int.from_bytes(header[12:20] if wide else header[12:16], "big")
    size = path.stat().st_size
    if size < end:
        raise CorruptError(f"{path} is truncated: its header says {end} bytes, there are {size}")


def _choose(location: str, classes: dict[str, str], tree: str | None) -> str:
    trees = [name for name, kind in classes.items() if kind in ("TTree", "TNtuple", "TNtupleD")]
    ntuples = [name for name, kind in classes.items() if kind == "ROOT::RNTuple"]
    if tree is None:
        return _choose_alone(location, trees, ntuples)
    if tree in trees:
        return tree
    if tree in ntuples:
        raise InvalidError(f"{location}: {tree!r} is an RNTuple; attach the file, it need not be imported")
    if tree in classes:
        raise InvalidError(f"{location}: {tree!r} is a {classes[tree]}, not a tree")
    raise NotFoundError(f"{location} has no tree {tree!r}{near_misses(tree, trees)}")


def _choose_alone(location: str, trees: list[str], ntuples: list[str]) -> str:
    if len(trees) == 1:
        return trees[0]
    for name in USUAL_NAMES:
        if name in trees:
            return name
    if trees:
        raise InvalidError(f"{location} has several trees ({', '.join(sorted(trees))}); name one")
    if ntuples:
        raise InvalidError(f"{location} holds RNTuples; attach the file, it need not be imported")
    raise UnsupportedError(f"{location} holds no tree")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

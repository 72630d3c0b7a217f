"""ROOT files, and the trees in them, with an error for each way in which a file can be unreadable."""

from __future__ import annotations

import functools
import gc
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import uproot

from femtobarn._exceptions import (
    CorruptError,
    DeniedError,
    InvalidError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    missing_file,
    near_misses,
)

__all__ = ["TreeFile", "mapped", "uncollected"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

MAGIC = b"root"
BIG_FILE_VERSION = 1_000_000
"""From this version on, positions in the file header have 8 bytes."""

USUAL_NAMES = ("Events", "events", "CollectionTree", "Delphes")
"""Names of the main tree of a file with several trees, in the order of preference."""

TREES = ("TTree", "TNtuple", "TNtupleD")


def uncollected(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function that runs without garbage collection.

    uproot makes millions of long-lived objects for a tree with thousands of branches. Garbage collection
    would take a quarter of the time of opening and reading the tree.
    """

    @functools.wraps(function)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return wrapped


class TreeFile:
    """A ROOT file with trees.

    Parameters
    ----------
    path
        A file, or a URL that fsspec understands.

    Attributes
    ----------
    uuid
        UUID that ROOT or uproot gave the file; copies have the same. "" if there is none.
    data
        Bytes of the file; None if it is remote.
    trees
        Names of its trees, including their folders.
    others
        Class of each other object in the file, by name, without folders.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.location = os.fspath(path)
        is_local = "://" not in self.location
        if is_local:
            _check_header(Path(self.location))
        try:
            # Local files are mapped, because uproot's default sends each range of bytes through a thread.
            handler = {"handler": uproot.MemmapSource} if is_local else {}
            self._file = uproot.open({self.location: None}, array_cache=None, **handler)
            classes: dict[str, str] = self._file.classnames(cycle=False)
            uuid = self._file.file.uuid
        except Exception as error:
            text = f"{self.location} cannot be read as a ROOT file: {_first_line(error)}"
            raise CorruptError(text) from error
        self.data = mapped(self.location) if is_local else None
        self.uuid = str(uuid) if uuid is not None and uuid.int else ""
        self.trees = [name for name, kind in classes.items() if kind in TREES]
        folders = ("TDirectory", "TDirectoryFile")
        self.others = {
            name: kind for name, kind in classes.items() if kind not in TREES and kind not in folders
        }

    def tree(self, name: str) -> Any:
        """Return the TTree of uproot of this name."""
        if name not in self.trees:
            self._refuse(name)
        try:
            return self._file[name]
        except Exception as error:
            raise CorruptError(
                f"{self.location}: tree {name!r} cannot be read: {_first_line(error)}"
            ) from error

    def usual_tree(self) -> str:
        """Return the name of the only tree, or of the one with a usual name."""
        self.require_trees()
        if len(self.trees) == 1:
            return self.trees[0]
        for name in USUAL_NAMES:
            if name in self.trees:
                return name
        raise InvalidError(f"{self.location} has several trees ({', '.join(sorted(self.trees))}); name one")

    def require_trees(self) -> None:
        """Raise an error if the file has no trees."""
        if self.trees:
            return
        if "ROOT::RNTuple" in self.others.values():
            raise InvalidError(
                f"{self.location} has RNTuples and no trees; attach the file, or import it (import_file)"
            )
        raise UnsupportedError(f"{self.location} has no tree")

    def _refuse(self, name: str) -> None:
        kind = self.others.get(name)
        if kind == "ROOT::RNTuple":
            raise InvalidError(
                f"{self.location}: {name!r} is an RNTuple; attach the file, or import it (import_file)"
            )
        if kind is not None:
            raise InvalidError(f"{self.location}: {name!r} is a {kind}, not a tree")
        raise NotFoundError(f"{self.location} has no tree {name!r}{near_misses(name, self.trees)}")


def _check_header(path: Path) -> None:
    """Raise an error if a file is not a ROOT file, or is truncated, before uproot parses it."""
    if path.is_dir():
        raise InvalidError(f"{path} is a folder; give a ROOT file")
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except FileNotFoundError as error:
        raise missing_file(path, "*.root") from error
    except PermissionError as error:
        raise DeniedError(f"{path} may not be read: {error.strerror}") from error
    if not header.startswith(MAGIC):
        raise CorruptError(f"{path} is not a ROOT file: it begins with {header[:4]!r} instead of {MAGIC!r}")
    wide = int.from_bytes(header[4:8], "big", signed=True) >= BIG_FILE_VERSION
    end = int.from_bytes(header[12:20] if wide else header[12:16], "big")
    size = path.stat().st_size
    if size < end:
        raise CorruptError(f"{path} is truncated: it has {size} of the {end} bytes in its header")


def mapped(location: str) -> memoryview:
    """Return the bytes of a local file, mapped into memory."""
    try:
        with Path(location).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise StorageError(f"{location} can no longer be opened: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

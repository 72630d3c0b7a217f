"""Opening a ROOT file and finding the trees in it, with an error for everything that can be wrong."""

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
    near_misses,
)

__all__ = ["TreeFile", "mapped", "uncollected"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

MAGIC = b"root"
BIG_FILE_VERSION = 1_000_000
"""From this version on the positions in the file header have 8 bytes."""

USUAL_NAMES = ("Events", "events", "CollectionTree", "Delphes")
"""Taken when a file has several trees and none is asked for."""

TREES = ("TTree", "TNtuple", "TNtupleD")


def uncollected(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Have a function run without the collection of garbage.

    uproot makes millions of objects for a tree with thousands of branches, which stay: looking through them
    time and again takes a quarter of the time of opening and reading it.
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
        What ROOT or uproot gave the file when it was made: copies have it too; "" if it has none.
    data
        Its bytes, if it is a local file.
    trees
        Names of its trees, with the folders that they are in.
    others
        What else is in it, apart from folders: the class of each name.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.location = os.fspath(path)
        is_local = "://" not in self.location
        if is_local:
            _check_header(Path(self.location))
        try:
            # Local files are mapped: uproot's default asks a thread for each range of bytes.
            handler = {"handler": uproot.MemmapSource} if is_local else {}
            self._file = uproot.open({self.location: None}, array_cache=None, **handler)
            classes: dict[str, str] = self._file.classnames(cycle=False)
            uuid = self._file.file.uuid
        except Exception as error:
            text = f"{self.location} is not readable as a ROOT file: {_first_line(error)}"
            raise CorruptError(text) from error
        self.data = mapped(self.location) if is_local else None
        self.uuid = str(uuid) if uuid is not None and uuid.int else ""
        self.trees = [name for name, kind in classes.items() if kind in TREES]
        folders = ("TDirectory", "TDirectoryFile")
        self.others = {
            name: kind for name, kind in classes.items() if kind not in TREES and kind not in folders
        }

    def tree(self, name: str) -> Any:
        """The uproot TTree of this name."""
        if name not in self.trees:
            self._refuse(name)
        try:
            return self._file[name]
        except Exception as error:
            raise CorruptError(
                f"{self.location}: tree {name!r} is not readable: {_first_line(error)}"
            ) from error

    def usual_tree(self) -> str:
        """The name of the only tree, or of the one with a usual name."""
        self.require_trees()
        if len(self.trees) == 1:
            return self.trees[0]
        for name in USUAL_NAMES:
            if name in self.trees:
                return name
        raise InvalidError(f"{self.location} has several trees ({', '.join(sorted(self.trees))}); name one")

    def require_trees(self) -> None:
        """Refuse a file without trees."""
        if self.trees:
            return
        if "ROOT::RNTuple" in self.others.values():
            raise InvalidError(f"{self.location} holds RNTuples; attach the file, it need not be imported")
        raise UnsupportedError(f"{self.location} holds no tree")

    def _refuse(self, name: str) -> None:
        kind = self.others.get(name)
        if kind == "ROOT::RNTuple":
            raise InvalidError(
                f"{self.location}: {name!r} is an RNTuple; attach the file, it need not be imported"
            )
        if kind is not None:
            raise InvalidError(f"{self.location}: {name!r} is a {kind}, not a tree")
        raise NotFoundError(f"{self.location} has no tree {name!r}{near_misses(name, self.trees)}")


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
    except PermissionError as error:
        raise DeniedError(f"{path} may not be read: {error.strerror}") from error
    if not header.startswith(MAGIC):
        raise CorruptError(f"{path} is not a ROOT file: it begins with {header[:4]!r} instead of {MAGIC!r}")
    wide = int.from_bytes(header[4:8], "big", signed=True) >= BIG_FILE_VERSION
    end = int.from_bytes(header[12:20] if wide else header[12:16], "big")
    size = path.stat().st_size
    if size < end:
        raise CorruptError(f"{path} is truncated: its header says {end} bytes, there are {size}")


def mapped(location: str) -> memoryview:
    """The bytes of a local file."""
    try:
        with Path(location).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise StorageError(f"{location} is not there any more: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

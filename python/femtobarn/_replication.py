"""Copies of a federation that follow it, and their promotion."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from . import _femtobarn
from ._upkeep import seconds

__all__ = [
    "Follower",
    "FollowerState",
    "Promotion",
    "follow",
    "forget_former_leader",
    "inform_former_leader",
    "promote",
]


@dataclass(frozen=True)
class FollowerState:
    """The state of a follower after a step."""

    csn: int
    """The newest commit of the copy."""
    leader_csn: int
    """The newest commit of the leader when it was asked."""
    bytes: int
    """Bytes of files that the step copied."""
    damaged_pages: int
    """Pages that the step copied although their checksum is wrong at the leader, too."""

    @property
    def is_current(self) -> bool:
        """Whether the copy has everything that the leader had."""
        return self.csn == self.leader_csn


@dataclass(frozen=True)
class Promotion:
    """The result of a promotion."""

    csn: int
    """The newest commit of the new leader."""
    generation: int
    """The number of promotions of followers so far."""
    untold_leader: str | None
    """URL of the old leader, if it did not answer; ``femtobarn serve`` notifies it as soon as it does."""
    unmarked: list[str]
    """Stores that could not be marked, with the reasons; a former leader may still remove objects there."""
    unsound: list[str]
    """Open databases with damaged or missing files, each with the reason; repair them first."""


class Follower:
    """A copy of a federation that follows its leader; `follow` makes one. Use it in a ``with`` block."""

    def __init__(self, handle: _femtobarn.FollowerHandle, folder: str) -> None:
        self._handle = handle
        self.folder = folder
        """The folder of the copy, which can be read at any time, as every federation."""

    def step(self, wait: float = 0.0) -> FollowerState:
        """Bring the copy to a newer commit, and return its state.

        The first steps of a long history have some thousand commits each.

        Parameters
        ----------
        wait
            Seconds to wait for a commit if the copy has everything.

        Raises
        ------
        UnavailableError
            If the leader does not answer; a later step may succeed.
        ConflictError
            If the leader has another history than this copy, which must be made anew.
        DeniedError
            If the copy was promoted, or its leader does not lead the federation any more.
        StorageError
            If files cannot be written here.
        """
        return FollowerState(*self._handle.step(seconds(wait)))

    def catch_up(self) -> FollowerState:
        """Take steps until the copy has everything that the leader had at the last one.

        Raises
        ------
        FemtobarnError
            As `step`.
        """
        while not (step := self.step()).is_current:
            pass
        return step

    def close(self) -> None:
        """End following. The copy stays, and `follow` continues it."""
        self._handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def follow(
    url: str,
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    timeout: float = 30.0,
    reader_patience: float = 60.0,
) -> Follower:
    """Copy a federation from its server, and keep the copy up to date.

    The copy is a federation of its own folder, with all files, that accepts no changes but its leader's: at
    every moment it is a complete, older state of the federation. It can be read, served and backed up.

    Parameters
    ----------
    url
        URL of the federation at its leader, such as ``root://daq:1094//lhc.fed``. The URL of another follower
        works, too.
    folder
        Folder of the copy: empty, not there yet, or an earlier copy, which is continued.
    name
        Where this copy is served, ``root://host:port//lhc.fed``, or another name by which the leader lists
        it.
    timeout
        Seconds to wait for a leader that does not answer.
    reader_patience
        Seconds by which readers of this copy may delay it, if the leader reused space of their snapshots
        while the two were not connected.

    Raises
    ------
    ExistsError
        If the folder holds anything else.
    BusyError
        If another process follows into the folder.
    ConflictError
        If the copy in the folder has another history.
    UnavailableError
        If the leader does not answer.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> copy = tempfile.mkdtemp() + "/copy.fed"
    >>> with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
    ...     with fb.follow(server.url("/lhc.fed"), copy) as follower:
    ...         follower.catch_up().is_current
    True
    """
    handle = _femtobarn.FollowerHandle.open(
        url,
        folder,
        name or f"{os.uname().nodename}:{Path(folder).absolute()}",
        seconds(timeout),
        seconds(reader_patience),
    )
    return Follower(handle, os.fspath(folder))


def promote(folder: str | os.PathLike[str], url: str, *, force: bool = False) -> Promotion:
    """Make a copy the leader of its federation.

    When the copy has all commits, the old leader is made to refuse changes, and the commits that it accepted
    meanwhile are copied: nothing is lost. No process may follow into the folder meanwhile. A promotion that
    failed can be repeated.

    Parameters
    ----------
    folder
        Folder of the copy.
    url
        Where the copy is served from now on; the former leader names it to clients that still ask for
        changes.
    force
        Whether to leave a leader behind that does not answer, or cannot write that it is succeeded
        because its disk is full or has failed. Commits that it accepted and this copy lacks
        are lost, unless they are read from it later; as soon as it comes back, ``femtobarn serve`` on this
        folder stops it. In the folder of a leader that was succeeded: whether it leads again, because the
        promotion cannot be completed.

    Raises
    ------
    DeniedError
        If the folder follows no leader, or this client has no right to promote copies there.
    UnavailableError
        If the leader does not answer, or cannot write, and `force` is not set.
    ConflictError
        If another copy was promoted already, or this one has another history.
    BusyError
        If a process follows into the folder.
    """
    return Promotion(*_femtobarn.promote(folder, url, force))


def inform_former_leader(folder: str | os.PathLike[str]) -> None:
    """Notify the former leader, which a promotion of the federation in `folder` did not reach, of its
    successor.

    Does nothing if every former leader knows.

    Raises
    ------
    UnavailableError
        If it does not answer yet.
    """
    _femtobarn.inform_former_leader(folder, False)


def forget_former_leader(folder: str | os.PathLike[str]) -> None:
    """Forget the leader that a promotion of the federation in `folder` left behind: it is gone for good.

    It will not be notified of its successor any more, and its copies in stores are removed when this
    federation no longer needs them. If it ran again, both would accept changes and remove each other's files.

    Parameters
    ----------
    folder
        Folder of the copy that was promoted.

    Raises
    ------
    DeniedError
        If no leader was left behind.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> try:
    ...     fb.forget_former_leader(fed.path)
    ... except fb.DeniedError as error:
    ...     print(str(error)[:25])
    no leader was left behind
    """
    _femtobarn.inform_former_leader(folder, True)

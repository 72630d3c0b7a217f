"""Scenarios: what clients do, how many there are and what is played, once all settings are put in.

Names of databases and containers are templates: ``{client}`` is the client's number, ``{disk}`` the disk
that it works on, ``{part}`` counts the databases that it has filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Commit", "Content", "Data", "Disks", "Kind", "Play", "Scenario", "Step", "Sweep"]


@dataclass(frozen=True)
class Disks:
    """File systems: each a folder of the server's, as slow as a disk of another age; 0: as fast as it is."""

    count: int
    bytes_per_second: int = 22_000_000
    seeks_per_second: int = 100
    cache_bytes: int = 256_000_000
    """Memory of its server in which each disk's blocks stay for a while."""
    write_behind_seconds: float = 4.0
    """Work that may wait for a disk before those who write wait, too."""

    @property
    def is_slow(self) -> bool:
        """Whether there is anything to be played."""
        return self.bytes_per_second > 0 or self.seeks_per_second > 0

    def name(self, number: int) -> str:
        """Name of the disk that the client of this number works on."""
        return f"disk{number % self.count}"


@dataclass(frozen=True)
class Play:
    """What is played, and how; every result names it."""

    access: str = "server"
    """``"server"``: clients reach the federation by ``root://``; ``"local"``: as a folder."""
    computation: str = "simulated"
    """``"simulated"``: computing is sleeping, as if each client had a CPU; ``"real"``: CPU time is used."""
    compression: float = 1.0
    """Time passes so many times as fast, for computation and for disks."""
    federations: str = "one"
    """``"one"`` for all kinds of clients, or ``"each"`` kind its own, with a server of its own."""
    disks: Disks | None = None


@dataclass(frozen=True)
class Sweep:
    """How many clients there are, how they start and for how long they are watched."""

    clients: tuple[int, ...]
    batch: int = 40
    """Clients that start together, once those before them have begun."""
    start: str = "fork"
    """``"fork"``: from a process that has the package, ``"program"``: each a new interpreter."""
    warm_up_seconds: float = 3.0
    window_seconds: float = 10.0


@dataclass(frozen=True)
class Content:
    """A container that is there before clients begin."""

    objects: int
    size: int = 0
    """Bytes of an object's payload; 0 for tags."""
    tags_of: str = ""
    """Container of the same database to whose objects these are tags: one each."""
    chunk: int = 0
    """Objects that are written before those of the next container, as an acquisition does; 0: all."""


@dataclass(frozen=True)
class Data:
    """Databases that are there before clients begin."""

    database: str
    each: str
    """``"client"``, ``"disk"`` or ``"federation"``: of what there is one each."""
    containers: Mapping[str, Content]
    layout: Mapping[str, Any] = field(default_factory=dict)
    """How they are stored: page_size, cluster_size, compression."""


@dataclass(frozen=True)
class Commit:
    """When a client commits."""

    events: int = 1
    """After so many passes through its loop,"""
    spread: float = 0.0
    """give or take so much of that, at random."""


@dataclass(frozen=True)
class Step:
    """One thing that a client does in each pass through its loop."""

    action: str
    """``"read"``, ``"select"``, ``"write"``, ``"compute"`` or ``"pair"``."""
    target: str = ""
    """The container that is read, selected from or written, or the database that is made and dropped."""
    objects: int = 1
    size: int = 0
    seconds: float = 0.0
    """CPU seconds of computation."""
    fraction: float = 0.0
    """Share of the tags that pass a selection."""
    links: tuple[str, ...] = ()
    """Containers to whose newest objects of this client what is written links."""
    bulk: bool = False
    """All objects of a pass are written by one call."""
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """Clients that do the same."""

    name: str
    loop: tuple[Step, ...]
    share: float = 1.0
    """How many there are, in proportion to those of other kinds."""
    interleave: int = 0
    """After so many objects a part of the computation is due; 0: between steps."""
    commit: Commit = Commit()
    new_database_bytes: int = 0
    """Payload after which a client goes on in a new database; 0: never."""
    reserve_bytes: int = 0
    """Space that a client sets aside in each database before it first writes there; 0: none."""

    @property
    def writes(self) -> bool:
        """Whether these clients need transactions."""
        return any(step.action == "write" for step in self.loop)


@dataclass(frozen=True)
class Scenario:
    """One variant of a workload, with all settings put in."""

    name: str
    play: Play
    sweep: Sweep
    open: Mapping[str, Any]
    data: tuple[Data, ...]
    kinds: tuple[Kind, ...]
    settings: Mapping[str, Any]
    raw_bytes_per_second: float
    """What all disks that are played give together at most, in the workload's own time; 0: no limit."""

    def kind_of(self, client: int) -> Kind:
        """Kind of the client of this number: shares are kept as well as can be for any number of them."""
        total = sum(kind.share for kind in self.kinds)
        counts = [0] * len(self.kinds)
        for number in range(client + 1):
            due = [
                kind.share / total * (number + 1) - count
                for kind, count in zip(self.kinds, counts, strict=True)
            ]
            chosen = due.index(max(due))
            counts[chosen] += 1
        return self.kinds[chosen]

    def ideal_bytes_per_second(self, kind: Kind) -> float | None:
        """Payload that a client moves a second if all its time is computation; None if it has none."""
        seconds = sum(step.seconds for step in kind.loop)
        if not seconds:
            return None
        return sum(step.objects * (step.size or self.size_of(step.target)) for step in kind.loop) / seconds

    def is_shared(self, target: str) -> bool:
        """Whether several clients may read this container that is there before."""
        own = (data for data in self.data if data.each == "client")
        return not any(target.startswith(f"{data.database}/") for data in own)

    def size_of(self, target: str, *, of_tagged: bool = False) -> int:
        """Bytes of the objects of a container that is there before, or of those that its tags are of."""
        for data in self.data:
            for name, content in data.containers.items():
                if target == f"{data.database}/{name}":
                    return data.containers[content.tags_of].size if of_tagged else content.size
        return 0

"""A scenario: one variant of a workload with all settings substituted: clients, their loops, simulation.

Names of databases and containers are templates: ``{client}`` is the client's number, ``{disk}`` the disk
that it works on, ``{part}`` the number of databases that it has filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Commit",
    "Content",
    "Data",
    "Kind",
    "Scenario",
    "SimulatedDisks",
    "Simulation",
    "Step",
    "Stream",
    "Sweep",
]


@dataclass(frozen=True)
class SimulatedDisks:
    """Folders of the server, each throttled to a disk's rates; a rate of 0 is not limited."""

    count: int
    bytes_per_second: int = 22_000_000
    seeks_per_second: int = 100
    cache_bytes: int = 256_000_000
    """Block cache of each disk, in the server's memory."""
    write_behind_seconds: float = 4.0
    """Backlog of a disk, in seconds of its work, from which on writers wait."""

    @property
    def is_slow(self) -> bool:
        """Whether either rate is limited."""
        return self.bytes_per_second > 0 or self.seeks_per_second > 0

    def name(self, number: int) -> str:
        """Name of the disk that the client of this number works on."""
        return f"disk{number % self.count}"


@dataclass(frozen=True)
class Simulation:
    """The simulated parts of a scenario (table ``[play]`` of a workload); every run records them."""

    access: str = "server"
    """``"server"``: clients reach the federation by ``root://``; ``"local"``: as a folder."""
    computation: str = "simulated"
    """``"simulated"``: clients sleep, as if each had a free CPU; ``"real"``: clients use CPU time."""
    compression: float = 1.0
    """Factor by which computation and disks are sped up."""
    federations: str = "one"
    """``"one"`` for all kinds of clients, or ``"each"``: every kind has its own federation and server."""
    disks: SimulatedDisks | None = None
    servers: int = 1
    """Servers, each with a copy of the federation, which clients only read."""
    disks_of: str = "first"
    """``"first"``: only the first server's disks are simulated; ``"all"``: each server has such disks."""
    server_of: str = "request"
    """``"request"``: jobs open all servers, requests go by load; ``"job"``: each job opens the next one."""
    memcached_bytes: int = 0
    """Memory of a memcached beside the server, whose address is ``{memcached}`` in ``[open]``; 0: none."""

    @property
    def servers_with_disks(self) -> int:
        """Servers whose disks are simulated, if any are."""
        return self.servers if self.disks_of == "all" else 1


@dataclass(frozen=True)
class Sweep:
    """The numbers of clients, how clients start, and the length of the window."""

    clients: tuple[int, ...]
    batch: int = 40
    """Clients that start together, once the batch before them is in its loops."""
    start: str = "fork"
    """``"fork"``: from a process that has imported the package; ``"program"``: each a new interpreter."""
    warm_up_seconds: float = 3.0
    window_seconds: float = 10.0


@dataclass(frozen=True)
class Content:
    """A container of the initial data."""

    objects: int
    size: int = 0
    """Bytes of an object's payload; 0 for tags."""
    tags_of: str = ""
    """Container of the same database that these are the tags of, one tag for each object."""
    chunk: int = 0
    """Objects written before the next container has its turn, as in data acquisition; 0: all."""


@dataclass(frozen=True)
class Data:
    """Databases of the initial data, which are written before clients start."""

    database: str
    each: str
    """One database for each ``"client"``, each ``"disk"``, or the ``"federation"``."""
    containers: Mapping[str, Content]
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Storage options of the containers: page_size, cluster_size, compression."""


@dataclass(frozen=True)
class Stream:
    """Events of several files and the conditions that their jobs need (table ``[stream]`` of a workload)."""

    files: int
    events: int
    """Events of all files together."""
    size: int
    """Bytes of an event's payload."""
    days: int
    """The time in which the events of each file were taken."""
    fraction: float
    """Share of the events that jobs have."""
    events_per_job: int
    series: int
    shortest_seconds: float
    """Length of the validities of the first series; those of the others are longer, in equal ratios."""
    longest_seconds: float
    condition_size: int
    """Bytes of a condition's payload."""


@dataclass(frozen=True)
class Commit:
    """When a client commits."""

    events: int = 1
    """Mean number of passes through the loop in a transaction."""
    spread: float = 0.0
    """Largest random deviation from that mean, as a share of it."""


@dataclass(frozen=True)
class Step:
    """One step of a client's loop."""

    action: str
    """``"read"``, ``"select"``, ``"write"``, ``"compute"``, ``"pair"`` or ``"conditions"``."""
    target: str = ""
    """The container that is read, selected from or written, or the database that is created and dropped."""
    objects: int = 1
    size: int = 0
    seconds: float = 0.0
    """CPU seconds of computation."""
    fraction: float = 0.0
    """Share of the tags that pass the selection."""
    links: tuple[str, ...] = ()
    """Containers; each written object links to the newest object that this client has written to each."""
    bulk: bool = False
    """Whether all objects of a pass are written by one call."""
    keep: str = ""
    """Intervals of conditions that a job keeps: ``"nothing"``, ``"one"`` of each series, or ``"all"``."""
    order: str = ""
    """``"list"``: jobs have the next events of the files; ``"time"``: the next ones in the order of time."""
    layout: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of clients: all that run the same loop."""

    name: str
    loop: tuple[Step, ...]
    share: float = 1.0
    """Number of these clients, in proportion to the shares of the other kinds."""
    interleave: int = 0
    """Objects between two parts of the computation; 0: computation is a step of its own."""
    commit: Commit = Commit()
    new_database_bytes: int = 0
    """Payload after which a client continues in a new database; 0: never."""
    reserve_bytes: int = 0
    """Space that a client reserves in each database before it first writes there; 0: none."""

    @property
    def writes(self) -> bool:
        """Whether these clients need transactions."""
        return any(step.action == "write" for step in self.loop)


@dataclass(frozen=True)
class Scenario:
    """One variant of a workload, with all settings substituted."""

    name: str
    simulation: Simulation
    sweep: Sweep
    open: Mapping[str, Any]
    data: tuple[Data, ...]
    kinds: tuple[Kind, ...]
    settings: Mapping[str, Any]
    stream: Stream | None
    raw_bytes_per_second: float
    """Rate of all simulated disks together, in the workload's own time; 0: not limited."""

    def kind_of(self, client: int) -> Kind:
        """Kind of the client of this number; for any number of clients each kind's count is within one of its
        share."""
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
        """Payload per second of a client that spends all its time computing; None if it does not compute."""
        seconds = sum(step.seconds for step in kind.loop)
        if not seconds:
            return None
        return sum(step.objects * (step.size or self.size_of(step.target)) for step in kind.loop) / seconds

    def is_shared(self, target: str) -> bool:
        """Whether several clients may read this container of the initial data."""
        own = (data for data in self.data if data.each == "client")
        return not any(target.startswith(f"{data.database}/") for data in own)

    def objects_of(self, target: str) -> int:
        """Objects in a container of the initial data; 0 for another one."""
        found = (
            content.objects
            for data in self.data
            for name, content in data.containers.items()
            if target == f"{data.database}/{name}"
        )
        return next(found, 0)

    def size_of(self, target: str, *, of_tagged: bool = False) -> int:
        """Bytes of an object in a container of the initial data, or of an object that its tags refer to."""
        for data in self.data:
            for name, content in data.containers.items():
                if target == f"{data.database}/{name}":
                    return data.containers[content.tags_of].size if of_tagged else content.size
        return 0

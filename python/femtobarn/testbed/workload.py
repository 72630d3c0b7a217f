"""Workloads: what clients do, how many there are, and what is played, from a TOML file.

A file has settings, which a ``"$name"`` anywhere else stands for, and variants, which change settings. Each
variant is a :class:`Scenario`. Names of databases and containers are templates: ``{client}`` is the client's
number, ``{disk}`` the disk that it works on, ``{part}`` counts the databases that it has filled.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._exceptions import InvalidError, NotFoundError, near_misses
from .parsing import Parser

__all__ = [
    "Commit",
    "Content",
    "Data",
    "Disks",
    "Kind",
    "Play",
    "Scenario",
    "Step",
    "Sweep",
    "Workload",
    "load",
    "scenarios_of",
    "shipped",
]

SHIPPED = Path(__file__).parent / "workloads"


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


@dataclass(frozen=True)
class Workload:
    """A workload: its variants, and what it repeats."""

    name: str
    title: str
    paper: str
    """What it repeats, such as ``"[SCAL] Figure 2"``; may be empty."""
    about: str
    scenarios: tuple[Scenario, ...]
    path: Path
    raw: Mapping[str, Any]
    """The file as it was read, with what was set from outside."""

    def scenario(self, name: str) -> Scenario:
        """Return a variant by its name."""
        for scenario in self.scenarios:
            if scenario.name == name:
                return scenario
        names = [scenario.name for scenario in self.scenarios]
        raise NotFoundError(f"{self.name} has no variant {name!r}{near_misses(name, names)}")


def shipped() -> dict[str, Path]:
    """Return the files of the workloads that come with the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.toml"))}


def load(
    workload: str | Path, *, settings: Mapping[str, Any] | None = None, sweep: Mapping[str, Any] | None = None
) -> Workload:
    """Read a workload from a file, or one that comes with the package by its name.

    Parameters
    ----------
    settings
        Values of its settings, instead of those in the file and its variants.
    sweep
        Values of its table ``sweep`` instead of those in the file.

    Raises
    ------
    NotFoundError
        If there is no such file or workload.
    InvalidError
        If something in it is wrong; the text says where.
    """
    path = _path_of(workload)
    try:
        raw = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}") from error
    given = dict(settings or {})
    raw["sweep"] = dict(raw.get("sweep", {})) | {k: v for k, v in (sweep or {}).items() if v is not None}
    declared = raw.get("settings", {})
    for name in given:
        if name not in declared:
            raise InvalidError(f"{path.name} has no setting {name!r}{near_misses(name, declared)}")
    raw["settings"] = declared | given
    variants = raw.pop("variant", [{"name": path.stem}])
    raw["variant"] = [variant | {k: v for k, v in given.items() if k in variant} for variant in variants]
    top = Parser(str(path), raw)
    title, paper, about = top.text("title"), top.text("paper", ""), top.text("about", "")
    scenarios = tuple(_scenario(str(path), raw, variant) for variant in raw["variant"])
    return Workload(path.stem, title, paper, " ".join(about.split()), scenarios, path, raw)


def scenarios_of(run: Mapping[str, Any]) -> dict[str, Scenario]:
    """Return the variants that a run was of, by name, as its file had them then."""
    raw = run["parameters"]
    scenarios = [_scenario(f"the run of {run['workload']}", raw, variant) for variant in raw["variant"]]
    return {scenario.name: scenario for scenario in scenarios}


def _path_of(workload: str | Path) -> Path:
    path = Path(workload)
    if path.suffix == ".toml":
        if not path.is_file():
            raise NotFoundError(f"there is no file {path}")
        return path
    known = shipped()
    if str(workload) not in known:
        hint = near_misses(str(workload), known)
        raise NotFoundError(
            f"there is no workload {str(workload)!r}{hint}; `femtobarn testbed list` shows all"
        )
    return known[str(workload)]


def _scenario(where: str, raw: Mapping[str, Any], variant: Mapping[str, Any]) -> Scenario:
    name = Parser(f"{where}, [[variant]]", variant).text("name")
    settings = raw["settings"] | {key: value for key, value in variant.items() if key != "name"}
    if unknown := next((key for key in settings if key not in raw["settings"]), None):
        hint = near_misses(unknown, raw["settings"])
        raise InvalidError(f"{where}, variant {name!r}: {unknown!r} is not in [settings]{hint}")
    rest = {key: value for key, value in raw.items() if key not in ("settings", "variant")}
    top = Parser(where, _substituted(where, rest, settings))
    for key in ("title", "paper", "about"):
        top.text(key, "")
    play = _play(top.table("play"))
    sweep = _sweep(top.table("sweep"))
    options = top.table("open").everything()
    data = tuple(_data(table) for table in top.tables("data"))
    kinds = tuple(_kind(table) for table in top.tables("client"))
    top.end()
    if not kinds:
        raise InvalidError(f"{where} has no [[client]]: nobody would do anything")
    raw_rate = play.disks.count * play.disks.bytes_per_second if play.disks else 0.0
    return Scenario(name, play, sweep, options, data, kinds, settings, raw_rate)


def _substituted(where: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """Put settings in for what stands for them."""
    if isinstance(value, dict):
        return {key: _substituted(where, item, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(where, item, settings) for item in value]
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    if value[1:] not in settings:
        raise InvalidError(f"{where}: {value} is not in [settings]{near_misses(value[1:], settings)}")
    return settings[value[1:]]


def _play(table: Parser) -> Play:
    disks = table.table("disks")
    count = disks.whole("count", 0)
    played = Disks(
        count,
        disks.size("bytes_per_second", Disks.bytes_per_second),
        disks.whole("seeks_per_second", Disks.seeks_per_second),
        disks.size("cache_bytes", Disks.cache_bytes),
        disks.number("write_behind_seconds", Disks.write_behind_seconds),
    )
    play = Play(
        access=table.choice("access", ("server", "local")),
        computation=table.choice("computation", ("simulated", "real")),
        compression=table.number("compression", 1.0, above=0.0),
        federations=table.choice("federations", ("one", "each")),
        disks=played if count else None,
    )
    disks.end()
    table.end()
    if play.disks and play.access == "local":
        raise InvalidError(f'{table.where}: disks are played by a server; say access = "server"')
    return play


def _sweep(table: Parser) -> Sweep:
    sweep = Sweep(
        clients=tuple(table.wholes("clients")),
        batch=table.whole("batch", 40, least=1),
        start=table.choice("start", ("fork", "program")),
        warm_up_seconds=table.number("warm_up_seconds", 3.0),
        window_seconds=table.number("window_seconds", 10.0, above=0.0),
    )
    table.end()
    return sweep


LAYOUT = ("page_size", "cluster_size", "compression")


def _data(table: Parser) -> Data:
    containers = table.table("containers")
    contents = {name: _content(containers.table(name)) for name in containers.names()}
    data = Data(
        database=table.text("database"),
        each=table.choice("each", ("federation", "client", "disk")),
        containers=contents,
        layout=table.some(LAYOUT),
    )
    table.end()
    return data


def _content(table: Parser) -> Content:
    content = Content(
        objects=table.whole("objects", least=1),
        size=table.size("size", 0),
        tags_of=table.text("tags_of", ""),
        chunk=table.whole("chunk", 0),
    )
    table.end()
    return content


def _kind(table: Parser) -> Kind:
    commit = table.table("commit")
    kind = Kind(
        name=table.text("name"),
        loop=tuple(_step(step) for step in table.tables("loop")),
        share=table.number("share", 1.0, above=0.0),
        interleave=table.whole("interleave", 0),
        commit=Commit(commit.whole("events", 1, least=1), commit.number("spread", 0.0)),
        new_database_bytes=table.size("new_database_after", 0),
    )
    commit.end()
    table.end()
    if not kind.loop:
        raise InvalidError(f"{table.where}: its loop is empty")
    return kind


ACTIONS = ("read", "select", "write", "compute", "pair")


def _step(table: Parser) -> Step:
    action = _one_of(table, ACTIONS)
    step = Step(
        action=action,
        target="" if action == "compute" else table.text(action),
        objects=table.whole("objects", 1, least=1),
        size=table.size("size", 0),
        seconds=table.number("compute", 0.0) if action == "compute" else 0.0,
        fraction=table.number("fraction", 0.0),
        links=tuple(table.texts("links")),
        bulk=table.flag("bulk", False),
        layout=table.some(LAYOUT),
    )
    table.end()
    return step


def _one_of(table: Parser, names: Iterable[str]) -> str:
    there = [name for name in names if name in table.names()]
    if len(there) != 1:
        raise InvalidError(f"{table.where} must have one of {', '.join(names)}")
    return there[0]

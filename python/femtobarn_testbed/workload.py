"""Workloads: scenarios from a TOML file.

A file has settings, which a ``"$name"`` anywhere else stands for, and variants, which change settings. Each
variant is a :class:`~femtobarn_testbed.scenario.Scenario`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from femtobarn import InvalidError, NotFoundError

from .parsing import Parser, suggestion
from .scenario import Commit, Content, Data, Disks, Kind, Play, Scenario, Step, Sweep

__all__ = ["Workload", "load", "scenarios_of", "shipped"]

SHIPPED = Path(__file__).parent / "workloads"


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
        raise NotFoundError(f"{self.name} has no variant {name!r}{suggestion(name, names)}")


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
            raise InvalidError(f"{path.name} has no setting {name!r}{suggestion(name, declared)}")
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
        hint = suggestion(str(workload), known)
        raise NotFoundError(
            f"there is no workload {str(workload)!r}{hint}; `femtobarn testbed list` shows all"
        )
    return known[str(workload)]


def _scenario(where: str, raw: Mapping[str, Any], variant: Mapping[str, Any]) -> Scenario:
    name = Parser(f"{where}, [[variant]]", variant).text("name")
    settings = raw["settings"] | {key: value for key, value in variant.items() if key != "name"}
    if unknown := next((key for key in settings if key not in raw["settings"]), None):
        hint = suggestion(unknown, raw["settings"])
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
        raise InvalidError(f"{where}: {value} is not in [settings]{suggestion(value[1:], settings)}")
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
        reserve_bytes=table.size("reserve", 0),
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

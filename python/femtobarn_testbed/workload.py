"""Workloads: a TOML file with settings and variants, and the scenarios that follow from it.

``"$name"`` anywhere in the file stands for a setting; a variant overrides settings. Each variant is a
:class:`~femtobarn_testbed.scenario.Scenario`, or the case of a study. docs/limits.md shows the keys of
scenarios.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from femtobarn import InvalidError, NotFoundError

from .scenario import Commit, Content, Data, Kind, Scenario, SimulatedDisks, Simulation, Step, Stream, Sweep
from .studies import STUDIES, Study, study_of
from .toml_files import BundledFiles, read_toml
from .toml_parser import Parser, suggestion

__all__ = ["Workload", "bundled_workloads", "load", "scenarios_of"]

WORKLOADS = BundledFiles("workload", Path(__file__).parent / "workloads", "femtobarn testbed list")


@dataclass(frozen=True)
class Workload:
    """A workload and its variants: scenarios of clients, or cases of a study."""

    name: str
    title: str
    paper: str
    """The measurement that it repeats, such as ``"[SCAL] Figure 2"``; may be empty."""
    about: str
    scenarios: tuple[Scenario, ...]
    path: Path
    raw: Mapping[str, Any]
    """The file's content, with the settings given to :func:`load`."""
    study: Study | None = None
    """Of a workload with the table of a study; it has no scenarios, and no sweep."""
    cases: tuple[Any, ...] = ()
    """Of the study, a frozen dataclass for each variant."""

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants."""
        return tuple(each.name for each in (*self.scenarios, *self.cases))

    def scenario(self, name: str) -> Scenario:
        """Return a variant by its name."""
        return _named(self.name, self.scenarios, name)

    def case(self, name: str) -> Any:
        """Return a variant of a study by its name."""
        return _named(self.name, self.cases, name)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Variant = TypeVar("Variant", bound=_Named)


def _named(workload: str, variants: Iterable[Variant], name: str) -> Variant:
    known = {variant.name: variant for variant in variants}
    if name not in known:
        raise NotFoundError(f"{workload} has no variant {name!r}{suggestion(name, known)}")
    return known[name]


def bundled_workloads() -> dict[str, Path]:
    """Return the files of the workloads in this package, by name."""
    return WORKLOADS.by_name()


def load(
    workload: str | Path, *, settings: Mapping[str, Any] | None = None, sweep: Mapping[str, Any] | None = None
) -> Workload:
    """Read a workload from a file, or a bundled workload by its name.

    Parameters
    ----------
    settings
        Values that override those of the file's settings and variants.
    sweep
        Values that override those of the file's table ``sweep``.

    Raises
    ------
    NotFoundError
        If the file or the bundled workload does not exist.
    InvalidError
        If the file is not a valid workload; the text names the table and the key.
    """
    path = WORKLOADS.path_of(workload)
    raw = read_toml(path)
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
    about = " ".join(about.split())
    if study := next((study for study in STUDIES if study.table in raw), None):
        cases = _cases(str(path), raw, study)
        return Workload(path.stem, title, paper, about, (), path, raw, study, cases)
    scenarios = tuple(_scenario(str(path), raw, variant) for variant in raw["variant"])
    return Workload(path.stem, title, paper, about, scenarios, path, raw)


def scenarios_of(run: Mapping[str, Any]) -> dict[str, Scenario]:
    """Return the scenarios of a run by name, from the workload that the run recorded.

    Raises
    ------
    InvalidError
        If the run has none.
    """
    raw = run["parameters"]
    if study := study_of(run):
        raise InvalidError(f"the run of {run['workload']} {study.did} and has no scenarios of clients")
    scenarios = [_scenario(f"the run of {run['workload']}", raw, variant) for variant in raw["variant"]]
    return {scenario.name: scenario for scenario in scenarios}


def _variant(
    where: str, raw: Mapping[str, Any], variant: Mapping[str, Any]
) -> tuple[str, dict[str, Any], Parser]:
    """The name and the settings of a variant, and the file with these settings."""
    name = Parser(f"{where}, [[variant]]", variant).text("name")
    settings = raw["settings"] | {key: value for key, value in variant.items() if key != "name"}
    if unknown := next((key for key in settings if key not in raw["settings"]), None):
        hint = suggestion(unknown, raw["settings"])
        raise InvalidError(f"{where}, variant {name!r}: {unknown!r} is not in [settings]{hint}")
    rest = {key: value for key, value in raw.items() if key not in ("settings", "variant")}
    top = Parser(where, _substituted(where, rest, settings))
    for key in ("title", "paper", "about"):
        top.text(key, "")
    return name, settings, top


def _cases(where: str, raw: Mapping[str, Any], study: Study) -> tuple[Any, ...]:
    """The case of each variant; of variants with the same name, which a recorded trace has, the first."""
    done: dict[str, Any] = {}
    for each in raw["variant"]:
        variant, settings, top = _variant(where, raw, each)
        case = study.parse(variant, top.table(study.table), settings)
        top.table("sweep").everything()
        top.end()
        done.setdefault(case.name, case)
    return tuple(done.values())


def _scenario(where: str, raw: Mapping[str, Any], variant: Mapping[str, Any]) -> Scenario:
    name, settings, top = _variant(where, raw, variant)
    simulation = _simulation(top.table("play"))
    sweep = _sweep(top.table("sweep"))
    options = top.table("open").everything()
    data = tuple(_data(table) for table in top.tables("data"))
    kinds = tuple(_kind(table) for table in top.tables("client"))
    stream = _stream(top.table("stream"))
    top.end()
    if not kinds:
        raise InvalidError(f"{where} needs at least one [[client]]")
    if stream is None and any(step.action == "conditions" for kind in kinds for step in kind.loop):
        raise InvalidError(f"{where}: a client looks up conditions, so it needs a [stream]")
    if simulation.servers > 1 and any(step.action in WRITING for kind in kinds for step in kind.loop):
        raise InvalidError(f"{where}: clients cannot write through several servers")
    disks = simulation.disks
    raw_rate = simulation.servers_with_disks * disks.count * disks.bytes_per_second if disks else 0.0
    return Scenario(name, simulation, sweep, options, data, kinds, settings, stream, raw_rate)


def _substituted(where: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """Replace each ``"$name"`` by its setting."""
    if isinstance(value, dict):
        return {key: _substituted(where, item, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(where, item, settings) for item in value]
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    if value[1:] not in settings:
        raise InvalidError(f"{where}: {value} is not in [settings]{suggestion(value[1:], settings)}")
    return settings[value[1:]]


def _simulation(table: Parser) -> Simulation:
    disks = table.table("disks")
    count = disks.whole("count", 0)
    simulated = SimulatedDisks(
        count,
        disks.size("bytes_per_second", SimulatedDisks.bytes_per_second),
        disks.whole("seeks_per_second", SimulatedDisks.seeks_per_second),
        disks.size("cache_bytes", SimulatedDisks.cache_bytes),
        disks.number("write_behind_seconds", SimulatedDisks.write_behind_seconds),
    )
    simulation = Simulation(
        access=table.choice("access", ("server", "local")),
        computation=table.choice("computation", ("simulated", "real")),
        compression=table.number("compression", 1.0, above=0.0),
        federations=table.choice("federations", ("one", "each")),
        disks=simulated if count else None,
        servers=table.whole("servers", 1, least=1),
        disks_of=table.choice("disks_of", ("first", "all")),
        server_of=table.choice("server_of", ("request", "job")),
        memcached_bytes=table.size("memcached", 0),
    )
    disks.end()
    table.end()
    if simulation.disks and simulation.access == "local":
        raise InvalidError(f'{table.where}: disks are simulated by a server: set access = "server"')
    if simulation.servers > 1 and (simulation.access == "local" or simulation.federations == "each"):
        raise InvalidError(f'{table.where}: several servers need access = "server" and federations = "one"')
    return simulation


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


def _stream(table: Parser) -> Stream | None:
    if not table.names():
        return None
    stream = Stream(
        files=table.whole("files", 1, least=1),
        events=table.whole("events", least=1),
        size=table.size("size", 0),
        days=table.whole("days", 1, least=1),
        fraction=table.number("fraction", 1.0, above=0.0),
        events_per_job=table.whole("events_per_job", least=1),
        series=table.whole("series", 1, least=1),
        shortest_seconds=table.number("shortest_seconds", above=0.0),
        longest_seconds=table.number("longest_seconds", above=0.0),
        condition_size=table.size("condition_size", 0),
    )
    table.end()
    return stream


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


ACTIONS = ("read", "select", "write", "compute", "pair", "conditions")
WRITING = ("write", "pair")


def _step(table: Parser) -> Step:
    action = _one_of(table, ACTIONS)
    step = Step(
        action=action,
        target="" if action in ("compute", "conditions") else table.text(action),
        objects=table.whole("objects", 1, least=1),
        size=table.size("size", 0),
        seconds=table.number("compute", 0.0) if action == "compute" else 0.0,
        fraction=table.number("fraction", 0.0),
        links=tuple(table.texts("links")),
        bulk=table.flag("bulk", False),
        keep=table.choice("conditions", ("nothing", "one", "all")) if action == "conditions" else "",
        order=table.choice("order", ("list", "time")) if action == "conditions" else "",
        layout=table.some(LAYOUT),
    )
    table.end()
    return step


def _one_of(table: Parser, names: Iterable[str]) -> str:
    present = [name for name in names if name in table.names()]
    if len(present) != 1:
        raise InvalidError(f"{table.where} must have exactly one of {', '.join(names)}")
    return present[0]

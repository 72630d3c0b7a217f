"""Capacity planning: the CPUs, disks and servers that an experiment needs, from its rates and costs of work.

An activity uses its events per second times the work of an event times the cost of that work. All activities
are added up as if they ran at once, and the wanted margin stays free. docs/planning.md has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from femtobarn import InvalidError

from .costs import TERMS, Costs, Work, between_computations, moved_bytes
from .toml_files import BundledFiles, read_toml
from .toml_parser import Parser

__all__ = ["EXPERIMENTS", "Activity", "Experiment", "Hardware", "Need", "load_experiment", "plan"]

EXPERIMENTS = BundledFiles("experiment", Path(__file__).parent / "experiments", "femtobarn plan --list")
YEAR_SECONDS = 365.25 * 86_400


@dataclass(frozen=True)
class Hardware:
    """One disk, one server and its network link, as they can be bought."""

    disk_bytes_per_second: float = 200e6
    disk_bytes: float = 16e12
    server_cores: int = 32
    network_bytes_per_second: float = 1.25e9


@dataclass(frozen=True)
class Activity:
    """Processing of events, or tags, at a rate."""

    name: str
    events_per_second: float
    """Events, or tags, per second while it runs."""
    compute: float
    """CPU seconds of physics per event."""
    work: Work
    stored_bytes_per_year: float = 0.0
    written_bytes: float = 0.0
    """Payload written per event."""


@dataclass(frozen=True)
class Experiment:
    """The activities of an experiment, its hardware, and the wanted margin."""

    title: str
    duty: float
    """Share of the year in which data are taken."""
    margin: float
    """Share of each resource to be left free."""
    activities: tuple[Activity, ...]
    hardware: Hardware


@dataclass(frozen=True)
class Need:
    """The number of units of one resource that are needed."""

    what: str
    needed: int
    limit: str
    """The use that requires this number."""
    used: float
    """Units in use, without a margin."""
    margin: float
    """Share that is left free."""
    formula: str


def load_experiment(experiment: str | Path) -> Experiment:
    """Read an experiment from a file, or a bundled experiment by its name.

    Raises
    ------
    NotFoundError
        If it does not exist.
    InvalidError
        If the file is not a valid experiment; the text names the table and the key.
    """
    path = EXPERIMENTS.path_of(experiment)
    top = Parser(str(path), read_toml(path))
    title, _ = top.text("title"), top.text("about", "")
    duty, margin = top.number("duty", 1.0, above=0.0), top.number("margin", 0.3)
    if duty > 1:
        raise InvalidError(f"{path}: duty must be at most 1, not {duty:g}")
    if margin >= 1:
        raise InvalidError(f"{path}: margin must be below 1, not {margin:g}")
    acquisition = _acquisition(top.table("acquisition"), duty)
    rate = acquisition.events_per_second
    activities = [acquisition]
    activities += [_pass(table, rate, duty) for table in top.tables("pass")]
    activities += [_analysis(table) for table in top.tables("analysis")]
    hardware = _hardware(top.table("hardware"))
    top.end()
    return Experiment(title, duty, margin, tuple(activities), hardware)


def _acquisition(table: Parser, duty: float) -> Activity:
    rate = table.number("events_per_second", above=0.0)
    compute = table.number("compute", 0.0)
    objects = table.tables("objects")
    work = _objects(objects, "appended")
    commit_events = table.whole("commit_events", 1, least=1)
    work |= {"commits": 1 / commit_events, "opened": len(objects) / commit_events}
    work = between_computations(work, 1.0) if compute else work
    table.end()
    written = work["appended_bytes"]
    return Activity("acquisition", rate, compute, work, rate * duty * YEAR_SECONDS * written, written)


def _pass(table: Parser, taken: float, duty: float) -> Activity:
    """A pass over all events of a year: at the rate of data taking, or spread over the year."""
    name, compute = table.text("name"), table.number("compute", 0.0)
    at_once = table.flag("at_once", False)
    times = table.number("times_a_year", 1.0, above=0.0)
    written_to = table.tables("write")
    work = _objects(written_to, "appended") | _objects(table.tables("read"), "read")
    commit_events = table.whole("commit_events", 1, least=1)
    work |= {"commits": bool(written_to) / commit_events, "opened": len(written_to) / commit_events}
    work = between_computations(work, 1.0) if compute else work
    table.end()
    if at_once and times != 1:
        raise InvalidError(f"{table.where}: a pass with at_once must have times_a_year = 1, not {times:g}")
    rate = taken if at_once else taken * duty * times
    written = work["appended_bytes"]
    return Activity(name, rate, compute, work, taken * duty * YEAR_SECONDS * times * written, written)


def _analysis(table: Parser) -> Activity:
    name, rate = table.text("name"), table.number("tags_per_second", above=0.0)
    fraction, size = table.number("fraction"), table.size("size")
    compute = table.number("compute", 0.0)
    table.end()
    if fraction > 1:
        raise InvalidError(f"{table.where}: fraction must be at most 1, not {fraction:g}")
    work = dict.fromkeys(TERMS, 0.0) | {"tags": 1.0, "selected": fraction, "read_bytes": fraction * size}
    # There is no computation between the tags of a selection.
    work = between_computations(work, 0.0) if compute else work
    return Activity(name, rate, compute, work)


def _objects(tables: list[Parser], how: str) -> Work:
    """The work of writing, or reading, the listed objects."""
    work = dict.fromkeys(TERMS, 0.0) if how != "read" else {"read": 0.0, "read_bytes": 0.0}
    for table in tables:
        count, size = table.whole("count", 1, least=1), table.size("size")
        work[how] += count
        work[f"{how}_bytes"] += count * size
        if how != "read":
            work[f"{how}_links"] += count * table.whole("links", 0)
        table.end()
    return work


def _hardware(table: Parser) -> Hardware:
    hardware = Hardware(
        disk_bytes_per_second=table.number("disk_bytes_per_second", 200e6, above=0.0),
        disk_bytes=table.number("disk_bytes", 16e12, above=0.0),
        server_cores=table.whole("server_cores", 32, least=1),
        network_bytes_per_second=table.number("network_bytes_per_second", 1.25e9, above=0.0),
    )
    table.end()
    return hardware


def plan(experiment: Experiment, costs: Costs) -> dict[str, Any]:
    """Return the needs of an experiment, with every figure that they follow from."""
    busy = 1 - experiment.margin
    rows = [_usage_of(activity, costs, busy) for activity in experiment.activities]
    names = ("physics_cpus", "client_cpus", "server_cpus", "bytes_per_second", "commits_per_second")
    total = {name: sum(row[name] for row in rows) for name in names}
    total["stored_bytes_per_year"] = sum(one.stored_bytes_per_year for one in experiment.activities)
    return {
        "experiment": experiment.title,
        "margin": experiment.margin,
        "duty": experiment.duty,
        "hardware": asdict(experiment.hardware),
        "activities": rows,
        "totals": total,
        "needs": [asdict(need) for need in _needs(experiment, total, costs)],
        "costs": {name: dict(of) for name, of in costs.seconds.items()},
        "growth": costs.growth(busy),
    }


def _usage_of(activity: Activity, costs: Costs, busy: float) -> dict[str, Any]:
    """The resources that an activity uses while it runs, on machines of which this share is in use."""
    rate, work, growth = activity.events_per_second, activity.work, costs.growth(busy)
    return {
        "name": activity.name,
        "events_per_second": rate,
        "work": {term: count for term, count in work.items() if count},
        "physics_cpus": rate * activity.compute,
        "client_cpus": rate * costs.of("client", work) * growth,
        "server_cpus": rate * costs.of("server", work) * growth,
        "bytes_per_second": rate * moved_bytes(work),
        "commits_per_second": rate * work["commits"],
    }


def _needs(experiment: Experiment, total: Mapping[str, float], costs: Costs) -> list[Need]:
    have, margin = experiment.hardware, experiment.margin
    moved, stored = total["bytes_per_second"], total["stored_bytes_per_year"]
    servers = {
        "CPU": total["server_cpus"] / have.server_cores,
        "network": moved / have.network_bytes_per_second,
        "commits, one after the other": total["commits_per_second"]
        * costs.seconds["elapsed"].get("commits", 0.0),
    }
    disks = {"bandwidth": moved / have.disk_bytes_per_second, "a year's data": stored / have.disk_bytes}
    return [
        _need("CPUs for physics", {"computation": total["physics_cpus"]}, margin, "events/s x compute"),
        _need(
            "CPUs for clients' I/O", {"client CPU": total["client_cpus"]}, margin, "events/s x work x cost"
        ),
        _need("CPUs for servers", {"server CPU": total["server_cpus"]}, margin, "events/s x work x cost"),
        _need("servers", servers, margin, "largest of CPU / cores, MB/s / network, commits/s x commit"),
        _need("disks", disks, margin, "larger of MB/s / disk, TB a year / disk"),
    ]


def _need(what: str, used: Mapping[str, float], margin: float, formula: str) -> Need:
    limit = max(used, key=lambda name: used[name])
    # A quotient that exceeds a whole number by a rounding error counts as that number.
    needed = math.ceil(used[limit] / (1 - margin) - 1e-9)
    left = 1 - used[limit] / needed if needed else 1.0
    return Need(what, needed, limit, used[limit], left, formula)

"""The description of a site: a TOML file with its machines, clients, times of work and scenarios.

A number has a default only if it is not a property of the site. docs/planning.md explains the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from femtobarn import InvalidError

from ..costs import TERMS, Work, between_computations
from ..toml_files import BundledFiles, read_toml
from ..toml_parser import Parser, suggestion

__all__ = [
    "SITES",
    "Catalogue",
    "ClientKind",
    "Machines",
    "SiteFile",
    "Tapes",
    "load_site",
]

SITES = BundledFiles("site", Path(__file__).parent.parent / "sites", "femtobarn plan --simulate --list")


@dataclass(frozen=True)
class Machines:
    """Servers, their racks and disks, redirectors, and the network (table ``machines``)."""

    servers: int
    databases: int
    rack_servers: int
    server_cores: int
    disks: int
    """Of a server."""
    disk_bytes: float
    disk_bytes_per_second: float
    disk_seeks_per_second: float
    request_bytes: float
    """Bytes that are read or written at one place of a disk."""
    network_bytes_per_second: float
    client_bytes_per_second: float
    round_trip_seconds: float
    sync_seconds: float
    """To make written bytes durable on a server's disk."""
    redirectors: int
    redirector_cores: int
    redirect_seconds: float
    """CPU of a redirector to redirect to a server that it knows."""
    ask_seconds: float
    """CPU of a redirector to ask one server for a file, and to take its answer."""
    answer_seconds: float
    """CPU of a server to answer."""
    asked: int
    """Servers that are asked for a file; 0: the catalogue is."""
    open_seconds: float
    """CPU of a server to open, stat and close a file."""
    lease_seconds: float
    """From the failure of a server until another one has its databases."""
    retry_seconds: float
    """Between two attempts of a client."""


@dataclass(frozen=True)
class Catalogue:
    """The catalogue's machines and times (table ``catalogue``)."""

    cores: int
    turn_seconds: float
    """To begin and end an SQL transaction that commits, while others wait."""
    commit_seconds: float
    """For each commit in it."""
    after_seconds: float
    """From there to the answer, while others may commit."""
    lookup_seconds: float
    """CPU of a look-up."""
    lookups: int
    """To open a database."""
    poll_seconds: float
    """Between two questions of a server for the newest commit; 0: none."""
    federations: int
    partitions: int
    """Of a federation's catalogue, each with its own machine."""
    crossing: float
    """Share of commits that write databases of two partitions; each takes two turns at both."""
    gatherers: int
    """Servers that commit for all others; 0: each commits on its own."""
    readers: int
    """Followers that answer look-ups beside each partition."""


@dataclass(frozen=True)
class ClientKind:
    """Clients that do the same (table ``client``)."""

    name: str
    count: int
    event_seconds: float
    """Time of a client between events: computation, or the events' arrival."""
    work: Work
    """Of an event, without the commit."""
    commit_events: int
    """Events of a transaction; 0: none."""
    commit_containers: int
    open_events: int
    """Events after which a client opens another database."""

    @property
    def period_events(self) -> int:
        """Events that are simulated as one transfer."""
        return self.commit_events or self.open_events


@dataclass(frozen=True)
class Tapes:
    """Tape drives that recall databases (table ``tapes``)."""

    drives: int
    bytes_per_second: float
    mount_seconds: float
    """To change tapes, with rewinding."""
    locate_seconds: float
    """To wind to a database."""
    database_bytes: float
    bytes_per_day: float
    """Recalled in a day."""
    dataset_databases: int
    """Databases that are asked for together."""
    dataset_tapes: int
    """Tapes on which they lie."""


@dataclass(frozen=True)
class SiteFile:
    """A site, and the scenarios to compare, each with its changes."""

    title: str
    loads: tuple[float, ...]
    """Numbers of clients to simulate, as multiples of the described ones."""
    machines: Machines
    catalogue: Catalogue
    clients: tuple[ClientKind, ...]
    tapes: Tapes
    scenarios: Mapping[str, Mapping[str, Any]]
    """By name, tables of changed keys by table: ``{"catalogue": {"partitions": 8}}``."""

    @property
    def number_of_clients(self) -> int:
        """All clients."""
        return sum(kind.count for kind in self.clients)

    def changed(self, scenario: str) -> SiteFile:
        """Return the site as a scenario changes it."""
        changes = self.scenarios[scenario]
        machines = replace(self.machines, **changes.get("machines", {}))
        catalogue = replace(self.catalogue, **changes.get("catalogue", {}))
        return replace(self, machines=machines, catalogue=catalogue)


def load_site(site: str | Path) -> SiteFile:
    """Read a site from a file, or a bundled site by its name.

    Raises
    ------
    NotFoundError
        If it does not exist.
    InvalidError
        If the file is not a valid site; the text names the table and the key.
    """
    path = SITES.path_of(site)
    top = Parser(str(path), read_toml(path))
    title, _ = top.text("title"), top.text("about", "")
    loads = tuple(top.numbers("loads"))
    machines = _filled(Machines, top.table("machines"))
    catalogue = _filled(Catalogue, top.table("catalogue"))
    clients = tuple(_kind(table) for table in top.tables("client"))
    tapes = _filled(Tapes, top.table("tapes"))
    scenarios: dict[str, dict[str, Any]] = {"as described": {}}
    scenarios |= dict(_scenario(table) for table in top.tables("scenario"))
    top.end()
    if not clients:
        raise InvalidError(f"{path} needs at least one [[client]]")
    if machines.rack_servers > machines.servers:
        raise InvalidError(f"{path}, machines: rack_servers must be at most servers")
    return SiteFile(title, loads, machines, catalogue, clients, tapes, scenarios)


MAY_BE_ZERO = {
    "asked", "after_seconds", "poll_seconds", "crossing", "gatherers", "readers", "commit_events",
}  # fmt: skip
"""Numbers that may be 0; others are larger."""

Filled = TypeVar("Filled", Machines, Catalogue, Tapes)


def _filled(kind: type[Filled], table: Parser) -> Filled:
    """Make a dataclass of numbers from a table that has all of them."""
    values = {field.name: _number(table, field.name, str(field.type)) for field in fields(kind)}
    table.end()
    return kind(**values)


def _number(table: Parser, name: str, kind: str) -> Any:
    if kind == "int":
        return table.whole(name, least=0 if name in MAY_BE_ZERO else 1)
    return table.number(name, above=None if name in MAY_BE_ZERO else 0.0)


def _kind(table: Parser) -> ClientKind:
    name, count = table.text("name"), table.whole("count", least=1)
    seconds, pauses = table.number("event_seconds", above=0.0), table.number("pauses", 1.0)
    work = dict.fromkeys(TERMS, 0.0)
    written = table.tables("write")
    for objects, how in [(one, "read") for one in table.tables("read")] + [
        (one, "appended") for one in written
    ]:
        number, size = objects.whole("count", 1, least=1), objects.size("size")
        work[how] += number
        work[f"{how}_bytes"] += number * size
        if how == "appended":
            work["appended_links"] += number * objects.whole("links", 0)
        objects.end()
    commit_events = table.whole("commit_events", 0)
    open_events = table.whole("open_events", least=1)
    table.end()
    if bool(written) != bool(commit_events):
        raise InvalidError(f"{table.where}: clients that write have commit_events, and others do not")
    work = between_computations(work, pauses)
    return ClientKind(name, count, seconds, work, commit_events, len(written), open_events)


def _scenario(table: Parser) -> tuple[str, dict[str, dict[str, Any]]]:
    """A scenario's name, and its changes: keys of `machines` and `catalogue`."""
    name, changes = table.text("name"), {}
    for part, kind in (("machines", Machines), ("catalogue", Catalogue)):
        types = {field.name: str(field.type) for field in fields(kind)}
        given = table.table(part)
        known = [key for key in given.names() if key in types]
        changes[part] = {key: _number(given, key, types[key]) for key in known}
        if unknown := [key for key in given.names() if key not in types]:
            raise InvalidError(f"{given.where}: unknown key {unknown[0]!r}{suggestion(unknown[0], types)}")
    table.end()
    return name, changes

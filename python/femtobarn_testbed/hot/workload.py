"""The table ``[hot]`` of a workload's file, and its run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from femtobarn import InvalidError

from ..resources import read_counters, usage_between
from ..toml_parser import Parser
from .clients import ClientProcesses, Task, check_installed, client_processes
from .phases import emptied_after, figures_of, rate_of, reached_after, totals_of
from .site import EXPORT, ORIGIN, HotSite, PlayedDisk, SiteSettings, open_site

__all__ = ["HotFile", "parse_hot_file", "run_hot_files"]

SERVERS_MAX = 200
"""Each has an address of its own, from 127.0.0.2 on."""


@dataclass(frozen=True)
class HotFile:
    """Servers, and clients that read one file while it is hot."""

    name: str
    settings: Mapping[str, Any]
    site: SiteSettings
    clients: int
    processes: int
    """In which the clients are threads."""
    block_bytes: int
    blocks: int
    """Blocks that a client reads before it closes the file."""
    aim: float
    """Times the rate of one server."""
    before_seconds: int
    hot_seconds: int
    cold_seconds: int
    cold_clients: int
    cold_pause_seconds: float
    comes_back: bool
    """Whether one of them reads the file that was hot. The others read the other files in turn."""


def parse_hot_file(name: str, table: Parser, settings: Mapping[str, Any]) -> HotFile:
    """Return the servers and clients of a variant.

    Raises
    ------
    InvalidError
        If a key is missing, unknown or has a wrong value; the text names it.
    """
    servers, disk, cold = table.table("servers"), table.table("disk"), table.table("cold")
    site = SiteSettings(
        servers=servers.whole("count", least=2),
        files=table.whole("files", least=2),
        file_bytes=table.size("file_bytes"),
        disk=PlayedDisk(
            bytes_per_second=disk.size("bytes_per_second"),
            seeks_per_second=disk.whole("seeks_per_second", least=1),
            cache_bytes=disk.size("cache_bytes"),
        ),
        clients_per_copy=servers.whole("clients_per_copy", least=1),
        idle_seconds=servers.whole("idle_seconds", least=1),
    )
    done = HotFile(
        name=name,
        settings=settings,
        site=site,
        clients=table.whole("clients", least=1),
        processes=table.whole("processes", least=1),
        block_bytes=table.size("block_bytes"),
        blocks=table.whole("blocks", least=1),
        aim=table.number("aim", above=0.0),
        before_seconds=table.whole("before_seconds", least=1),
        hot_seconds=table.whole("hot_seconds", least=1),
        cold_seconds=cold.whole("seconds", least=1),
        cold_clients=cold.whole("clients", least=2),
        cold_pause_seconds=cold.number("pause_seconds"),
        comes_back=cold.flag("comes_back", True),
    )
    for part in (servers, disk, cold, table):
        part.end()
    if site.servers > SERVERS_MAX:
        raise InvalidError(f"{servers.where}: count must be at most {SERVERS_MAX}")
    rate = site.disk.bytes_per_second
    for what, value in (("block_bytes", done.block_bytes), ("bytes_per_second of the disk", rate)):
        if not value:
            raise InvalidError(f"{table.where}: {what} must be above 0")
    if site.file_bytes <= site.disk.cache_bytes:
        raise InvalidError(
            f"{table.where}: file_bytes must be above cache_bytes of the disk, or no disk is read"
        )
    return done


def run_hot_files(
    cases: Sequence[HotFile], folder: Path, seed: int, progress: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Yield of each variant its name, facts about the servers, and its point.

    Raises
    ------
    UnsupportedError
        If XRootD's client is not installed.
    UnavailableError
        If a server or a process of clients ends.
    """
    check_installed()
    for case in cases:
        shutil.rmtree(folder, ignore_errors=True)
        progress(f"{case.name}: writing {case.site.files} files, starting {case.site.servers + 1} servers")
        with client_processes(case.processes) as clients, open_site(case.site, folder) as site:
            clients.wait_until_ready()
            facts = case.site._asdict() | {"disk": case.site.disk._asdict()}
            facts["hot_file_bytes"] = site.paths[0].stat().st_size
            point = _Run(case, site, clients, seed, progress).point()
        yield case.name, facts, [point]


class _Run:
    """The phases of a variant."""

    def __init__(
        self,
        case: HotFile,
        site: HotSite,
        clients: ClientProcesses,
        seed: int,
        progress: Callable[[str], None],
    ) -> None:
        self.case, self.site, self.clients, self.seed = case, site, clients, seed
        self.progress = progress

    def point(self) -> dict[str, Any]:
        """Go through all phases, and return the figures."""
        case, redirector = self.case, self.site.redirector.url(EXPORT)
        hot, *others = self.site.paths
        all_hot = {client: [hot] for client in range(case.clients)}
        cold = {client: others[client % len(others) :] + others for client in range(case.cold_clients)}
        if case.comes_back:
            cold[0] = [hot]
        pause = case.cold_pause_seconds
        phases = {
            "before": self._phase(
                "before", self.site.servers[ORIGIN].url(EXPORT), all_hot, case.before_seconds
            ),
            "hot": self._phase("hot", redirector, all_hot, case.hot_seconds),
            "cold": self._phase("cold", redirector, cold, case.cold_seconds, pause),
        }
        one_server, all_servers = rate_of(phases["before"]), rate_of(phases["hot"])
        return {
            "variant": case.name,
            "settings": dict(case.settings),
            "clients": case.clients,
            "aim": case.aim,
            "one_server_bytes_per_second": one_server,
            "hot_bytes_per_second": all_servers,
            "ratio": all_servers / one_server if one_server else None,
            "reached_seconds": reached_after(totals_of(phases["hot"]), case.aim * one_server),
            "emptied_seconds": emptied_after(phases["cold"]["series"]["kept_bytes"]),
            "phases": phases,
        }

    def _phase(
        self, name: str, url: str, files: Mapping[int, Sequence[Path]], seconds: int, pause: float = 0.0
    ) -> dict[str, Any]:
        case, site = self.case, self.site
        self.progress(f"{case.name}: {name}, {len(files)} clients for {seconds} s")
        address = url.removeprefix("root://")
        task = Task(address, files, case.block_bytes, case.blocks, pause, self.seed)
        kept: dict[str, list[int]] = {cache: [] for cache in site.caches}

        def look() -> None:
            for cache, counts in site.cache_counts().items():
                kept[cache].append(counts["used_bytes"])

        before, used_before, began = site.counts(), self._used(), time.monotonic()
        visits = self.clients.work(task, seconds, look)
        after, used = site.counts(), usage_between(used_before, self._used(), site.pids, self.clients.pids)
        whole = time.monotonic() - began
        grown = {
            count: {server: after[count][server] - each[server] for server in each}
            for count, each in before.items()
        }
        busy = {server: took / whole for server, took in grown.pop("disk_seconds").items()}
        done = figures_of(visits, seconds, site.names, site.paths[0].name) | grown
        done["series"]["kept_bytes"] = kept
        return done | {
            "disk_busy": busy,
            "server_cpu_seconds": used.server_cores * used.seconds,
            "client_cpu_seconds": used.client_cores * used.seconds,
            "machine_cores": used.machine_cores,
        }

    def _used(self) -> Any:
        return read_counters([*self.site.pids, *self.clients.pids])

"""A federation at an origin, caches of it, and a redirector in front: processes at addresses of their own.

Invariants:

1. Each server but the redirector has one played disk, and all these disks are alike.
2. The files are sealed databases, which never change: complete ROOT files with one container.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import femtobarn as fb

from ..data import Item, Payloads
from ..server_process import ServerProcess, run_server

__all__ = ["EXPORT", "ORIGIN", "HotSite", "PlayedDisk", "SiteSettings", "open_site"]

EXPORT = "/hot.fed"
ORIGIN = "origin"
SETTLED_SECONDS = 2.5
"""Caches keep nothing of a file that was changed a moment ago."""
UP_SECONDS_MAX = 60.0
PIECE_BYTES = 1_000_000


class PlayedDisk(NamedTuple):
    """The disk of a server."""

    bytes_per_second: int
    seeks_per_second: int
    cache_bytes: int
    """Of memory in front of it."""


class SiteSettings(NamedTuple):
    """The files and the settings of the servers."""

    servers: int
    """The origin and its caches."""
    files: int
    file_bytes: int
    disk: PlayedDisk
    clients_per_copy: int
    idle_seconds: int
    """After which a copy leaves its cache. A server has a file open for a while after its last reader; that
    is as long."""


@dataclass
class HotSite:
    """The servers that run."""

    paths: list[Path]
    """The files, the first of which becomes hot. Their names at the servers are the same."""
    servers: dict[str, ServerProcess]
    """The origin and the caches by name."""
    redirector: ServerProcess

    @property
    def caches(self) -> dict[str, ServerProcess]:
        """The caches by name."""
        return {name: server for name, server in self.servers.items() if name != ORIGIN}

    @property
    def names(self) -> dict[str, str]:
        """The names of servers by ``host:port``."""
        return {f"{server.address}:{server.port}": name for name, server in self.servers.items()}

    @property
    def pids(self) -> list[int]:
        """Process ids of all servers."""
        return [server.pid for server in (*self.servers.values(), self.redirector)]

    def cache_counts(self) -> dict[str, dict[str, Any]]:
        """Return the status of each cache: ``used_bytes``, ``fetched_bytes``, ..."""
        return {name: cache.status()["caches"][0] for name, cache in self.caches.items()}

    def counts(self) -> dict[str, dict[str, float]]:
        """Return counts that grow, each by server: clients that were sent there, bytes that came from the
        origin, and seconds for which its disk was busy."""
        names = self.names
        told = self.redirector.status()["data_servers"]
        statuses = {name: server.status() for name, server in self.servers.items()}
        return {
            "redirects": {names[each["address"]]: each["redirects"] for each in told},
            "fetched_bytes": {
                name: status["caches"][0]["fetched_bytes"]
                for name, status in statuses.items()
                if status["caches"]
            },
            "disk_seconds": {name: status["disks"][0]["busy_seconds"] for name, status in statuses.items()},
        }

    def wait_until_up(self) -> None:
        """Wait until the redirector knows all servers, and until caches may keep the files.

        Raises
        ------
        UnavailableError
            If a server is not up.
        """
        until = time.monotonic() + UP_SECONDS_MAX
        while not all(each["is_up"] for each in self.redirector.status()["data_servers"]):
            if time.monotonic() > until:
                raise fb.UnavailableError("the redirector did not find all servers in time")
            time.sleep(0.1)
        changed = max(path.stat().st_mtime for path in self.paths)
        time.sleep(max(changed + SETTLED_SECONDS - time.time(), 0.0))


@contextmanager
def open_site(settings: SiteSettings, folder: Path) -> Iterator[HotSite]:
    """Write the files, and run the servers for the time of a block."""
    folder.mkdir(parents=True)
    paths = _write_files(folder / "hot.fed", settings)
    with ExitStack() as stack:

        def run(what: str, number: int, *lines: str) -> ServerProcess:
            text = "\n".join([*lines, ""])
            config = folder / f"server-{number}.toml"
            return stack.enter_context(run_server(f"the {what}", config, text, f"127.0.0.{number}"))

        of_site = "[limits]\ndrain_seconds = 1\n[logical]"
        top = [of_site, f"close_idle_files_seconds = {settings.idle_seconds}"]
        origin = run(ORIGIN, 2, *top, *_export(folder / "hot.fed", settings.disk))
        servers = {ORIGIN: origin}
        for number in range(1, settings.servers):
            export = _export(folder / f"cache-{number}", settings.disk)
            export.append(
                f"cache = {{ of = {json.dumps(origin.url(EXPORT))}, idle_seconds = {settings.idle_seconds} }}"
            )
            servers[f"cache {number}"] = run(f"cache {number}", 2 + number, *top, *export)
        to, *caches = [server.url(EXPORT) for server in servers.values()]
        redirect = ["[redirect]", f"to = {json.dumps([to])}", f"caches = {json.dumps(caches)}"]
        redirect.append(f"clients_per_copy = {settings.clients_per_copy}")
        site = HotSite(paths, servers, run("redirector", 1, *redirect))
        site.wait_until_up()
        yield site


def _export(folder: Path, disk: PlayedDisk) -> list[str]:
    """An export with a played disk, for a server's configuration."""
    throttle = ", ".join(f"{name} = {value}" for name, value in disk._asdict().items())
    named = [f"folder = {json.dumps(str(folder))}", f"name = {json.dumps(EXPORT)}"]
    return ["[[export]]", *named, f"throttle = {{ {throttle} }}"]


def _write_files(folder: Path, settings: SiteSettings) -> list[Path]:
    """Write sealed databases, and return their files."""
    payloads = Payloads(seed=1)
    with fb.create(folder) as federation:
        for number in range(settings.files):
            name = f"run{number}"
            with federation.transaction() as txn:
                items = txn.database(name, create=True).container("items", Item, create=True)
                for first in range(0, settings.file_bytes, PIECE_BYTES):
                    size = min(PIECE_BYTES, settings.file_bytes - first)
                    items.append(Item(number=first, payload=payloads.one(size)))
            federation.seal(name)
        return [Path(one.path) for one in federation.where()]

"""The federation that clients work on: a folder, and in most scenarios a server, or several with copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .scenario import Scenario
from .server_process import ServerProcess, run_server

__all__ = ["NAME", "Site", "open_sites"]

NAME = "testbed.fed"


@dataclass
class Site:
    """A federation and its server."""

    folder: Path
    location: str
    """Folder or ``root://`` address for clients."""
    server: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server, if there is one."""
        return self.server.pid if self.server else None

    def status(self) -> dict[str, Any]:
        """Return the server's status; empty without a server."""
        return self.server.status() if self.server else {}


def open_sites(folder: Path, scenario: Scenario) -> Sequence[AbstractContextManager[Site]]:
    """Copy a federation for each further server; each site is one as of :func:`open_site`.

    The simulated disks are those of the first server, unless the scenario gives such disks to all.
    """
    good = replace(scenario, simulation=replace(scenario.simulation, disks=None))
    others = scenario if scenario.simulation.disks_of == "all" else good
    sites = [open_site(folder, scenario)]
    for number in range(1, scenario.simulation.servers):
        copied = folder.with_stem(f"{folder.stem}-{number}")
        shutil.copytree(folder, copied)
        sites.append(open_site(copied, others))
    return sites


@contextmanager
def open_site(folder: Path, scenario: Scenario) -> Iterator[Site]:
    """Serve a federation, unless clients open its folder, for the time of a block; then remove it."""
    try:
        if scenario.simulation.access == "local":
            yield Site(folder, str(folder))
            return
        config = folder.with_suffix(".toml")
        with run_server(str(folder), config, _config(folder, scenario)) as server:
            yield Site(folder, server.url(f"/{NAME}"), server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(folder: Path, scenario: Scenario) -> str:
    """Return the configuration of the server, with the scenario's simulated disks."""
    simulation = scenario.simulation
    # The processes on this machine stand for clients on other ones.
    lines = ["[limits]", "drain_seconds = 1", "[logical]", "pass_files = false", "[[export]]"]
    lines += [f"folder = {json.dumps(str(folder))}", f'name = "/{NAME}"']
    if simulation.disks is not None and simulation.disks.is_slow:
        names = json.dumps([simulation.disks.name(number) for number in range(simulation.disks.count)])
        rate = round(simulation.disks.bytes_per_second * simulation.compression)
        seeks = round(simulation.disks.seeks_per_second * simulation.compression)
        speed = f"bytes_per_second = {rate}, seeks_per_second = {seeks}"
        behind = simulation.disks.write_behind_seconds / simulation.compression
        memory = f"cache_bytes = {simulation.disks.cache_bytes}, write_behind_seconds = {behind}"
        lines.append(f"throttle = {{ {speed}, {memory}, disks = {names} }}")
    return "\n".join(lines) + "\n"

"""The federation that clients work on: a folder, and in most scenarios a server, or several with copies."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import femtobarn as fb

from .scenario import Scenario

__all__ = ["NAME", "Site", "open_sites"]

NAME = "testbed.fed"
START_SECONDS_MAX = 60.0


@dataclass
class Site:
    """A federation and its server."""

    folder: Path
    location: str
    """Folder or ``root://`` address for clients."""
    pid: int | None = None
    """Process id of the server, if there is one."""
    pipe: Connection | None = None

    def status(self) -> dict[str, Any]:
        """Return the server's status; empty without a server."""
        if self.pipe is None:
            return {}
        self.pipe.send("status")
        status: dict[str, Any] = self.pipe.recv()
        return status


def open_sites(folder: Path, scenario: Scenario) -> Sequence[AbstractContextManager[Site]]:
    """Copy a federation for each further server; each site is one as of :func:`open_site`.

    The simulated disks are those of the first server.
    """
    good = replace(scenario, simulation=replace(scenario.simulation, disks=None))
    sites = [open_site(folder, scenario)]
    for number in range(1, scenario.simulation.servers):
        copied = folder.with_stem(f"{folder.stem}-{number}")
        shutil.copytree(folder, copied)
        sites.append(open_site(copied, good))
    return sites


@contextmanager
def open_site(folder: Path, scenario: Scenario) -> Iterator[Site]:
    """Serve a federation, unless clients open its folder, for the time of a block; then remove it."""
    try:
        if scenario.simulation.access == "local":
            yield Site(folder, str(folder))
            return
        with _served(folder, scenario) as site:
            yield site
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _served(folder: Path, scenario: Scenario) -> Iterator[Site]:
    config = folder.parent / f"{folder.stem}.toml"
    config.write_text(_config(folder, scenario))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(config), theirs), name="server", daemon=True)
    process.start()
    try:
        theirs.close()
        if not ours.poll(START_SECONDS_MAX):
            raise fb.UnavailableError(
                f"the server of {folder} did not start within {START_SECONDS_MAX:.0f} s"
            )
        port = ours.recv()
        if isinstance(port, str):
            raise fb.UnavailableError(f"the server of {folder} did not start: {port}")
        yield Site(folder, f"root://127.0.0.1:{port}//{NAME}", process.pid, ours)
        ours.send("stop")
        process.join(START_SECONDS_MAX)
    finally:
        process.kill()
        process.join()
        config.unlink()


def _config(folder: Path, scenario: Scenario) -> str:
    """Return the configuration of the server, with the scenario's simulated disks."""
    simulation = scenario.simulation
    lines = ["[limits]", "drain_seconds = 1", "[[export]]"]
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


def _serve(config: str, pipe: Connection) -> None:
    """Run a server until the runner sends ``"stop"``."""
    try:
        server = fb.serve(port=0, address="127.0.0.1", anonymous="all", config=config)
    except fb.FemtobarnError as error:
        pipe.send(str(error))
        return
    # The pipe breaks if the runner is killed: the server ends then, too.
    with server, suppress(EOFError, BrokenPipeError):
        pipe.send(server.port)
        while pipe.recv() == "status":
            pipe.send(server.status())

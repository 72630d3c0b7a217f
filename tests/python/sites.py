"""Several servers of one federation, each a process with a folder and an address of its own, for tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from postgres_servers import Postgres
from server_settings import QUICK_STOP

import femtobarn as fb

__all__ = ["LEASE_SECONDS", "Site", "Sites"]

LEASE_SECONDS = 2
"""A server that was killed counts as away after this time."""


class Site:
    """One of the servers."""

    def __init__(self, folder: Path, name: str, host: str, storage: str | None, port: int = 0) -> None:
        self.folder, self.name, self.host, self.storage = folder, name, host, storage
        settings = QUICK_STOP.read_text() + f"\n[site]\nlease_seconds = {LEASE_SECONDS}\n"
        settings += "" if storage is None else f'name = "{name}"\nstorage = "{storage}"\n'
        config = folder.parent / f"{name}.toml"
        config.write_text(f'{settings}[auth]\nanonymous = "all"\n')
        command = [sys.executable, "-m", "femtobarn", "serve", f"{folder}=/lhc.fed", "--site", name]
        command += ["--address", host, "-p", str(port), "--json", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = json.loads(self.process.stdout.readline())["port"]

    def url(self, path: str = "") -> str:
        """The address of the federation, or of a file of it, at this server."""
        return f"root://{self.host}:{self.port}//lhc.fed{path and '/' + path}"

    def http(self, path: str) -> str:
        return f"http://{self.host}:{self.port}/lhc.fed/{path}"

    def open(self, **options: Any) -> fb.Federation:
        return fb.open(self.url(), **options)

    def kill(self) -> None:
        """End it as a loss of power would."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def again(self) -> Site:
        """Start it again, at the same port."""
        return Site(self.folder, self.name, self.host, self.storage, self.port)


class Sites:
    """Servers with a disk each, or with one for all, that end with the context."""

    def __init__(self, postgres: Postgres, folder: Path, names: list[str], *, shared: bool = False) -> None:
        first = folder / names[0]
        with fb.create(first, catalogue=postgres.url()):
            pass
        self.sites = []
        for number, name in enumerate(names):
            place = first if shared else folder / name
            if not place.exists():
                place.mkdir()
                shutil.copy(first / "catalogue.toml", place)
            storage = "shared" if shared else None
            self.sites.append(Site(place, name, f"127.0.0.{number + 1}", storage))

    def __enter__(self) -> list[Site]:
        return self.sites

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for site in self.sites:
            site.kill()

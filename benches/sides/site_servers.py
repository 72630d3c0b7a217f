"""A federation whose catalogue is in a PostgreSQL of its own, in a folder or at one or several servers.

Each server has a folder with databases of its own, and knows from `catalogue.toml` where the catalogue is.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import postgres
from postgres import Postgres
from servers import REQUESTS, START_SECONDS, Server, free_port, running

import femtobarn as fb

NAME = "bench.fed"


def database_of(server: int) -> str:
    """The name of the database that a server has."""
    return f"d{server}"


@contextmanager
def database_server(folder: Path) -> Iterator[Postgres]:
    """A new PostgreSQL below a folder, which any user may enter for that."""
    folder.chmod(0o777)
    place = folder / "postgres"
    postgres.create(place)
    with postgres.serve(place, is_kept=False) as server:
        yield server


def created(database: Postgres, folder: Path, servers: int) -> list[Path]:
    """Create a federation below a folder, and a folder for each of so many servers."""
    folders = [folder / str(number) / NAME for number in range(servers)]
    for place in folders:
        place.parent.mkdir()
    fb.create(folders[0], catalogue=database.url).close()
    for place in folders[1:]:
        place.mkdir()
        shutil.copy(folders[0] / "catalogue.toml", place)
    return folders


@contextmanager
def served(folders: list[Path], throttle: str = "") -> Iterator[list[Server]]:
    """Serve the federation, from each folder by a server, whose disk may be a simulated one."""
    with ExitStack() as stack:
        servers = []
        for number, folder in enumerate(folders):
            port, scratch = free_port(), folder.parent
            settings = REQUESTS.read_text()
            settings += f"[[export]]\nfolder = {json.dumps(str(folder))}\nname = {json.dumps('/' + NAME)}\n"
            settings += f"throttle = {{ {throttle} }}\n" if throttle else ""
            (scratch / "config.toml").write_text(settings)
            command = [sys.executable, "-m", "femtobarn", "serve", "-c", str(scratch / "config.toml"), "-w"]
            command += ["--address", "127.0.0.1", "-p", str(port)]
            if len(folders) > 1:
                command += ["--site", f"s{number}", "--url", f"root://127.0.0.1:{port}"]
            servers.append(stack.enter_context(running(command, port, scratch)))
        if len(folders) > 1:
            wait_until_at_home(address(servers[0]), len(folders))
        yield servers


def address(server: Server) -> str:
    """Where a server has the federation."""
    return f"{server.url}/{NAME}"


def wait_until_at_home(url: str, servers: int) -> None:
    """Wait until each server is the home of its database."""
    end = time.monotonic() + START_SECONDS
    with fb.open(url) as federation:
        while any(federation.home(database_of(number)) != f"s{number}" for number in range(servers)):
            if time.monotonic() > end:
                raise SystemExit("the servers did not join")
            time.sleep(0.05)

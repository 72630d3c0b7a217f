"""A server in a process of its own, and its status.

The process ends with the block that started it, and if the process that started it is killed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import femtobarn as fb

__all__ = ["ServerProcess", "run_server"]

START_SECONDS_MAX = 60.0


@dataclass
class ServerProcess:
    """A server that runs."""

    address: str
    port: int
    pid: int
    pipe: Connection

    def url(self, path: str) -> str:
        """Return the ``root://`` address of a path, such as ``/lhc.fed``."""
        return f"root://{self.address}:{self.port}/{path}"

    def status(self) -> dict[str, Any]:
        """Return the server's status.

        Raises
        ------
        UnavailableError
            If the server has ended.
        """
        try:
            self.pipe.send("status")
            status: dict[str, Any] = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise fb.UnavailableError(f"the server at {self.address}:{self.port} has ended") from error
        return status


@contextmanager
def run_server(what: str, config: Path, text: str, address: str = "127.0.0.1") -> Iterator[ServerProcess]:
    """Run a server at any free port for the time of a block.

    Parameters
    ----------
    what
        The served folder, for errors.
    config
        The file of its configuration, which is removed at the end.
    text
        The configuration.

    Raises
    ------
    UnavailableError
        If it does not start.
    """
    config.write_text(text)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(config), address, theirs), name="server", daemon=True)
    process.start()
    try:
        theirs.close()
        if not ours.poll(START_SECONDS_MAX):
            raise fb.UnavailableError(f"the server of {what} did not start within {START_SECONDS_MAX:.0f} s")
        port = ours.recv()
        if isinstance(port, str):
            raise fb.UnavailableError(f"the server of {what} did not start: {port}")
        assert process.pid is not None
        yield ServerProcess(address, port, process.pid, ours)
        ours.send("stop")
        process.join(START_SECONDS_MAX)
    finally:
        process.kill()
        process.join()
        config.unlink()


def _serve(config: str, address: str, pipe: Connection) -> None:
    """Run a server until the runner sends ``"stop"``."""
    try:
        server = fb.serve(port=0, address=address, anonymous="all", config=config)
    except fb.FemtobarnError as error:
        pipe.send(str(error))
        return
    # The pipe breaks if the runner is killed: the server ends then, too.
    with server, suppress(EOFError, BrokenPipeError):
        pipe.send(server.port)
        while pipe.recv() == "status":
            pipe.send(server.status())

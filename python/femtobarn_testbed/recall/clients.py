"""Clients that request files from tapes: through a server, or each file staged by the process that needs it.

Both return when each file was there, in seconds by the clock since the first was asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import femtobarn as fb

__all__ = ["ask_server", "stage_in_order"]

API = "/api/tape/v1/stage"
POLL_SECONDS = 0.1
ANSWER_SECONDS = 60.0


class _Client:
    """A client of the Tape REST API that asks for files, some at a time."""

    def __init__(self, server: fb.Server, files: Sequence[str], at_once: int) -> None:
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_SECONDS)
        (self.export,) = server.exports
        step = at_once or max(len(files), 1)
        self.parts = [files[first : first + step] for first in range(0, len(files), step)]
        self.request = ""

    def ask(self) -> None:
        """Ask for the next part."""
        wanted = [{"path": f"{self.export}/{name}.root"} for name in self.parts.pop(0)]
        self.request = self._call("POST", API, {"files": wanted})["requestId"]

    def arrived(self) -> list[str]:
        """Return the files of the part that are there; if these are all, give them up, and ask for the next.

        Raises
        ------
        UnavailableError
            If a file could not be brought back.
        """
        state = self._call("GET", f"{API}/{self.request}")
        if failed := next((file for file in state["files"] if file["state"] == "FAILED"), None):
            raise fb.UnavailableError(f"{failed['path']}: {failed.get('error', 'it failed')}")
        names = [file["path"].rpartition("/")[2] for file in state["files"] if file.get("onDisk")]
        if len(names) == len(state["files"]):
            # Its files would stay on the disk for a day.
            self._call("DELETE", f"{API}/{self.request}")
            self.request = ""
            if self.parts:
                self.ask()
        return [name.removesuffix(".root") for name in names]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise fb.UnavailableError(f"{method} {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None


def ask_server(
    server: fb.Server, wanted: Sequence[Sequence[str]], at_once: int, progress: Callable[[str], None]
) -> dict[str, float]:
    """Let clients ask for their files, and wait until all are there.

    Parameters
    ----------
    wanted
        Databases that each client wants. The clients ask in this order, one right after the other.
    at_once
        Files that a client asks for in one request, the next when these have come; 0: all.
    """
    clients = [_Client(server, files, at_once) for files in wanted if files]
    began, there = time.monotonic(), dict[str, float]()
    total = sum(map(len, wanted))
    with ExitStack() as stack:
        for client in clients:
            stack.callback(client.connection.close)
            client.ask()
        while waiting := [client for client in clients if client.request]:
            time.sleep(POLL_SECONDS)
            for client in waiting:
                names = client.arrived()
                now = time.monotonic() - began
                for name in names:
                    there.setdefault(name, now)
            progress(f"{len(there)} of {total} files are there")
    return there


def stage_in_order(
    federation: fb.Federation, order: Sequence[str], at_once: int, progress: Callable[[str], None]
) -> Mapping[str, float]:
    """Stage files in this order, as many at once as there are drives."""
    began, there = time.monotonic(), dict[str, float]()

    def stage(name: str) -> None:
        federation.stage(name)
        there[name] = time.monotonic() - began
        progress(f"{len(there)} of {len(order)} files are there")

    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(stage, order):
            pass
    return there

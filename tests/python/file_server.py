"""A server of a federation and of a plain folder with files, for the tests of files over HTTP."""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb

__all__ = ["CONTENT", "EVENTS", "FileServer", "Reply", "run", "serve", "served_files"]

EVENTS = 20_000
CONTENT = np.random.default_rng(3).bytes(3_000_000)
"""More than is sent in one piece."""


@fb.persistent
class Event:
    number: fb.int64
    pt: list[fb.float32]


@dataclass
class Reply:
    code: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class FileServer:
    """A server of a federation and of a plain folder with files."""

    server: fb.Server
    folder: Path
    certificate: Path | None = None
    """The certificate of the authority that signed the server's; if given, requests use TLS."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    def connection(self) -> http.client.HTTPConnection:
        if self.certificate is None:
            return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        context = ssl.create_default_context(cafile=self.certificate)
        return http.client.HTTPSConnection("localhost", self.server.port, timeout=60, context=context)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        """Send a request; an underscore in the name of a header stands for a hyphen."""
        with closing(self.connection()) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())


def serve(folder: Path, setting: str = "", **options: Any) -> fb.Server:
    config = folder / "server.toml"
    config.write_text(f'[[export]]\nfolder = "{folder}/data"\n{setting}\n')
    return fb.serve(folder / "lhc.fed", port=0, address="127.0.0.1", config=config, **options)


@contextmanager
def served_files(tmp_path: Path) -> Iterator[FileServer]:
    """A federation with two commits, and a folder that all clients may change."""
    with fb.create(tmp_path / "lhc.fed") as fed:
        for first in (0, EVENTS):
            with fed.transaction() as txn:
                events = txn.database("run7", create=True).container("events", Event, create=True)
                numbers = np.arange(first, first + EVENTS)
                events.extend({"number": numbers, "pt": [[float(each)] * (each % 3) for each in numbers]})
    (tmp_path / "data" / "below").mkdir(parents=True)
    (tmp_path / "data" / "large.bin").write_bytes(CONTENT)
    (tmp_path / "data" / "empty").touch()
    (tmp_path / "data" / "below" / "a & <b> ü.txt").write_text("text")
    with serve(tmp_path, '[http]\norigins = ["*"]', anonymous="all") as server:
        yield FileServer(server, tmp_path)


def run(*command: str | Path, code: int = 0) -> str:
    """Run a client that must end with a code; skip the test if it is not installed."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    # gfal's scripts need the interpreter that Debian's packages are for.
    variables = {**os.environ, "GFAL_PYTHONBIN": "/usr/bin/python3"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout

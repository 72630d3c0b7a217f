"""The programs in C that measure the limits of the machine: they do the work that they are compared for."""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from redirected import opened
from server_load import compare
from servers import Server, bare, free_port, running, start
from timing import Seen

import programs

THREADS = ("2", "0")
"""Two threads, and one for each connection."""
SIZE = 3_000_001
"""Bytes of a file; no multiple of a page."""


Program = Callable[[str], str]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The path of a program by its name, compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "BENCH", tmp_path_factory.mktemp("programs"))
        yield lambda name: str(programs.bare_program(name))


def run(*command: object) -> dict[str, Any]:
    """Run a program, and return its sample."""
    sample: dict[str, Any] = json.loads(programs.execute([str(word) for word in command]).splitlines()[-1])
    return sample


@contextmanager
def served(kind: str, tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server of a random file, and of a folder for copies."""
    for name in ("data", "up", "scratch"):
        (tmp_path / name).mkdir()
    file = tmp_path / "data" / "file"
    file.write_bytes(os.urandom(SIZE))
    with start(kind, {"data": file.parent, "up": tmp_path / "up"}, tmp_path / "scratch") as server:
        yield server, file


def xrdcp(source: str, target: str, pages: str) -> None:
    """Copy a file by XRootD's client, with page checksums or by plain reads and writes."""
    command = ["xrdcp", "--silent", "--force", source, target]
    done = subprocess.run(
        command, env={**os.environ, "XRD_CPUSEPGWRTRD": pages}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_program_in_braces_may_be_part_of_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "program_path", lambda name: Path("/programs") / name)
    line = programs.command_line(("server_load.py", "{bare_server}:2", "{data}/file", "{sessions}"))
    assert line[-3:] == ["/programs/bare_server:2", f"{programs.DATA}/file", "/programs/sessions"]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("pages", ["0", "1"])
def test_bare_server_gives_and_takes_files(
    program: Program, tmp_path: Path, threads: str, pages: str
) -> None:
    with served(f"{program('bare_server')}:{threads}", tmp_path) as (server, file):
        compare(server, file)
        xrdcp(f"{server.url}/data/file", str(tmp_path / "down"), pages)
        xrdcp(str(file), f"{server.url}/up/copy", pages)
    assert (tmp_path / "down").read_bytes() == file.read_bytes()
    assert (tmp_path / "up" / "copy").read_bytes() == file.read_bytes()


def test_server_with_other_bytes_is_not_measured(program: Program, tmp_path: Path) -> None:
    with served(f"{program('bare_server')}:2", tmp_path) as (server, file):
        (tmp_path / "file").write_bytes(file.read_bytes()[::-1])
        with pytest.raises(SystemExit, match="does not serve the bytes"):
            compare(server, tmp_path / "file")


def test_bare_server_ends_a_connection_with_a_wrong_checksum(program: Program, tmp_path: Path) -> None:
    """The requests are login, open for writing and pgwrite (3026) of XRootD's protocol."""
    with (
        served(f"{program('bare_server')}:2", tmp_path) as (server, _),
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection,
    ):
        answers = connection.makefile("rb")
        connection.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        connection.sendall(struct.pack(">HHi8s4Bi", 0, 3007, 1, b"bench", 0, 0, 5, 0, 0))
        connection.sendall(struct.pack(">HHHHH6s4si", 0, 3010, 0, 0x8, 0, b"", b"", 7) + b"/up/new")
        bodies = [answers.read(struct.unpack(">HHi", answers.read(8))[2]) for _ in range(3)]
        written = struct.pack(">HH4sq4si", 0, 3026, bodies[2][:4], 0, b"", 8)
        connection.sendall(written + b"\0\0\0\0" + b"data")
        assert answers.read() == b""
    assert (tmp_path / "up" / "new").read_bytes() == b""


def test_bare_redirector_sends_each_open_elsewhere(program: Program, tmp_path: Path) -> None:
    port = free_port()
    command = bare(f"{program('bare_server')}:1", "redirect", port)
    with running(command, port, tmp_path):
        assert opened(port, ["one", "two", "three"]) == 3


def test_streamed_file_has_the_check_of_its_words(program: Program, tmp_path: Path) -> None:
    file, seen = tmp_path / "file", Seen()
    words = np.random.default_rng(1).integers(0, 2**32, SIZE // 4, np.uint32)
    words.tofile(file)
    seen.add(words)
    sample = run(program("bare_stream"), "read", file, 7)
    assert (sample["items"], sample["bytes"], sample["check"]) == (7, seen.bytes, seen.check)


def test_streamed_objects_are_written_in_their_transactions(program: Program, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    pool.write_bytes(os.urandom(100_000))
    # The pool is read more than once, and the last transaction is smaller than the others.
    sample = run(program("bare_stream"), "append", tmp_path, pool, 1000, 250, 120)
    assert (sample["items"], sample["bytes"]) == (250, 250_000)
    objects = pool.read_bytes()
    assert (tmp_path / "w0").read_bytes()[:120_000] == (2 * objects)[:120_000]


def test_selection_by_a_loop_equals_that_by_numpy(program: Program, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    columns = [random.normal(0, 4, 100_003).astype(np.float32) for _ in range(5)]
    files = [tmp_path / str(number) for number in range(5)]
    for column, file in zip(columns, files, strict=True):
        column.tofile(file)
    passes, seen = (columns[0] > 4.28125) & (np.abs(columns[1]) < 0.15625), Seen()
    for column in columns[2:]:
        seen.add(np.ascontiguousarray(column[passes]))
    sample = run(program("bare_select"), *files)
    assert passes.any()
    assert (sample["items"], sample["bytes"], sample["check"]) == (100_003, seen.bytes, seen.check)


def test_bare_commits_answer_each_client(program: Program, tmp_path: Path) -> None:
    sample = run(program("bare_commits"), tmp_path, 5, 0.1)
    assert sample["items"] >= 5
    assert sample["bytes"] == 1000 * sample["items"]


class Stored(BaseHTTPRequestHandler):
    """A store of one file, by its path."""

    files: ClassVar[dict[str, bytes]] = {}
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Keep a file."""
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def do_GET(self) -> None:
        """Give a file."""
        found = self.files.get(self.path)
        self.answer(404 if found is None else 200, found or b"")

    def answer(self, status: int, body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_bare_client_puts_and_gets_a_file(program: Program, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(SIZE))
    with HTTPServer(("127.0.0.1", 0), Stored) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        assert run(program("bare_http"), "put", port, "/b/file", source)["bytes"] == SIZE
        assert run(program("bare_http"), "get", port, "/b/file", target)["bytes"] == SIZE
        with pytest.raises(SystemExit, match="404"):
            run(program("bare_http"), "get", port, "/b/other", target)
        server.shutdown()
    assert target.read_bytes() == source.read_bytes()


def test_prepared_answers_are_chosen_by_the_number_in_the_request(program: Program, tmp_path: Path) -> None:
    answers = [f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{'x' * size}".encode() for size in (3, 7)]
    slots = [(struct.pack("=I", len(each)) + each).ljust(100) for each in answers]
    (tmp_path / "answers").write_bytes(b"".join(slots))
    port = free_port()
    command = [program("bare_answers"), str(port), str(tmp_path / "answers"), "100", "&number=", "10", "2"]
    with running(command, port, tmp_path):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for number, body in ((0, b"xxx"), (19, b"xxxxxxx"), (9, b"xxx")):
            connection.request("GET", f"/any?tag=a&number={number}")
            assert connection.getresponse().read() == body
        connection.close()

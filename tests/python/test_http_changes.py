"""Files are stored, renamed and removed over HTTP: completely, by authorised clients, despite failures."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path
from time import sleep, time

import pytest
from file_server import CONTENT, FileServer, run, serve, served_files

import femtobarn as fb


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileServer]:
    with served_files(tmp_path) as served:
        yield served


def test_files_are_stored_renamed_and_removed(files: FileServer) -> None:
    assert files.ask("PUT", "/data/new/deep/file", CONTENT).code == 201
    stored = files.folder / "data" / "new" / "deep" / "file"
    assert stored.read_bytes() == CONTENT
    assert files.ask("PUT", "/data/new/deep/file", b"short").code == 204
    assert stored.read_bytes() == b"short"
    assert files.ask("PUT", "/data/new/deep/file", b"x", If_None_Match="*").code == 412
    tag = files.ask("HEAD", "/data/new/deep/file").headers["ETag"]
    assert files.ask("PUT", "/data/new/deep/file", b"x", If_Match='"other"').code == 412
    assert files.ask("PUT", "/data/new/deep/file", b"longer", If_Match=tag).code == 204
    assert files.ask("PUT", "/data/new/deep/file", b"x", Content_Range="bytes 0-0/9").code == 501
    assert files.ask("PUT", "/data/new", b"x").code == 409
    assert files.ask("MKCOL", "/data/folder").code == 201
    assert files.ask("MKCOL", "/data/folder").code == 405
    assert files.ask("MKCOL", "/data/none/folder").code == 409
    later = "Fri, 31 Dec 9999 23:59:59 GMT"
    assert files.ask("PUT", "/data/new/deep/file", b"longer", If_Modified_Since=later).code == 204
    assert files.ask("MOVE", "/data/new/deep/file", Destination="/data/none/file").code == 409
    assert files.ask("MOVE", "/data/new/deep/file", Destination="/data/new/deep/file").code == 403
    assert files.ask("MOVE", "/data/new/deep/file", Destination="http://other.site/data/x").code == 502
    assert files.ask("MOVE", "/data/none", Destination="/data/empty", Overwrite="F").code == 404
    moved = files.ask("MOVE", "/data/new/deep/file", Destination=files.url("/data/folder/moved"))
    assert moved.code == 201
    assert (files.folder / "data" / "folder" / "moved").read_bytes() == b"longer"
    refused = files.ask("MOVE", "/data/folder/moved", Destination="/data/empty", Overwrite="F")
    assert refused.code == 412
    assert files.ask("MOVE", "/data/folder/moved", Destination="/data/empty").code == 204
    assert files.ask("DELETE", "/data/empty").code == 204
    assert files.ask("DELETE", "/data/empty").code == 404
    assert files.ask("DELETE", "/data/new").code == 409
    assert files.ask("DELETE", "/data/folder").code == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MKCOL", "MOVE"])
def test_federations_are_changed_by_transactions_alone(files: FileServer, method: str) -> None:
    answer = files.ask(method, "/lhc.fed/run7.root", b"" if method == "PUT" else None, Destination="/data/x")
    assert answer.code == 405
    assert b"changed by transactions" in answer.body
    if method == "MOVE":
        assert files.ask("MOVE", "/data/empty", Destination="/lhc.fed/x.root").code == 403


def test_rights_are_those_of_other_protocols(files: FileServer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with fb.serve(data, port=0, address="127.0.0.1", anonymous="read") as server:
        reader = FileServer(server, tmp_path)
        assert reader.ask("GET", "/data/empty").code == 200
        for method in ("PUT", "DELETE", "MKCOL"):
            assert reader.ask(method, "/data/other" if method != "DELETE" else "/data/empty").code == 403
        assert reader.ask("GET", "/data/empty", Authorization="Bearer x").code == 401
    with fb.serve(data, port=0, address="127.0.0.1", anonymous="nothing") as server:
        assert FileServer(server, tmp_path).ask("GET", "/data/empty").code in (401, 403)
        assert FileServer(server, tmp_path).ask("PROPFIND", "/data/").code in (401, 403)
    assert not (data / "other").exists()


def begin_upload(files: FileServer, path: str, *headers: str) -> socket.socket:
    """Send the head and the first half of an upload of CONTENT."""
    connection = socket.create_connection(("127.0.0.1", files.server.port))
    lines = [f"PUT {path} HTTP/1.1", "Host: x", f"Content-Length: {len(CONTENT)}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + CONTENT[: len(CONTENT) // 2])
    return connection


def uploads(files: FileServer) -> list[Path]:
    return list((files.folder / "data" / ".femtobarn-uploads").glob("*"))


def wait_for_uploads(files: FileServer, count: int) -> None:
    for _ in range(600):
        if len(uploads(files)) == count:
            return
        sleep(0.05)
    raise AssertionError(f"there are {len(uploads(files))} uploads")


def test_upload_that_is_cut_off_leaves_the_old_file(files: FileServer) -> None:
    with begin_upload(files, "/data/large.bin"):
        wait_for_uploads(files, 1)
        assert files.ask("GET", "/data/.femtobarn-uploads/").code == 404
        assert files.ask("GET", f"/data/.femtobarn-uploads/{uploads(files)[0].name}").code == 404
        assert b"femtobarn-uploads" not in files.ask("GET", "/data/").body
    wait_for_uploads(files, 0)
    assert files.ask("GET", "/data/large.bin").body == CONTENT


def test_conditions_hold_when_the_upload_ends(files: FileServer) -> None:
    with begin_upload(files, "/data/new", "If-None-Match: *") as first:
        wait_for_uploads(files, 1)
        assert files.ask("PUT", "/data/new", b"second", If_None_Match="*").code == 201
        first.sendall(CONTENT[len(CONTENT) // 2 :])
        assert first.recv(100).startswith(b"HTTP/1.1 412 ")
    assert files.ask("GET", "/data/new").body == b"second"
    wait_for_uploads(files, 0)


def test_uploads_of_servers_that_were_killed_are_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "data" / ".femtobarn-uploads"
    folder.mkdir(parents=True)
    for name, age in (("left", 7200), ("running", 60)):
        (folder / name).write_bytes(b"part")
        os.utime(folder / name, (time() - age, time() - age))
    with fb.serve(tmp_path / "data", port=0, address="127.0.0.1", anonymous="all"):
        assert [path.name for path in folder.iterdir()] == ["running"]


def test_server_that_stops_lets_a_download_end(files: FileServer) -> None:
    with socket.create_connection(("127.0.0.1", files.server.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(b"GET /data/large.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        stopping = threading.Thread(target=files.server.stop)
        received = connection.recv(30_000)
        stopping.start()
        while part := connection.recv(30_000):
            received += part
            sleep(0.01)
        stopping.join(30)
    assert received.endswith(CONTENT)


def test_upload_to_a_full_disk_answers_507_and_leaves_the_old_file(tmp_path: Path, files: FileServer) -> None:
    with serve(tmp_path, 'faults = ["write:2+=ENOSPC"]', anonymous="all") as server:
        full = FileServer(server, tmp_path)
        assert full.ask("PUT", "/data/large.bin", CONTENT[::-1]).code == 507
        assert full.ask("GET", "/data/large.bin").body == CONTENT
    assert uploads(files) == []


def test_failing_disk_ends_an_answer_instead_of_filling_it_up(tmp_path: Path, files: FileServer) -> None:
    with serve(tmp_path, 'faults = ["read:1+=EIO"]', anonymous="all") as server:
        assert FileServer(server, tmp_path).ask("GET", "/data/large.bin").code == 500
    with (
        serve(tmp_path, 'faults = ["read:4+=EIO"]', anonymous="all") as server,
        pytest.raises(IncompleteRead),
    ):
        FileServer(server, tmp_path).ask("GET", "/data/large.bin")


def test_an_upload_without_room_is_refused_before_its_bytes(files: FileServer) -> None:
    size = 10**18
    with socket.create_connection(("127.0.0.1", files.server.port), timeout=60) as client:
        lines = ["PUT /data/huge HTTP/1.1", "Host: here", f"Content-Length: {size}", "Expect: 100-continue"]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = client.recv(4096).decode()
    assert answer.startswith("HTTP/1.1 507 ")
    huge, free = files.folder / "huge", shutil.disk_usage(files.folder).free
    # ext4 has no files of more than 16 TiB.
    size = min(free + 10**12, 8 << 40)
    if size <= free:
        pytest.skip("the disk has room for all files")
    with huge.open("wb") as sparse:
        sparse.truncate(size)
    url = f"root://127.0.0.1:{files.server.port}//data"
    run("xrdcp", "--silent", huge, f"{url}/huge", code=54)
    run("xrdcp", "--silent", files.folder / "data" / "empty", f"{url}/small")
    assert (files.folder / "data" / "small").exists()
    assert not (files.folder / "data" / "huge").exists()

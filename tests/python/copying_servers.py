"""Servers that copy files from and to other servers: Femtobarn's, and XRootD's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from file_server import FileServer, run
from waiting import free_port, wait_for_port

import femtobarn as fb

__all__ = ["Site", "certified", "copying", "has_begun", "left", "xrootd"]

NEAR = '[copy]\nhosts = ["127.0.0.0/8"]\n'


@contextmanager
def copying(folder: Path, setting: str = NEAR, **options: Any) -> Iterator[FileServer]:
    """A server of an empty folder that copies files."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    config = folder / "copying.toml"
    config.write_text(setting)
    options = {"anonymous": "all", **options}
    with fb.serve(folder / "data", port=0, address="127.0.0.1", config=config, **options) as server:
        yield FileServer(server, folder)


def left(server: FileServer) -> list[str]:
    """The files of a server, once no upload is left."""
    folder = server.folder / "data"
    for _ in range(200):
        if not list((folder / ".femtobarn-uploads").glob("*")):
            break
        sleep(0.05)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def has_begun(server: FileServer) -> bool:
    """Tell whether the first bytes of a copy arrive within a while."""
    for _ in range(400):
        if any(part.stat().st_size for part in (server.folder / "data/.femtobarn-uploads").glob("*")):
            return True
        sleep(0.05)
    return False


def certified(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate for localhost, its key, and the authority that signed it, alone in its folder."""
    (folder / "trusted").mkdir(mode=0o755)
    certificate, key, names, asked = (folder / f"localhost.{end}" for end in ("pem", "key", "names", "csr"))
    root, root_key = folder / "trusted" / "root.pem", folder / "root.key"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]  # one of RSA takes 0.3 s
    new = ["openssl", "req", *kind, "-nodes", "-keyout"]
    run(*new, root_key, "-x509", "-days", "2", "-subj", "/CN=authority", "-out", root)
    run(*new, key, "-subj", "/CN=localhost", "-out", asked)
    sign = ["openssl", "x509", "-req", "-days", "2", "-in", str(asked), "-out", str(certificate)]
    run(*sign, "-extfile", names, "-CA", root, "-CAkey", root_key, "-CAcreateserial")
    root.with_suffix(".srl").unlink()
    run("openssl", "rehash", root.parent)
    return certificate, key, root


@dataclass
class Site:
    """XRootD's server of the folder `data`."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


XROOTD = """all.export /data
oss.localroot {folder}
xrootd.chksum adler32
ofs.tpc pgm {xrdcp} --server
xrd.protocol http libXrdHttp.so
http.exthandler xrdtpc libXrdHttpTPC.so
http.httpsmode auto
xrd.tls {folder}/localhost.pem {folder}/localhost.key
xrd.tlsca certdir {folder}/trusted
all.adminpath {folder}/admin
all.pidpath {folder}/admin
"""


@contextmanager
def xrootd() -> Iterator[Site]:
    """XRootD's server with third-party copies, which it loads only if it has a certificate."""
    if shutil.which("xrootd") is None or not list(Path("/usr").glob("lib*/**/libXrdHttpTPC*")):
        pytest.skip("XRootD's server with third-party copies is not installed")
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), free_port()
        config, log = folder / "xrootd.cfg", folder / "log"
        config.write_text(XROOTD.format(folder=folder, xrdcp=shutil.which("xrdcp")))
        for each in (folder, folder / "data", folder / "admin"):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        # The server refuses to run as the superuser.
        user = ["-R", "nobody"] if os.geteuid() == 0 else []
        for each in certified(folder):
            if user:
                shutil.chown(each, "nobody")
        command = ["xrootd", *user, "-c", str(config), "-p", str(port), "-l", str(log)]
        with started(command, folder, port, log) as server:
            try:
                yield Site(port, folder, server)
            finally:
                server.terminate()


def started(command: list[str], folder: Path, port: int, log: Path) -> subprocess.Popen[bytes]:
    """XRootD's server, once it takes connections. One in hundreds crashes while it starts."""
    starts = 0
    while True:
        starts += 1
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            wait_for_port(server, port, log)
        except AssertionError:
            if starts == 3 or server.poll() != -signal.SIGSEGV:
                server.kill()
                server.wait()
                raise
        else:
            return server

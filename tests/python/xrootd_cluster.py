"""A cluster of XRootD: a manager, a data server of XRootD's and one of ours, each with a `cmsd`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from data_servers import patient_run
from waiting import free_ports, wait_for_port

import femtobarn as fb

__all__ = ["Cluster", "Place", "cluster"]

CONFIG = """all.export /store
oss.localroot {folder}
all.adminpath {folder}/admin
all.pidpath {folder}/admin
all.manager 127.0.0.1:{port}
all.role {role}
xrd.network nodnr
cms.allow host *
cms.delay startup 2 servers 1 lookup 2 qdl 2 suspend 1
cms.space min 1m 2m
if exec xrootd
xrootd.chksum adler32
xrd.protocol http libXrdHttp.so
fi
"""


@dataclass
class Place:
    """The machine of a server, as far as its processes tell."""

    folder: Path
    config: Path
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """The folder of files, `/store` for clients."""
        return self.folder / "store"

    def put(self, name: str, content: bytes) -> None:
        (self.store / name).write_bytes(content)
        (self.store / name).chmod(0o666)

    def has(self, name: str) -> bool:
        return (self.store / name).exists()

    def run(self, program: str, port: int | None = None) -> None:
        """Start a program of XRootD's, which refuses to run as the superuser."""
        user = ["-R", "nobody"] if os.geteuid() == 0 else []
        listening = [] if port is None else ["-p", str(port)]
        command = [program, *user, "-c", str(self.config), "-l", str(self.folder / program), *listening]
        process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        self.processes[program] = process
        if port is not None:
            wait_for_port(process, port, self.folder / program)

    def end(self, program: str) -> None:
        process = self.processes.pop(program)
        process.kill()
        process.wait()

    def end_all(self) -> None:
        for program in list(self.processes):
            self.end(program)

    def log(self, program: str) -> str:
        return (self.folder / program).read_text(errors="replace")


@dataclass
class Cluster:
    manager: Place
    theirs: Place
    ours: Place

    @property
    def url(self) -> str:
        return f"root://127.0.0.1:{self.manager.port}"

    def start_ours(self, *more: str) -> fb.Server:
        """Our server of `/store`, and of more folders."""
        place = self.ours
        setting = f'[limits]\ndrain_seconds = 0\n[cluster]\ncmsd = "{place.folder}/admin/.olb/olbd.admin"\n'
        config = place.folder / "femtobarn.toml"
        config.write_text(setting)
        return fb.serve(
            place.store, *more, port=place.port, address="127.0.0.1", config=config, anonymous="all"
        )

    def is_ours_known(self) -> bool:
        """Whether the manager sends clients to our server now; one that it waits for is `ServerPending`."""
        located, _ = patient_run("xrdfs", self.url, "locate", "*")
        return f"[::127.0.0.1]:{self.ours.port} Server " in located


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster without our server, whose `cmsd` waits for it."""
    if shutil.which("cmsd") is None:
        pytest.skip("XRootD's cmsd is not installed")
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        managing, *ports = free_ports(4)
        places = []
        for name, port in zip(("manager", "theirs", "ours"), ports, strict=True):
            folder = Path(made) / name
            for each in (folder.parent, folder, folder / "store", folder / "admin"):
                each.mkdir(exist_ok=True)
                each.chmod(0o777)
            config, role = folder / "xrootd.cfg", "manager" if name == "manager" else "server"
            config.write_text(CONFIG.format(folder=folder, port=managing, role=role))
            places.append(Place(folder, config, port))
        manager, theirs, ours = places
        for place in places:
            stack.callback(place.end_all)
        for place in (manager, theirs):
            place.run("cmsd")
            place.run("xrootd", place.port)
        ours.run("cmsd")
        yield Cluster(manager, theirs, ours)

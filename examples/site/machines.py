"""The processes of a site: PostgreSQL, the servers of one federation, and a cluster of Dask.

Every command is printed as one would type it. Nothing here asks for a password, so all listen on this machine
alone.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

__all__ = ["FEDERATION", "SERVERS", "STOPS", "THREADS", "WORKERS", "Site"]

SERVERS = ("one", "two", "three")
WORKERS, THREADS = ("worker-1", "worker-2"), 6
"""The workers of Dask, and the threads of each: reading tasks wait for servers more than they compute."""

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the example: Ctrl-C, `kill`, and a terminal that is closed."""

SETTINGS = Path(__file__).with_name("site.toml")
END_SECONDS = 10
FEDERATION = "lhc.fed"
SCHEDULER = "scheduler.json"


class Site:
    """A site in a folder. What was started ends with the context, however that ends."""

    def __init__(self, folder: Path, settings: Path = SETTINGS, *, rights: str = "--writable") -> None:
        self.folder = folder
        """Each server has a folder here, which stands for a disk of its own; the logs are here, too."""
        self.settings = settings
        """The settings of all servers."""
        self.rights = rights
        """The option for what clients may do; without it, the settings say so."""
        self.ports: dict[str, int] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._postgres: Path | None = None

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        """End all that runs, clients first."""
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        self._end(name for name in list(self._running) if name not in SERVERS)
        self._end(list(self._running))
        if self._postgres is not None:
            if (self._postgres / "data/postmaster.pid").exists():
                self.as_postgres("pg_ctl", "-D", "data", "-m", "immediate", "stop")
            shutil.rmtree(self._postgres)

    @property
    def scheduler_file(self) -> str:
        """Where Dask's scheduler says how it is reached."""
        return str(self.folder / SCHEDULER)

    def url(self, server: str) -> str:
        """Return the address of the federation at a server."""
        return f"root://127.0.0.1:{self.ports[server]}//{FEDERATION}"

    @property
    def postgres(self) -> Path:
        """The folder of PostgreSQL: its socket, its log, and its files in `data`."""
        assert self._postgres is not None, "it was started"
        return self._postgres

    def start(self) -> None:
        """Start all processes, and return when the servers have joined."""
        postgres_program("initdb")
        postgres_user()
        self._start_dask()
        self.start_federation()
        self.wait(Path(self.scheduler_file).exists)

    def start_federation(self) -> None:
        """Start PostgreSQL and the servers, and return when these have joined."""
        shutil.copy(self.settings, self.folder)
        catalogue = self.start_postgres()
        self.femtobarn("create", f"{SERVERS[0]}/{FEDERATION}", "--catalogue", catalogue)
        others = [f"{server}/{FEDERATION}" for server in SERVERS[1:]]
        self._run(["mkdir", "-p", *others])
        for folder in others:
            # The file that says where the catalogue is: with it, the folder belongs to the federation.
            self._run(["cp", f"{SERVERS[0]}/{FEDERATION}/catalogue.toml", folder])
        self.start_servers(*SERVERS)

    def start_servers(self, *servers: str) -> None:
        """Start servers, and return when they have joined; one that was killed gets its port again."""
        for server in servers:
            command = ["femtobarn", "serve", f"{server}/{FEDERATION}", "--site", server]
            command += [self.rights] if self.rights else []
            command += ["--address", "127.0.0.1", "--port", str(self.ports.get(server, 0))]
            command += ["--config", self.settings.name, "--json"]
            self._start(server, command, stdout=subprocess.PIPE)
        for server in servers:
            out = self._running[server].stdout
            assert out is not None, "it is a pipe"
            with out:
                told = out.readline()
            if not told:
                sys.exit(f"{server} has ended\n{self._log(server).read_text()}")
            self.ports[server] = json.loads(told)["port"]

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Return when something is so; ends the program if one of the processes ends before."""
        while not is_so():
            for name, process in self._running.items():
                if process.poll() is not None:
                    sys.exit(f"{name} has ended\n{self._log(name).read_text()}")
            time.sleep(0.05)

    def kill(self, server: str) -> None:
        """End a server as a loss of power would."""
        process = self._running.pop(server)
        print(f"$ kill -9 {process.pid}  # server {server}", flush=True)
        process.kill()
        process.wait()

    def stop(self, server: str) -> None:
        """End a server as an operator does."""
        print(f"$ kill {self._running[server].pid}  # server {server}", flush=True)
        self._end([server])

    def pid(self, server: str) -> int | None:
        """Return the process of a server; None while it does not run."""
        process = self._running.get(server)
        return None if process is None or process.poll() is not None else process.pid

    def crash_postgres(self) -> None:
        """Let PostgreSQL end as a loss of power would, and start it again."""
        self.as_postgres("pg_ctl", "-D", "data", "-m", "immediate", "-w", "restart")

    def femtobarn(self, *arguments: str) -> None:
        """Run a command, which prints what it found."""
        self._run(["femtobarn", *arguments])

    def _start_dask(self) -> None:
        here = ["--host", "127.0.0.1", "--scheduler-file", SCHEDULER, "--no-dashboard"]
        self._start("scheduler", ["dask", "scheduler", "--port", "0", *here])
        for worker in WORKERS:
            size = ["--nthreads", str(THREADS), "--no-nanny"]
            self._start(worker, ["dask", "worker", "--name", worker, *size, *here])

    def start_postgres(self) -> str:
        """Start an empty PostgreSQL, reached by a socket in its folder; return the URL of its database."""
        if self._postgres is None:
            self._postgres = Path(tempfile.mkdtemp(prefix="site-postgres-"))
            if (user := postgres_user()) is not None:
                os.chown(self._postgres, user.pw_uid, user.pw_gid)
        self.as_postgres("initdb", "-D", "data", "--username=femtobarn", "--auth=trust", "--no-sync")
        options = f"-k {self._postgres} -c listen_addresses="
        self.as_postgres("pg_ctl", "-D", "data", "-l", "log", "-o", options, "start")
        return f"postgresql://femtobarn@/postgres?host={self._postgres}"

    def as_postgres(self, name: str, *arguments: str) -> None:
        """Run a program of PostgreSQL."""
        options: dict[str, Any] = {"cwd": self._postgres, "is_quiet": True}
        if (user := postgres_user()) is not None:
            options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._run([name, *arguments], program=postgres_program(name), **options)

    def _run(self, command: list[str], *, program: str = "", is_quiet: bool = False, **options: Any) -> None:
        """Run a command to its end."""
        print(f"$ {shlex.join(command)}", flush=True)
        # Not into a pipe, which the processes that pg_ctl starts would keep open.
        with tempfile.TemporaryFile("w+") as told:
            out = {"stdout": told, "stderr": told} if is_quiet else {}
            options = {"cwd": self.folder, **out, **options}
            done = subprocess.run(as_started(command, program), check=False, **options)
            if done.returncode != 0:
                told.seek(0)
                sys.exit(f"{command[0]} failed\n{told.read()}".rstrip())

    def _start(self, name: str, command: list[str], **options: Any) -> None:
        """Start a command that goes on. Ctrl-C reaches this process alone, which ends the others in order."""
        print(f"$ {shlex.join(command)} &", flush=True)
        with self._log(name).open("a") as log:
            options = {"stdout": log, **options, "stderr": log, "cwd": self.folder}
            # What they keep for a while goes into the folder, too.
            options |= {"start_new_session": True, "env": os.environ | {"TMPDIR": str(self.folder)}}
            self._running[name] = subprocess.Popen(as_started(command), text=True, **options)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _end(self, names: Iterable[str]) -> None:
        ending = [self._running.pop(name) for name in names]
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def as_started(command: list[str], program: str = "") -> list[str]:
    """Return a command with the path of its program: those of Python's packages are this Python's."""
    module = [sys.executable, "-m", command[0]] if command[0] in ("femtobarn", "dask") else None
    return [*(module or [program or command[0]]), *command[1:]]


def postgres_user() -> pwd.struct_passwd | None:
    """Return the user for PostgreSQL, which refuses to run as root; None for that of this process."""
    try:
        return pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    except KeyError:
        sys.exit("PostgreSQL does not run as root, and there is no user `postgres`: run this as another user")


def postgres_program(name: str) -> str:
    """Return the path of a program of PostgreSQL, which distributions install beside the usual folders."""
    packaged = [*Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), *Path("/usr").glob(f"pgsql-*/bin/{name}")]
    found = shutil.which(name) or max(map(str, packaged), default=None)
    if found is None:
        sys.exit(
            f"PostgreSQL's {name} is not installed: `apt install postgresql` (Debian, Ubuntu), "
            "`dnf install postgresql-server` (Fedora, RHEL) or `brew install postgresql` (macOS)"
        )
    return found

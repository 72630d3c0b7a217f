"""What operators do with a site, and what befalls it, one deed after the other.

A process has to run for long before it tells whether it grows: server `one` is never ended, server `two` not
in the first half of a run, server `three` not in the second one, and each client in one of the two at most.
PostgreSQL fails.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from machines import FEDERATION, SERVERS, Site

import femtobarn as fb

from .clients import BULK, LEDGERS, TOLERATED
from .pool import ClientPool, Registers

__all__ = ["Deed", "Operators"]

AWAY_SECONDS = 5.0
"""How long a server that was killed stays away: longer than its lease."""
TAGS = 3
"""Tags that are kept."""
RACED = ("not-found", "exists")
"""Kinds of errors of a deed whose database was dropped meanwhile."""


@dataclass(frozen=True)
class Deed:
    """Something that was done."""

    name: str
    began: float
    """By the machine's monotonic clock (s)."""
    seconds: float
    outcome: str
    """``ok``, or the kind of the error."""
    text: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether no failing server explains its error."""
        return self.outcome not in ("ok", *TOLERATED, *RACED)


@dataclass
class Operators:
    """All that is done with a site."""

    site: Site
    clients: ClientPool
    registers: Registers
    halfway: float
    """The middle of the run, by the machine's monotonic clock (s)."""
    deeds: list[Deed] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What was found to be wrong meanwhile."""
    _tags: Iterator[int] = field(default_factory=itertools.count)
    _killed: Iterator[int] = field(default_factory=itertools.count)

    @property
    def url(self) -> str:
        """The federation at the server that is never ended."""
        return self.site.url(SERVERS[0])

    @property
    def victim(self) -> str:
        """The server that fails in this half of the run."""
        return SERVERS[2] if time.monotonic() < self.halfway else SERVERS[1]

    def folder(self, server: str) -> Path:
        """Return the federation's folder of a server."""
        return self.site.folder / server / FEDERATION

    def all(self) -> list[tuple[str, Callable[[], None]]]:
        """Return the deeds, in their order."""
        return [
            ("tag", self.tag),
            ("compact", self.compact),
            ("seal", self.seal),
            ("vacuum", self.vacuum),
            ("kill a server", self.kill_server),
            ("move", self.move),
            ("backup", self.back_up),
            ("kill a client", self.kill_client),
            ("restart a server", self.restart_server),
            ("drain", self.drain),
            ("crash of PostgreSQL", self.site.crash_postgres),
            ("registers", self.judge_registers),
        ]

    def do(self, name: str, act: Callable[[], None]) -> None:
        """Do something, and note how it went."""
        began, outcome, text = time.monotonic(), "ok", ""
        try:
            act()
        except fb.FemtobarnError as error:
            outcome, text = error.kind, str(error)
        self.deeds.append(Deed(name, began, time.monotonic() - began, outcome, text))
        took = f"{self.deeds[-1].seconds:.1f} s"
        print(f"{name}: {outcome}, {took}" + (f"; {text}" if text else ""), flush=True)

    def tag(self) -> None:
        """Tag the newest commit, and forget the oldest tag."""
        with fb.open(self.url) as fed:
            fed.tag(f"soak-{next(self._tags):06}")
            for tag in sorted(fed.tags(), key=lambda each: each["name"])[:-TAGS]:
                fed.untag(tag["name"])

    def compact(self) -> None:
        """Merge the small clusters that small commits leave.

        At the server, whose locks keep out its clients: those of a process beside it do not.
        """
        with fb.open(self.url) as fed:
            for path in (*LEDGERS.values(), "raw/raw", "gains/gain"):
                fed.compact(path, lock_timeout=30)

    def seal(self) -> None:
        """Seal the bulk databases that take no more objects."""
        with fb.open(self.url) as fed:
            open_ones = [row["name"] for row in fed.databases() if row["state"] == "open"]
        for name in sorted(name for name in open_ones if name.startswith(BULK))[:-1]:
            with self._at_home(name) as fed:
                fed.seal(name)

    def vacuum(self) -> None:
        """Give back the space of old versions, beside each server."""
        for server in SERVERS:
            with fb.open(self.folder(server)) as fed:
                fed.vacuum(lock_timeout=30)

    def kill_server(self) -> None:
        """Kill a server, and start it again when its lease is over."""
        victim = self.victim
        self.site.kill(victim)
        time.sleep(AWAY_SECONDS)
        self.site.start_servers(victim)

    def restart_server(self) -> None:
        """Stop a server in order, and start it again."""
        victim = self.victim
        self.site.stop(victim)
        self.site.start_servers(victim)

    def move(self) -> None:
        """Move a database to the next server."""
        with fb.open(self.url) as fed:
            home = fed.home("small") or SERVERS[0]
            fed.move_database("small", SERVERS[(SERVERS.index(home) + 1) % len(SERVERS)])

    def drain(self) -> None:
        """Empty a server, and give it back what it had."""
        server = SERVERS[1]
        with fb.open(self.url) as fed:
            fed.drain(server)
            try:
                mine = [row["name"] for row in fed.databases() if fed.home(row["name"]) == server]
                for name in mine:
                    with suppress(fb.NotFoundError):
                        fed.move_database(name, SERVERS[2])
            finally:
                fed.drain(server, undo=True)
            for name in mine:
                with suppress(fb.NotFoundError):
                    fed.move_database(name, server)

    def kill_client(self) -> None:
        """Kill a client, each time of another kind of those that fail in this half of the run."""
        kinds = list(LEDGERS)[time.monotonic() >= self.halfway :: 2]
        self.clients.kill(kinds[next(self._killed) % len(kinds)])

    def back_up(self) -> None:
        """Dump the catalogue, then copy the databases, whose files may be newer than the dump."""
        socket = str(self.site.postgres)
        self.site.as_postgres("pg_dump", "-h", socket, "-U", "femtobarn", "-Fc", "-f", "dump", "postgres")
        place = self.site.folder / "backup"
        shutil.rmtree(place, ignore_errors=True)
        for server in SERVERS:
            (place / server).mkdir(parents=True)
            # Databases are made and dropped meanwhile.
            copy = [
                "cp",
                "-r",
                "--sparse=always",
                str(self.folder(server) / "databases"),
                str(place / server),
            ]
            subprocess.run(copy, check=False, capture_output=True)

    def judge_registers(self) -> None:
        """Check the history of a round of transactions, and begin the next one."""
        self.registers.finish(self.wrong)
        self.registers.start()

    @contextmanager
    def _at_home(self, database: str) -> Iterator[fb.Federation]:
        """The federation in the folder of the server that has a database."""
        with fb.open(self.url) as fed:
            home = fed.home(database) or SERVERS[0]
        with fb.open(self.folder(home)) as fed:
            yield fed

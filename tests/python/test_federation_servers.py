"""One federation on several servers, each a machine with an address and a disk of its own: they fail, one
after the other and all ways, while writers go on, and the history of all transactions is checked."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from networks import Machine, network
from postgres_servers import Postgres

PORT = 1094
SERVERS = ("one", "two", "three")
SETTINGS = "[limits]\ndrain_seconds = 0\nlease_seconds = 3\n[site]\nlease_seconds = 4\n"
SETTINGS += '[auth]\nanonymous = "all"\n'


HOMES = """
import sys, femtobarn as fb
with fb.open(sys.argv[1]) as fed:
    assert [server.name for server in fed.servers()] == ["one", "three", "two"]
    for row in fed.databases():
        print(row["name"], fed.home(row["name"]))
"""


@dataclass
class SiteMachine:
    """A machine with a server and a disk of its own."""

    name: str
    machine: Machine
    disk: Path
    settings: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"root://{self.machine.address}:{PORT}//lhc.fed"

    def start(self) -> None:
        """Start the server, and wait until it has joined."""
        command = [*self.machine.here, sys.executable, "-m", "femtobarn", "serve", "lhc.fed"]
        command += ["--site", self.name, "--address", self.machine.address, "-p", str(PORT), "--json"]
        command += ["--config", str(self.settings), "--tls-off"]
        self.process = subprocess.Popen(command, cwd=self.disk, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the server says where it listens"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of a machine."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "disk", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@dataclass
class Site:
    """A federation on three servers, and a machine for its users."""

    postgres: Postgres
    servers: dict[str, SiteMachine]
    client: Machine

    def run(self, script: str, *arguments: str) -> str:
        """Run a program on the machine of the users, and return what it prints."""
        command = [*self.client.here, sys.executable, "-c", script, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def homes(self) -> dict[str, str]:
        """The server of each database."""
        return dict(line.split() for line in self.run(HOMES, self.servers["one"].url).splitlines())


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> Iterator[Site]:
    """Three servers, with registers in databases at two of them or more."""
    folder = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        at, *machines, client = stack.enter_context(network("db", *SERVERS, "client"))
        postgres = stack.enter_context(Postgres(at))
        settings = folder / "site.toml"
        settings.write_text(SETTINGS)
        # From the network of PostgreSQL, which this process is not in.
        command = [*at.here, sys.executable, "-m", "femtobarn", "create", str(folder / "lhc.fed")]
        subprocess.run([*command, "--catalogue", postgres.url()], check=True, capture_output=True)
        servers = {}
        for name, machine in zip(SERVERS, machines, strict=True):
            place = stack.enter_context(disk(folder / name, 256))
            (place / "lhc.fed").mkdir()
            shutil.copy(folder / "lhc.fed/catalogue.toml", place / "lhc.fed")
            servers[name] = SiteMachine(name, machine, place, settings)
            stack.callback(servers[name].kill)
            servers[name].start()
        subprocess.run([*client.here, examples / "registers", "fill", servers["three"].url], check=True)
        for database, name in {"left": "one", "right": "two", "far": "three"}.items():
            move = [sys.executable, "-m", "femtobarn", "move-database", servers["three"].url, database, name]
            subprocess.run([*client.here, *move], check=True, capture_output=True)
        yield Site(postgres, servers, client)


@contextmanager
def writers(site: Site, program: Path, count: int, seconds: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Writers, each with another server as its first one."""
    urls = [server.url for server in site.servers.values()]
    started = []
    try:
        for number in range(count):
            command = [*site.client.here, str(program), "write", urls[number % len(urls)]]
            command += [str(number + 1), str(seconds)]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe))
        yield started
    finally:
        for writer in started:
            writer.kill()
            writer.communicate()


def test_servers_fail_and_no_transaction_is_lost_or_made_twice(here: Site, examples: Path) -> None:
    program = examples / "registers"
    one, two, three = here.servers.values()
    assert here.homes() == {"left": "one", "right": "two", "far": "three"}
    with writers(here, program, 4, 20) as started:
        time.sleep(2)
        one.kill()
        time.sleep(1)
        one.start()
        two.machine.cut_off()
        time.sleep(6)
        two.machine.come_back()
        three.kill()
        here.postgres.crash()
        here.postgres.start()
        three.start()
        told = [writer.communicate(timeout=60) for writer in started]
    errors = [error for _, error in told]
    assert [writer.returncode for writer in started] == [0] * 4, errors
    command = [*here.client.here, str(program), "judge", two.url]
    lines = "".join(out for out, _ in told)
    judged = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stderr
    assert int(judged.stdout) > 20


DEADLOCK = """
import sys, threading, femtobarn as fb

@fb.persistent
class Hit:
    x: fb.float64

def write(txn, path):
    database, name = path.split("/")
    txn.database(database).container(name).append(Hit(x=1.0))

def lock(url, first, second):
    try:
        with fb.open(url) as fed, fed.transaction(lock_timeout=30) as txn:
            write(txn, first)
            barrier.wait()
            write(txn, second)
            raise KeyError("nothing is to be committed")
    except KeyError:
        told.append("")
    except fb.FemtobarnError as error:
        told.append(f"{error}")

with fb.open(sys.argv[1]) as fed, fed.transaction() as txn:
    for path in sys.argv[3:]:
        database, name = path.split("/")
        txn.database(database).container(name, Hit, create=True)
told, barrier = [], threading.Barrier(2)
ways = [(sys.argv[1], *sys.argv[3:]), (sys.argv[2], *reversed(sys.argv[3:]))]
threads = [threading.Thread(target=lock, args=way) for way in ways]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*sorted(told), sep="\\n")
"""


def test_a_deadlock_over_two_servers_is_found(here: Site) -> None:
    homes = here.homes()
    one, other = sorted(homes, key=lambda name: homes[name])[:: len(homes) - 1]
    first, second = (here.servers[homes[name]] for name in (one, other))
    assert first is not second
    none, error = here.run(DEADLOCK, second.url, first.url, f"{one}/hits", f"{other}/hits").split("\n", 1)
    assert not none
    for name, server in ((one, first), (other, second)):
        assert (
            f'container "{name}/hits" at {server.name}' in error or f"{name}/hits at {server.name}" in error
        )


READER = """
import sys, femtobarn as fb
with fb.open(sys.argv[1]) as fed:
    snap = fed.snapshot()
    view = snap["kept/hits"]
    print(snap.csn, flush=True)
    sys.stdin.readline()
    print(*view.arrays("x").x.tolist())
"""

WRITER = """
import sys, femtobarn as fb

@fb.persistent
class Hit:
    x: fb.float64

with fb.open(sys.argv[1]) as fed:
    with fed.transaction() as txn:
        hits = txn.database("kept", create=True).container("hits", Hit, create=True)
        if sys.argv[2] != "1":
            hits.delete(where="x > 0")
        hits.extend({"x": [float(sys.argv[2])] * 3})
"""


def vacuum(server: SiteMachine) -> None:
    command = [*server.machine.here, sys.executable, "-m", "femtobarn", "vacuum", "lhc.fed"]
    command += ["--keep-from", "1000000"]
    done = subprocess.run(command, cwd=server.disk, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_vacuum_at_the_home_keeps_snapshots_of_readers_at_another_server(here: Site) -> None:
    one, two, _ = here.servers.values()
    here.run(WRITER, two.url, "1")
    home = here.servers[here.homes()["kept"]]
    other = two if home is one else one
    command = [*here.client.here, sys.executable, "-c", READER, other.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for value in ("2", "3"):
            here.run(WRITER, two.url, value)
            vacuum(home)
        out, error = reader.communicate("go on\n", timeout=30)
    assert out.split() == ["1.0", "1.0", "1.0"], error

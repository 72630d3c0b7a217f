"""The guide for the day of a disaster: its commands get a federation of three servers back that loses its
catalogue, a disk, a server and the index of its mass storage, one after the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from followed import put
from machines import SERVERS, Site
from postgres_servers import program
from waiting import wait_for

import femtobarn as fb
from femtobarn_testbed.tape_library import Library, Play

HOMES = {"raw1": "two", "raw2": "two", "raw3": "three", "open1": "one", "open3": "three"}
SEALED = ("raw1", "raw2", "raw3")


class Disaster:
    """A site, and what its databases have to hold."""

    def __init__(self, site: Site, guide: str) -> None:
        self.site, self.guide = site, guide
        self.counts: dict[str, int] = {}

    def folder(self, server: str) -> Path:
        return self.site.folder / server / "lhc.fed"

    def put(self, database: str, objects: int) -> None:
        """Write by a client of the server that has the database, or is to have it."""
        with fb.open(self.site.url(HOMES[database])) as fed:
            put(fed, f"{database}/hits", objects)
        self.counts[database] = self.counts.get(database, 0) + objects

    def blocks(self, heading: str) -> list[str]:
        """The commands of a section."""
        section = self.guide.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        assert section, f"the guide has no section {heading!r}"
        found: list[str] = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        return found

    def run(self, commands: str) -> str:
        """Run commands of the guide, with the socket that PostgreSQL has here."""
        commands = commands.replace("/tmp/postgres", str(self.site.postgres))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.site.folder,
            env=os.environ | {"PATH": f"{self.site.folder / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end_servers(self) -> None:
        for server in SERVERS:
            if self.site.pid(server) is not None:
                self.site.kill(server)

    def assert_whole(self) -> None:
        """Every server shows all that there has to be, and a full check finds nothing."""
        for server in SERVERS:
            with fb.open(self.site.url(server)) as fed:
                found = {name: len(fed[f"{name}/hits"].arrays("x")) for name in self.counts}
                assert found == self.counts
                assert {name: fed.home(name) for name in self.counts} == HOMES
                assert [tag["name"] for tag in fed.tags()] == ["winter26"]


@pytest.fixture
def disaster(project: Path, tmp_path: Path) -> Iterator[Disaster]:
    """A site with open and sealed databases; the latter are on a played tape as well."""
    program("initdb")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "femtobarn").write_text(f'#!/bin/sh\nexec {sys.executable} -m femtobarn "$@"\n')
    (bin_folder / "femtobarn").chmod(0o755)
    for name in ("psql", "pg_dump"):
        (bin_folder / name).symlink_to(program(name))
    # Under the name that the guide has for it.
    settings = tmp_path / "settings/site.toml"
    settings.parent.mkdir()
    text = (project / "tests/soak/soak.toml").read_text()
    # No file leaves the disk that a server has open.
    settings.write_text(text.replace("[logical]", "[logical]\nclose_idle_files_seconds = 1"))
    with Site(tmp_path, settings) as site:
        site.start_federation()
        yield Disaster(site, (project / "docs/disaster.md").read_text())


def add_tape(disaster: Disaster) -> Path:
    """Give all servers a tape library as a store, which takes no time; returns its index."""
    library = Library(disaster.site.folder / "tape", Play(time_scale=0.0))
    library.folder.mkdir()
    for server in SERVERS:
        (disaster.folder(server) / "storage.toml").write_text(library.settings("tape"))
    return library.folder / "library.sqlite"


@pytest.mark.long
def test_lost_parts_are_restored_by_the_guide(disaster: Disaster, capsys: pytest.CaptureFixture[str]) -> None:
    site = disaster.site
    index = add_tape(disaster)
    for database in HOMES:
        disaster.put(database, 100)
    with fb.open(site.url("one")) as fed:
        fed.tag("winter26")
    copy_sealed(disaster, seal=True)
    (night,) = disaster.blocks("Every night")
    disaster.run(night)
    disaster.put("open1", 10)
    disaster.put("open3", 10)

    # The catalogue.
    disaster.end_servers()
    site.as_postgres("pg_ctl", "-D", "data", "-m", "immediate", "stop")
    shutil.rmtree(site.postgres / "data")
    site.start_postgres()
    anew, check = disaster.blocks("The catalogue is lost")
    assert "left out" not in disaster.run(anew)
    site.start_servers(*SERVERS)
    assert disaster.run(check).count("sound\n") == len(SERVERS)
    disaster.assert_whole()
    copy_sealed(disaster)

    # A disk.
    site.kill("three")
    shutil.rmtree(disaster.folder("three"))
    staged, older = disaster.blocks("A disk is lost")
    site.folder.joinpath("three/lhc.fed").mkdir()
    mount, _, stage = staged.partition("femtobarn stage")
    disaster.run(mount)
    site.start_servers("three")
    disaster.run(f"femtobarn stage{stage}")
    with fb.open(site.url("one")) as fed:
        assert len(fed["raw3/hits"].arrays("x")) == disaster.counts["raw3"]
    disaster.end_servers()
    disaster.run(older)
    disaster.run(anew)
    site.start_servers(*SERVERS)
    assert disaster.run(check).count("sound\n") == len(SERVERS)
    disaster.counts["open3"] -= 10
    disaster.assert_whole()

    lose_server(disaster, capsys)
    lose_index(disaster, index)


def copy_sealed(disaster: Disaster, *, seal: bool = False) -> None:
    """Copy the sealed databases to the tape, and have one there alone."""
    for database in SEALED:
        with fb.open(disaster.folder(HOMES[database])) as fed:
            if seal:
                fed.seal(database)
            fed.migrate(database, "tape")


def lose_server(disaster: Disaster, capsys: pytest.CaptureFixture[str]) -> None:
    """Its machine is gone, and another one gets the disk."""
    site = disaster.site
    site.kill("three")
    del site.ports["three"]
    disaster.put("open1", 5)
    with fb.open(site.url("one")) as fed:
        site.wait(lambda: not any(server.alive for server in fed.servers() if server.name == "three"))
    site.start_servers("three")
    disaster.put("open3", 5)
    disaster.assert_whole()
    (command,) = disaster.blocks("A server is lost")
    assert f"$ {command.strip()}" in capsys.readouterr().out


def lose_index(disaster: Disaster, index: Path) -> None:
    """The mass storage forgets everything, and remembers later."""
    copy_sealed(disaster)

    def is_evicted() -> bool:
        with fb.open(disaster.folder("two")) as fed, suppress(fb.BusyError):
            return fed.evict("raw1") > 0
        return False

    wait_for(is_evicted)
    index.rename(index.with_suffix(".kept"))
    renewed, back = disaster.blocks("The index of the mass storage is lost")

    def states() -> dict[str, Any]:
        with fb.open(disaster.folder("two")) as fed:
            return {one.database: one.state for one in fed.where("raw1", "raw2")}

    with fb.open(disaster.folder("two")) as fed, pytest.raises(fb.FemtobarnError):
        fed.stage("raw1")
    disaster.run(renewed)
    assert states() == {"raw1": "lost", "raw2": "both"}
    index.with_suffix(".kept").rename(index)
    assert "raw1" in disaster.run(back)
    assert states()["raw1"] == "both"
    disaster.assert_whole()

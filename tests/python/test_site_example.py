"""`examples/site` runs the demo on a site, a server of which is killed, and leaves nothing behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres_servers import program

import femtobarn as fb

pytest.importorskip("distributed", reason="the extra `dask` is not installed")
pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")
uproot = pytest.importorskip("uproot", reason="the extra `io` is not installed")

RUNS, EVENTS = 6, 100


@dataclass
class Example:
    """The program as it runs, and what it has printed so far."""

    process: subprocess.Popen[str]
    printed: str = ""

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until a line is printed that a pattern finds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(self.printed)

    def interrupt(self) -> int:
        """Send what Ctrl-C sends, and return how it ended."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=60)
        self.printed += rest
        return self.process.returncode

    def leaves(self) -> list[str]:
        """Return its folders that are left, and the commands of its processes that still run."""
        folder = re.search(r"(/[\w/.-]*/site-postgres-\w+)", self.printed)
        assert folder is not None, self.printed
        logs = re.findall(r"logs: (\S+)", self.printed)
        places = [folder[1], *logs]
        return [place for place in places if Path(place).exists()] + [
            command for command in commands() if any(place in command for place in places)
        ]


def commands() -> Iterator[str]:
    """The commands of all processes, with the folders that they run in."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield f"{line} in {(process / 'cwd').readlink()}"
        except OSError:
            continue


@pytest.fixture
def start(project: Path, tmp_path: Path) -> Iterator[Callable[..., Example]]:
    program("initdb")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Example:
        command = [sys.executable, str(project / "examples/site"), *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, cwd=tmp_path, text=True, **pipes))
        return Example(started[-1])

    yield start
    for process in started:
        process.terminate()
        process.communicate()


def test_the_demo_runs_on_a_site_while_a_server_dies(
    start: Callable[..., Example], project: Path, tmp_path: Path
) -> None:
    example = start("--keep")
    (url,) = example.until(r"^  femtobarn ls (root://\S+)$").groups()
    example.until("Ctrl-C")
    with fb.open(url) as fed:
        assert [(server.name, server.alive) for server in fed.servers()] == [
            ("one", True),
            ("three", True),
            ("two", True),
        ]
        homes = {fed.home(database["name"]) for database in fed.databases()}
        assert homes == {"one", "two", "three"}
        assert sum(commit["message"] == "pairs of muons" for commit in fed.history()) == 1
    expected = [pair for run in range(1, RUNS + 1) for pair in pairs_of(f"{url}/run{run}-prompt.root")]
    with uproot.open(f"{url}/skim.root") as file:
        found = file["pairs"].arrays(library="np")
    assert len(expected) > RUNS * EVENTS // 20
    order = np.lexsort([found["event"], found["run"]])
    keys = np.stack([found["run"], found["event"]], axis=1)[order]
    assert keys.tolist() == [[run, event] for run, event, _ in expected]
    assert np.allclose(found["mass"][order], [mass for _, _, mass in expected], rtol=1e-5)
    assert re.search(r"^(two|three) +away ", example.printed, re.MULTILINE), example.printed
    assert (tmp_path / "site.png").read_bytes().startswith(b"\x89PNG")
    assert_documented(project, example.printed)
    assert example.interrupt() == 0
    assert example.leaves() == []


def pairs_of(url: str) -> list[tuple[int, int, float]]:
    """The pairs of muons of a run in the order of its events, by uproot from the file at a server."""
    with uproot.open(url) as file:
        tags = file["tags"].arrays(["run", "event", "n_muons"])
        events = file["tracks"].arrays(["event", "tracks"])
    assert tags.event.to_list() == events.event.to_list()
    chosen = tags.n_muons == 2
    tracks = events.tracks[chosen]
    first, second = (tracks[tracks.muon][:, number] for number in (0, 1))
    angles = np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi)
    mass = np.sqrt(2.0 * first.pt * second.pt * angles)
    return list(zip(tags.run[chosen].to_list(), tags.event[chosen].to_list(), mass.to_list(), strict=True))


def assert_documented(project: Path, printed: str) -> None:
    """Compare the commands that were printed with those of the document, which has a short folder."""
    text = (project / "docs/many.md").read_text()
    block = text.partition("## Try a site on one machine")[2].partition("```sh\n")[2].partition("```")[0]
    printed = re.sub(r"/[\w/.-]*/site-postgres-\w+", "/tmp/postgres", printed)
    ran = re.findall(r"^\$ (.*)", printed, re.MULTILINE)
    documented = [line for line in block.splitlines() if line and not line.startswith("#")]
    assert documented == ran[: len(documented)]
    assert len(documented) > 10


def test_ctrl_c_ends_all_started_programs(start: Callable[..., Example]) -> None:
    example = start()
    example.until("^\\$ femtobarn create")
    assert example.interrupt() == 130
    assert "Traceback" not in example.printed
    assert example.leaves() == []


def test_without_postgresql_it_names_the_package_to_install(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project / "examples/site")
    import machines

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(SystemExit, match="apt install postgresql"):
        machines.postgres_program("initdb")

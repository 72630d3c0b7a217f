"""The command `demo`: a small federation for first steps, and commands to try.

The package `femtobarn_demo` is imported when it runs: no other command needs it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from .._snapshots import Snapshot
from .output import emit, human_size, table

__all__ = ["arguments", "run"]

FOLDER = "femtobarn-demo"
"""Default folder of the federation."""

PROGRAM = """\
import femtobarn as fb
import numpy as np

snapshot = fb.open({folder!r}).snapshot(tag="first-pass")
tags = snapshot.collection("run*-prompt/tags")
tracks = tags.arrays("tracks.tracks", where="n_muons == 2")["tracks"].tracks
first, second = (tracks[tracks.muon][:, n] for n in (0, 1))
angles = np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi)
mass = np.sqrt(2 * first.pt * second.pt * angles)
print(f"{{len(mass)}} pairs of muons, median mass {{np.median(mass):.1f}} GeV")
"""
"""Follows the links from tags to tracks in other containers, and computes the mass of the Z boson."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``demo``."""
    text = f"folder to make ({FOLDER}); it must be new or empty"
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=FOLDER, help=text)


def run(options: argparse.Namespace) -> None:
    """Make a federation with simulated events, and print its contents and commands to try."""
    from femtobarn_demo.small_federation import make_federation

    began = time.monotonic()
    progress = sys.stderr.isatty() and not options.json
    with make_federation(options.folder, progress=progress) as fed:
        databases = _databases(fed.snapshot())
        path = fed.path
    seconds = time.monotonic() - began
    commands = _commands(options.folder)
    program = PROGRAM.format(folder=options.folder)
    facts = {"path": path, "databases": databases, "commands": list(commands), "program": program}
    size = human_size(sum(row["bytes"] for row in databases))
    title = f"made {options.folder} in {seconds:.0f} s: simulated collisions, {size}"
    emit(options, facts, "\n\n".join([title, _contents(databases), _advice(commands, program)]))


CONTENTS = {
    "run1": "raw events of two runs, each detector in a container of its own",
    "ecal": "conditions: gains of the calorimeter, by sector and time",
    "strips": "conditions: shifts of the tracker's barrels",
    "conditions": "global tags: prompt, with nominal constants, and final, with measured ones",
    "run1-prompt": "reconstructed events, with links to the raw ones; tags to select events",
}
"""The purpose of the databases, by the name of the first one of each kind."""


def _databases(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The databases, with the numbers of their objects and bytes."""
    rows = []
    for database in snapshot.databases():
        containers = snapshot.containers(database["name"])
        objects, size = (sum(each[fact] for each in containers) for fact in ("entries", "bytes"))
        rows.append({"database": database["name"], "objects": objects, "bytes": size})
    return rows


def _contents(databases: list[dict[str, Any]]) -> str:
    cells = [
        [row["database"], f"{row['objects']:,}", human_size(row["bytes"]), CONTENTS.get(row["database"], "")]
        for row in databases
    ]
    return table(["database", "objects", "size", ""], cells, right={1, 2})


def _commands(folder: str) -> dict[str, str]:
    """Commands to try, and the output of each."""
    place, tags = shlex.quote(folder), "run1-prompt/tags"
    return {
        f"femtobarn ls {place}": "all containers",
        f"femtobarn cat {place} {tags} -n 3": "three tags; raw, tracks, clusters and jets are links",
        f"femtobarn cat {place} {tags} run event ht --where 'n_muons == 2 and ht > 150'": "selected events",
        f"femtobarn serve {place}": f"root://localhost//{Path(folder).name}, status at http://localhost:1094/",
    }


def _advice(commands: dict[str, str], program: str) -> str:
    lines = [f"  {command}\n      {text}" for command, text in commands.items()]
    code = textwrap.indent(program.rstrip(), "      ")
    return "\n".join(["Try next:", *lines, "  python", code])

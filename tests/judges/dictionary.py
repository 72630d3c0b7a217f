"""Builds the dictionaries of classes.hxx with ROOT's tools and the functions of dump.cxx, and loads them.

ROOT's interpreter suffices for plain classes, but without a compiled dictionary it treats maps and sets as
vectors. The library is kept in `.cache/judges` and rebuilt when its sources change.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / ".cache" / "judges"
CLASSES = ("classes.hxx", "linkdef.h")
SOURCES = (*CLASSES, "dump.hxx", "dump.cxx")


def load(root: Any, *headers: str) -> None:
    """Load the dictionaries into ROOT and declare the headers."""
    library = build()
    root.gInterpreter.AddIncludePath(str(HERE))
    if root.gSystem.Load(str(library)) < 0:
        raise SystemExit(f"{library} does not load")
    for header in headers:
        if not root.gInterpreter.Declare(f'#include "{HERE / header}"'):
            raise SystemExit(f"{header} does not compile")


def build() -> Path:
    """The library, built if it is missing or out of date, under a lock between processes."""
    mark = hashlib.sha256(b"".join((HERE / source).read_bytes() for source in SOURCES)).hexdigest()[:16]
    folder = FOLDER / mark
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libjudge.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            compile_into(folder)
    return library


def compile_into(folder: Path) -> None:
    """Run rootcling and the C++ compiler."""
    home = root_home()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(home / "lib")}
    cling = [
        str(home / "bin" / "rootcling"),
        "-f",
        "dictionary.cxx",
        "-s",
        "libjudge.so",
        "-rml",
        "libjudge.so",
    ]
    cling += [f"-I{HERE}", *(str(HERE / source) for source in CLASSES)]
    subprocess.run(cling, cwd=folder, env=environment, check=True)
    compiler = [
        os.environ.get("CXX", "g++"),
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{home / 'include'}",
    ]
    compiler += [f"-I{HERE}", "dictionary.cxx", str(HERE / "dump.cxx"), f"-L{home / 'lib'}"]
    compiler += [f"-Wl,-rpath,{home / 'lib'}", "-lROOTNTuple", "-lRIO", "-lCore", "-o", "building.so"]
    subprocess.run(compiler, cwd=folder, check=True)
    (folder / "building.so").rename(folder / "libjudge.so")


def root_home() -> Path:
    """The folder of the `root` package, found without importing it."""
    found = find_spec("ROOT")
    if found is None or found.origin is None:
        raise SystemExit("the package root is not installed")
    return Path(found.origin).parent

"""The programs of sides: how they are built, and their command lines."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BENCH = ROOT / "bench"
DATA, WORK = BENCH / "data", BENCH / "work"

RUST_PROGRAMS = ("ours", "peers", "sessions")
BARE_PROGRAMS = tuple(sorted(each.stem for each in HERE.glob("sides/bare_*.c")))
COMPILERS = {
    ".c": [
        os.environ.get("CC", "cc"),
        *("-std=gnu17", "-D_GNU_SOURCE", "-O3", "-march=native", "-pthread", "-Wall", "-Wextra"),
    ],
    ".cxx": [os.environ.get("CXX", "g++"), "-std=c++17", "-O2"],
}
"""Limits may use what the processor has."""
DUCKLAKE, DUCKLAKE_VERSION = "ducklake", "1.5.5"
DUCKLAKE_PACKAGES = ("duckdb", "duckdb-extension-ducklake", "duckdb-extension-postgres-scanner")
"""DuckDB, and the extensions that it signed; it refuses those of others."""
ROCKSDB_PACKAGES = ("librocksdb-dev", "librocksdb7.8", "libgflags2.2", "libsnappy1v5")


class Unavailable(Exception):
    """Raised for a peer that this machine lacks and that cannot be installed; its side is left out."""


def command_line(command: tuple[str, ...], index: int = 0, processes: int = 1) -> list[str]:
    """Return a command with its placeholders and the path of its program filled in.

    `ours`, `peers` and `sessions` are programs of the crate femtobarn-bench, `bare_...` programs in C of
    `sides/`; in braces they stand for their paths, and `{ducklake}` for the folder with its packages.
    `name.py` is a script of `sides/`, any other name a C++ program.
    """
    words = " ".join(command)
    programs = {
        name: program_path(name)
        for name in (*RUST_PROGRAMS, *BARE_PROGRAMS, DUCKLAKE)
        if f"{{{name}}}" in words
    }
    places = {"data": DATA, "work": WORK, "index": index, "processes": processes, **programs}
    program, *rest = (part.format(**places) for part in command)
    if program.endswith(".py"):
        return [sys.executable, "-W", "ignore", str(HERE / "sides" / program), *rest]
    return [str(program_path(program)), *rest]


@cache
def program_path(program: str) -> Path:
    """The path of a program, which is built or installed if it is missing or out of date."""
    if program in RUST_PROGRAMS:
        return rust_program(program)
    if program in BARE_PROGRAMS:
        return bare_program(program)
    if program == DUCKLAKE:
        return ducklake_packages()
    return rocksdb_peer() if program == "rocksdb_peer" else root_program(program)


def rust_program(program: str) -> Path:
    """A program of the crate femtobarn-bench, optimised."""
    paths = [
        m["executable"] for m in built(program) if m.get("executable") and m["target"]["name"] == program
    ]
    return Path(paths[-1])


@cache
def built(program: str) -> list[Any]:
    """Cargo's messages about the build of a program of the crate femtobarn-bench."""
    command = [
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--locked",
        "-p",
        "femtobarn-bench",
        "--bin",
        program,
    ]
    return [json.loads(line) for line in execute([*command, "--message-format=json"]).splitlines()]


def bare_program(name: str) -> Path:
    """A program in C that does the bare work; the one that unpacks has the libraries of our own programs."""
    flags, libraries = [], ["-lm"]
    for library in ("zstd", "lz4") if name == "bare_unpack" else ():
        made = (m for m in built("ours") if f"static={library}" in m.get("linked_libs", ()))
        folder = Path(next(made)["out_dir"])
        flags.append(f"-I{folder / 'include'}")
        libraries.append(str(folder / f"lib{library}.a"))
    return compiled(f"{name}.c", flags, libraries)


def root_program(name: str) -> Path:
    """A program of ROOT's side, compiled against the package `root`."""
    found = find_spec("ROOT")
    if found is None or found.origin is None:
        raise SystemExit("the package `root` is not installed; `make setup` installs it")
    home = Path(found.origin).parent
    libraries = ["-lROOTNTuple", "-lROOTVecOps", "-lRIO", "-lCore"]
    if name == "root_frame":
        # RDataFrame needs ROOT's histogram libraries, whose own dependencies the linker does not find.
        libraries = ["-lROOTDataFrame", "-Wl,--allow-shlib-undefined", *libraries]
    flags = [f"-I{home / 'include'}", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}"]
    if name == "root_frame":
        flags += c_library_flags()
        libraries.append("-lfemtobarn_c")
    return compiled(f"{name}.cxx", flags, libraries)


def c_library_flags() -> list[str]:
    """What compiles and links a program with the C API, whose library is built."""
    execute(["cargo", "build", "--release", "--quiet", "--locked", "-p", "femtobarn-c"])
    folder = ROOT / "target" / "release"
    return [f"-I{ROOT / 'python' / 'femtobarn' / 'include'}", f"-L{folder}", f"-Wl,-rpath,{folder}"]


def rocksdb_peer() -> Path:
    """RocksDB's side, compiled against Debian's packages, unpacked into .cache without root rights."""
    home = ROOT / ".cache" / "rocksdb"
    libraries = home / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    try:
        if not (libraries / "librocksdb.so").exists():
            home.mkdir(parents=True, exist_ok=True)
            execute(["apt-get", "download", *ROCKSDB_PACKAGES], home)
            for package in home.glob("*.deb"):
                execute(["dpkg-deb", "-x", str(package), str(home)])
        # The library's own dependencies are found by RPATH, not by RUNPATH.
        paths = [f"-L{libraries}", f"-Wl,-rpath,{libraries},--disable-new-dtags,-rpath-link,{libraries}"]
        return compiled(
            "rocksdb_peer.cxx", ["-isystem", str(home / "usr" / "include"), *paths], ["-lrocksdb"]
        )
    except (SystemExit, OSError) as reason:
        raise Unavailable(f"RocksDB cannot be built: {reason}") from reason


def ducklake_packages() -> Path:
    """A folder with DuckLake's packages, which need an older DuckDB than the other sides use."""
    home = ROOT / ".cache" / f"{DUCKLAKE}-{DUCKLAKE_VERSION}"
    draft = home.with_name(f"{home.name}.draft")
    try:
        if not home.exists():
            shutil.rmtree(draft, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(draft)]
            execute([*pip, *(f"{name}=={DUCKLAKE_VERSION}" for name in DUCKLAKE_PACKAGES)])
            draft.rename(home)
        return home
    except (SystemExit, OSError) as reason:
        raise Unavailable(f"DuckLake cannot be installed: {reason}") from reason


def compiled(name: str, flags: list[str], libraries: list[str]) -> Path:
    """A program of `sides/` in C or C++, compiled if a source is newer."""
    source = HERE / "sides" / name
    target, headers = BENCH / source.stem, "*.h" if source.suffix == ".c" else "*.hxx"
    BENCH.mkdir(exist_ok=True)
    newest = max(each.stat().st_mtime for each in (source, *source.parent.glob(headers)))
    if not target.exists() or target.stat().st_mtime < newest:
        execute([*COMPILERS[source.suffix], *flags, str(source), "-o", str(target), *libraries])
    return target


def execute(command: list[str], folder: Path = ROOT) -> str:
    """Run a command that must succeed, and return its output."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout

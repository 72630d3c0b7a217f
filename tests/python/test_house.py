"""The rules of the house: which crate may depend on which, how long files may be, which words are banned."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# Each crate may depend on those named here and on no other crate of the workspace.
FLOORS: dict[str, set[str]] = {
    "rntuple": set(),
    "xrd": set(),
    "femtobarn-catalog": set(),
    "femtobarn-http": set(),
    "femtobarn-archive": {"femtobarn-catalog", "femtobarn-http", "xrd"},
    "femtobarn-rpc": {"femtobarn-catalog"},
    "femtobarn-format": {"rntuple", "femtobarn-catalog"},
    "femtobarn": {
        "rntuple",
        "xrd",
        "femtobarn-archive",
        "femtobarn-catalog",
        "femtobarn-rpc",
        "femtobarn-format",
    },
    "femtobarn-conditions": {"rntuple", "femtobarn"},
    "femtobarn-c": {"rntuple", "femtobarn"},
    "femtobarn-faults": {
        "rntuple",
        "femtobarn-catalog",
        "femtobarn",
        "femtobarn-conditions",
        "femtobarn-server",
    },
    "femtobarn-bench": {
        "rntuple",
        "xrd",
        "femtobarn-catalog",
        "femtobarn-rpc",
        "femtobarn",
        "femtobarn-conditions",
    },
    "femtobarn-server": {
        "rntuple",
        "xrd",
        "femtobarn-archive",
        "femtobarn-catalog",
        "femtobarn-rpc",
        "femtobarn-format",
        "femtobarn-http",
    },
    "femtobarn-web": {"rntuple"},
    "femtobarn-models": set(),
    "femtobarn-schedules": {"rntuple", "femtobarn-catalog"},
    "femtobarn-fuzz": {
        "rntuple",
        "xrd",
        "femtobarn-archive",
        "femtobarn-catalog",
        "femtobarn-format",
        "femtobarn-rpc",
        "femtobarn",
        "femtobarn-server",
    },
    "femtobarn-python": {
        "rntuple",
        "xrd",
        "femtobarn-catalog",
        "femtobarn-rpc",
        "femtobarn",
        "femtobarn-c",
        "femtobarn-conditions",
        "femtobarn-server",
    },
}

# Names of types that several crates define for the same idea.
SHARED_TYPE_NAMES = {"Error", "ErrorKind", "Result", "Err", "Target", "Item", "State", "Value"}
SHARED_TYPE_NAMES |= {"Cursor", "Field", "Reader", "Writer", "ReadMe", "Response"}

# The Python packages beside the library, each with the others that it may import. All may import the library.
PACKAGES: dict[str, set[str]] = {
    "femtobarn_reports": set(),
    "femtobarn_demo": {"femtobarn_reports"},
    "femtobarn_testbed": {"femtobarn_reports"},
}
# The library's modules that import one of them, when a command runs.
COMMANDS = {Path(f"python/femtobarn/cli/{name}.py") for name in ("demo", "planning", "simulation", "testbed")}

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
# Files that are longer for a reason; the number may only go down.
RATCHET: dict[str, int] = {}

# Written with a gap so that this file does not hold them itself.
BANNED = [" TO" + "DO", "FIX" + "ME", "X" + "XX", "unimple" + "mented!", "to" + "do!(", "d" + "bg!("]
BINARY = {".root", ".png", ".parquet", ".gz", ".npz", ".bin"}


@cache
def tracked() -> tuple[Path, ...]:
    """Every text file of the project that is committed, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    paths = (Path(name) for name in listed.split("\0") if name)
    return tuple(
        p for p in paths if p.suffix not in BINARY and "corpus" not in p.parts and (ROOT / p).is_file()
    )


def text_of(path: Path) -> str:
    """The text of a file of the project."""
    return (ROOT / path).read_text(errors="replace")


def of_kind(suffix: str) -> list[Path]:
    """The files with this ending."""
    return [path for path in tracked() if path.suffix == suffix]


def test_crates_depend_only_on_allowed_crates() -> None:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    packages = json.loads(done.stdout)["packages"]
    for package in packages:
        assert package["name"] in FLOORS, f"crate {package['name']} has no floor in test_house.py"
        known = {each["name"] for each in package["dependencies"] if each["kind"] != "dev"} & set(FLOORS)
        extra = known - FLOORS[package["name"]]
        assert not extra, f"{package['name']} must not depend on {', '.join(sorted(extra))}"


def test_a_folder_of_modules_has_its_contents_in_mod_rs() -> None:
    for path in of_kind(".rs"):
        assert not (ROOT / path.with_suffix("")).is_dir(), f"{path}: move it to {path.with_suffix('')}/mod.rs"


def test_a_type_name_has_one_meaning_in_all_crates() -> None:
    crates: dict[str, set[str]] = {}
    for path in of_kind(".rs"):
        in_library = path.parts[0] == "crates" and path.parts[2] == "src" and "bin" not in path.parts
        if in_library and path.stem != "tests":
            body = text_of(path).split("#[cfg(test)]")[0]
            for name in re.findall(
                r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type) ([A-Z]\w*)", body, re.M
            ):
                crates.setdefault(name, set()).add(path.parts[1])
    shared = {name: sorted(found) for name, found in crates.items() if len(found) > 1}
    assert not {name: found for name, found in shared.items() if name not in SHARED_TYPE_NAMES}


def imported_modules(tree: ast.AST) -> set[str]:
    """The modules that code imports by absolute names, at any depth."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def test_packages_beside_the_library_import_only_its_public_modules() -> None:
    for path in of_kind(".py"):
        if path.parts[0] != "python" or path.parts[1] not in PACKAGES:
            continue
        for module in imported_modules(ast.parse(text_of(path))):
            package, *rest = module.split(".")
            private = [each for each in rest if each.startswith("_") and not each.startswith("__")]
            assert package != "femtobarn" or not private, f"{path} imports {module}, which is private"
            beside = (set(PACKAGES) - {path.parts[1]} - PACKAGES[path.parts[1]]) & {package}
            assert not beside, f"{path} must not import {module}"


def test_the_library_imports_packages_beside_it_only_when_their_commands_run() -> None:
    for path in of_kind(".py"):
        if path.parts[:2] != ("python", "femtobarn"):
            continue
        tree = ast.parse(text_of(path))
        at_start = {name for node in tree.body for name in imported_modules(node) if not is_function(node)}
        imported = imported_modules(tree) if path not in COMMANDS else at_start
        beside = {name for name in imported if name.split(".")[0] in PACKAGES}
        assert not beside, f"{path} must not import {', '.join(sorted(beside))}"


def is_function(node: ast.AST) -> bool:
    """Tell whether code runs only when it is called."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_a_crate_reads_the_time_in_one_module() -> None:
    """Tasks may read tokio's clock, which a test can stop."""
    for path in of_kind(".rs"):
        in_library = (
            path.parts[0] == "crates" and path.parts[2] == "src" and path.parts[1] != "femtobarn-bench"
        )
        if not in_library or path.stem in ("clock", "tests"):
            continue
        body = text_of(path).split("#[cfg(test)]")[0]
        clocks = {"SystemTime", "Instant"}
        if re.search(r"\btokio::time::(?:Instant|\{[^}]*\bInstant\b)", body):
            clocks.remove("Instant")
        found = re.search(rf"\b(?:{'|'.join(clocks)})::now\b", body)
        assert not found, f"{path} reads the time: use the crate's clock module"


def test_files_are_short_enough_to_read() -> None:
    for path in [*of_kind(".rs"), *of_kind(".py"), *of_kind(".pyi")]:
        lines = text_of(path).count("\n")
        allowed = RATCHET.get(str(path), FILE_LINES_MAX)
        assert lines <= allowed, (
            f"{path} has {lines} lines, more than {allowed}: split it by what it is about"
        )


def test_the_ratchet_holds_no_slack() -> None:
    for name, allowed in RATCHET.items():
        lines = text_of(Path(name)).count("\n")
        assert lines == allowed, f"{name} has {lines} lines now: lower its number in RATCHET"


def test_functions_of_python_are_short_enough_to_read() -> None:
    for path in of_kind(".py"):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                assert lines <= FUNCTION_LINES_MAX, f"{path}: {node.name} has {lines} lines"


@pytest.mark.parametrize("word", BANNED)
def test_nothing_is_left_for_later(word: str) -> None:
    found = [
        f"{path}:{number}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if word in f" {line}"
    ]
    assert not found, f"{word.strip()} in {', '.join(found)}"


def test_no_file_names_this_machine() -> None:
    """Neither the folder that the project lies in, nor the home folder, nor a package registry's host."""
    places = {f"{ROOT}/", f"{ROOT.parent}/", f"{Path.home()}/"} - {"//"}
    hosts = {urlsplit(value).hostname for name, value in os.environ.items() if name.endswith("INDEX_URL")}
    for path in tracked():
        text = text_of(path)
        for word in [*places, *(host for host in hosts if host)]:
            assert word not in text, f"{path} names {word}"


def test_every_file_begins_with_its_purpose() -> None:
    for path in of_kind(".rs"):
        assert first_code_line(text_of(path)).startswith("//!"), f"{path} has no //! header"
    for path in of_kind(".py"):
        assert ast.get_docstring(ast.parse(text_of(path))), f"{path} has no docstring"


def first_code_line(text: str) -> str:
    """The first line that is neither empty nor an attribute of the file."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#!")), "")


def test_nothing_unwraps_outside_tests() -> None:
    for path in of_kind(".rs"):
        if "tests" in path.parts or path.stem == "tests":
            continue
        body = text_of(path).split("#[cfg(test)]")[0]
        for number, line in enumerate(body.splitlines(), 1):
            code = line.split("//")[0]
            assert ".unwrap()" not in code, f"{path}:{number} unwraps; say why it cannot fail with expect()"


def test_every_source_file_of_a_crate_is_part_of_it() -> None:
    for path in of_kind(".rs"):
        if "src" not in path.parts or path.stem in ("lib", "main", "mod"):
            continue
        around = [path.parent / name for name in ("lib.rs", "main.rs", "mod.rs")] + [
            path.parent.with_suffix(".rs")
        ]
        texts = [text_of(each) for each in around if (ROOT / each).exists()]
        assert any(re.search(rf"\bmod {path.stem}\b", text) for text in texts), f"{path} belongs to no crate"


def test_unsafe_code_states_why_it_is_sound() -> None:
    for path in of_kind(".rs"):
        lines = text_of(path).splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe \{", line.split("//")[0]):
                before = "\n".join(lines[max(0, number - 8) : number + 1])
                assert "SAFETY:" in before, f"{path}:{number + 1} has unsafe code without // SAFETY:"

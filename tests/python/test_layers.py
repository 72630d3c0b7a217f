"""Layers inside crates and packages: rooms import only downwards, and few files form a circle.

A *room* is a folder or file directly below `src` of a crate or directly inside a Python package. The graph of
imports between rooms has no cycle. Between files a cycle has at most three, all in one folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CRATES = sorted(path.parent for path in ROOT.glob("crates/*/src"))
PACKAGES = sorted(path.parent for path in ROOT.glob("python/*/__init__.py"))
CIRCLE_FILES_MAX = 3

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]


@pytest.mark.parametrize("crate", CRATES, ids=lambda path: path.name)
def test_rooms_of_a_crate_import_only_downwards(crate: Path) -> None:
    assert_layered(rust_imports(crate / "src"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_rooms_of_a_package_import_only_downwards(package: Path) -> None:
    assert_layered(python_imports(package))


def assert_layered(imports: Graph) -> None:
    """Fail with the files of a circle that is too large, or with the rooms that import each other."""
    for circle in circles(imports):
        names = ", ".join("/".join(module) for module in circle)
        assert len(circle) <= CIRCLE_FILES_MAX, f"{len(circle)} files import each other: {names}"
        assert len({module[:1] for module in circle}) == 1, (
            f"files of several rooms import each other: {names}"
        )
    rooms: Graph = {}
    for module, targets in imports.items():
        reached = {target[:1] for target in targets if target}
        rooms.setdefault(module[:1], set()).update(reached - {module[:1]})
    for circle in circles(rooms):
        arrows = [
            f"{'/'.join(module)} -> {'/'.join(target)}"
            for module, targets in imports.items()
            for target in targets
            if module[:1] in circle and target[:1] in circle and module[:1] != target[:1]
        ]
        raise AssertionError("rooms import each other: " + ", ".join(sorted(arrows)))


def circles(graph: Graph) -> list[list[Module]]:
    """The strongly connected components of more than one module."""
    reachable = {module: reached_from(graph, module) for module in graph}
    found = {
        tuple(sorted(other for other in reachable[module] if module in reachable.get(other, set())))
        for module in graph
        if module in reachable[module]
    }
    return [list(circle) for circle in sorted(found) if len(circle) > 1]


def reached_from(graph: Graph, start: Module) -> set[Module]:
    """All modules that `start` leads to in at least one step."""
    found: set[Module] = set()
    ahead = [start]
    while ahead:
        for module in graph.get(ahead.pop(), set()) - found:
            found.add(module)
            ahead.append(module)
    return found


# ---- Rust: `use` declarations and paths that begin with crate or super, through re-exports


def rust_imports(source: Path) -> Graph:
    """The modules that each module of a crate uses, without tests, programs and its own re-exports."""
    texts = {module_of(path, source): code_of(path.read_text()) for path in rust_files(source)}
    exports: dict[Module, dict[str, Module]] = {module: {} for module in texts}
    used: list[tuple[Module, Module]] = []
    for module, text in texts.items():
        for public, tree in re.findall(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", text):
            for path, name in paths_of(tree):
                target = absolute(path, module, texts)
                if target and public:
                    exports[module][name] = target
                elif target:
                    used.append((module, target))
        body = re.sub(r"\buse\s+[^;]+;", "", text)
        for path in re.findall(r"\b((?:crate|super)(?:::\w+)+)", body):
            used.append((module, absolute(path, module, texts) or ()))
    graph: Graph = {module: set() for module in texts}
    for module, target in used:
        graph[module].add(defining(target, exports))
    return {module: targets - {module} for module, targets in graph.items()}


def rust_files(source: Path) -> Iterator[Path]:
    """The files of a crate's library."""
    for path in sorted(source.rglob("*.rs")):
        within = path.relative_to(source).parts
        if "bin" not in within and "tests" not in within and path.name != "tests.rs":
            yield path


def module_of(path: Path, source: Path) -> Module:
    """The module that a file is: () for the root of the crate."""
    parts = path.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def code_of(text: str) -> str:
    """The text before its tests, without comments and the contents of strings."""
    text = re.split(r"#\[cfg\((?:all\()?test", text)[0]
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', re.sub(r"//[^\n]*", "", text))


def paths_of(tree: str) -> Iterator[tuple[str, str]]:
    """The paths of a use tree, each with the name that it brings."""
    tree = tree.strip()
    group = re.fullmatch(r"([\w:]*?)(?:::)?\{(.*)\}", tree, re.S)
    if not group:
        path, _, name = (part.strip() for part in tree.partition(" as "))
        yield path, name or path.rsplit("::", 1)[-1]
        return
    prefix, inner = group.groups()
    for part in split_outside(inner):
        if part.strip():
            for path, name in paths_of(part):
                yield (f"{prefix}::{path}" if prefix else path), name


def split_outside(text: str) -> list[str]:
    """The parts between commas outside braces."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def absolute(path: str, module: Module, modules: dict[Module, str]) -> Module | None:
    """A path from the root of the crate; None for a path into another crate."""
    parts = path.split("::")
    base = list(module)
    if parts[0] == "crate":
        return tuple(parts[1:])
    if parts[0] == "self":
        return (*module, *parts[1:])
    if parts[0] != "super":
        return (*module, *parts) if (*module, parts[0]) in modules else None
    while parts and parts[0] == "super":
        base, parts = base[:-1], parts[1:]
    return (*base, *parts)


def defining(path: Module, exports: dict[Module, dict[str, Module]]) -> Module:
    """The module whose file defines what a path names."""
    for _ in range(8):
        module = path
        while module not in exports:
            module = module[:-1]
        rest = path[len(module) :]
        if not rest or rest[0] not in exports[module]:
            return module
        path = (*exports[module][rest[0]], *rest[1:])
    return module


# ---- Python: imports of the package's own modules when a module is loaded


def python_imports(package: Path) -> Graph:
    """The modules that each module of a package imports when it is loaded."""
    files = {python_module(path, package): path for path in package.rglob("*.py")}
    graph: Graph = {}
    for module, path in files.items():
        imported: set[Module] = set()
        for node in loaded(ast.parse(path.read_text()).body):
            imported.update(python_targets(node, module, path.name == "__init__.py", package.name, files))
        graph[module] = imported - {module}
    # A folder's `__init__` only lists what is inside: importing it counts for the room, not for a file.
    return {module: targets for module, targets in graph.items() if files[module].name != "__init__.py"}


def python_module(path: Path, package: Path) -> Module:
    """The module that a file is, within its package."""
    parts = path.relative_to(package).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def loaded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run on loading, without those that only type checkers read."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With) and hasattr(node, inner):
                yield from loaded(getattr(node, inner))


def python_targets(
    node: ast.stmt, module: Module, is_folder: bool, package: str, files: dict[Module, Path]
) -> Iterator[Module]:
    """The modules of the package that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        home = list(module if is_folder else module[:-1])
        base = home[: len(home) - node.level + 1] if node.level else None
        dotted = (node.module or "").split(".") if node.module else []
        if base is None:
            if dotted[:1] != [package]:
                return
            base, dotted = [], dotted[1:]
        for alias in node.names:
            full = (*base, *dotted, alias.name)
            yield full if full in files else full[:-1]
    elif isinstance(node, ast.Import):
        for alias in node.names:
            parts = tuple(alias.name.split("."))
            if parts[0] == package and parts[1:] in files:
                yield parts[1:]

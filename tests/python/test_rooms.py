"""The order of the rooms of the Python package: each imports only those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python" / "femtobarn"

# From below: each may import those before it.
ROOMS = [
    "_femtobarn",
    "_exceptions",
    "_lazy",
    "_sizes",
    "_positions",
    "_oid",
    "definitions",
    "jagged",
    "linking",
]
ROOMS += ["_schema", "datamodel", "importers", "_data", "_query", "_objects", "_exchange", "_views"]
ROOMS += ["_snapshots", "_writers", "_transactions", "_upkeep", "_federations", "_recovery", "_serving"]


def modules_of(room: str) -> list[Path]:
    """Return the files of a room, which is a module or a folder."""
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def imports_at_run_time(node: ast.AST) -> Iterator[ast.ImportFrom]:
    """Yield the imports of a module and of its functions, but not those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from (each for part in child.orelse for each in imports_at_run_time(part))
        elif isinstance(child, ast.ImportFrom):
            yield child
        else:
            yield from imports_at_run_time(child)


def rooms_imported(path: Path) -> Iterator[str]:
    """Yield the rooms that a module imports."""
    package = ["femtobarn", *path.relative_to(PACKAGE).parent.parts]
    for each in imports_at_run_time(ast.parse(path.read_text())):
        base = package[: len(package) - each.level + 1] if each.level else []
        name = [*base, *(each.module or "").split(".")]
        names = [name[1]] if len(name) > 1 and name[1] else [alias.name for alias in each.names]
        yield from names if name[0] == "femtobarn" else []


@pytest.mark.parametrize("room", ROOMS[1:])
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    for path in modules_of(room):
        above = set(rooms_imported(path)) - {room, "__version__"} - set(ROOMS[: ROOMS.index(room)])
        assert not above, f"{path.name} of {room} imports {', '.join(sorted(above))}, which is above {room}"


def test_every_private_module_has_a_place_in_the_order() -> None:
    private = {path.stem for path in PACKAGE.iterdir() if path.stem.startswith("_") and path.stem[1] != "_"}
    assert {name.partition(".")[0] for name in private} - {"_types", "_declared"} <= set(ROOMS)

"""TOML files: those that are named by their paths, and bundled ones, named without a suffix."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from femtobarn import InvalidError, NotFoundError

from .toml_parser import suggestion

__all__ = ["BundledFiles", "read_toml"]


@dataclass(frozen=True)
class BundledFiles:
    """The TOML files of one kind in this package."""

    kind: str
    """The kind of thing that each file describes, such as ``"experiment"``."""
    folder: Path
    lister: str
    """The command that shows all."""

    def by_name(self) -> dict[str, Path]:
        """Return the files by name."""
        return {path.stem: path for path in sorted(self.folder.glob("*.toml"))}

    def path_of(self, name: str | Path) -> Path:
        """Return the file with a path that ends in ``.toml``, or the bundled one of a name.

        Raises
        ------
        NotFoundError
            If it does not exist.
        """
        path, known = Path(name), self.by_name()
        if path.suffix == ".toml":
            if not path.is_file():
                raise NotFoundError(f"file {path} does not exist")
            return path
        if str(name) not in known:
            hint = suggestion(str(name), known)
            raise NotFoundError(f"{self.kind} {str(name)!r} does not exist{hint}; `{self.lister}` shows all")
        return known[str(name)]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file.

    Raises
    ------
    InvalidError
        If it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} is not TOML: {error}") from error

"""RNTuples that somebody wrote, and the values that they should hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Written", "manifest"]


@dataclass(frozen=True)
class Written:
    """An RNTuple that somebody wrote, and the values it should hold."""

    name: str
    file: Path
    ntuple: str
    values: Path
    lossy: dict[str, float]


def manifest(folder: Path) -> list[Written]:
    """The RNTuples that a writer left in a folder."""
    listed = json.loads((folder / "manifest.json").read_text())
    return [
        Written(each["name"], folder / each["file"], each["ntuple"], folder / each["values"], each["lossy"])
        for each in listed
    ]

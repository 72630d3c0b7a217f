"""RNTuples of some writer, and the values that they should hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Written", "manifest"]


@dataclass(frozen=True)
class Written:
    """An RNTuple, and the values that it should hold."""

    name: str
    file: Path
    ntuple: str
    values: Path
    lossy: dict[str, float]


def manifest(folder: Path) -> list[Written]:
    """The RNTuples in the manifest of a folder."""
    listed = json.loads((folder / "manifest.json").read_text())
    return [
        Written(each["name"], folder / each["file"], each["ntuple"], folder / each["values"], each["lossy"])
        for each in listed
    ]

"""Packages that must stay out of the common environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def installed(name: str, packages: list[str], project: Path) -> Path:
    """A folder of packages that must stay out of the common environment, fetched on first use."""
    folder = project / ".cache" / name
    if not folder.is_dir():
        part = folder.with_name(f"{name}-part")
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        if subprocess.run([*install, "--target", str(part), *packages]).returncode != 0:
            pytest.skip(f"{name} cannot be fetched")
        part.rename(folder)
    return folder

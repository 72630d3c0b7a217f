"""Workloads' files with a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

import femtobarn as fb
from femtobarn_testbed import load

__all__ = ["assert_names_mistake"]


def assert_names_mistake(folder: Path, text: str, old: str, new: str, told: str) -> None:
    """The error of a file in which `new` stands instead of `old` names the file and tells this."""
    assert old in text
    path = folder / "wrong.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(fb.InvalidError, match=r"wrong\.toml") as caught:
        load(path)
    assert told in str(caught.value)

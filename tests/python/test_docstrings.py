"""Every example in a docstring runs and prints what it shows."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import femtobarn as fb

PACKAGES = Path(fb.__file__).parent.parent
EXTRAS = ("fastjet", "matplotlib", "pythia8mc", "simpy", "uproot")
"""Packages of the extras `demo`, `io` and `plan`, without which some modules cannot be imported."""


def modules() -> list[ModuleType]:
    """Return all modules of the packages that can be imported with the extras that are installed."""
    found = [fb]
    for info in pkgutil.walk_packages([str(PACKAGES)], onerror=lambda name: None):
        if info.name.endswith("__main__"):
            continue
        if not _needs_extra(info.name):
            found.append(importlib.import_module(info.name))
    return found


def _needs_extra(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return str(error.name).partition(".")[0] in EXTRAS
    return False


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_examples_run(module: ModuleType) -> None:
    failed, _ = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert failed == 0


def test_every_public_name_has_a_docstring() -> None:
    bare = [name for name in fb.__all__ if not isinstance(getattr(fb, name), type | str)]
    undocumented = [
        name
        for name in fb.__all__
        if name not in bare and not name.startswith("__") and not getattr(fb, name).__doc__
    ]
    assert undocumented == []

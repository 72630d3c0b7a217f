"""Step (f): ROOT and uproot read a sealed database."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import awkward as ak
import numpy as np
import uproot

__all__ = ["root_entries", "uproot_sum"]

ROOT_SECONDS_MAX = 180

_ROOT_SCRIPT = """
import json, sys, ROOT
reader = ROOT.RNTupleReader.Open(sys.argv[2], sys.argv[1])
print(json.dumps([str(ROOT.gROOT.GetVersion()), int(reader.GetNEntries())]))
"""


def uproot_sum(path: Path, ntuple: str, field: str) -> tuple[int, float]:
    """Read with uproot the number of entries of an ntuple, and the sum of a field over all elements.

    Parameters
    ----------
    field
        Dotted name, such as "hits.x".
    """
    with uproot.open(path) as file:
        opened = file[ntuple]
        array = opened.arrays([field.split(".")[0]])
        for name in field.split("."):
            array = array[name]
        return int(opened.num_entries), total(array)


def total(array: ak.Array) -> float:
    """The sum over all elements in double precision."""
    return float(np.sum(ak.to_numpy(ak.flatten(array, axis=None)), dtype=np.float64))


def root_entries(path: Path, ntuple: str) -> tuple[str, int] | None:
    """Return ROOT's version and the number of entries that it reads; None if ROOT is not installed.

    ROOT runs in a process of its own, since some other libraries must not be loaded beside it.
    """
    command = [sys.executable, "-c", _ROOT_SCRIPT, str(path), ntuple]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=ROOT_SECONDS_MAX)
    if done.returncode != 0:
        if "No module named 'ROOT'" in done.stderr:
            return None
        raise RuntimeError(f"ROOT cannot open {path}:\n{done.stderr.strip()}")
    version, entries = json.loads(done.stdout.strip().splitlines()[-1])
    return version, entries

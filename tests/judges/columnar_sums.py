"""Sums every column of RNTuples as uproot and coffea read them; sums.py defines the sums.

    python columnar_sums.py JOBS.json      [{"file", "ntuple", "fields", "without", "target"}, ...]

`fields` are top-level fields, `without` the ones that coffea does not read. The target gets an object of sums
for each reader, `uproot`, `coffea virtual` and `coffea eager`, or a text for a reader that refuses the file.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import awkward as ak
import quick_uproot  # noqa: F401
import sums
import uproot
from coffea.nanoevents import BaseSchema, NanoEventsFactory


def main() -> None:
    """Read each file in all ways."""
    for job in json.loads(Path(sys.argv[1]).read_text()):
        found: dict[str, Any] = {"uproot": by_uproot(job)}
        for mode in ("virtual", "eager"):
            try:
                found[f"coffea {mode}"] = by_coffea(job, mode)
            except ValueError as error:
                found[f"coffea {mode}"] = str(error)
        Path(job["target"]).write_text(json.dumps(found))


def by_uproot(job: dict[str, Any]) -> sums.Sums:
    """Every field by itself."""
    found: sums.Sums = {}
    with uproot.open(job["file"]) as file:
        ntuple = file[job["ntuple"]]
        for key in job["fields"]:
            sums.of_layout(ntuple[key].array().layout, key, found)
    return found


def by_coffea(job: dict[str, Any], mode: str) -> sums.Sums:
    """Every field of the events."""
    wanted = set(job["fields"]) - set(job["without"])
    with warnings.catch_warnings():
        # coffea warns of each field that it leaves out.
        warnings.simplefilter("ignore")
        factory = NanoEventsFactory.from_root(
            {job["file"]: job["ntuple"]},
            schemaclass=BaseSchema,
            mode=mode,
            iteritems_options={"filter_name": lambda name: name in wanted, "recursive": False},
        )
        events = factory.events()
        found: sums.Sums = {}
        for name in events.fields:
            sums.of_layout(ak.to_layout(ak.materialize(events[name])), name, found)
        return found


if __name__ == "__main__":
    main()

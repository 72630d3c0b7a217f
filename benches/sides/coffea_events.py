"""coffea's processors over the jagged columns: a federation, and files of ROOT's formats by uproot.

    coffea_events.py tree RNTUPLE TARGET                 copy the columns into a TTree, as NanoAOD has them
    coffea_events.py run   federation|file PLACE EVENTS       a processor of ten columns
    coffea_events.py parts federation|file PLACE EVENTS       one that uses a column with few numbers

EVENTS is how many a partition has. coffea's own Runner goes through the steps of a file, which it has found
before; `fb.coffea.run` goes through the partitions of a view by the same executor. All is done twice, and the
second time counts. The check is a sum over what the processor counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor, Runner
from hist import Hist

NTUPLE = "events"
USED = ("Candidate_pt", "Candidate_eta", "Candidate_puppi", "Track_pt", "Track_eta", "Track_z0", "Cluster_e",
        "Cluster_emf", "Jet_pt", "Jet_eta")  # fmt: skip
"""The columns of the processor."""
STEP = 1000
"""Events that the TTree gets at once, in a basket for each branch."""


def main() -> int:
    """Run one command."""
    command, *rest = sys.argv[1:]
    if command == "tree":
        copy_to_tree(*rest)
        return 0
    source, place, events = rest
    processor = {"run": spectra, "parts": muons}[command]
    run, parts = {"federation": over_view, "file": over_file}[source](place, int(events), processor)
    run()
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    items = found["events"] if command == "run" else parts
    sample = {"items": items, "bytes": found["bytes"], "wall_s": wall, "cpu_s": cpu, "check": found["check"]}
    print(json.dumps(sample))
    return 0


def copy_to_tree(source: str, target: str) -> None:
    """Copy all columns: a branch for each, and one for the number of items of each collection."""
    draft = f"{target}.draft"
    with uproot.open(source) as read, uproot.recreate(draft, compression=uproot.ZSTD(5)) as write:
        columns = [name for name in read[NTUPLE].keys(recursive=False) if "_" in name]
        collections = dict.fromkeys(name.partition("_")[0] for name in columns)
        tree = None
        for arrays in read[NTUPLE].iterate(columns, step_size=STEP):
            zipped = {
                each: ak.zip({name.removeprefix(f"{each}_"): arrays[name] for name in columns
                              if name.startswith(f"{each}_")})
                for each in collections
            }  # fmt: skip
            tree = tree or write.mktree(NTUPLE, {each: part.type.content for each, part in zipped.items()})
            tree.extend(zipped)
    Path(draft).rename(target)


Process = Callable[[Any], dict[str, int]]


def over_view(place: str, events: int, processor: Process) -> tuple[Callable[[], dict[str, int]], int]:
    """The function that runs a processor over a container's partitions, and their number."""
    import femtobarn as fb

    view = fb.open(place)[f"own/{NTUPLE}"]
    parts = view.partitions(events)
    executor = IterativeExecutor(status=False)

    def run() -> dict[str, int]:
        found: dict[str, int] = fb.coffea.run(
            processor, {"data": parts}, executor=executor, schemaclass=BaseSchema
        )
        return found

    return run, len(parts)


def over_file(place: str, events: int, processor: Process) -> tuple[Callable[[], dict[str, int]], int]:
    """The function that runs a processor over a file's steps, and their number."""
    runner = Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=events)
    steps = list(runner.preprocess({"data": {"files": {place: NTUPLE}}}))

    def run() -> dict[str, int]:
        found: dict[str, int] = runner.run(steps, processor)["out"]
        return found

    return run, len(steps)


# ---- the processors, which count, so that sums do not depend on the partitions


def spectra(events: Any) -> dict[str, int]:
    """Histograms of four columns, for items that six others select."""
    flat = {name: ak.to_numpy(ak.flatten(events[name])) for name in USED}
    central = {name: abs(flat[f"{name}_eta"]) < 2.5 for name in ("Candidate", "Track", "Jet")}
    selected = (
        flat["Candidate_pt"][central["Candidate"] & (flat["Candidate_puppi"] > 0.5)],
        flat["Track_pt"][central["Track"] & (abs(flat["Track_z0"]) < 1)],
        flat["Cluster_e"][flat["Cluster_emf"] > 0.5],
        flat["Jet_pt"][central["Jet"]],
    )
    check = 0
    for values in selected:
        counts = Hist.new.Regular(50, 0, 20).Int64().fill(values).values()
        check += int(counts @ np.arange(1, 51))
    return {"events": len(events), "bytes": sum(each.nbytes for each in flat.values()), "check": check}


def muons(events: Any) -> dict[str, int]:
    """How many muons there are."""
    count = int(ak.count(events.Muon_pt, axis=None))
    return {"events": len(events), "bytes": 4 * count, "check": count}


if __name__ == "__main__":
    sys.exit(main())

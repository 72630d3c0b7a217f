"""Compares data frames over containers of Femtobarn with ROOT's own over a complete file.

    python root_frames.py JOBS.json

{"file", "ntuple": the complete file; "place", "container": the same at Femtobarn; "skipped": columns that
ROOT's frame has otherwise; "pairs": [[arguments of FromFemtobarn, filter of ROOT's frame], ...]; "counted":
filters of ours; "snippets": C++ to run; "url", "cache": the federation at a server, and a folder;
"damaged": a federation of damaged_files.py}. Prints a report as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import femtobarn as fb


def main() -> None:
    """Compare columns and their types, values with one thread and two, and errors."""
    job = json.loads(Path(sys.argv[1]).read_text())
    root = fb.root.load()
    header = Path(__file__).resolve().parent / "root_frames.hxx"
    assert root.gInterpreter.Declare(f'#include "{header}"')
    report: dict[str, Any] = {
        "one": values(root, job, job["pairs"]),
        "types": types(root, job),
        "errors": errors(root, job),
    }
    for snippet in job["snippets"]:
        assert root.gInterpreter.ProcessLine(snippet) == 0, snippet
    report["named"] = int(
        root.RDF.FromFemtobarn(job["place"], job["container"], tag="before").Count().GetValue()
    )
    frame = fb.root.FromFemtobarn(job["place"], job["container"])
    report["counted"] = [int(frame.Filter(each).Count().GetValue()) for each in job["counted"]]
    copied = frame.Snapshot("events", "copied.root", ["number", "MET_pt", "Muon_pt", "name"])
    report["copied"] = [copied.Sum(each).GetValue() for each in ("number", "MET_pt", "Muon_pt")]
    report["cached"] = cached(job)
    late = fb.root.FromFemtobarn(job["damaged"], "d/marked", where="number >= 1500")
    report["late"] = int(late.Define("place", "marker & 0xffff").Sum("place").GetValue())
    root.EnableImplicitMT(2)
    report["two"] = values(root, job, job["pairs"][:4:3])
    print(json.dumps(report))


def types(root: Any, job: dict[str, Any]) -> dict[str, list[str]]:
    """The columns of ROOT's frame with their types there and here, if these differ; those only here."""
    theirs = root.RDataFrame(job["ntuple"], job["file"])
    ours = fb.root.FromFemtobarn(job["place"], job["container"])
    names = {str(name) for name in ours.GetColumnNames()}
    found = {}
    for name in map(str, theirs.GetColumnNames()):
        here = str(ours.GetColumnType(name)) if name in names else "missing"
        if here != (there := str(theirs.GetColumnType(name))):
            found[name] = [there, here]
    found[""] = sorted(names - {str(name) for name in theirs.GetColumnNames()})
    return found


def values(root: Any, job: dict[str, Any], pairs: list[Any]) -> list[dict[str, list[int]]]:
    """For each pair of frames the columns that differ, with both sums; `entries` has their number."""
    names = map(str, root.RDataFrame(job["ntuple"], job["file"]).GetColumnNames())
    columns = [name for name in names if name not in job["skipped"]]
    prints = f"judge::prints({', '.join(columns)})"
    reports = []
    for arguments, condition in pairs:
        ours = fb.root.FromFemtobarn(job["place"], job["container"], **arguments)
        theirs = root.RDataFrame(job["ntuple"], job["file"]).Filter(condition)
        here, there = (
            [int(each) for each in root.judge.sums(root.RDF.AsRNode(frame.Define("prints", prints)))]
            for frame in (ours, theirs)
        )
        differing = {
            name: [a, b] for name, a, b in zip(["count", *columns], here, there, strict=True) if a != b
        }
        reports.append({"entries": [here[0]], **differing})
    return reports


def cached(job: dict[str, Any]) -> list[int]:
    """The bytes in the disk cache of a view before and after its frame has read a column."""
    fed = fb.open(job["url"], disk_cache=job["cache"])
    frame = fb.root.FromFemtobarn(fed[job["container"]])
    before = stored(Path(job["cache"]))
    assert frame.Sum("Muon_pt").GetValue() > 0
    return [before, stored(Path(job["cache"]))]


def stored(folder: Path) -> int:
    """The bytes on the disk of all files in a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def errors(root: Any, job: dict[str, Any]) -> list[str]:
    """What mistakes are answered with."""
    place, container = job["place"], job["container"]
    mistakes: list[Callable[[], Any]] = [
        lambda: root.RDF.FromFemtobarn(place, "run7/evnets"),
        lambda: fb.root.FromFemtobarn(place, container, where="sum(weights) > 3"),
        lambda: fb.root.FromFemtobarn(place, container, where="Muon.pt > 3").Count().GetValue(),
        lambda: fb.root.FromFemtobarn(place, container).Sum["int"]("mass").GetValue(),
        lambda: fb.root.FromFemtobarn(job["damaged"], "d/marked").Sum("marker").GetValue(),
    ]
    found = []
    for mistake in mistakes:
        try:
            mistake()
            found.append("none")
        except Exception as error:  # a C++ exception of whatever class: its text counts
            found.append(str(error))
    return found


if __name__ == "__main__":
    main()

"""Sums RNTuples as ROOT reads them: every column with RNTupleReader, wanted ones with RDataFrame.

python root_sums.py JOBS.json      [{"file", "ntuple", "columns", "target"}, ...]

sums.py defines the sums of `reader`. Those of `frame` are one number a column, from one loop over the file,
and the number of entries under an empty name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dictionary


def main() -> None:
    """Read each file in both ways."""
    import ROOT

    jobs = json.loads(Path(sys.argv[1]).read_text())
    frames = [ROOT.RDataFrame(job["ntuple"], job["file"]) for job in jobs]
    booked = [
        {"": frame.Count(), **{column: frame.Sum(column) for column in job["columns"]}}
        for frame, job in zip(frames, jobs, strict=True)
    ]
    # Compiles what all frames need at once.
    ROOT.RDF.RunGraphs([result for results in booked for result in results.values()])
    dictionary.load(ROOT, "dump.hxx")
    for job, results in zip(jobs, booked, strict=True):
        by_reader = json.loads(str(ROOT.judge.sums(job["file"], job["ntuple"])))
        by_frame = {column: float(result.GetValue()) for column, result in results.items()}
        Path(job["target"]).write_text(json.dumps({"reader": by_reader, "frame": by_frame}))


if __name__ == "__main__":
    main()

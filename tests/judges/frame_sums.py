"""Sums columns of RNTuples as RDataFrame reads them, all columns of a file in one loop.

python frame_sums.py JOBS.json      [{"file", "ntuple", "columns", "target"}, ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """The sum of each wanted column, and the number of entries under an empty name."""
    import ROOT

    for job in json.loads(Path(sys.argv[1]).read_text()):
        frame = ROOT.RDataFrame(job["ntuple"], job["file"])
        count = frame.Count()
        booked = {column: frame.Sum(column) for column in job["columns"]}
        found = {column: float(result.GetValue()) for column, result in booked.items()}
        Path(job["target"]).write_text(json.dumps({"": int(count.GetValue()), **found}))


if __name__ == "__main__":
    main()

"""Dumps RNTuples with real ROOT as JSON lines, in the format of tests/judges/README.md.

    python root_read.py FILE NTUPLE              to standard output
    python root_read.py --batch JOBS.json        many at once: [{"file", "ntuple", "target"}, ...]

Starting ROOT takes seconds, hence the second form. The classes of `root_write.py`'s files are declared; any
other class is read by its description in the file. Failed jobs and ROOT's own messages go to standard error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import dictionary


def main() -> int:
    """Dump one RNTuple, or a batch."""
    if sys.argv[1] == "--batch":
        return batch(json.loads(Path(sys.argv[2]).read_text()))
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as target:
        failed = batch([{"file": sys.argv[1], "ntuple": sys.argv[2], "target": target.name}])
        sys.stdout.write(Path(target.name).read_text())
    return failed


def batch(jobs: list[dict[str, str]]) -> int:
    """Dump each job's RNTuple into its target file; the number of failures."""
    import ROOT

    dictionary.load(ROOT, "dump.hxx")
    failed = 0
    for job in jobs:
        try:
            ROOT.judge.dump(job["file"], job["ntuple"], job["target"])
        except Exception as error:  # a C++ exception of whatever class: the caller gets its text
            failed += 1
            print(f"{job['file']}:{job['ntuple']}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())

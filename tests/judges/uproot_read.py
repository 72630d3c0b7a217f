"""Dumps RNTuples with uproot as JSON lines, in the format of tests/judges/README.md.

    python uproot_read.py FILE NTUPLE            to standard output
    python uproot_read.py --batch JOBS.json      many at once: [{"file", "ntuple", "target"}, ...]

Fields that uproot cannot read, or reads as another type than the format says, are left out of the dump and
named on standard error.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import quick_uproot  # noqa: F401
import uproot
from compare import plain

Json = Any


def main() -> int:
    """Dump one RNTuple, or a batch."""
    if sys.argv[1] != "--batch":
        sys.stdout.writelines(dump(sys.argv[1], sys.argv[2]))
        return 0
    failed = 0
    for job in json.loads(Path(sys.argv[2]).read_text()):
        try:
            Path(job["target"]).write_text("".join(dump(job["file"], job["ntuple"])))
        except Exception as error:  # whatever uproot could not do with the file
            failed += 1
            print(f"{job['file']}:{job['ntuple']}: {type(error).__name__}: {error}", file=sys.stderr)
    return failed


def dump(path: str, name: str) -> list[str]:
    """The lines of one RNTuple."""
    # Its other source opens the file anew for every page.
    with uproot.open(path, handler=uproot.MemmapSource) as file:
        ntuple = file[name]
        columns = {}
        for key in ntuple.keys(recursive=False):
            try:
                columns[key] = values(ntuple[key].array().layout)
            except Exception as error:  # whatever uproot could not do with the field
                print(f"{path}:{name}.{key}: {type(error).__name__}: {error}", file=sys.stderr)
        entries = [{key: column[i] for key, column in columns.items()} for i in range(ntuple.num_entries)]
    return [json.dumps(plain(entry), allow_nan=False) + "\n" for entry in entries]


def values(layout: Any) -> list[Json]:
    """The values of an awkward layout."""
    if layout.is_union:
        return union(layout)
    if layout.is_option:
        present = iter(values(layout.project()))
        return [None if missing else next(present) for missing in layout.mask_as_bool(valid_when=False)]
    if layout.is_indexed:
        return values(layout.project())
    if layout.is_record:
        names = [f"_{i}" for i in range(len(layout.contents))] if layout.is_tuple else layout.fields
        columns = [values(content[: len(layout)]) for content in layout.contents]
        if not columns:
            return [{} for _ in range(len(layout))]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if layout.is_list and layout.parameter("__array__") not in ("string", "bytestring"):
        listed = layout.to_ListOffsetArray64(start_at_zero=True)
        offsets = np.asarray(listed.offsets)
        items = values(listed.content[: offsets[-1]])
        return [items[start:stop] for start, stop in pairwise(offsets)]
    return list(layout.to_list())


def union(layout: Any) -> list[Json]:
    """Variants: uproot's alternative 0 means 'no value', so its numbers are one more than ours."""
    contents = [values(content) for content in layout.contents]
    found: list[Json] = []
    for tag, position in zip(np.asarray(layout.tags), np.asarray(layout.index), strict=False):
        found.append({f"_{tag - 1}": contents[tag][position]} if tag > 0 else None)
    return found


if __name__ == "__main__":
    sys.exit(main())

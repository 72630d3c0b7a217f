"""Seals all open databases of a copy of a federation: `sealed.py SOURCE TARGET`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import femtobarn as fb


def main() -> int:
    """Copy and seal."""
    source, target = map(Path, sys.argv[1:])
    draft = target.with_name(target.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    with fb.open(draft) as federation:
        for row in federation.databases():
            if row["state"] == "open":
                federation.seal(row["name"])
    draft.rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())

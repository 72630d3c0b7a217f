"""Makes a file of random bytes: random_file.py FILE MEGABYTES."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PIECE = 1_000_000


def main() -> int:
    """Write it piece by piece."""
    path, megabytes = Path(sys.argv[1]), int(sys.argv[2])
    numbers = np.random.default_rng(1)
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(numbers.bytes(PIECE))
    return 0


if __name__ == "__main__":
    sys.exit(main())

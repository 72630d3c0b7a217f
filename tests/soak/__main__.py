"""``python -m soak``: run it, write the report, and exit with 1 if anything was lost, wrong or growing."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from machines import STOPS

from .report import write_report
from .run import FOREIGN_SHARE, Settings, run_soak


def main() -> int:
    """Run the soak."""
    parser = argparse.ArgumentParser(prog="python -m soak", description="A site under load, for long.")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument(
        "--pause", type=float, default=0.2, help="seconds between operations of a client (0.2)"
    )
    parser.add_argument("--rest", type=float, default=5.0, help="seconds between deeds of operators (5)")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between samples (2)")
    parser.add_argument("--out", type=Path, default=Path("soak"), help="folder of the report (soak)")
    options = parser.parse_args()
    for number in STOPS:
        signal.signal(number, signal.default_int_handler)
    settings = Settings(options.minutes, options.pause, options.rest, options.interval, options.out)
    try:
        result = run_soak(settings)
    except KeyboardInterrupt:
        return 130
    page = write_report(result, options.out)
    for fault in result["faults"]:
        print(f"FAULT  {fault}")
    if result["foreign_share"] > FOREIGN_SHARE:
        print(f"other processes had {result['foreign_share']:.0%} of the processors: speed was not judged")
    operations = sum(sum(kind["outcomes"].values()) for kind in result["operations"].values())
    verdict = (
        f"{len(result['faults'])} faults"
        if result["faults"]
        else "nothing was lost, doubled, wrong or growing"
    )
    print(
        f"{operations:,} operations and {result['registers']:,} transactions on registers: {verdict}; {page}"
    )
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())

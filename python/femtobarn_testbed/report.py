"""The report of runs: one HTML page with pictures and tables, and the pictures as files beside it.

Needs the extra `plots`. The drawing modules are imported by :func:`write_report`, which reports a missing
Matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from femtobarn import InvalidError

from .drawing import missing_matplotlib_told

__all__ = ["write_report"]


def write_report(runs: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Write ``report.html`` and its pictures (PNG) into a folder, and return the page's file.

    Raises
    ------
    InvalidError
        If there are no runs, or one of the runs has no points.
    UnsupportedError
        If Matplotlib is not installed.
    """
    if not runs:
        raise InvalidError("no runs to report on")
    for run in runs:
        if not run["points"]:
            raise InvalidError(f"the run of {run['workload']} has no points")
    with missing_matplotlib_told():
        from .report_page import page_of
    out.mkdir(parents=True, exist_ok=True)
    page = out / "report.html"
    page.write_text(page_of(runs, out), encoding="utf-8")
    return page

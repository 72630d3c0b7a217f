"""The report of a simulated site: one HTML page with pictures and tables, and all figures as JSON.

Needs the extra `plots`. The drawing module is imported by :func:`write_site_report`, which reports a missing
Matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from femtobarn_reports.page import Picture, document, figures, grid, section, tiles

from ..drawing import missing_matplotlib_told
from .tables import loads_table, recalls_table, scenarios_table

__all__ = ["write_site_report"]


def write_site_report(done: Mapping[str, Any], out: Path) -> Path:
    """Write ``site.html``, ``site.json`` and the pictures (PNG) into a folder, and return the page's file.

    Raises
    ------
    UnsupportedError
        If Matplotlib is not installed.
    """
    with missing_matplotlib_told():
        from femtobarn_reports.style import png, style

        from .plots import draw_latencies, draw_use
    out.mkdir(parents=True, exist_ok=True)
    with style():
        use = png(draw_use(done), path=out / "site-use.png")
        latencies = png(draw_latencies(done), path=out / "site-commits.png")
    knee = done["scenarios"][0]["knee"]
    facts = [(f"{done['clients']:,}", "clients"), (f"{done['machines']['servers']:,}", "servers")]
    if knee["load"]:
        facts.append(
            (f"{knee['load'] * done['clients']:,.0f}", f"clients, then this gives: {knee['resource']}")
        )
    pictures = [
        Picture("Use of resources", "Dotted: above this share a resource counts as used up.", use, wide=True),
        Picture("Commits", "From the client's request to the answer.", latencies, wide=True),
    ]
    page = document(
        done["site"],
        "A simulation of a site, fed with the costs of work that were measured on a machine.",
        "\n".join(
            [
                tiles(facts),
                figures(pictures),
                section("Scenarios, at the described number of clients", grid(*scenarios_table(done))),
                section("As described", grid(*loads_table(done))),
                section("Recalls from tape", grid(*recalls_table(done))),
            ]
        ),
    )
    (out / "site.json").write_text(json.dumps(done, indent=1))
    file = out / "site.html"
    file.write_text(page, encoding="utf-8")
    return file

"""The study of a site: each scenario at each load, a failure of a rack, and the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..costs import Costs
from ..verdict import LINEAR
from .model import WHOLE, LoadPoint, Window, simulate
from .recalls import simulate_recalls
from .site_file import SiteFile

__all__ = ["study"]


def study(
    site: SiteFile,
    costs: Costs,
    *,
    seed: int = 1,
    window: Window = WHOLE,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Simulate a site, and return all figures of its scenarios.

    Parameters
    ----------
    seed
        Of all random numbers; the same seed gives the same figures.
    progress
        Receives a line for each step.
    """
    scenarios = []
    for number, name in enumerate(site.scenarios, 1):
        changed, points = site.changed(name), []
        for load in site.loads:
            progress(f"{name} ({number} of {len(site.scenarios)}), {load:g} times the clients")
            points.append(simulate(changed, costs, load, seed=seed, window=window))
        progress(f"{name} ({number} of {len(site.scenarios)}), a rack fails")
        failed = simulate(changed, costs, 1.0, seed=seed, window=window, rack_fails=True)
        scenarios.append(
            {
                "name": name,
                "changes": dict(site.scenarios[name]),
                "knee": knee(points),
                "points": [asdict(point) for point in points],
                "failure": failed.failure | {"commit_p99_seconds": failed.latency["commit"]["p99"]},
            }
        )
    progress("recalls from tape")
    recalls = [{"load": load} | simulate_recalls(site.tapes, load, seed=seed) for load in site.loads]
    return {
        "site": site.title,
        "seed": seed,
        "machines": asdict(site.machines),
        "catalogue": asdict(site.catalogue),
        "clients": site.number_of_clients,
        "scenarios": scenarios,
        "recalls": recalls,
        "costs": {name: dict(of) for name, of in costs.seconds.items()},
    }


def knee(points: Sequence[LoadPoint]) -> dict[str, Any]:
    """Return the ``load`` at which clients of a ``kind`` wait for 5 % of their time, and the ``resource``.

    The load is interpolated; the resource is the most used one at the first point beyond. All are None if
    there is no such load.
    """
    before = 0.0, 1.0
    for point in points:
        kind = min(point.useful, key=lambda name: point.useful[name])
        useful = point.useful[kind]
        if useful < LINEAR:
            share = (before[1] - LINEAR) / (before[1] - useful)
            resource = max(point.utilisation, key=lambda name: point.utilisation[name])
            return {"load": before[0] + share * (point.load - before[0]), "kind": kind, "resource": resource}
        before = point.load, useful
    return {"load": None, "kind": None, "resource": None}

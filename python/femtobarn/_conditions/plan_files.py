"""Files of plans: JSON with the events of each job, which every job of a plan can read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .._exceptions import ExistsError, InvalidError, NotFoundError, StorageError
from .._snapshots import Snapshot
from .._views.view import View
from .job_plans import JobPlan
from .plan_costs import PlanCosts, SeriesCosts
from .planned_jobs import PlannedJob

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["load_plan", "write_plan"]

FORMAT = 1
"""Version of these files."""


def write_plan(plan: JobPlan, path: str | os.PathLike[str]) -> None:
    """Write a plan to a new file; see :meth:`JobPlan.write`."""
    moments = plan[0].moments if len(plan) else None
    if callable(moments):
        raise InvalidError("moments that are a function cannot be written; give fields, or pickle the jobs")
    views = {id(view): view for job in plan for view in job.views}
    numbers = {each: number for number, each in enumerate(views)}
    federation = next(iter(views.values())).snapshot.federation if views else None
    facts = {
        "format": FORMAT,
        "federation": federation and federation.name,
        "federation_uuid": federation and federation.uuid,
        "clock": plan.clock,
        "moments": moments,
        "before": _costs_facts(plan.before),
        "after": _costs_facts(plan.after),
        "containers": [
            {"name": view.name, "csn": view.snapshot.csn, "class_version": view._recast_to}
            for view in views.values()
        ],
        "jobs": [
            {
                "first": job.first,
                "last": job.last,
                "containers": [numbers[id(view)] for view in job.views],
                "runs": [runs.tolist() for runs in job.runs],
            }
            for job in plan
        ],
    }
    text = json.dumps(facts, separators=(",", ":"))
    try:
        with Path(path).open("x") as file:
            file.write(text)
    except FileExistsError:
        raise ExistsError(f"file {path} exists; remove it, or choose another name") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from error


def load_plan(path: str | os.PathLike[str], federation: Federation) -> JobPlan:
    """Read a plan that :meth:`JobPlan.write` wrote.

    Parameters
    ----------
    federation
        The federation with the events, opened by any of its addresses.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InvalidError
        If the file is not a plan, or is one for another federation.
    """
    try:
        facts = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise NotFoundError(f"file {path} does not exist") from None
    except ValueError as error:
        raise InvalidError(f"{path} is not JSON: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InvalidError(f"{path} is not a plan, or of another release")
    try:
        jobs = _StoredJobs(facts, federation)
        if len(jobs) and facts["federation_uuid"] != federation.uuid:
            raise InvalidError(
                f"the plan is for the events of {facts['federation']} ({facts['federation_uuid']}), not of "
                f"{federation.name} ({federation.uuid}); open that federation"
            )
        events = sum(sum(runs[1::2]) for job in facts["jobs"] for runs in job["runs"])
        return JobPlan(jobs, events, facts["clock"], _costs(facts["before"]), _costs(facts["after"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidError(f"{path} is not a plan of this release: {error!r}") from error


class _StoredJobs(Sequence[PlannedJob]):
    """The jobs of a file. The containers of a job are looked up when the job is asked for."""

    def __init__(self, facts: dict[str, Any], federation: Federation) -> None:
        self._jobs = facts["jobs"]
        self._clock = facts["clock"]
        self._containers = facts["containers"]
        self._federation = federation
        self._snapshots: dict[int, Snapshot] = {}
        moments = facts["moments"]
        self._moments = moments if isinstance(moments, str) else tuple(moments or ())

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, index: int) -> PlannedJob: ...
    @overload
    def __getitem__(self, index: slice) -> list[PlannedJob]: ...
    def __getitem__(self, index: Any) -> PlannedJob | list[PlannedJob]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        number = range(len(self))[index]
        job = self._jobs[number]
        return PlannedJob(
            number,
            self._clock,
            self._moments,
            job["first"],
            job["last"],
            tuple(self._view(self._containers[each]) for each in job["containers"]),
            tuple(np.array(runs, np.min_scalar_type(max(runs))) for runs in job["runs"]),
        )

    def _view(self, container: dict[str, Any]) -> View:
        csn, version = container["csn"], container["class_version"]
        snapshot = self._snapshots.get(csn)
        if snapshot is None:
            snapshot = self._snapshots[csn] = self._federation.snapshot(csn=csn)
        view = snapshot[container["name"]]
        return view if version is None else view.as_class(version)


def _costs_facts(costs: PlanCosts) -> dict[str, Any]:
    return {
        **vars(costs),
        "first": costs.first.tolist(),
        "last": costs.last.tolist(),
        "series": {path: asdict(each) for path, each in costs.series.items()},
    }


def _costs(facts: dict[str, Any]) -> PlanCosts:
    series = {path: SeriesCosts(**each) for path, each in facts["series"].items()}
    first, last = (np.array(facts[name], np.int64) for name in ("first", "last"))
    return PlanCosts(**{**facts, "first": first, "last": last, "series": series})

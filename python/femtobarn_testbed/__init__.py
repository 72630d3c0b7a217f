"""The testbed: workloads of real jobs with more and more clients, until a resource limits them.

``femtobarn testbed run reconstruction`` runs one of the bundled workloads; docs/limits.md is the guide.
From a file to a report: `workload` parses a TOML file (`toml_parser`) into scenarios (`scenario`); `runner`
measures each scenario with each number of clients (`client_pool`, `client`, `recorder`) on a federation with
initial data (`data`, `streams`) and a server (`site`, `server_process`, `memcached`), reads the machine's
counters (`resources`) and those of jobs (`sources`), and names the limit (`verdict`). A run is one JSON file
(`results`), from which `comparison` compares, `report` draws (`report_page`, `rate_plots`, `time_plots`,
`conditions_plots` with `event_costs`, `storage_plots`, `monarc`, `labels`, `summaries`, beside `papers`).
`costs` derives the cost of work for `planning` (with `disk`), for the `prediction` of other runs, and for the
`simulation` of a site. A workload without scenarios belongs to a study (`studies`): it replays traces of
reads on full disks (`eviction`), recalls files from tapes (`recall`), or lets a file become hot (`hot`).
`tape_library` is a program of its own: a site's commands for its tapes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import latest, read, save
    from .runner import run
    from .workload import Workload, bundled_workloads, load

__all__ = ["Workload", "bundled_workloads", "latest", "load", "read", "run", "save"]

_MODULES = {
    "Workload": "workload",
    "bundled_workloads": "workload",
    "latest": "results",
    "load": "workload",
    "read": "results",
    "run": "runner",
    "save": "results",
}
"""All names by their modules, which are imported when a name is first used: `tape_library` starts without."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

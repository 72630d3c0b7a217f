"""The testbed: workloads of real jobs, scaled up to hundreds of clients until something gives.

``femtobarn testbed run reconstruction`` runs one of those that come with it; docs/limits.md is the guide.
"""

from __future__ import annotations

from .results import latest, read, save
from .running import run
from .workload import Workload, load, shipped

__all__ = ["Workload", "latest", "load", "read", "run", "save", "shipped"]

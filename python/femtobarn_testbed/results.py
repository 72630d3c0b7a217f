"""Runs as files: one JSON for each, with all that was measured and what it was measured with.

Members of a run::

    format, workload, title, paper, about, started, seconds, seed
    machine       cpu, cores, memory_bytes, kernel, python
    femtobarn     version, commit
    before        the command that was run before each point, or null
    parameters    the workload's file, with what was set from outside
    played        by variant: access, computation, compression, federations, disks (or null),
                  raw_bytes_per_second, ideal_bytes_per_second_per_client (or null)
    knees         by variant: see femtobarn_testbed.verdict.knee
    points        for each variant and number of clients:
      variant, settings, clients, window_seconds
      throughput  bytes_per_second, read_..., written_..., objects_..., events_..., tags_...,
                  commits_..., pairs_per_second, in the workload's time; kinds: the same by kind of client
      efficiency  share of the clients' time in computation that they were to do, or null
      time_shares share of the clients' time by operation
      operations  by kind: count, seconds, amount, longest, median, p99 (s), histogram; an event and a
                  transaction have others within
      start       for each client: kind, launched (s since the first), ready, opened, transaction,
                  first_object (s since it was launched)
      resources   machine_cores, stolen_cores, server_cores, client_cores, memory_bytes, disks that are
                  played (busy, seeking, seeks_per_second, bytes_per_second), server_totals, ...
      verdict     limit, evidence, shares
      each_client, series: raw figures
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import femtobarn as fb

__all__ = ["FORMAT", "latest", "read", "save", "source_commit"]

FORMAT = 1
"""Version of these files."""


def save(run: dict[str, Any], folder: Path) -> Path:
    """Write a run into a folder, instead of what it was with fewer points, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = "".join(sign for sign in run["started"][:19] if sign not in "-:")
    path = folder / f"{run['workload']}-{moment}.json"
    # Where the disk is full the points that were saved before stay.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(_finite(run), indent=1, allow_nan=False, default=str) + "\n")
    return new.replace(path)


def _finite(value: Any) -> Any:
    """JSON has no numbers that are none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> dict[str, Any]:
    """Read a run.

    Raises
    ------
    NotFoundError
        If there is no such file.
    InvalidError
        If it is no run, or of a newer release.
    """
    try:
        run = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise fb.NotFoundError(f"there is no file {path}") from error
    except ValueError as error:
        raise fb.InvalidError(f"{path} is not JSON: {error}") from error
    if not isinstance(run, dict) or "workload" not in run or "points" not in run:
        raise fb.InvalidError(f"{path} is not a run of the testbed")
    if run.get("format") != FORMAT:
        raise fb.InvalidError(f"{path} has format {run.get('format')}, this release reads {FORMAT}")
    return run


def latest(paths: Iterable[Path]) -> list[Path]:
    """Return the files that paths name; of a folder the newest run of each workload."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        newest: dict[str, Path] = {}
        for file in sorted(path.glob("*-????????T??????.json")):
            newest[file.stem.rpartition("-")[0]] = file
        if not newest:
            raise fb.NotFoundError(f"there are no runs in {path}")
        files += newest.values()
    return files


def source_commit() -> str | None:
    """Return the commit of the sources that this runs from, if it does."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None

"""The file of a run: JSON with all figures, and with the workload, machine and sources they came from.

Members of a run::

    format, workload, title, paper, about, started, seconds, seed
    machine       cpu, cores, memory_bytes, kernel, python
    femtobarn     version, commit
    before        the command that ran before each point, or null
    parameters    the workload's file, with the settings given on the command line
    played        simulation by variant: access, computation, compression, federations, disks (or null),
                  raw_bytes_per_second, ideal_bytes_per_second_per_client (or null)
    knees         by variant: see femtobarn_testbed.verdict.knee
    points        for each variant and number of clients:
      variant, settings, clients, window_seconds
      throughput  bytes_per_second, read_..., written_..., objects_..., events_..., tags_...,
                  commits_..., pairs_per_second, in the workload's time; kinds: the same by kind of client
      efficiency  share of the clients' time in the computation of their loops, or null
      time_shares share of the clients' time by operation
      operations  by kind: count, seconds, amount, longest, median, p99 (s), histogram; events and
                  transactions contain other operations
      start       for each client: kind, launched (s since the first), ready, opened, transaction,
                  first_object (s since it was launched)
      resources   machine_cores, stolen_cores, server_cores, client_cores, memory_bytes, simulated disks
                  (busy, seeking, seeks_per_second, bytes_per_second), server_totals, ...
      read_from   null, or for jobs that look up conditions their events, and by source (disk cache,
                  memcached, server) hits, misses, bytes, damaged, failures, all since the jobs began
      verdict     limit, evidence, shares
      each_client, series: raw figures

A run of replays has neither clients nor a server, so it has no before, played and knees, and::

    traces        by variant: days, accesses, reads, writes, read_bytes, files, distinct_bytes, read_files,
                  and read_once, read_at_most_twice, shares of the files that were read
    points        for each variant, size of the disk and policy: variant, settings, policy, cache_percent,
                  cache_bytes, reads, read_bytes, staged, staged_bytes, evicted, byte_hit_rate

Nor has a run of recalls from tapes; times and bytes are those of the played library::

    libraries     by variant: the simulated library, see femtobarn_testbed.tape_library.Play
    points        for each variant: variant, settings, seconds, mean_wait_seconds; mounts, files, bytes,
                  busy_seconds, mount_seconds, locate_seconds, transfer_seconds, the same of each of `drives`;
                  clients: files, seconds (until the last was there), fair_seconds; estimates of the server,
                  or null: done, failed, mean_error_seconds; work: what the drives did, file by file

Nor has a run of hot files, whose rates change with time; seconds are by the clock::

    sites         by variant: servers, files, file_bytes, hot_file_bytes, disk (bytes_per_second,
                  seeks_per_second, cache_bytes), clients_per_copy, idle_seconds
    points        for each variant: variant, settings, clients, aim, one_server_bytes_per_second,
                  hot_bytes_per_second, ratio, reached_seconds (since the file became hot, or null),
                  emptied_seconds (since it was left, until caches were empty, or null)
      phases      before, hot and cold, each: seconds, blocks, failures, failure_texts, machine_cores,
                  server_cpu_seconds, client_cpu_seconds; by server: bytes, opened (files by clients),
                  hot_file_opened, hot_file_last_opened (or null), redirects, fetched_bytes (by caches from
                  the origin), disk_busy
        series    by server and second: bytes, clients; kept_bytes of caches, one more at the beginning
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
    """Write a run into a folder, over its file with fewer points, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = "".join(sign for sign in run["started"][:19] if sign not in "-:")
    path = folder / f"{run['workload']}-{moment}.json"
    # If the disk is full, the file with the earlier points stays.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(_finite(run), indent=1, allow_nan=False, default=str) + "\n")
    return new.replace(path)


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON does not have, by None."""
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
        If the file does not exist.
    InvalidError
        If the file is not a run, or its format is of a newer release.
    """
    try:
        run = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise fb.NotFoundError(f"file {path} does not exist") from error
    except ValueError as error:
        raise fb.InvalidError(f"{path} is not JSON: {error}") from error
    if not isinstance(run, dict) or "workload" not in run or "points" not in run:
        raise fb.InvalidError(f"{path} is not a run of the testbed")
    if run.get("format") != FORMAT:
        raise fb.InvalidError(f"{path} has format {run.get('format')}, this release reads {FORMAT}")
    return run


def latest(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, and of each given folder the newest run of every workload."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        newest: dict[str, Path] = {}
        for file in sorted(path.glob("*-????????T??????.json")):
            newest[file.stem.rpartition("-")[0]] = file
        if not newest:
            raise fb.NotFoundError(f"folder {path} has no runs; `femtobarn testbed run` writes them")
        files += newest.values()
    return files


def source_commit() -> str | None:
    """Return the commit that this package's sources are at, or None outside a Git work tree."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None

"""The commands for conditions without the federation: write snapshot files and job files, and verify them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from .._bars import counting_bar
from .._conditions.clocks import shown
from .._conditions.conditions_files import ConditionsFile
from .._open_conditions import open_conditions
from .conditions_arguments import events_arguments, moment_from, moments_from, open_job, reader_arguments
from .output import emit, human_size, table

__all__ = ["COMMANDS"]


def _snapshot_arguments(parser: argparse.ArgumentParser) -> None:
    _writer_arguments(parser)
    for option, text in (
        ("since", "conditions valid at this moment or later"),
        ("until", "before this moment"),
    ):
        parser.add_argument(f"--{option}", metavar="TIME", help=f"of series of times: only {text}")
        parser.add_argument(f"--{option}-run", metavar="RUN[:BLOCK]", help=f"of series of runs: only {text}")


def _writer_arguments(parser: argparse.ArgumentParser) -> None:
    reader_arguments(parser)
    parser.add_argument("file", metavar="FILE", help="new file, such as conditions.root")
    parser.add_argument("series", nargs="*", metavar="SERIES", help="all series by default")


def _snapshot(options: argparse.Namespace) -> None:
    job = open_job(options)
    bounds: dict[str, Any] = {}
    for name, clock in (("since", "time"), ("until", "time"), ("since_run", "run"), ("until_run", "run")):
        text = getattr(options, name)
        if text is not None:
            bounds[name] = np.int64(moment_from(text, clock, f"a series of {clock}s"))
    with counting_bar(desc=options.file, unit=" series") as advance:
        job.write_snapshot(options.file, options.series or None, progress=advance, **bounds)
    _report(options, "wrote")


def _job_file_arguments(parser: argparse.ArgumentParser) -> None:
    _writer_arguments(parser)
    events_arguments(parser)


def _job_file(options: argparse.Namespace) -> None:
    job = open_job(options)
    events = [job.snapshot[name] for name in options.events]
    moments = moments_from(options)
    with counting_bar(desc=options.file, unit=" series") as advance:
        job.write_job_file(options.file, events, options.series or None, moments=moments, progress=advance)
    _report(options, "wrote")


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a snapshot file or job file")


def _verify(options: argparse.Namespace) -> None:
    with open_conditions(options.file) as job, counting_bar(desc=options.file, unit=" series") as advance:
        job.verify(progress=advance)
    _report(options, "verified")


def _report(options: argparse.Namespace, done: str) -> None:
    """Print the contents of a file."""
    with open_conditions(options.file) as job:
        size = Path(options.file).stat().st_size
        emit(options, {"file": options.file, "bytes": size, **_plain(job)}, _text(job, size, done))


def _plain(job: ConditionsFile) -> dict[str, Any]:
    facts = job.facts
    for name, clock in (("since", "time"), ("until", "time"), ("since_run", "run"), ("until_run", "run")):
        facts[name] = shown(facts[name], clock)
    for series in facts["series"]:
        # A job file covers up to one range for each event.
        series["covered_ranges"] = len(series.pop("covered_since"))
        del series["covered_until"]
    return facts


def _text(job: ConditionsFile, size: int, done: str) -> str:
    facts = job.facts
    tag = (
        f"global tag {facts['global_tag']} ({facts['global_tag_state']})"
        if facts["global_tag"]
        else "no global tag"
    )
    rows = [
        [each["path"], each["clock"], str(each["conditions"]), str(each["csn"]), each["sha256"][:12]]
        for each in facts["series"]
    ]
    lines = [
        f"{done} {job.file}, {human_size(size)}: {facts['federation']} as of csn {job.csn}, {tag}",
        f"root hash {job.sha256}",
        table(["series", "clock", "conditions", "as of csn", "hash"], rows, right={2, 3}),
    ]
    return "\n".join(lines)


COMMANDS = (
    ("snapshot", "write the conditions of a range to a file for jobs", _snapshot_arguments, _snapshot),
    ("job-file", "write the conditions that events need to a file for jobs", _job_file_arguments, _job_file),
    (
        "verify",
        "read a snapshot file or job file, and compare it with its hashes",
        _verify_arguments,
        _verify,
    ),
)
"""Name, help, arguments and action of each command."""

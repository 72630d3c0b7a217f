"""Arguments that the commands of conditions share: a federation, a global tag, events, moments as texts."""

from __future__ import annotations

import argparse

from .. import _federations
from .._conditions.clocks import BEGINNING, FOREVER, moment_of
from .._conditions.event_joins import Moments
from .._conditions.jobs import Job
from .._exceptions import InvalidError

__all__ = [
    "events_arguments",
    "federation_argument",
    "moment_from",
    "moments_from",
    "open_job",
    "reader_arguments",
]

ENDS = {"beginning": BEGINNING, "forever": FOREVER}


def federation_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the federation."""
    parser.add_argument("federation", metavar="FEDERATION", help="folder, or root://host//name")


def reader_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the federation, and the version of its conditions."""
    federation_argument(parser)
    parser.add_argument(
        "--tag", metavar="NAME", help="read the series of this global tag; all series by default"
    )
    parser.add_argument("--csn", type=int, help="as of this commit instead of the newest")


def open_job(options: argparse.Namespace) -> Job:
    """Open the job that the options name."""
    return _federations.open(options.federation).conditions(options.tag, csn=options.csn)


def events_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare containers of events, and the fields with their moments."""
    parser.add_argument(
        "--events",
        metavar="CONTAINER",
        action="append",
        required=True,
        help="such as run7/events; repeatable",
    )
    parser.add_argument(
        "--moments",
        metavar="FIELD",
        help="field of the events with nanoseconds since 1970, for series of times",
    )
    parser.add_argument(
        "--run-moments", metavar="RUN,BLOCK", help="fields with run and luminosity block, for series of runs"
    )


def moments_from(options: argparse.Namespace) -> dict[str, Moments]:
    """Return where the moments of the events are, by clock."""
    moments: dict[str, Moments] = {}
    if options.moments:
        moments["time"] = options.moments
    if options.run_moments:
        run, comma, block = options.run_moments.partition(",")
        if not comma:
            raise InvalidError(
                f"{options.run_moments!r} is one field; write those of run and block: RUN,BLOCK"
            )
        moments["run"] = run, block
    return moments


def moment_from(text: str, clock: str, of: str) -> int:
    """Return the moment of a clock that a text on the command line stands for.

    `of` names, in errors, the series whose clock it is.

    Examples
    --------
    >>> moment_from("2026-01-01T00:00:00Z", "time", "tpc/gain")
    1767225600000000000
    >>> moment_from("7:1", "run", "beam/spot"), moment_from("7", "run", "beam/spot")
    (30064771073, 30064771072)
    """
    if text in ENDS:
        return ENDS[text]
    if clock == "time":
        return moment_of(int(text) if text.lstrip("-").isdecimal() else text, clock)
    run, colon, block = text.partition(":")
    if not run.isdecimal() or (colon and not block.isdecimal()):
        raise InvalidError(f"{text!r} is not a moment of {of}: write RUN:BLOCK, or RUN")
    return moment_of((int(run), int(block or 0)), clock)

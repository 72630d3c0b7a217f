"""The commands that compare, merge and check conditions."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from .. import _federations
from .._conditions.clocks import shown
from .._conditions.comparisons import Difference, differences
from .._conditions.jobs import Job
from .._conditions.merges import Conflict
from .._exceptions import CorruptError
from .conditions_arguments import federation_argument, moment_from
from .output import emit, emit_line, table

__all__ = ["COMMANDS"]

SHOWN_MAX = 40
"""Differences that a table lists unless asked for more."""


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    federation_argument(parser)
    parser.add_argument("before", metavar="TAG|CSN", help="global tag, or a commit of all series")
    parser.add_argument(
        "after", metavar="TAG|CSN", nargs="?", help="another tag or commit; the newest commit by default"
    )
    parser.add_argument("--series", action="append", metavar="SERIES", help="only this series")
    parser.add_argument("--since", metavar="TIME", help="only differences at this time or later")
    parser.add_argument("--until", metavar="TIME", help="only differences before this time")
    parser.add_argument("-n", "--number", type=int, default=SHOWN_MAX, help=f"lines at most ({SHOWN_MAX})")


def _diff(options: argparse.Namespace) -> None:
    conditions = _federations.open(options.federation).conditions
    before, after = (
        conditions(csn=int(name)) if name is not None and name.isdecimal() else conditions(name)
        for name in (options.before, options.after)
    )
    if options.since is None and options.until is None:
        found = conditions.diff(before, after, options.series)
    else:
        found = _differences_within(options, before, after)
    facts = [_facts_of(each) for each in found]
    rows = [[str(fact[name]) for name in HEAD] for fact in facts[: options.number]]
    text = table(HEAD, rows, right={1}) if rows else "no difference"
    if len(rows) < len(facts):
        text += f"\nand {len(facts) - len(rows):,} more"
    emit(options, facts, text)


def _differences_within(options: argparse.Namespace, before: Job, after: Job) -> list[Difference]:
    """Return the differences in a range, which the series of each clock read in their own way."""
    listed = before._listed(), after._listed()
    by_clock: dict[str, list[str]] = {}
    for path in options.series or sorted(listed[0].keys() | listed[1].keys()):
        facts = listed[0].get(path) or listed[1].get(path)
        job = before if path in listed[0] else after
        by_clock.setdefault(job[path].clock if facts is None else facts.clock, []).append(path)
    found: list[Difference] = []
    for clock, paths in by_clock.items():
        since, until = (
            None if text is None else np.int64(moment_from(text, clock, paths[0]))
            for text in (options.since, options.until)
        )
        found += differences(before, after, paths, since, until)
    return sorted(found, key=lambda each: each.series) if options.series is None else found


HEAD = ("series", "channel", "since", "until", "before", "after")


def _facts_of(difference: Difference) -> dict[str, Any]:
    ends = (shown(moment, difference.clock) for moment in (difference.since, difference.until))
    values = (difference.series, difference.channel, *ends, difference.before, difference.after)
    return dict(zip(HEAD, values, strict=True))


def _merge_arguments(parser: argparse.ArgumentParser) -> None:
    federation_argument(parser)
    parser.add_argument("branch", metavar="BRANCH", help="global tag that is a branch")
    parser.add_argument(
        "--into", metavar="TAG", help="another branch, or a global tag that reads the newest commit"
    )
    parser.add_argument(
        "--on-conflict",
        choices=["refuse", "ours", "theirs"],
        default="refuse",
        help="if both changed: merge nothing (default), keep the series' conditions, or take the branch's",
    )
    parser.add_argument("-m", "--message", default="", help="reason, for the history of both")


def _merge(options: argparse.Namespace) -> None:
    merged = _federations.open(options.federation).conditions.merge(
        options.branch, options.into, on_conflict=options.on_conflict, message=options.message
    )
    conflicts = [_conflict_facts(each) for each in merged.conflicts]
    facts = {"csn": merged.csn, "put": merged.put, "conflicts": conflicts}
    if merged.csn is None:
        emit(options, facts, f"nothing to merge: {options.branch} has no changes that were not merged before")
        return
    text = f"merged {options.branch}, commit {merged.csn}: {merged.put} ranges changed"
    if conflicts:
        rows = [[str(fact[name]) for name in CONFLICT_HEAD] for fact in conflicts]
        text += f"\nconflicts, taken from {options.on_conflict}:\n" + table(CONFLICT_HEAD, rows, right={1})
    emit(options, facts, text)


CONFLICT_HEAD = ("series", "channel", "since", "until", "base", "ours", "theirs")


def _conflict_facts(conflict: Conflict) -> dict[str, Any]:
    ends = (shown(moment, conflict.clock) for moment in (conflict.since, conflict.until))
    values = (conflict.series, conflict.channel, *ends, conflict.base, conflict.ours, conflict.theirs)
    return dict(zip(CONFLICT_HEAD, values, strict=True))


def _check(options: argparse.Namespace) -> None:
    problems = _federations.open(options.federation).conditions.check()
    if problems and not options.json:
        for problem in problems:
            emit_line(problem)
        raise CorruptError(f"{len(problems)} problems with conditions of {options.federation}")
    emit(options, problems, "series and global tags are consistent")


COMMANDS = (
    ("diff", "list differences between two global tags or commits", _diff_arguments, _diff),
    ("merge", "merge the changes of a branch into the series", _merge_arguments, _merge),
    ("check", "check that global tags still name the same conditions", federation_argument, _check),
)
"""Name, help, arguments and function of each command."""

"""The commands of conditions: list series, look them up, put conditions, and manage global tags."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from .. import _federations
from .._conditions.clocks import FOREVER
from .._conditions.global_tags import State
from .._conditions.jobs import Job, ListedSeries
from .._conditions.series import Interval, Series
from .._exceptions import InvalidError, NotFoundError
from .._schema.types import Record, String
from . import conditions_comparisons, conditions_plans, conditions_snapshots
from .conditions_arguments import federation_argument, moment_from, open_job, reader_arguments
from .conditions_exchange import export_arguments, export_series, import_arguments, import_source
from .conditions_recording import record, record_arguments, reduce, reduce_arguments
from .output import emit, human_time, plain, table, text_entry

__all__ = ["arguments", "run"]

CONDITION_WIDTH_MAX = 100
"""Characters of a condition in a table; `--json` prints all of it."""

STATES: dict[str, State] = {"open": "open", "lock": "locked", "freeze": "frozen"}
"""The states of a global tag, by the options that set them."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands of ``conditions``."""
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text, declare, action in (
        ("ls", "list the series, or the conditions of one", _ls_arguments, _ls),
        ("at", "print the conditions that are valid at a time", _at_arguments, _at),
        ("put", "insert a condition into a series", _put_arguments, _put),
        ("record", "record values into a series as they arrive", record_arguments, record),
        ("reduce", "derive series from raw ones", reduce_arguments, reduce),
        ("tags", "list the global tags", federation_argument, _tags),
        ("tag", "show, make, change, lock or freeze a global tag", _tag_arguments, _tag),
        ("history", "list the changes of a global tag", _history_arguments, _history),
        ("import", "import conditions of another system, or a file", import_arguments, import_source),
        ("export", "export conditions with their validities to a file", export_arguments, export_series),
        *conditions_comparisons.COMMANDS,
        *conditions_snapshots.COMMANDS,
        *conditions_plans.COMMANDS,
    ):
        part = parts.add_parser(name, help=text, description=text)
        declare(part)
        part.set_defaults(part=action)
        part.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> None:
    """Run the chosen command."""
    options.part(options)


# ---- series


def _ls_arguments(parser: argparse.ArgumentParser) -> None:
    reader_arguments(parser)
    parser.add_argument("series", nargs="?", metavar="SERIES", help="list the conditions of this series")
    parser.add_argument("--since", metavar="TIME", help="only conditions valid at this time or later")
    parser.add_argument("--until", metavar="TIME", help="only conditions valid before this time")
    parser.add_argument("--channel", type=int, help="only this channel")
    parser.add_argument("-n", "--number", type=int, help="conditions to list at most")


def _ls(options: argparse.Namespace) -> None:
    job = open_job(options)
    if options.series is None:
        _list_series(options, job)
        return
    series = job[options.series]
    range_ = [
        None if text is None else moment_from(text, series.clock, series.path)
        for text in (options.since, options.until)
    ]
    channels = series.channels(*range_) if options.channel is None else [options.channel]
    found = [(each, one) for each in channels for one in series.intervals(*range_, channel=each)]
    facts, rows = _conditions(series, found[: options.number])
    text = table(CONDITION_HEAD, rows, right={0})
    if len(rows) < len(found):
        text += f"\nand {len(found) - len(rows):,} more"
    emit(options, facts, text)


def _list_series(options: argparse.Namespace, job: Job) -> None:
    facts = [_series_facts(job, path, listed) for path, listed in job._listed().items()]
    rows = [
        [
            *(str(fact[name]) for name in ("series", "class", "clock", "overlap", "conditions", "csn")),
            f"from {fact['container']}" if fact["container"] != fact["series"] else "",
        ]
        for fact in facts
    ]
    head = ["series", "class", "clock", "overlap", "conditions", "as of csn", ""]
    emit(options, facts, table(head, rows, right={4, 5}))


def _series_facts(job: Job, path: str, listed: ListedSeries | None) -> dict[str, Any]:
    """Return the line of the list for a series, which is opened only if the catalogue does not know it."""
    if listed is None or listed.conditions is None:
        series = job[path]
        return {
            "series": path,
            "class": series.definition.name,
            "clock": series.clock,
            "overlap": series.overlap,
            "conditions": len(series),
            "csn": series.csn,
            "container": series.sources[-1].name,
        }
    return {
        "series": path,
        "class": listed.payload,
        "clock": listed.clock,
        "overlap": listed.overlap,
        "conditions": listed.conditions,
        "csn": listed.csn,
        "container": listed.container,
    }


def _at_arguments(parser: argparse.ArgumentParser) -> None:
    reader_arguments(parser)
    parser.add_argument(
        "time",
        metavar="TIME",
        help="such as 2026-01-01T00:00:00Z; of a series of runs RUN:BLOCK, or RUN for its block 0",
    )
    parser.add_argument("series", nargs="+", metavar="SERIES", help="such as tpc/gain")
    parser.add_argument("--channel", type=int, help="only this channel")


def _at(options: argparse.Namespace) -> None:
    job = open_job(options)
    facts: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    for path in options.series:
        series = job[path]
        found = _valid_at(series, moment_from(options.time, series.clock, series.path), options.channel)
        more_facts, more_rows = _conditions(series, found)
        facts += [{"series": path, **fact} for fact in more_facts]
        rows += [[path, *row] for row in more_rows]
    emit(options, facts, table(["series", *CONDITION_HEAD], rows, right={1}))


def _valid_at(series: Series, moment: int, channel: int | None) -> list[tuple[int, Interval]]:
    """Return the conditions that are valid at a moment as they are stored, in one channel or in all.

    Raises
    ------
    NotFoundError
        If nothing is.
    """
    when = np.int64(moment)
    if channel is not None:
        series.at(when, channel=channel, required=True)
        return [(channel, series.interval(when, channel=channel))]
    channels = series.channels(moment, moment + 1) if moment < FOREVER else []
    if not channels:
        raise NotFoundError(f"{series.path} has no condition at {series.shown(moment)} for any channel")
    return [(each, series.interval(when, channel=each)) for each in channels]


CONDITION_HEAD = ["channel", "since", "until", "oid", "condition"]


def _conditions(
    series: Series, found: list[tuple[int, Interval]]
) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Return the conditions of intervals, as facts and as rows of a table."""
    record = series.definition.record
    entries = [one.entry for _, one in found if one.entry is not None]
    values = series.fetch(entries).to_list()
    facts = [
        {
            "channel": channel,
            "since": series.shown(one.since),
            "until": series.shown(one.until),
            "oid": str(series.oid(entry)),
            "condition": plain(value, record),
        }
        for (channel, one), entry, value in zip(found, entries, values, strict=True)
    ]
    rows = [
        [*(str(fact[name]) for name in CONDITION_HEAD[:-1]), _short(text_entry(value, record))]
        for fact, value in zip(facts, values, strict=True)
    ]
    return facts, rows


def _short(text: str) -> str:
    return text if len(text) <= CONDITION_WIDTH_MAX else text[: CONDITION_WIDTH_MAX - 3] + "..."


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    federation_argument(parser)
    parser.add_argument("series", metavar="SERIES", help="an existing series, such as tpc/gain")
    parser.add_argument(
        "values", metavar="FIELD=VALUE", nargs="+", help="such as value=1.5; lists and records in JSON"
    )
    parser.add_argument("--since", metavar="TIME", required=True, help="first moment at which it is valid")
    parser.add_argument(
        "--until", metavar="TIME", help="first moment at which it is no longer valid; forever if not given"
    )
    parser.add_argument("--channel", type=int, default=0, help="channel, 0 by default")
    parser.add_argument("--branch", metavar="NAME", help="put it into this branch")
    parser.add_argument("-m", "--message", help="reason, for the list of commits")


def _put(options: argparse.Namespace) -> None:
    federation = _federations.open(options.federation)
    series = federation.conditions(options.branch)[options.series]
    values = _values(options.values, series)
    since = moment_from(options.since, series.clock, series.path)
    until = moment_from(options.until or "forever", series.clock, series.path)
    message = options.message or f"condition of {options.series}"
    with federation.transaction(message=message) as txn:
        writer = txn.series(options.series, branch=options.branch)
        oid = writer.put(values, since=np.int64(since), until=np.int64(until), channel=options.channel)
    facts = {"oid": str(oid), "csn": txn.csn}
    emit(options, facts, f"put {oid} into {options.series}, commit {txn.csn}")


def _values(texts: list[str], series: Series) -> dict[str, Any]:
    """Return the fields of a condition, from FIELD=VALUE for each."""
    record = series.definition.record
    values = dict(_field_value(text, record) for text in texts)
    missing = [name for name in record.by_name if name not in values]
    if missing:
        raise InvalidError(f"no value of {', '.join(missing)}; give one for each field of {series.path}")
    return values


def _field_value(text: str, record: Record) -> tuple[str, Any]:
    """Return the name and the value of a field from FIELD=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidError(f"{text!r} has no equals sign; write FIELD=VALUE, such as value=1.5")
    field = record.by_name.get(name)
    if field is None:
        raise NotFoundError(f"no field {name!r}; the fields are {', '.join(record.by_name)}")
    if isinstance(field, String):
        return name, value
    try:
        return name, json.loads(value)
    except ValueError:
        raise InvalidError(f"invalid value {value!r} of field {name!r}, which is {field}") from None


# ---- global tags


def _tags(options: argparse.Namespace) -> None:
    tags = _federations.open(options.federation).conditions.tags()
    rows = [
        [tag["name"], tag["state"], _series_count(tag), _as_of(tag["csn"]), *_authorship(tag)] for tag in tags
    ]
    head = ["global tag", "state", "series", "as of", "changed", "by", "message"]
    emit(options, [_tag_facts(tag) for tag in tags], table(head, rows))


def _tag_arguments(parser: argparse.ArgumentParser) -> None:
    federation_argument(parser)
    parser.add_argument("name", metavar="NAME", help="the global tag; show it if nothing else is given")
    parser.add_argument(
        "series",
        nargs="*",
        metavar="SERIES[=VERSION]",
        help="series to list; with =7 it is read as of commit 7, with =tpc/other that series is read instead",
    )
    parser.add_argument(
        "--create", action="store_true", help="make the tag; without SERIES it has all series"
    )
    parser.add_argument("--copy-of", metavar="NAME", help="make the tag as a copy of this one")
    parser.add_argument(
        "--branch",
        action="store_true",
        help="make the tag as a branch, into which conditions can be put: of --copy-of, or of all series",
    )
    parser.add_argument("--remove", action="append", metavar="SERIES", help="remove a series from the list")
    parser.add_argument("--csn", type=int, help="read the series as of this commit; 0 for the newest")
    group = parser.add_mutually_exclusive_group()
    for option, text in (
        ("open", "allow changes again"),
        ("lock", "refuse changes until it is opened"),
        ("freeze", "refuse changes for ever; series are read as of the newest commit unless --csn is given"),
    ):
        group.add_argument(f"--{option}", dest="state", action="store_const", const=STATES[option], help=text)
    parser.add_argument("-m", "--message", default="", help="reason, for the history of the tag")


def _tag(options: argparse.Namespace) -> None:
    conditions = _federations.open(options.federation).conditions
    versions = dict(map(_version, options.series)) or None
    is_new = options.create or options.branch or options.copy_of is not None
    if is_new and options.remove:
        raise InvalidError("--remove is for a tag that exists; make it first")
    if is_new:
        tag = conditions.create_tag(
            options.name,
            versions,
            copy_of=options.copy_of,
            branch=options.branch,
            state=options.state,
            csn=options.csn,
            message=options.message,
        )
    elif versions or options.remove or options.state or options.csn is not None or options.message:
        tag = conditions.change_tag(
            options.name,
            versions,
            remove=options.remove or (),
            state=options.state,
            csn=options.csn,
            message=options.message,
        )
    else:
        tag = conditions.tag(options.name)
    emit(options, _tag_facts(tag), _tag_text(tag))


def _version(text: str) -> tuple[str, int | str | None]:
    """Return the path and the version from SERIES[=VERSION]: a commit, another series, or None."""
    path, equals, version = text.partition("=")
    if version.isdecimal():
        return path, int(version)
    if equals and "/" not in version:
        raise InvalidError(f"{text!r} is not of the form SERIES, SERIES=COMMIT or SERIES=OTHER_SERIES")
    return path, version or None


def _history_arguments(parser: argparse.ArgumentParser) -> None:
    federation_argument(parser)
    parser.add_argument("name", metavar="NAME", help="name of the global tag")


def _history(options: argparse.Namespace) -> None:
    states = _federations.open(options.federation).conditions.history(options.name)
    rows = [
        [state["state"], _difference(before, state), *_authorship(state)]
        for before, state in zip([None, *states], states, strict=False)
    ]
    head = ["state", "change", "changed", "by", "message"]
    emit(options, [_tag_facts(state) for state in states], table(head, rows))


def _difference(before: dict[str, Any] | None, tag: dict[str, Any]) -> str:
    """Return the effect of a change on the series of a global tag, or the series that were merged."""
    merge = tag["merge"]
    if merge is not None:
        taken = (
            f", {merge['conflicts']} conflicts taken from {merge['on_conflict']}"
            if merge["conflicts"]
            else ""
        )
        into = merge["into"] or "the series"
        return f"merged {merge['branch']} as of commit {merge['csn']} into {into}{taken}"
    listed: dict[str, Any] = before["series"] if before else {}
    parts = [f"without {path}" for path in listed if path not in tag["series"]]
    branches: dict[str, Any] = before["branches"] if before else {}
    parts += [
        _version_text(tag, path)
        for path, version in tag["series"].items()
        if (listed.get(path), branches.get(path)) != (version, tag["branches"].get(path))
    ]
    if before is None:
        parts.insert(0, f"{_series_count(tag)}, as of {_as_of(tag['csn'])}")
    elif before["csn"] != tag["csn"]:
        parts.insert(0, f"as of {_as_of(tag['csn'])}")
    return "; ".join(parts)


def _authorship(tag: dict[str, Any]) -> list[str]:
    return [human_time(tag["time"]), tag["user"], tag["message"]]


def _tag_facts(tag: dict[str, Any]) -> dict[str, Any]:
    listed = {path: {"csn": csn, "source": source} for path, (csn, source) in tag["series"].items()}
    return {**tag, "series": listed, "time": tag["time"].isoformat()}


def _tag_text(tag: dict[str, Any]) -> str:
    count, commit = _series_count(tag), _as_of(tag["csn"])
    kind = "branch" if tag["is_branch"] else "global tag"
    lines = [f"{kind} {tag['name']} is {tag['state']}; it has {count}, as of {commit}"]
    lines += [f"  {_version_text(tag, path)}" for path in tag["series"]]
    return "\n".join(lines)


def _version_text(tag: dict[str, Any], path: str) -> str:
    csn, source = tag["series"][path]
    as_of = "" if csn is None else f" as of {_as_of(csn)}"
    text: str = path + as_of + ("" if source is None else f" from {source}")
    for container, commit in reversed(tag["branches"].get(path, [])):
        text += f", then {container} as of {_as_of(commit)}"
    return text


def _series_count(tag: dict[str, Any]) -> str:
    listed = len(tag["series"])
    if tag["only_listed"]:
        return f"{listed} series"
    return "all series" + (f", {listed} listed" if listed else "")


def _as_of(csn: int | None) -> str:
    return "the newest commit" if csn is None else f"commit {csn}"

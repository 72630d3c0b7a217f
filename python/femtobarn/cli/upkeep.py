"""The commands for operators: tags, checks, repairs, backups, vacuum, locks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from .. import _federations, _recovery
from .._bars import bar
from .._exceptions import CorruptError, InvalidError
from .._upkeep import Compacted, Progress, VacuumReport
from .output import emit, human_size, human_time, table

__all__ = [
    "backup",
    "catalogue",
    "check",
    "compact",
    "detach",
    "locks",
    "move_catalogue",
    "rebuild",
    "repair",
    "restore",
    "retention",
    "tag",
    "tidy",
    "vacuum",
    "waits",
    "what",
]


@contextmanager
def progress_bar(unit: str = "B") -> Iterator[Progress]:
    """Show the progress of a long operation, on standard error, and only on a terminal."""
    with bar(unit=unit) as shown:

        def advance(doing: str, of: str, done: int, total: int) -> None:
            shown.total = total
            shown.set_description_str(f"{doing} {of}", refresh=False)
            shown.update(done - shown.n)

        yield advance


def catalogue(options: argparse.Namespace) -> None:
    """Print the content of the catalogue as of a commit."""
    federation = _federations.open(options.federation)
    snapshot = federation.snapshot(csn=options.csn, tag=options.tag)
    databases = [
        {**database, "containers": snapshot.containers(database["name"])} for database in snapshot.databases()
    ]
    facts = {
        "name": federation.name,
        "uuid": federation.uuid,
        "csn": snapshot.csn,
        "retention": federation.retention(),
        "tags": federation.tags(),
        "databases": databases,
        "classes": federation.classes(),
    }
    lines = [f"federation {federation.name}  {federation.uuid}  as of commit {snapshot.csn}"]
    lines += [f"tag {tag['name']}: commit {tag['csn']}  {tag['message']}" for tag in federation.tags()]
    for database in databases:
        lines.append(f"database {database['id']} {database['name']}  {database['state']}  {database['path']}")
        rows = [_container_row(container) for container in database["containers"]]
        lines += [f"  {line}" for line in table(CONTAINER_HEAD, rows, right={0, 3, 4}).splitlines() if rows]
    emit(options, facts, "\n".join(lines))


CONTAINER_HEAD = ["id", "container", "class", "objects", "size"]


def _container_row(container: dict[str, Any]) -> list[str]:
    number, size = f"{container['entries']:,}", human_size(container["bytes"])
    return [str(container["id"]), container["name"], container["class"], number, size]


def what(options: argparse.Namespace) -> None:
    """Print the kinds of files: databases, with their federation and commits, or other ROOT files."""
    facts = [_recovery.identify(path) for path in options.files]
    emit(options, facts, "\n".join(line for fact in facts for line in _file_lines(fact)))


def _file_lines(facts: dict[str, Any]) -> Iterator[str]:
    database = f" {facts['database']!r}" if facts["database"] else ""
    yield f"{facts['path']}: {facts['kind']}{database}, {human_size(facts['bytes'])}"
    for name, text in (("uuid", "identity"), ("federation", "of federation"), ("problem", "problem")):
        if facts[name]:
            yield f"  {text} {facts[name]}"
    if facts["commits"]:
        time = human_time(datetime.fromtimestamp(facts["last_time_us"] / 1e6, UTC))
        yield f"  {facts['commits']} commits, the last at {time}: {facts['last_message']}"
    for container in facts["containers"]:
        of_class = f" of class {container['class']}" if container["class"] else ""
        deleted = f", {container['deleted']:,} of them deleted" if container["deleted"] else ""
        yield f"  {container['name']}: {container['entries']:,} objects{of_class}{deleted}"


def check(options: argparse.Namespace) -> None:
    """Check a federation; fails if committed data cannot be read."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        report = federation.check(full=options.full, progress=advance)
    looked_at = f"{report.databases} databases, {report.containers} containers, {report.versions} versions"
    if options.full:
        looked_at += f", {report.pages:,} pages, {report.objects:,} objects, {report.links:,} links"
    lines = [*map(str, report.problems)]
    if report.more_problems:
        lines.append(f"and {report.more_problems:,} more")
    lines.append(f"checked {looked_at}")
    if report.nearline:
        lines.append(f"{report.nearline} databases are only in stores, and were not read")
    if report.elsewhere:
        lines.append(f"{report.elsewhere} databases are at other servers, and were not read")
    if report.unreferenced_bytes or report.orphan_bytes:
        size = human_size(report.unreferenced_bytes + report.orphan_bytes)
        lines.append(f"{size} could be given back: femtobarn vacuum {options.federation}")
    lines.append("sound" if report.sound else "DAMAGED")
    emit(options, asdict(report), "\n".join(lines))
    if not report.sound:
        damaged = sum(problem.severity == "damage" for problem in report.problems)
        raise CorruptError(f"{damaged} problems lose data; see femtobarn repair {options.federation}")


def repair(options: argparse.Namespace) -> None:
    """Repair the problems that a check finds; fails if committed data still cannot be read."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        report = federation.repair(salvage=options.salvage, dry_run=options.dry_run, progress=advance)
    done = "to repair" if options.dry_run else "repaired"
    lines = [f"{done}: {what}" for what in report.done]
    lines += [f"left: {problem}" for problem in report.left]
    emit(options, asdict(report), "\n".join(lines or ["nothing to repair"]))
    damaged = sum(problem.severity == "damage" for problem in report.left)
    if damaged:
        raise CorruptError(f"{damaged} problems are left")


def retention(options: argparse.Namespace) -> None:
    """Show or set the history that vacuum keeps."""
    federation = _federations.open(options.federation)
    given = {"keep_commits": options.keep_commits, "keep_days": options.keep_days}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if limits and options.keep_all:
        raise InvalidError(
            "invalid --keep-all: all history is kept only without --keep-commits and --keep-days"
        )
    if options.keep_all:
        federation.set_retention()
    elif limits:
        # A limit that is not given stays: without it, a vacuum would remove snapshots that it has kept until
        # now.
        federation.set_retention(**{**federation.retention(), **limits})
    kept = federation.retention()
    words = {"keep_commits": "the newest {:,} commits", "keep_days": "the commits of the last {:,} days"}
    limited = [words[name].format(limit) for name, limit in kept.items() if limit is not None]
    text = "vacuum keeps all history"
    if limited:
        text = f"vacuum keeps {' and '.join(limited)}, and everything that tags and open snapshots need"
    emit(options, kept, text)


def vacuum(options: argparse.Namespace) -> None:
    """Remove versions that no snapshot needs, and give their space back."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        report = federation.vacuum(keep_from=options.keep_from, dry_run=options.dry_run, progress=advance)
    emit(options, asdict(report), "\n".join(_vacuum_lines(report, options.dry_run)))


def _vacuum_lines(report: VacuumReport, is_dry: bool) -> Iterator[str]:
    freed = human_size(report.version_bytes + report.garbage_bytes)
    would = "would give" if is_dry else "gave"
    yield f"{would} back {freed}: {report.versions:,} versions before commit {report.horizon}"
    for name, why in report.skipped:
        yield f"  skipped {name}: {why}"
    for name in report.busy:
        yield f"  {name} has a writer; vacuum again after it has ended"


def compact(options: argparse.Namespace) -> None:
    """Merge small clusters."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        done = federation.compact(
            options.path, all=options.all, compression=options.compression, progress=advance
        )
    emit(options, [asdict(container) for container in done], "\n".join(map(_compact_line, done)))


def _compact_line(done: Compacted) -> str:
    if done.csn is None:
        return f"{done.path}: nothing to gain"
    sizes = f"{human_size(done.bytes_before)} to {human_size(done.bytes)}"
    return f"{done.path}: {done.clusters_before:,} clusters to {done.clusters:,}, {sizes}"


def tidy(options: argparse.Namespace) -> None:
    """Compact and vacuum."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        containers, report = federation.tidy(options.database, progress=advance)
    facts = {"containers": [asdict(container) for container in containers], "vacuum": asdict(report)}
    emit(options, facts, "\n".join([*map(_compact_line, containers), *_vacuum_lines(report, False)]))


def rebuild(options: argparse.Namespace) -> None:
    """Rebuild the catalogue from the files of databases."""
    with progress_bar() as advance:
        facts = _recovery.rebuild_catalogue(options.federation, name=options.name, progress=advance)
    lines = [
        f"found {facts['commits']:,} commits, the newest {facts['head']}: {facts['databases']} databases, "
        f"{facts['containers']} containers, {facts['versions']:,} versions, {facts['tags']} tags"
    ]
    lines += [f"  left out {what}" for what in facts["left_out"]]
    if facts["old_catalogue"]:
        lines.append(f"the old catalogue is now {facts['old_catalogue']}")
    emit(options, facts, "\n".join(lines))


def locks(options: argparse.Namespace) -> None:
    """List the held locks."""
    rows = _federations.open(options.federation).locks()
    lines = [
        [row["container"] or row["database"] or "", row["target"], row["holder"] or "shared"] for row in rows
    ]
    emit(options, rows, table(["name", "lock", "held by"], lines))


def waits(options: argparse.Namespace) -> None:
    """List the waits for locks, the longest first."""
    rows = _federations.open(options.federation).waits()
    lines = [
        [row["container"] or row["database"] or row["target"], row["waiter"], row["holder"] or "several"]
        for row in rows
    ]
    emit(options, rows, table(["lock", "waits", "held by"], lines))


def tag(options: argparse.Namespace) -> None:
    """List tags, make a tag, or remove one."""
    federation = _federations.open(options.federation)
    if options.delete is not None:
        federation.untag(options.delete)
    elif options.name is not None:
        federation.tag(options.name, csn=options.csn, message=options.message)
    tags = federation.tags()
    rows = [[t["name"], str(t["csn"]), human_time(t["time"]), t["user"], t["message"]] for t in tags]
    facts = [{**t, "time": t["time"].isoformat()} for t in tags]
    emit(options, facts, table(["tag", "csn", "made", "by", "message"], rows, right={1}))


def backup(options: argparse.Namespace) -> None:
    """Back a federation up, while it may be written to."""
    federation = _federations.open(options.federation)
    with progress_bar() as advance:
        report = federation.backup(options.folder, since=options.since, progress=advance)
    lines = [
        f"backed up commit {report.csn}: {report.files} files, {human_size(report.bytes)}, "
        f"{human_size(report.stored)} stored in {options.folder}"
    ]
    lines += [f"  left out, since it is only in a store: {name}" for name in report.nearline]
    lines += [f"  left out, since it is attached from outside: {path}" for path in report.left_out]
    emit(options, asdict(report), "\n".join(lines))


def restore(options: argparse.Namespace) -> None:
    """Make a federation from backups."""
    with progress_bar() as advance:
        federation = _recovery.restore(options.backups, options.federation, progress=advance)
    facts = {"path": federation.path, "name": federation.name, "csn": federation.head()}
    text = f"restored {federation.name} at {federation.path}, commit {federation.head()}"
    emit(options, facts, text)


def move_catalogue(options: argparse.Namespace) -> None:
    """Move the catalogue to PostgreSQL or back, while the federation is used."""
    federation = _federations.open(options.federation)
    with progress_bar(" rows") as advance:
        moved = federation.move_catalogue(options.to, progress=advance)
    if moved.origin == moved.place:
        text = f"the catalogue is in {moved.place} already"
    else:
        text = (
            f"moved the catalogue as of commit {moved.csn}, {moved.rows} rows, from {moved.origin} to "
            f"{moved.place}; the old one accepts no more changes"
        )
    emit(options, asdict(moved), text)


def detach(options: argparse.Namespace) -> None:
    """Remove a database from a federation, and keep its file."""
    path = _federations.open(options.federation).detach(options.database, to=options.to)
    emit(
        options,
        {"database": options.database, "file": path},
        f"{options.database} was detached; its file: {path}",
    )

"""The commands that show the contents and the size of a federation, and the one that makes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from .. import _federations
from .._snapshots import Snapshot
from .._views.advice import Packed
from .._views.view import View
from .output import emit, emit_line, human_size, human_time, plain_entry, table, text_entry

__all__ = ["advise", "cat", "create", "history", "info", "ls", "schema", "snapshot_of"]

CAT_BATCH_ENTRIES = 1000
"""Objects in a batch of `cat`."""


def create(options: argparse.Namespace) -> None:
    """Make a federation."""
    federation = _federations.create(options.federation, name=options.name, catalogue=options.catalogue)
    facts = {"name": federation.name, "path": federation.path, "uuid": federation.uuid}
    emit(options, facts, f"created federation {federation.name} at {federation.path}")


def ls(options: argparse.Namespace) -> None:
    """List databases and containers."""
    snapshot = snapshot_of(options)
    rows = [
        {
            "database": database["name"],
            "state": database["state"],
            "container": container["name"],
            "class": container["class"],
            "entries": container["entries"],
            "bytes": container["bytes"],
        }
        for database in snapshot.databases()
        if options.database in (None, database["name"])
        for container in snapshot.containers(database["name"])
    ]
    if options.database is not None:
        snapshot.containers(options.database)
    empty = [d for d in snapshot.databases() if d["name"] not in {row["database"] for row in rows}]
    listed = [[f"{r['database']}/{r['container']}", r["class"], f"{r['entries']:,}"] for r in rows]
    sizes = [[*line, human_size(row["bytes"]), row["state"]] for line, row in zip(listed, rows, strict=True)]
    if options.database is None:
        sizes += [[f"{database['name']}/", "", "", "", database["state"]] for database in empty]
    emit(options, rows, table(["container", "class", "objects", "size", "state"], sizes, right={2, 3}))


def info(options: argparse.Namespace) -> None:
    """Show facts about a federation or a container."""
    snapshot = snapshot_of(options)
    if options.container is not None:
        facts = _container_facts(snapshot[options.container])
    else:
        federation = snapshot.federation
        rows = [row for database in snapshot.databases() for row in snapshot.containers(database["name"])]
        facts = {
            "name": federation.name,
            "path": federation.path,
            "uuid": federation.uuid,
            "csn": snapshot.csn,
            "databases": len(snapshot.databases()),
            "containers": len(rows),
            "objects": sum(row["entries"] for row in rows),
            "bytes": sum(row["bytes"] for row in rows),
        }
    width = max(map(len, facts))
    shown = {**facts, "bytes": f"{facts['bytes']} ({human_size(facts['bytes'])})"}
    emit(options, facts, "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items()))


def _container_facts(view: View) -> dict[str, Any]:
    database, _, container = view.name.partition("/")
    row = next(r for r in view.snapshot.containers(database) if r["name"] == container)
    return {
        "name": view.name,
        "class": view.definition.name,
        "version": view.definition.version,
        "csn": view.snapshot.csn,
        "oids": f"{view.oid(0)} and on",
        "objects": len(view),
        "bytes": row["bytes"],
    }


def schema(options: argparse.Namespace) -> None:
    """Print the fields of a container, or the registered classes."""
    snapshot = snapshot_of(options)
    if options.container is None:
        classes = snapshot.federation.classes()
        rows = [[c["name"], str(c["version"]), ", ".join(f["name"] for f in c["fields"])] for c in classes]
        emit(options, classes, table(["class", "version", "fields"], rows, right={1}))
        return
    view = snapshot[options.container]
    notes = {field.name: field.description for field in view.definition.fields}
    rows = [[path, text, notes.get(path, "")] for path, text in view.typenames().items()]
    emit(options, view.definition.to_json(), table(["field", "type", "description"], rows))


def cat(options: argparse.Namespace) -> None:
    """Print objects, one on each line."""
    view = snapshot_of(options)[options.container]
    stop = None if options.number is None else options.start + options.number
    if options.where is None:
        batches: Iterable[Any] = view.iterate(
            options.fields or None, step_size=CAT_BATCH_ENTRIES, entry_start=options.start, entry_stop=stop
        )
    else:
        batches = [
            view.arrays(options.fields or None, options.where, entry_start=options.start)[: options.number]
        ]
    write = plain_entry if options.json else text_entry
    for array in batches:
        for entry in array.to_list():
            emit_line(write(entry, view.definition.record))


def advise(options: argparse.Namespace) -> None:
    """Measure which compression a new container of the same objects should have."""
    view = snapshot_of(options)[options.container]
    advice = view.advise(bandwidth=options.bandwidth, sample=options.sample)
    rows = [
        [
            field.path,
            human_size(field.memory),
            *(_packed(each, field.memory) for each in field.packed.values()),
            field.best,
        ]
        for field in advice.fields
    ]
    memory = sum(field.memory for field in advice.fields)
    rows.append(
        ["all", human_size(memory), *(_packed(each, memory) for each in advice.packed.values()), advice.best]
    )
    told = (
        f"From storage that delivers {human_size(advice.bandwidth)} a second to a job, all columns are read "
        f'soonest if a new container has the option compression="{advice.best}".'
    )
    if not advice.fields:
        told = "The container has no values to measure."
    head = ["field", "in memory", *advice.packed, "read soonest"]
    emit(options, asdict(advice), f"{table(head, rows, right={1, 2, 3, 4})}\n{told}")


def _packed(packed: Packed, memory: int) -> str:
    """Return the share of the bytes in memory that are stored, and the speed of unpacking."""
    speed = memory / max(packed.seconds, 1e-9)
    return f"{100 * packed.stored / max(memory, 1):.0f} %, {human_size(round(speed))}/s"


def history(options: argparse.Namespace) -> None:
    """List the commits, newest first."""
    commits = _federations.open(options.federation).history(options.number)
    rows = [
        [str(c["csn"]), human_time(c["time"]), f"{c['user']}@{c['host']}", c["message"].partition("\n")[0]]
        for c in commits
    ]
    facts = [{**commit, "time": commit["time"].isoformat()} for commit in commits]
    emit(options, facts, table(["csn", "time", "by", "message"], rows, right={0}))


def snapshot_of(options: argparse.Namespace) -> Snapshot:
    """Return the snapshot that the options name."""
    return _federations.open(options.federation).snapshot(csn=options.csn)

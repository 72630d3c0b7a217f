"""The commands of the command line, and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .. import _federations
from .._exceptions import InvalidError
from .._snapshots import Snapshot
from .._views.view import View
from . import conditions, demo, display, doctor, exchange, planning, replication, serving, storage, testbed, top, upkeep
from .output import emit, emit_line, human_size, human_time, plain_entry, table, text_entry
from .shell import completion, completion_arguments, manual, manual_arguments

__all__ = ["ALL", "Command"]

CAT_BATCH_ENTRIES = 1000
"""Objects in a batch of `cat`."""


@dataclass(frozen=True)
class Command:
    """A command: its name, its line of help, its arguments and its function."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def create(options: argparse.Namespace) -> None:
    """Make a federation."""
    federation = _federations.create(options.federation, name=options.name)
    facts = {"name": federation.name, "path": federation.path, "uuid": federation.uuid}
    emit(options, facts, f"created federation {federation.name} at {federation.path}")


def ls(options: argparse.Namespace) -> None:
    """List databases and containers."""
    snapshot = _snapshot(options)
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
    snapshot = _snapshot(options)
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
    snapshot = _snapshot(options)
    if options.container is None:
        classes = snapshot.federation.classes()
        rows = [[c["name"], str(c["version"]), ", ".join(f["name"] for f in c["fields"])] for c in classes]
        emit(options, classes, table(["class", "version", "fields"], rows, right={1}))
        return
    view = snapshot[options.container]
    notes = {field.name: field.description for field in view.definition.fields}
    rows = [[path, text, notes.get(path, "")] for path, text in view.typenames().items()]
    emit(options, view.definition.to_json(), table(["field", "type", "description"], rows))


def import_files(options: argparse.Namespace) -> None:
    """Copy objects of files into containers."""
    from .ingest import ingest, report

    done = ingest(options)
    emit(options, done, report(done))


def attach(options: argparse.Namespace) -> None:
    """Add files with RNTuples to the federation as databases, without copying them."""
    if options.name is not None and len(options.files) > 1:
        raise InvalidError("--name needs exactly one file")
    federation = _federations.open(options.federation)
    rows = []
    for file in options.files:
        attached = federation.attach(file, options.name)
        rows.append(
            {
                "file": file,
                "database": attached.name,
                "containers": attached.containers,
                "ignored": attached.ignored,
                "renamed": attached.renamed,
            }
        )
    lines = [f"attached {row['file']} as {row['database']}: {', '.join(row['containers'])}" for row in rows]
    lines += [f"  left out: {reason}" for row in rows for reason in row["ignored"]]
    lines += [f"  its class {there} is {here} here" for row in rows for there, here in row["renamed"].items()]
    emit(options, rows, "\n".join(lines))


def seal(options: argparse.Namespace) -> None:
    """Seal databases: they become read-only, and their files complete ROOT files."""
    federation = _federations.open(options.federation)
    for database in options.databases:
        federation.seal(database)
    files = {row["name"]: row["path"] for row in federation.databases()}
    rows = [{"database": name, "file": files[name]} for name in options.databases]
    emit(options, rows, "\n".join(f"sealed {row['database']}: {row['file']}" for row in rows))


def cat(options: argparse.Namespace) -> None:
    """Print objects, one on each line."""
    view = _snapshot(options)[options.container]
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


def history(options: argparse.Namespace) -> None:
    """List the commits, newest first."""
    commits = _federations.open(options.federation).history(options.number)
    rows = [
        [str(c["csn"]), human_time(c["time"]), f"{c['user']}@{c['host']}", c["message"].partition("\n")[0]]
        for c in commits
    ]
    facts = [{**commit, "time": commit["time"].isoformat()} for commit in commits]
    emit(options, facts, table(["csn", "time", "by", "message"], rows, right={0}))


def _snapshot(options: argparse.Namespace) -> Snapshot:
    return _federations.open(options.federation).snapshot(csn=options.csn)


def _federation(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("federation", metavar="FEDERATION", help="folder of the federation")


def _reader(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--csn", type=int, help="as of this commit instead of the newest")


def _create_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--name", help="name of the federation, by default that of the folder")


def _ls_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("database", metavar="DATABASE", nargs="?", help="list only this database")


def _container_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("container", metavar="DATABASE/CONTAINER", nargs="?")


def _import_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="ROOT file or glob, or FILE:TREE for one tree; Parquet, Arrow, CSV, HDF5 (FILE:DATASET), LHE or "
        "HepMC file",
    )
    sub.add_argument("--ntuples", action="store_true", help="copy RNTuples of ROOT files instead of trees")
    sub.add_argument("--tree", action="append", metavar="NAME", help="tree to import; all by default")
    sub.add_argument("--database", help="database to import into, by default named after the file")
    sub.add_argument("--container", help="container to import into, by default {tree}, the name of the tree")
    sub.add_argument("--class-name", metavar="NAME", help="class of the objects, by default {tree}")
    sub.add_argument(
        "--only", action="append", metavar="GLOB", help="branches or columns to import; all by default"
    )
    sub.add_argument(
        "--no-grouping", action="store_true", help="make a field of each branch, without collections by name"
    )
    sub.add_argument(
        "--no-links", action="store_true", help="leave indices such as Muon_jetIdx numbers, not links"
    )
    sub.add_argument("--again", action="store_true", help="also import what was imported before")
    sub.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that read, 1 by default")
    sub.add_argument("--step", default="64 MB", help='size of one read, by default "64 MB"')


def _attach_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("files", metavar="FILE", nargs="+", help="ROOT file with RNTuples")
    sub.add_argument("--name", help="name of the database, by default that of the file")


def _seal_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("databases", metavar="DATABASE", nargs="+")


def _cat_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("container", metavar="DATABASE/CONTAINER")
    sub.add_argument("fields", metavar="FIELD", nargs="*", help="dotted names or globs; all by default")
    sub.add_argument("--where", help='condition on entries, such as "nMuon == 2"')
    sub.add_argument("--start", type=int, default=0, help="entry to begin at")
    sub.add_argument("-n", "--number", type=int, help="objects to print at most")


def _history_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("-n", "--number", type=int, help="commits to list at most")


def _file_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("files", metavar="FILE", nargs="+")


def _catalogue_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("--tag", help="as of this tag")


def _check_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--full", action="store_true", help="read every page, every index and every link")


def _repair_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--salvage", action="store_true", help="go back to older versions; objects are lost")
    sub.add_argument("--dry-run", action="store_true", help="only report what would be done")


def _vacuum_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument(
        "--keep-from",
        type=int,
        metavar="CSN",
        help="oldest commit to keep, instead of the retention settings",
    )
    sub.add_argument("--dry-run", action="store_true", help="only report what would be done")


def _compact_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("path", metavar="DATABASE[/CONTAINER]")
    sub.add_argument("--all", action="store_true", help="rewrite every cluster")
    sub.add_argument("--compression", choices=["plain", "fast", "archive"])


def _tidy_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("database", metavar="DATABASE", nargs="?", help="only this database")


def _tag_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("name", metavar="TAG", nargs="?", help="make this tag; list all tags if not given")
    sub.add_argument("--csn", type=int, help="tag this commit instead of the newest")
    sub.add_argument("-m", "--message", default="", help="purpose of the tag")
    sub.add_argument("-d", "--delete", metavar="TAG", help="remove this tag")


def _backup_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("folder", metavar="FOLDER", help="a new folder")
    sub.add_argument("--since", metavar="BACKUP", help="store only the differences from this backup")


def _restore_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("federation", metavar="FEDERATION", help="the folder to make")
    sub.add_argument(
        "backups", metavar="BACKUP", nargs="+", help="a full backup, and the incremental ones after it"
    )


def _detach_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("database", metavar="DATABASE")
    sub.add_argument("--to", metavar="PLACE", help="folder or new file to move its file to")


def _export_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("names", metavar="NAME", nargs="+", help="container, or database for all in it")
    sub.add_argument("file", metavar="FILE", help="file to make: .root, .parquet, .arrow or .feather")
    sub.add_argument("--field", action="append", help="dotted name or glob; all by default")
    sub.add_argument("--where", help='condition on entries, such as "nMuon == 2"')
    sub.add_argument("--format", help="root, parquet or arrow, if the suffix of the file does not say")


def _find_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("container", metavar="DATABASE/CONTAINER")
    sub.add_argument(
        "values", metavar="FIELD=VALUE", nargs="+", help="such as run=7, quality=GOOD; a link by its OID"
    )
    sub.add_argument("-n", "--number", type=int, help="objects to print at most")


def _index_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("container", metavar="DATABASE/CONTAINER")
    sub.add_argument("fields", metavar="FIELD", nargs="*", help="make an index over these")
    sub.add_argument("--name", help="name of the new index, by default those of the fields")
    sub.add_argument("--unique", action="store_true", help="refuse two objects with one key")
    sub.add_argument("-d", "--drop", metavar="INDEX", help="drop this index")


def _rename_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("name", metavar="NAME", help="database, or DATABASE/CONTAINER")
    sub.add_argument("new_name", metavar="NEW_NAME")


def _drop_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("names", metavar="NAME", nargs="+", help="database, or DATABASE/CONTAINER")


ALL = (
    Command("demo", "make a small federation to try things on", demo.arguments, demo.run),
    Command("create", "make a federation", _create_arguments, create),
    Command("ls", "list databases and containers", _ls_arguments, ls),
    Command("info", "show facts about a federation or a container", _container_arguments, info),
    Command("schema", "print fields and classes", _container_arguments, schema),
    Command(
        "import",
        "copy trees, RNTuples, tables and generated events into containers",
        _import_arguments,
        import_files,
    ),
    Command("attach", "add files with RNTuples without copying them", _attach_arguments, attach),
    Command("seal", "make databases read-only complete ROOT files", _seal_arguments, seal),
    Command("cat", "print objects", _cat_arguments, cat),
    Command("display", "show objects in 3D", display.arguments, display.display),
    Command("find", "print the objects with given values", _find_arguments, exchange.find),
    Command("index", "list, make or drop indexes", _index_arguments, exchange.index),
    Command("export", "export objects to a file", _export_arguments, exchange.export),
    Command("rename", "rename a database or container", _rename_arguments, exchange.rename),
    Command("drop", "drop databases and containers", _drop_arguments, exchange.drop),
    Command("conditions", "look up and put conditions, tag them", conditions.arguments, conditions.run),
    Command("tag", "list, make or remove tags", _tag_arguments, upkeep.tag),
    Command("catalogue", "print the content of the catalogue", _catalogue_arguments, upkeep.catalogue),
    Command("what", "print what files are", _file_arguments, upkeep.what),
    Command("check", "check catalogue, files, pages, links", _check_arguments, upkeep.check),
    Command("doctor", "tell what is wrong and what to do", doctor.arguments, doctor.run),
    Command("repair", "repair what a check finds", _repair_arguments, upkeep.repair),
    Command("rebuild-catalogue", "rebuild the catalogue from files", _create_arguments, upkeep.rebuild),
    Command("vacuum", "remove what no kept snapshot needs", _vacuum_arguments, upkeep.vacuum),
    Command("compact", "merge small clusters", _compact_arguments, upkeep.compact),
    Command("tidy", "compact and vacuum", _tidy_arguments, upkeep.tidy),
    Command("locks", "list the held locks", _federation, upkeep.locks),
    Command("waits", "list the waits for locks", _federation, upkeep.waits),
    Command("backup", "back a federation up while it is written to", _backup_arguments, upkeep.backup),
    Command("restore", "make a federation from backups", _restore_arguments, upkeep.restore),
    Command("where", "show where the files of databases are", storage.where_arguments, storage.where),
    Command("migrate", "copy sealed databases to a store", storage.migrate_arguments, storage.migrate),
    Command("stage", "bring databases back to the disk", storage.database_arguments, storage.stage),
    Command("evict", "remove copied files from the disk", storage.database_arguments, storage.evict),
    Command("pin", "keep files on the disk", storage.pin_arguments, storage.pin),
    Command("unpin", "end pins of files", storage.unpin_arguments, storage.unpin),
    Command("apply-rules", "copy and evict as storage.toml says", _federation, storage.apply_rules),
    Command(
        "follow",
        "copy a federation, and keep the copy up to date",
        replication.follow_arguments,
        replication.follow_leader,
    ),
    Command(
        "promote",
        "make a copy the leader of its federation",
        replication.promote_arguments,
        replication.promote_copy,
    ),
    Command("detach", "remove a database, and keep its file", _detach_arguments, upkeep.detach),
    Command("history", "list commits", _history_arguments, history),
    Command("serve", "serve federations and folders over root://", serving.serve_arguments, serving.serve),
    Command("top", "show the state of a server", top.top_arguments, top.top),
    Command("queue", "show which files a server brings back", storage.queue_arguments, storage.queue),
    Command("testbed", "find limits with workloads of real jobs", testbed.arguments, testbed.run),
    Command("plan", "tell what hardware an experiment takes", planning.arguments, planning.run),
    Command("completion", "print completions for a shell", completion_arguments, completion),
    Command("man", "print the manual page of all commands", manual_arguments, manual),
)
"""The commands in the order in which ``--help`` lists them."""

"""The commands of the command line, and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from . import (
    conditions,
    contents,
    demo,
    display,
    doctor,
    exchange,
    planning,
    replication,
    servers,
    serving,
    storage,
    testbed,
    top,
    upkeep,
)
from .shell import completion, completion_arguments, manual, manual_arguments

__all__ = ["ALL", "Command"]


@dataclass(frozen=True)
class Command:
    """A command: its name, its line of help, its arguments and its function."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def _federation(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("federation", metavar="FEDERATION", help="folder of the federation")


def _reader(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--csn", type=int, help="as of this commit instead of the newest")


def _rebuild_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--name", help="name of the federation, by default that of the folder")


def _create_arguments(sub: argparse.ArgumentParser) -> None:
    _rebuild_arguments(sub)
    sub.add_argument(
        "--catalogue",
        metavar="URL",
        help="keep the catalogue in PostgreSQL, in the database of this URL: postgresql://user@host/database",
    )


def _move_catalogue_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("to", metavar="URL", help="postgresql://user@host/database, or sqlite for a file")


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
    sub.add_argument("--again", action="store_true", help="also import files that were imported before")
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


def _advise_arguments(sub: argparse.ArgumentParser) -> None:
    _reader(sub)
    sub.add_argument("container", metavar="DATABASE/CONTAINER")
    sub.add_argument(
        "--bandwidth",
        default="200 MB",
        metavar="SIZE",
        help='bytes a second that the storage delivers to a job, by default "200 MB"',
    )
    sub.add_argument(
        "--sample", default="1 MB", metavar="SIZE", help='values of a column to measure, by default "1 MB"'
    )


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


def _retention_arguments(sub: argparse.ArgumentParser) -> None:
    _federation(sub)
    sub.add_argument("--keep-commits", type=int, metavar="N", help="vacuum keeps the newest N commits")
    sub.add_argument("--keep-days", type=int, metavar="N", help="vacuum keeps the commits of the last N days")
    sub.add_argument("--keep-all", action="store_true", help="vacuum keeps all history: removes both limits")


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
    sub.add_argument("--compression", choices=["none", "lz4", "zstd", "plain", "fast", "archive"])


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
    sub.add_argument("--alias", action="append", help='computed column, such as "pt2=pt ** 2"')
    sub.add_argument("--format", help="root, parquet or arrow; by default it follows from the file's suffix")
    sub.add_argument("--layout", help="podio: a file that podio's readers open")


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
    Command("demo", "make a small federation for trying things out", demo.arguments, demo.run),
    Command("create", "make a federation", _create_arguments, contents.create),
    Command("ls", "list databases and containers", _ls_arguments, contents.ls),
    Command("info", "show facts about a federation or a container", _container_arguments, contents.info),
    Command("schema", "print fields and classes", _container_arguments, contents.schema),
    Command(
        "import",
        "copy trees, RNTuples, tables and generated events into containers",
        _import_arguments,
        exchange.import_files,
    ),
    Command("attach", "add files with RNTuples without copying them", _attach_arguments, exchange.attach),
    Command("seal", "make databases read-only complete ROOT files", _seal_arguments, exchange.seal),
    Command("cat", "print objects", _cat_arguments, contents.cat),
    Command("advise", "measure compressions of a container", _advise_arguments, contents.advise),
    Command("display", "show objects in 3D", display.arguments, display.display),
    Command("find", "print the objects with given values", _find_arguments, exchange.find),
    Command("index", "list, make or drop indexes", _index_arguments, exchange.index),
    Command("export", "export objects to a file", _export_arguments, exchange.export),
    Command("rename", "rename a database or container", _rename_arguments, exchange.rename),
    Command("drop", "drop databases and containers", _drop_arguments, exchange.drop),
    Command("conditions", "look up and put conditions, tag them", conditions.arguments, conditions.run),
    Command("tag", "list, make or remove tags", _tag_arguments, upkeep.tag),
    Command("catalogue", "print the content of the catalogue", _catalogue_arguments, upkeep.catalogue),
    Command("what", "print kind and origin of files", _file_arguments, upkeep.what),
    Command("check", "check catalogue, files, pages, links", _check_arguments, upkeep.check),
    Command("doctor", "diagnose problems, and name their remedies", doctor.arguments, doctor.run),
    Command("repair", "repair the damage that a check finds", _repair_arguments, upkeep.repair),
    Command("rebuild-catalogue", "rebuild the catalogue from files", _rebuild_arguments, upkeep.rebuild),
    Command(
        "move-catalogue",
        "move the catalogue to PostgreSQL or back, on-line",
        _move_catalogue_arguments,
        upkeep.move_catalogue,
    ),
    Command("retention", "show or set the history that is kept", _retention_arguments, upkeep.retention),
    Command("vacuum", "remove versions that no kept snapshot needs", _vacuum_arguments, upkeep.vacuum),
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
    Command("apply-rules", "copy and evict by the rules of storage.toml", _federation, storage.apply_rules),
    Command(
        "servers", "list the servers of a federation that has several", _federation, servers.list_servers
    ),
    Command(
        "drain",
        "move all databases of a server to others, and assign it no new ones",
        servers.drain_arguments,
        servers.drain,
    ),
    Command(
        "move-database",
        "move a database to another server",
        servers.move_arguments,
        servers.move_database,
    ),
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
    Command(
        "forget-leader",
        "forget a former leader that will never return",
        replication.forget_arguments,
        replication.forget_leader,
    ),
    Command("detach", "remove a database, and keep its file", _detach_arguments, upkeep.detach),
    Command("history", "list commits", _history_arguments, contents.history),
    Command("serve", "serve federations and folders over root://", serving.serve_arguments, serving.serve),
    Command("top", "show the state of a server", top.top_arguments, top.top),
    Command("queue", "show the files that a server brings back", storage.queue_arguments, storage.queue),
    Command("testbed", "find limits with workloads of real jobs", testbed.arguments, testbed.run),
    Command("plan", "compute the hardware that an experiment needs", planning.arguments, planning.run),
    Command("completion", "print completions for a shell", completion_arguments, completion),
    Command("man", "print the manual page of all commands", manual_arguments, manual),
)
"""The commands in the order in which ``--help`` lists them."""

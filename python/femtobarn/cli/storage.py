"""The commands about the stores of a federation: copies, pins, rules, and files that are being staged."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import _federations
from .._exceptions import FemtobarnError
from .._storage import Copy, Residence
from .output import emit, human_size, human_time, table
from .server_api import address_of, ask, recall_sums, server_argument
from .upkeep import progress_bar

__all__ = [
    "apply_rules",
    "database_arguments",
    "evict",
    "migrate",
    "migrate_arguments",
    "pin",
    "pin_arguments",
    "queue",
    "queue_arguments",
    "stage",
    "unpin",
    "unpin_arguments",
    "where",
    "where_arguments",
]


def _federation_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("federation", help="folder of the federation")


def where_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `where`."""
    _federation_argument(parser)
    parser.add_argument("databases", nargs="*", help="names, with * and ? as in file names; all by default")


def database_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `stage` and `evict`."""
    _federation_argument(parser)
    parser.add_argument("databases", nargs="+", help="names, with * and ? as in file names")


def migrate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `migrate`."""
    database_arguments(parser)
    parser.add_argument("--to", required=True, metavar="STORE", help="a store of storage.toml")


def unpin_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `unpin`."""
    database_arguments(parser)
    parser.add_argument("--holder", help="owner of the pin; the user by default")


def pin_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `pin`."""
    unpin_arguments(parser)
    parser.add_argument("--hours", type=float, help="hours until the pin ends; never by default")


def queue_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `queue`."""
    server_argument(parser)


def queue(options: argparse.Namespace) -> None:
    """Print the files that a server stages, and those that leave its disk: sums, and the first files."""
    status = ask(address_of(options.server, "api/recalls"))
    texts = [_queue_text(of_one) for of_one in status]
    emit(options, status, "\n\n".join(texts or ["the server has no federation with stores"]))


def _queue_text(status: dict[str, Any]) -> str:
    lines = [recall_sums(status)]
    tapes = ", ".join(f"{each['tape']} of {each['store']}" for each in status["mounted"])
    lines += [f"mounted: {tapes}"] if tapes else []
    rows = [
        [
            each["path"],
            each["store"],
            each["tape"] or "",
            "" if each["position"] is None else f"{each['position']:,}",
            human_size(each["bytes"]),
            each["user"],
            f"{each['age_seconds']:,} s",
            f"{each['remaining_seconds']:,} s",
            "comes" if each["is_running"] else "waits",
        ]
        for each in status["recalls"]
    ]
    if rows:
        heads = ["file", "store", "tape", "position", "size", "for", "since", "in about", ""]
        lines += table(heads, rows, right={3, 4, 6, 7}).splitlines()
    hidden = status["waiting"] - len(rows)
    lines += [f"and {hidden:,} more"] if hidden > 0 else []
    lines += [
        f"{each['path']} leaves, for {each['age_seconds']:,} s: "
        + ("its stores are asked for its copies" if each["is_running"] else "waits")
        for each in status["leaving"]
    ]
    return "\n".join(lines)


def where(options: argparse.Namespace) -> None:
    """Print where the files of databases are."""
    residences = _federations.open(options.federation).where(*options.databases)
    rows = [
        [
            residence.database,
            residence.state,
            ", ".join(map(_copy_text, residence.copies)),
            ", ".join(pin.holder for pin in residence.pins),
        ]
        for residence in residences
    ]
    text = table(["database", "is", "copies", "pinned by"], rows)
    emit(options, [asdict(residence) for residence in residences], text)


def _copy_text(copy: Copy) -> str:
    state = "" if copy.state == "complete" else f" ({copy.state})"
    return f"{copy.store}{state} {human_size(copy.size)}"


def migrate(options: argparse.Namespace) -> None:
    """Copy sealed databases to a store."""
    federation = _federations.open(options.federation)
    copies: dict[str, Copy] = {}
    failures: list[FemtobarnError] = []
    with progress_bar() as tell:
        for name in federation._named(options.databases, only_sealed=True):
            try:
                (copies[name],) = federation.migrate(name, options.to, progress=tell)
            except FemtobarnError as error:
                failures.append(error)
    lines = [
        f"{options.to} has {name}: {copy.key}, {human_size(copy.size)}, {copy.checksum}"
        for name, copy in copies.items()
    ]
    emit(options, [asdict(copy) for copy in copies.values()], "\n".join(lines))
    if failures:
        raise failures[0]


def stage(options: argparse.Namespace) -> None:
    """Bring databases back to the disk."""
    federation = _federations.open(options.federation)
    with progress_bar() as tell:
        federation.stage(options.databases, progress=tell)
    _print_residences(options, federation.where(*options.databases))


def evict(options: argparse.Namespace) -> None:
    """Remove files from the disk that have enough copies."""
    federation = _federations.open(options.federation)
    freed = federation.evict(options.databases)
    emit(options, {"bytes": freed}, f"gave back {human_size(freed)}")


def pin(options: argparse.Namespace) -> None:
    """Pin files to the disk."""
    federation = _federations.open(options.federation)
    until = None if options.hours is None else datetime.now(UTC) + timedelta(hours=options.hours)
    federation.pin(options.databases, holder=options.holder, until=until)
    _print_residences(options, federation.where(*options.databases))


def unpin(options: argparse.Namespace) -> None:
    """End pins of files."""
    federation = _federations.open(options.federation)
    federation.unpin(options.databases, holder=options.holder)
    _print_residences(options, federation.where(*options.databases))


def _print_residences(options: argparse.Namespace, residences: list[Residence]) -> None:
    lines = []
    for residence in residences:
        holders = [
            pin.holder + (f" until {human_time(pin.until)}" if pin.until else "") for pin in residence.pins
        ]
        pinned = f", pinned by {', '.join(holders)}" if holders else ""
        lines.append(f"{residence.database}: {residence.state}{pinned}")
    emit(options, [asdict(residence) for residence in residences], "\n".join(lines))


def apply_rules(options: argparse.Namespace) -> None:
    """Copy and evict as the rules of storage.toml say; fails if something could not be done."""
    federation = _federations.open(options.federation)
    with progress_bar() as tell:
        done = federation.apply_storage_rules(progress=tell)
    lines = [f"copied {database} to {store}" for database, store in done.migrated]
    lines += [
        f"{database} gets its copy in {store} when it is staged" for database, store in done.not_on_disk
    ]
    lines += [f"evicted {database}, {human_size(size)}" for database, size in done.evicted]
    if done.removed:
        lines.append(f"removed {done.removed} files of stores that the catalogue does not name any more")
    lines += [f"failed: {what}: {why}" for what, why in done.failed]
    emit(options, asdict(done), "\n".join(lines or ["nothing to do"]))
    if done.failed:
        raise FemtobarnError(f"{len(done.failed)} movements failed; they are tried again the next time")

"""The command ``import``: trees of all files in one transaction, each other file in one of its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import _federations
from .._exceptions import InvalidError
from .._exchange.file_kinds import EVENTS, kind_of
from .._exchange.import_plan import TreeOptions
from .._exchange.import_target import Imported
from .._exchange.tree_imports import expand_files, import_trees
from .._sizes import bytes_of_size

__all__ = ["ingest", "report"]

REASON_LINES = 8
"""Most branches, objects of a file, or indices that the report lists with a reason."""


def ingest(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Import the files that the options name, and return the result for each tree."""
    federation = _federations.open(options.federation)
    places = expand_files(options.files)
    kinds = {path: kind_of(Path(path)) for path, _ in places}
    tables = [place for place in places if options.ntuples or kinds[place[0]] not in (None, "root")]
    named_after_file = [path for path, _ in tables if kinds[path] not in EVENTS]
    if len(named_after_file) > 1 and options.database is not None and options.container is None:
        raise InvalidError("several tables go into one database only with --container")
    done = _trees(federation, [place for place in places if place not in tables], options)
    done += [_table(federation, path, name, options) for path, name in tables]
    return [_facts(each) for each in done]


def _trees(
    federation: _federations.Federation, places: list[tuple[str, str | None]], options: argparse.Namespace
) -> list[Imported]:
    if not places:
        return []
    tree_options = TreeOptions(
        options.tree,
        options.database,
        options.container,
        options.class_name,
        options.only,
        not options.no_grouping,
        options.again,
        options.jobs,
        bytes_of_size(options.step),
        not options.no_links,
    )
    return import_trees(federation, places, tree_options, True)


def _table(
    federation: _federations.Federation, path: str, name: str | None, options: argparse.Namespace
) -> Imported:
    return federation.import_file(
        path,
        database=options.database,
        container=options.container,
        class_name=options.class_name,
        ntuple=name,
        expressions=options.only,
        again=options.again,
        progress=True,
    )


def _facts(done: Imported) -> dict[str, Any]:
    return {
        "file": done.file,
        "tree": done.tree,
        "container": done.container,
        "class": done.class_name,
        "entries": done.entries,
        "skipped": done.skipped,
        "left_out": done.left_out,
        "links": done.links,
        "unlinked": done.unlinked,
        "lost": done.lost,
    }


def report(done: list[dict[str, Any]]) -> str:
    """Return the imported containers as text, with the parts left out and the links made."""
    lines = []
    for number, row in enumerate(done):
        lines.append(f"imported {row['entries']:,} objects of class {row['class']} into {row['container']}")
        lines += _reasons("left out", row["skipped"])
        if row["links"]:
            lines.append(f"  linked {len(row['links'])} fields to elements of the same object")
            lines += _reasons("links to missing elements in", {k: f"{n:,}" for k, n in row["lost"].items()})
        lines += _reasons("not linked", row["unlinked"])
        if number + 1 == len(done) or done[number + 1]["file"] != row["file"]:
            lines += _reasons("left out", row["left_out"])
    return "\n".join(lines)


def _reasons(what: str, reasons: dict[str, str]) -> list[str]:
    lines = [f"  {what} {name}: {reason}" for name, reason in reasons.items()]
    more = len(lines) - REASON_LINES
    return [*lines[:REASON_LINES], f"  {what} {more} more; --json lists them"] if more > 0 else lines

"""The command ``import``: files of trees, tables and RNTuples, each with a progress bar."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import _federations
from .._exceptions import InvalidError
from .._imports import Imported
from .._views import bytes_of_size
from .exchange import objects_bar

__all__ = ["ingest"]

COPIED = (".parquet", ".arrow", ".feather")
"""Files without trees."""


def ingest(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Import the files that the options name, and return what came of each."""
    if len(options.files) > 1 and options.database is not None and options.container is None:
        raise InvalidError("several files go into one database only with --container, which they share")
    federation = _federations.open(options.federation)
    rows = []
    for text in options.files:
        path, tree = _place(text)
        rows.append({"file": path, **_facts(_import(federation, path, tree, options))})
    return rows


def _import(
    federation: _federations.Federation, path: str, tree: str | None, options: argparse.Namespace
) -> Imported:
    with objects_bar(path) as tell:
        if options.ntuples or Path(path).suffix.lower() in COPIED:
            return federation.import_file(
                path,
                database=options.database,
                container=options.container,
                ntuple=tree,
                expressions=options.only,
                progress=tell,
            )
        return federation.import_tree(
            path,
            tree,
            database=options.database,
            container=options.container,
            only=options.only,
            batch_bytes=bytes_of_size(options.step),
            progress=tell,
        )


def _facts(done: Imported) -> dict[str, Any]:
    return {
        "container": done.container,
        "class": done.class_name,
        "entries": done.entries,
        "skipped": done.skipped,
    }


def _place(text: str) -> tuple[str, str | None]:
    """Split ``file.root:tree`` as uproot does; a URL has a colon of its own."""
    path, colon, tree = text.rpartition(":")
    if not colon or tree.startswith("//") or "/" in tree or not path:
        return text, None
    return path, tree

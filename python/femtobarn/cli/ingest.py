"""The command ``import``: files of trees, each with a progress bar."""

from __future__ import annotations

import argparse
from typing import Any

from tqdm import tqdm

from .. import _federations
from .._exceptions import InvalidError
from .._imports import Imported
from .._views import bytes_of_size

__all__ = ["ingest"]


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
    # tqdm writes to standard error, and only to a terminal.
    with tqdm(desc=path, unit=" objects", unit_scale=True, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return federation.import_tree(
            path,
            tree,
            database=options.database,
            container=options.container,
            only=options.only,
            batch_bytes=bytes_of_size(options.step),
            progress=progress,
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

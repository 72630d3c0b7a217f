"""Manifests: the one object of a snapshot file that lists its contents, and the hashes that prove them.

The manifest has the content hash of each series, and of itself without its field ``sha256``: the root hash.
docs/format.md specifies both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from .._data.arrays import Tree, columns_of
from .._data.content_hash import ContentHash
from .._exceptions import CorruptError, UnsupportedError
from .._query.projections import Projection
from .._schema.types import DTYPES, Definition
from .._views.view import View

__all__ = ["CONTAINER", "DEFINITION", "Manifest", "SeriesFacts", "manifest_object", "read_manifest"]

CONTAINER = "conditions_manifest"
"""Name of the container that has the manifest."""

FORMAT_VERSION = 1

Kind = Literal["snapshot", "job"]

SERIES_FIELDS: list[dict[str, Any]] = [
    {"name": "path", "type": "string"},
    {"name": "container", "type": "string"},
    {"name": "clock", "type": "string"},
    {"name": "csn", "type": "uint64"},
    {"name": "conditions", "type": "uint64"},
    {"name": "covered_since", "type": {"list": "int64"}},
    {"name": "covered_until", "type": {"list": "int64"}},
    {"name": "sha256", "type": "string"},
]
HASHED_FIELDS: list[dict[str, Any]] = [
    {"name": "format_version", "type": "uint32"},
    {"name": "kind", "type": "string", "description": "snapshot: ranges of clocks; job: what events need"},
    {"name": "federation", "type": "string"},
    {"name": "federation_uuid", "type": "string"},
    {"name": "csn", "type": "uint64"},
    {"name": "global_tag", "type": "string", "description": "empty if all series were read"},
    {"name": "global_tag_state", "type": "string"},
    {"name": "since", "type": "int64", "description": "nanoseconds since 1970"},
    {"name": "until", "type": "int64"},
    {"name": "since_run", "type": "int64", "description": "run << 32 | luminosity block"},
    {"name": "until_run", "type": "int64"},
    {"name": "series", "type": {"list": {"record": {"class": "ConditionsSeries", "fields": SERIES_FIELDS}}}},
]
DEFINITION = Definition.from_json(
    {"name": "ConditionsManifest", "fields": [*HASHED_FIELDS, {"name": "sha256", "type": "string"}]}
)
"""The class of a manifest."""

HASHED = Definition.from_json({"name": "ConditionsManifest", "fields": HASHED_FIELDS})


@dataclass(frozen=True)
class SeriesFacts:
    """The entry of a manifest for one series."""

    path: str
    container: str
    """Name of the container in the file."""
    clock: str
    csn: int
    """The commit as of which it was read."""
    conditions: int
    covered_since: list[int]
    covered_until: list[int]
    sha256: str
    """Content hash of the container."""


@dataclass(frozen=True)
class Manifest:
    """The contents and the origin of a snapshot file."""

    kind: Kind
    federation: str
    federation_uuid: str
    csn: int
    global_tag: str
    global_tag_state: str
    since: int
    until: int
    since_run: int
    until_run: int
    series: list[SeriesFacts]


def manifest_object(manifest: Manifest) -> dict[str, Any]:
    """Return the object that is stored, with its root hash."""
    values = {"format_version": FORMAT_VERSION, **asdict(manifest)}
    return {**values, "sha256": _hash_of(columns_of([values], HASHED.record))}


def read_manifest(view: View, file: str) -> tuple[Manifest, str]:
    """Return the manifest of a file and its root hash, which was compared with the contents.

    Raises
    ------
    CorruptError
        If the manifest does not have its hash.
    UnsupportedError
        If a newer release wrote the file.
    """
    damaged = CorruptError(f"{file} is damaged: its {CONTAINER} does not match its hash; copy the file again")
    if len(view) != 1 or view.definition.fields[: len(HASHED.fields)] != HASHED.fields:
        raise _newer(view, file) or damaged
    columns = _columns(view, list(HASHED.record.by_name))
    (stored,) = _plain(_columns(view, ["sha256"]), 0, 1)
    if _hash_of(columns) != stored["sha256"]:
        raise damaged
    (values,) = _plain(columns, 0, 1)
    if values.pop("format_version") != FORMAT_VERSION:
        raise _newer(view, file) or damaged
    series = [SeriesFacts(**each) for each in values.pop("series")]
    return Manifest(**values, series=series), stored["sha256"]


def _newer(view: View, file: str) -> UnsupportedError | None:
    """Return the error for a file of a newer release; None if it is not from one."""
    if not len(view) or "format_version" not in view.fields:
        return None
    (values,) = _plain(_columns(view, ["format_version"]), 0, 1)
    if values["format_version"] <= FORMAT_VERSION:
        return None
    return UnsupportedError(
        f"{file} is a snapshot file of version {values['format_version']}, and this release reads version "
        f"{FORMAT_VERSION}; install a newer one"
    )


def _columns(view: View, names: list[str]) -> Tree:
    projection = Projection.of(names, view.definition)
    return projection.arrange(view.read_tree(projection.paths, 0, 1))


def _hash_of(columns: Tree) -> str:
    content = ContentHash()
    content.add(columns)
    return content.hexdigest()


def _plain(tree: Tree, start: int, stop: int) -> list[Any]:
    """Return a range of a manifest's columns as Python values, without importing awkward."""
    if tree[0] == "primitive":
        return list(np.frombuffer(tree[2], DTYPES[tree[1]])[start:stop].tolist())
    if tree[0] == "record":
        columns = [_plain(content, start, stop) for content in tree[3]]
        return [dict(zip(tree[2], row, strict=True)) for row in zip(*columns, strict=True)]
    ends = np.frombuffer(tree[1], np.int64)[start : stop + 1].tolist()
    if tree[0] == "string":
        return [bytes(memoryview(tree[2])[a:b]).decode() for a, b in pairwise(ends)]
    return [_plain(tree[2], a, b) for a, b in pairwise(ends)]


assert [field.name for field in fields(Manifest)] == [each["name"] for each in HASHED_FIELDS[1:]]

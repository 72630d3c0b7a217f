"""Expressions for fields: dotted names, globs and regular expressions."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from .._exceptions import NotFoundError, WrongTypeError, near_misses
from .._schema.types import Definition, ElementLink, Link, List, Node, innermost, paths_of, plain_name

__all__ = ["Expressions", "all_paths", "counted", "expand", "links_to", "whole_link"]

Expressions: TypeAlias = str | Iterable[str] | Callable[[str], bool] | None
"""Fields: a dotted name, a glob ``Muon_*``, a regular expression ``/Muon_.*/``, a list of these, a
function that returns whether a name is meant, or None for all fields."""


def all_paths(definition: Definition) -> dict[str, Node]:
    """Return the type of each field by its dotted name, and of the members of records.

    Examples
    --------
    >>> import femtobarn as fb
    >>> @fb.persistent
    ... class Track:
    ...     pt: fb.float32
    >>> @fb.persistent
    ... class Event:
    ...     tracks: list[Track]
    >>> list(all_paths(fb.definition_of(Event)))
    ['tracks', 'tracks.pt']
    """
    return dict(paths_of(definition.record))


def expand(expressions: Expressions, definition: Definition, *, counts: bool = False) -> list[str]:
    """Return the paths that expressions stand for, in their order; a path inside another one is left out.

    Parameters
    ----------
    counts
        Whether ``nX`` may stand for the number of items of the collection X, if there is no field ``nX``.

    Raises
    ------
    NotFoundError
        If an expression matches no field; near misses are named.
    WrongTypeError
        If an expression is not a text.
    """
    if expressions is None:
        return list(definition.record.by_name)
    if callable(expressions):
        return _outermost([path for path in all_paths(definition) if expressions(path)])
    items = [expressions] if isinstance(expressions, str) else list(expressions)
    return _outermost([path for item in items for path in _matches(item, definition, counts)])


def _matches(item: Any, definition: Definition, counts: bool) -> list[str]:
    if not isinstance(item, str):
        raise WrongTypeError(f"names of fields must be strings, not {item!r}")
    if len(item) > 1 and item.startswith("/") and item.rstrip("i").endswith("/"):
        flags = re.IGNORECASE if item.endswith("i") else 0
        pattern = re.compile(item.rstrip("i")[1:-1], flags)
        found = [path for path in all_paths(definition) if pattern.fullmatch(path)]
    elif any(sign in item for sign in "*?["):
        found = [path for path in all_paths(definition) if fnmatch.fnmatchcase(path, item)]
    else:
        if counts and definition.type_at(item) is None and counted(item, definition) is not None:
            return [item]
        definition.resolve(item)
        return [whole_link(item, definition)]
    if not found:
        raise NotFoundError(f"no field matches {item!r}{near_misses(item, definition.record.by_name)}")
    return found


def counted(path: str, definition: Definition) -> str | None:
    """Return the collection X whose items ``nX`` counts, or None.

    Examples
    --------
    >>> import femtobarn as fb
    >>> form = {"name": "Event", "fields": [{"name": "Muon", "type": {"list": "float32"}}]}
    >>> counted("nMuon", fb.definition_of(form)), counted("nJet", fb.definition_of(form))
    ('Muon', None)
    """
    parent, _, name = path.rpartition(".")
    if not name.startswith("n") or len(name) == 1:
        return None
    collection = f"{parent}.{name[1:]}" if parent else name[1:]
    return collection if isinstance(definition.type_at(collection), List) else None


def whole_link(path: str, definition: Definition) -> str:
    """Return the path of the link that a path leads into, or else the path itself.

    A link is read whole: its members identify an object only together.
    """
    parts = path.split(".")
    for count in range(1, len(parts)):
        above = ".".join(parts[:count])
        if isinstance(innermost(definition.resolve(above)), Link | ElementLink):
            return above
    return path


def links_to(definition: Definition, class_name: str, known: set[str]) -> list[str]:
    """Return the fields whose links may lead to objects of a class: links to it, and to interfaces."""
    targets = {
        path: plain_name(inner.target)
        for path, inner in ((path, innermost(node)) for path, node in all_paths(definition).items())
        if isinstance(inner, Link)
    }
    return [path for path, target in targets.items() if target == class_name or target not in known]


def _outermost(paths: list[str]) -> list[str]:
    chosen = set(paths)
    kept: dict[str, None] = {}
    for path in paths:
        parts = path.split(".")
        if not any(".".join(parts[:count]) in chosen for count in range(1, len(parts))):
            kept[path] = None
    return list(kept)

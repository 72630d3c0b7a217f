"""The YAML file of a data model as plain data, with checks of its sections."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._exceptions import InvalidError, missing_file, near_misses, path_text

__all__ = ["SECTIONS", "read_outline", "read_yaml", "section"]

BYTES_MAX = 1 << 20
"""Bytes of a YAML file, 15 times those of EDM4hep. Reading that many takes some seconds."""

NODES_MAX = 1_000_000
"""Texts, lists and mappings of a YAML file, its aliases written out: hundreds of times those of EDM4hep."""

SECTIONS = ("options", "schema_version", "components", "datatypes", "interfaces", "links")
"""The sections at the top level of a model."""


def read_outline(source: str | os.PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the sections of a model.

    Parameters
    ----------
    source
        Path of a YAML file (JSON is YAML too), or its content as a mapping.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InvalidError
        If the file is not YAML, or has no section of a model, or an unknown one.
    """
    body = read_yaml(source)
    if not isinstance(body, Mapping) or not any(body.get(name) for name in SECTIONS[2:]):
        raise InvalidError(f"{_shown(source)} is not a data model: it has none of {', '.join(SECTIONS[2:])}")
    for name in body:
        if name not in SECTIONS:
            raise InvalidError(
                f"{_shown(source)}: section {name!r} does not exist{near_misses(str(name), SECTIONS)}"
            )
    return body


def section(body: Mapping[str, Any], name: str, where: str, kind: type) -> Any:
    """Return a section of a model, empty if it is left out.

    Parameters
    ----------
    kind
        Required type, ``dict`` or ``list``.
    """
    part = body.get(name)
    if part is None:
        return kind()
    if not isinstance(part, kind):
        raise InvalidError(f"{where}: {name} must be a {kind.__name__}, not {part!r}")
    return part


def read_yaml(source: str | os.PathLike[str] | Mapping[str, Any]) -> Any:
    """Return the content of a YAML file, or that which is given.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InvalidError
        If the file is not YAML, or has more than a megabyte.
    """
    # Imported here, because the import takes time and most programs read no model.
    import yaml

    if isinstance(source, Mapping):
        return source
    path = Path(path_text(source))
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise InvalidError(f"{path} is not a data model: it has more than {BYTES_MAX:,} bytes")
        text = content.decode()
    except FileNotFoundError:
        raise missing_file(path, "*.y*ml") from None
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise InvalidError(f"{path} is not a text file: {error}") from None
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise _not_yaml(path, error) from None
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Written out, aliases of aliases are exponentially many, and merges of mappings write them out.
        if _written_out(node, {}) > NODES_MAX:
            raise InvalidError(
                f"{path} is not a data model: its aliases stand for more than {NODES_MAX:,} nodes"
            )
        return loader.construct_document(node)
    except RecursionError:
        raise _not_yaml(path, "it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        # PyYAML leaves errors of numbers, dates and words behind tags as they are, as for `!!bool x`.
        if isinstance(error, InvalidError):
            raise
        raise _not_yaml(path, error) from None
    finally:
        loader.dispose()


def _not_yaml(path: Path, why: object) -> InvalidError:
    return InvalidError(f"{path} is not YAML: {' '.join(str(why).split())}")


def _written_out(node: Any, known: dict[int, float]) -> float:
    """Return the number of nodes that a node of YAML stands for; without a bound if it is part of itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        if isinstance(node.value, str):
            parts: list[Any] = []
        else:
            parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_written_out(part, known) for part in parts)
    return known[id(node)]


def _shown(source: Any) -> str:
    return "the mapping" if isinstance(source, Mapping) else os.fspath(source)

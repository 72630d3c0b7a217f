"""The commands that import, find and export objects, manage indexes, and seal, rename or drop databases."""

from __future__ import annotations

import argparse
from typing import Any

from .. import _federations
from .._exceptions import InvalidError
from .._oid import Oid
from .._schema.meanings import TIMES, Meaning
from .._schema.types import ElementLink, Link, Node, Primitive, String, innermost
from .contents import snapshot_of
from .output import emit, emit_line, human_size, plain_entry, table, text_entry

__all__ = ["attach", "drop", "export", "find", "import_files", "index", "rename", "seal"]


def export(options: argparse.Namespace) -> None:
    """Export objects of containers to a file."""
    snapshot = snapshot_of(options)
    count = snapshot.export(
        options.names,
        options.file,
        options.field or None,
        options.where,
        format=options.format,
        layout=options.layout,
        aliases=dict(_named(text) for text in options.alias or ()),
        progress=True,
    )
    emit(options, {"file": options.file, "entries": count}, f"exported {count:,} objects to {options.file}")


def find(options: argparse.Namespace) -> None:
    """Print the objects with the given values of fields, one on each line."""
    view = snapshot_of(options)[options.container]
    wanted = {}
    for text in options.values:
        field, equals, value = text.partition("=")
        if not equals:
            raise InvalidError(f"{text!r} has no equals sign; write FIELD=VALUE, such as run=7")
        wanted[field] = _value(value, field, view.definition.resolve(field))
    write = plain_entry if options.json else text_entry
    for found in view.find_all(**wanted)[: options.number]:
        (entry,) = view.fetch([found.entry]).to_list()
        line = write(entry, view.definition.record)
        emit_line(line if options.json else f"{found.oid}  {line}")


def index(options: argparse.Namespace) -> None:
    """List the indexes of a container, make an index, or drop one."""
    federation = _federations.open(options.federation)
    database, _, container = options.container.partition("/")
    purpose = options.drop or (options.fields and ",".join(options.fields))
    if purpose:
        with federation.transaction(message=f"index {options.container}: {purpose}") as txn:
            writer = txn.database(database).container(container)
            if options.drop:
                writer.drop_index(options.drop)
            else:
                writer.create_index(
                    options.name or "_".join(options.fields), options.fields, unique=options.unique
                )
    rows = federation[options.container].indexes()
    lines = [
        [
            row["name"],
            ", ".join(row["fields"]),
            f"{row['keys']:,}",
            human_size(row["bytes"]),
            "unique" * row["unique"],
        ]
        for row in rows
    ]
    emit(options, rows, table(["index", "fields", "keys", "size", ""], lines, right={2, 3}))


def rename(options: argparse.Namespace) -> None:
    """Rename a database or a container."""
    federation = _federations.open(options.federation)
    with federation.transaction(message=f"rename {options.name} to {options.new_name}") as txn:
        txn.rename(options.name, options.new_name)
    facts = {"name": options.name, "new_name": options.new_name, "csn": txn.csn}
    emit(options, facts, f"renamed {options.name} to {options.new_name}")


def drop(options: argparse.Namespace) -> None:
    """Drop databases and containers."""
    federation = _federations.open(options.federation)
    with federation.transaction(message=f"drop {', '.join(options.names)}") as txn:
        for name in options.names:
            txn.drop(name)
    text = f"dropped {', '.join(options.names)}; snapshots before commit {txn.csn} keep them until a vacuum"
    emit(options, {"names": options.names, "csn": txn.csn}, text)


def _named(text: str) -> tuple[str, str]:
    """Return the name and the expression of a computed column."""
    name, equals, expression = text.partition("=")
    if not equals:
        raise InvalidError(f"{text!r} has no equals sign; write NAME=EXPRESSION, such as 'pt2=pt ** 2'")
    return name.strip(), expression


def _value(text: str, field: str, node: Node) -> Any:
    """Return the value that a text on the command line stands for, for a field of a type."""
    inner = innermost(node)
    meaning: Meaning | None = getattr(inner, "meaning", None)
    try:
        if isinstance(inner, Link | ElementLink):
            return None if text in ("", "null") else Oid.parse(text)
        if isinstance(inner, String) or (meaning is not None and _is_meant(text, meaning)):
            return text
        if isinstance(inner, Primitive) and inner.name == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return int(text) if isinstance(inner, Primitive) and inner.dtype.kind in "iu" else float(text)
    except (KeyError, ValueError):
        raise InvalidError(f"invalid value {text!r} of field {field!r}, which is {node}") from None


def _is_meant(text: str, meaning: Meaning) -> bool:
    """Whether a text is a time or the name of a member, not the number that a field stores."""
    return meaning.kind in TIMES or not text.lstrip("-").isdecimal()


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
    lines += [
        f"  its class {there} is named {here} in this federation"
        for row in rows
        for there, here in row["renamed"].items()
    ]
    emit(options, rows, "\n".join(lines))


def seal(options: argparse.Namespace) -> None:
    """Seal databases: they become read-only, and their files complete ROOT files."""
    federation = _federations.open(options.federation)
    for database in options.databases:
        federation.seal(database)
    files = {row["name"]: row["path"] for row in federation.databases()}
    rows = [{"database": name, "file": files[name]} for name in options.databases]
    emit(options, rows, "\n".join(f"sealed {row['database']}: {row['file']}" for row in rows))

"""The commands ``conditions import`` and ``conditions export``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .. import _federations
from .._bars import counting_bar
from .._conditions_exchange.sources import FORMATS
from .._exceptions import InvalidError
from .output import emit, table

__all__ = ["export_arguments", "export_series", "import_arguments", "import_source"]


def import_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``conditions import``."""
    parser.add_argument("federation", metavar="FEDERATION", help="folder, or root://host//name")
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="an SQLite file of CMS, Belle II or an export; a .csv or .json file; or the address of a server",
    )
    parser.add_argument(
        "only",
        nargs="*",
        metavar="TAG",
        help="import only these tags; of Belle II and nopayloaddb global tags",
    )
    parser.add_argument("--format", choices=FORMATS, help="kind of the source; by default it is recognised")
    parser.add_argument(
        "--database", metavar="NAME", help="database of the series, the system's name by default"
    )
    parser.add_argument("--payloads", metavar="PLACE", help="folder or address of payloads")
    parser.add_argument(
        "--snapshot", metavar="TIME", help="leave out rows that were inserted into the source after this time"
    )
    parser.add_argument("--series", metavar="PATH", help="series of a CSV file, such as tpc/gain")
    parser.add_argument(
        "--class", dest="cls", metavar="JSON", help="class of conditions, or @FILE; by default inferred"
    )
    parser.add_argument("--clock", choices=("time", "run"), help="clock of the series")
    parser.add_argument(
        "--overlap", choices=("newest", "open", "refuse"), help="rule of overlaps of the series"
    )
    parser.add_argument(
        "--end",
        choices=("inclusive", "exclusive"),
        help="whether validities of nopayloaddb contain their end",
    )
    parser.add_argument(
        "--again", action="store_true", help="replace series that were imported from this source before"
    )


def import_source(options: argparse.Namespace) -> None:
    """Import conditions, and print the series and the global tags."""
    from .._conditions_exchange.imports import import_conditions  # imports clients of servers and databases

    federation = _federations.open(options.federation)
    with counting_bar(desc=options.source, unit=" conditions") as advance:
        done = import_conditions(
            federation,
            options.source,
            format=options.format,
            database=options.database,
            only=options.only,
            payloads=options.payloads,
            snapshot=options.snapshot,
            series=options.series,
            cls=None if options.cls is None else _class(options.cls),
            clock=options.clock,
            overlap=options.overlap,
            end=options.end,
            again=options.again,
            progress=advance,
        )
    rows = [[path, f"{count:,}"] for path, count in done.series.items()]
    text = table(["series", "conditions"], rows, right={1})
    for names, verb in ((done.global_tags, "imported"), (done.kept, "kept, since they are frozen:")):
        if names:
            text += f"\nglobal tags {verb} {', '.join(names)}"
    facts = {"series": done.series, "global_tags": done.global_tags, "kept": done.kept, "csn": done.csn}
    emit(options, facts, f"{text}\ncommit {done.csn}")


def export_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``conditions export``."""
    parser.add_argument("federation", metavar="FEDERATION", help="folder, or root://host//name")
    parser.add_argument("file", metavar="FILE", help="a new file, .sqlite, .json (JSON lines) or .csv")
    parser.add_argument("series", nargs="*", metavar="SERIES", help="series to export, all by default")
    parser.add_argument("--tag", metavar="NAME", help="the series of this global tag")
    parser.add_argument("--csn", type=int, help="as of this commit instead of the newest")
    parser.add_argument(
        "--format", choices=("sqlite", "json", "csv"), help="by default it follows from the file's name"
    )


def export_series(options: argparse.Namespace) -> None:
    """Export conditions, and print their number."""
    from .._conditions_exchange.exports import export_conditions

    job = _federations.open(options.federation).conditions(options.tag, csn=options.csn)
    with counting_bar(desc=options.file, unit=" series") as advance:
        count = export_conditions(
            job, options.file, options.series or None, format=options.format, progress=advance
        )
    emit(
        options,
        {"file": options.file, "validities": count},
        f"exported {count:,} validities to {options.file}",
    )


def _class(text: str) -> dict[str, Any]:
    """Return a class from JSON, or from a file with JSON."""
    try:
        form = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
        if isinstance(form, dict) and {"name", "fields"} <= form.keys():
            return form
    except ValueError:
        pass
    raise InvalidError(
        f"{text[:60]!r} is not the JSON of a class; write it as "
        '{"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}'
    )

"""The command ``display``: objects in 3D, on a page that a browser shows."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .. import _federations
from .._exceptions import NotFoundError
from .output import emit, human_size

__all__ = ["arguments", "display"]


def arguments(sub: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    sub.add_argument("federation", metavar="FEDERATION", help="folder of the federation")
    sub.add_argument("container", metavar="DATABASE/CONTAINER")
    sub.add_argument("entry", metavar="ENTRY", nargs="?", type=int, help="first object, by default the first")
    sub.add_argument(
        "-o", "--output", metavar="FILE", help="HTML file to write, instead of opening a browser"
    )
    sub.add_argument("--where", help='condition on objects, such as "nMuon == 2"')
    sub.add_argument("--count", type=int, metavar="N", help="objects to step through: 1, or 10 with --where")
    sub.add_argument("--referrers", action="store_true", help="also show objects that link to them")
    sub.add_argument("--csn", type=int, help="as of this commit instead of the newest")


def display(options: argparse.Namespace) -> None:
    """Write a page with objects in 3D, and show it unless a file was asked for."""
    view = _federations.open(options.federation).snapshot(csn=options.csn)[options.container]
    count = options.count if options.count is not None else 10 if options.where else 1
    start = options.entry or 0
    if not 0 <= start < len(view):
        raise NotFoundError(f"object {start} does not exist: {options.container} has {len(view):,} objects")
    shown = view[start:].display(options.where, count=count, referrers=options.referrers)
    path = Path(options.output or Path(tempfile.mkdtemp(prefix="femtobarn-")) / "display.html")
    shown.save(path)
    done = "opened" if options.output is None and _open(path) else "wrote"
    size = path.stat().st_size
    facts = {"file": str(path), "objects": len(shown.scenes), "bytes": size}
    emit(options, facts, f"{done} {path}: {shown!r}, {human_size(size)}")


def _open(path: Path) -> bool:
    """Show a page in a browser; return whether there is one."""
    import webbrowser  # Few commands need it.

    return webbrowser.open(path.absolute().as_uri())

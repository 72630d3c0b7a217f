"""The commands that a shell needs once: its completions, and the manual page."""

from __future__ import annotations

import argparse
from datetime import date

from .. import __version__
from .output import emit

__all__ = ["completion", "completion_arguments", "manual", "manual_arguments"]

SHELLS = ("bash", "zsh", "fish")

FOLDERS = frozenset({"BACKUP", "FEDERATION", "FOLDER", "PLACE", "federation", "folder"})
"""Arguments, by their names in the usage, that are completed by the names of folders."""

FILES = frozenset({"FILE", "NAME|FILE.toml", "NAME|FILE.toml|all", "RUN", "SOURCE"})
"""Arguments that are completed by the names of files and folders."""


def completion_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def completion(options: argparse.Namespace) -> None:
    """Print a script by which a shell completes commands, options, files and federations."""
    import shtab

    from . import parser

    top = parser()
    _mark_paths(top)
    script = shtab.complete(top, options.shell)
    emit(options, {"shell": options.shell, "script": script}, script.rstrip())


def _mark_paths(parser: argparse.ArgumentParser) -> None:
    """Tell shtab which arguments of a parser and of its commands are folders, and which are files."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_paths(command)
            continue
        shown = action.metavar or action.dest
        if shown in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif shown in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def manual_arguments(_: argparse.ArgumentParser) -> None:
    """Declare that `man` has no arguments of its own."""


def manual(options: argparse.Namespace) -> None:
    """Print the manual page of all commands, in the language of `man`."""
    from argparse_manpage.manpage import Manpage

    from . import parser

    page = Manpage(parser())
    page.description = "an object database for physics events"
    page.manual = "Femtobarn"
    page.source = f"femtobarn {__version__}"
    # The form of dates that every formatter of pages can read; that of a build comes from SOURCE_DATE_EPOCH.
    page.date = date.fromisoformat(page.date).strftime("%B %d, %Y")
    emit(options, {"page": str(page)}, str(page).rstrip())

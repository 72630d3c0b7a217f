"""The command line: ``femtobarn <command> ...``.

Each command prints text or, with ``--json``, one JSON document (``cat``: one for each line). An error is one
line on standard error, and the exit code gives its kind. Without a command, the error is the help.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import __version__
from .._exceptions import FemtobarnError, near_misses
from . import commands

__all__ = ["EXIT_CODES", "main"]

EXIT_CODES = {
    "internal": 1,
    "invalid": 2,
    "not-found": 3,
    "exists": 4,
    "conflict": 5,
    "busy": 6,
    "corrupt": 7,
    "unsupported": 8,
    "closed": 9,
    "storage": 10,
    "unavailable": 11,
    "denied": 12,
}
"""Exit code of each kind of error. 0 is success, 2 also a malformed command line, 130 Ctrl-C, 143 `kill`."""

JSON_HELP = "print JSON for machines"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if arguments is None:
        # `kill` raises SystemExit, so that context managers clean up.
        signal.signal(signal.SIGTERM, _end)
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except FemtobarnError as error:
        return _fail(options, error.kind, str(error))
    except BrokenPipeError:
        # The reader of the pipe, such as head, has closed it; Python's last flush goes to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(options, "denied" if isinstance(error, PermissionError) else "storage", str(error))
    except KeyboardInterrupt:
        print("femtobarn: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _fail(options: argparse.Namespace, kind: str, text: str) -> int:
    if options.json:
        print(json.dumps({"error": {"kind": kind, "text": text}}), file=sys.stderr)
    else:
        print(f"femtobarn: {text}", file=sys.stderr)
    return EXIT_CODES.get(kind, 1)


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # argparse calls this for the parsers of commands, too.
        given = sys.argv[1:] if args is None else args
        if not given and self._subparsers is not None:
            self.exit(2, self.format_help())
        return super().parse_known_args(given, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            similar = near_misses(value, action.choices)
            self.error(f"there is no command {value!r}{similar if 'did you mean' in similar else ''}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else f"; see {self.prog} --help"
        self.exit(2, f"{self.prog}: {message}{end}\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = _Parser(prog="femtobarn", description="An object database for physics events.")
    top.add_argument("--version", action="version", version=f"femtobarn {__version__}")
    top.add_argument("--json", action="store_true", help=JSON_HELP)
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands.ALL:
        sub = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.arguments(sub)
        # No default: it would replace what stands before the command.
        sub.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=JSON_HELP)
        sub.set_defaults(run=command.run)
    return top

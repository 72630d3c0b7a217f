"""The command: runs all checks, and prints one line for each finding."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from ..._exceptions import BY_KIND, FemtobarnError
from ..output import emit
from .finding import Finding, refused, wrong
from .installation import look_at_installation

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `doctor`."""
    parser.add_argument(
        "federation", metavar="FEDERATION", nargs="?", help="folder of a federation, or its root:// URL"
    )


def run(options: argparse.Namespace) -> None:
    """Print problems and their remedies; fails with the kind of the first finding that is wrong."""
    findings = list(_to_the_end(_look(options.federation)))
    counts = Counter(finding.verdict for finding in findings)
    emit(options, [asdict(finding) for finding in findings], "\n".join(map(str, findings)))
    faults = [finding for finding in findings if finding.kind is not None]
    if faults:
        text = f"{len(faults)} {'check' if len(faults) == 1 else 'checks'} failed"
        raise BY_KIND[faults[0].kind or "internal"](
            f"{text}, with {counts['note']} notes; first: {faults[0].fact}"
        )


def _to_the_end(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings; if a look fails, its error is the last one."""
    try:
        yield from findings
    except FemtobarnError as error:
        yield refused("federation", error, "the checks after this one were skipped")
    except OSError as error:
        yield wrong("storage", "federation", str(error), "the checks after this one were skipped")


def _look(federation: str | None) -> Iterator[Finding]:
    yield from look_at_installation()
    if federation is None:
        return
    if federation.startswith(("root://", "roots://")):
        from .federation_server import look_at_server  # imports what TLS needs

        for url in federation.split(","):
            yield from look_at_server(url)
    else:
        from .federation_folder import look_at_folder

        yield from look_at_folder(federation)

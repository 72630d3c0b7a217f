"""The result of one check: the verdict, the fact, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..._exceptions import FemtobarnError

__all__ = ["Finding", "note", "ok", "refused", "wrong"]


@dataclass(frozen=True)
class Finding:
    """A fact about an installation or a federation."""

    verdict: Literal["ok", "note", "wrong"]
    """``note``: works, but an operator should know it."""
    subject: str
    fact: str
    remedy: str = ""
    """The remedy; empty if none is needed."""
    kind: str | None = None
    """Of something wrong: the kind of the error that it causes, which is also that of the exit code."""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.verdict:<5}  {self.subject}: {self.fact}{remedy}"


def ok(subject: str, fact: str) -> Finding:
    """Return that something is as it should be."""
    return Finding("ok", subject, fact)


def note(subject: str, fact: str, remedy: str = "") -> Finding:
    """Return something that works, but that an operator should know."""
    return Finding("note", subject, fact, remedy)


def wrong(kind: str, subject: str, fact: str, remedy: str) -> Finding:
    """Return something that fails, or soon will, with an error of this kind."""
    return Finding("wrong", subject, fact, remedy, kind)


def refused(subject: str, error: FemtobarnError, remedy: str = "") -> Finding:
    """Return an error of the library as a finding. Its text mostly has the remedy."""
    return wrong(error.kind, subject, str(error), remedy)

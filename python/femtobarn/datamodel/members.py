"""Declarations of single members: ``<type> <name>{<default>} [<unit>] // <comment>``.

The syntax is that of podio's documentation, "Data models and data model definitions".
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

from .._exceptions import InvalidError

__all__ = ["BUILTIN_TYPES", "Member", "parse_member"]

BUILTIN_TYPES: dict[str, str] = {
    "bool": "bool",
    "char": "char",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long long": "int64",
    "unsigned short": "uint16",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Stored types of the C++ types that members may have, without ``std::``."""

ARRAY_MAX = 100_000
"""Items of a ``std::array``, and of all those of a model."""
DECLARATION_MAX = 4000
"""Characters of a declaration: the time to match some grows with their square."""

# Blanks are matched possessively, or the time to refuse a text would grow with the fourth power of their
# number.
_TYPE = r"(?:(?:unsigned|long|short)\s++)*(?:::)?[A-Za-z_][\w:]*"
_MEMBER = re.compile(
    rf"""\s*+(?:std::array\s*+<\s*+(?P<item>{_TYPE})\s*+,\s*+(?P<size>\d+)\s*+>\s*+|(?P<type>{_TYPE})\s++)
    (?P<name>[A-Za-z_]\w*)\s*+
    (?:\{{(?P<default>.*?)\}})?\s*+
    (?:\[(?P<unit>[^\]]*)\])?\s*+
    (?:///?<?(?P<comment>.*))?""",
    re.VERBOSE | re.DOTALL,
)
_SUFFIXED = re.compile(r"(?<=[0-9.])(?:[uUlL]+|[fF])\b")


@dataclass(frozen=True)
class Member:
    """A parsed declaration of a member."""

    name: str
    type: str
    """Name of a built-in type, a component or a datatype, without leading colons."""
    size: int | None
    """Number of items of a ``std::array``, else None."""
    default: Any
    """A number, truth value or text, or a tuple of these for arrays and components; None if there is none, or
    if it takes a C++ compiler to evaluate it."""
    unit: str
    comment: str

    @property
    def description(self) -> str:
        """The comment with the unit."""
        return " ".join(filter(None, [self.comment, f"[{self.unit}]" if self.unit else ""]))


def parse_member(text: Any, where: str) -> Member:
    """Parse the declaration of a member.

    Parameters
    ----------
    text
        The declaration.
    where
        Class and section, for error texts.

    Raises
    ------
    InvalidError
        If the declaration is malformed.

    Examples
    --------
    >>> member = parse_member("float energy{-1.5} [GeV] // of the cluster", "members of class Cluster")
    >>> member.type, member.name, member.default, member.description
    ('float', 'energy', -1.5, 'of the cluster [GeV]')
    >>> parse_member("std::array<float, 21> covariance", "components").size
    21
    """
    if not isinstance(text, str):
        raise InvalidError(
            f"{where}: declarations must be strings, not {text!r}; write <type> <name> // <comment>"
        )
    if len(text) > DECLARATION_MAX:
        raise InvalidError(f"{where}: {text[:60]!r}... has more than {DECLARATION_MAX:,} characters")
    match = _MEMBER.fullmatch(text)
    if match is None:
        raise InvalidError(f"{where}: {text!r} cannot be read; write <type> <name> [<unit>] // <comment>")
    size = int(match["size"]) if match["size"] is not None else None
    if size is not None and not 1 <= size <= ARRAY_MAX:
        raise InvalidError(f"{where}: {text!r} has an array of size {size}: must be 1 to {ARRAY_MAX:,}")
    type_ = " ".join((match["item"] or match["type"]).removeprefix("::").split())
    comment = " ".join((match["comment"] or "").split())
    return Member(
        match["name"], type_, size, _default(match["default"]), (match["unit"] or "").strip(), comment
    )


def _default(text: str | None) -> Any:
    """Return the value of a C++ initialiser, or None if it is not a literal."""
    if text is None or not text.strip():
        return None
    plain = _SUFFIXED.sub("", text.replace("{", "(").replace("}", ",)")).strip()
    plain = re.sub(r"\btrue\b", "True", re.sub(r"\bfalse\b", "False", plain))
    try:
        value = ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value))

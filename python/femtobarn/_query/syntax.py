"""Texts of expressions as Python's syntax trees."""

from __future__ import annotations

import ast
import threading

__all__ = ["parsed"]

# CPython 3.11 and 3.12 count the depth of all trees that threads build at the same time together: one of
# them may fail with a SystemError. The same thread may come again, by a finalizer that runs meanwhile.
_TURN = threading.RLock()


def parsed(text: str) -> ast.expr:
    """Return the tree of an expression. Any number of threads may call this.

    Raises SyntaxError, ValueError or RecursionError as `ast.parse`.

    >>> ast.unparse(parsed(" n>1 and pt<20 ".strip()))
    'n > 1 and pt < 20'
    """
    with _TURN:
        return ast.parse(text, mode="eval").body

"""Names of fields made from names in files, which may have any characters."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["identifier"]


@lru_cache(maxsize=10_000)
def identifier(name: str) -> str:
    """Return a name as one that is valid for a field and for an attribute in Python.

    Examples
    --------
    >>> identifier("Muon#0"), identifier("covMatrix.values[21]"), identifier("2mu")
    ('Muon_0', 'covMatrix_values', '_2mu')
    """
    plain = re.sub(r"\[[^\]]*\]", "", name)
    plain = re.sub(r"\W", "_", plain)
    plain = re.sub(r"_+$", "", plain) or "_"
    return f"_{plain}" if plain[0].isdigit() else plain

"""The method ``display`` of objects. The extension module, which has their class, gets it from here."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from .._femtobarn import Object

if TYPE_CHECKING:
    from ..display import Display

__all__ = ["add_display"]


def _display(self: Object, *, referrers: bool = False) -> Display:
    """Return the object in 3D, with what its links lead to: notebooks show it, ``save(path)`` writes a page.

    Parameters
    ----------
    referrers
        Whether objects that link to it are shown, too. Without an index over the links this reads the links
        of all objects.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Hit", "fields": [{"name": axis, "type": "float32"} for axis in "xyz"]}
    ...     hits = txn.database("d", create=True).container("hits", form, create=True)
    ...     oids = hits.extend({"x": [0, 1], "y": [1, 1], "z": [2, 0]})
    >>> fed["d/hits"][1].display()
    <Display of d/hits 1>
    """
    from ..display import display  # That room imports this one, and awkward.

    return display(self, referrers=referrers)


class _Display:
    """The method; a field of its name, or a method of a declared class, goes before it."""

    def __get__(self, found: Object | None, owner: type[Object]) -> Callable[..., Any]:
        if found is None:
            return _display
        if "display" in found.fields:
            field: Callable[..., Any] = found["display"]
            return field
        return getattr(super(Object, found), "display", None) or MethodType(_display, found)


def add_display() -> None:
    """Give all objects the method."""
    Object.display = _Display()  # type: ignore[method-assign, assignment]

"""Layouts of awkward arrays in one form, whichever way they were read."""

from __future__ import annotations

from typing import Any

from .._lazy import ak

__all__ = ["as_plain"]


def as_plain(layout: Any) -> Any:
    """Return a layout whose lists have offsets from 0, and whose options have an index."""
    found = _plain(layout)
    # Most columns are numbers, or lists of them: a walk through the layout would take longer than they do.
    return ak.transform(_plain, layout, highlevel=False) if found is None else found


def _plain(layout: Any, **_: Any) -> Any:
    """Return a layout of numbers, lists or options as plain; None for all others."""
    if layout.is_numpy:
        return layout
    if layout.is_option:
        index = layout.to_IndexedOptionArray64()
        return index.copy(content=as_plain(index.content))
    if layout.is_list and not layout.is_regular:
        lists = layout.to_ListOffsetArray64(True)
        return lists.copy(content=as_plain(lists.content[: lists.offsets[-1]]))
    return None

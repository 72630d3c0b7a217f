"""The explanation of a read with a condition: the fields that it reads, and the entries that it skips."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Explanation"]


@dataclass(frozen=True)
class Explanation:
    """The reads of a call of :meth:`femtobarn.View.arrays`; ``print`` shows them as text."""

    entries: int
    """Entries of the view, those of deleted objects included."""
    excluded: int
    """Entries in clusters whose statistics exclude a match: nothing of them is read."""
    condition: tuple[str, ...]
    """Fields that are read for the condition, of other entries; ``len(x)`` is only the number of items."""
    later: tuple[str, ...]
    """The fields of the condition that are read only near entries that meet its earlier parts."""
    terms: tuple[str, ...]
    """Parts of the condition that awkward computes, or the function."""
    fields: tuple[str, ...]
    """Fields that are read of the selected entries."""

    def __str__(self) -> str:
        others = self.entries - self.excluded
        percent = f"{100 * self.excluded / self.entries:.0f} %" if self.entries else "none"
        lines = [f"left out by statistics  {self.excluded:,} of {self.entries:,} entries ({percent})"]
        if self.condition or self.terms:
            first = [path for path in self.condition if path not in self.later]
            then = f"; if that can hold, {', '.join(self.later)}" if self.later else ""
            read = ", ".join(first) or "what it uses"
            lines.append(f"condition               reads {read} of {others:,} entries{then}")
        lines += [f"computed by awkward     {term}" for term in self.terms]
        lines.append(f"selected entries        read {', '.join(self.fields) or 'nothing'}")
        return "\n".join(lines)

    __repr__ = __str__

"""Moving the catalogue of a federation between SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._upkeep import Progress

if TYPE_CHECKING:
    from ._femtobarn import FederationHandle

__all__ = ["MovedCatalogue", "Moves"]


@dataclass(frozen=True)
class MovedCatalogue:
    """A catalogue that was moved."""

    rows: int
    """Rows that were copied; 0 if it was there already."""
    csn: int
    """The newest commit."""
    origin: str
    """Where it was."""
    place: str
    """Where it is: ``catalogue.sqlite``, or the server and its database."""


class Moves:
    """What a federation's operators move."""

    _handle: FederationHandle

    def move_catalogue(self, to: str, *, progress: Progress | None = None) -> MovedCatalogue:
        """Move the catalogue between SQLite and PostgreSQL, while the federation is read and written.

        The rows are copied and compared. Commits wait for a moment at the end; then all processes that have
        the federation open, servers too, go on with the catalogue at its new place. If this process dies
        before, the catalogue stays where it is, and the call can be repeated. The old one takes no changes
        any more: the file ``catalogue.sqlite`` stays in the folder, and the schema in PostgreSQL until it is
        dropped.

        Parameters
        ----------
        to
            URL of a database of PostgreSQL, as for `create`; or ``"sqlite"``, for a file in the federation's
            folder.
        progress
            Called with the step, the table, the rows done and the rows in all.

        Raises
        ------
        UnavailableError
            If another process moves the catalogue, or PostgreSQL does not answer.
        DeniedError
            If this is a copy that follows a leader, or PostgreSQL refuses.
        ExistsError
            If a catalogue is there that takes changes.
        UnsupportedError
            If the catalogue has rows that cannot be kept there, or the federation was opened at a server.
        """
        url = None if to == "sqlite" else to
        return MovedCatalogue(**self._handle.upkeep().move_catalogue(url, progress))

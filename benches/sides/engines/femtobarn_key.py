"""Femtobarn: the same objects, fetched by key through an index."""

from __future__ import annotations

from collections.abc import Sequence

import femtobarn as fb

from . import FIELDS_OF, Fetch, Fields, femtobarn


class Store(femtobarn.Store):
    """A federation with an index over the numbers of the objects."""

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        super().write(start, objects)
        if start == 0:
            with self.federation.transaction() as transaction:
                container = transaction.database("d").container("objects")
                container.create_index("by_number", "event" if self.kind == "small" else "id")

    def fetcher(self) -> Fetch:
        self.federation = fb.open(self.path)
        view, fields_of = self.federation["d/objects"], FIELDS_OF[self.kind]
        if self.kind == "small":
            return lambda number: fields_of(view.find(event=number))
        return lambda number: fields_of(view.find(id=number))

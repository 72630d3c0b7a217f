"""Writing friends: columns for the objects of a container, in another container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._data.arrays import columns_of, tree_length
from ._data.rows import rows_of
from ._exceptions import InvalidError
from ._views.friends import check_friend

if TYPE_CHECKING:
    from ._objects.objects import Object
    from ._views.view import View
    from ._writers import ContainerWriter

__all__ = ["FriendWriter"]


class FriendWriter:
    """A friend within a transaction, to write the entries that it lacks for its partner's objects."""

    def __init__(self, container: ContainerWriter, of: str) -> None:
        self.container = container
        """The container with the columns, for updates of them."""
        self.of = of
        """Path of the partner."""
        check_friend(self._path, container.num_entries, self._partner())

    @property
    def missing(self) -> View[Object]:
        """The partner's objects for which the friend has no entry yet, with those of this transaction."""
        partner = self._partner()
        return partner._within(range(self.container.num_entries, partner._handle.entries))

    def extend(self, data: Any) -> None:
        """Append objects for the first ones of :attr:`missing`, in their order.

        Parameters
        ----------
        data
            Arrays of any kind that :meth:`ContainerWriter.extend` accepts, with one value for each object.

        Raises
        ------
        InvalidError
            If there are more values than objects, or names or values do not fit the class; nothing is
            appended then.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        >>> with fed.transaction() as txn:
        ...     numbers = txn.database("run1", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        ...     squares = txn.friend("run1/squares", form, of="run1/numbers", create=True)
        ...     for batch in squares.missing.iterate("n", step_size=2):
        ...         squares.extend({"n": batch.n**2})
        >>> fed["run1/squares"]["n"].to_list()
        [0, 1, 4, 9, 16]
        """
        columns, missing = columns_of(data, self.container.definition.record), self.missing
        count = tree_length(columns)
        if count > len(missing):
            raise InvalidError(
                f"{count:,} values were given for {len(missing):,} objects of {self.of} that have none in "
                f"{self._path}"
            )
        if not count:
            return
        # Entries of deleted objects of the partner are deleted here, too, and hold the values of their next.
        last = missing._entry(count - 1)
        every = np.arange(self.container.num_entries, last + 1, dtype=np.uint64)
        entries = missing._entries_within(self.container.num_entries, last + 1)
        if len(entries) < len(every):
            columns = rows_of(columns, np.searchsorted(entries, every))
        self.container.extend_columns(columns)
        if len(entries) < len(every):
            self.container.delete(np.setdiff1d(every, entries))

    @property
    def _path(self) -> str:
        return f"{self.container.database.name}/{self.container.name}"

    def _partner(self) -> View[Object]:
        return self.container.database.transaction[self.of]

    def __repr__(self) -> str:
        return f"<FriendWriter {self._path} of {self.of}: {self.container.num_entries:,} entries>"

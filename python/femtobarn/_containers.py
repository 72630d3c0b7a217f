"""The containers of a federation as of the newest commit, by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._views.collection import Collection
from ._views.view import View

if TYPE_CHECKING:
    from ._snapshots import Snapshot

__all__ = ["Containers", "concat"]


class Containers:
    """A mapping of names to containers, as of the newest commit."""

    def snapshot(self) -> Snapshot:
        """Return the federation as of the newest commit."""
        raise NotImplementedError

    def databases(self) -> list[dict[str, Any]]:
        """Return name, number, state and file of each database."""
        return self.snapshot().databases()

    def keys(self) -> list[str]:
        """Return the names of all containers as of the newest commit."""
        return list(self.snapshot())

    def collection(self, *names: str, source: str = "source") -> Collection:
        """Return containers as one, as of the newest commit; see :meth:`Snapshot.collection`."""
        return self.snapshot().collection(*names, source=source)

    def __getitem__(self, name: str) -> View:
        """Return a container, such as ``fed["run7/events"]``, as of the newest commit."""
        return self.snapshot()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.snapshot()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all containers as of the newest commit."""
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self.snapshot())

    def __bool__(self) -> bool:
        return True

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()

    def _repr_html_(self) -> str:
        return self.snapshot()._repr_html_()


def concat(views: Sequence[View], *, source: str = "source") -> Collection:
    """Return the objects of several views, also of several federations, as if they were in one container.

    Fields that some lack are missing in the objects of these.

    Parameters
    ----------
    source
        Name of a field with the name of the container of each object.

    Raises
    ------
    InvalidError
        If there is no view, or a field has types that cannot be merged.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
    ...     for name in ("run1", "run2"):
    ...         numbers = txn.database(name, create=True).container("numbers", form, create=True)
    ...         oids = numbers.extend({"n": [1, 2]})
    >>> numbers = fb.concat([fed["run1/numbers"], fed["run2/numbers"][1:]])
    >>> numbers.arrays().to_list()[1:]
    [{'n': 2, 'source': 'run1/numbers'}, {'n': 2, 'source': 'run2/numbers'}]
    """
    return Collection(views, source)

"""The containers of a federation as of the newest commit, by their names."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from ._exceptions import ClosedError, WrongTypeError, check_text

if TYPE_CHECKING:
    from ._objects.objects import Object
    from ._snapshots import Snapshot
    from ._views.collection import Collection
    from ._views.view import View

__all__ = ["Containers", "check_container_path"]


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

    def friend(self, name: str, /, *friends: str, **named: str) -> View[Object]:
        """Return a container with friends, as of the newest commit; see :meth:`Snapshot.friend`."""
        return self.snapshot().friend(name, *friends, **named)

    def __getitem__(self, name: str) -> View[Object]:
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
        try:
            return self.snapshot()._repr_html_()
        except ClosedError:
            return f"<pre>{escape(repr(self))}</pre>"


def check_container_path(name: object) -> None:
    """Raise an error if a value cannot be the name of a container in its federation."""
    if not isinstance(name, str):
        raise WrongTypeError(f'names of containers must be strings, such as fed["run7/events"], not {name!r}')
    check_text(name, "container")

"""Progress bars of long calls: on terminals and in notebooks, nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from ._exceptions import check_progress

__all__ = ["Progress", "ProgressOption", "bar", "check_progress_option", "counting_bar", "objects_bar"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the objects done so far and the objects in all."""

ProgressOption: TypeAlias = Progress | bool | None
"""The argument `progress`: a function to call, or whether to show a bar."""


def bar(**settings: Any) -> Any:
    """Return a bar of tqdm with its settings; if no terminal or notebook would show it, it does nothing."""
    from tqdm.auto import tqdm  # takes time to import, and few need it

    # In a notebook it is a widget, though nothing is a terminal there.
    is_widget = any(each.__module__ == "tqdm.notebook" for each in tqdm.__mro__)
    return tqdm(unit_scale=True, disable=False if is_widget else None, leave=False, **settings)


@contextmanager
def counting_bar(**settings: Any) -> Iterator[Progress]:
    """Show a bar, with settings of tqdm. Return the function to call with what is done so far, and in all."""
    with bar(**settings) as shown:

        def advance(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield advance


def check_progress_option(progress: object) -> None:
    """Raise an error if a caller's `progress` is neither a function nor a truth value."""
    if not isinstance(progress, bool):
        check_progress(progress, "done, total")


@contextmanager
def objects_bar(progress: ProgressOption, title: str, unit: str = " objects") -> Iterator[Progress | None]:
    """Return the function to call with the objects or bytes done: the caller's, or one that shows a bar.

    Raises
    ------
    WrongTypeError
        If `progress` is neither a function nor a truth value.
    """
    check_progress_option(progress)
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    else:
        with counting_bar(desc=title, unit=unit) as advance:
            yield advance

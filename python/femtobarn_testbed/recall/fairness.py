"""The times when each client's files would arrive if the drives' work were shared equally."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fair_seconds"]


def fair_seconds(wanted: Sequence[float], seconds: float) -> list[float]:
    """Return when each client would have all that it wants, if all that still want something always got the
    same.

    Parameters
    ----------
    wanted
        The files that each client requests, all from the beginning.
    seconds
        When all of them have everything. This gives the rate, which is taken to be constant.

    Examples
    --------
    >>> fair_seconds([10.0, 30.0], 40.0)
    [20.0, 40.0]
    >>> fair_seconds([10.0, 10.0, 10.0], 30.0)
    [30.0, 30.0, 30.0]
    """
    rate = sum(wanted) / seconds
    return [sum(min(other, mine) for other in wanted) / rate for mine in wanted]

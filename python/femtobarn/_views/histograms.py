"""Histograms of the selected objects of a view, filled part by part: no array of all of them is kept.

Several threads read and fill parts at once. Where an object has several values of a field, each is counted;
with several axes, those of one object go together as awkward broadcasts them. Missing values are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import awkward as ak
import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, UnsupportedError
from .._query.selection import Where
from .requests import Request
from .scans import in_threads, parts_of

if TYPE_CHECKING:
    from .column_reader import ColumnReader

__all__ = ["Axes", "filled"]

BINS = 50
"""Bins of an axis for which none are given."""

Axes: TypeAlias = str | Sequence[str] | Mapping[str, Any]
"""The axes of one histogram: fields, optionally with their bins."""


def filled(
    view: ColumnReader,
    wanted: Sequence[Axes],
    where: Where,
    weight: str | None,
    aliases: Mapping[str, str] | None,
) -> list[Any]:
    """Return histograms of the objects of a view, as :meth:`femtobarn.View.hist` describes."""
    if not wanted:
        raise InvalidError("hist takes the name of a field, such as hist('pt')")
    binnings = [_binning(axes) for axes in wanted]
    paths = dict.fromkeys([*(path for each in binnings for path in each), *([weight] if weight else [])])

    def each_part(of: Iterable[str], work: Callable[[ak.Array], Any]) -> Iterator[Any]:
        request = Request.of(view.definition, list(of), where, aliases=aliases)

        def done(part: range) -> Any:
            return work(request.result(view._array_of(request.projection, request.selection, part)))

        return in_threads(done, parts_of([view._part(None, None)]))

    counted = {path for each in binnings for path, bins in each.items() if isinstance(bins, int)}
    ranges = _ranges(each_part, sorted(counted)) if counted else {}
    empty = [_empty(binning, ranges, weight) for binning in binnings]

    def fill(array: ak.Array) -> list[Any]:
        return [
            _fill(hist.copy(), array, list(binning), weight)
            for hist, binning in zip(empty, binnings, strict=True)
        ]

    total = empty
    for part in each_part(paths, fill):
        total = list(map(add, total, part))
    return total


def _binning(axes: Axes) -> dict[str, Any]:
    """Return the bins of each field."""
    try:
        binning = (
            dict(axes)
            if isinstance(axes, Mapping)
            else dict.fromkeys([axes] if isinstance(axes, str) else axes, BINS)
        )
    except TypeError:
        binning = {}
    if not binning or not all(isinstance(path, str) for path in binning):
        raise InvalidError(
            f"hist takes the name of a field, a list of names, or a dictionary with their bins, not {axes!r}"
        )
    return binning


def _ranges(each_part: Callable[..., Iterator[Any]], paths: Sequence[str]) -> dict[str, Values]:
    """Return the smallest and the largest finite value of fields, as integers if these are."""

    def limits(array: ak.Array) -> dict[str, Values]:
        return {path: _limits(_columns(array, [path])[0], path) for path in paths}

    parts = list(each_part(paths, limits)) or [dict.fromkeys(paths, np.empty(0))]
    return {path: _limits(np.concatenate([part[path] for part in parts]), path) for path in paths}


def _limits(values: Any, path: str) -> Values:
    if isinstance(values, list) or values.dtype.kind not in "biuf":
        raise InvalidError(f"hist: {path!r} has no numbers; give an axis of hist for it")
    finite: Values = values[np.isfinite(values)]
    return finite[[finite.argmin(), finite.argmax()]] if len(finite) else finite


def _empty(binning: Mapping[str, Any], ranges: Mapping[str, Values], weight: str | None) -> Any:
    try:
        import hist
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "histograms need hist, which is not installed: pip install 'femtobarn[hist]'"
        ) from error
    axes = []
    for path, bins in binning.items():
        try:
            axes.append(_axis(hist.axis, path, bins, ranges))
        except (ValueError, TypeError) as error:
            raise InvalidError(
                f"hist: the bins of {path!r} are a number of 1 or more, (number, low, high) with finite "
                f"limits that differ, a list of two or more rising edges, or an axis of hist, not {bins!r}"
            ) from error
    return hist.Hist(*axes, storage=hist.storage.Weight() if weight else hist.storage.Double())


def _axis(kinds: Any, path: str, bins: Any, ranges: Mapping[str, Values]) -> Any:
    settings = {"name": path.replace(".", "_"), "label": path}
    if isinstance(bins, int):
        low, high = (*ranges[path], *ranges[path], 0, 1)[:2]
        if ranges[path].dtype.kind == "f":
            # So far above the greatest value that its place, a quotient, is not rounded up to the end.
            above = max(np.nextafter(high, np.inf), high + 1e-12 * (high - low))
            widened = (low, above) if low < high else (low - 0.5, high + 0.5)
            return kinds.Regular(bins, *widened, **settings)
        low, high = int(low), int(high) + 1
        return (
            kinds.Integer(low, high, **settings)
            if high - low <= bins
            else kinds.Regular(bins, low, high, **settings)
        )
    if isinstance(bins, tuple):
        return kinds.Regular(*bins, **settings)
    if isinstance(bins, list | np.ndarray):
        return kinds.Variable(bins, **settings)
    if not hasattr(bins, "traits"):
        raise TypeError("unknown kind of bins")
    return bins


def _fill(hist: Any, array: ak.Array, paths: list[str], weight: str | None) -> Any:
    columns = _columns(array, [*paths, weight] if weight else paths)
    try:
        return hist.fill(*columns[: len(paths)], **({"weight": columns[-1]} if weight else {}))
    except (ValueError, TypeError) as error:
        raise InvalidError(f"hist cannot count {', '.join(paths)}: {error}") from error


def _columns(array: ak.Array, paths: list[str]) -> list[Any]:
    """Return the values of fields that go together, each of the same length; missing ones are left out."""
    # A field behind a link has its whole path as its name if other fields of the collection were read.
    columns = [array[path if path in array.fields else tuple(path.split("."))] for path in paths]
    if len(columns) > 1:
        columns = ak.broadcast_arrays(*columns)
    flat = [ak.flatten(column, axis=None) if column.ndim > 1 else ak.drop_none(column) for column in columns]
    return [each.to_list() if "string" in str(each.type) else ak.to_numpy(each) for each in flat]

"""Reductions: offline series that are derived from raw ones.

A reduction describes the derived series; ``reduction_runs`` derives it. Every derived condition has the
commit as of which the raw series was read (``raw_csn``), and the entries of the conditions that it follows
from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, NotFoundError
from .._lazy import ak, numexpr
from .._query.selection import Selection
from .._schema.classes import definition_of
from .._schema.types import Primitive
from .clocks import FOREVER
from .segments import Segments, positions_at
from .series import Series

__all__ = ["DeadBand", "Function", "Mean", "RawField", "Reduction", "reductions_of"]

CSN = "raw_csn"
RANGE = [{"name": "raw_first", "type": "uint64"}, {"name": "raw_last", "type": "uint64"}]
SECONDS = {"ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
"""Nanoseconds of each unit of a period."""

PIECES_MAX = 50_000_000
"""Periods of one channel that are derived in one run, at most."""


@dataclass(frozen=True)
class RawField:
    """A field of a raw series.

    Attributes
    ----------
    series
        Path of the series.
    field
        The field; by default the only one of the class, or ``value``.
    channel
        A channel whose values go with all channels of the other series; by default channels go together.
    """

    series: str
    field: str | None = None
    channel: int | None = None

    @classmethod
    def of(cls, given: RawField | str | Mapping[str, Any]) -> RawField:
        """Return a field from a path such as ``"dcs/hv"``, or from its attributes."""
        if isinstance(given, Mapping):
            return cls(**given)
        return given if isinstance(given, RawField) else cls(given)

    def name_in(self, series: Series) -> str:
        """Return the name of the field in the class of the series.

        Raises
        ------
        InvalidError
            If the class has several fields, and none is given; or the field is not a number.
        """
        fields = series.definition.record.by_name
        name = self.field or (next(iter(fields)) if len(fields) == 1 else "value")
        if name not in fields:
            listed = ", ".join(fields)
            raise InvalidError(f"{self.series} has no field {name!r}; choose a field: {listed}")
        node = fields[name]
        if not isinstance(node, Primitive) or node.dtype.kind not in "biuf":
            raise InvalidError(f"field {name!r} of {self.series} is {node}; a reduction takes numbers")
        return name


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How a series is derived: the base of :class:`DeadBand`, :class:`Mean` and :class:`Function`."""

    to: str
    """Path of the derived series."""
    channels: Sequence[int] | None = None
    """The channels to derive; all by default."""

    compared: ClassVar[tuple[str, ...]] = ("value",)
    """Fields of which one has to differ for a condition to be put again."""

    @property
    def raw(self) -> dict[str, RawField]:
        """The fields from which it is derived, by names."""
        raise NotImplementedError

    def form(self) -> dict[str, Any]:
        """Return the class of the derived conditions."""
        raise NotImplementedError

    def span(self, since: int, until: int) -> tuple[int, int]:
        """Return the range that has to be derived if raw conditions in a range have changed."""
        return since, until

    def done(self, newest: int) -> int:
        """Return the moment up to which can be derived, if the newest raw condition begins at `newest`."""
        return FOREVER

    def derive(self, raw: dict[str, Segments], start: int, before: dict[str, Any] | None) -> Segments:
        """Return the derived segments of a channel.

        Parameters
        ----------
        raw
            Raw segments of the range, by name; each has the field ``value``.
        start
            The first moment of the range.
        before
            The fields of the derived condition that is valid before the range.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class DeadBand(Reduction):
    """A new condition only where the value has moved by more than a band from that of the last one.

    Attributes
    ----------
    source
        The raw series, or one field of it.
    band
        How much a value may differ without a new condition.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> form = {"name": "Value", "fields": [{"name": "value", "type": "float64"}]}
    >>> with fed.transaction() as txn:
    ...     raw = txn.series("dcs/hv", form, create=True, overlap="open")
    ...     oids = raw.extend({"value": [1350.0, 1350.2, 1351.0, 1350.8]}, since=[0, 10, 20, 30])
    >>> reduced = fed.conditions.reduce(fb.DeadBand(to="offline/hv", source="dcs/hv", band=0.5))
    >>> [(i.since, i.until) for i in fed.conditions()["offline/hv"].intervals()]
    [(0, 20), (20, 9223372036854775807)]
    """

    source: RawField | str
    band: float

    @property
    def raw(self) -> dict[str, RawField]:
        return {"value": RawField.of(self.source)}

    def form(self) -> dict[str, Any]:
        return _form("DeadBandValue", ["value"], RANGE)

    def span(self, since: int, until: int) -> tuple[int, int]:
        # A condition depends on the one before, so that a change may go on to the end.
        return since, FOREVER

    def derive(self, raw: dict[str, Segments], start: int, before: dict[str, Any] | None) -> Segments:
        segments = raw["value"]
        values = segments.fields["value"].astype(np.float64)
        kept = _moved(values, _begins(segments, start if before else None), self.band, before)
        first = np.array([position for position, _ in kept], np.int64)
        if not len(first):
            return Segments.new(segments.since, segments.until, _nothing(("value", "raw_first", "raw_last")))
        fields = {
            "value": np.array([value for _, value in kept]),
            "raw_first": np.minimum.reduceat(segments.entries, first),
            "raw_last": np.maximum.reduceat(segments.entries, first),
        }
        last = np.append(first[1:] - 1, len(values) - 1)
        return Segments.new(segments.since[first], segments.until[last], fields)


@dataclass(frozen=True, kw_only=True)
class Mean(Reduction):
    """One condition for each period: the mean of the value, weighted by how long each value was valid.

    A period is derived once a raw condition begins at its end or later, in any channel. Fields: ``mean``;
    ``min``; ``max``; ``rms``, the root mean square of the differences from the mean; ``count``, the number of
    raw conditions. NaN is left out.

    Attributes
    ----------
    source
        The raw series, or one field of it.
    every
        Length of a period, such as ``"10 s"``, ``"1 min"`` or ``"1 h"``; periods are counted from 1970.
    """

    source: RawField | str
    every: str

    compared: ClassVar[tuple[str, ...]] = ("mean", "min", "max", "rms", "count")

    @property
    def raw(self) -> dict[str, RawField]:
        return {"value": RawField.of(self.source)}

    @property
    def nanoseconds(self) -> int:
        """Length of a period."""
        found = re.fullmatch(r"\s*(\d+)\s*(\w+)\s*", self.every)
        length = int(found[1]) * SECONDS.get(found[2], 0) if found else 0
        if not 0 < length < FOREVER:
            raise InvalidError(
                f"{self.every!r} is not a length of time; write a number and one of {', '.join(SECONDS)}"
            )
        return length

    def form(self) -> dict[str, Any]:
        counts = [{"name": "count", "type": "uint64"}, *RANGE]
        return _form("MeanValue", ["mean", "min", "max", "rms"], counts)

    def span(self, since: int, until: int) -> tuple[int, int]:
        length = self.nanoseconds
        end = min(-(-until // length), FOREVER // length) * length
        return max(since // length * length, self._lowest), end

    def done(self, newest: int) -> int:
        return max(newest // self.nanoseconds * self.nanoseconds, self._lowest)

    @property
    def _lowest(self) -> int:
        """The first period: no raw condition begins before it, and its moments fit into 64 bits."""
        return -(2**62) // self.nanoseconds * self.nanoseconds

    def derive(self, raw: dict[str, Segments], start: int, before: dict[str, Any] | None) -> Segments:
        segments, length = raw["value"], self.nanoseconds
        segments = segments.where(~np.isnan(segments.fields["value"].astype(np.float64)))
        if not len(segments):
            return Segments.new(
                segments.since, segments.until, _nothing((*self.compared, "raw_first", "raw_last"))
            )
        bins, positions, weights = _pieces(segments, length)
        values = segments.fields["value"].astype(np.float64)[positions]
        firsts = np.flatnonzero(np.append(True, np.diff(bins) != 0))
        counts = np.diff(np.append(firsts, len(bins)))
        total = np.add.reduceat(weights, firsts)
        mean = np.add.reduceat(weights * values, firsts) / total
        square = np.add.reduceat(weights * (values - np.repeat(mean, counts)) ** 2, firsts) / total
        entries = segments.entries[positions]
        fields = {
            "mean": mean,
            "min": np.minimum.reduceat(values, firsts),
            "max": np.maximum.reduceat(values, firsts),
            "rms": np.sqrt(square),
            "count": counts,
            "raw_first": np.minimum.reduceat(entries, firsts),
            "raw_last": np.maximum.reduceat(entries, firsts),
        }
        since = bins[firsts] * length
        return Segments.new(since, since + length, fields)


@dataclass(frozen=True, kw_only=True)
class Function(Reduction):
    """A function of several series, where all of them are valid and a condition holds.

    Attributes
    ----------
    inputs
        The series, or fields of series, by the names that they have in the function.
    value
        The function, such as ``"hv * current"``.
    where
        The condition, such as ``"state == 1"``. Where it does not hold there is a gap.
    """

    inputs: dict[str, RawField | str | dict[str, Any]]
    value: str
    where: str | None = None

    @property
    def raw(self) -> dict[str, RawField]:
        return {name: RawField.of(given) for name, given in self.inputs.items()}

    def form(self) -> dict[str, Any]:
        name = "".join(part.capitalize() for part in re.findall(r"[A-Za-z0-9]+", self.to))
        entries = [{"name": f"{each}_entry", "type": "uint64"} for each in self.inputs]
        return _form(f"{name}Value", ["value"], entries)

    def derive(self, raw: dict[str, Segments], start: int, before: dict[str, Any] | None) -> Segments:
        bounds = np.unique(np.concatenate([each for one in raw.values() for each in (one.since, one.until)]))
        starts = bounds[:-1]
        positions = {name: positions_at(one, starts) for name, one in raw.items()}
        chosen = np.flatnonzero(np.logical_and.reduce([each >= 0 for each in positions.values()]))
        columns = {name: one.fields["value"][positions[name][chosen]] for name, one in raw.items()}
        if self.where is not None:
            kept = self._evaluate("where", self.where, columns, len(chosen))
            chosen, columns = chosen[kept], {name: values[kept] for name, values in columns.items()}
        values = self._evaluate("value", self.value, columns, len(chosen)).astype(np.float64)
        is_equal = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
        is_first = np.append(True, (np.diff(chosen) != 1) | ~is_equal)[: len(chosen)]
        first = np.flatnonzero(is_first)
        last = np.append(first[1:] - 1, len(chosen) - 1)[: len(first)]
        fields = {"value": values[first]}
        for name, one in raw.items():
            fields[f"{name}_entry"] = one.entries[positions[name][chosen[first]]]
        return Segments.new(starts[chosen[first]], bounds[1:][chosen[last]], fields)

    def _evaluate(self, role: str, text: str, columns: dict[str, Values], length: int) -> Values:
        if not length:
            return np.zeros(0, bool if role == "where" else np.float64)
        types = [{"name": name, "type": str(values.dtype)} for name, values in columns.items()]
        try:
            parsed = Selection.parse(text, definition_of({"name": "Inputs", "fields": types}))
            if parsed.terms:
                columns = columns | parsed.computed(ak.Array(columns))
            if role == "where":
                return parsed.evaluate(columns, length)
            given = {name: columns[path] for name, path in parsed.variables.items()}
            found = numexpr.evaluate(parsed.expression, local_dict=given, global_dict={})
        except (InvalidError, NotFoundError) as error:
            raise InvalidError(f"{self.to}: {str(error).replace('where', role, 1)}") from None
        except Exception as error:
            raise InvalidError(f"{self.to}: value {text!r} cannot be evaluated: {error}") from error
        return np.broadcast_to(found, (length,))


def reductions_of(table: Any) -> list[Reduction]:
    """Return reductions from a table, as a file in TOML has it.

    Raises
    ------
    InvalidError
        If the table is malformed.
    """
    kinds = {"dead-band": DeadBand, "mean": Mean, "function": Function}
    listed = table.get("reduction") if isinstance(table, dict) else None
    if not isinstance(listed, list):
        raise InvalidError("there are no reductions; write a table [[reduction]] for each")
    found: list[Reduction] = []
    for number, each in enumerate(listed, 1):
        settings = dict(each)
        kind = settings.pop("kind", None)
        if kind not in kinds:
            raise InvalidError(f"reduction {number} has kind {kind!r}; there are {', '.join(kinds)}")
        if "from" in settings:
            source = {name: settings.pop(name) for name in ("field", "channel") if name in settings}
            settings["source"] = RawField(settings.pop("from"), **source)
        try:
            found.append(kinds[kind](**settings))
        except TypeError as error:
            reason = re.sub(r".*__init__\(\) ", "", str(error))
            raise InvalidError(f"reduction {number}, {settings.get('to', kind)}: {reason}") from None
    return found


def _form(name: str, numbers: list[str], more: list[dict[str, str]]) -> dict[str, Any]:
    fields = [{"name": each, "type": "float64"} for each in numbers]
    return {"name": name, "fields": [*fields, *more, {"name": CSN, "type": "uint64"}]}


def _nothing(names: Sequence[str]) -> dict[str, Values]:
    return {name: np.zeros(0) for name in names}


def _begins(segments: Segments, before: int | None) -> Values:
    """Return which segments begin after a gap; `before` is where the segment before them ends, if any."""
    ends = np.append(segments.since[:1] - 1 if before is None else before, segments.until[:-1])
    begins: Values = segments.since != ends[: len(segments)]
    return begins


def _moved(
    values: Values, is_after_gap: Values, band: float, before: dict[str, Any] | None
) -> list[tuple[int, float]]:
    """Return where new conditions begin, with their values."""
    last = before["value"] if before else None
    kept: list[tuple[int, float]] = []
    for position, (value, is_begin) in enumerate(zip(values.tolist(), is_after_gap.tolist(), strict=True)):
        if not is_begin and last is not None and _is_within(value, last, band):
            if position == 0:
                kept.append((0, last))
            continue
        kept.append((position, value))
        last = value
    return kept


def _is_within(value: float, last: float, band: float) -> bool:
    return abs(value - last) <= band or (math.isnan(value) and math.isnan(last))


def _pieces(segments: Segments, length: int) -> tuple[Values, Values, Values]:
    """Cut segments at the ends of periods: the period, the segment and the duration of each piece."""
    first, last = segments.since // length, (segments.until - 1) // length
    counts = last - first + 1
    if int(counts.sum()) > PIECES_MAX:
        raise InvalidError(
            f"the range has {int(counts.sum()):,} periods, more than {PIECES_MAX:,}; choose longer ones, "
            "or correct raw conditions that begin too early"
        )
    positions = np.repeat(np.arange(len(segments)), counts)
    offsets = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    bins = first[positions] + offsets
    begins = np.maximum(segments.since[positions], bins * length)
    ends = np.minimum(segments.until[positions], (bins + 1) * length)
    return bins, positions, (ends - begins).astype(np.float64)

"""A container at a glance: its fields, its first objects, histograms of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._exceptions import ClosedError, InvalidError
from .._html import html_table
from .._objects import has_python_values, plain_value
from .._positions import check_count
from .._query.paths import Expressions
from .._query.selection import Where
from .._schema.types import Node, Primitive, Reduced, String, innermost, paths_of
from .columns import Columns
from .requests import Request

if TYPE_CHECKING:
    from .descriptions import Description
    from .histograms import Axes

__all__ = ["Summaries"]

SHOWN_OBJECTS = 5
"""Objects that a notebook shows."""

SHOWN_FIELDS = 12
"""Fields of them that a notebook shows."""

PROBED_OBJECTS = 1000
"""Number of objects whose links are followed to find the types of fields behind links."""


class Summaries(Columns):
    """A container as of a snapshot, with the methods for a first look."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def head(self, count: int = 5) -> Self:
        """Return the first objects.

        Parameters
        ----------
        count
            How many; a negative number stands for all but the last ones, as in pandas.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(10)})
        >>> len(fed["d/numbers"].head(3)), len(fed["d/numbers"].head(-1))
        (3, 9)
        """
        check_count(count, "head")
        found: Self = self[:count]
        return found

    def sample(self, count: int, *, seed: int | None = None) -> Self:
        """Return `count` objects chosen at random, in their order; of all if there are fewer.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(100)})
        >>> len(fed["d/numbers"].sample(10, seed=1))
        10
        """
        check_count(count, "sample")
        if count < 0:
            raise InvalidError(f"a sample of {count} objects: must be 0 or more")
        chosen = np.random.default_rng(seed).choice(len(self), min(count, len(self)), replace=False)
        found: Self = self[np.sort(chosen)]
        return found

    def sort_by(self, *keys: str, descending: bool = False, aliases: Mapping[str, str] | None = None) -> Self:
        """Return the objects in the order of fields with one value per object.

        Objects with equal values keep their order. Missing values and NaN come last.

        Parameters
        ----------
        keys
            Dotted names of fields, also behind links, or names of `aliases`; the first one counts most.
        descending
            Whether the greatest values come first.
        aliases
            Computed columns, as for :meth:`arrays`.

        Raises
        ------
        InvalidError
            If a key has several values per object, or values without an order.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 7, 6]})
        >>> fed["d/numbers"].sort_by("n", descending=True)["n"].to_list()
        [7, 6, 5]
        """
        from .ordering import order_of  # This imports awkward.

        if not keys:
            raise InvalidError("sort_by takes the name of a field, such as sort_by('pt')")
        found: Self = self[order_of(self.arrays(list(keys), aliases=aliases), keys, descending)]
        return found

    def show(self) -> None:
        """Print the names and types of the fields."""
        types = self.typenames()
        width = max(map(len, types), default=0)
        print(f"{self.name}: {len(self):,} objects of class {self.definition.name}")
        for path, text in types.items():
            print(f"  {path:<{width}}  {text}")

    def hist(
        self,
        *axes: Axes,
        where: Where = None,
        weight: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> Any:
        """Fill histograms of the selected objects, in one pass and without keeping their arrays.

        Several values of an object are counted one by one; missing values are not counted. Several threads
        read and fill.

        Parameters
        ----------
        axes
            For each histogram, the name of a field, a list of names for one axis each, or a dictionary with
            the bins of each: a number of bins from the smallest to the largest value, ``(bins, low, high)``,
            a list of edges, or an axis of hist. 50 bins if none are given.
        where
            Condition on the objects, as for :meth:`View.arrays`.
        weight
            Field with the weight of each object, or of each value.
        aliases
            Computed columns that `axes`, `where` and `weight` may name, as for :meth:`View.arrays`.

        Returns
        -------
        hist.Hist or list of hist.Hist
            One histogram, or one for each of several `axes`.

        Raises
        ------
        NotFoundError
            If a field does not exist; near misses are named.
        InvalidError
            If bins or condition are malformed, or a field has no numbers.
        UnsupportedError
            If the library hist is not installed.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Event", "fields": [{"name": "run", "type": "int32"},
        ...             {"name": "pt", "type": {"list": "float32"}}]}
        ...     events = txn.database("d", create=True).container("events", form, create=True)
        ...     oids = events.extend({"run": [7, 7, 8], "pt": [[3, 5], [], [5]]})
        >>> fed["d/events"].hist({"pt": (3, 0, 6)}, where="run == 7").values()
        array([0., 1., 1.])
        """
        from .histograms import filled  # This imports awkward.

        found = filled(self, axes, where, weight, aliases)
        return found[0] if len(found) == 1 else found

    def describe(
        self,
        expressions: Expressions = None,
        where: Where = None,
        *,
        aliases: Mapping[str, str] | None = None,
    ) -> Description:
        """Return the number of values of each field, their limits, mean and standard deviation.

        Values in lists are counted one by one. Records and links are not described, but their members are.

        Parameters
        ----------
        expressions, where, aliases
            As for :meth:`View.arrays`; all fields and objects if not given.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 6, 7]})
        >>> fed["d/numbers"].describe()
        field  type   values  missing  least  mean  deviation  most
        n      int32       3        0      5     6   0.816497     7
        """
        from .descriptions import described  # This imports awkward.

        request = Request.of(self.definition, expressions, aliases=aliases)
        empty = self._array_of(request.projection, None, self._part(0, 0))
        first = self._batches(request.projection, None, self._part(0, PROBED_OBJECTS), PROBED_OBJECTS)
        record = request.type_of(empty, first)
        found = {path: str(node) for path, node in paths_of(record) if _is_described(innermost(node))}
        computed = aliases or ()
        # A member of a computed record is no expression, but the record is one.
        read = dict.fromkeys(top if (top := path.partition(".")[0]) in computed else path for path in found)
        return described(found, self.iterate(list(read), where, aliases=aliases) if found else iter(()))

    def _repr_html_(self) -> str:
        """Return a table of the first objects for notebooks."""
        try:
            names = self.fields[:SHOWN_FIELDS]
            first = self[:SHOWN_OBJECTS]
            values = first.arrays(names).to_list()
            types = self.definition.record.by_name
            for name in (name for name in names if has_python_values(types[name], in_records=True)):
                for row, each in zip(values, first, strict=True):
                    row[name] = plain_value(each[name], types[name])
        except ClosedError:
            return f"<pre>{escape(repr(self))}</pre>"
        further = len(self.fields) - len(names)
        caption = f"{self.name}: {len(self):,} objects of class {self.definition.name}" + (
            f", {further} further fields" if further else ""
        )
        head = [(name, str(types[name])) for name in names]
        return html_table(caption, head, ([row[name] for name in names] for row in values))


def _is_described(node: Node) -> bool:
    """Whether values are numbers, times or texts; bytes have no meaning one by one."""
    return isinstance(node, Primitive | Reduced | String) and node != Primitive("byte")

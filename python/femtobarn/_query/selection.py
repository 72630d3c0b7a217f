"""Selections of entries by an expression: the ``where`` of :meth:`femtobarn.View.arrays`.

Python's parser reads the expression; numexpr evaluates it, or NumPy where that is faster. In between, dotted
names of fields become variables of numexpr, and ``nX`` or ``len(X)`` becomes the number of items of the
collection X. Parts that numexpr cannot compute become variables, too: texts, lists, missing values, and
fields behind links (:mod:`femtobarn._query.array_terms`). Python itself evaluates nothing, so that an
expression can do nothing but compute.

Arithmetic has 64 bits, as in terms.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, NotFoundError, WrongTypeError, check_text
from .._lazy import numexpr
from .._schema.types import Definition
from .array_terms import ArrayTerm
from .comparisons import Comparison, comparison_of
from .function_terms import FunctionTerm
from .meant_constants import with_stored_constants
from .missing_values import where_known
from .rewriting import COUNT, TERM, Rewriter, foreign_operator
from .syntax import parsed

__all__ = ["COUNT", "Selection", "Where", "steps_of"]

Where: TypeAlias = str | Callable[[Any], Any] | None
"""A condition: a text, or a function that takes an array of objects and returns a truth value for each."""


@dataclass
class Selection:
    """A parsed condition on entries, which is evaluated batch by batch.

    Examples
    --------
    >>> import femtobarn as fb
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"},
    ...         {"name": "Muon", "type": {"list": "float32"}}]}
    >>> selection = Selection.parse("run == 7 and nMuon >= 2", fb.definition_of(form))
    >>> selection.fields, selection.collections
    (['run'], ['Muon'])
    >>> selection.evaluate({"run": np.array([7, 7, 8]), "#Muon": np.array([2, 1, 2])}, 3)
    array([ True, False, False])
    """

    text: str
    expression: str
    variables: dict[str, str] = field(default_factory=dict)
    """The column of each variable of numexpr: the path of a field, ``#`` and the path of a collection, or
    ``=`` and the text of a term."""
    terms: Mapping[str, ArrayTerm | FunctionTerm] = field(default_factory=dict)
    """The terms by their columns."""

    @classmethod
    def of(cls, where: Where, definition: Definition) -> Selection | None:
        """Return the selection of a condition, or None if there is none; see :meth:`parse`."""
        if not callable(where):
            return None if where is None else cls.parse(where, definition)
        term = FunctionTerm(where)
        return cls(term.text, "v0", {"v0": TERM + term.text}, {TERM + term.text: term})

    @classmethod
    def parse(cls, text: str, definition: Definition) -> Selection:
        """Read an expression over the fields of a class.

        Raises
        ------
        InvalidError
            If the text is not an expression, or uses a field that does not have one number per entry.
        NotFoundError
            If a field or function does not exist; near misses are named.
        """
        if not isinstance(text, str):
            raise WrongTypeError(
                f'where must be a string such as "nMuon == 2 and pt > 30", or a function, not {text!r}; '
                "to choose by a mask, index the view with it"
            )
        check_text(text, "where")
        stored = definition.as_stored
        rewriter = Rewriter(text, stored)
        try:
            condition = parsed(text.strip())
            if stored is not definition:
                condition = with_stored_constants(condition, definition)
            body = rewriter.visit(condition)
            expression = ast.unparse(ast.fix_missing_locations(body))
        except (InvalidError, NotFoundError) as error:
            said = str(error) if str(error).startswith("where ") else f"where {text!r}: {error}"
            raise type(error)(said) from None
        except (SyntaxError, ValueError) as error:
            reason = foreign_operator(text) or getattr(error, "msg", str(error))
            raise InvalidError(f"where {text!r} is not an expression: {reason}") from None
        except (RecursionError, MemoryError):
            raise InvalidError(f"where {text[:60]!r}... has too many parts within each other") from None
        return cls(text, expression, rewriter.variables, rewriter.terms)

    @property
    def fields(self) -> list[str]:
        """Paths of the fields whose values are needed."""
        return [path for path in self.variables.values() if not path.startswith((COUNT, TERM))]

    @property
    def collections(self) -> list[str]:
        """Paths of the collections whose numbers of items are needed."""
        return [path[len(COUNT) :] for path in self.variables.values() if path.startswith(COUNT)]

    @property
    def function(self) -> FunctionTerm | None:
        """The function, if the condition is one."""
        return next((term for term in self.terms.values() if isinstance(term, FunctionTerm)), None)

    @property
    def paths_of_terms(self) -> list[str]:
        """Paths of the fields that terms read, as far as they are known."""
        return list(dict.fromkeys(path for term in self.terms.values() for path in term.paths))

    def computed(self, array: Any) -> dict[str, Values]:
        """Return the values of :attr:`terms` by their keys.

        Parameters
        ----------
        array
            The fields of :attr:`paths_of_terms`, of each entry, as an awkward array.

        Raises
        ------
        InvalidError
            If a term cannot be computed, or has several values per entry.
        """
        try:
            return {key: term.values(array) for key, term in self.terms.items()}
        except (InvalidError, NotFoundError) as error:
            raise type(error)(f"where {self.text!r}: {error}") from error.__cause__

    @cached_property
    def _comparison(self) -> Comparison | None:
        return comparison_of(self.expression)

    def evaluate(self, columns: Mapping[str, Values], length: int) -> Values:
        """Return a mask of the selected entries.

        Parameters
        ----------
        columns
            Values of :attr:`fields` by path, numbers of items by ``#`` and the path, and values of
            :attr:`terms` by their keys, each of shape (length,); masked arrays where values are missing.
        length
            Number of entries.

        Returns
        -------
        numpy.ndarray
            Truth values, shape (length,).

        Raises
        ------
        InvalidError
            If the expression cannot be evaluated, or gives numbers.
        """
        given = {name: columns[path] for name, path in self.variables.items()}
        values = {name: _signed(np.ma.filled(each, 0), self.variables[name]) for name, each in given.items()}
        present = {
            f"is_{name}": ~np.ma.getmaskarray(each) for name, each in given.items() if np.ma.is_masked(each)
        }
        expression = self.expression
        if expression in values and values[expression].dtype != np.bool_:
            raise self._no_truth(values[expression].dtype)
        if present:
            expression = where_known(expression, {name.removeprefix("is_"): name for name in present})
        elif self._comparison is not None and all(each.dtype.kind in "fiu" for each in values.values()):
            return self._comparison(values)
        wide = {name: _in_64_bits(each) for name, each in values.items()}
        try:
            selected = numexpr.evaluate(expression, local_dict={**wide, **present}, global_dict={})
        except Exception as error:
            raise InvalidError(f"where {self.text!r} cannot be evaluated: {error}") from error
        if selected.dtype != np.bool_:
            raise self._no_truth(selected.dtype)
        return np.broadcast_to(selected, (length,)) if selected.ndim == 0 else selected

    def _no_truth(self, dtype: Any) -> InvalidError:
        return InvalidError(f"where {self.text!r} gives numbers ({dtype}), not truth values; compare them")


def _signed(values: Values, path: str) -> Values:
    """Return unsigned numbers of 64 bits as signed ones."""
    if values.dtype != np.uint64:
        return values
    if values.size and int(values.max()) > np.iinfo(np.int64).max:
        name = path.removeprefix(TERM)
        raise InvalidError(f"{name!r} has values of 2^63 or more, which where cannot compare")
    return values.view(np.int64)


def _in_64_bits(values: Values) -> Values:
    """Return numbers in the type in which numexpr computes with them."""
    wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(values.dtype.kind)
    return values if wide is None else values.astype(wide, copy=False)


def steps_of(selection: Selection) -> list[Selection]:
    """Return conditions that hold together where a condition does; those that read the least come first.

    The columns of a part need to be read only where the parts before it leave a candidate. First come
    comparisons of fields with one number per entry, then those with numbers of items, then terms. Terms that
    read the same field stay together.

    Examples
    --------
    >>> import femtobarn as fb
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"},
    ...         {"name": "Muon", "type": {"list": "float32"}}]}
    >>> text = "any(Muon > 30) and nMuon > 1 and run == 7 and run % 2 == 1"
    >>> [step.expression for step in steps_of(Selection.parse(text, fb.definition_of(form)))]
    ['(v2 == 7) & (v2 % 2 == 1)', 'v1 > 1', 'v0']
    """
    of_fields: list[ast.expr] = []
    of_counts: list[ast.expr] = []
    of_terms: list[tuple[set[str], list[ast.expr]]] = []
    for part in _conjuncts(parsed(selection.expression)):
        columns = {selection.variables[name] for name in _names(part)}
        paths = {
            path for column in columns & selection.terms.keys() for path in selection.terms[column].paths
        }
        if columns & selection.terms.keys():
            known = next((group for group in of_terms if group[0] & paths), None)
            if known is None:
                of_terms.append((paths, [part]))
            else:
                known[0].update(paths)
                known[1].append(part)
        else:
            (of_counts if any(column.startswith(COUNT) for column in columns) else of_fields).append(part)
    steps = [parts for parts in (of_fields, of_counts, *(group[1] for group in of_terms)) if parts]
    return [_of_parts(selection, parts) for parts in steps] if len(steps) > 1 else [selection]


def _conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the operands of `and`, which numexpr has as ``&``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _names(node: ast.expr) -> set[str]:
    """Return the variables of a part: all names but those of functions."""
    functions = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in functions}


def _of_parts(selection: Selection, parts: list[ast.expr]) -> Selection:
    expression = reduce(lambda left, right: ast.BinOp(left, ast.BitAnd(), right), parts)
    names = _names(expression)
    variables = {name: column for name, column in selection.variables.items() if name in names}
    terms = {column: term for column, term in selection.terms.items() if column in variables.values()}
    return replace(selection, expression=ast.unparse(expression), variables=variables, terms=terms)

"""The parts of a condition that must all hold, in the order in which they are evaluated.

The columns of a part need to be read only where the parts before it leave a candidate.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from .selection import COUNT, Selection
from .syntax import parsed

__all__ = ["steps_of"]


def steps_of(selection: Selection) -> list[Selection]:
    """Return conditions that hold together where a condition does; those that read the least come first.

    First come comparisons of fields with one number per entry, then those with numbers of items, then terms.
    Terms that read the same field stay together.

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

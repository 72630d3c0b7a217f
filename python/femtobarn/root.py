"""ROOT: data frames over containers, and the headers for C and C++.

The functions of the C API are in the extension module, so that Python and C++ share one engine in a process.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _femtobarn
from ._exceptions import InvalidError
from ._query.array_terms import path_of
from ._query.meant_constants import with_stored_constants
from ._query.syntax import parsed
from ._schema.types import Definition

if TYPE_CHECKING:
    from ._views.view import View

__all__ = ["FromFemtobarn", "include_folder", "load"]

SIGNS: dict[type[ast.cmpop], int] = {
    ast.Lt: 0,
    ast.LtE: 1,
    ast.Gt: 2,
    ast.GtE: 3,
    ast.Eq: 4,
    ast.NotEq: 5,
}
"""The comparisons of ``femtobarn.h``."""

SWAPPED = {0: 2, 1: 3, 2: 0, 3: 1, 4: 4, 5: 5}
"""The comparison after its sides are swapped."""


def include_folder() -> Path:
    """Return the folder of ``femtobarn.h``, ``femtobarn.hpp`` and ``femtobarn_rdf.hxx``."""
    return Path(__file__).parent / "include"


@cache
def load() -> Any:
    """Load the data source ``femtobarn_rdf.hxx``, so that ``ROOT.RDF.FromFemtobarn`` exists; return ROOT.

    Raises
    ------
    ImportError
        If ROOT is not installed, or too old for the data source.
    """
    import ROOT

    if ROOT.gSystem.Load(str(_femtobarn.__file__)) < 0:
        raise ImportError("ROOT cannot load the extension module of Femtobarn")
    header = include_folder() / "femtobarn_rdf.hxx"
    # Readers are called for each entry, and by default ROOT optimises jitted code little.
    if not ROOT.gInterpreter.Declare(f'#pragma cling optimize(3)\n#include "{header}"'):
        raise ImportError("ROOT cannot compile femtobarn_rdf.hxx: it needs ROOT 6.40 or newer")
    return ROOT


def FromFemtobarn(
    federation: str | View,
    container: str | None = None,
    *,
    tag: str | None = None,
    csn: int | None = None,
    where: str | None = None,
) -> Any:
    """Return the objects of a container as a ``ROOT.RDataFrame``.

    Columns have ROOT's names, ``Muon.pt`` and ``R_rdf_sizeof_Muon``, and those of NanoAOD, ``Muon_pt`` and
    ``nMuon``. With ``ROOT.EnableImplicitMT()`` clusters are read in parallel.

    Parameters
    ----------
    federation
        A folder or URL, or a view of a whole container instead of all other arguments but `where`. The frame
        opens the federation again as that of the view was opened, with its caches and time-outs.
    container
        The path of the container, such as ``"run7/events"``.
    tag, csn
        The name of a tag, or the number of a commit; without either the newest commit.
    where
        Comparisons of fields with constants, joined by ``and``: ``"nMuon >= 2 and MET.pt > 20"``. They
        are not read in clusters whose statistics exclude a match. All else is for ``Filter``.

    Raises
    ------
    InvalidError
        If the condition does more, the view is a part of a container, or both a tag and a commit are given.
    NotFoundError
        If there is no such container, commit or tag.
    ImportError
        If ROOT is not installed, or too old for the data source.
    """
    from ._federations import open as open_federation
    from ._snapshots import Snapshot
    from ._views.view import View

    if isinstance(federation, View):
        if container is not None or tag is not None or csn is not None:
            raise InvalidError("a view has its container and its commit: pass no container, tag or csn")
        is_plain = type(federation) is View and type(federation.snapshot) is Snapshot
        is_whole = is_plain and len(federation._window) == federation._handle.entries
        if not is_whole or federation._recast_to is not None:
            raise InvalidError(
                "a data frame shows whole containers as of a commit: "
                "pass the view of one, and use Range or Filter"
            )
        return _frame(federation, where)
    if tag is not None and csn is not None:
        raise InvalidError("pass either a tag or the number of a commit")
    if container is None:
        raise InvalidError("pass the path of a container, such as 'run7/events'")
    with open_federation(federation) as opened:
        return _frame(opened.snapshot(csn=csn, tag=tag)[container], where)


def _frame(view: View, where: str | None) -> Any:
    root = load()
    conditions = root.std.vector["femtobarn::Condition"]()
    for path, sign, value in _comparisons(where, view.definition):
        conditions.push_back(root.femtobarn.Condition(path, sign, value))
    snapshot = view.snapshot
    address = snapshot.federation._handle.view_for_c(view.name, snapshot.csn)
    return root.femtobarn.Internal.FrameOf(address, root.femtobarn.Conditions(conditions))


def _comparisons(where: str | None, definition: Definition) -> list[tuple[str, int, int | float | str]]:
    """Return the comparisons of a condition: paths, numbers of signs, constants.

    Examples
    --------
    >>> import femtobarn as fb
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"},
    ...         {"name": "Muon", "type": {"list": "float32"}}]}
    >>> _comparisons("7 <= run < 9 and nMuon >= 2", fb.definition_of(form))
    [('run', 3, 7), ('run', 0, 9), ('Muon.#', 3, 2)]
    """
    if where is None:
        return []
    try:
        tree = parsed(where.strip())
    except (SyntaxError, ValueError) as error:
        raise InvalidError(f"invalid condition {where!r}: {error}") from None
    found = []
    for part in _joined(with_stored_constants(tree, definition)):
        if not isinstance(part, ast.Compare):
            raise _too_much(part)
        sides = [part.left, *part.comparators]
        for left, kind, right in zip(sides, part.ops, sides[1:], strict=False):
            found.append(_comparison(left, kind, right, definition))
    return found


def _joined(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for value in node.values for part in _joined(value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*_joined(node.left), *_joined(node.right)]
    return [node]


def _comparison(
    left: ast.expr, kind: ast.cmpop, right: ast.expr, definition: Definition
) -> tuple[str, int, int | float | str]:
    sign = SIGNS.get(type(kind))
    for field, constant, number in ((left, right, sign), (right, left, SWAPPED.get(sign or 0))):
        path, value = _field(field, definition), _constant(constant)
        if path is not None and value is not None and sign is not None and number is not None:
            return path, number, value
    raise _too_much(ast.Compare(left, [kind], [right]))


def _field(node: ast.expr, definition: Definition) -> str | None:
    """Return the path of a field, or of the size of a collection (``nMuon``, ``len(Muon)``)."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[]):
            path = path_of(inner)
            return None if path is None else f"{path}.#"
        case ast.Name() | ast.Attribute():
            path = path_of(node)
            names = {field.name for field in definition.fields}
            if path is not None and path not in names and path[:1] == "n" and path[1:] in names:
                return f"{path[1:]}.#"
            return path
    return None


def _constant(node: ast.expr) -> int | float | str | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return sign * value
    return value if isinstance(value, str) and sign == 1 else None


def _too_much(node: ast.AST) -> InvalidError:
    return InvalidError(
        f"{ast.unparse(node)!r} is not a field compared with a constant; use Filter of the data frame for it"
    )

"""Texts with half of a surrogate pair, which UTF-8 cannot hold: an error of ours, wherever they are passed.

The functions are found by introspection: those of the extension module in its stub, with arguments that fit
the types there; those of the package by their signatures.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
from femtobarn import _femtobarn

HALF = "a\ud800"

STUB = ast.parse(Path(fb.__file__).with_name("_femtobarn.pyi").read_text())


@fb.persistent
class Event:
    run: fb.int32
    name: str


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """An object of each class that has methods with texts."""
    folder = tmp_path_factory.mktemp("surrogates")
    with fb.create(folder / "lhc.fed") as fed:
        with fed.transaction() as txn:
            events = txn.database("d", create=True).container("events", Event, create=True)
            events.append(Event(run=1, name="a"))
            txn.series(
                "d/flag", {"name": "Flag", "fields": [{"name": "on", "type": "bool"}]}, create=True
            ).put({"on": True}, since=5)
        job, view, snapshot = fed.conditions(), fed["d/events"], fed.snapshot()
        with fed.transaction() as txn, fb.serve(folder, port=0, address="127.0.0.1") as server:
            database = txn.database("d")
            writer = database.container("events")
            sessions: list[Any] = [fed, snapshot, view, txn, database, writer, job, job["d/flag"]]
            sessions += [fed.conditions, txn.series("d/flag"), fb.concat([view, view]), server]
            found: dict[str, Any] = {type(each).__name__: each for each in sessions}
            handles: tuple[Any, ...] = (fed, snapshot, view, txn, writer, job, job["d/flag"], server)
            found |= {type(each._handle).__name__: each._handle for each in handles}
            found["UpkeepHandle"] = fed._handle.upkeep()
            found["ExportHandle"] = _femtobarn.ExportHandle.create(folder / "x.root", "x")
            found["Definition"] = view.definition
            yield found
            txn.rollback()


SESSIONS = {
    *("Federation", "Snapshot", "View", "Collection", "Transaction", "Database", "ContainerWriter"),
    *("Conditions", "Job", "Series", "SeriesWriter", "Server", "Definition"),
}
"""The public classes of which there is an object."""


def functions_of_the_module() -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("__"):
                    yield f"{node.name}.{each.name}", each


def texts_of_the_module() -> Iterator[tuple[str, str]]:
    for name, node in functions_of_the_module():
        for argument in node.args.args:
            annotation = ast.unparse(argument.annotation) if argument.annotation else ""
            if "str" in annotation or "_Path" in annotation:
                yield name, argument.arg


def value_for(annotation: ast.expr, text: str, live: dict[str, Any]) -> Any:
    """Return a value of a type of the stub, with `text` for all texts and paths in it."""
    match annotation:
        case ast.Name(id="str" | "_Path"):
            return text
        case ast.Name(id="int" | "float" | "bool" as name):
            return {"int": int, "float": float, "bool": bool}[name]()
        case ast.Name(id="ReadableBuffer"):
            return b""
        case ast.Name(id=name):
            return live.get(name)
        case ast.BinOp(left=left):
            return value_for(left, text, live)
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, value])):
            return {value_for(key, text, live): value_for(value, text, live)}
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return tuple(value_for(each, text, live) for each in items)
        case ast.Subscript(slice=item):
            return [value_for(item, text, live)]
    raise AssertionError(ast.unparse(annotation))


@pytest.mark.parametrize(("name", "wrong"), list(texts_of_the_module()))
def test_the_extension_module_refuses_them(live: dict[str, Any], name: str, wrong: str) -> None:
    function = dict(functions_of_the_module())[name]
    owner, _, method = name.rpartition(".")
    is_static = any(ast.unparse(each) == "staticmethod" for each in function.decorator_list)
    of = getattr(_femtobarn, owner) if is_static else live[owner] if owner else _femtobarn
    arguments = [
        value_for(each.annotation, HALF if each.arg == wrong else "a", live)
        for each in function.args.args
        if each.annotation is not None
    ]
    with pytest.raises(
        fb.InvalidError, match=r"half of a surrogate pair|must be a number, a string or an OID"
    ):
        getattr(of, method)(*arguments)


def texts_of_the_package() -> Iterator[tuple[str, str]]:
    for name in fb.__all__:
        public = getattr(fb, name)
        if inspect.isfunction(public):
            yield from ((name, argument) for argument in _texts(public))
        elif name in SESSIONS:
            for method, function in inspect.getmembers(public, inspect.isfunction):
                if not method.startswith("_"):
                    yield from ((f"{name}.{method}", argument) for argument in _texts(function))


def _texts(function: Callable[..., Any]) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        if "str" in str(parameter.annotation) or "Expressions" in str(parameter.annotation):
            yield name


def test_views_refuse_them(live: dict[str, Any]) -> None:
    view = live["View"]
    for refused in (view.to_root, view.to_parquet, lambda text: view.find(**{text: 1})):
        with pytest.raises((fb.InvalidError, fb.NotFoundError)):
            refused(HALF)
    with pytest.raises(fb.FemtobarnError, match="no such"):
        view.find(**{"no such": 1})


@pytest.mark.parametrize(("name", "wrong"), list(texts_of_the_package()))
def test_the_package_raises_no_error_of_an_encoding(
    live: dict[str, Any], name: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other arguments are guessed, so that a call may fail for another reason, or find nothing wrong."""
    monkeypatch.chdir(tmp_path)
    owner, _, method = name.rpartition(".")
    function = getattr(live[owner] if owner else fb, method)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument, parameter in inspect.signature(function).parameters.items():
        value = HALF if argument == wrong else {"int": 1, "float": 1.0}.get(str(parameter.annotation), "d")
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            if argument == wrong or parameter.default is parameter.empty:
                named |= {argument: value} if parameter.kind is not parameter.POSITIONAL_ONLY else {}
                positional += [value] if parameter.kind is parameter.POSITIONAL_ONLY else []
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += [value] if argument == wrong else []
        elif argument == wrong or parameter.default is parameter.empty:
            named[argument] = value
    try:
        found = function(*positional, **named)
        if isinstance(found, Iterator):
            next(found, None)
    except UnicodeError as error:
        pytest.fail(f"{name}({wrong}=...): {error!r}")
    except Exception:
        return

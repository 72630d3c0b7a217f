"""The annotations that declare fields of persistent classes, and the type that each stands for.

For a type checker ``fb.uint32`` is ``int`` and ``fb.variant[...]`` is a union, so that it checks the
arguments of a persistent class. At run time each carries the :class:`~femtobarn._schema.types.Node` of its
stored type.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from .._exceptions import InvalidError
from .meanings import Meaning, enumeration_meaning
from .types import (
    DTYPES,
    MAP_ITEM,
    TUPLE,
    Bitset,
    ElementLink,
    Field,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    String,
    Variant,
    innermost,
    stored_type,
)

__all__ = [
    "array",
    "bitset",
    "bool_",
    "byte",
    "char",
    "element_link",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "link",
    "quantised",
    "string",
    "truncated",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variant",
]

bool_ = Annotated[bool, Primitive("bool")]
byte = Annotated[int, Primitive("byte")]
char = Annotated[int, Primitive("char")]
int8 = Annotated[int, Primitive("int8")]
int16 = Annotated[int, Primitive("int16")]
int32 = Annotated[int, Primitive("int32")]
int64 = Annotated[int, Primitive("int64")]
uint8 = Annotated[int, Primitive("uint8")]
uint16 = Annotated[int, Primitive("uint16")]
uint32 = Annotated[int, Primitive("uint32")]
uint64 = Annotated[int, Primitive("uint64")]
float16 = Annotated[float, Reduced("float16")]
float32 = Annotated[float, Primitive("float32")]
float64 = Annotated[float, Primitive("float64")]
string = Annotated[str, String()]

if TYPE_CHECKING:
    from typing import Union as variant

    import numpy.typing as npt

    from .._objects.objects import ElementRef
    from .._oid import Oid

    T = TypeVar("T")
    N = TypeVar("N")

    class _Target(Generic[T]):
        """Carries the target class of a link, for type checkers alone: they accept any field of it."""

        def __getattr__(self, name: str) -> Any: ...

    link: TypeAlias = _Target[T] | Any
    element_link: TypeAlias = tuple[Oid, int] | ElementRef | _Target[T] | None
    array: TypeAlias = Sequence[T] | npt.NDArray[Any] | _Target[N]
else:

    class link:
        """A reference to an object of another class: ``link["RawEvent"]``.

        A link may be null, with or without ``| None``: None is stored as a null link, and is read as None, in
        arrays as a missing value.
        """

        def __class_getitem__(cls, target: Any) -> Node:
            return Link(_target_name(target, "link"))

    class element_link:
        """A reference to one element of a collection inside an object: ``element_link["Hits"]``.

        It may be null, as a :class:`link` may.
        """

        def __class_getitem__(cls, target: Any) -> Node:
            return ElementLink(_target_name(target, "element_link"))

    class array:
        """A list of fixed length: ``array[float32, 15]``."""

        def __class_getitem__(cls, parameters: Any) -> Any:
            if not isinstance(parameters, tuple) or len(parameters) != 2:
                raise InvalidError("fb.array takes a type and a size, such as fb.array[fb.float32, 3]")
            return _Unresolved("array", parameters)

    class variant:
        """One of several types: ``variant[int32, str]``.

        A value is stored in the alternative of its own type (Python's ``int`` is ``int64``, its ``float``
        ``float64``), else in the first that keeps its precision, else in the first that takes it.
        """

        def __class_getitem__(cls, parameters: Any) -> Any:
            alternatives = parameters if isinstance(parameters, tuple) else (parameters,)
            return _Unresolved("variant", alternatives)


class _Unresolved:
    """An array or a variant whose item types may still be forward references."""

    def __init__(self, kind: str, parameters: tuple[Any, ...]) -> None:
        self.kind = kind
        self.parameters = parameters

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - `|` would call this method again

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007 - as above


def truncated(bits: int) -> Any:
    """Declare a real number of single precision that is stored as its uppermost ``bits`` bits (10 to 31).

    Examples
    --------
    >>> str(truncated(16))
    'truncated(16)'
    """
    if not 10 <= bits <= 31:
        raise InvalidError(f"invalid bits {bits} of a truncated number: must be 10 to 31")
    return Reduced("truncated", bits)


def quantised(bits: int, min: float, max: float) -> Any:
    """Declare a real number between ``min`` and ``max``, stored as an integer of ``bits`` bits.

    Examples
    --------
    >>> str(quantised(12, 0, 100))
    'quantised(12, 0, 100)'
    """
    if not 1 <= bits <= 32:
        raise InvalidError(f"invalid bits {bits} of a quantised number: must be 1 to 32")
    if not min < max:
        raise InvalidError(
            f"invalid range {min:g} to {max:g} of a quantised number: min must be less than max"
        )
    return Reduced("quantised", bits, float(min), float(max))


def bitset(size: int) -> Any:
    """Declare ``size`` truth values, each one bit on disk."""
    if size < 1:
        raise InvalidError(f"invalid size {size} of a bitset: must be 1 or more")
    return Bitset(size)


PYTHON_TYPES: dict[Any, Node] = {
    bool: Primitive("bool"),
    int: Primitive("int64"),
    float: Primitive("float64"),
    str: String(),
    bytes: List(Primitive("byte")),
    datetime.datetime: Primitive("int64", Meaning("datetime")),
    datetime.date: Primitive("int32", Meaning("date")),
    pathlib.Path: String(Meaning("path")),
    pathlib.PurePath: String(Meaning("path")),
    pathlib.PosixPath: String(Meaning("path")),
    pathlib.PurePosixPath: String(Meaning("path")),
}

ADVICE: dict[Any, str] = {
    dict: "name the types of keys and values, such as dict[str, fb.float32]",
    Mapping: "name the types of keys and values, such as dict[str, fb.float32]",
    set: "name the type of its items, such as set[int]",
    frozenset: "name the type of its items, such as set[int]",
    tuple: "name the types of its items, such as tuple[int, float]",
    decimal.Decimal: "use float, or an integer of the smallest unit",
    datetime.timedelta: "use fb.int64 for a number of nanoseconds",
    datetime.time: "use datetime, or fb.int64 for a number of nanoseconds",
    uuid.UUID: "use str, or bytes",
    complex: "use a persistent class with two fb.float64",
    bytearray: "use bytes",
    np.ndarray: "use list[type], or fb.array[type, size] where the size is fixed",
    list: "name the type of its items, such as list[fb.float32]",
    object: "name a type that can be stored",
    Any: "name a type that can be stored",
    None: "name a type that can be stored",
    type(None): "name a type that can be stored",
}


def node_of(annotation: Any, scope: Mapping[str, Any], where: str) -> Node:
    """Return the type that an annotation stands for.

    Parameters
    ----------
    annotation
        The annotation of a field; strings and forward references are resolved.
    scope
        Names for forward references.
    where
        Class and field, for the text of errors.

    Raises
    ------
    InvalidError
        If values of this type cannot be stored; the text names the type to use instead.
    NameError
        If a forward reference names something that is not defined yet.
    """
    if isinstance(annotation, str):
        return node_of(evaluate(annotation, scope, where), scope, where)
    if isinstance(annotation, typing.ForwardRef):
        return node_of(annotation.__forward_arg__, scope, where)
    if isinstance(annotation, Node):
        return annotation
    if isinstance(annotation, _Unresolved):
        return _resolve(annotation, scope, where)
    if typing.get_origin(annotation) is not None:
        return _generic(annotation, scope, where)
    return _plain(annotation, where)


def _plain(annotation: Any, where: str) -> Node:
    try:
        if annotation in PYTHON_TYPES:
            return PYTHON_TYPES[annotation]
    except TypeError:  # Unhashable, so none of these types.
        raise _refusal(annotation, where) from None
    info = getattr(annotation, "__femtobarn__", None)
    if info is not None:
        record: Node = info.record()
        return record
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enumeration(annotation, where)
    if isinstance(annotation, type) and issubclass(annotation, np.generic):
        annotation = np.dtype(annotation)
    if isinstance(annotation, np.dtype):
        if annotation.name == "float16":
            return Reduced("float16")
        if annotation.name in DTYPES:
            return Primitive(annotation.name)
    raise _refusal(annotation, where)


def _generic(annotation: Any, scope: Mapping[str, Any], where: str) -> Node:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        stored = next((item for item in annotation.__metadata__ if isinstance(item, Node)), None)
        return stored if stored is not None else node_of(arguments[0], scope, where)
    if origin in (list, Sequence):
        return List(node_of(arguments[0], scope, where))
    if origin in (set, frozenset, AbstractSet):
        return _set(node_of(arguments[0], scope, where), where)
    if origin in (dict, Mapping) and len(arguments) == 2:
        return _map(*(node_of(argument, scope, where) for argument in arguments), where=where)
    if origin is tuple:
        return _tuple(arguments, scope, where)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, scope, where)
    raise _refusal(annotation, where)


def _enumeration(cls: type[enum.Enum], where: str) -> Node:
    meaning = enumeration_meaning(cls, where)
    if any(isinstance(value, str) for value in meaning.values):
        return String(meaning)
    is_small = all(-(1 << 31) <= int(value) < 1 << 31 for value in meaning.values)
    # A combination of flags may have the sign bit.
    return Primitive("int32" if is_small and meaning.kind == "enum" else "int64", meaning)


def _is_hashable(node: Node) -> bool:
    return isinstance(node, Primitive | Reduced | String)


def _set(item: Node, where: str) -> Node:
    if not _is_hashable(item):
        raise InvalidError(
            f"{where} is a set of {item}; items of sets are numbers, texts or times; use list[...]"
        )
    return List(item, Meaning("set"))


def _map(key: Node, value: Node, *, where: str) -> Node:
    if not _is_hashable(key):
        raise InvalidError(f"{where} is a dict whose keys are {key}; keys are numbers, texts or times")
    return List(Record(MAP_ITEM, (Field("_0", key), Field("_1", value))))


def _tuple(arguments: tuple[Any, ...], scope: Mapping[str, Any], where: str) -> Node:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return List(node_of(arguments[0], scope, where))
    if arguments in ((), ((),)):
        raise InvalidError(f"{where} is an empty tuple, which has nothing to store; leave it out")
    items = (node_of(argument, scope, where) for argument in arguments)
    return Record(TUPLE, tuple(Field(f"_{number}", item) for number, item in enumerate(items)))


def _union(arguments: tuple[Any, ...], scope: Mapping[str, Any], where: str) -> Node:
    nodes = [node_of(item, scope, where) for item in arguments if item is not type(None)]
    node = nodes[0] if len(nodes) == 1 else _variant(nodes, where)
    if len(nodes) == len(arguments):
        return node
    # Every link may be null.
    return node if isinstance(node, Link | ElementLink) else Optional(node)


def _resolve(unresolved: _Unresolved, scope: Mapping[str, Any], where: str) -> Node:
    if unresolved.kind == "variant":
        return _variant([node_of(item, scope, where) for item in unresolved.parameters], where)
    item, size = unresolved.parameters
    if typing.get_origin(size) is Literal:
        (size,) = typing.get_args(size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidError(f"{where} is an array of size {size!r}: must be an integer of 1 or more")
    node = node_of(item, scope, where)
    if _holds_records(node):
        raise InvalidError(f"{where} is an array of records, which ROOT cannot name; use list[{node}]")
    return Fixed(node, size)


def _variant(nodes: list[Node], where: str) -> Node:
    for node in nodes:
        if stored_type(node) != node:
            raise InvalidError(
                f"{where} is one of several types, and {node} is stored as {stored_type(node)}; use that, or "
                "a field for each type"
            )
    return Variant(tuple(nodes))


def _holds_records(node: Node) -> bool:
    return isinstance(innermost(node), Record | Link | ElementLink)


def evaluate(text: str, scope: Mapping[str, Any], where: str) -> Any:
    """Return the value of an annotation that is written as text."""
    try:
        return eval(text, {"__builtins__": __builtins__}, scope)
    except (NameError, InvalidError):
        raise
    except Exception as error:
        raise InvalidError(f"{where} has annotation {text!r}, which fails: {error}") from error


def _target_name(target: Any, kind: str) -> str:
    if isinstance(target, str) and target:
        return target
    info = getattr(target, "__femtobarn__", None)
    if info is not None:
        return str(info.name)
    raise InvalidError(f'{target!r} is not a persistent class; write fb.{kind}["ClassName"]')


def _refusal(annotation: Any, where: str) -> InvalidError:
    origin = typing.get_origin(annotation) or annotation
    shown = getattr(annotation, "__name__", None) or str(annotation)
    try:
        advice = ADVICE.get(origin)
    except TypeError:
        advice = None
    if advice is None:
        advice = "name one of fb's types"
        if isinstance(origin, type) and origin.__module__ != "builtins":
            advice = f"decorate {shown} with @fb.persistent, or store its parts"
    return InvalidError(f"{where} is of type {shown}, which cannot be stored; {advice}")

"""Python classes made from definitions, for objects of a data model.

A member that is not given has its default, or is zero or empty, as in podio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .._exceptions import InvalidError, near_misses
from .._schema.classes import ClassInfo
from .._schema.types import Bitset, Definition, Fixed, List, Node, Primitive, Record, Reduced, String

__all__ = ["Instance", "class_of"]


class Instance:
    """An object or a component of a data model: the base of the classes that a model makes."""

    __femtobarn__: ClassVar[ClassInfo]
    _makers: ClassVar[Mapping[str, Callable[[], Any]]] = {}

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self._makers:
                hint = near_misses(name, self._makers)
                raise InvalidError(f"class {self.__femtobarn__.name} has no member {name!r}{hint}")
        for name, make in self._makers.items():
            setattr(self, name, values[name] if name in values else make())

    if TYPE_CHECKING:
        # The members are known only when the model is read.
        def __getattr__(self, name: str) -> Any: ...

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({members})"


def class_of(
    definition: Definition, defaults: Mapping[str, Any], components: Mapping[str, type[Instance]]
) -> type[Instance]:
    """Make a class from a definition.

    Parameters
    ----------
    definition
        The definition that the federation stores.
    defaults
        Defaults by the name of the member.
    components
        Classes of the components by name.
    """
    makers = {
        field.name: _maker(field.type, defaults.get(field.name), components) for field in definition.fields
    }
    notes = "\n".join(
        f"{field.name}: {field.description}" for field in definition.fields if field.description
    )
    plain = definition.name.rpartition("::")[2]
    made: type[Instance] = type(
        plain, (Instance,), {"_makers": makers, "__doc__": notes, "__module__": __name__}
    )
    made.__femtobarn__ = ClassInfo(made, definition.name, definition.version, {}, definition)
    return made


def _maker(node: Node, default: Any, components: Mapping[str, type[Instance]]) -> Callable[[], Any]:
    """Return a function that makes the value of a member that is not given."""
    if isinstance(node, Record):
        return _component_maker(components[node.class_name], default)
    if isinstance(node, List) and isinstance(default, tuple) and isinstance(node.item, Record):
        items = [_component_maker(components[node.item.class_name], item) for item in default]
        return lambda: [make() for make in items]
    if isinstance(node, List):
        return list
    if isinstance(node, Fixed):
        given = default if isinstance(default, tuple) else () if default is None else (default,)
        values = [*given, *[_zero(node.item)] * (node.size - len(given))]
        return lambda: list(values)
    value = _zero(node) if default is None else default
    return lambda: value


def _component_maker(component: type[Instance], default: Any) -> Callable[[], Any]:
    given = default if isinstance(default, tuple) else () if default is None else (default,)
    values = dict(zip(component._makers, given, strict=False))
    return lambda: component(**values)


def _zero(node: Node) -> Any:
    if isinstance(node, Primitive | Reduced):
        return node.dtype.type(0).item()
    if isinstance(node, String):
        return ""
    return [False] * node.size if isinstance(node, Bitset) else None

"""Persistent classes: declared with annotations, registered with the federation as JSON.

A persistent class is a dataclass whose arguments are keywords. Its objects have no connection to a database:
appending one copies its values. Reading gives an :class:`~femtobarn.Object` instead, which loads each field
on first access.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_origin, overload

from .._exceptions import ExistsError, InvalidError, NotFoundError, WrongTypeError
from .annotations import evaluate, node_of
from .declared_fields import declare_strictly
from .meaning_checks import check_elements, check_meanings
from .types import Definition, Field, Node, Primitive, Record, Reduced, String

__all__ = ["definition_of", "field", "is_persistent", "persistent", "with_field"]

C = TypeVar("C", bound=type[Any])

RESERVED = frozenset({"oid", "get"})
"""Names that are attributes of every object that is read."""

DESCRIPTION = "femtobarn.description"
"""Key of a field's description in the dataclass's metadata."""

WAS = "femtobarn.was"
"""Key of a field's former name in the dataclass's metadata."""


def field(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    description: str = "",
    was: str = "",
) -> Any:
    """Declare a field with a default, a description, or the name that it had before.

    Parameters
    ----------
    default
        Value in an object that is made without one. A number or text is also the value in objects stored by
        a version of the class without the field.
    default_factory
        Function that returns the default; needed for lists and records.
    description
        The meaning of the field, with its unit.
    was
        Name of the field in the previous version, if it was renamed.

    Examples
    --------
    >>> import femtobarn as fb
    >>> @fb.persistent
    ... class Jet:
    ...     pt: fb.float32 = fb.field(description="transverse momentum [GeV]")
    ...     constituents: list[fb.uint32] = fb.field(default_factory=list)
    >>> Jet(pt=31.5)
    Jet(pt=31.5, constituents=[])
    >>> @fb.persistent(version=2, name="Jet")
    ... class Jet2:
    ...     et: fb.float32 = fb.field(was="pt")
    ...     flavour: fb.int8 = fb.field(default=-1)
    >>> fb.definition_of(Jet2).fields[0].was, fb.definition_of(Jet2).fields[1].default
    ('pt', -1)
    """
    metadata = {DESCRIPTION: description, WAS: was}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    return dataclasses.field(metadata=metadata)


@overload
def persistent(cls: C, /) -> C: ...
@overload
def persistent(*, version: int = 1, name: str | None = None) -> Callable[[C], C]: ...
@dataclass_transform(kw_only_default=True, field_specifiers=(field, dataclasses.field))
def persistent(cls: type[Any] | None = None, /, *, version: int = 1, name: str | None = None) -> Any:
    """Declare a class whose objects can be stored.

    Parameters
    ----------
    version
        Version of the class, to be raised whenever fields change. Objects of older versions stay readable.
    name
        Name in the federation, by default the class's own.

    Returns
    -------
    type
        The class as a dataclass with keyword arguments. Its objects refuse attributes that it does not
        declare, except those whose names begin with ``_``.

    Raises
    ------
    InvalidError
        If a field is of a type that cannot be stored. A forward reference is resolved when the class is first
        used.

    Examples
    --------
    >>> import femtobarn as fb
    >>> @fb.persistent
    ... class Track:
    ...     pt: fb.float32
    >>> @fb.persistent(version=2)
    ... class Event:
    ...     run: fb.uint32
    ...     tracks: list[Track]
    ...     raw: fb.link["RawEvent"] = None
    >>> Event(run=7, tracks=[Track(pt=1.5)])
    Event(run=7, tracks=[Track(pt=1.5)], raw=None)
    >>> [str(field.type) for field in fb.definition_of(Event).fields]
    ['uint32', 'list[Track]', 'link[RawEvent]']
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    names = dict(caller.f_locals) if caller is not None else {}

    def decorate(cls: type[Any]) -> type[Any]:
        if not isinstance(cls, type):
            raise WrongTypeError(
                f"fb.persistent takes a class, not {cls!r}; write @fb.persistent or "
                "@fb.persistent(version=2) above a class"
            )
        return _declare(cls, version, name or cls.__name__, names)

    return decorate if cls is None else decorate(cls)


def _declare(cls: type[Any], version: int, name: str, names: dict[str, Any]) -> type[Any]:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidError(f"invalid version {version!r} of class {name}: must be an integer of 1 or more")
    has_own_init, written = "__init__" in vars(cls), frozenset(vars(cls))
    made = dataclasses.dataclass(kw_only=True)(cls)
    declare_strictly(made, has_own_init=has_own_init)
    info = ClassInfo(made, name, version, names)
    info.written = written
    made.__femtobarn__ = info
    # An undefined name is a forward reference, which is resolved when the class is first used.
    with contextlib.suppress(NameError), _registered(name, made):
        info.definition()
    for check, _ in _WATCHERS:
        check(made)
    _REGISTRY[name] = made
    known = _DECLARED.setdefault(name, {})
    known.pop(_place(made), None)
    known[_place(made)] = made
    for _, note in _WATCHERS:
        note()
    return made


@contextlib.contextmanager
def _registered(name: str, cls: type[Any]) -> Iterator[None]:
    """Register a class for a while: it may refer to itself."""
    before = _REGISTRY.get(name)
    _REGISTRY[name] = cls
    try:
        yield
    finally:
        if before is None:
            del _REGISTRY[name]
        else:
            _REGISTRY[name] = before


class ClassInfo:
    """The attribute ``__femtobarn__`` of a persistent class: its name, version and definition."""

    def __init__(
        self,
        cls: type[Any],
        name: str,
        version: int,
        names: dict[str, Any],
        definition: Definition | None = None,
    ) -> None:
        self.cls = cls
        self.name = name
        self.version = version
        self.written: frozenset[str] = frozenset()
        """Names that the class's own text defines: not those that the dataclass adds."""
        self._names = names
        self._definition = definition
        self._resolving = False

    def definition(self) -> Definition:
        """Return the class's definition; the first call resolves forward references."""
        if self._definition is None:
            if self._resolving:
                raise InvalidError(
                    f'class {self.name} contains itself, without end; refer to it with fb.link["{self.name}"]'
                )
            self._resolving = True
            try:
                self._definition = self._define()
            finally:
                self._resolving = False
            self._names = {}
        return self._definition

    def record(self) -> Record:
        """Return the class as the type of a member of another class."""
        return self.definition().record

    def _define(self) -> Definition:
        scope = Scope(self.cls, self._names)
        fields = tuple(self._field(member, scope) for member in dataclasses.fields(self.cls))
        if not fields:
            raise InvalidError(f"class {self.name} has no field; declare one, such as x: fb.float32")
        return Definition(self.name, self.version, fields)

    def _field(self, member: dataclasses.Field[Any], scope: Scope) -> Field:
        where = f"field {member.name!r} of class {self.name}"
        if member.name.startswith("_"):
            raise InvalidError(f"{where} begins with an underscore; only public fields are stored")
        if member.name in RESERVED:
            raise InvalidError(f"{where} has a name that is reserved for an attribute of objects; rename it")
        annotation: Any = member.type
        if isinstance(annotation, str):
            annotation = evaluate(annotation, scope, where)
        node = node_of(annotation, scope, where)
        was = str(member.metadata.get(WAS, ""))
        if was == member.name:
            raise InvalidError(f"{where} has was={was!r}, its present name; leave was out")
        try:
            default = stored_default(member.default, node)
        except ValueError as error:
            raise InvalidError(f"{where} has a default that does not fit: {error}") from None
        return Field(member.name, node, _description(member, annotation), was, default)


def stored_default(value: Any, node: Node) -> bool | int | float | str | None:
    """Return a default as a definition stores it: only a number or text that is not zero or empty.

    Raises
    ------
    ValueError
        If the default does not have the meaning of the type.
    """
    if not isinstance(node, Primitive | Reduced | String) or not value or value is dataclasses.MISSING:
        return None
    meaning = getattr(node, "meaning", None)
    if meaning is not None:
        value = meaning.to_stored(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def with_field(definition: Definition, name: str, type: Any, default: Any, description: str) -> Definition:
    """Return a class with one more field, which is declared as in a persistent class.

    Raises
    ------
    ExistsError
        If the class has a field of that name.
    InvalidError
        If the name or the type is none of a field, or the default does not fit.
    """
    where = f"field {name!r} of class {definition.name}"
    if name in definition.record.by_name:
        raise ExistsError(f"{where} exists; choose another name, or change its values with update")
    if name.startswith("_") or name in RESERVED or not name.isidentifier():
        raise InvalidError(f"{where} has a name that fields cannot have; choose another one")
    node = node_of(type, {}, where)
    try:
        added = Field(name, node, description, default=stored_default(default, node))
    except ValueError as error:
        raise InvalidError(f"{where} has a default that does not fit: {error}") from None
    return Definition(definition.name, definition.version, (*definition.fields, added))


def _description(member: dataclasses.Field[Any], annotation: Any) -> str:
    text = str(member.metadata.get(DESCRIPTION, ""))
    if not text and get_origin(annotation) is Annotated:
        notes = [note for note in get_args(annotation)[1:] if isinstance(note, str)]
        text = notes[0] if notes else ""
    return text


_REGISTRY: dict[str, type[Any]] = {}
"""Persistent classes by name; a later declaration of a name replaces an earlier one."""


_WATCHERS: list[tuple[Callable[[type[Any]], None], Callable[[], None]]] = []
"""Callbacks, each a pair: one is called before, the other after a class is registered."""


MADE_BY_DATACLASSES = frozenset(
    f"__{name}__" for name in ("init", "repr", "eq", "hash", "lt", "le", "gt", "ge", "replace", "match_args")
)

_DECLARED: dict[str, dict[tuple[str, str], type[Any]]] = {}
"""Persistent classes of each name by their places in programs, the one declared last at the end."""


def _place(cls: type[Any]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def classes_called(name: str) -> list[type[Any]]:
    """Return the persistent classes of a name, those declared last first: modules may use a name twice."""
    return list(reversed(_DECLARED.get(name, {}).values()))


def declared_classes() -> dict[str, type[Any]]:
    """Return all persistent classes by name."""
    return dict(_REGISTRY)


def on_declaration(check: Callable[[type[Any]], None], note: Callable[[], None]) -> None:
    """Call `check` with each class before it is declared, which an error refuses, and `note` afterwards."""
    _WATCHERS.append((check, note))


def written_names(cls: type[Any]) -> frozenset[str]:
    """Return the names that the text of a class defines, without those of its bases."""
    info = vars(cls).get("__femtobarn__")
    if isinstance(info, ClassInfo):
        return info.written
    is_dataclass = "__dataclass_fields__" in vars(cls)
    return frozenset(vars(cls)) - (MADE_BY_DATACLASSES if is_dataclass else frozenset())


class Scope(Mapping[str, Any]):
    """Names for forward references: of the enclosing function, of the module, of persistent classes."""

    def __init__(self, cls: type[Any], names: Mapping[str, Any]) -> None:
        module = sys.modules.get(cls.__module__)
        self._places: tuple[Mapping[str, Any], ...] = (
            names,
            vars(module) if module is not None else {},
            _REGISTRY,
        )

    def __getitem__(self, name: str) -> Any:
        for place in self._places:
            if name in place:
                return place[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name for place in self._places for name in place})

    def __len__(self) -> int:
        return len(set(self))


def is_persistent(cls: Any) -> bool:
    """Tell whether a class was declared with :func:`persistent`."""
    return isinstance(getattr(cls, "__femtobarn__", None), ClassInfo)


def definition_of(source: Any) -> Definition:
    """Return the definition of a persistent class, or of a class given as JSON.

    Parameters
    ----------
    source
        A persistent class, an object of one, a definition, or its JSON as text or a dictionary.

    Raises
    ------
    InvalidError
        If `source` is none of these, or the definition is malformed.
    NotFoundError
        If the class refers to a name that is not defined.

    Examples
    --------
    >>> import femtobarn as fb
    >>> fb.definition_of({"name": "A", "fields": [{"name": "x", "type": "int8"}]}).version
    1
    """
    if isinstance(source, Definition):
        return source
    if isinstance(source, dict | str):
        form = json.loads(source) if isinstance(source, str) else source
        check_meanings(form)
        definition = Definition.from_json(form)
        check_elements(definition)
        return definition
    info = getattr(source, "__femtobarn__", None)
    if not isinstance(info, ClassInfo):
        shown = getattr(source, "__name__", None) or repr(source)
        raise InvalidError(f"{shown} is not a persistent class; decorate it with @fb.persistent")
    try:
        return info.definition()
    except NameError as error:
        missing = getattr(error, "name", None) or str(error)
        raise NotFoundError(
            f"class {info.name} refers to {missing!r}, which is not defined; "
            "define it before the class is used"
        ) from error

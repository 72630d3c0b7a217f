"""The C++ types that RNTuple stores, each with its name, random values, and their bytes.

Values have the JSON format of tests/judges/README.md, so that written values and readers' dumps compare
directly. The bytes are what `take` of values.hxx makes a C++ value of: numbers as they are in memory, sizes
of texts and lists before their items.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

Json = Any

TEXTS = [
    "",
    "a",
    "Higgs",
    "naïve ünïcode ✓ 𝄞",
    'quote " and \\',
    "tab\tnew\nline",
    "nul\x00inside",
    "x" * 300,
]
REALS = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 3.25e10, -7.5e-9]


class Kind(Protocol):
    """A C++ type."""

    @property
    def cpp(self) -> str:
        """Its name."""

    def random(self, random: Random) -> Json:
        """A random value, which may be an edge case."""

    def stored(self, value: Json) -> bytes:
        """The value for `take`."""


def listed(items: Sequence[bytes]) -> bytes:
    """Stored items after their number."""
    return struct.pack("<I", len(items)) + b"".join(items)


def single(value: float) -> float:
    """The nearest number of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True)
class Integer:
    """An integer of `bits` bits."""

    cpp: str
    bits: int
    signed: bool

    def random(self, random: Random) -> Json:
        least = -(1 << (self.bits - 1)) if self.signed else 0
        most = least + (1 << self.bits) - 1
        edge = random.choice([least, most, 0, 1, least + 1, most - 1])
        return random.choice([edge, random.randint(least, most), random.randint(0, 9)])

    def stored(self, value: Json) -> bytes:
        return int(value).to_bytes(self.bits // 8, "little", signed=self.signed)


@dataclass(frozen=True)
class Real:
    """`float` or `double`; `finite` excludes values that a lossy column cannot hold."""

    cpp: str
    finite: bool = False
    low: float = -1e6
    high: float = 1e6

    def random(self, random: Random) -> Json:
        plain = random.uniform(self.low, self.high)
        value = plain if self.finite else random.choice([plain, random.gauss(0, 1), random.choice(REALS)])
        return value if self.cpp == "double" else single(value)

    def stored(self, value: Json) -> bytes:
        return struct.pack("<f" if self.cpp == "float" else "<d", float(value))


@dataclass(frozen=True)
class Bool:
    """`bool`."""

    cpp: str = "bool"

    def random(self, random: Random) -> Json:
        return random.random() < 0.5

    def stored(self, value: Json) -> bytes:
        return bytes([bool(value)])


@dataclass(frozen=True)
class Double32:
    """`Double32_t`: a double in memory, single precision on disk."""

    cpp: str = "Double32_t"

    def random(self, random: Random) -> Json:
        return Real("float").random(random)

    def stored(self, value: Json) -> bytes:
        return Real("double").stored(value)


@dataclass(frozen=True)
class Text:
    """`std::string`."""

    cpp: str = "std::string"

    def random(self, random: Random) -> Json:
        return random.choice(TEXTS)

    def stored(self, value: Json) -> bytes:
        encoded: bytes = value.encode()
        return struct.pack("<I", len(encoded)) + encoded


@dataclass(frozen=True)
class Enumeration:
    """An enumeration by its numbers; `form` is that of `struct` for the type below it."""

    cpp: str
    values: tuple[int, ...]
    form: str

    def random(self, random: Random) -> Json:
        return random.choice(self.values)

    def stored(self, value: Json) -> bytes:
        return struct.pack(f"<{self.form}", value)


@dataclass(frozen=True)
class Items:
    """A container with any number of items; `unique` ones are sorted, like their items on disk."""

    container: str
    item: Kind
    unique: bool = False
    most: int = 5

    @property
    def cpp(self) -> str:
        return f"{self.container}<{self.item.cpp}>"

    def random(self, random: Random) -> Json:
        values = [
            self.item.random(random) for _ in range(random.choice([0, 1, random.randint(0, self.most)]))
        ]
        if self.unique:
            values = sorted(value for value in values if value == value)
            values = [value for i, value in enumerate(values) if i == 0 or value != values[i - 1]]
        return values[: self.most]

    def stored(self, value: Json) -> bytes:
        return listed([self.item.stored(each) for each in value])


@dataclass(frozen=True)
class Map:
    """A map: a list of pairs in the order of the keys."""

    container: str
    key: Kind
    item: Kind
    most: int = 4

    @property
    def cpp(self) -> str:
        return f"{self.container}<{self.key.cpp},{self.item.cpp}>"

    def random(self, random: Random) -> Json:
        keys = Items("std::set", self.key, unique=True, most=self.most).random(random)
        return [{"_0": key, "_1": self.item.random(random)} for key in keys]

    def stored(self, value: Json) -> bytes:
        return listed([self.key.stored(each["_0"]) + self.item.stored(each["_1"]) for each in value])


@dataclass(frozen=True)
class Array:
    """`std::array`."""

    item: Kind
    size: int

    @property
    def cpp(self) -> str:
        return f"std::array<{self.item.cpp},{self.size}>"

    def random(self, random: Random) -> Json:
        return [self.item.random(random) for _ in range(self.size)]

    def stored(self, value: Json) -> bytes:
        return b"".join(map(self.item.stored, value))


@dataclass(frozen=True)
class Nullable:
    """`std::optional` or `std::unique_ptr`."""

    container: str
    item: Kind

    @property
    def cpp(self) -> str:
        return f"{self.container}<{self.item.cpp}>"

    def random(self, random: Random) -> Json:
        return None if random.random() < 0.4 else self.item.random(random)

    def stored(self, value: Json) -> bytes:
        return b"\0" if value is None else b"\1" + self.item.stored(value)


@dataclass(frozen=True)
class Variant:
    """`std::variant`; a value is an object with the number of its alternative."""

    items: tuple[Kind, ...]

    @property
    def cpp(self) -> str:
        return f"std::variant<{','.join(item.cpp for item in self.items)}>"

    def random(self, random: Random) -> Json:
        index = random.randrange(len(self.items))
        return {f"_{index}": self.items[index].random(random)}

    def stored(self, value: Json) -> bytes:
        (name, content), *_ = value.items()
        index = int(name[1:])
        return bytes([index]) + self.items[index].stored(content)


@dataclass(frozen=True)
class Product:
    """`std::pair` or `std::tuple`."""

    container: str
    items: tuple[Kind, ...]

    @property
    def cpp(self) -> str:
        return f"{self.container}<{','.join(item.cpp for item in self.items)}>"

    def random(self, random: Random) -> Json:
        return {f"_{i}": item.random(random) for i, item in enumerate(self.items)}

    def stored(self, value: Json) -> bytes:
        return b"".join(item.stored(value[f"_{i}"]) for i, item in enumerate(self.items))


@dataclass(frozen=True)
class Bits:
    """`std::bitset`."""

    size: int

    @property
    def cpp(self) -> str:
        return f"std::bitset<{self.size}>"

    def random(self, random: Random) -> Json:
        return [random.random() < 0.5 for _ in range(self.size)]

    def stored(self, value: Json) -> bytes:
        return bytes(map(bool, value))


@dataclass(frozen=True)
class Atomic:
    """`std::atomic`; its value is the inner value."""

    item: Kind

    @property
    def cpp(self) -> str:
        return f"std::atomic<{self.item.cpp}>"

    def random(self, random: Random) -> Json:
        return self.item.random(random)

    def stored(self, value: Json) -> bytes:
        return self.item.stored(value)


@dataclass(frozen=True)
class Struct:
    """A class of classes.hxx; its base classes are the members `:_0`, `:_1` and so on."""

    cpp: str
    members: tuple[tuple[str, Kind], ...]

    def random(self, random: Random) -> Json:
        return {name: kind.random(random) for name, kind in self.members}

    def stored(self, value: Json) -> bytes:
        return b"".join(kind.stored(value[name]) for name, kind in self.members)


def vector(item: Kind, most: int = 5) -> Items:
    """`std::vector` of the items."""
    return Items("std::vector", item, most=most)


INTEGERS = tuple(
    Integer(f"std::{'' if signed else 'u'}int{bits}_t", bits, signed)
    for bits in (8, 16, 32, 64)
    for signed in (True, False)
)
CHAR = Integer("char", 8, signed=False)
BYTE = Integer("std::byte", 8, signed=False)
FLOAT = Real("float")
DOUBLE = Real("double")
INT16, INT32, INT64 = INTEGERS[2], INTEGERS[4], INTEGERS[6]
POINT = Struct("judge::Point", (("x", FLOAT), ("y", DOUBLE), ("hits", vector(INT32))))
COLOUR = Enumeration("judge::Colour", (1, 2, 200), "B")
TRACK = Struct(
    "judge::Track",
    (
        (":_0", POINT),
        ("charge", INT16),
        ("momentum", Array(FLOAT, 3)),
        ("colour", COLOUR),
        ("points", vector(POINT)),
        ("name", Text()),
    ),
)
EMPTY = Struct("judge::Empty", ())
TAGGED = Struct("judge::Tagged", (("tag", INT32), ("x", FLOAT)))
SEED = Struct(
    "judge::Seed", ((":_0", POINT), (":_1", TAGGED), (":_2", EMPTY), ("x", DOUBLE), ("none", EMPTY))
)


def everything() -> Sequence[tuple[str, Kind]]:
    """A field of every type, and nestings that readers have decoded wrongly."""
    text = Text()
    fields: list[tuple[str, Kind]] = [(kind.cpp.removeprefix("std::"), kind) for kind in INTEGERS]
    fields += [("bool", Bool()), ("char", CHAR), ("byte", BYTE), ("float", FLOAT), ("double", DOUBLE)]
    fields += [("double32", Double32()), ("string", text)]
    fields += [(f"vector_{name}", vector(kind)) for name, kind in list(fields)]
    fields += [
        ("vector_vector_float", vector(vector(FLOAT))),
        ("vector_vector_string", vector(vector(text))),
        ("vector_vector_vector_int16", vector(vector(vector(INT16)))),
        ("vector_vector_bool", vector(vector(Bool()))),
        ("rvec_float", Items("ROOT::VecOps::RVec", FLOAT)),
        ("rvec_bool", Items("ROOT::VecOps::RVec", Bool())),
        ("rvec_rvec_double", Items("ROOT::VecOps::RVec", Items("ROOT::VecOps::RVec", DOUBLE))),
        ("array_float", Array(FLOAT, 3)),
        ("array_bool", Array(Bool(), 11)),
        ("array_string", Array(text, 2)),
        ("array_array_int32", Array(Array(INT32, 2), 3)),
        ("array_vector_double", Array(vector(DOUBLE), 2)),
        ("vector_array_int64", vector(Array(INT64, 2))),
        ("vector_array_array_float", vector(Array(Array(FLOAT, 2), 2))),
        ("optional_float", Nullable("std::optional", FLOAT)),
        ("optional_string", Nullable("std::optional", text)),
        ("optional_bool", Nullable("std::optional", Bool())),
        ("optional_vector_point", Nullable("std::optional", vector(POINT))),
        ("vector_optional_int32", vector(Nullable("std::optional", INT32))),
        ("unique_point", Nullable("std::unique_ptr", POINT)),
        ("vector_unique_double", vector(Nullable("std::unique_ptr", DOUBLE))),
        ("variant_int32_string", Variant((INT32, text))),
        ("variant_three", Variant((FLOAT, vector(INT16), POINT))),
        ("vector_variant", vector(Variant((DOUBLE, text, Bool())))),
        ("optional_variant", Nullable("std::optional", Variant((FLOAT, vector(INT32))))),
        ("pair", Product("std::pair", (INT32, DOUBLE))),
        ("tuple", Product("std::tuple", (FLOAT, text, INTEGERS[1], vector(INT16)))),
        ("vector_pair", vector(Product("std::pair", (text, FLOAT)))),
        ("bitset_1", Bits(1)),
        ("bitset_9", Bits(9)),
        ("bitset_70", Bits(70)),
        ("vector_bitset", vector(Bits(5))),
        ("set_int32", Items("std::set", INT32, unique=True)),
        ("set_string", Items("std::set", text, unique=True)),
        ("multiset_int16", Items("std::multiset", INT16, unique=True)),
        ("unordered_set_int64", Items("std::unordered_set", INT64, unique=True, most=1)),
        ("map_string_float", Map("std::map", text, FLOAT)),
        ("map_int_vector", Map("std::map", INT32, vector(text))),
        ("multimap_int_int", Map("std::multimap", INT32, INT64)),
        ("unordered_map", Map("std::unordered_map", INT32, DOUBLE, most=1)),
        ("atomic_int32", Atomic(INT32)),
        ("atomic_double", Atomic(DOUBLE)),
        ("colour", COLOUR),
        ("vector_colour", vector(COLOUR)),
        ("plain_enum", Enumeration("judge::Plain", (-4, 7), "i")),
        ("point", POINT),
        ("track", TRACK),
        ("vector_track", vector(TRACK, most=3)),
        ("array_track", Array(TRACK, 2)),
        ("seed", SEED),
        ("vector_seed", vector(SEED, most=3)),
        ("empty", EMPTY),
        ("vector_empty", vector(EMPTY)),
        ("vector_vector_empty", vector(vector(EMPTY))),
        ("array_empty", Array(EMPTY, 3)),
        ("optional_empty", Nullable("std::optional", EMPTY)),
    ]
    return fields

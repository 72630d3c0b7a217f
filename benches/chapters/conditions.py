"""Conditions: look-ups in process and from Python, insertions, copies of a global tag."""

from __future__ import annotations

from framework import Figure, Preparation, Role, Side, faster, rate

TITLE = "Conditions"
INTRO = """100 series have 4,000 conditions each over 100 days, with gaps between them. Jobs look every
series up for 20,000 events, in the order of time or at random. A sorted array of the same intervals, searched
by halving, is the limit; SQLite has a table with the primary key (series, since), and is queried once a
look-up. Insertions are durable: all 400,000 conditions in one transaction, or one condition in each."""

DATA = "{data}/conditions.fed"
SQLITE = "{data}/conditions.sqlite"
EVENTS = "20000"

PREPARATIONS = (
    Preparation(DATA, ("conditions.py", "fill", "femtobarn", DATA)),
    Preparation(SQLITE, ("conditions.py", "insert", "sqlite", SQLITE)),
)


def in_process(order: str, words: str, at_least: float) -> Figure:
    """Look-ups from Rust."""
    sides = (("Femtobarn", "ours", "ours"), ("sorted array", "sorted-array", "limit"))
    return Figure(
        name=f"conditions-{order}",
        title=f"Look 100 series up for 20,000 events, {words}, in process",
        unit="look-ups",
        sides=tuple(
            side(name, ("ours", "conditions", DATA, way, order, EVENTS), role) for name, way, role in sides
        ),
        targets=(rate("Femtobarn", at_least, "cpu"),),
        by="cpu",
    )


def side(name: str, command: tuple[str, ...], role: str) -> Side:
    """A side with a role."""
    roles: dict[str, Role] = {"ours": "ours", "limit": "limit", "peer": "peer"}
    return Side(name, command, roles[role])


def from_python(
    what: str, order: str, title: str, peers: tuple[tuple[str, str, str, str], ...], least: float
) -> Figure:
    """Look-ups from Python."""
    sides = (("Femtobarn", "femtobarn", DATA, "ours"), *peers)
    return Figure(
        name=f"conditions-{what}-{order}",
        title=title,
        unit="look-ups",
        sides=tuple(
            side(name, ("conditions.py", what, engine, folder, order), role)
            for name, engine, folder, role in sides
        ),
        targets=(rate("Femtobarn", least, "cpu"),),
        by="cpu",
    )


SINGLE = (("bisect", "bisect", DATA, "limit"), ("SQLite", "sqlite", SQLITE, "peer"))
ARRAYS = (("searchsorted", "numpy", DATA, "limit"),)

FIGURES = (
    in_process("ordered", "in the order of time", 33e6),
    in_process("random", "at random", 3.3e6),
    from_python("single", "ordered", "`series.at(time)`, one by one in the order of time", SINGLE, 0.67e6),
    from_python("single", "random", "`series.at(time)`, one by one at random", SINGLE, 0.67e6),
    from_python("arrays", "ordered", "`series.entries_at(times)` in the order of time", ARRAYS, 16.7e6),
    from_python("arrays", "random", "`series.entries_at(times)` at random", ARRAYS, 5e6),
    Figure(
        name="conditions-insert",
        title="Insert 400,000 conditions into 100 series, durably",
        unit="conditions",
        sides=(
            Side("Femtobarn", ("conditions.py", "insert", "femtobarn", "{work}/conditions.fed"), "ours"),
            Side("SQLite", ("conditions.py", "insert", "sqlite", "{work}/conditions.sqlite")),
        ),
        targets=(rate("Femtobarn", 300e3), faster("Femtobarn", "SQLite", 1.0, "cpu")),
    ),
    Figure(
        name="conditions-put",
        title="Put conditions one by one, each in a durable commit",
        unit="conditions",
        sides=(
            Side("Femtobarn", ("conditions.py", "put", "femtobarn", "{work}/put.fed", "1000"), "ours"),
            Side("SQLite", ("conditions.py", "put", "sqlite", "{work}/put.sqlite", "1000")),
        ),
        targets=(rate("Femtobarn", 3000),),
    ),
    Figure(
        name="conditions-copy",
        title="Copy a global tag of 100 series",
        unit="copies",
        sides=(Side("Femtobarn", ("conditions.py", "copy", "femtobarn", "{work}/copy.fed", "200"), "ours"),),
        targets=(rate("Femtobarn", 100),),
    ),
)

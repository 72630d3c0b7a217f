"""Conditions: look-ups in process, from Python and by HTTP, insertions, copies of a global tag."""

from __future__ import annotations

import os

from chapters.commits import IN_PLACE, ONE_SYNC
from chapters.inputs import POOL
from framework import (
    Figure,
    Headline,
    Preparation,
    Role,
    Side,
    Target,
    explained,
    faster,
    member,
    microseconds,
    per_second,
    rate,
)

TITLE = "Conditions"
INTRO = """100 series have 4,000 conditions each over 100 days, with gaps between them. Jobs look every
series up for 20,000 events, in the order of time or at random. A sorted array of the same intervals, searched
by halving, is the limit; SQLite has a table with the primary key (series, since), and is queried once a
look-up. Insertions are durable: all 400,000 conditions in one transaction, or one condition in each. Their
limits are a plain file of as many bytes, and 4 KB that are overwritten and synced for each condition.

nopayloaddb 5, on PostgreSQL, is the reference of the HEP Software Foundation. Both servers answer its query
for all payloads of a global tag at a random moment, from 5,000 validities of each payload type; CPU seconds
are those of all processes of the server, without the client's. nopayloaddb inserts 2,000 conditions by its
bulk requests. The limit of answers is a server in C that was given all of ours before, and sends the one
whose number is in the request."""

DATA = "{data}/conditions.fed"
SQLITE = "{data}/conditions.sqlite"
LARGE = "{data}/large-tag.fed"
EVENTS = "20000"
INSERTED = ("24", "400000", "400000", "0")
"""Two times and a number for each condition that is inserted, in one transaction of the first writer."""

TYPES = (20, 100)
"""Payload types of a global tag; 100 is what HSF calls heavy usage."""
REQUESTS = "500"
LOAD_SECONDS = "5"
PEER = "nopayloaddb"
GROUP = "Conditions"
ANSWERS = "answers without looking"
ANSWERING = f"{{bare_answers}}:{os.cpu_count()}"
VARIABLES = ("NOPAYLOADDB_SOURCE", "NOPAYLOADDB_PYTHON")


def tag_data(side: str, types: int) -> str:
    """The data of a server whose tag has some payload types."""
    return f"{{data}}/{side}-{types}-types"


PREPARATIONS = (
    POOL,
    Preparation(DATA, ("conditions.py", "fill", "femtobarn", DATA)),
    Preparation(SQLITE, ("conditions.py", "insert", "sqlite", SQLITE)),
    Preparation(LARGE, ("conditions.py", "grow", "femtobarn", LARGE)),
    *(
        Preparation(
            tag_data(kind, types),
            ("conditions_served.py", "fill", kind, tag_data(kind, types), str(types)),
            variables=VARIABLES if kind == PEER else (),
        )
        for types in TYPES
        for kind in ("femtobarn", PEER)
    ),
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
    what: str,
    order: str,
    title: str,
    peers: tuple[tuple[str, str, str, str], ...],
    least: float,
    felt: str = "",
) -> Figure:
    """Look-ups from Python, and what users feel of them."""
    wanted = rate("Femtobarn", least, "cpu")
    headline = Headline(
        GROUP,
        felt,
        "Femtobarn",
        microseconds("a look-up", "cpu"),
        wanted,
        limits=("bisect",),
        peers=("SQLite",),
    )
    sides = (("Femtobarn", "femtobarn", DATA, "ours"), *peers)
    return Figure(
        name=f"conditions-{what}-{order}",
        title=title,
        unit="look-ups",
        sides=tuple(
            side(name, ("conditions.py", what, engine, folder, order), role)
            for name, engine, folder, role in sides
        ),
        targets=(wanted,),
        by="cpu",
        headlines=(headline,) if felt else (),
    )


SINGLE = (("bisect", "bisect", DATA, "limit"), ("SQLite", "sqlite", SQLITE, "peer"))
ARRAYS = (("searchsorted", "numpy", DATA, "limit"),)


def of_a_sample(text: str, name: str, at_most: float, unit: float = 1.0) -> Target:
    """A member of our samples, in some unit."""
    return Target(text, lambda r: unit * r.member("Femtobarn", name), at_most=at_most)


def milliseconds(text: str, name: str, at_most: float) -> Target:
    """A time of our samples."""
    return of_a_sample(text, name, at_most, 1e3)


def served(kind: str, types: int) -> tuple[str, ...]:
    """The command that sends requests for all payloads of a tag to one server."""
    return ("conditions_served.py", "ask", kind, tag_data(data_of(kind), types), str(types), REQUESTS)


def data_of(kind: str) -> str:
    """Whose data a server has; the one that looks nothing up has our answers."""
    return "femtobarn" if kind == ANSWERING else kind


def whole_tag(types: int) -> Figure:
    """The query for all payloads of a tag."""
    wanted = explained(
        faster("Femtobarn", PEER, 40.0, "cpu"),
        f"{PEER} takes less than half of the time from which the aim was set. Waking up for a request and "
        "sending take a fifth of ours, as answers without looking show; the rest makes the answer.",
    )
    headline = Headline(
        GROUP,
        f"Ask a server for all payloads of a tag of {types} types, one connection",
        "Femtobarn",
        microseconds("a request", "cpu"),
        wanted,
        (ANSWERS,),
        (PEER,),
    )
    is_felt = types == TYPES[0]
    return Figure(
        name=f"conditions-served-{types}",
        title=f"All payloads of a global tag of {types} types, by nopayloaddb's route",
        unit="requests",
        sides=(
            Side("Femtobarn", served("femtobarn", types), "ours", cores=2),
            Side(PEER, served(PEER, types), cores=2, needs=("psql",), variables=VARIABLES),
            *((Side(ANSWERS, served(ANSWERING, types), "limit", cores=2),) if is_felt else ()),
        ),
        targets=(wanted,),
        by="cpu",
        headlines=(headline,) if is_felt else (),
    )


def under_load(types: int) -> Figure:
    """The same query by many connections at once."""
    return Figure(
        name=f"conditions-load-{types}",
        title=f"The same by 32 connections at once, for {types} types; wrk shares the cores",
        unit="requests",
        sides=(
            Side("Femtobarn", loaded("femtobarn", types), "ours", cores=2, needs=("wrk",)),
            Side(PEER, loaded(PEER, types), cores=2, needs=("wrk", "psql"), variables=VARIABLES),
            Side(ANSWERS, loaded(ANSWERING, types), "limit", cores=2, needs=("wrk",)),
        ),
        headlines=(
            Headline(
                GROUP,
                f"Ask a server for all payloads of a tag of {types} types, by 32 connections",
                "Femtobarn",
                per_second("requests"),
                rate("Femtobarn", 10e3),
                (ANSWERS,),
                (PEER,),
            ),
        ),
    )


def loaded(kind: str, types: int) -> tuple[str, ...]:
    """The command that lets wrk send these requests."""
    return ("conditions_served.py", "load", kind, tag_data(data_of(kind), types), str(types), LOAD_SECONDS)


FIGURES = (
    in_process("ordered", "in the order of time", 33e6),
    in_process("random", "at random", 3.3e6),
    from_python("single", "ordered", "`series.at(time)`, one by one in the order of time", SINGLE, 0.67e6),
    from_python(
        "single",
        "random",
        "`series.at(time)`, one by one at random",
        SINGLE,
        0.67e6,
        "Look a condition up at a random time, from Python",
    ),
    from_python("arrays", "ordered", "`series.entries_at(times)` in the order of time", ARRAYS, 16.7e6),
    from_python("arrays", "random", "`series.entries_at(times)` at random", ARRAYS, 5e6),
    Figure(
        name="conditions-insert",
        title="Insert 400,000 conditions into 100 series, durably",
        unit="conditions",
        sides=(
            Side("Femtobarn", ("conditions.py", "insert", "femtobarn", "{work}/conditions.fed"), "ours"),
            Side("SQLite", ("conditions.py", "insert", "sqlite", "{work}/conditions.sqlite")),
            Side(
                "plain file", ("peers", "append", "plain", "{work}", "{data}/objects.bin", *INSERTED), "limit"
            ),
            Side(
                PEER,
                ("conditions_served.py", "insert", PEER, "{work}/inserted", "2000"),
                cores=2,
                needs=("psql",),
                variables=VARIABLES,
            ),
        ),
        targets=(
            explained(
                faster("Femtobarn", "SQLite", 1.0, "cpu"),
                "Each of 100 new containers has a page for each column, and a row in the catalogue.",
            ),
        ),
        headlines=(
            Headline(
                GROUP,
                "Insert 400,000 conditions in one durable transaction",
                "Femtobarn",
                per_second("conditions"),
                rate("Femtobarn", 300e3),
                limits=("plain file",),
                peers=("SQLite", PEER),
            ),
        ),
    ),
    Figure(
        name="conditions-put",
        title="Put conditions one by one, each in a durable commit",
        unit="conditions",
        sides=(
            Side("Femtobarn", ("conditions.py", "put", "femtobarn", "{work}/put.fed", "1000"), "ours"),
            Side("SQLite", ("conditions.py", "put", "sqlite", "{work}/put.sqlite", "1000")),
            Side(IN_PLACE, ONE_SYNC, "limit"),
        ),
        headlines=(
            Headline(
                GROUP,
                "Put conditions one by one, each durably",
                "Femtobarn",
                per_second("conditions"),
                explained(
                    rate("Femtobarn", 3000),
                    "A write and a sync alone take an eighth of the processor's time: a commit from Python "
                    "has pages, page lists, a footer, a commit record, and SQLite's transaction.",
                ),
                limits=(IN_PLACE,),
                peers=("SQLite",),
            ),
        ),
    ),
    Figure(
        name="conditions-copy",
        title="Copy a global tag of 100 series",
        unit="copies",
        sides=(Side("Femtobarn", ("conditions.py", "copy", "femtobarn", "{work}/copy.fed", "200"), "ours"),),
        targets=(rate("Femtobarn", 100),),
    ),
    Figure(
        name="conditions-tag",
        title="Copy a global tag of 100 series of 50,000 conditions",
        unit="copies",
        sides=(Side("Femtobarn", ("conditions.py", "tag", "femtobarn", LARGE), "ours"),),
        targets=(
            rate("Femtobarn", 100),
            milliseconds("Femtobarn, ms to open it and a series", "open_s", 20.0),
            explained(
                of_a_sample("Femtobarn, bytes of a copy", "copied_bytes", 1024.0),
                "A copy is one small object, but its commit ends with a page, a page list, a footer and a "
                "commit record, in blocks of 4 KiB.",
            ),
        ),
    ),
    Figure(
        name="conditions-first",
        title="The first look-up of a new process, from its start on",
        unit="look-ups",
        sides=(
            Side("Femtobarn", ("conditions.py", "first", "femtobarn", DATA), "ours"),
            Side("an interpreter with NumPy", ("conditions.py", "first", "numpy", DATA), "limit"),
        ),
        targets=(milliseconds("Femtobarn, ms after the imports", "ours_s", 50.0),),
        headlines=(
            Headline(
                GROUP,
                "The first look-up of a new process, from its start on",
                "Femtobarn",
                member("ms", "wall_s", 1e3),
                explained(
                    milliseconds("Femtobarn, ms in all", "wall_s", 300.0),
                    "The process starts an interpreter, and imports NumPy and the package.",
                ),
                limits=("an interpreter with NumPy",),
                no_peer=f"{PEER}'s client is not measured",
            ),
        ),
    ),
    *map(whole_tag, TYPES),
    under_load(TYPES[0]),
)

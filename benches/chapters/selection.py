"""A cut on a few of many columns, and other columns read for the events that pass."""

from __future__ import annotations

from chapters.inputs import events
from framework import Figure, Headline, Preparation, Side, faster, per_second, warmed

TITLE = "Selection"
INTRO = """10 million events have 50 columns of single-precision numbers, 2 GB uncompressed. One event in a
thousand passes the cut `f00 > 4.28125 and abs(f01) < 0.15625`, and three other columns are read for it.
Values are in random order, so statistics of row groups or clusters exclude none. Femtobarn selects with
`where=` from Python, in a container of its own and in the file that ROOT wrote; RDataFrame's filter is
compiled, over ROOT's data source and over Femtobarn's; RNTupleReader's loop is written by hand; uproot
iterates over batches, with the cut in awkward;
DuckDB queries Parquet with row groups of 122,880 rows; Lance pushes its filter down. The limit is a loop in
C over mapped files that hold one column each. Each side selects twice; the second pass is timed, without
opening the file."""

COLUMNS = ("f00", "f01", "f10", "f20", "f30")
LOOP = "loop over arrays"
OUR_FRAME = "RDataFrame over Femtobarn"


def plain(column: str) -> str:
    """The file of a column's numbers alone."""
    return f"{{data}}/events_{column}.plain"


PREPARATIONS = (
    *events(),
    *(
        Preparation(
            plain(column), ("ours", "export", plain(column), "{data}/events_none.root", "events", column)
        )
        for column in COLUMNS
    ),
)


def selection(threads: int) -> Figure:
    """All sides with some number of threads."""
    stem, cores = "{data}/events_none", threads
    words = "one thread" if threads == 1 else f"{threads} threads"
    alone = (
        Side("RNTupleReader, views", ("root_scan", "select", f"{stem}.root")),
        Side(LOOP, ("bare_select", *map(plain, COLUMNS)), "limit"),
    )
    sides = (
        Side("Femtobarn", ("selection.py", "femtobarn", f"{stem}.fed"), "ours", cores=cores),
        Side("Femtobarn, ROOT's file", ("selection.py", "file", f"{stem}.root"), "ours", cores=cores),
        Side("RDataFrame", ("root_frame", "select", f"{stem}.root", str(threads)), cores=cores),
        Side(OUR_FRAME, ("root_frame", "select", f"{stem}.fed", str(threads)), "ours", cores=cores),
        *(alone if threads == 1 else ()),
        Side("uproot", ("selection.py", "uproot", f"{stem}.root"), cores=cores),
        Side("DuckDB", ("selection.py", "duckdb", f"{stem}.parquet"), cores=cores),
        Side("Lance", ("selection.py", "lance", f"{stem}.lance"), cores=cores),
    )
    targets = (
        *(faster("Femtobarn", peer, 2.0) for peer in ("RDataFrame", "DuckDB")),
        faster(OUR_FRAME, "RDataFrame", 1.5, "cpu"),
    )
    headline = Headline(
        "Reading back and selecting",
        "Select one event in a thousand by a cut on two columns",
        "Femtobarn",
        per_second("events"),
        targets[1],
        (LOOP,),
        tuple(side.key for side in sides if side.role == "peer"),
    )
    return Figure(
        name=f"selection-{threads}",
        title=f"Select one in a thousand of 10 million events, {words}",
        unit="events",
        sides=tuple(warmed(side) for side in sides),
        targets=targets,
        headlines=(headline,) if threads == 1 else (),
    )


FIGURES = (selection(1), selection(2))

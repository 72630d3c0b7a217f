"""Computing on other engines: tasks of Dask, coffea's processors, ROOT's data frames."""

from __future__ import annotations

from chapters.inputs import columns, pool
from chapters.sequential import COLUMNS, UNPACK
from framework import (
    Figure,
    Headline,
    Preparation,
    Role,
    Side,
    Target,
    faster,
    per_second,
    warmed,
)

TITLE = "Computing on other engines"
INTRO = """200 tasks write 1 MB each, 10,000 objects of 10 fields, into one container: in one transaction of
one process; as tasks of a transaction that forks, one after the other in that process; and by Dask, in two
workers. Containers are plain, or packed with zstd. coffea's processor fills histograms of four of the 41
jagged columns, packed with zstd, as six others select, 1,000 events at a time, by its iterative executor. The
columns are a container of a local federation, an RNTuple that ROOT wrote, and a TTree that uproot wrote in
NanoAOD's form, both read by uproot as coffea's Runner has it. It goes over them twice; the second time
counts, and what is found out about files is kept. Data frames of ROOT read all 41 columns of one sealed
database, by ROOT's own data source for its file and by Femtobarn's."""

TASKS = "200"
EVENTS, FEW_EVENTS = "1000", "50"
WORDS = {"none": "uncompressed", "zstd": "packed with zstd"}
OURS, ONE, DASK = "Femtobarn, tasks", "Femtobarn, one process", "Femtobarn, tasks of Dask"
TREE, NTUPLE = "TTree", "RNTuple"
ROOT_FRAME, OUR_FRAME = "ROOT's data source", "Femtobarn's data source"
TREE_FILE = "{data}/columns_zstd.tree.root"


def sealed(compression: str) -> str:
    """The sealed federation."""
    return f"{{data}}/columns_{compression}.sealed.fed"


PREPARATIONS = (
    pool("rows"),
    *(step for compression in WORDS for step in columns(compression)),
    Preparation(TREE_FILE, ("coffea_events.py", "tree", "{data}/columns_zstd.root", TREE_FILE)),
    *(
        Preparation(sealed(each), ("sealed.py", f"{{data}}/columns_{each}.fed", sealed(each)))
        for each in WORDS
    ),
    COLUMNS.listed("zstd"),
)


# ---- tasks


def tasks(compression: str) -> Figure:
    """Tasks that write into one container."""
    kinds = {ONE: "one", OURS: "tasks", DASK: "dask"}
    return Figure(
        name=f"tasks-{compression}",
        title=f"{TASKS} tasks write 1 MB each into one container, {WORDS[compression]}",
        unit="tasks",
        sides=tuple(
            Side(
                name,
                ("tasks.py", kind, "{work}", "{data}/rows.bin", TASKS, compression),
                "ours",
                cores=2 if kind == "dask" else 1,
            )
            for name, kind in kinds.items()
        ),
        targets=(
            faster(OURS, ONE, 1 / 1.1, "cpu"),
            faster(DASK, ONE, 1 / 1.1),
            Target("microseconds to merge a task", lambda r: r.member(OURS, "merge_us"), at_most=1000),
        ),
    )


# ---- coffea


def by_coffea(command: str, events: str) -> tuple[Side, ...]:
    """A processor over all sources."""
    places: dict[str, tuple[str, str, Role]] = {
        "Femtobarn": ("federation", "{data}/columns_zstd.fed", "ours"),
        TREE: ("file", TREE_FILE, "peer"),
        NTUPLE: ("file", "{data}/columns_zstd.root", "peer"),
    }
    return tuple(
        warmed(Side(name, ("coffea_events.py", command, kind, place, events), role))
        for name, (kind, place, role) in places.items()
    )


def processors() -> Figure:
    """A processor that uses ten of the columns."""
    wanted = faster("Femtobarn", TREE, 2.0, "cpu")
    return Figure(
        name="coffea-events",
        title="Histograms from ten jagged columns by coffea",
        unit="events",
        sides=by_coffea("run", EVENTS),
        targets=(faster("Femtobarn", NTUPLE, 1.3, "cpu"),),
        by="cpu",
        headlines=(
            Headline(
                "Python",
                "Fill histograms from ten jagged columns, packed with zstd, by coffea",
                "Femtobarn",
                per_second("events", "cpu"),
                wanted,
                no_limit="the processor's own work is the same for all",
                peers=(TREE, NTUPLE),
            ),
        ),
    )


def partitions() -> Figure:
    """What a partition costs."""
    each = Target("ms for a partition", lambda r: 1000 / r.rate("Femtobarn"), at_most=5)
    return Figure(
        name="coffea-partitions",
        title=f"Partitions of {FEW_EVENTS} events, of which coffea reads a small column",
        unit="partitions",
        sides=by_coffea("parts", FEW_EVENTS),
        targets=(each,),
    )


# ---- data frames of ROOT


def frames(compression: str) -> Figure:
    """All columns of a sealed database, by one thread and by two."""
    federation = sealed(compression)
    names = ",".join(COLUMNS.names)
    kinds: dict[str, tuple[str, Role]] = {
        ROOT_FRAME: (f"{federation}/databases/own.root", "peer"),
        OUR_FRAME: (federation, "ours"),
    }
    sides = [
        Side(
            name,
            ("root_frame", "columns", place, names, str(threads)),
            role,
            x=threads,
            cores=threads,
        )
        for name, (place, role) in kinds.items()
        for threads in (1, 2)
    ]
    unpacked = Side(UNPACK, ("bare_unpack", COLUMNS.database("zstd"), COLUMNS.pages("zstd")), "limit", x=1)
    return Figure(
        name=f"frames-{compression}",
        title=f"All 41 jagged columns of a sealed database in a data frame of ROOT, {WORDS[compression]}",
        unit="events",
        sides=tuple(map(warmed, (*sides, unpacked) if compression == "zstd" else sides)),
        targets=tuple(faster(f"{OUR_FRAME} @ {n}", f"{ROOT_FRAME} @ {n}", 1.5, "cpu") for n in (1, 2)),
        by="cpu",
        x="threads",
    )


FIGURES: tuple[Figure, ...] = (
    *map(tasks, WORDS),
    processors(),
    partitions(),
    *map(frames, WORDS),
)
"""The chapter's figures."""

"""The cost of work as numbers of objects, containers, databases and commits grow, and its memory."""

from __future__ import annotations

from framework import Figure, Headline, Preparation, Side, Target, flat, highest, last, member

TITLE = "Growth"
INTRO = (
    "The same work is repeated with growing numbers of objects, containers, databases and commits; a flat "
    "line means that the cost does not depend on the number. Objects have 16 bytes, and federations are in "
    "the page cache."
)
PREPARATIONS = tuple(
    Preparation(f"{{data}}/many_{kind}", ("growth.py", "prepare", kind, f"{{data}}/many_{kind}"))
    for kind in ("containers", "databases", "commits")
)

UPKEEP = {"check a container": ("check", "containers"), "vacuum an old commit": ("vacuum", "commits")}
NO_LIMIT = "the aim is that size does not matter"
NO_PEER = "peers are not measured at this size"
OURS, CPU, WALL = "Femtobarn", "Femtobarn, CPU", "Femtobarn, wall"


def felt(text: str, ours: str, unit: str, wanted: Target) -> tuple[Headline, ...]:
    """What users of a large federation feel: the last point of a curve."""
    return (Headline("Growth", text, ours, last(unit), wanted, no_limit=NO_LIMIT, no_peer=NO_PEER),)


def by_objects(name: str, title: str, targets: tuple[Target, ...], headlines: tuple[Headline, ...]) -> Figure:
    """The cost of one kind of work as a container grows."""
    return Figure(
        name=f"growth-{name}",
        title=title,
        unit="objects",
        sides=(
            Side(CPU, ("growth.py", name, "{work}", "cpu"), "ours"),
            Side(WALL, ("growth.py", name, "{work}", "wall"), "ours"),
        ),
        targets=targets,
        headlines=headlines,
        by="cpu",
        x="objects in the container",
        y="microseconds",
    )


def by_kind(kind: str, title: str, did: str) -> Figure:
    """The costs of creating and of finding one item as their number grows."""
    data = f"{{data}}/many_{kind}"
    made, found = f"{did} one", "open the federation and read one"
    return Figure(
        name=f"growth-{kind}",
        title=title,
        unit=kind,
        sides=(
            Side(made, ("growth.py", "create", kind, data, "{work}"), "ours"),
            Side(found, ("growth.py", "find", kind, data), "ours"),
        ),
        targets=(flat(made), flat(found)),
        by="cpu",
        x=kind,
        y="CPU microseconds",
    )


def no_dearer(side: str) -> Target:
    """The ratio of the last to the lowest point of a curve."""
    return Target(
        f"{side}: among most / cheapest",
        lambda r: r.heights(side)[-1] / min(r.heights(side)),
        at_most=1.2,
    )


FIGURES = (
    by_objects(
        "append",
        "Commit 1,000 objects more to a container",
        (),
        felt("Commit 1,000 objects more, to a container of 100 million", CPU, "us of CPU", flat(CPU)),
    ),
    by_objects(
        "open",
        "Open a federation and read an object of a container",
        (flat(CPU),),
        felt(
            "Open a federation, and read one of 100 million objects of a container",
            WALL,
            "us",
            highest(WALL, 5000, "microseconds in total"),
        ),
    ),
    by_kind("containers", "Containers in a database", "create"),
    by_kind("databases", "Databases in a federation", "create"),
    by_kind("commits", "Commits in the history, each with a tag", "commit and tag"),
    Figure(
        name="growth-upkeep",
        title="Upkeep: the cost for each container, or for each old commit",
        unit="containers or commits",
        sides=tuple(
            Side(did, ("growth.py", "upkeep", work, f"{{data}}/many_{kind}", "{work}"), "ours")
            for did, (work, kind) in UPKEEP.items()
        ),
        targets=tuple(map(no_dearer, UPKEEP)),
        by="cpu",
        x="containers or commits",
        y="CPU microseconds",
        note="A check and a vacuum have a constant cost, too, so each of few costs more.",
    ),
    Figure(
        name="growth-memory",
        title="Memory of a reader and of a writer of 100 million objects",
        unit="objects",
        sides=(
            Side("reader", ("growth.py", "reader", "{work}"), "ours"),
            Side("writer", ("growth.py", "writer", "{work}"), "ours"),
        ),
        targets=(highest("writer", 256, "MB"),),
        headlines=felt(
            "Memory of a process that reads 100 million objects",
            "reader",
            "MB",
            highest("reader", 256 + 128, "MB, including up to 256 MB of cached pages"),
        ),
        x="MB read or written",
        y="MB of memory",
    ),
    Figure(
        name="growth-readers",
        title="200 processes open one federation of 10,000 databases and read an object each",
        unit="processes",
        sides=(Side(OURS, ("growth.py", "many", "{data}/many_databases"), "ours", cores=2),),
        targets=(
            Target(
                "MB of memory per process",
                lambda r: r.median(OURS, lambda s: s["memory_bytes"] / s["items"] / 1e6),
                at_most=5.0,
            ),
        ),
        headlines=(
            Headline(
                "Growth",
                "200 processes open a federation of 10,000 databases, and read an object each",
                OURS,
                member("s in all", "wall_s"),
                Target("seconds for all processes", lambda r: r.member(OURS, "wall_s"), at_most=2.0),
                no_limit=NO_LIMIT,
                no_peer=NO_PEER,
            ),
        ),
        by="cpu",
        note="The processes are forked from one that has loaded the package; memory is what each adds to it.",
    ),
)

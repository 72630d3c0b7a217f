"""Arrays and objects from Python."""

from __future__ import annotations

from chapters.inputs import columns, objects, rows
from chapters.sequential import COLUMNS, UNPACK
from framework import Figure, Headline, Preparation, Role, Side, explained, faster, per_second, rate

TITLE = "Python"
INTRO = """Jagged columns are read as awkward arrays; structured NumPy arrays of objects of 10 fields and 100
bytes are written durably and read; objects of 100 bytes and of 10 KB are written one by one, in durable
commits of 10,000, and fetched one by one in random order, with every field touched. HDF5 is used through
h5py, Parquet through pyarrow, LMDB through py-lmdb with `struct`; ZODB keeps persistent objects in an
IOBTree in a FileStorage. Only Femtobarn and ZODB return objects of a class; LMDB returns bytes that the
program unpacks. The limits are NumPy's `tofile` and `fromfile` and reading the same file into one buffer;
unpacking the pages of packed columns by the codec's library in C; and for small objects an interpreter that
makes objects of a class from a mapped file, and appends them to it."""

RECORDS = {
    "Femtobarn": "femtobarn", "uproot": "uproot", "HDF5": "hdf5", "Parquet": "parquet", "NumPy": "numpy",
}  # fmt: skip
ROLES: dict[str, Role] = {"Femtobarn": "ours", "NumPy": "limit"}
PAGES = "{data}/columns_of_root_zstd.pages"
"""The list of the jagged columns' pages in the file that ROOT wrote."""

SMALL, BLOB = "20000", "5000"
ENGINES = {"ZODB": "zodb", "LMDB": "lmdb", "HDF5": "hdf5"}
INTERPRETER, ALONE = "Python alone", "alone"
# HDF5 takes a millisecond per object, the others microseconds.
SMALL_BY_HDF5 = "1000"


def stored(engine: str, kind: str) -> str:
    """The number of objects of a kind in an engine's data."""
    return BLOB if kind == "blob" else SMALL_BY_HDF5 if engine == "hdf5" else SMALL


def written(engine: str, kind: str, folder: str) -> tuple[str, ...]:
    """The command that writes objects one by one."""
    source = "{data}/rows.bin" if kind == "small" else "{data}/objects.bin"
    return ("one_by_one.py", "write", engine, kind, folder, stored(engine, kind), source)


def records_command(what: str, side: str, folder: str) -> tuple[str, ...]:
    """The command that writes or reads an array of objects."""
    if what == "write":
        return ("records.py", "write", side, folder, "{data}/rows.bin")
    return ("records.py", "read", side, f"{{data}}/records.{side}/rows")


PREPARATIONS = (
    *columns("none"),
    *columns("zstd"),
    *rows("none"),
    *objects("none"),
    Preparation(
        PAGES,
        ("ours", "pages", PAGES, "{data}/columns_zstd.root", "file/events", ",".join(COLUMNS.names)),
    ),
    *(
        Preparation(f"{{data}}/{engine}.{kind}", written(engine, kind, f"{{data}}/{engine}.{kind}"))
        for engine in ("femtobarn_key", *ENGINES.values())
        for kind in ("small", "blob")
    ),
    Preparation(f"{{data}}/{ALONE}.small", written(ALONE, "small", f"{{data}}/{ALONE}.small")),
    *(
        Preparation(f"{{data}}/records.{side}", records_command("write", side, f"{{data}}/records.{side}"))
        for side in RECORDS.values()
    ),
)


def arrays(compression: str) -> Figure:
    """Reading all columns as awkward arrays."""
    words = "uncompressed" if compression == "none" else compression
    file = f"{{data}}/columns_{compression}.root"
    wanted = faster("Femtobarn", "uproot", 3.0, "cpu")
    if compression != "none":
        wanted = explained(
            wanted,
            "Unpacking alone takes four fifths of the time, and nine tenths of the wanted time.",
        )
    headline = Headline(
        "Python",
        "Read 41 jagged columns, packed with zstd, as awkward arrays",
        "Femtobarn",
        per_second("entries", "cpu"),
        wanted,
        (UNPACK,),
        ("uproot",),
    )
    unpacked = (Side(UNPACK, ("bare_unpack", file, PAGES), "limit"),) if compression == "zstd" else ()
    return Figure(
        name=f"arrays-{compression}",
        title=f"`arrays()` of all 41 jagged columns, {words}",
        unit="entries",
        sides=(
            Side("Femtobarn", ("arrays.py", "ours", file), "ours"),
            Side("uproot", ("arrays.py", "uproot", file)),
            *unpacked,
        ),
        targets=(wanted,),
        headlines=(headline,) if compression == "zstd" else (),
        by="cpu",
    )


def records(what: str, title: str, at_least: float) -> Figure:
    """Arrays of objects of 100 bytes."""
    plain = ("ours", "read-plain", "{data}/records.numpy/rows/rows.bin", "cached", "2000000")
    buffered = (Side("pread", plain, "limit"),) if what == "read" else ()
    return Figure(
        name=f"records-{what}",
        title=title,
        unit="objects",
        sides=(
            *(
                Side(name, records_command(what, side, "{work}/records"), ROLES.get(name, "peer"))
                for name, side in RECORDS.items()
            ),
            *buffered,
        ),
        by="cpu",
        headlines=(
            Headline(
                "Python",
                title,
                "Femtobarn",
                per_second("objects", "cpu"),
                explained(
                    rate("Femtobarn", at_least, "cpu"),
                    "Each field becomes a column of pages with checksums; HDF5 and NumPy copy the rows as "
                    "they are in memory.",
                ),
                limits=("NumPy", *(side.key for side in buffered)),
                peers=("uproot", "HDF5", "Parquet"),
            ),
        ),
    )


def one_by_one(what: str, kind: str, title: str) -> Figure:
    """Objects one by one."""

    def command(engine: str) -> tuple[str, ...]:
        if what == "write":
            return written(engine, kind, "{work}/single")
        count = min(stored(engine, kind), "5000", key=int)
        folder = "femtobarn_key" if engine == "femtobarn" else engine
        return (
            "one_by_one.py",
            "read",
            engine,
            kind,
            f"{{data}}/{folder}.{kind}",
            count,
            stored(engine, kind),
        )

    wanted = explained(
        faster("Femtobarn", "ZODB", 10.0, "cpu"),
        "The interpreter alone takes more than a microsecond for an object of ten fields; arrays are the way "
        "to many objects.",
    )
    headline = Headline(
        "Python",
        title,
        "Femtobarn",
        per_second("objects", "cpu"),
        wanted,
        limits=(INTERPRETER,),
        peers=tuple(ENGINES),
    )
    by_key = (Side("Femtobarn, by key", command("femtobarn_key"), "ours"),) if what == "read" else ()
    return Figure(
        name=f"{kind}-{what}",
        title=title,
        unit="objects",
        sides=(
            Side("Femtobarn", command("femtobarn"), "ours"),
            *by_key,
            *(Side(name, command(engine)) for name, engine in ENGINES.items()),
            *((Side(INTERPRETER, command(ALONE), "limit"),) if kind == "small" else ()),
        ),
        targets=(wanted,),
        by="cpu",
        headlines=(headline,) if kind == "small" else (),
    )


FIGURES = (
    arrays("none"),
    arrays("zstd"),
    records("write", "Write an array of 2 million objects of 100 bytes", 3e6),
    records("read", "Read an array of 2 million objects of 100 bytes", 13e6),
    one_by_one("write", "small", "Write objects of 100 bytes one by one"),
    one_by_one("read", "small", "Fetch objects of 100 bytes one by one"),
    one_by_one("write", "blob", "Write objects of 10 KB one by one"),
    one_by_one("read", "blob", "Fetch objects of 10 KB one by one"),
)

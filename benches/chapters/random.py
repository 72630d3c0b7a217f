"""Random reading of objects."""

from __future__ import annotations

from chapters.inputs import POOL, objects
from framework import (
    Figure,
    Headline,
    Preparation,
    Results,
    Role,
    Side,
    Target,
    explained,
    faster,
    microseconds,
    per_second,
    rate,
    warmed,
)

TITLE = "Objects at random"
INTRO = (
    "Every byte of each object is read (summed as words), on one core. Hot means that all objects have been "
    "read before, cold that all files were evicted from the page cache. Objects are read by OID, by key "
    "(peers have only keys), or by following the links of other objects, which are read at random, too. "
    "LMDB and the mapped file return memory of the page cache, Femtobarn by OID memory of its own cache; all "
    "others copy. Femtobarn's and RocksDB's caches hold all objects. ROOT (LoadEntry) reads a cluster per "
    "object."
)

COUNTS = {100: 2_000_000, 10240: 25_600}
LARGE, SMALL = 10240, 100
BATCH = 1000
GROUP = "Finding single objects"
DISK_BYTES = 16 << 10


def folder_of(store: str, size: int) -> str:
    """The folder of a store with objects of one size."""
    return f"{{data}}/random_{store}_{size}"


def filled(size: int) -> tuple[Preparation, ...]:
    """Objects of one size in all stores that are measured with it."""
    count, pool = str(COUNTS[size]), "{data}/objects.bin"
    appended = (pool, str(size), count, str((64 << 20) // size))
    commands = {
        "fed": ("ours", "fill", folder_of("fed", size), pool, str(size), count),
        "plain": ("peers", "append", "plain", folder_of("plain", size), *appended, "0"),
        "lmdb": ("peers", "append", "lmdb", folder_of("lmdb", size), *appended, "0"),
        "rocksdb": ("rocksdb_peer", "append", folder_of("rocksdb", size), *appended, "0"),
    }
    if size == LARGE:
        commands["root"] = ("root_objects", "append", folder_of("root", size), *appended, "0")
        commands["zodb"] = ("objects.py", "append", "zodb", folder_of("zodb", size), *appended)
        commands["lance"] = ("objects.py", "fill", "lance", folder_of("lance", size), pool, str(size), count)
    return tuple(Preparation(folder_of(store, size), command) for store, command in commands.items())


PREPARATIONS = (POOL, *filled(LARGE), *filled(SMALL), *objects("zstd"))


def reads(size: int, count: int, batch: int = 1, heat: str = "hot") -> tuple[str, ...]:
    """The arguments for the objects to read, and for the way of reading."""
    return (str(COUNTS[size]), str(size), str(count), str(batch), heat)


def ours(name: str, way: str, *what: str, before: tuple[str, ...] | None = None) -> Side:
    """Our side, one by one in one of its ways, or in batches."""
    folder = folder_of("fed", int(what[1]))
    command = ("batches", folder) if way == "batches" else ("random", folder, way)
    return Side(name, ("ours", *command, *what), "ours", before=before)


def peer(
    name: str, store: str, *what: str, role: Role = "peer", before: tuple[str, ...] | None = None
) -> Side:
    """A peer's side; it reads from the page cache unless `before` says otherwise."""
    programs = {
        "mmap": ("peers", "random", "mmap", folder_of("plain", int(what[1]))),
        "plain": ("peers", "random", "plain", folder_of("plain", int(what[1]))),
        "lmdb": ("peers", "random", "lmdb", folder_of("lmdb", int(what[1]))),
        "rocksdb": ("rocksdb_peer", "random", folder_of("rocksdb", int(what[1]))),
        "root": ("root_objects", "random", folder_of("root", int(what[1]))),
        "zodb": ("objects.py", "random", "zodb", folder_of("zodb", int(what[1]))),
        "lance": ("objects.py", "random", "lance", folder_of("lance", int(what[1]))),
    }
    side = Side(name, (*programs[store], *what), role, before=before)
    return side if before else warmed(side)


def one_by_one() -> Figure:
    """Objects of 10 KB, hot."""
    many = reads(LARGE, 200_000)
    return Figure(
        name="random-10kb",
        title="Read 10 KB objects at random one by one, hot",
        unit="objects",
        sides=(
            ours("Femtobarn, by OID", "oid", *many),
            ours("Femtobarn, by key", "key", *many),
            # Links lead to other objects than those of the other sides. Checksums of equally many items are
            # compared, hence one item less.
            ours("Femtobarn, by links", "links", *reads(LARGE, 199_999)),
            peer("LMDB", "lmdb", *many),
            peer("RocksDB", "rocksdb", *many),
            peer("ROOT", "root", *reads(LARGE, 50)),
            peer("Lance", "lance", *reads(LARGE, 1000)),
            peer("ZODB", "zodb", *reads(LARGE, 20_000)),
            peer("mapped file", "mmap", *many, role="limit"),
            peer("pread", "plain", *many, role="limit"),
        ),
        headlines=(
            hot("Read an object of 10 KB by its OID", "Femtobarn, by OID", rate("Femtobarn, by OID", 6e5)),
            hot(
                "Find an object of 10 KB by its key, and read it",
                "Femtobarn, by key",
                rate("Femtobarn, by key", 2e5),
            ),
        ),
    )


def hot(text: str, ours: str, wanted: Target) -> Headline:
    """What a user feels of reading objects of 10 KB one by one."""
    return Headline(
        GROUP,
        text,
        ours,
        microseconds("an object"),
        explained(
            wanted, "LMDB and the mapped file return memory of the page cache, and verify no checksum."
        ),
        limits=("mapped file", "pread"),
        peers=("LMDB", "RocksDB", "ROOT", "Lance", "ZODB"),
    )


def batches() -> Figure:
    """Objects of 10 KB, hot, a thousand at once."""
    many = reads(LARGE, 200_000, BATCH)
    return Figure(
        name="random-10kb-batches",
        title="Read 10 KB objects at random in batches of 1,000, hot",
        unit="objects",
        sides=(
            ours("Femtobarn", "batches", *many),
            peer("RocksDB, MultiGet", "rocksdb", *many),
            peer("Lance, take", "lance", *reads(LARGE, 20_000, BATCH)),
            peer("mapped file", "mmap", *reads(LARGE, 200_000), role="limit"),
        ),
    )


def small() -> Figure:
    """Objects of 100 B, hot."""
    many = reads(SMALL, 1_000_000)
    return Figure(
        name="random-100b",
        title="Read 100 B objects at random, hot",
        unit="objects",
        sides=(
            ours("Femtobarn, by OID", "oid", *many),
            ours("Femtobarn, in batches of 1,000", "batches", *reads(SMALL, 1_000_000, BATCH)),
            peer("LMDB", "lmdb", *many),
            peer("RocksDB", "rocksdb", *many),
            peer("RocksDB, MultiGet of 1,000", "rocksdb", *reads(SMALL, 1_000_000, BATCH)),
            peer("mapped file", "mmap", *many, role="limit"),
            peer("pread", "plain", *many, role="limit"),
        ),
        targets=(rate("Femtobarn, by OID", 2e6),),
    )


def cold() -> Figure:
    """Objects of 10 KB from the disk."""
    one, many = reads(LARGE, 3000, 1, "cold"), reads(LARGE, 3000, BATCH, "cold")

    def evicted(store: str) -> tuple[str, ...]:
        return ("peers", "evict", folder_of(store, LARGE))

    def disk(name: str, depth: int) -> Side:
        file = f"{folder_of('plain', LARGE)}/w0"
        return Side(name, ("peers", "blocks", file, str(DISK_BYTES), "6000", str(depth)), "limit")

    return Figure(
        name="random-10kb-cold",
        title="Read 10 KB objects at random from the disk",
        unit="objects",
        sides=(
            ours("Femtobarn, one by one", "oid", *one, before=evicted("fed")),
            ours("Femtobarn, in batches of 1,000", "batches", *many, before=evicted("fed")),
            peer("LMDB", "lmdb", *one, before=evicted("lmdb")),
            peer("RocksDB", "rocksdb", *one, before=evicted("rocksdb")),
            peer("RocksDB, MultiGet of 1,000", "rocksdb", *many, before=evicted("rocksdb")),
            peer("Lance, take of 1,000", "lance", *many, before=evicted("lance")),
            peer("pread", "plain", *one, role="limit", before=evicted("plain")),
            disk("disk, 16 KB at once", 1),
            disk("disk, 64 times 16 KB at once", 64),
        ),
        targets=(
            explained(
                faster("Femtobarn, in batches of 1,000", "Femtobarn, one by one", 5.0),
                "The disk serves 64 reads at once only about four times as fast as one by one.",
            ),
        ),
        headlines=(
            Headline(
                GROUP,
                "Read 1,000 objects of 10 KB that only the disk has, at once",
                "Femtobarn, in batches of 1,000",
                per_second("objects"),
                explained(
                    faster("Femtobarn, in batches of 1,000", "disk, 64 times 16 KB at once", 0.8),
                    "The client announces the pages of a hundred objects at a time to the kernel, which "
                    "copies them out of its cache; the limit reads past the cache.",
                ),
                limits=("disk, 64 times 16 KB at once",),
                peers=("LMDB", "RocksDB", "RocksDB, MultiGet of 1,000", "Lance, take of 1,000"),
            ),
        ),
        note="The disk's own rate is that of 16 KB reads past the page cache, one or 64 at a time.",
    )


def scan() -> Figure:
    """All objects of 10 KB in order."""

    counts = (str(COUNTS[LARGE]), str(LARGE))
    ours_scanned = ("ours", "scan-objects", folder_of("fed", LARGE))
    plain = folder_of("plain", LARGE)

    def gigabytes(results: Results) -> float:
        return results.rate("Femtobarn") * LARGE / 1e9

    return Figure(
        name="scan-10kb",
        title="Read all 10 KB objects in order, hot",
        unit="objects",
        sides=(
            warmed(Side("Femtobarn", (*ours_scanned, "cached", *counts), "ours")),
            warmed(Side("Femtobarn, forward", (*ours_scanned, "forward", *counts), "ours")),
            warmed(Side("LMDB", ("peers", "scan", "lmdb", folder_of("lmdb", LARGE), *counts))),
            warmed(Side("RocksDB", ("rocksdb_peer", "scan", folder_of("rocksdb", LARGE), *counts))),
            warmed(Side("mapped file", ("peers", "scan", "mmap", plain, *counts), "limit")),
            warmed(Side("pread", ("peers", "scan", "plain", plain, *counts), "limit")),
        ),
        targets=(Target("Femtobarn, GB per second", gigabytes, at_least=10.0),),
        note="Femtobarn's and RocksDB's own caches hold all objects. Forward, Femtobarn reads from the page "
        "cache, as a reader of more data than its own cache holds.",
    )


def keys() -> Figure:
    """Look-up of an object by its key."""

    def of_a_key(results: Results) -> float:
        return 1e6 / results.rate("Femtobarn, find")

    return Figure(
        name="keys",
        title="Find 10 KB objects by key, hot",
        unit="keys",
        sides=(ours("Femtobarn, find", "find", *reads(LARGE, 100_000)),),
        targets=(Target("Femtobarn, microseconds per key", of_a_key, at_most=5.0),),
        note="The look-up alone; the figure above has the peers' look-up together with the object.",
    )


def zstd() -> Figure:
    """Compressed objects, hot."""
    return Figure(
        name="random-zstd",
        title="Read 10 KB objects at random by OID, hot, zstd",
        unit="objects",
        sides=(
            Side("Femtobarn", ("ours", "random-objects", "{data}/objects_zstd.fed", "60000"), "ours"),
            Side("ROOT", ("root_peer", "random-objects", "{data}/objects_zstd.root", "1000")),
        ),
        targets=(faster("Femtobarn", "ROOT", 10.0, "cpu"),),
        by="cpu",
    )


FIGURES = (one_by_one(), batches(), small(), cold(), scan(), keys(), zstd())

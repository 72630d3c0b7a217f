"""A database in an S3 server: copying it there and back, and reading a selection of it in place.

    stored.py femtobarn|rclone|PROGRAM FOLDER migrate|stage
    stored.py s3|folder FOLDER selection
    stored.py make FOLDER MEGABYTES

FOLDER has a federation with a sealed database. The server is that of rclone, or versitygw's if the variable
`VERSITYGW` names it; rclone copies the same file as a client of the same server. PROGRAM is `bare_http`,
which knows no keys: its server is always rclone's, and asks for none. `selection` reads one of 50 fields in
one cluster of a hundred of what the store alone has; its point is the bytes that came from the store. CPU
seconds are those of the program that copies; memory is what our process takes for it at most.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from filecmp import cmp
from pathlib import Path
from typing import Any

import numpy as np
from servers import free_port, running
from timing import sync

import femtobarn as fb

USER, SECRET, BUCKET = "ann", "a secret", "lhc"
FIELDS = 50
CLUSTERS = 100

Point: Any = fb.persistent(
    type(
        "Point",
        (),
        {"__annotations__": dict.fromkeys((f"f{number:02}" for number in range(FIELDS)), fb.float32)},
    )
)


def main() -> int:
    """Run one side."""
    side, folder, work = sys.argv[1:]
    source = Path(folder) / "bench.fed"
    if side == "make":
        make(source, int(work))
        return 0
    with tempfile.TemporaryDirectory(prefix="stored", dir=source.parent.parent) as place:
        scratch = Path(place)
        if work == "selection":
            done = selection(side, source, scratch)
        elif side == "femtobarn":
            done = by_femtobarn(source, scratch, work)
        elif side == "rclone":
            done = by_rclone(source, scratch, work)
        else:
            done = by_http(side, source, scratch, work)
    print(json.dumps(done))
    return 0


def make(folder: Path, megabytes: int) -> None:
    """A federation with a sealed database of as many clusters as commits."""
    entries = megabytes * 1_000_000 // (CLUSTERS * FIELDS * 4)
    numbers = np.random.default_rng(1)
    with fb.create(folder) as federation:
        for _ in range(CLUSTERS):
            with federation.transaction() as txn:
                points = txn.database("run7", create=True).container("points", Point, create=True)
                points.extend(
                    {f"f{number:02}": numbers.random(entries, np.float32) for number in range(FIELDS)}
                )
        federation.seal("run7")


def by_femtobarn(source: Path, scratch: Path, work: str) -> dict[str, Any]:
    """Migrate the database; for `stage`, remove its file then, and bring it back."""
    with s3(scratch) as url, copied(source, scratch, s3_settings(url)) as federation:
        size = sum(Path(one.path).stat().st_size for one in federation.where("run7"))

        def migrate() -> None:
            federation.migrate("run7", "store")

        if work == "migrate":
            return timed(migrate, size, resource.RUSAGE_SELF)
        migrate()
        federation.evict("run7")
        return timed(lambda: federation.stage("run7"), size, resource.RUSAGE_SELF)


def by_rclone(source: Path, scratch: Path, work: str) -> dict[str, Any]:
    """Copy the database's file there, or back; durable as a staged file is."""
    with s3(scratch) as url, fb.open(source) as federation:
        (file,) = (Path(one.path) for one in federation.where("run7"))
        there, back = f":s3:{BUCKET}/raw.root", scratch / "raw.root"
        keys = ["--s3-access-key-id", USER, "--s3-secret-access-key", SECRET]
        options = ["--s3-provider", "Other", "--s3-endpoint", url, *keys, "--s3-no-check-bucket"]

        def copy(start: str | Path, end: str | Path) -> None:
            command = [rclone(), "copyto", "--ignore-times", *options, str(start), str(end)]
            subprocess.run(command, check=True, capture_output=True)

        def fetch() -> None:
            copy(there, back)
            sync(back)

        if work == "migrate":
            return timed(lambda: copy(file, there), file.stat().st_size, resource.RUSAGE_CHILDREN)
        copy(file, there)
        return timed(fetch, file.stat().st_size, resource.RUSAGE_CHILDREN)


def by_http(program: str, source: Path, scratch: Path, work: str) -> dict[str, Any]:
    """Put the database's file there, or get it, by nothing but a request of HTTP; compare the bytes."""
    with s3(scratch, keys=False) as url, fb.open(source) as federation:
        (file,) = (Path(one.path) for one in federation.where("run7"))
        kept, back = scratch / "s3" / BUCKET / "raw.root", scratch / "raw.root"

        def copy(way: str, path: Path) -> None:
            command = [program, way, url.rpartition(":")[2], f"/{BUCKET}/raw.root", str(path)]
            subprocess.run(command, check=True, capture_output=True)

        if work == "stage":
            shutil.copyfile(file, kept)
        way, path, written = ("put", file, kept) if work == "migrate" else ("get", back, back)
        done = timed(lambda: copy(way, path), file.stat().st_size, resource.RUSAGE_CHILDREN)
        if not cmp(file, written, shallow=False):
            raise SystemExit(f"{written} has other bytes than {file}")
        return done


def timed(work: Callable[[], None], size: int, who: int) -> dict[str, Any]:
    """The sample of work that moves so many bytes once."""
    os.sync()
    # From now on the peak is that of this work (proc(5), clear_refs).
    Path("/proc/self/clear_refs").write_text("5")
    memory = peak_bytes()
    before, wall = resource.getrusage(who), time.perf_counter()
    work()
    wall, after = time.perf_counter() - wall, resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = peak_bytes() - memory
    return {"items": size, "bytes": size, "wall_s": wall, "cpu_s": cpu, "check": 0, "memory_bytes": memory}


def peak_bytes() -> int:
    """The most memory that this process had."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) * 1024


def selection(kind: str, source: Path, scratch: Path) -> dict[str, Any]:
    """Read a field in every hundredth part of the objects, which lie in one cluster each."""
    (scratch / "mirror").mkdir()
    mirror = f"[stores.store]\nkind = 'folder'\npath = '{scratch}/mirror'\nin_place = true\n"
    with s3(scratch) as url:
        with copied(source, scratch, s3_settings(url) if kind == "s3" else mirror) as federation:
            federation.migrate("run7", "store")
            federation.evict("run7")
        with fb.open(scratch / "bench.fed", stage=False) as federation:
            view = federation["run7/points"]
            each = len(view) // CLUSTERS
            before, wall, cpu = from_store(federation), time.perf_counter(), time.process_time()
            chosen = view[37 * each : 38 * each].arrays("f07", library="np")["f07"]
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            fetched = from_store(federation) - before
    check = int(chosen.view(np.uint32).sum(dtype=np.uint32))
    sample = {"items": len(chosen), "bytes": chosen.nbytes, "wall_s": wall, "cpu_s": cpu, "check": check}
    return sample | {"points": [(1, fetched / chosen.nbytes)]}


def from_store(federation: fb.Federation) -> int:
    """Bytes that came from stores."""
    return sum(tier.bytes for tier in federation.read_statistics() if tier.name == "stores")


@contextmanager
def copied(source: Path, scratch: Path, settings: str) -> Iterator[fb.Federation]:
    """A copy of the federation with a store."""
    folder = scratch / "bench.fed"
    shutil.copytree(source, folder)
    (folder / "storage.toml").write_text(settings)
    with fb.open(folder) as federation:
        yield federation


def s3_settings(url: str) -> str:
    """The settings of the store that the server is."""
    os.environ |= {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET}
    return f"[stores.store]\nkind = 's3'\nurl = '{url}'\nbucket = '{BUCKET}'\nin_place = true\n"


@contextmanager
def s3(scratch: Path, keys: bool = True) -> Iterator[str]:
    """An S3 server with a bucket, which asks for keys or not."""
    kept = scratch / "s3"
    (kept / BUCKET).mkdir(parents=True)
    port = free_port()
    address = f"127.0.0.1:{port}"
    if keys and (gateway := os.environ.get("VERSITYGW")):
        command = [gateway, "--port", address, "--access", USER, "--secret", SECRET, "posix", str(kept)]
    else:
        asked = ["--auth-key", f"{USER},{SECRET}"] if keys else []
        command = [rclone(), "serve", "s3", "--addr", address, *asked, str(kept)]
    with running(command, port, scratch):
        yield f"http://{address}"


def rclone() -> str:
    """The program, which a package of Python's has."""
    return str(Path(sys.executable).parent / "rclone")


if __name__ == "__main__":
    sys.exit(main())

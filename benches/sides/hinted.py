"""What hints of clients gain: the same work with and without one, at a server of ours.

    hinted.py WORK disk FILES BYTES PIECE [HINT]
    hinted.py WORK records FILE COUNT BYTES PIECE [HINT]
    hinted.py WORK upload FILES BYTES [HINT]
    hinted.py WORK recall FILES SECONDS [HINT]

WORK is a folder for scratch files. `disk` reads so many files at once and in order, in pieces, from a
simulated disk; its point is the number of seeks. `records` reads long records at random places of a file,
in pieces, through a cache; its point is the bytes that the cache fetches for each byte read. `upload`
writes files at once by 2 MiB; its point is the number of extents in which each lies. `recall` opens files
that a played tape library brings back, each in so many seconds; the time is that from the beginning of its
work until the file that was opened last, which alone has the hint, is on the disk. CPU seconds are the
server's.
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from servers import Server, cache_of_file, free_port, running

DISK = "throttle = { bytes_per_second = 100_000_000, seeks_per_second = 100, cache_bytes = 268_435_456 }"
"""A disk as there are many, and the part of the operating system's cache that it has."""
WRITE_BYTES = 2 << 20

TAPE = """
import json, os, pathlib, shutil, sys, time
request = json.loads(sys.stdin.readline())
stored, answer = pathlib.Path(sys.argv[1]) / request["key"].replace("/", "_"), {}
match request["operation"]:
    case "migrate":
        shutil.copy(request["path"], stored)
    case "stage":
        while os.path.exists(sys.argv[1] + "/hold"):
            time.sleep(0.05)
        time.sleep(float(sys.argv[2]))
        shutil.copy(stored, request["path"])
    case "query":
        answer = {"exists": stored.exists()}
        if stored.exists():
            answer = {"size": stored.stat().st_size, "tape": request["key"]}
print(json.dumps(answer))
"""


def main() -> int:
    """Do the work, and print the sample."""
    scratch, work, *arguments = sys.argv[1:]
    works: dict[str, Callable[..., dict[str, object]]]
    works = {"disk": disk, "records": records, "upload": upload, "recall": recall}
    Path(scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        print(json.dumps(works[work](Path(folder), *arguments)))
    return 0


def disk(folder: Path, files: str, size: str, piece: str, hint: str = "") -> dict[str, object]:
    """Read files at once from a simulated disk."""
    names = [f"file{number}" for number in range(int(files))]
    for name in names:
        (folder / name).write_bytes(random.Random(name).randbytes(int(size)))
    with serving(folder, DISK) as server:
        before, wall = server.cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(len(names)) as pool:
            counts = list(pool.map(lambda name: read(f"{server.url}/data/{name}?{hint}", int(piece)), names))
        wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - before
        (found,) = status(server)["disks"]
    return sample(sum(counts) // int(piece), sum(counts), wall, cpu, [len(names), found["seeks"]])


def records(folder: Path, name: str, count: str, size: str, piece: str, hint: str = "") -> dict[str, object]:
    """Read records at random places through a cache."""
    from XRootD.client import File

    chosen, file = random.Random(7), Path(name)
    with cache_of_file("femtobarn", file) as (cache, _):
        there = File()
        there.open(f"{cache.url}/data/{file.name}?{hint}")
        places = [chosen.randrange(file.stat().st_size // int(size)) * int(size) for _ in range(int(count))]
        before, wall = cache.cpu_seconds(), time.perf_counter()
        for place in places:
            for start in range(place, place + int(size), int(piece)):
                there.read(start, int(piece))
        wall, cpu = time.perf_counter() - wall, cache.cpu_seconds() - before
        (found,) = status(cache)["caches"]
    total = len(set(places)) * int(size)
    return sample(int(count), int(count) * int(size), wall, cpu, [1, found["fetched_bytes"] / total])


def upload(folder: Path, files: str, size: str, hint: str = "") -> dict[str, object]:
    """Write files at once."""
    names = [f"file{number}" for number in range(int(files))]
    part = random.Random(1).randbytes(WRITE_BYTES)
    with serving(folder, "") as server:
        before, wall = server.cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(len(names)) as pool:
            urls = [f"{server.url}/data/{name}?{hint}" for name in names]
            list(pool.map(lambda url: write(url, int(size), part), urls))
        wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - before
    extents = [extents_of(folder / name) for name in names]
    total = len(names) * int(size)
    return sample(len(names), total, wall, cpu, [len(names), sum(extents) / len(extents)])


def recall(folder: Path, files: str, seconds: str, hint: str = "") -> dict[str, object]:
    """Open files that come back from a played tape library."""
    import femtobarn as fb

    @fb.persistent
    class Point:
        x: fb.float64

    fed = fb.create(folder / "data")
    names = [f"run{number}" for number in range(int(files))]
    for name in names:
        with fed.transaction() as txn:
            txn.database(name, create=True).container("points", Point, create=True).extend(
                {"x": [1.0] * 1000}
            )
        fed.seal(name)
    (folder / "tape").mkdir()
    (folder / "site.py").write_text(TAPE)
    command = json.dumps([sys.executable, str(folder / "site.py"), str(folder / "tape"), seconds])
    lines = [f"{operation} = {command}" for operation in ("migrate", "stage", "remove", "query")]
    settings = "\n".join(["[stores.tape]", "kind = 'commands'", *lines, "streams = 1"])
    (folder / "data/storage.toml").write_text(settings)
    fed.migrate("*", "tape")
    for name in names:
        fed.evict(name)
    (folder / "tape/hold").touch()
    with serving(folder / "data", "") as server:
        copies = []
        for number, name in enumerate(names, 1):
            url = f"{server.url}/data/{name}.root?{hint if name == names[-1] else ''}"
            copies.append(subprocess.Popen(["xrdcp", "-s", "-f", url, str(folder / name)]))
            while status(server)["recalls"][0]["waiting"] < number:
                time.sleep(0.01)
        before, wall = server.cpu_seconds(), time.perf_counter()
        (folder / "tape/hold").unlink()
        while fed.where(names[-1])[0].state != "both":
            time.sleep(0.01)
        wall, cpu = time.perf_counter() - wall, server.cpu_seconds() - before
        for copy in copies:
            copy.kill()
            copy.wait()
    return sample(1, 1, wall, cpu, [len(names), wall])


def sample(items: int, size: int, wall: float, cpu: float, point: list[float]) -> dict[str, object]:
    return {"items": items, "bytes": size, "wall_s": wall, "cpu_s": cpu, "check": 0, "points": [point]}


@contextmanager
def serving(folder: Path, settings: str) -> Iterator[Server]:
    """Run our server of a folder as ``/data``."""
    with tempfile.TemporaryDirectory() as scratch:
        config, port = Path(scratch) / "femtobarn.toml", free_port()
        config.write_text(f'[[export]]\nfolder = "{folder}"\nname = "/data"\n{settings}\n')
        serve = [sys.executable, "-m", "femtobarn", "serve", "-c", str(config), "-p", str(port), "--writable"]
        with running(serve, port, Path(scratch)) as server:
            yield server


def status(server: Server) -> dict[str, list[dict[str, float]]]:
    """What a server tells of itself."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", "/api/status")
        found: dict[str, list[dict[str, float]]] = json.loads(connection.getresponse().read())
    return found


def read(url: str, piece: int) -> int:
    """Read a file piece by piece; return its bytes."""
    from XRootD.client import File

    file, offset = File(), 0
    said, _ = file.open(url)
    while said.ok:
        said, data = file.read(offset, piece)
        if said.ok and not data:
            return offset
        offset += len(data or b"")
    raise SystemExit(f"cannot read {url}: {said.message}")


def write(url: str, size: int, part: bytes) -> None:
    """Write a new file."""
    from XRootD.client import File
    from XRootD.client.flags import OpenFlags

    file = File()
    said, _ = file.open(url, OpenFlags.NEW | OpenFlags.UPDATE)
    for offset in range(0, size, len(part)):
        if said.ok:
            said, _ = file.write(part, offset)
    if said.ok:
        said, _ = file.sync()
    if not said.ok:
        raise SystemExit(f"cannot write {url}: {said.message}")
    file.close()


def extents_of(file: Path) -> int:
    """The extents in which a file lies on its disk."""
    said = subprocess.run(["filefrag", str(file)], capture_output=True, text=True, check=True)
    return int(said.stdout.rsplit(":", 1)[1].split()[0])


if __name__ == "__main__":
    sys.exit(main())

"""A cache whose origin is far away, and a client of XRootD's that reads a file in order, in small pieces.

    far.py femtobarn|xcache|origin FILE MILLISECONDS PIECE [OPAQUE]

`origin` is the origin without a cache, as far away. The client reads FILE for the first time. MILLISECONDS is
the time of a round trip to the origin, XRootD's server: a program between them gives bytes on so much later.
OPAQUE is told to the cache. CPU seconds are the cache's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from servers import Server, cache_of_file, free_port

BUFFER_BYTES = 4 << 20
"""What a connection takes before its other end has to wait: more than is sent in a round trip."""


def main() -> int:
    """Start all, read the file, and print the sample."""
    kind, name, milliseconds, piece, *opaque = sys.argv[1:]
    file = Path(name)
    checksum = zlib.crc32(file.read_bytes())
    far = partial(far_away, seconds=float(milliseconds) / 2000)
    with cache_of_file(kind, file, far) as (cache, _):
        before, wall = cache.cpu_seconds(), time.perf_counter()
        found = read(f"{cache.url}/data/{file.name}?{'&'.join(opaque)}", int(piece))
        wall, cpu = time.perf_counter() - wall, cache.cpu_seconds() - before
    if found != checksum:
        raise SystemExit(f"other bytes: {found} instead of {checksum}")
    size = file.stat().st_size
    print(
        json.dumps({"items": size // int(piece), "bytes": size, "wall_s": wall, "cpu_s": cpu, "check": found})
    )
    return 0


def read(url: str, piece: int) -> int:
    """Read a file piece by piece; return its checksum."""
    from XRootD.client import File

    file, offset, checksum = File(), 0, 0
    status, _ = file.open(url)
    while status.ok:
        status, data = file.read(offset, piece)
        if status.ok and not data:
            return checksum
        offset, checksum = offset + len(data), zlib.crc32(data, checksum)
    raise SystemExit(f"cannot read {url}: {status.message}")


@contextmanager
def far_away(server: Server, seconds: float) -> Iterator[Server]:
    """The same server, to and from which all bytes take so many seconds."""
    port = free_port()
    context = multiprocessing.get_context("spawn")
    listening = context.Event()
    relay = context.Process(target=run_relay, args=(port, server.port, seconds, listening), daemon=True)
    relay.start()
    try:
        listening.wait(30)
        yield Server(port, server.process)
    finally:
        relay.kill()
        relay.join()


def run_relay(port: int, to: int, seconds: float, listening: multiprocessing.synchronize.Event) -> None:
    """Give bytes on, later."""

    async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to, limit=BUFFER_BYTES)
        await asyncio.gather(later(reader, back, seconds), later(there, writer, seconds))

    async def serve() -> None:
        server = await asyncio.start_server(relayed, "127.0.0.1", port, limit=BUFFER_BYTES)
        listening.set()
        await server.serve_forever()

    asyncio.run(serve())


async def later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Give one direction of a connection on until it ends."""
    clock = asyncio.get_running_loop().time
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(due - clock(), 0.0))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    arriving = asyncio.create_task(arrive())
    # A connection that is cut ends as one that is closed.
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 20):
            under_way.put_nowait((clock() + seconds, data))
    under_way.put_nowait((clock(), b""))
    with contextlib.suppress(ConnectionError):
        await arriving


if __name__ == "__main__":
    sys.exit(main())

"""A cache of a `root://` server between its clients and their origin, XRootD's server.

    cached.py femtobarn|xcache FILE cold|warm
    cached.py femtobarn|xcache FILE sparse|random SESSIONS SECONDS PROGRAM

`cold` and `warm` copy the file through the cache by xrdcp, for the first and the second time. `random` reads
16 KB at random places of the file after it was copied; `sparse` does so before, for a moment: its point is
the bytes that the cache then keeps on its disk, for each byte that was read. CPU seconds are the cache's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from server_load import outcome, read
from servers import Server, start, start_cache

READ = "read-16384"


def main() -> int:
    """Start origin and cache, run the clients, and print the sample."""
    kind, name, work, *rest = sys.argv[1:]
    file = Path(name)
    read(file)
    with tempfile.TemporaryDirectory(prefix="cached", dir=file.parent) as folder:
        scratch = Path(folder)
        scratch.chmod(0o777)
        (scratch / "origin").mkdir()
        (scratch / "cache").mkdir()
        with (
            start("xrootd", {"data": file.parent}, scratch / "origin") as origin,
            start_cache(kind, origin, scratch / "cache") as cache,
        ):
            if work != "sparse":
                done = copied(cache, file)
            if work == "warm":
                settle(cache)
                done = copied(cache, file)
            elif work != "cold":
                settle(cache)
                done = asked(cache, file, *rest)
            if work == "sparse":
                settle(cache)
                kept = sum(
                    found.stat().st_blocks * 512
                    for found in (scratch / "cache" / "kept").rglob("*")
                    if found.is_file()
                )
                done["points"] = [(1, kept / done["bytes"])]
    print(json.dumps(done))
    return 0


def copied(cache: Server, file: Path) -> dict[str, Any]:
    """Copy the file through the cache with xrdcp."""
    command = ["xrdcp", "--silent", "--force", f"{cache.url}/data/{file.name}", "/dev/null"]
    before, started = cache.cpu_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stderr.decode()}")
    wall, size = time.monotonic() - started, file.stat().st_size
    return {"items": size, "bytes": size, "wall_s": wall, "cpu_s": cache.cpu_seconds() - before, "check": 0}


def asked(cache: Server, file: Path, sessions: str, seconds: str, program: str) -> dict[str, Any]:
    """Read 16 KB at random places by some sessions."""
    address, path = f"127.0.0.1:{cache.port}", f"/data/{file.name}"
    return outcome([program, address, READ, path, sessions, "0", seconds, str(cache.process)])


def settle(cache: Server) -> None:
    """Wait until the cache has written what it has fetched: it takes no more CPU time."""
    os.sync()
    last = -1.0
    while (now := cache.cpu_seconds()) - last > 0.01:
        last = now
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())

"""A cache of a `root://` server between its clients and their origin, XRootD's server.

    cached.py femtobarn|xcache|origin FILE cold|warm
    cached.py femtobarn|xcache FILE sparse|random SESSIONS SECONDS PROGRAM

`origin` is the origin without a cache. `cold` and `warm` copy the file through the cache by xrdcp, for the
first and the second time. `random` reads
16 KB at random places of the file after it was copied; `sparse` does so before, for a moment: its point is
the bytes that the cache then keeps on its disk, for each byte that was read. CPU seconds are the cache's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from server_load import READ, command, copied, outcome, read
from servers import Server, cache_of_file
from timing import disk_bytes


def main() -> int:
    """Start origin and cache, run the clients, and print the sample."""
    kind, name, work, *rest = sys.argv[1:]
    file = Path(name)
    read(file)
    with cache_of_file(kind, file) as (cache, kept):
        if work != "sparse":
            done = copied(cache, file, "copy-down")
        if work == "warm":
            settle(cache)
            done = copied(cache, file, "copy-down")
        elif work != "cold":
            sessions, seconds, program = rest
            settle(cache)
            done = outcome(command(program, cache, file, READ, sessions, "0", seconds))
        if work == "sparse":
            settle(cache)
            done["points"] = [(int(sessions), disk_bytes(kept) / done["bytes"])]
    print(json.dumps(done))
    return 0


def settle(cache: Server) -> None:
    """Wait until the cache has written what it has fetched: it takes no more CPU time."""
    os.sync()
    last = -1.0
    while (now := cache.cpu_seconds()) - last > 0.01:
        last = now
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())

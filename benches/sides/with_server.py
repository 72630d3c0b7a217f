"""Runs a program on a federation at a server: `with_server.py [--pass-files] FOLDER PROGRAM ARGUMENTS`.

Starts our server with the federation in FOLDER, and the program, or the script of this folder, with the
federation's URL in place of the argument `URL`. The program stands for one on another machine, unless the
server passes it the files. CPU seconds are those of both during the program's timed part.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from servers import start
from together import at_once

PASS_FILES = "--pass-files"


def main() -> int:
    """Start the server and the program, and print the sample."""
    passes_files = sys.argv[1] == PASS_FILES
    folder, *command = sys.argv[2:] if passes_files else sys.argv[1:]
    with (
        tempfile.TemporaryDirectory(prefix="served") as scratch,
        start("femtobarn", {"bench.fed": Path(folder)}, Path(scratch), passes_files=passes_files) as server,
    ):
        line = [f"{server.url}/bench.fed" if word == "URL" else word for word in command]
        if line[0].endswith(".py"):
            line = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(line[0])), *line[1:]]
        [sample], cpu = at_once([line], server.cpu_seconds)
    print(json.dumps({**sample, "cpu_s": sample["cpu_s"] + cpu, "server_cpu_s": cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

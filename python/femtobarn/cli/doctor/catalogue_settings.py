"""The settings in the catalogue of a federation: its format, when it was made, whom it follows.

The table is specified in docs/format.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["read_catalogue_settings"]

PATIENCE_SECONDS = 10.0

SCRIPT = """
import json, sqlite3, sys
connection = sqlite3.connect(f"{sys.argv[1]}?{sys.argv[2]}", uri=True)
print(json.dumps(dict(connection.execute("SELECT key, value FROM federation"))))
"""


def read_catalogue_settings(folder: Path) -> dict[str, str]:
    """Return the settings in the catalogue of a federation; none if it cannot be read.

    A process of its own reads them, with Python's SQLite. Two copies of SQLite in one process must not open
    the same file: when one of them closes it, the locks that the other holds are gone (POSIX, `fcntl`).
    """
    uri = (folder / "catalogue.sqlite").absolute().as_uri()
    # SQLite cannot make its log in a folder that may not be written. Without a log nobody writes there.
    is_still = not os.access(folder, os.W_OK) and not (folder / "catalogue.sqlite-wal").exists()
    command = [sys.executable, "-I", "-c", SCRIPT, uri, "immutable=1" if is_still else "mode=ro"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    settings: dict[str, str] = json.loads(done.stdout)
    return settings

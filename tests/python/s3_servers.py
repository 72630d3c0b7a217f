"""Real S3 servers.

rclone's always judges, since a package of Python's has its program. versitygw's judges where the variable
`VERSITYGW` names its program: PyPI, npm and Debian have none, and to build its Go module with a Go that is
there already took 144 s of CPU, which is more than the tests that it would judge. After a change of the store
it is worth that: `go install github.com/versity/versitygw/cmd/versitygw@latest`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import free_port, wait_for_port

__all__ = ["S3_SERVERS", "s3_server"]

S3_SERVERS = ["rclone", *(["versitygw"] if "VERSITYGW" in os.environ else [])]
"""The servers that judge here."""


@contextmanager
def s3_server(kind: str, folder: Path) -> Iterator[str]:
    """Run a server with a bucket `lhc`, for the user `ann`."""
    (folder / "lhc").mkdir(parents=True)
    port, log = free_port(), folder.with_suffix(".log")
    if kind == "rclone":
        program = Path(sys.executable).parent / "rclone"
        arguments = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", "ann,a secret", str(folder)]
    else:
        program = Path(os.environ["VERSITYGW"])
        keys = ["--access", "ann", "--secret", "a secret"]
        arguments = ["--port", f"127.0.0.1:{port}", *keys, "posix", str(folder)]
    with (
        log.open("wb") as output,
        subprocess.Popen([program, *arguments], stdout=output, stderr=output) as server,
    ):
        try:
            wait_for_port(server, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()

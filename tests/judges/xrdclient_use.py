"""Uses a server with `xrdclient`, which shares no code with XRootD's own clients: `xrdclient_use.py URL`.

It runs in a process of its own, since importing `xrdclient` takes over `root://` from other packages. Its
writes in checkpoints are not tested: they name different streams in the outer and the inner request, which
the protocol forbids.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from contextlib import closing

import xrdclient
from xrdclient import File, FileSystem, OpenFlags

CONTENT = bytes(range(256)) * 20_000 + b"end"


def use_files(url: str) -> None:
    """Write and read in every way."""
    with closing(File(f"{url}/made/file")) as file:
        file.open(OpenFlags.NEW | OpenFlags.UPDATE | OpenFlags.MAKEPATH)
        file.write(CONTENT[:1000])
        file.pwrite(CONTENT[1000:5000], 1000)
        file.pgwrite(CONTENT[5000:], 5000)
        file.sync()
        file.writev([(0, CONTENT[:10]), (4090, CONTENT[4090:4110])], sync=True)
        assert file.stat(refresh=True).size == len(CONTENT)
    with closing(File(f"{url}/made/file")) as file:
        file.open(OpenFlags.READ)
        assert file.read() == CONTENT
        assert file.pread(100, 5) == CONTENT[5:105]
        assert bytes(file.pgread(100_000, 4000).data) == CONTENT[4000:104_000]
        ranges = [(0, 10), (5000, 4096), (10, 10)]
        assert [bytes(piece) for piece in file.readv(ranges)] == [
            CONTENT[start : start + size] for start, size in ranges
        ]


def use_names(system: FileSystem) -> None:
    """List, rename and remove files and folders."""
    assert system.stat("/made/file").size == len(CONTENT)
    assert system.listdir("/made") == ["file"]
    assert [entry.name for entry in system.scandir("/made", algorithm="adler32")] == ["file"]
    assert system.checksum("/made/file", "adler32").value == f"{zlib.adler32(CONTENT):08x}"
    assert system.checksum("/made/file", "md5").value == hashlib.md5(CONTENT).hexdigest()
    assert system.locate("/made/file")
    assert system.query_config("readv_iov_max", "unknown")["readv_iov_max"] == "1024"
    assert system.query_space("/").total > 0
    system.setxattr("/made/file", "name", b"value")
    assert system.getxattr("/made/file", "name") == b"value"
    assert system.xattrs("/made/file") == {"name": b"value"}
    system.removexattr("/made/file", "name")
    system.mkdir("/made/a/b", parents=True)
    system.rename("/made/file", "/made/a/with space")
    system.truncate("/made/a/with space", 10)
    system.chmod("/made/a/with space", 0o600)
    assert system.read_bytes("/made/a/with space") == CONTENT[:10]
    request = system.prepare(["/made/a/with space"], stage=True)
    status = system.query_prepare(request.strip("\0"), ["/made/a/with space"])
    assert [each.online for each in status] == [True]
    system.cancel_prepare(request.strip("\0"))
    system.rmtree("/made")
    assert not system.exists("/made")


def main(url: str) -> None:
    """Run all operations, and fail at the first wrong result."""
    use_files(url)
    with FileSystem(url) as system:
        system.ping()
        use_names(system)
        try:
            system.stat("/nothing")
        except xrdclient.NotFoundError:
            pass
        else:
            raise AssertionError("a file that is not there has been found")


if __name__ == "__main__":
    main(sys.argv[1])

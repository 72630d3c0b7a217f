"""Unchanged clients, and test suites of XRootD and of libraries above its client, against our server.

The suites are in source archives of their packages, which are fetched when the tests run and never kept in
the project. The command-line clients are those of the operating system's package (`xrootd-client`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from copying_servers import certified
from packages_apart import installed

VERSION = "6.2.1"
FSSPEC_XROOTD = "0.5.5"
# Later source archives have no tests.
XROOTDPYFS = "2.0.0"
# Its requirements, without setuptools: later versions of it lack a module that fs imports.
XROOTDPYFS_NEEDS = ["--no-deps", "fs==2.4.16", "mock==5.2.0", "six==1.17.0", "appdirs==1.4.4"]
XRDCLIENT = "xrdclient==0.4.0"
CLIENTS = ["xrdcp", "xrdfs", "xrdadler32", "xrdcrc32c", "cconfig", "openssl"]

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        any(shutil.which(client) is None for client in CLIENTS), reason="XRootD's clients are not installed"
    ),
]


def source_of(package: str, version: str, project: Path) -> Path:
    """The unpacked source archive of a package, fetched on first use."""
    cache = project / ".cache" / "xrootd"
    folder = cache / f"{package}-{version}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--no-deps", f"--no-binary={package}", f"--dest={cache}"]
    fetched = subprocess.run([sys.executable, "-m", "pip", "download", *options, f"{package}=={version}"])
    if fetched.returncode != 0:
        pytest.skip(f"the source of {package} cannot be fetched")
    part = cache / "part"
    with tarfile.open(cache / f"{folder.name}.tar.gz") as archive:
        archive.extractall(part, filter="data")
    (part / folder.name).rename(folder)
    return folder


@pytest.fixture(scope="session")
def source(project: Path) -> Path:
    """XRootD's source."""
    return source_of("xrootd", VERSION, project)


@pytest.fixture(scope="session")
def program(examples: Path) -> Path:
    """The program that serves a plain folder."""
    return examples / "serve_folder"


@contextmanager
def served(program: Path, folder: Path, *tls: Path, name: str = "/") -> Iterator[int]:
    """Serve a folder, encrypted if a certificate and its key are given; yield the port."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(program), "-p", "0", f"{folder}={name}", *map(str, tls)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server:
        try:
            yield int(server.stdout.readline().split()[-1])
        finally:
            server.terminate()


def run(command: list[str | Path], folder: Path, **settings: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=900,
    )
    text = done.stdout.decode(errors="replace")
    # Lines of logs begin with the time.
    said = [line for line in text.splitlines() if not line.startswith("[20")]
    assert done.returncode == 0, "\n".join(said[-40:])
    return text


def test_the_suite_of_the_python_bindings_passes(source: Path, program: Path, tmp_path: Path) -> None:
    pytest.importorskip("XRootD")
    wrapper = tmp_path / "xrootd"
    wrapper.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -p ]; do shift; done\n'
        f'exec {program} -p "$2" "$PYXROOTD_TEST_BASEDIR/data"\n'
    )
    wrapper.chmod(0o755)
    xrdfs = shutil.which("xrdfs")
    assert xrdfs is not None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    text = run([*command], source / "python" / "tests", XROOTD=str(wrapper), XRDFS=xrdfs)
    assert re.search(r"\b94 passed", text), text[-2000:]


def pytest_of(suite: Path, *options: str, **settings: str) -> str:
    """Run a suite that must pass; return pytest's output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", *options]
    return run([*command], suite, **settings)


def test_the_suite_of_fsspec_xrootd_passes(project: Path, program: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec_xrootd")
    suite = tmp_path / "suite"
    shutil.copytree(source_of("fsspec_xrootd", FSSPEC_XROOTD, project) / "tests", suite)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    fixtures = suite / "conftest.py"
    text = fixtures.read_text().replace("PORT = 1094", f"PORT = {port}")
    fixtures.write_text(text.replace("root://localhost//", f"root://localhost:{port}//"))
    # The suite starts `xrootd -p PORT -c SETTINGS`, and serves the folder of the settings.
    wrapper = tmp_path / "bin" / "xrootd"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {program} -p "$2" "$(dirname "$4")"\n')
    wrapper.chmod(0o755)
    # This test connects to a port without a server, which the client retries for minutes.
    options = [".", "--deselect=test_basicio.py::test_broken_server"]
    said = pytest_of(suite, *options, PATH=f"{wrapper.parent}:{os.environ['PATH']}")
    assert re.search(r"\b44 passed", said), said[-2000:]


def test_the_suite_of_xrootdpyfs_passes(project: Path, program: Path, tmp_path: Path) -> None:
    pytest.importorskip("XRootD")
    suite = tmp_path / "suite"
    shutil.copytree(source_of("xrootdpyfs", XROOTDPYFS, project), suite)
    needs = installed(f"xrootdpyfs-{XROOTDPYFS}", XROOTDPYFS_NEEDS, project)
    folder = tmp_path / "place"
    with served(program, folder, name=str(folder)) as port:
        for script in (suite / "tests").glob("*.py"):
            script.write_text(script.read_text().replace("root://localhost/{", f"root://localhost:{port}/{{"))
        settings = {"TMPDIR": str(folder), "PYTHONPATH": f"{suite}:{needs}"}
        # The first expects a server without checksums, the second an older client.
        strange = ["tests/test_fs.py::test_checksum", "tests/test_opener.py"]
        said = pytest_of(suite, "tests", *[f"--deselect={test}" for test in strange], **settings)
    assert re.search(r"\b94 passed", said), said[-2000:]


def client_version() -> int:
    """The first number of the clients' version."""
    text = subprocess.run(["xrdcp", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"(\d+)\.", text.stdout + text.stderr)
    assert found
    return int(found[1])


def adapt_to_older_clients(script: Path) -> None:
    """Adapt the script to older clients: they do not refuse relative paths themselves, do not fail if one of
    several files cannot be removed, and need `-` as the name of standard input."""
    text = script.read_text().replace("xrdcrc32c <", "xrdcrc32c - <")
    several = r'assert_failure (xrdfs "\$\{HOST\}" rm "\$\{TMPDIR\}"/(?:\{4,5\}|6)\S* \S+)'
    text, count = re.subn(several, r"\1 || true", text)
    begin = text.index("\t# BuildPath client-side")
    end = text.index('\tassert xrdfs "${HOST}" mkdir -p "${TMPDIR}/nocwd-abs"')
    assert count == 2
    script.write_text(text[:begin] + text[end:])


def test_the_suite_of_the_commands_passes(source: Path, program: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(source / "tests" / "XRootD", suite)
    if client_version() < 6:
        adapt_to_older_clients(suite / "noauth.sh")
    # The suite compares checksums that the server computes only if this command succeeds.
    attribute = suite / "setfattr"
    attribute.write_text("#!/bin/sh\nexit 0\n")
    attribute.chmod(0o755)
    (tmp_path / "noauth" / "data").mkdir(parents=True)
    with served(program, tmp_path / "noauth" / "xrootd") as port:
        settings = suite / "noauth.cfg"
        settings.write_text(settings.read_text().replace("port = 3094", f"port = {port}"))
        text = run([suite / "test.sh", "noauth", "run"], tmp_path, HOSTNAME="localhost")
    assert len(re.findall(r"^xrd(?:cp|fs) ", text, re.MULTILINE)) >= 200


@pytest.fixture
def content() -> bytes:
    """Bytes whose length is no multiple of a page or block."""
    return bytes(range(256)) * 40_000 + b"end"


@pytest.mark.parametrize("pages", ["0", "1"])
@pytest.mark.parametrize("streams", ["1", "4"])
def test_copies_are_the_same(program: Path, tmp_path: Path, content: bytes, pages: str, streams: str) -> None:
    (tmp_path / "from").write_bytes(content)
    with served(program, tmp_path / "served") as port:
        url = f"root://127.0.0.1:{port}//folder/file"
        copy = ["xrdcp", "-N", "-C", "adler32", "-S", streams]
        run([*copy, "from", url], tmp_path, XRD_CPUSEPGWRTRD=pages)
        assert (tmp_path / "served" / "folder" / "file").read_bytes() == content
        run([*copy, url, "to"], tmp_path, XRD_CPUSEPGWRTRD=pages)
    assert (tmp_path / "to").read_bytes() == content


@pytest.mark.parametrize("kind", ["adler32", "crc32", "crc32c", "zcrc32", "md5"])
def test_checksums_are_those_that_clients_compute(
    program: Path, tmp_path: Path, content: bytes, kind: str
) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(content)
    with served(program, tmp_path / "served") as port:
        run(["xrdcp", "-N", "-C", kind, f"root://127.0.0.1:{port}//file", "to"], tmp_path)


def test_folders_are_copied_both_ways(program: Path, tmp_path: Path, content: bytes) -> None:
    for name in ["a", "b/c", "b/d/e"]:
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: 1000 * len(name)])
    with served(program, tmp_path / "served") as port:
        url = f"root://127.0.0.1:{port}/"
        run(["xrdfs", url, "mkdir", "/up"], tmp_path)
        run(["xrdcp", "-N", "-r", "from", f"{url}/up/"], tmp_path)
        (tmp_path / "to").mkdir()
        run(["xrdcp", "-N", "-r", f"{url}/up/from", "to"], tmp_path)
    for name in ["a", "b/c", "b/d/e"]:
        assert (tmp_path / "to" / "from" / name).read_bytes() == content[: 1000 * len(name)]


def test_every_command_of_xrdfs_has_its_documented_effect(program: Path, tmp_path: Path) -> None:
    top = tmp_path / "served"
    with served(program, top) as port:

        def xrdfs(*words: str) -> str:
            return run(["xrdfs", f"root://127.0.0.1:{port}", *words], tmp_path)

        def refused(*words: str) -> str:
            with pytest.raises(AssertionError) as failure:
                xrdfs(*words)
            return str(failure.value)

        xrdfs("mkdir", "-p", "/a/b")
        (top / "a" / "file").write_text("hello\n")
        xrdfs("mv", "/a/file", "/a/b/file")
        xrdfs("chmod", "/a/b/file", "rw-r-----")
        assert "Mode:   0640" in xrdfs("stat", "/a/b/file")
        assert xrdfs("cat", "/a/b/file") == "hello\n"
        assert xrdfs("tail", "-c", "3", "/a/b/file") == "lo\n"
        xrdfs("truncate", "/a/b/file", "4")
        assert (top / "a" / "b" / "file").read_text() == "hell"
        assert re.search(r"rw-r----- \S+ \S+ +4 .*/a/b/file", xrdfs("ls", "-l", "-R", "/a"))
        assert "adler32:" in xrdfs("ls", "-C", "adler32", "/a/b")
        assert f"]:{port} Server ReadWrite" in xrdfs("locate", "/a/b/file")
        assert "Largest free chunk:" in xrdfs("spaceinfo", "/")
        assert "Nodes with RW space:                1" in xrdfs("statvfs", "/")
        assert xrdfs("query", "config", "bind_max").strip() == "15"
        assert xrdfs("query", "checksum", "/a/b/file").split() == ["adler32", "041701a6"]
        assert "oss.free=" in xrdfs("query", "space", "/")
        assert "oss.type=f" in xrdfs("query", "xattr", "/a/b/file")
        assert xrdfs("query", "stats", "a").startswith("<statistics")
        assert "[3013]" in refused("query", "opaque", "x")
        xrdfs("xattr", "/a/b/file", "set", "name=value")
        assert 'name="value"' in xrdfs("xattr", "/a/b/file", "list")
        xrdfs("xattr", "/a/b/file", "del", "name")
        request = xrdfs("prepare", "-s", "/a/b/file").strip()
        assert '"online":true' in xrdfs("query", "prepare", request, "/a/b/file")
        xrdfs("prepare", "-a", request)
        xrdfs("prepare", "-e", "/a/b/file")
        assert "[3018]" in refused("rmdir", "/a/b")
        xrdfs("rm", "/a/b/file")
        assert "[3011]" in refused("stat", "/a/b/file")
        assert "[3010]" in refused("stat", "/../etc")
        xrdfs("rmdir", "/a/b")


@pytest.mark.parametrize("scheme", ["root", "roots"])
@pytest.mark.parametrize("streams", ["1", "4"])
def test_encrypted_copies_are_the_same(
    program: Path, tmp_path: Path, content: bytes, scheme: str, streams: str
) -> None:
    (tmp_path / "from").write_bytes(content)
    trusted = str(tmp_path / "trusted")
    with served(program, tmp_path / "served", *certified(tmp_path)[:2]) as port:
        url = f"{scheme}://localhost:{port}//file"
        copy = ["xrdcp", "-N", "-C", "adler32", "-S", streams]
        run([*copy, "from", url], tmp_path, X509_CERT_DIR=trusted)
        run([*copy, url, "to"], tmp_path, X509_CERT_DIR=trusted)
    assert (tmp_path / "served" / "file").read_bytes() == content
    assert (tmp_path / "to").read_bytes() == content


@pytest.fixture(scope="session")
def xrdclient(project: Path) -> Path:
    """A folder with `xrdclient`, which would take over `root://` for other packages if it were installed."""
    return installed(XRDCLIENT, [XRDCLIENT], project)


def test_independent_client_does_every_operation(
    project: Path, program: Path, xrdclient: Path, tmp_path: Path
) -> None:
    script = project / "tests" / "judges" / "xrdclient_use.py"
    with served(program, tmp_path / "served") as port:
        url = f"root://127.0.0.1:{port}/"
        run([sys.executable, script, url], tmp_path, PYTHONPATH=str(xrdclient))


UPROOT = """
import sys, uproot
url, content = sys.argv[1], list(range(1000))
with uproot.recreate(f"{url}/file.root") as file:
    file.mktree("tree", {"x": "int64", "y": "float64"})
    file["tree"].extend({"x": content, "y": [0.5 * x for x in content]})
with uproot.open(f"{url}/file.root") as file:
    found = file["tree"].arrays()
assert found.x.tolist() == content
assert found.y.tolist() == [0.5 * x for x in content]
"""

ROOT_READ = """
import sys, ROOT
# ROOT would look for files of a server on the same machine in the file system.
ROOT.gEnv.SetValue("TFile.ForceRemote", 1)
frame = ROOT.RDataFrame("tree", sys.argv[1] + "/file.root")
assert frame.Sum("x").GetValue() == 499500
assert frame.Filter("x < 10").Count().GetValue() == 10
"""


def test_uproot_writes_and_reads_and_root_reads(program: Path, tmp_path: Path) -> None:
    pytest.importorskip("uproot")
    pytest.importorskip("fsspec_xrootd")
    with served(program, tmp_path / "served") as port:
        url = f"root://127.0.0.1:{port}/"
        run([sys.executable, "-c", UPROOT, url], tmp_path)
        if find_spec("ROOT") is not None:
            run([sys.executable, "-W", "ignore", "-c", ROOT_READ, url], tmp_path)

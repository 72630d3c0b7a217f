"""Real clients of nopayloaddb work unchanged with the routes of a served federation.

The Python client comes from the package registry. The C++ client, nopayloadclient, is in none: its own tests
run here if the environment variable NOPAYLOADCLIENT_SOURCE names a folder with its source.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from nopayloaddb_client import NoPayloadDBClient, NoPayloadDBError

import femtobarn as fb

CPP_SOURCE = os.environ.get("NOPAYLOADCLIENT_SOURCE")


@pytest.fixture
def base(fed: fb.Federation) -> Iterator[str]:
    """The address that clients are given: the routes are below ``/api/cdb_rest``."""
    with fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all") as server:
        [name] = server.exports
        yield f"http://127.0.0.1:{server.port}/conditions{name}/nopayloaddb"


def test_python_client_reads_its_inserts_back(base: str, fed: fb.Federation) -> None:
    with NoPayloadDBClient(base) as client:
        client.create_payload_type("Beam")
        client.create_global_tag("prod", "me")
        name = client.create_payload_list("Beam")["name"]
        client.attach_payload_list("prod", name)
        for run in range(5):
            iov = client.create_payload_iov(
                payload_url=f"{run}.dat", checksum=f"sha256:{run:064}", major_iov=run, minor_iov=0
            )
            assert client.get_payload_iov(iov["id"])["payload_list"] is None
            assert client.attach_payload_iov(name, iov["id"])["payload_list"] == name
        [found] = client.query_payloads("prod", 3, 7, payload_type="Beam")
        assert (found["payload_url"], found["checksum"], found["major_iov_end"]) == (
            "3.dat",
            f"sha256:{3:064}",
            4,
        )
        client.clone_global_tag("prod", "copy")
        client.change_global_tag_status("prod", "locked")
        assert {tag["name"]: tag["status"] for tag in client.list_global_tags()} == {
            "prod": "locked",
            "copy": "unlocked",
        }
        assert client.get_global_tag_payload_lists("copy") == {"Beam": "Beam@copy"}
        page = client.browse_payload_iovs(global_tag="prod", page_size=2, sort="major_iov")
        assert (page.count, [row["payload_url"] for row in page.results]) == (5, ["0.dat", "1.dat"])
        client.delete_payload_iov("copy", "Beam", 4, 0)
        assert client.query_payloads("copy", 4, 0)[0]["payload_url"] == "3.dat"
        assert client.query_payloads("prod", 4, 0)[0]["payload_url"] == "4.dat"
        with pytest.raises(NoPayloadDBError, match="is locked") as refused:
            client.delete_global_tag("prod")
        assert refused.value.status_code == 403
    assert fed.conditions("prod")["nopayloaddb/Beam"].at((3, 7)).name == "3.dat"


if CPP_SOURCE:

    @pytest.fixture(scope="module")
    def cpp(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The programs of the C++ client, built from its unchanged source."""
        assert CPP_SOURCE is not None
        work = tmp_path_factory.mktemp("nopayloadclient")
        source = shutil.copytree(CPP_SOURCE, work / "source", ignore=shutil.ignore_patterns("build", ".git"))
        built = source / "build" / "src"
        run("cmake", "-S", source, "-B", source / "build")
        run("cmake", "--build", source / "build", "--target", "nopayloadclient", "cli_npc")
        program = source / "tests" / "test_nopayloadclient.cpp"
        headers = (f"-I{source / 'include'}", f"-I{source / 'contrib'}")
        libraries = (f"-L{built}", "-lnopayloadclient", "-lcurl", "-lstdc++fs", f"-Wl,-rpath,{built}")
        run("g++", "-std=c++17", program, *headers, "-o", built / "test_nopayloadclient", *libraries)
        return source

    def test_own_tests_of_the_cpp_client_pass(base: str, cpp: Path, tmp_path: Path) -> None:
        for program in ("test_nopayloadclient", "test_cli.sh"):
            config = json.loads((cpp / "config" / "default.json").read_text())
            (tmp_path / program).mkdir()
            folder = f"{tmp_path / program}/"
            address = base.removeprefix("http://")
            config |= {"base_url": f"{address}", "write_dir": folder, "read_dir_list": [folder]}
            (tmp_path / "config.json").write_text(json.dumps(config))
            environment = os.environ | {"NOPAYLOADCLIENT_CONF": str(tmp_path / "config.json"), "USER": "me"}
            if program == "test_cli.sh":
                script, cli = cpp / "tests" / program, cpp / "build" / "src" / "cli_npc"
                run("bash", script, cli, tmp_path / "config.json", environment=environment)
            else:
                run(cpp / "build" / "src" / program, environment=environment)

    def run(*command: str | Path, environment: dict[str, str] | None = None) -> None:
        """Run a program, and fail with what it printed."""
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"

"""A server stages nearline databases for clients of every kind, which wait."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from file_server import run
from server_settings import QUICK_STOP
from stored_points import VALUES, Point, fill, is_right
from waiting import wait_for

import femtobarn as fb
from femtobarn.cli import main

SITE = """
import json, os, pathlib, shutil, sys, time
request = json.loads(sys.stdin.readline())
stored = pathlib.Path(sys.argv[1]) / request["key"].replace("/", "_")
answer = {}
match request["operation"]:
    case "migrate":
        shutil.copy(request["path"], stored)
    case "stage":
        time.sleep(2.5)
        while os.path.exists(sys.argv[1] + "/hold"):
            time.sleep(0.05)
        shutil.copy(stored, request["path"])
        with open(sys.argv[1] + "/staged", "a") as log:
            log.write(request["key"] + "\\n")
    case "remove":
        stored.unlink(missing_ok=True)
    case "query":
        while os.path.exists(sys.argv[1] + "/silent"):
            time.sleep(0.05)
        answer = {"size": stored.stat().st_size, "tape": "L1"} if stored.exists() else {"exists": False}
print("a line that is no answer")
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fb.Federation, fb.Server, Path]]:
    with on_tape(tmp_path_factory.mktemp("tape"), "run6", "run7", "run8", "run9") as site:
        yield site


@contextmanager
def on_tape(
    top: Path, *names: str, tape: str = '"L1"', settings: str = ""
) -> Iterator[tuple[fb.Federation, fb.Server, Path]]:
    """A federation on a played tape, which takes its time, with a server, and the folder of the tape."""
    (top / "tape").mkdir()
    (top / "site.py").write_text(SITE.replace('"L1"', tape))
    fed = fill(top / "lhc.fed", *names)
    command = json.dumps([sys.executable, str(top / "site.py"), str(top / "tape")])
    lines = [f"{operation} = {command}" for operation in ("migrate", "stage", "remove", "query")]
    storage = "\n".join(["[stores.tape]", "kind = 'commands'", *lines, settings])
    (top / "lhc.fed/storage.toml").write_text(storage)
    fed.migrate("*", "tape")
    with fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server:
        yield fed, server, top / "tape"


def xrootd(program: str, *arguments: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_xrootds_clients_wait_and_then_read(
    served: tuple[fb.Federation, fb.Server, Path], tmp_path: Path
) -> None:
    fed, server, tape = served
    fed.evict("run7")
    host = f"root://127.0.0.1:{server.port}"
    flags = xrootd("xrdfs", host, "stat", "/lhc.fed/run7.root")
    assert "Offline" in flags
    assert "BackUpExists" in flags
    assert fed.where("run7")[0].state == "nearline", "to look at it does not stage it"
    copies = [
        subprocess.Popen(["xrdcp", "-s", f"{host}//lhc.fed/run7.root", str(tmp_path / f"{number}.root")])
        for number in range(3)
    ]
    assert [copy.wait(120) for copy in copies] == [0, 0, 0]
    file = Path(fed.path) / "databases/run7.root"
    assert all((tmp_path / f"{number}.root").read_bytes() == file.read_bytes() for number in range(3))
    assert (tape / "staged").read_text().count(fed.where("run7")[0].copies[0].key) == 1, "staged once"
    flags = xrootd("xrdfs", host, "stat", "/lhc.fed/run7.root")
    assert "Offline" not in flags
    assert "BackUpExists" in flags
    xrootd("xrdfs", host, "prepare", "-e", "/lhc.fed/run7.root")
    wait_for(lambda: fed.where("run7")[0].state == "nearline")
    request = xrootd("xrdfs", host, "prepare", "-s", "/lhc.fed/run7.root").strip()
    for _ in range(600):
        answer = xrootd("xrdfs", host, "query", "prepare", request)
        if json.loads(answer)["responses"][0]["online"]:
            break
        time.sleep(0.1)
    assert fed.where("run7")[0].state == "both"


def test_a_database_of_a_snapshot_is_prepared_under_its_old_name(
    served: tuple[fb.Federation, fb.Server, Path],
) -> None:
    fed, server, _ = served
    host, before = f"root://127.0.0.1:{server.port}", fed.head()
    fed.stage("run9")
    with fed.transaction() as txn:
        txn.rename("run9", "run9-renamed")
    gone, old = "/lhc.fed/run9.root", f"/lhc.fed/run9.root?fb.csn={before}"
    assert subprocess.run(["xrdfs", host, "prepare", "-e", gone], capture_output=True).returncode != 0
    xrootd("xrdfs", host, "prepare", "-e", old)
    wait_for(lambda: fed.where("run9-renamed")[0].state == "nearline")
    request = xrootd("xrdfs", host, "prepare", "-s", old).strip()
    wait_for(
        lambda: json.loads(xrootd("xrdfs", host, "query", "prepare", request, old))["responses"][0]["online"]
    )
    assert fed.where("run9-renamed")[0].state == "both"
    with fed.transaction() as txn:
        txn.rename("run9-renamed", "run9")


def test_our_client_and_uproot_wait_and_then_read(served: tuple[fb.Federation, fb.Server, Path]) -> None:
    import uproot

    fed, server, _ = served
    fed.evict(["run8", "run9"])
    url = f"root://127.0.0.1:{server.port}//lhc.fed"
    assert is_right(fb.open(url), "run8")
    with uproot.open(f"{url}/run9.root") as file:
        assert np.array_equal(file["points"].arrays()["x"].to_numpy(), VALUES)
    metrics = subprocess.run(
        ["curl", "-s", f"http://127.0.0.1:{server.port}/metrics"], capture_output=True, text=True, check=True
    ).stdout
    done = next(line for line in metrics.splitlines() if line.startswith("femtobarn_recall_done_total"))
    assert float(done.split()[1]) >= 2


def test_http_answers_503_with_retry_after_while_a_file_is_staged(
    served: tuple[fb.Federation, fb.Server, Path], tmp_path: Path
) -> None:
    fed, server, _ = served
    fed.evict("run6")
    url = f"http://127.0.0.1:{server.port}/lhc.fed/run6.root"
    out = tmp_path / "run6.root"
    first = subprocess.run(["curl", "-s", "-D", "-", "-o", str(out), url], capture_output=True, text=True)
    assert "503" in first.stdout.splitlines()[0]
    assert "retry-after: " in first.stdout.lower()
    subprocess.run(["curl", "-sf", "--retry", "20", "-o", str(out), url], timeout=120, check=True)
    assert out.read_bytes() == (Path(fed.path) / "databases/run6.root").read_bytes()


def test_a_failing_store_is_an_error_with_the_reason(served: tuple[fb.Federation, fb.Server, Path]) -> None:
    fed, server, tape = served
    leave(fed, "run8")
    (key,) = (copy.key for copy in fed.where("run8")[0].copies)
    object_ = tape / key.replace("/", "_")
    content = object_.read_bytes()
    object_.write_bytes(content[:-1] + b"?")
    try:
        with pytest.raises(fb.FemtobarnError, match="adler32"):
            fb.open(f"root://127.0.0.1:{server.port}//lhc.fed")["run8/points"].arrays("x")
    finally:
        object_.write_bytes(content)
    # The copy is good after all, and an operator says that it be looked at once more.
    fed.stage("run8")
    assert fed.where("run8")[0].state == "both"


class Listening(Protocol):
    """A server, in this process or another."""

    @property
    def port(self) -> int: ...


def ask(server: Listening, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Ask the Tape REST API; returns the status and the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def test_the_tape_api_stages_and_reports(served: tuple[fb.Federation, fb.Server, Path]) -> None:
    fed, server, _ = served
    leave(fed, "run6", "run7")
    code, found = ask(server, "GET", "/.well-known/wlcg-tape-rest-api")
    assert code == 200
    uri = found["endpoints"][0]["uri"]
    assert uri == f"http://127.0.0.1:{server.port}/api/tape/v1"
    api = "/api/tape/v1"
    paths = ["/lhc.fed/run6.root", "/lhc.fed/nothing.root"]
    _, told = ask(server, "POST", f"{api}/archiveinfo", {"paths": paths})
    assert told[0] == {"path": paths[0], "locality": "TAPE"}
    assert "no such database" in told[1]["error"]
    wanted = {"files": [{"path": path, "diskLifetime": "P1D"} for path in paths]}
    code, made = ask(server, "POST", f"{api}/stage", wanted)
    assert code == 201
    request = f"{api}/stage/{made['requestId']}"
    for _ in range(300):
        _, state = ask(server, "GET", request)
        if "completedAt" in state:
            break
        time.sleep(0.1)
    states = [(file["state"], file["onDisk"]) for file in state["files"]]
    assert states == [("COMPLETED", True), ("FAILED", False)]
    _, told = ask(server, "POST", f"{api}/archiveinfo", {"paths": paths[:1]})
    assert told == [{"path": paths[0], "locality": "DISK_AND_TAPE"}]
    assert ask(server, "POST", f"{api}/release/{made['requestId']}", {"paths": paths[:1]})[0] == 200
    assert ask(server, "POST", f"{request}/cancel", {"paths": ["/other"]})[0] == 400
    assert ask(server, "DELETE", request)[0] == 200
    assert ask(server, "GET", request)[0] == 404
    assert ask(server, "POST", f"{api}/stage", {"files": []})[0] == 400


def leave(fed: fb.Federation, *names: str) -> None:
    """Evict databases, which somebody may have open for a moment."""
    for name in names:
        while fed.where(name)[0].state == "both":
            try:
                fed.evict(name)
            except fb.BusyError:
                time.sleep(0.2)


def test_the_queue_is_shown_to_people(
    served: tuple[fb.Federation, fb.Server, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fed, server, tape = served
    names = ("run6", "run7")
    leave(fed, *names)
    address = f"127.0.0.1:{server.port}"

    def printed(*command: str) -> str:
        assert main(command) == 0
        return capsys.readouterr().out

    wanted = {"files": [{"path": f"/lhc.fed/{name}.root"} for name in names]}
    (tape / "hold").touch()
    try:
        code, made = ask(server, "POST", "/api/tape/v1/stage", wanted)
        assert code == 201
        wait_for(lambda: ask(server, "GET", "/api/recalls")[1][0]["recalls"][0]["is_running"])
        _, (told,) = ask(server, "GET", "/api/recalls")
        _, status = ask(server, "GET", "/api/status")
        text, top = printed("queue", address), printed("top", address, "-n", "1", "-d", "0.01")
        (by_command,) = json.loads(printed("queue", f"http://{address}", "--json"))
    finally:
        (tape / "hold").unlink()
    assert (told["name"], told["waiting"], len(told["recalls"])) == ("/lhc.fed", 2, 2)
    assert told["mounted"] == [{"store": "tape", "tape": "L1"}]
    (store,) = status["stores"]
    assert (store["name"], store["stalled_seconds"] > 0) == ("tape", True)
    shown = {recall["path"]: recall for recall in told["recalls"]}
    assert shown.keys() == {file["path"] for file in wanted["files"]}
    for recall in shown.values():
        assert (recall["store"], recall["tape"], recall["position"]) == ("tape", "L1", 0)
        assert recall["bytes"] > 0
        assert recall["user"]
    assert told["recalls"][0]["remaining_seconds"] > 0
    assert told["waiting_bytes"] < sum(recall["bytes"] for recall in shown.values())
    assert [recall["path"] for recall in by_command["recalls"]] == list(shown)
    lines = text.splitlines()
    assert lines[0].startswith("/lhc.fed: 2 files come back, ")
    assert lines[1] == "mounted: L1 of tape"
    assert lines[3].startswith("/lhc.fed/run")
    assert lines[3].endswith("comes")
    assert lines[-1].endswith("waits")
    assert "/lhc.fed: 2 files come back, " in top
    wait_for(lambda: all(where.state == "both" for where in fed.where(*names)))
    # Nothing is wanted any more.
    wait_for(lambda: ask(server, "GET", "/api/status")[1]["stores"][0]["stalled_seconds"] == 0)
    assert ask(server, "DELETE", f"/api/tape/v1/stage/{made['requestId']}")[0] == 200
    assert "/lhc.fed: 0 files come back" in printed("queue", address)


def test_opens_pass_priority_and_deadline(tmp_path: Path) -> None:
    names = ("run6", "run7", "run8", "run9")
    with on_tape(tmp_path, *names, tape='request["key"]', settings="streams = 1") as (fed, server, tape):
        leave(fed, *names)
        (tape / "hold").touch()
        copies = []
        try:
            for asked, name in enumerate(names, 1):
                url = f"root://127.0.0.1:{server.port}//lhc.fed/{name}.root?fb.priority={asked // 4 * 3}"
                copies.append(subprocess.Popen(["xrdcp", "-s", url, str(tmp_path / f"{name}.root")]))
                wait_for(lambda: ask(server, "GET", "/api/recalls")[1][0]["waiting"] == len(copies))
            wait_for(lambda: ask(server, "GET", "/api/recalls")[1][0]["recalls"][0]["is_running"])
            _, (told,) = ask(server, "GET", "/api/recalls")
        finally:
            (tape / "hold").unlink()
            ended = [copy.wait(120) for copy in copies]
    assert ended == [0] * len(names)
    assert order_of(told) == ["run6", "run9", "run7", "run8"]


def order_of(told: dict[str, Any]) -> list[str]:
    return [recall["path"].removeprefix("/lhc.fed/").removesuffix(".root") for recall in told["recalls"]]


def test_a_file_near_its_deadline_is_staged_first_through_a_cache(tmp_path: Path) -> None:
    hints = {
        "run6": "",
        "run7": "fb.deadline=90000000",
        "run8": "fb.deadline=9000000000",
        "run9": "fb.deadline=1",
    }
    with (
        on_tape(tmp_path, *hints, tape='request["key"]', settings="streams = 1") as (fed, server, tape),
        fb.serve(tmp_path / "kept", cache_of=server.url("/lhc.fed"), port=0, config=QUICK_STOP) as cache,
    ):
        leave(fed, *hints)
        (tape / "hold").touch()
        copies = []
        try:
            for name, hint in hints.items():
                url = f"root://127.0.0.1:{cache.port}//lhc.fed/{name}.root?{hint}"
                copies.append(subprocess.Popen(["xrdcp", "-s", url, str(tmp_path / f"{name}.root")]))
                wait_for(lambda: ask(server, "GET", "/api/recalls")[1][0]["waiting"] == len(copies))
            wait_for(lambda: ask(server, "GET", "/api/recalls")[1][0]["recalls"][0]["is_running"])
            _, (told,) = ask(server, "GET", "/api/recalls")
        finally:
            for copy in copies:
                copy.kill()
                copy.wait()
            (tape / "hold").unlink()
    assert order_of(told) == ["run6", "run9", "run7", "run8"]


def test_gfal_brings_files_online(served: tuple[fb.Federation, fb.Server, Path]) -> None:
    fed, server, _ = served
    url = f"http://127.0.0.1:{server.port}/lhc.fed/run7.root"
    before = fed.where("run7")[0].state
    status = run("gfal-xattr", url, "user.status").strip()
    assert status == {"both": "ONLINE_AND_NEARLINE", "nearline": "NEARLINE"}[before]
    run("gfal-bringonline", "--polling-timeout", "60", url)
    assert run("gfal-xattr", url, "user.status").strip() == "ONLINE_AND_NEARLINE"


def test_a_server_applies_the_rules_by_itself(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    (tmp_path / "mirror").mkdir()
    settings = (
        f"apply_every_seconds = 1\n[stores.mirror]\nkind = 'folder'\npath = '{tmp_path}/mirror'\n"
        "[[rules]]\ndatabases = '*'\nstores = ['mirror']\n[disk]\nhigh_percent = 0.001\nlow_percent = 0.001\n"
    )
    (tmp_path / "lhc.fed" / "storage.toml").write_text(settings)
    with fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP):
        wait_for(lambda: fed.where("run7")[0].state == "nearline")
        with fed.transaction() as txn:
            points = txn.database("run8", create=True).container("points", Point, create=True)
            points.extend({"x": VALUES[:10]})
        fed.seal("run8")
        wait_for(lambda: fed.where("run8")[0].state in ("both", "nearline"))

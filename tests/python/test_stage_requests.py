"""Requests of the Tape REST API: they pin staged files, and survive the server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from data_servers import served_process
from file_server import run
from stored_points import fill
from test_storage_served import SITE, Listening, ask, leave
from waiting import wait_for

import femtobarn as fb

API = "/api/tape/v1"
NAMES = ("run6", "run7")


@dataclass
class ServedProcess:
    """A server that is a process of its own."""

    port: int
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(fed: fb.Federation) -> Iterator[ServedProcess]:
    with served_process(fed.path, "-w") as (facts, process):
        yield ServedProcess(facts["port"], process)


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    """A federation whose databases are on a played tape alone."""
    (tmp_path / "tape").mkdir()
    (tmp_path / "site.py").write_text(SITE)
    fed = fill(tmp_path / "lhc.fed", *NAMES, entries=1000)
    command = json.dumps([sys.executable, str(tmp_path / "site.py"), str(tmp_path / "tape")])
    lines = [f"{operation} = {command}" for operation in ("migrate", "stage", "remove", "query")]
    settings = "\n".join(["[stores.tape]", "kind = 'commands'", "streams = 1", *lines])
    (tmp_path / "lhc.fed/storage.toml").write_text(settings)
    fed.migrate("*", "tape")
    fed.evict("*")
    return fed


@contextmanager
def nothing_comes(fed: fb.Federation) -> Iterator[None]:
    """The tape brings nothing meanwhile, however slow the machine is."""
    hold = Path(fed.path).parent / "tape/hold"
    hold.touch()
    try:
        yield
    finally:
        hold.unlink()


def path(name: str) -> str:
    return f"/lhc.fed/{name}.root"


def wanted(lifetime: str | None = "P1D", *names: str) -> dict[str, Any]:
    more = {} if lifetime is None else {"diskLifetime": lifetime}
    return {"files": [{"path": path(name), **more} for name in names or NAMES]}


def begun(server: Listening, body: dict[str, Any]) -> str:
    code, told = ask(server, "POST", f"{API}/stage", body)
    assert code == 201, told
    return str(told["requestId"])


def state_of(server: Listening, request: str) -> dict[str, Any]:
    code, told = ask(server, "GET", f"{API}/stage/{request}")
    assert code == 200, told
    return dict(told)


def is_over(server: Listening, request: str) -> bool:
    return "completedAt" in state_of(server, request)


def holders(fed: fb.Federation, name: str) -> list[str]:
    return [pin.holder for pin in fed.where(name)[0].pins]


def test_staged_files_stay_until_they_are_released(fed: fb.Federation) -> None:
    with serving(fed) as server:
        request = begun(server, wanted())
        assert holders(fed, "run7") == [f"stage request {request}"], "it is pinned while it waits"
        wait_for(lambda: is_over(server, request))
        until = fed.where("run7")[0].pins[0].until
        assert until is not None
        assert abs(until - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=2)
        host = f"root://127.0.0.1:{server.port}"
        for name in NAMES:
            with pytest.raises(fb.DeniedError, match="pinned by stage request"):
                fed.evict(name)
        assert subprocess.run(["xrdfs", host, "prepare", "-e", path("run6")]).returncode in (0, 54)
        assert fed.where("run6")[0].state == "both"
        assert ask(server, "POST", f"{API}/release/{request}", {"paths": [path("other")]})[0] == 400
        assert ask(server, "POST", f"{API}/release/{request}", {"paths": [path("run6")]})[0] == 200
        assert (holders(fed, "run6"), len(holders(fed, "run7"))) == ([], 1)
        leave(fed, "run6")
        state = state_of(server, request)
        assert [file["state"] for file in state["files"]] == ["COMPLETED", "COMPLETED"]
        assert fed.where("run6")[0].state == "nearline", "who looks does not bring it back"
        assert ask(server, "DELETE", f"{API}/stage/{request}")[0] == 200
        assert holders(fed, "run7") == []
        leave(fed, "run7")
        assert ask(server, "GET", f"{API}/stage/{request}")[0] == 404
        assert list((Path(fed.path) / "stage-requests").iterdir()) == []


@pytest.mark.parametrize("end", ["release", "delete", "cancel"])
def test_the_pin_of_a_database_that_was_renamed_ends_with_its_request(fed: fb.Federation, end: str) -> None:
    with serving(fed) as server, nothing_comes(fed):
        request = begun(server, wanted("P1D", "run7"))
        with fed.transaction() as txn:
            txn.rename("run7", "later")
        assert holders(fed, "later") == [f"stage request {request}"]
        if end == "delete":
            assert ask(server, "DELETE", f"{API}/stage/{request}")[0] == 200
        else:
            tail = f"release/{request}" if end == "release" else f"stage/{request}/cancel"
            assert ask(server, "POST", f"{API}/{tail}", {"paths": [path("run7")]})[0] == 200
        assert holders(fed, "later") == []


def test_a_lifetime_ends(fed: fb.Federation) -> None:
    with serving(fed) as server:
        for invalid in ("1D", "", "P", "PT1.5S"):
            assert ask(server, "POST", f"{API}/stage", wanted(invalid))[0] == 400
        request = begun(server, wanted("PT4S", "run7"))
        usual = begun(server, wanted(None, "run6"))
        wait_for(lambda: is_over(server, request) and is_over(server, usual))
        wait_for(
            lambda: all(pin.until and pin.until < datetime.now(UTC) for pin in fed.where("run7")[0].pins)
        )
        leave(fed, "run7")
        with pytest.raises(fb.DeniedError):
            fed.evict("run6")


def test_cancelled_and_failed_files_are_not_pinned(fed: fb.Federation) -> None:
    with serving(fed) as server, nothing_comes(fed):
        request = begun(server, wanted("P1D", "run6", "run7", "nothing"))
        paths = {"paths": [path("run6"), path("run7")]}
        assert ask(server, "POST", f"{API}/stage/{request}/cancel", paths)[0] == 200
        assert [file["state"] for file in state_of(server, request)["files"]] == [
            "CANCELLED",
            "CANCELLED",
            "FAILED",
        ]
        assert (holders(fed, "run6"), holders(fed, "run7")) == ([], [])


def test_requests_survive_a_server_that_is_killed(fed: fb.Federation) -> None:
    with nothing_comes(fed):
        with serving(fed) as server:
            request = begun(server, wanted())
            deleted = begun(server, wanted())
            assert ask(server, "DELETE", f"{API}/stage/{deleted}")[0] == 200
            server.kill()
        kept = Path(fed.path) / "stage-requests"
        assert [file.name for file in kept.iterdir()] == [f"{request}.json"]
        (kept / "rubbish.json").write_text("{")
        assert all(where.state != "both" for where in fed.where())
    with serving(fed) as server:
        # Nobody asks, and it goes on.
        wait_for(lambda: all(where.state == "both" for where in fed.where()), 60)
        assert ask(server, "GET", f"{API}/stage/{deleted}")[0] == 404
        state = state_of(server, request)
        assert [file["state"] for file in state["files"]] == ["COMPLETED", "COMPLETED"]
        paths = {"paths": [path("run6")]}
        assert ask(server, "POST", f"{API}/release/{request}", paths)[0] == 200
        server.kill()
    with serving(fed) as server:
        leave(fed, "run6")
        assert state_of(server, request)["completedAt"] == state["completedAt"]
        assert holders(fed, "run7") == [f"stage request {request}"]
        assert fed.where("run6")[0].state == "nearline", "it was released"


def test_two_spellings_of_a_path_are_one_file(fed: fb.Federation) -> None:
    other = "/" + path("run6")
    with serving(fed) as server, nothing_comes(fed):
        request = begun(server, {"files": [{"path": path("run6")}, {"path": other}]})
        assert [file["path"] for file in state_of(server, request)["files"]] == [path("run6")]
        assert ask(server, "POST", f"{API}/release/{request}", {"paths": [other]})[0] == 200
        assert holders(fed, "run6") == []


GFAL = """
import sys, time, gfal2
context = gfal2.creat_context()
url, lifetime = sys.argv[1], int(sys.argv[2])
errors, token = context.bring_online([url], [""], lifetime, 600, True)
while any(context.bring_online_poll([url], token)):
    time.sleep(0.5)
print(token)
"""


def test_gfal_keeps_files_and_gives_them_up(fed: fb.Federation) -> None:
    if shutil.which("gfal-evict") is None:
        pytest.skip("gfal2 is not installed")
    with serving(fed) as server:
        url = f"http://127.0.0.1:{server.port}{path('run7')}"
        run("gfal-bringonline", "--pin-lifetime", "600", "--polling-timeout", "60", url)
        assert run("gfal-xattr", url, "user.status").strip() == "ONLINE_AND_NEARLINE"
        (first,) = holders(fed, "run7")
        run("gfal-evict", url, first.removeprefix("stage request "))
        assert holders(fed, "run7") == []
        leave(fed, "run7")
        token = run("/usr/bin/python3", "-c", GFAL, url, "600").strip()
        assert holders(fed, "run7") == [f"stage request {token}"]
        with pytest.raises(fb.DeniedError):
            fed.evict("run7")
        run("gfal-evict", url, token)
        leave(fed, "run7")

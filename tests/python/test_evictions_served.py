"""A server evicts files for clients, which do not wait for stores."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from test_storage_served import ask, on_tape, xrootd
from waiting import wait_for

import femtobarn as fb
from femtobarn.cli import main


def metric(server: fb.Server, name: str) -> float:
    """The value of a metric of the recalls and evictions of a federation."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"femtobarn_recall_{name}{{")).split()[1])


def test_an_eviction_continues_while_its_store_does_not_answer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with on_tape(tmp_path, "run7", "run8") as (fed, server, tape):
        host = f"root://127.0.0.1:{server.port}"
        (tape / "silent").touch()
        # The client is answered, though its store is silent.
        xrootd("xrdfs", host, "prepare", "-e", "/lhc.fed/run7.root", "/lhc.fed/run8.root")
        assert [it.state for it in fed.where("*")] == ["both", "both"]
        _, (told,) = ask(server, "GET", "/api/recalls")
        leaving = [(each["path"], each["is_running"]) for each in told["leaving"]]
        assert leaving == [("/lhc.fed/run7.root", True), ("/lhc.fed/run8.root", False)]
        assert metric(server, "evictions_waiting") == 2
        capfd.readouterr()
        assert main(["queue", f"127.0.0.1:{server.port}"]) == 0
        lines = capfd.readouterr().out.splitlines()
        assert lines[-2].startswith("/lhc.fed/run7.root leaves, for ")
        assert lines[-2].endswith("its stores are asked for its copies")
        assert lines[-1].endswith("waits")
        fed.pin("run8")
        (tape / "silent").unlink()
        wait_for(lambda: metric(server, "evictions_waiting") == 0)
        assert [it.state for it in fed.where("*")] == ["nearline", "both"]
        assert (metric(server, "evictions_done_total"), metric(server, "evictions_failed_total")) == (1, 1)

"""Ctrl-C ends long calls: waits for locks, here and at a server, and for servers that do not answer."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import femtobarn as fb

DAY = 86_400.0
"""A test whose wait is not ended runs into the time limit of the suite."""


@fb.persistent
class Hit:
    """A hit."""

    charge: fb.float32


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    """A federation with a container."""
    federation = fb.create(tmp_path / "lhc.fed")
    with federation.transaction() as txn:
        txn.database("run7", create=True).container("hits", Hit, create=True)
    return federation


def assert_interrupted(call: Callable[[], object]) -> None:
    """Press Ctrl-C during a call, which has to end by it."""
    # Shells let what they start in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, before)


def append(federation: fb.Federation, seconds: float) -> None:
    """Append a hit."""
    with federation.transaction(lock_timeout=seconds) as txn:
        txn.database("run7").container("hits").append(Hit(charge=1.0))


def test_interrupt_ends_waits_for_locks(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        txn.database("run7").container("hits").append(Hit(charge=0.5))
        assert_interrupted(lambda: append(fed, DAY))
        assert_interrupted(lambda: fed.seal("run7", lock_timeout=DAY))
    append(fed, 60.0)
    assert len(fed["run7/hits"]) == 2


def test_interrupt_ends_waits_for_locks_at_a_server(fed: fb.Federation) -> None:
    with (
        fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all") as server,
        fb.open(server.url("/lhc.fed")) as holder,
        fb.open(server.url("/lhc.fed")) as waiter,
    ):
        with holder.transaction() as txn:
            txn.database("run7").container("hits").append(Hit(charge=0.5))
            assert_interrupted(lambda: append(waiter, DAY))
        # A lock that the server grants to an interrupted waiter is given back.
        append(holder, 60.0)
        append(waiter, 60.0)
        assert len(fed["run7/hits"]) == 3


def test_interrupt_ends_the_wait_for_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"root://127.0.0.1:{silent.getsockname()[1]}//lhc.fed"
        assert_interrupted(lambda: fb.open(url, timeout=DAY))

"""A server passes its files to remote federations on its own machine, which read them without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from stored_points import ENTRIES, VALUES, fill, is_right

import femtobarn as fb

LITTLE = VALUES.nbytes // 10
"""More than the answers about a container, and less than its values."""


@fb.persistent
class Pair:
    x: fb.float64
    y: fb.float64


@pytest.fixture
def local(tmp_path: Path) -> fb.Federation:
    """A federation with an open database."""
    fed = fb.create(tmp_path / "lhc.fed")
    with fed.transaction() as txn:
        pairs = txn.database("run7", create=True).container("pairs", Pair, create=True)
        pairs.extend({"x": VALUES, "y": -VALUES})
    return fed


@contextmanager
def served(local: fb.Federation, settings: str = "", port: int = 0) -> Iterator[fb.Server]:
    config = Path(local.path).with_suffix(".toml")
    config.write_text(f"[limits]\ndrain_seconds = 0\n{settings}")
    with fb.serve(local.path, port=port, address="127.0.0.1", anonymous="all", config=config) as server:
        yield server


def sent(server: fb.Server) -> int:
    """The bytes of files that the server has sent."""
    count: int = server.status()["totals"]["bytes_read"]
    return count


def column(fed: fb.Federation, name: str) -> Any:
    return fed["run7/pairs"].arrays(name, library="np")[name]


def test_values_are_read_without_the_server(local: fb.Federation) -> None:
    with served(local) as server, fb.open(server.url("/lhc.fed")) as remote:
        assert np.array_equal(column(remote, "x"), VALUES)
        assert sent(server) < LITTLE
        assert sum(tier.bytes for tier in remote.read_statistics()) >= VALUES.nbytes
        for writer in (remote, local):
            with writer.transaction() as txn:
                txn.database("run7").container("pairs").extend({"x": VALUES[:9], "y": VALUES[:9]})
        assert np.array_equal(column(remote, "y"), np.r_[-VALUES, VALUES[:9], VALUES[:9]])
        assert sent(server) < LITTLE


@pytest.mark.parametrize("where", ["server", "cache"])
def test_values_come_from_the_server_where_that_is_wanted(
    local: fb.Federation, tmp_path: Path, where: str
) -> None:
    settings = "[logical]\npass_files = false\n" if where == "server" else ""
    kept = tmp_path / "cache" if where == "cache" else None
    with served(local, settings) as server, fb.open(server.url("/lhc.fed"), disk_cache=kept) as remote:
        assert np.array_equal(column(remote, "x"), VALUES)
        assert sent(server) > VALUES.nbytes / 2


def test_nothing_is_read_after_the_session_has_ended(local: fb.Federation) -> None:
    with served(local) as server, fb.open(server.url("/lhc.fed"), timeout=1) as remote:
        view = remote["run7/pairs"]
        assert np.array_equal(view.arrays("x", library="np")["x"], VALUES)
        server.stop()
        # The snapshot of this view is not pinned any more, so a vacuum may reuse its space.
        with pytest.raises(fb.UnavailableError):
            view.arrays("y")


def test_a_federation_that_was_restored_is_read_anew(local: fb.Federation, tmp_path: Path) -> None:
    local.backup(tmp_path / "backup")
    lost, new = {"x": VALUES + 1, "y": VALUES}, {"x": VALUES + 2, "y": VALUES}
    with local.transaction() as txn:
        txn.database("run7").container("pairs").extend(lost)
    with served(local) as server:
        url = server.url("/lhc.fed")
        remote = fb.open(url)
        assert np.array_equal(column(remote, "x"), np.r_[VALUES, lost["x"]])
    Path(local.path).rename(tmp_path / "lost.fed")
    restored = fb.restore(tmp_path / "backup", local.path)
    with restored.transaction() as txn:
        txn.database("run7").container("pairs").extend(new)
    with served(restored, port=urlsplit(url).port or 0), remote:
        assert np.array_equal(column(remote, "x"), np.r_[VALUES, new["x"]])


def test_versions_stay_readable_beside_a_vacuum(local: fb.Federation) -> None:
    with served(local) as server, fb.open(server.url("/lhc.fed")) as remote:
        view = remote["run7/pairs"]
        local.set_retention(keep_commits=1)
        for _ in range(2):
            with local.transaction() as txn:
                pairs = txn.database("run7").container("pairs")
                pairs.update(0, x=7.0)
                pairs.extend({"x": VALUES, "y": VALUES})
            local.vacuum()
        assert np.array_equal(view.arrays("y", library="np")["y"], -VALUES)
        assert np.array_equal(view.arrays("x", library="np")["x"], VALUES)
        assert sent(server) < LITTLE


def test_files_in_stores_are_read_through_the_server(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", "run8")
    (tmp_path / "mirror").mkdir()
    store = f"[stores.store]\nkind = 'folder'\npath = '{tmp_path}/mirror'\nin_place = true\n"
    (tmp_path / "lhc.fed/storage.toml").write_text(store)
    fed.migrate("run7", "store")
    fed.evict("run7")
    with served(fed) as server, fb.open(server.url("/lhc.fed")) as remote:
        assert is_right(remote, "run7")
        from_store = sent(server)
        assert from_store > ENTRIES
        assert is_right(remote, "run8")
        assert sent(server) - from_store < LITTLE
        assert fed.where("run7")[0].state == "nearline"

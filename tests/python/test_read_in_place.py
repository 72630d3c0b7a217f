"""Databases that are read in the store that has them, without being staged."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from data_servers import data_servers
from s3_servers import S3_SERVERS, s3_server
from stored_points import ENTRIES, VALUES, Point, files

import femtobarn as fb

COMMITS = 16


@fb.persistent
class Tag:
    point: fb.link[Point]


def filled(path: Path, settings: str) -> fb.Federation:
    """A federation with a database of many clusters, which is in a store alone, and one with links to it."""
    fed = fb.create(path)
    for _ in range(COMMITS):
        with fed.transaction() as txn:
            points = txn.database("run7", create=True).container("points", Point, create=True)
            points.extend({"x": VALUES})
    oids = fed["run7/points"].oids
    with fed.transaction() as txn:
        tags = txn.database("tags", create=True).container("tags", Tag, create=True)
        tags.extend({"point": [oids[number] for number in range(0, COMMITS * ENTRIES, 5 * ENTRIES)]})
    fed.seal("run7")
    (path / "storage.toml").write_text(settings)
    fed.migrate("run7", "store")
    assert fed.evict("run7") > COMMITS * ENTRIES * 8
    return fb.open(path, stage=False)


def read_bytes(fed: fb.Federation) -> int:
    """The bytes that came from stores."""
    return sum(tier.bytes for tier in fed.read_statistics() if tier.name == "stores")


def check_reading(fed: fb.Federation) -> None:
    size = fed.where("run7")[0].copies[0].size
    view = fed["run7/points"]
    before = read_bytes(fed)
    assert view[3 * ENTRIES + 7].x == VALUES[7]
    assert 0 < read_bytes(fed) - before < size / 4, "an object is read without the whole file"
    assert view.arrays("x").x.to_numpy().tobytes() == np.tile(VALUES, COMMITS).tobytes()
    assert [tag.point.x for tag in fed["tags/tags"]] == [VALUES[0]] * 4
    assert fed.check(full=True).problems == []
    assert (fed.where("run7")[0].state, files(fed)) == ("nearline", ["tags.root"])


@pytest.mark.parametrize("kind", S3_SERVERS)
def test_s3(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ann")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    with s3_server(kind, tmp_path / "s3") as url:
        settings = f"[stores.store]\nkind = 's3'\nurl = '{url}'\nbucket = 'lhc'\nin_place = true\n"
        fed = filled(tmp_path / "lhc.fed", settings)
        check_reading(fed)
        fed.stage("run7")
        assert fed.where("run7")[0].state == "both"
        assert sorted(files(fed)) == ["run7.root", "tags.root"]
        fed.evict("run7")
    with pytest.raises(fb.UnavailableError):
        fb.open(fed.path)["run7/points"].arrays("x")


@pytest.mark.parametrize("kind", ["ours", "xrootd"])
def test_an_xrootd_server(tmp_path: Path, kind: str) -> None:
    with data_servers(kind, tmp_path / "site") as (server, _):
        (server.folder / "store").mkdir()
        (server.folder / "store").chmod(0o777)
        settings = f"[stores.store]\nkind = 'xrootd'\nurl = '{server.url}/store'\nin_place = true\n"
        fed = filled(tmp_path / "lhc.fed", settings + "answer_seconds = 5\n")
        check_reading(fed)
        fed.stage("run7")
        fed.evict("run7")
        (copy,) = (server.folder / "store").rglob("*.root")
        whole = copy.read_bytes()
        copy.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(fb.UnavailableError, match="stage it"):
            fb.open(fed.path, stage=False)["run7/points"]
        copy.write_bytes(whole)
        check_reading(fb.open(fed.path, stage=False))
        view = fed["run7/points"]
        assert view[0].x == VALUES[0]
    with pytest.raises(fb.UnavailableError):
        view.arrays("x")


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    settings = f"[stores.store]\nkind = 'folder'\npath = '{tmp_path}/mirror'\nin_place = true\n"
    fed = filled(tmp_path / "lhc.fed", settings)
    check_reading(fed)
    (copy,) = (tmp_path / "mirror").rglob("*.root")
    whole = copy.read_bytes()
    damaged = bytearray(whole)
    for place in range(5000, len(damaged), 10_000):
        damaged[place] ^= 1
    copy.write_bytes(damaged)
    with pytest.raises(fb.CorruptError):
        fb.open(fed.path)["run7/points"].arrays("x")
    copy.write_bytes(whole)
    check_reading(fb.open(fed.path, stage=False))
    copy.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(fb.UnavailableError, match="stage it"):
        fb.open(fed.path, stage=False)["run7/points"]
    copy.write_bytes(whole)
    reader = fb.open(fed.path, stage=False)
    view = reader["run7/points"]
    assert view[0].x == VALUES[0]
    fed.stage("run7")
    fed.discard_copy("run7", "store")
    # The copy is gone while it was read there: the disk has the file.
    with suppress(fb.NotFoundError):
        view.arrays("x")
    assert len(view.arrays("x")) == COMMITS * ENTRIES

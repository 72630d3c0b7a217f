"""Federations with very many series: operations that need no container open none.

The file with the series is emptied, so that opening one of them fails.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from conditions_site import Site
from nopayloaddb_requests import Requests

import femtobarn as fb
from femtobarn.cli import main

FORM = {"name": "Level", "fields": [{"name": "value", "type": "float64"}]}
MANY = [3000, pytest.param(100_000, marks=pytest.mark.long)]


def filled(fed: fb.Federation, count: int) -> list[str]:
    """Make series in one transaction, and return their paths."""
    paths = [f"det/s{number:06}" for number in range(count)]
    with fed.transaction() as txn:
        for path in paths:
            txn.series(path, FORM, create=True).put({"value": 1.0}, since=0)
    return paths


def put(fed: fb.Federation, path: str) -> None:
    with fed.transaction() as txn:
        txn.series(path).put({"value": 2.0}, since=10)


def emptied(fed: fb.Federation) -> None:
    """Empty the file of the series."""
    os.truncate(Path(fed.path) / "databases" / "det.root", 0)
    with fb.open(fed.path) as again, pytest.raises(fb.FemtobarnError):
        again.conditions()["det/s000000"].at(0)


@pytest.mark.parametrize("count", MANY)
def test_heads_and_overviews_open_no_series(fed: fb.Federation, count: int) -> None:
    paths = filled(fed, count)
    fed.conditions.create_tag("prod")
    fed.conditions.create_tag("frozen", paths[:200], state="frozen")
    changed = paths[count // 2]
    with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
        site = Site(fed, server)
        [name] = server.exports
        site_url = f"http://127.0.0.1:{server.port}/conditions{name}"
        assert site.url == site_url
        ask = Requests(f"{site_url}/nopayloaddb/api/cdb_rest")
        before = {each["series"]: each for each in site.ask("heads").json["series"]}
        assert len(ask.ok("GET", "gtPayloadLists/prod")) == count
        put(fed, changed)
        with fed.transaction() as txn:
            database = txn.database("det")
            database.container("s000001").rename("renamed")
            database.container("s000002").drop()
            txn.series("other/new", FORM, create=True).put({"value": 1.0}, since=0)
        emptied(fed)
        after = {each["series"]: each for each in site.ask("heads/prod").json["series"]}
        assert after.keys() - before.keys() == {"det/renamed", "other/new"}
        assert before.keys() - after.keys() == {"det/s000001", "det/s000002"}
        differs = [path for path in before.keys() & after.keys() if before[path] != after[path]]
        assert differs == [changed]
        assert (before[changed]["conditions"], after[changed]["conditions"]) == (1, 2)
        old = site.ask("heads/frozen").json["series"]
        assert old == [before[path] for path in paths[:200]]
        counts = {each["payload_type"]: each["iov_count"] for each in ask.ok("GET", "pl")
                  if each["global_tag"] == "prod"}  # fmt: skip
        assert len(counts) == count
        assert Counter(counts.values()) == {1: count - 1, 2: 1}
        assert counts[changed.replace("/", ".")] == 2


@pytest.mark.parametrize("count", MANY)
def test_lists_and_comparisons_open_no_equal_series(
    fed: fb.Federation, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = filled(fed, count)
    for name in ("first", "second"):
        fed.conditions.create_tag(name, state="frozen")
    put(fed, paths[-1])
    [found] = fed.conditions.diff("first", None)
    assert (found.series, found.since, found.after) == (paths[-1], 10, {"value": 2.0})
    emptied(fed)
    with fb.open(fed.path) as again:
        assert again.conditions.diff("first", "second") == []
    for more in ([], ["--since", "1970-01-01T00:00:00Z"]):
        assert main(["conditions", "diff", fed.path, "first", "second", "--json", *more]) == 0
        assert json.loads(capsys.readouterr().out) == []
    assert main(["conditions", "ls", fed.path, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["series"] for row in rows] == paths
    assert [row["conditions"] for row in rows[-2:]] == [1, 2]
    assert {row["class"] for row in rows} == {"Level"}


def test_check_opens_a_version_once_for_all_tags(fed: fb.Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = filled(fed, 50)
    for name in ("first", "second"):
        fed.conditions.create_tag(name, state="frozen")
    put(fed, paths[0])
    fed.conditions.create_tag("third", state="frozen")
    opened: Counter[str] = Counter()
    get = fb.Job.__getitem__

    def counted(job: fb.Job, path: str) -> fb.Series:
        opened[path] += 1
        return get(job, path)

    monkeypatch.setattr(fb.Job, "__getitem__", counted)
    assert fed.conditions.check() == []
    assert opened == dict.fromkeys(paths, 1) | {paths[0]: 2}

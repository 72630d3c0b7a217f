"""Branches: conditions in front of a series, seen by jobs of one global tag."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condition_branches import Gain, put, values, with_branch

import femtobarn as fb


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    return with_branch(fed)


def test_branch_hides_its_base_where_it_has_conditions(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    put(gains, 9.0, 0, 100)
    assert values(gains, "mc", 39, 40, 59, 60, 100) == [1.0, 2.0, 2.0, 1.0, None]
    assert values(gains, "prod", 50) == [1.0]
    assert values(gains, None, 50) == [9.0]
    job = gains.conditions("mc")
    assert job["tpc/hv"].at(50).value == 1350.0
    assert job["tpc/gain"].at(50, channel=3).value == 5.0
    assert list(job) == ["tpc/gain", "tpc/hv"] == list(gains.conditions())


def test_unused_branch_costs_one_object(gains: fb.Federation) -> None:
    before = [(row["name"], row["entries"]) for row in gains.snapshot().containers("tpc")]
    changes = len(gains["conditions/global_tags"])
    gains.conditions.create_tag("other", copy_of="prod", branch=True)
    assert [(row["name"], row["entries"]) for row in gains.snapshot().containers("tpc")] == before
    assert len(gains["conditions/global_tags"]) == changes + 1
    assert gains.conditions("other")["tpc/gain"].version == gains.conditions("prod")["tpc/gain"].version


def test_conditions_of_a_branch_are_read_in_every_way(gains: fb.Federation, tmp_path: Path) -> None:
    put(gains, 2.0, 40, 60, "mc")
    job = gains.conditions("mc")
    series = job["tpc/gain"]
    assert [view.name for view in series.sources] == ["tpc/gain", "tpc/gain@mc"]
    intervals = series.intervals()
    assert [(each.since, each.until, each.entry) for each in intervals] == [
        (0, 40, 0),
        (40, 60, 2),
        (60, 100, 0),
    ]
    entries = [each.entry for each in intervals if each.entry is not None]
    assert series.fetch(entries, "value").value.to_list() == [1.0, 2.0, 1.0]
    assert series.fetch(np.array([2, 1, 0, 2])).value.to_list() == [2.0, 5.0, 1.0, 2.0]
    assert series.fetch([]).to_list() == []
    assert series.object_at(2).value == 2.0
    assert series.oid(2) == gains.snapshot()["tpc/gain@mc"].oid(0)
    assert series.at(50).oid == series.oid(2)
    assert series.interval(50) == intervals[1]
    assert series.channels() == [0, 3]
    assert sorted(each.value for each in series) == [1.0, 2.0, 5.0]
    with pytest.raises(fb.InvalidError, match="read from tpc/gain and tpc/gain@mc; use sources"):
        series.view.object_at(2)
    pytest.importorskip("matplotlib")
    assert {1.0, 2.0} <= set(np.asarray(series.plot(channel=0).lines[0].get_ydata()).tolist())
    job.write_snapshot(tmp_path / "mc.root")
    with fb.open_conditions(tmp_path / "mc.root") as copied:
        assert [each["value"] for each in copied["tpc/gain"].at([39, 40, 60]).to_list()] == [1.0, 2.0, 1.0]
    fb.export_conditions(job, tmp_path / "mc.csv", ["tpc/gain"])
    assert (tmp_path / "mc.csv").read_text().count("2.0") == 1


def test_condition_of_the_base_is_corrected_and_ended_in_the_branch_alone(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc")
        branch.correct(Gain(value=1.5), at=10)
        branch.correct({"value": 1.6}, at=10)
        assert branch.end(at=80) == 1
        with pytest.raises(fb.NotFoundError, match="no condition of channel 0 to end"):
            branch.end(at=90)
    assert values(gains, "mc", 10, 79, 80, 99) == [1.6, 1.6, None, None]
    corrected = gains.conditions("mc")["tpc/gain"]
    assert len(corrected) == len(gains.conditions()["tpc/gain"]) == 2
    assert sorted(each.value for each in corrected) == [1.6, 5.0]
    assert values(gains, None, 10, 99) == [1.0, 1.0]


def test_branch_of_a_branch_reads_the_base_as_of_its_creation(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.create_tag("mc2", copy_of="mc", branch=True)
    put(gains, 3.0, 50, 70, "mc")
    with gains.transaction() as txn:
        txn.series("tpc/gain", branch="mc2").correct(Gain(value=2.5), at=45)
    assert values(gains, "mc2", 39, 45, 55, 65) == [1.0, 2.5, 2.5, 1.0]
    assert values(gains, "mc", 39, 45, 55, 65) == [1.0, 2.0, 3.0, 3.0]
    tag = gains.conditions.tag("mc2")
    assert [container for container, _ in tag["branches"]["tpc/gain"]] == ["tpc/gain@mc2", "tpc/gain@mc"]
    assert tag["changed"] == ["tpc/gain"]


def test_copy_of_a_branch_follows_it_until_it_is_frozen(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.create_tag("copy", copy_of="mc")
    put(gains, 3.0, 40, 60, "mc")
    assert values(gains, "copy", 50) == [3.0]
    gains.conditions.change_tag("copy", state="frozen")
    put(gains, 4.0, 40, 60, "mc")
    assert (values(gains, "copy", 50), values(gains, "mc", 50)) == ([3.0], [4.0])
    with pytest.raises(fb.InvalidError, match='"copy" is not a branch'):
        put(gains, 5.0, 40, 60, "copy")


def test_frozen_branch_never_changes(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.change_tag("mc", state="locked")
    with pytest.raises(fb.DeniedError, match="locked"):
        put(gains, 3.0, 40, 60, "mc")
    gains.conditions.change_tag("mc", state="frozen")
    with pytest.raises(fb.DeniedError, match="frozen for ever"):
        put(gains, 3.0, 40, 60, "mc")
    with gains.transaction() as txn:
        # Somebody who writes past the functions does not change it either.
        own = txn.database("tpc").container("gain@mc")
        own.append({"since": 0, "until": 100, "channel": 0, "replaced_entry": -1, "value": 7.0})
    assert values(gains, "mc", 50) == [2.0]
    assert gains.conditions.check() == []
    gains.conditions.create_tag("mc2", copy_of="mc", branch=True)
    put(gains, 3.0, 40, 60, "mc2")
    assert (values(gains, "mc", 50), values(gains, "mc2", 50)) == ([2.0], [3.0])


def test_version_that_a_branch_is_based_on_does_not_change(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    for change in ({"series": {"tpc/gain": 1}}, {"remove": ["tpc/gain"]}):
        with pytest.raises(fb.DeniedError, match="has conditions of tpc/gain"):
            gains.conditions.change_tag("mc", **change)
    gains.conditions.change_tag("mc", csn=gains.head())
    put(gains, 9.0, 0, 10)
    gains.conditions.change_tag("mc", csn=gains.head())
    assert values(gains, "mc", 5, 50) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("series", "options", "error", "text"),
    [
        ("tpc/gain", {"branch": "absent"}, fb.NotFoundError, "does not exist"),
        ("tpc/gain", {"branch": "prod"}, fb.InvalidError, "is not a branch"),
        ("tpc/gain", {"branch": "mc", "create": True}, fb.InvalidError, "has the class and options"),
        ("tpc/late", {"branch": "mc"}, fb.NotFoundError, 'on which branch "mc" is based'),
        ("tpc", {"branch": "mc"}, fb.InvalidError, "is not the path of a series"),
        ("tpc/gain@mc", {}, fb.InvalidError, "has only the changes of a branch"),
    ],
)
def test_invalid_puts_into_a_branch_are_refused(
    gains: fb.Federation, series: str, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    put(gains, 2.0, 40, 60, "mc")
    with gains.transaction() as txn:
        txn.series("tpc/late", Gain, create=True).put(Gain(value=1.0), since=0)
    with pytest.raises(error, match=text), gains.transaction() as txn:
        txn.series(series, **options).put(Gain(value=1.0), since=0)


def test_container_of_a_branch_is_no_series_by_itself(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    with pytest.raises(fb.InvalidError, match="the changes of a branch"):
        gains.conditions()["tpc/gain@mc"]
    with pytest.raises(fb.InvalidError, match="the changes of a branch"):
        gains.conditions.create_tag("x", {"tpc/gain": "tpc/gain@mc"})


def test_check_finds_that_the_container_of_a_branch_was_removed(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    assert gains.conditions.check() == []
    with gains.transaction() as txn:
        txn.drop("tpc/gain@mc")
    (problem,) = gains.conditions.check()
    assert "tpc/gain of global tag 'mc' cannot be read" in problem
    assert "gain@mc" in problem
    with pytest.raises(fb.NotFoundError):
        gains.conditions("mc")["tpc/gain"]


def test_vacuum_keeps_the_base_of_a_branch(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0, until=100)
    fed.conditions.create_tag("mc", branch=True)
    put(fed, 2.0, 40, 60, "mc")
    for value in (7.0, 8.0, 9.0):
        with fed.transaction() as txn:
            txn.series("tpc/gain").correct(Gain(value=value), at=10)
    fed.vacuum(keep_from=fed.head())
    assert values(fed, "mc", 10, 50) == [1.0, 2.0]
    assert values(fed, None, 10) == [9.0]
    assert fed.conditions.check() == []


def test_first_conditions_of_a_branch_are_rolled_back_as_a_whole(gains: fb.Federation) -> None:
    with suppress(RuntimeError), gains.transaction() as txn:
        txn.series("tpc/gain", branch="mc").put(Gain(value=2.0), since=0)
        txn.series("tpc/hv", branch="mc").put(Gain(value=2.0), since=0)
        raise RuntimeError
    assert gains.conditions.tag("mc")["changed"] == []
    assert "tpc/gain@mc" not in gains.snapshot()
    with gains.transaction() as txn:
        txn.series("tpc/gain", branch="mc").put(Gain(value=2.0), since=0)
        txn.series("tpc/hv", branch="mc").put(Gain(value=3.0), since=0)
    job = gains.conditions("mc")
    assert (job["tpc/gain"].at(5).value, job["tpc/hv"].at(5).value) == (2.0, 3.0)


def test_global_tags_of_the_first_version_are_read_and_can_be_branched(fed: fb.Federation) -> None:
    """Changes without branches, as they were written before there were any."""
    with fed.transaction() as txn:
        txn.series("tpc/gain", Gain, create=True).put(Gain(value=1.0), since=0, until=100)
        tags = txn.database("conditions", create=True).container("global_tags", FIRST_TAGS, create=True)
        tags.create_index("by_name", "name")
        version = {"series": "tpc/gain", "csn": 1, "source": "", "is_removed": False}
        first = {"base": -1, "csn": 0, "only_listed": True, "versions": [version], "time": 7, "user": "ann"}
        tags.append({"name": "old", "state": "open", "message": "first", **first})
    before = fed.head()
    expected = {"series": {"tpc/gain": (1, None)}, "is_branch": False, "branches": {}, "message": "first"}
    assert expected.items() <= fed.conditions.tag("old").items()
    put(fed, 9.0, 0, 100)
    fed.conditions.create_tag("mc", copy_of="old", branch=True)
    put(fed, 2.0, 40, 60, "mc")
    assert fed["conditions/global_tags"].definition.version == 2
    assert (values(fed, "mc", 10, 50), values(fed, "old", 50)) == ([1.0, 2.0], [1.0])
    for csn in (before, None):
        assert expected.items() <= fed.conditions.tag("old", csn=csn).items()
    assert [tag["name"] for tag in fed.conditions.tags()] == ["mc", "old"]
    assert fed.conditions.history("old")[0]["user"] == "ann"


FIRST_TAGS = {
    "name": "femtobarn::GlobalTag",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "state", "type": "string"},
        {"name": "base", "type": "int64"},
        {"name": "csn", "type": "uint64"},
        {"name": "only_listed", "type": "bool"},
        {
            "name": "versions",
            "type": {
                "list": {
                    "record": {
                        "fields": [
                            {"name": "series", "type": "string"},
                            {"name": "csn", "type": "uint64"},
                            {"name": "source", "type": "string"},
                            {"name": "is_removed", "type": "bool"},
                        ]
                    }
                }
            },
        },
        {"name": "time", "type": "int64"},
        {"name": "user", "type": "string"},
        {"name": "message", "type": "string"},
    ],
}
"""Version 1 of the class of global tags."""


def test_diff_lists_the_changes_of_a_branch(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc")
        branch.put(Gain(value=2.0), since=40, until=60)
        branch.put(Gain(value=1.0), since=70, until=80)
        branch.end(at=90, channel=3)
    found = [
        (each.series, each.channel, each.since, each.until, each.before, each.after)
        for each in gains.conditions.diff("prod", "mc")
    ]
    assert found == [
        ("tpc/gain", 0, 40, 60, {"value": 1.0}, {"value": 2.0}),
        ("tpc/gain", 3, 90, 100, {"value": 5.0}, None),
    ]


def test_deleted_branch_leaves_no_container_that_no_tag_reads(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.create_tag("copy", copy_of="mc")
    gains.conditions.create_tag("fixed", copy_of="mc", state="frozen")
    before = gains.snapshot()
    gains.conditions.delete_tag("mc")
    assert "tpc/gain@mc" in gains.snapshot(), "the copy follows it"
    assert values(gains, "copy", 50) == [2.0]
    gains.conditions.create_tag("jets", copy_of="prod", branch=True)
    put(gains, 3.0, 40, 60, "jets")
    gains.conditions.create_tag("jets-1", copy_of="jets", state="frozen")
    last = gains.snapshot()
    gains.conditions.delete_tag("jets")
    now = gains.snapshot()
    assert ("tpc/gain@jets" in last, "tpc/gain@jets" in now, "tpc/gain" in now) == (True, False, True)
    assert values(gains, "jets", 50, csn=last.csn) == values(gains, "jets-1", 50) == [3.0]
    assert values(gains, "mc", 50, csn=before.csn) == values(gains, "fixed", 50) == [2.0]
    gains.conditions.create_tag("jets", copy_of="prod", branch=True)
    put(gains, 4.0, 40, 60, "jets")
    assert values(gains, "jets", 39, 50) == [1.0, 4.0]
    assert values(gains, "jets-1", 50) == [3.0]
    assert gains.conditions.check() == []

"""Merges of branches: what they changed is put into the series, and conflicts are reported by interval."""

from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
from condition_branches import Gain, put, values, with_branch
from condition_samples import Plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import femtobarn as fb


@pytest.fixture
def gains(fed: fb.Federation) -> fb.Federation:
    return with_branch(fed)


def test_merge_puts_the_changes_of_the_branch_into_the_series_once(gains: fb.Federation) -> None:
    with gains.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc")
        branch.put(Gain(value=2.0), since=40, until=60)
        branch.end(at=90, channel=3)
        txn.series("tpc/hv", branch="mc").correct(Gain(value=1400.0), at=0)
    put(gains, 7.0, 80, 90)
    merged = gains.conditions.merge("mc", message="validated")
    assert (merged.csn, merged.put, merged.conflicts) == (gains.head(), 3, [])
    assert values(gains, None, 39, 50, 60, 85, 95) == [1.0, 2.0, 1.0, 7.0, 1.0]
    series = gains.conditions()["tpc/gain"]
    assert [series.at(t, channel=3) and series.at(t, channel=3).value for t in (89, 90)] == [5.0, None]
    assert gains.conditions()["tpc/hv"].at(0).value == 1400.0
    assert values(gains, "mc", 50, 85) == [2.0, 1.0]
    head = gains.head()
    again = gains.conditions.merge("mc")
    assert (again.csn, again.put, gains.head()) == (None, 0, head)
    # Later changes of the series stay, and later changes of the branch are merged.
    put(gains, 8.0, 40, 60)
    put(gains, 4.0, 0, 10, "mc")
    assert gains.conditions.merge("mc").put == 1
    assert values(gains, None, 5, 50) == [4.0, 8.0]


def test_conflict_is_refused_with_its_intervals_until_a_side_is_chosen(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    put(gains, 3.0, 50, 70)
    head = gains.head()
    with pytest.raises(fb.MergeConflictError, match=r"channel 0, 1970.* became .*3\.0.*2\.0") as caught:
        gains.conditions.merge("mc")
    assert gains.head() == head
    (conflict,) = caught.value.conflicts
    assert (conflict.series, conflict.channel, conflict.since, conflict.until) == ("tpc/gain", 0, 50, 60)
    assert (conflict.base, conflict.ours, conflict.theirs) == ({"value": 1.0}, {"value": 3.0}, {"value": 2.0})
    merged = gains.conditions.merge("mc", on_conflict="ours")
    assert (merged.put, merged.conflicts) == (1, [conflict])
    assert values(gains, None, 45, 55, 65) == [2.0, 3.0, 3.0]
    # The choice holds: there is nothing to decide again.
    assert gains.conditions.merge("mc").csn is None
    gains.conditions.create_tag("mc2", copy_of="mc", branch=True)
    put(gains, 6.0, 55, 58, "mc2")
    assert gains.conditions.merge("mc2", on_conflict="theirs").conflicts != []
    assert values(gains, None, 54, 55, 58) == [3.0, 6.0, 3.0]


def test_both_sides_with_the_same_values_are_no_conflict(gains: fb.Federation) -> None:
    for branch in ("mc", None):
        put(gains, 2.0, 40, 60, branch)
    assert gains.conditions.merge("mc").csn is None


def test_frozen_branch_is_merged_and_history_names_the_author(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.change_tag("mc", state="frozen", message="validated")
    gains.conditions.create_tag("next", message="2027")
    gains.conditions.merge("mc", "next", message="for 2027")
    for name in ("mc", "next"):
        last = gains.conditions.history(name)[-1]
        assert last["message"] == "for 2027"
        assert last["user"]
        assert (last["merge"]["branch"], last["merge"]["into"]) == ("mc", "next")
    assert [row["message"] for row in gains.conditions.history("mc")] == [
        "jets",
        "first conditions of tpc/gain",
        "validated",
        "for 2027",
    ]
    assert gains.conditions.merge("mc", "next").csn is None
    assert values(gains, "next", 50) == [2.0]


def test_merge_into_a_branch_leaves_the_series(gains: fb.Federation) -> None:
    gains.conditions.create_tag("mc2", copy_of="mc", branch=True)
    with gains.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc2")
        branch.put(Gain(value=2.0), since=40, until=60)
        branch.end(at=90, channel=3)
    gains.conditions.merge("mc2", "mc")
    assert values(gains, "mc", 39, 50) == [1.0, 2.0]
    assert gains.conditions("mc")["tpc/gain"].at(95, channel=3) is None
    assert values(gains, None, 50) == [1.0]
    assert gains.conditions()["tpc/gain"].at(95, channel=3).value == 5.0


def test_merge_is_refused_where_it_would_not_be_seen(gains: fb.Federation) -> None:
    put(gains, 2.0, 40, 60, "mc")
    gains.conditions.create_tag("pinned", csn=gains.head())
    gains.conditions.create_tag("locked", state="locked")
    gains.conditions.create_tag("other", ["tpc/hv"])
    for into, error in (
        ("prod", fb.DeniedError),
        ("locked", fb.DeniedError),
        ("pinned", fb.InvalidError),
        ("other", fb.NotFoundError),
        ("absent", fb.NotFoundError),
    ):
        with pytest.raises(error):
            gains.conditions.merge("mc", into)
    for branch in ("prod", "pinned"):
        with pytest.raises(fb.InvalidError, match="is not a branch"):
            gains.conditions.merge(branch)
    with pytest.raises(fb.InvalidError, match="on_conflict must be"):
        gains.conditions.merge("mc", on_conflict="both")  # type: ignore[arg-type]
    assert values(gains, None, 50) == [1.0]


@pytest.mark.parametrize("overlap", ["open", "refuse"])
def test_merge_keeps_the_rule_of_overlaps(fed: fb.Federation, overlap: Literal["open", "refuse"]) -> None:
    with fed.transaction() as txn:
        series = txn.series("tpc/gain", Gain, create=True, overlap=overlap)
        series.extend({"value": [1.0, 2.0, 3.0]}, since=[0, 30, 60], until=[30, 60, 90])
    fed.conditions.create_tag("mc", branch=True)
    with fed.transaction() as txn:
        branch = txn.series("tpc/gain", branch="mc")
        branch.correct(Gain(value=7.0), at=40)
        branch.end(at=20)
    fed.conditions.merge("mc")
    assert values(fed, None, 10, 25, 35, 59, 60) == [1.0, None, 7.0, 7.0, 3.0]
    assert fed.conditions.diff("mc", None) == []


def test_links_and_lists_are_carried_into_branches_and_merged(fed: fb.Federation) -> None:
    def payload(name: bytes) -> Any:
        oid = (
            txn.database("tpc")
            .container("payloads", fb.Payload, create=True)
            .append(fb.Payload.from_bytes(name))
        )
        return fb.LinkedPayload(payload=oid, source_hash=name.decode())

    with fed.transaction() as txn:
        txn.database("tpc", create=True)
        maps = txn.series("tpc/map", fb.LinkedPayload, create=True)
        maps.put(payload(b"first"), since=0, until=100)
    fed.conditions.create_tag("mc", branch=True)
    with fed.transaction() as txn:
        branch = txn.series("tpc/map", branch="mc")
        branch.put(payload(b"second"), since=40, until=60)
        branch.end(at=90)
    assert [fb.payload_bytes(fed.conditions("mc")["tpc/map"].at(t)) for t in (39, 50)] == [
        b"first",
        b"second",
    ]
    assert fed.conditions.merge("mc").put == 2
    series = fed.conditions()["tpc/map"]
    assert [fb.payload_bytes(series.at(t)) for t in (39, 50, 89)] == [b"first", b"second", b"first"]
    assert series.at(95) is None


# ---- against the plain model

END = 20
CHANGE = st.tuples(
    st.sampled_from(["put", "put", "end", "correct", "branch"]),
    st.integers(0, 3),
    st.integers(0, 1),
    st.integers(0, END),
    st.integers(1, END),
)


class Histories:
    """The series and its branches as plain models, each a copy of what it is based on."""

    def __init__(self, fed: fb.Federation, overlap: Literal["newest", "open"]) -> None:
        self.fed = fed
        self.models: dict[str | None, Plain] = {None: Plain(overlap)}
        self.bases: dict[str | None, Plain] = {}
        self.expected: list[tuple[str | None, int, Any]] = []
        self.value = 0.0
        with fed.transaction() as txn:
            txn.series("tpc/gain", Gain, create=True, overlap=overlap)

    def change(self, kind: str, which: int, channel: int, since: int, length: int) -> None:
        """Make a change of one version, in a commit of its own."""
        name = list(self.models)[which % len(self.models)]
        model = self.models[name]
        if kind == "branch":
            branch = f"b{len(self.models)}"
            self.fed.conditions.create_tag(branch, copy_of=name, branch=True)
            self.models[branch], self.bases[branch] = copy.deepcopy(model), copy.deepcopy(model)
        else:
            self._change_series(kind, name, model, channel, since, length)
        for each, plain in self.models.items():
            self.expected.append((each, self.fed.head(), table(plain)))

    def _change_series(
        self, kind: str, name: str | None, model: Plain, channel: int, since: int, length: int
    ) -> None:
        self.value += 1.0
        is_begun = any(row[0] == channel and row[1] < since < row[2] for row in model.rows)
        with self.fed.transaction() as txn:
            series = txn.series("tpc/gain", branch=name)
            if kind == "put":
                model.rows.append([channel, since, since + length, self.value, len(model.rows)])
                series.put(Gain(value=self.value), since=since, until=since + length, channel=channel)
            elif kind == "end" and is_begun:
                model.end(channel, since)
                series.end(at=since, channel=channel)
            elif kind == "correct" and model.at(channel, since) is not None:
                model.correct(channel, since, self.value)
                series.correct(Gain(value=self.value), at=since, channel=channel)

    def answers(self, name: str | None, csn: int | None = None) -> list[list[float | None]]:
        series = self.fed.conditions(name, csn=csn)["tpc/gain"]
        found = [series.at(range(2 * END), "value", channel=channel).to_list() for channel in range(2)]
        return [[row and row["value"] for row in rows] for rows in found]


def table(model: Plain) -> list[list[float | None]]:
    return [[model.at(channel, t) for t in range(2 * END)] for channel in range(2)]


def three_way(base: Any, ours: Any, theirs: Any, choice: str) -> list[list[float | None]]:
    """The result of a merge at each moment."""

    def one(b: Any, o: Any, t: Any) -> Any:
        if t in (b, o):
            return o
        return t if o == b or choice == "theirs" else o

    return [[one(*each) for each in zip(*rows, strict=True)] for rows in zip(base, ours, theirs, strict=True)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(CHANGE, min_size=3, max_size=14),
    st.sampled_from(["newest", "open"]),
    st.sampled_from(["ours", "theirs"]),
)
def test_branches_answer_as_copies_and_merges_as_three_way_merges(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[str, int, int, int, int]],
    overlap: Literal["newest", "open"],
    choice: Literal["ours", "theirs"],
) -> None:
    with fb.create(tmp_path_factory.mktemp("model") / "m.fed") as fed:
        histories = Histories(fed, overlap)
        for change in changes:
            histories.change(*change)
        for name, csn, expected in histories.expected:
            assert histories.answers(name, csn) == expected, (name, csn)
        ours = table(histories.models[None])
        for name, base in histories.bases.items():
            theirs = table(histories.models[name])
            ours = three_way(table(base), ours, theirs, choice)
            fed.conditions.merge(str(name), on_conflict=choice)
            assert histories.answers(None) == ours, name
            assert histories.answers(name) == theirs
            assert fed.conditions.merge(str(name)).csn is None
        for name in histories.models:
            assert histories.answers(name) == (ours if name is None else table(histories.models[name]))
        assert fed.conditions.check() == []

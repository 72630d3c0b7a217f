"""Meanings of values, where arrays, versions of classes and conditions could mistake them."""

from __future__ import annotations

import datetime as dt
import enum
import json
import pathlib
import pickle
from typing import Any

import awkward as ak
import numpy as np
import pandas as pd
import pytest

import femtobarn as fb
from femtobarn.cli import main

an: Any = fb
UTC = dt.UTC


class Quality(enum.Enum):
    BAD = 0
    GOOD = 1


def one(fed: fb.Federation, annotation: Any, *values: Any) -> fb.View:
    """Return a container of objects with one field `x`."""
    number = len(fed)
    cls = fb.persistent(type(f"One{number}", (), {"__annotations__": {"x": annotation}}))
    with fed.transaction() as txn:
        container = txn.database(f"one{number}", create=True).container("c", cls, create=True)
        for value in values:
            container.append(cls(x=value))
    return fed[f"one{number}/c"]


def enumeration(name: str, **members: Any) -> Any:
    """Return an enumeration that no module has by its name."""
    return enum.Enum(name, list(members.items()))


def test_enumerations_of_one_name_are_kept_apart_by_their_members(fed: fb.Federation) -> None:
    hits, tracks = enumeration("Status", OK=0, BAD=1), enumeration("Status", OK=0, LOST=1)
    first, second = one(fed, hits, hits.BAD), one(fed, tracks, tracks.LOST)
    assert first[0].x is hits.BAD
    assert second[0].x is tracks.LOST
    with fed.transaction() as txn:
        container = txn.database("one0").container("c")
        with pytest.raises(fb.InvalidError, match="not of Status as it is stored"):
            container.append({"x": tracks.LOST})


def test_an_enumeration_with_further_members_is_the_one_that_was_stored(fed: fb.Federation) -> None:
    older = one(fed, enumeration("Level", LOW=1, HIGH=2), 2)
    newer = enumeration("Level", LOW=1, HIGH=2, HIGHEST=3)
    fb.definition_of(fb.persistent(type("Newer", (), {"__annotations__": {"x": newer}})))
    assert older[0].x is newer.HIGH


def test_members_that_no_program_declares_are_equal_and_pickled() -> None:
    form = {"meaning": {"of": "int32", "is": "enum", "name": "Unheard", "members": [["A", 1], ["B", 2]]}}
    fields = [{"name": name, "type": form} for name in "ab"]
    a, b = (each.type for each in fb.definition_of({"name": "U", "fields": fields}).fields)
    first, second = (each.meaning.to_python(2) for each in (a, b))  # type: ignore[attr-defined]
    assert first is second
    assert pickle.loads(pickle.dumps(first)) is first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (dt.date, dt.datetime),
        (dict[str, dt.date], dict[str, dt.datetime]),
        (enumeration("Q", A=1), dt.date),
        (dt.date, enumeration("Q", A=1)),
        (enumeration("Q", A=1, B=2), enumeration("Q", A=2, B=1)),
        (enumeration("Q", A=1), enumeration("R", X=1)),
        (pathlib.Path, enumeration("T", A="a")),
    ],
)
def test_a_newer_class_cannot_give_values_another_meaning(fed: fb.Federation, old: Any, new: Any) -> None:
    first = fb.persistent(type("Shift", (), {"__annotations__": {"x": old}}))
    second = fb.persistent(version=2)(type("Shift", (), {"__annotations__": {"x": new}}))
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        database.container("c", first, create=True)
        with pytest.raises(fb.InvalidError, match="would mean something else; add a new field instead"):
            database.container("c", second, evolve=True)


def test_objects_that_were_read_are_appended_again(fed: fb.Federation) -> None:
    part = fb.persistent(type("Part", (), {"__annotations__": {"t": dt.datetime, "q": Quality}}))
    moment = dt.datetime(2020, 1, 1, tzinfo=UTC)
    rows = [
        (list[dt.datetime], [moment]),
        (list[dt.datetime | None], [moment, None]),
        (list[list[Quality]], [[Quality.GOOD], []]),
        (list[Quality | None], [None, Quality.BAD]),
        (list[part], [{"t": moment, "q": Quality.GOOD}]),  # type: ignore[valid-type]
        (set[dt.datetime], {moment}),
        (list[dict[str, dt.date] | None], [{"a": dt.date(2020, 1, 1)}, None]),
        (an.array[dt.date, 2], [dt.date(2020, 1, 1)] * 2),
    ]
    for number, (annotation, value) in enumerate(rows):
        view = one(fed, annotation, value)
        with fed.transaction() as txn:
            container = txn.database(f"one{number}").container("c")
            container.append(view[0])
            container.append(view[0].to_dict())
            container.extend([view[0].to_dict()])
        found = fed[f"one{number}/c"]
        assert [each.to_dict() for each in found] == [{"x": value}] * 4, annotation


def test_sets_are_sorted_and_keys_unique_in_arrays(fed: fb.Federation) -> None:
    for annotation in (set[int], set[str], dict[str, int]):
        one(fed, annotation)
    with fed.transaction() as txn:
        txn.database("one0").container("c").extend({"x": ak.Array([[3, 1, 1], [], [2, 2]])})
        txn.database("one1").container("c").extend({"x": [["b", "a", "b"]]})
        with pytest.raises(fb.InvalidError, match="value 1 has key 'a' twice"):
            txn.database("one2").container("c").extend({"x": [[("b", 1)], [("a", 1), ("a", 2)]]})
    assert fed["one0/c"].arrays().x.to_list() == [[1, 3], [], [2]]
    assert fed["one1/c"].arrays().x.to_list() == [["a", "b"]]


def test_missing_times_of_pandas_are_missing(fed: fb.Federation) -> None:
    one(fed, dt.datetime | None)
    times = pd.to_datetime(["2020", None])
    with fed.transaction() as txn:
        container = txn.database("one0").container("c")
        container.extend(pd.DataFrame({"x": times}))
        container.extend(pd.DataFrame({"x": times.tz_localize("UTC")}))
        container.extend({"x": [pd.NaT, np.datetime64("NaT"), None]})
    assert ak.is_none(fed["one0/c"].arrays().x).to_list() == [False, True] * 2 + [True] * 3


def test_conditions_compare_times_to_the_nanosecond_and_refuse_mixed_types(fed: fb.Federation) -> None:
    ticks = [np.datetime64("2026-01-02T00:00:00.123456789"), np.datetime64("2026-01-02T00:00:00.123456")]
    view = one(fed, dt.datetime, *ticks)
    assert view.entries("x == '2026-01-02T00:00:00.123456789'").tolist() == [0]
    assert view.entries("x in ('2026-01-02T00:00:00.123456',)").tolist() == [1]
    assert view.find(x="2026-01-02T00:00:00.123456789").oid == view[0].oid
    days = one(fed, dt.date, dt.date(2026, 1, 2))
    with pytest.raises(fb.InvalidError, match="time of day"):
        days.entries("x == '2026-01-02 12:00'")
    both = fb.persistent(type("Both", (), {"__annotations__": {"t": dt.datetime, "d": dt.date}}))
    with fed.transaction() as txn:
        txn.database("b", create=True).container("c", both, create=True)
    with pytest.raises(fb.InvalidError, match="'t > d' compares datetime and date, which are"):
        fed["b/c"].entries("t > d")


def test_times_and_members_behind_links_and_in_computed_columns(fed: fb.Federation) -> None:
    fields = {"at": dt.datetime, "q": Quality, "name": str}
    target = fb.persistent(type("Target", (), {"__annotations__": fields}))
    fields = {"to": an.link["Target"], "q": Quality, "day": dt.date}
    source = fb.persistent(type("Source", (), {"__annotations__": fields}))
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        targets = database.container("targets", target, create=True)
        sources = database.container("sources", source, create=True)
        for day in (1, 2):
            made = {"at": dt.datetime(2026, 1, day, tzinfo=UTC), "q": Quality.GOOD, "name": "n"}
            sources.append({"to": targets.append(made), "q": Quality(day - 1), "day": dt.date(2026, 1, day)})
    view = fed["d/sources"]
    assert view.entries("to.at > '2026-01-01 12:00'").tolist() == [1]
    assert view.entries("to.name == 'n'").tolist() == [0, 1]
    aliases = {"good": "q == 'GOOD'", "late": "day > '2026-01-01'", "one_of": "day in ('2026-01-02',)"}
    array = view.arrays(list(aliases), aliases=aliases)
    for name in aliases:
        assert array[name].to_list() == [False, True]
        assert view.entries(aliases[name]).tolist() == [1]


def test_numbers_that_no_member_has_stay_numbers() -> None:
    form = {"meaning": {"of": "int32", "is": "enum", "name": "Quality", "members": [["BAD", 0], ["OLD", 9]]}}
    field = fb.definition_of({"name": "A", "fields": [{"name": "q", "type": form}]}).fields[0].type
    assert json.loads(json.dumps(field.to_json())) == form
    meaning: Any = field
    # The enumeration of this module has other members, so one is made of the names.
    assert meaning.meaning.to_python(9).name == "OLD"
    assert meaning.meaning.to_python(5) == 5


@pytest.mark.parametrize(
    ("meaning", "stored"),
    [
        ({"of": "int64", "is": "of a later release"}, "int64"),
        ({"of": "string", "is": "datetime"}, "string"),
        ({"of": {"optional": "int64"}, "is": "datetime"}, "int64 | None"),
    ],
)
def test_an_unknown_meaning_leaves_stored_values(
    fed: fb.Federation, meaning: dict[str, Any], stored: str
) -> None:
    form = {"name": "Later", "fields": [{"name": "x", "type": {"meaning": meaning}}]}
    value: Any = "a" if stored == "string" else 5
    assert str(fb.definition_of(form).fields[0].type) == stored
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container("c", json.dumps(form), create=True)
        container.append({"x": value})
    assert fed["d/c"][0].x == value
    assert fed["d/c"].arrays().x.to_list() == [value]


@pytest.mark.parametrize(
    ("annotation", "values", "text", "shown"),
    [
        (Quality, [Quality.BAD, Quality.GOOD], "GOOD", "GOOD"),
        (Quality, [Quality.BAD, Quality.GOOD], "1", "GOOD"),
        (enumeration("Detector", TPC="tpc", ITS="its"), ["tpc", "its"], "ITS", "ITS"),
        (
            dt.datetime,
            [dt.datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)],
            "2026-01-02",
            "2026-01-02T00",
        ),
        (dt.date, [dt.date(2026, 1, day) for day in (1, 2)], "20260102", "2026-01-02"),
    ],
)
def test_command_line_finds_objects_by_the_meaning_of_values(
    fed: fb.Federation,
    capsys: pytest.CaptureFixture[str],
    annotation: Any,
    values: list[Any],
    text: str,
    shown: str,
) -> None:
    view = one(fed, annotation, *values)
    assert main(["find", fed.path, view.name, f"x={text}"]) == 0
    assert capsys.readouterr().out.startswith(f'1-1-1  x="{shown}')


def test_command_line_suggests_members_of_an_enumeration(
    fed: fb.Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    view = one(fed, Quality, Quality.GOOD)
    assert main(["find", fed.path, view.name, "x=GOOOD"]) == 2
    assert "'GOOOD' is not a member of Quality; did you mean 'GOOD'?" in capsys.readouterr().err

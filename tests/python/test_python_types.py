"""Types of Python that ROOT lacks: times, enumerations, paths, dictionaries, tuples and sets."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import femtobarn as fb
from femtobarn.cli import main

an: Any = fb
UTC = dt.UTC


class Quality(enum.Enum):
    BAD = 0
    GOOD = 1
    PERFECT = 7


class Detector(enum.Enum):
    MUON = "mu"
    ECAL = "ec"


class Trigger(enum.Flag):
    MUON = 1
    JET = 2
    MET = 4


@fb.persistent
class Hit:
    energy: fb.float32


@fb.persistent
class Run:
    number: int
    begun: dt.datetime
    day: dt.date
    quality: Quality
    detector: Detector
    triggers: Trigger
    log: pathlib.Path
    weights: dict[str, fb.float32]
    beam: tuple[int, float, str]
    shifters: set[str]
    is_physics: np.bool_
    pauses: list[dt.datetime]
    qualities: list[Quality]
    ended: dt.datetime | None = None
    history: Mapping[str, list[dt.date]] = fb.field(default_factory=dict)
    hottest: dict[int, Hit] = fb.field(default_factory=dict)
    points: list[tuple[float, float]] = fb.field(default_factory=list)
    counts: list[dict[str, int]] = fb.field(default_factory=list)
    scalers: list[int | None] | None = None
    gains: dict[str, float | None] | None = None
    crates: tuple[int, ...] = ()
    detectors: set[Detector] = fb.field(default_factory=set)
    calibrated: tuple[int, dt.date] | None = None


def run(number: int) -> Run:
    late = number > 2
    return Run(
        number=number,
        begun=dt.datetime(2026, 11, 27, 9, number, tzinfo=UTC),
        day=dt.date(2026, 11, number + 1),
        quality=Quality.PERFECT if number % 2 else Quality.GOOD,
        detector=Detector.ECAL if late else Detector.MUON,
        triggers=Trigger.MUON | Trigger.MET,
        log=pathlib.Path("/data/logs") / f"{number}.txt",
        weights={"nominal": 1.5, "up": float(number)},
        beam=(number, 2.5, "pp"),
        shifters={"zoe", "ada"},
        is_physics=np.bool_(late),
        pauses=[dt.datetime(2026, 1, 1, tzinfo=UTC)] * number,
        qualities=[Quality.BAD, Quality.GOOD],
        ended=None if number % 2 else dt.datetime(2027, 1, 1, tzinfo=UTC),
        history={"opened": [dt.date(2020, 1, 1)]},
        hottest={3: Hit(energy=2.0)},
        points=[(1.0, 2.0)] * number,
        counts=[{"a": number}, {}],
        scalers=[1, None, 3] if late else None,
        gains={"a": None, "b": 2.0} if late else None,
        crates=(1, 2),
        detectors={Detector.ECAL, Detector.MUON},
        calibrated=(3, dt.date(2020, 2, 2)) if late else None,
    )


@pytest.fixture
def runs(fed: fb.Federation) -> fb.View:
    with fed.transaction() as txn:
        container = txn.database("book", create=True).container("runs", Run, create=True)
        for number in range(5):
            container.append(run(number))
    return fed["book/runs"]


def assert_is(found: Any, expected: Run) -> None:
    """Assert that an object that was read has the values of one that was written."""
    for name in found.fields:
        value, wanted = found[name], getattr(expected, name)
        if name == "pauses":
            assert value.dtype == "datetime64[ns]"
            assert value.tolist() == [int(each.timestamp()) * 10**9 for each in wanted]
        elif name == "history":
            assert {key: each.tolist() for key, each in value.items()} == wanted
        elif name == "hottest":
            assert {key: each.energy for key, each in value.items()} == {3: 2.0}
        elif name in ("scalers", "crates"):
            assert (None if value is None else value.tolist()) == (None if wanted is None else list(wanted))
        else:
            assert value == wanted, name
            assert type(value) is type(wanted) or name == "is_physics", name


def test_objects_are_read_as_they_were_written(runs: fb.View) -> None:
    for number, found in enumerate(runs):
        assert_is(found, run(number))
    assert_is(runs[3], run(3))
    plain = runs[3].to_dict()
    assert plain["pauses"] == run(3).pauses
    assert plain["hottest"] == {3: {"energy": 2.0}}
    assert plain["weights"] == run(3).weights
    assert plain["shifters"] == {"zoe", "ada"}


def test_arrays_have_times_and_records(runs: fb.View) -> None:
    array = runs.arrays()
    assert str(array.begun.type) == "5 * datetime64[ns]"
    assert array.day.to_numpy().dtype == "datetime64[D]"
    assert array.quality.to_list() == [1, 7, 1, 7, 1]
    assert array.weights[2].to_list() == [{"_0": "nominal", "_1": 1.5}, {"_0": "up", "_1": 2.0}]
    assert array.beam[2].to_list() == {"_0": 2, "_1": 2.5, "_2": "pp"}
    assert array.shifters[0].to_list() == ["ada", "zoe"]
    table = runs.arrays(["begun", "day", "ended"], library="pa")
    assert [str(each.type) for each in table.schema] == ["timestamp[ns]", "date32[day]", "timestamp[ns]"]
    frame = runs.arrays(["begun", "day"], library="pd")
    assert frame.begun.dt.minute.tolist() == list(range(5))
    assert runs.typenames()["gains"] == "dict[string, float64 | None] | None"
    assert runs.typenames()["detectors"] == "set[Detector]"


def test_arrays_are_stored_as_they_were_read(fed: fb.Federation, runs: fb.View) -> None:
    array, table = runs.arrays(), runs.arrays(library="pa")
    with fed.transaction() as txn:
        container = txn.database("book").container("runs")
        container.extend(array)
        container.extend(table)
        container.extend([run(number) for number in range(5)])
    found = fed["book/runs"].arrays()
    for start in (5, 10, 15):
        assert ak.array_equal(found[start : start + 5], array)
    for number, each in enumerate(fed["book/runs"]):
        assert_is(each, run(number % 5))
    assert fed.check(full=True).problems == []


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("begun >= '2026-11-27 09:03'", [3, 4]),
        ("begun >= '2026-11-27T10:03+01:00' and quality == 'GOOD'", [4]),
        ("'2026-11-02' < day", [2, 3, 4]),
        ("quality in ('GOOD', 'BAD')", [0, 2, 4]),
        ("quality == 1", [0, 2, 4]),
        ("detector == 'MUON'", [0, 1, 2]),
        ("detector != 'mu'", [3, 4]),
        ("any(weights._1 > 3)", [4]),
        ("any(weights._0 == 'up' and weights._1 < 2)", [0, 1]),
        ("any(shifters == 'ada')", [0, 1, 2, 3, 4]),
        ("beam._0 == 2", [2]),
        ("ended is None", [1, 3]),
        ("ended > '2026-12-01'", [0, 2, 4]),
        ("any(qualities == 'PERFECT')", []),
        ("log == '/data/logs/2.txt'", [2]),
        ("calibrated._1 == '2020-02-02'", [3, 4]),
        ("begun < '1950-01-01'", []),
    ],
)
def test_conditions_name_times_and_members(runs: fb.View, where: str, numbers: list[int]) -> None:
    assert runs.arrays("number", where=where).number.to_list() == numbers


def test_functions_get_times(runs: fb.View) -> None:
    late = np.datetime64("2026-11-27T09:03")
    assert runs.arrays("number", where=lambda run: run.begun > late).number.to_list() == [4]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("begun > 'yesterday'", "'yesterday' is not a datetime; write it as in ISO 8601"),
        ("quality == 'GREAT'", "'GREAT' is not a member of Quality; there are BAD, GOOD, PERFECT"),
        ("begun + 1 == '2026-11-27'", "is string"),
    ],
)
def test_conditions_that_name_neither_are_refused(runs: fb.View, where: str, told: str) -> None:
    with pytest.raises(fb.InvalidError, match=told):
        runs.arrays("number", where=where)


def test_statistics_of_times_leave_entries_out(runs: fb.View) -> None:
    assert "5 of 5 entries" in str(runs.explain("number", where="begun > '2030-01-01'"))


def test_objects_are_found_and_updated_by_python_values(fed: fb.Federation, runs: fb.View) -> None:
    with fed.transaction() as txn:
        container = txn.database("book").container("runs")
        container.create_index("by_begin", "begun", unique=True)
        container.create_index("by_quality", ["quality", "day"])
        container.update(
            0, begun=dt.datetime(2000, 1, 1, tzinfo=UTC), quality=Quality.BAD, beam=(9, 9.0, "pp")
        )
        container.update(1, weights={"down": 1.0}, shifters={"eve"}, log=pathlib.Path("other"))
    view = fed["book/runs"]
    assert view.find(begun=dt.datetime(2000, 1, 1, tzinfo=UTC)).number == 0
    assert view.find(begun="2026-11-27 09:04").number == 4
    assert view.find(quality=Quality.PERFECT, day=dt.date(2026, 11, 2)).number == 1
    assert [each.number for each in view.find_all(quality="GOOD")] == [2, 4]
    assert (view[0].quality, view[0].beam) == (Quality.BAD, (9, 9.0, "pp"))
    assert (view[1].weights, view[1].shifters, view[1].log.name) == ({"down": 1.0}, {"eve"}, "other")
    with pytest.raises(fb.InvalidError, match="'quality': 'GREAT' is not a member"):
        view.find(quality="GREAT")


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (dt.datetime, dt.datetime(2026, 1, 1), "has no time zone"),
        (dt.datetime, dt.datetime(1500, 1, 1, tzinfo=UTC), "is not between 1677-09-21 and 2262-04-12"),
        (dt.datetime, np.datetime64("1500-01-01"), "is not between"),
        (dt.datetime, np.datetime64("NaT"), "a time is missing"),
        (dt.datetime, 5, "5 is not a datetime"),
        (dt.datetime, dt.date(2026, 1, 1), "is not a datetime"),
        (dt.date, dt.datetime(2026, 1, 1), "is not a date;"),
        (Quality, 5, "5 is not a member of Quality"),
        (Quality, True, "True is not a member of Quality"),
        (Quality, "GOOD", "'GOOD' is not a member of Quality"),
        (Quality, Trigger.MUON, "is of Trigger, not of Quality"),
        (Detector, "muon", "'muon' is not a member of Detector"),
        (set[int], "abc", "'abc' is not a set"),
        (set[int], {1, "a"}, "has items of several types"),
        (tuple[int, str], (1,), "1 items, not 2"),
        (pathlib.Path, 3, "3 is not a path"),
        (dict[str, int], {1: 1}, "x._0"),
        (dict[str, int], {"a": "b"}, "x._1"),
        (str, "half a pair: \ud800", "UTF-8"),
        (dt.datetime, np.datetime64(1, "ps"), "finer than nanoseconds"),
        (dt.datetime, "2026-01-01", "has no time zone"),
        (dt.datetime, pd.NaT, "a time is missing"),
        (dt.date, np.datetime64("2026-01-01T13:00"), "a date has a time of day"),
        (dt.date, np.datetime64("20000-01-01"), "not between the years 1 and 9999"),
        (Trigger, 64, "64 is not a member of Trigger"),
        (Trigger, -1, "-1 is not a member of Trigger"),
        (list[int], np.array(["2026-01-01"], "M8[ns]"), "numbers|int64"),
    ],
)
def test_other_values_are_refused(fed: fb.Federation, annotation: Any, value: Any, told: str) -> None:
    cls = fb.persistent(type("Value", (), {"__annotations__": {"x": annotation}}))
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container("c", cls, create=True)
        with pytest.raises(fb.InvalidError, match=told):
            container.append(cls(x=value))
        with pytest.raises(fb.InvalidError, match=told):
            container.extend({"x": [value]})
        assert container.num_entries == 0


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (decimal.Decimal, "use float, or an integer of the smallest unit"),
        (dict[str, decimal.Decimal], "use float"),
        (dt.timedelta, "number of nanoseconds"),
        (uuid.UUID, "use str, or bytes"),
        (tuple, r"such as tuple\[int, float\]"),
        (tuple[()], "an empty tuple"),
        (dict[str], "cannot be stored; name the types of keys and values"),  # type: ignore[misc]
        (enum.Enum("Nothing", []), "which has no members"),
        (dict[Hit, int], "keys are Hit; keys are numbers, texts or times"),
        (set[list[int]], r"a set of list\[int64\]"),
        (enum.Enum("Mixed", [("A", 1), ("B", "b")]), "not all integers of 64 bits, nor all strings"),
        (enum.Enum("Huge", [("A", 1 << 63)]), "not all integers of 64 bits"),
        (dt.datetime | int, "one of several types, and datetime is stored as int64; use that"),
    ],
)
def test_other_types_are_refused_with_advice(annotation: Any, told: str) -> None:
    with pytest.raises(fb.InvalidError, match=told):
        fb.definition_of(fb.persistent(type("Value", (), {"__annotations__": {"x": annotation}})))


def test_times_of_numpy_keep_nanoseconds(fed: fb.Federation) -> None:
    cls = fb.persistent(type("Tick", (), {"__annotations__": {"at": dt.datetime}}))
    ticks = np.array(["2026-01-01T00:00:00.123456789", "1700-01-01"], "M8[ns]")
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container("c", cls, create=True)
        container.append(cls(at=ticks[0]))
        container.extend({"at": ticks[1:]})
    assert fed["d/c"].arrays().at.to_numpy().tolist() == ticks.tolist()
    assert fed["d/c"][0].at == dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert fed["d/c"][1].at == dt.datetime(1700, 1, 1, tzinfo=UTC)


def test_a_newer_class_gives_older_numbers_a_meaning(fed: fb.Federation) -> None:
    first: Any = type("Shift", (), {"__annotations__": {"begun": fb.int64, "who": list[int]}})
    second: Any = type(
        "Shift",
        (),
        {
            "__annotations__": {
                "begun": dt.datetime,
                "who": set[int],
                "quality": Quality,
                "day": dt.date,
                "detector": Detector,
            },
            "quality": Quality.GOOD,
            "day": dt.date(2020, 1, 1),
            "detector": Detector.ECAL,
        },
    )
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container("c", fb.persistent(first), create=True)
        container.append({"begun": 10**9, "who": [3, 1]})
    with fed.transaction() as txn:
        txn.database("d").container("c", fb.persistent(version=2)(second), evolve=True)
    found = fed["d/c"][0]
    assert (found.begun, found.who) == (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), {1, 3})
    assert (found.quality, found.day) == (Quality.GOOD, dt.date(2020, 1, 1))
    assert found.detector is Detector.ECAL
    with pytest.raises(
        fb.InvalidError, match="field 'quality' of class Shift has a default that does not fit"
    ):
        fb.persistent(type("Shift", (), {"__annotations__": {"quality": Quality}, "quality": 5}))


def test_programs_that_lack_the_classes_see_the_same(fed: fb.Federation, runs: fb.View) -> None:
    code = """
import femtobarn as fb, sys
found = fb.open(sys.argv[1])["book/runs"][3]
print(found.quality, found.detector, found.triggers.value, found.begun, sorted(map(str, found.detectors)))
"""
    done = subprocess.run([sys.executable, "-c", code, fed.path], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "Quality.PERFECT Detector.ECAL 5 2026-11-27 09:03:00+00:00 ['Detector.ECAL', 'Detector.MUON']\n"
    )


def test_notebooks_show_python_values(runs: fb.View) -> None:
    page = runs._repr_html_()
    assert "2026-11-27 09:03:00+00:00" in page
    assert "Quality.PERFECT" in page
    assert "<small>dict[string, float32]</small>" in page


def test_tables_have_times_and_maps(fed: fb.Federation, tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "seconds": pa.array([1, 2], pa.timestamp("s")),
            "day": [dt.date(2020, 1, 1)] * 2,
            "gains": pa.array([[("a", 1)], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    fed.import_file(tmp_path / "t.parquet", database="db", container="c")
    with fed.transaction() as txn:
        txn.database("db").container("c").extend(table)
    assert fed["db/c"].typenames()["gains"] == "dict[string, int32 | None]"
    first = {
        "at": dt.datetime(2026, 1, 1, tzinfo=UTC),
        "seconds": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "day": dt.date(2020, 1, 1),
        "gains": {"a": 1},
    }
    second = first | {
        "at": None,
        "seconds": dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        "gains": {"b": None},
    }
    assert [each.to_dict() for each in fed["db/c"]] == [first, second] * 2


@pytest.mark.judge
def test_root_and_uproot_read_maps_and_tuples(fed: fb.Federation, runs: fb.View) -> None:
    fed.seal("book")
    [file] = Path(fed.path, "databases").glob("*.root")
    read = uproot.open(file)["runs"].arrays()
    assert read.weights[2].to_list() == [("nominal", 1.5), ("up", 2.0)]
    assert read.beam[2].to_list() == (2, 2.5, "pp")
    assert read.begun.to_list() == runs.arrays("begun").begun.to_numpy().astype(np.int64).tolist()
    code = f"""
import ROOT
runs = ROOT.RDataFrame("runs", "{file}")
types = [runs.GetColumnType(name) for name in ("weights", "beam", "counts", "begun", "hottest._1.energy")]
ups = runs.Define("up", 'weights.at("up")').Sum("up")
beams = runs.Define("second", "std::get<1>(beam)").Sum("second")
print(types, ups.GetValue(), beams.GetValue())
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    types = [
        "std::map<std::string,float>",
        "std::tuple<std::int64_t,double,std::string>",
        "std::vector<std::map<std::string,std::int64_t>>",
        "std::int64_t",
        "ROOT::VecOps::RVec<float>",
    ]
    assert done.stdout == f"{types} 10.0 12.5\n"


def test_commands_show_python_values(
    fed: fb.Federation, runs: fb.View, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cat", fed.path, "book/runs", "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["begun"], first["day"]) == ("2026-11-27T09:00:00+00:00", "2026-11-01")
    assert (first["quality"], first["beam"]) == ("GOOD", [0, 2.5, "pp"])
    assert first["weights"] == {"nominal": 1.5, "up": 0.0}
    assert main(["cat", fed.path, "book/runs"]) == 0
    assert 'quality="PERFECT"' in capsys.readouterr().out

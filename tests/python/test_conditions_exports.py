"""Exports of conditions that are imported again, rows of CSV and JSON, and the commands."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from condition_sources import cms_file

import femtobarn as fb
from femtobarn.cli import main


@fb.persistent
class Cell:
    x: fb.float32
    label: str


@fb.persistent
class Everything:
    value: fb.float64
    count: fb.int32
    text: str
    raw: bytes
    flags: list[fb.bool_]
    cells: list[Cell]
    perhaps: fb.float64 | None


@pytest.fixture
def mixed(fed: fb.Federation, tmp_path: Path) -> fb.Federation:
    """A federation with a series of everything in several channels, a series of runs, and payloads."""
    chance = random.Random(4)
    values = [1.5, math.inf, -math.inf, math.nan, 0.1]
    with fed.transaction() as txn:
        series = txn.series("tpc/all", Everything, create=True)
        runs = txn.series("tpc/runs", Cell, create=True, clock="run", overlap="open")
        for number in range(80):
            since = chance.randrange(1000)
            condition: dict[str, Any] = {
                "value": chance.choice(values),
                "count": number,
                "text": 'a,"b"\n\u00e9',
                "raw": bytes([number, 0]),
                "flags": [True] * (number % 3),
                "cells": [Cell(x=0.5, label="l")] * (number % 2),
                "perhaps": None if number % 2 else 0.25,
            }
            until = since + chance.randrange(1, 200)
            series.put(Everything(**condition), since=since, until=until, channel=number % 3 - 1)
            runs.put(Cell(x=number, label=""), since=(since, number))
    cms_file(tmp_path / "cond.db", 3).close()
    fb.import_conditions(fed, str(tmp_path / "cond.db"), only=["Laser_v7"])
    return fed


def members_of(series: fb.Series, moment: int, channel: int) -> str | None:
    """The members of what is valid, in a form in which NaN equals itself."""
    found = series.at(np.int64(moment), channel=channel)
    if found is None:
        return None
    values = [getattr(found, name) for name in series.definition.record.by_name if name != "payload"]
    return repr([list(map(str, each)) if hasattr(each, "__len__") else each for each in values]) + (
        repr(fb.payload_bytes(found)) if hasattr(found, "payload") else ""
    )


@pytest.mark.parametrize("name", ["out.sqlite", "out.json", "out.csv"])
def test_export_that_is_imported_again_gives_the_same_answers(
    mixed: fb.Federation, tmp_path: Path, name: str
) -> None:
    job = mixed.conditions()
    names = list(job) if name != "out.csv" else ["tpc/all"]
    count = fb.export_conditions(job, tmp_path / name, names)
    options: dict[str, Any] = {"series": "tpc/all", "cls": Everything} if name == "out.csv" else {}
    with fb.create(tmp_path / "copy.fed") as copy:
        done = fb.import_conditions(copy, str(tmp_path / name), **options)
        assert sum(done.series.values()) == count
        again = copy.conditions()
        assert sorted(again) == sorted(names)
        begins = {"tpc/all": (0, 1), "tpc/runs": (0, 2**31), "cms/Laser_v7": (1_600_000_000 * 10**9, 10**8)}
        for path in names:
            assert (again[path].clock, again[path].definition) == (job[path].clock, job[path].definition)
            begin, unit = begins[path]
            for moment in range(begin - 5 * unit, begin + 1205 * unit, 3 * unit):
                for channel in (-1, 0, 1):
                    wanted = members_of(job[path], moment, channel)
                    assert members_of(again[path], moment, channel) == wanted
        with pytest.raises(fb.NotFoundError, match="has no tag 'tpc/none'"):
            fb.import_conditions(copy, str(tmp_path / name), only="tpc/none", **options)
    with pytest.raises(fb.ExistsError, match="choose another name"):
        fb.export_conditions(job, tmp_path / name, names)


def test_sqlite_export_can_be_queried_and_its_global_tag_comes_back(
    mixed: fb.Federation, tmp_path: Path
) -> None:
    mixed.conditions.create_tag("prod", ["tpc/runs", "cms/Laser_v7"], message="for 2026")
    file = tmp_path / "out.sqlite"
    fb.export_conditions(mixed.conditions("prod"), file)
    with sqlite3.connect(file) as connection:
        query = 'SELECT count(*), max(x) FROM "tpc/runs" WHERE channel = 0'
        assert connection.execute(query).fetchone() == (80, 79.0)
        (number,) = connection.execute("SELECT count(*) FROM payload").fetchone()
        assert number == len(mixed["cms/payloads"])
        connection.execute("UPDATE payload SET data = x'00' WHERE id = 1")
    connection.close()
    with fb.create(tmp_path / "copy.fed") as copy:
        with pytest.raises(fb.CorruptError, match=r"row 1 of payload is damaged: its SHA256 is"):
            fb.import_conditions(copy, str(file))
        done = fb.import_conditions(copy, str(file), only="tpc/runs")
        assert list(done.series) == ["tpc/runs"]
    file.unlink()
    fb.export_conditions(mixed.conditions("prod"), file)
    with fb.create(tmp_path / "whole.fed") as copy:
        fb.import_conditions(copy, str(file))
        assert sorted(copy.conditions("prod")) == ["cms/Laser_v7", "tpc/runs"]


def test_series_with_links_and_csv_of_payloads_are_refused(mixed: fb.Federation, tmp_path: Path) -> None:
    with pytest.raises(fb.InvalidError, match="CSV cannot hold the payloads of cms/Laser_v7"):
        fb.export_conditions(mixed.conditions(), tmp_path / "out.csv", "cms/Laser_v7")
    with pytest.raises(fb.InvalidError, match="CSV has one series in a file, not 3"):
        fb.export_conditions(mixed.conditions(), tmp_path / "out.csv")
    form = {"name": "Ref", "fields": [{"name": "cell", "type": {"list": {"link": "Payload"}}}]}
    with mixed.transaction() as txn:
        txn.series("tpc/refs", form, create=True)
    with pytest.raises(fb.UnsupportedError, match=r"tpc/refs\.cell cannot be exported: link\[Payload\]"):
        fb.export_conditions(mixed.conditions(), tmp_path / "out.sqlite")
    assert not list(tmp_path.glob("*out*"))


def test_class_of_rows_is_inferred(fed: fb.Federation, tmp_path: Path) -> None:
    rows = tmp_path / "hv.csv"
    rows.write_text(
        "since,until,channel,volts,on,name,list\n"
        '2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,3,1350,true,7,"[1, 2]"\n'
        "1767312000000000000,,3,1.5e3,False,x7,[]\n"
    )
    fb.import_conditions(fed, str(rows), series="tpc/hv-state")
    series = fed.conditions()["tpc/hv-state"]
    types = {name: str(node) for name, node in series.definition.record.by_name.items()}
    assert types == {"volts": "float64", "on": "bool", "name": "string", "list": "list[int64]"}
    assert series.definition.name == "HvState"
    first, second = (series.at(f"2026-01-0{day}T12:00:00Z", channel=3) for day in (1, 2))
    assert (first.volts, first.on, first.name, list(first.list)) == (1350.0, True, "7", [1, 2])
    assert (second.volts, second.on, second.name, list(second.list)) == (1500.0, False, "x7", [])
    rows.rename(tmp_path / "hv.txt")
    with pytest.raises(fb.InvalidError, match=r"give its format"):
        fb.import_conditions(fed, str(tmp_path / "hv.txt"), series="tpc/other")
    fb.import_conditions(fed, str(tmp_path / "hv.txt"), series="tpc/other", format="csv")
    lines = tmp_path / "runs.jsonl"
    lines.write_text(
        '{"since": "7:1", "n": 1, "m": null}\n\n{"since": [8, 0], "until": "9", "n": 2, "m": 0.5}\n'
    )
    fb.import_conditions(fed, str(lines), series="tpc/runs", clock="run", overlap="open")
    runs = fed.conditions()["tpc/runs"]
    found = [runs.at(moment) for moment in ((7, 0), (7, 1), (8, 5), (9, 0))]
    assert [each and (each.n, each.m) for each in found] == [None, (1, None), (2, 0.5), None]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("since,until,value\n5,3,1\n", "line 2: the validity from 5 to 3 ends before it begins"),
        ("since,value\n5,1\nx,2\n", "line 3: 'x' cannot be read as a time"),
        ("since,value\n5,1\n7\n", "line 3: it does not have 2 cells"),
        ("since,value\n5,1\n7,8,9\n", "line 3: it does not have 2 cells"),
        ("since,channel,value\n5,a,1\n", "line 2: channel 'a' is not an integer"),
        ("time,value\n5,1\n", "one must be 'since'"),
    ],
)
def test_wrong_row_is_named(fed: fb.Federation, tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(fb.CorruptError, match=error):
        fb.import_conditions(fed, str(tmp_path / "rows.csv"), series="tpc/gain")


def test_commands_import_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fed, rows = str(tmp_path / "lhc.fed"), tmp_path / "gains.csv"
    fb.create(fed).close()
    rows.write_text("since,value\n2026-01-01T00:00:00Z,1\n")
    form = '{"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}'
    command = ["conditions", "import", fed, str(rows), "--series", "tpc/gain"]
    assert main([*command, "--class", "Gain"]) != 0
    assert "is not the JSON of a class" in capsys.readouterr().err
    assert main([*command, "--class", form]) == 0
    assert capsys.readouterr().out.split() == ["series", "conditions", "tpc/gain", "1", "commit", "1"]
    assert main(command) != 0
    assert "--again" in capsys.readouterr().err
    assert main([*command, "--class", form, "--again", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["series"] == {"tpc/gain": 1}
    out = tmp_path / "out.csv"
    assert main(["conditions", "export", fed, str(out), "tpc/gain", "--csn", "1"]) == 0
    assert "exported 1 validities" in capsys.readouterr().out
    assert out.read_text().splitlines()[1] == "2026-01-01T00:00:00Z,forever,0,1.0"

"""Data frames of ROOT over containers: equal to ROOT's own over the complete file, column by column.

ROOT runs in a process of its own, once for all checks: its start and its compiler take seconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from damaged_files import damaged
from followed import serve, url_of

import femtobarn as fb
from femtobarn.root import _comparisons

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "cpp.md"

FIELDS: dict[str, Any] = {
    "number": "uint64",
    "run": "int32",
    "small": "int16",
    "tiny": "uint8",
    "flag": "bool",
    "mass": "float32",
    "weight": "float64",
    "name": "string",
    "best": {"optional": "float32"},
    "axes": {"array": {"of": "float32", "size": 3}},
    "weights": {"list": "float32"},
    "flags": {"list": "bool"},
    "names": {"list": "string"},
    "grid": {"list": {"list": "int64"}},
    "MET": {
        "record": {
            "class": "MET",
            "fields": [{"name": "pt", "type": "float32"}, {"name": "n", "type": "int64"}],
        }
    },
    "Muon": {
        "list": {
            "record": {
                "class": "Muon",
                "fields": [{"name": "pt", "type": "float32"}, {"name": "charge", "type": "int8"}],
            }
        }
    },
    "maybe": {"optional": {"record": {"class": "P", "fields": [{"name": "x", "type": "int32"}]}}},
}
# ROOT's own data source cannot read optional values in a data frame, and has lists for optional records.
OPTIONAL = ["best", "maybe.x", "R_rdf_sizeof_maybe", "R_rdf_sizeof_maybe.x"]
FORM = {"name": "Event", "fields": [{"name": name, "type": of} for name, of in FIELDS.items()]}

GONE = [*range(40, 400), 777, *range(1490, 1510), 2999]

PAIRS: list[tuple[dict[str, Any], str]] = [
    ({}, "!_deleted"),
    ({"tag": "before"}, "number < 1500"),
    ({"csn": 1, "where": "run == 2 and 7.5 < mass"}, "number < 1500 && run == 2 && mass > 7.5"),
    ({"where": "(nMuon >= 2) & (MET.pt > 30)"}, "!_deleted && Muon.pt.size() >= 2 && MET.pt > 30"),
    (
        {"where": "name == 'n7' and best > 100"},
        '!_deleted && name == "n7" && number % 2 == 0 && number > 400',
    ),
    ({"where": "number >= 1 and number > 2900.5"}, "!_deleted && number > 2900"),
]


def event(i: int) -> dict[str, Any]:
    """An object with values of every type."""
    return {
        "number": i, "run": i // 500, "small": -i % 1000, "tiny": i % 256, "flag": i % 3 == 0,
        "mass": i % 97 / 8, "weight": i / 3, "name": f"n{i % 9}", "best": None if i % 2 else i / 4,
        "axes": [i, -i, 0.5], "weights": [i, i + 0.5, -i][: i % 4], "flags": [i % 2 == 0] * (i % 12),
        "names": ["x", f"y{i}"][: i % 3], "grid": [[i], [], [1, 2]][: i % 4], "MET": {"pt": i % 50, "n": -i},
        "Muon": [{"pt": i + at, "charge": at % 2 * 2 - 1} for at in range(i % 5)],
        "maybe": None if i % 3 else {"x": i},
    }  # fmt: skip


def written(folder: Path) -> fb.Federation:
    """Events in many clusters: 1,500 that a tag has, then 1,500 more, and some deleted."""
    fed = fb.create(folder / "lhc.fed")
    with fed.transaction() as txn:
        events = txn.database("run7", create=True).container(
            "events", FORM, create=True, page_size=4096, cluster_size=30_000
        )
        events.extend([event(i) for i in range(1500)])
    fed.tag("before")
    with fed.transaction() as txn:
        events = txn.database("run7").container("events")
        events.extend([event(i) for i in range(1500, 3000)])
        events.delete(GONE)
    fed.seal("run7")
    return fed


@pytest.mark.judge
@pytest.mark.skipif(find_spec("ROOT") is None, reason="the extra `judge` is not installed")
def test_data_frames_are_those_of_the_complete_file(tmp_path: Path) -> None:
    with written(tmp_path) as fed, serve(fed) as server:
        job = {
            "file": fed.databases()[0]["path"],
            "ntuple": "events",
            "place": str(fed.path),
            "container": "run7/events",
            "skipped": ["_deleted", *OPTIONAL],
            "counted": ["best.has_value() && *best > 700", "maybe.x && *maybe.x == 900"],
            "pairs": PAIRS,
            "snippets": [*snippets(str(fed.path)), *snippets(url_of(server))],
            "url": url_of(server),
            "cache": str(tmp_path / "cache"),
            "damaged": str(tmp_path / "damaged.fed"),
        }
        damaged(tmp_path).close()
        (tmp_path / "jobs.json").write_text(json.dumps(job))
        command = [
            sys.executable,
            str(HERE.parent / "judges" / "root_frames.py"),
            str(tmp_path / "jobs.json"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        for threads in ("one", "two"):
            assert report[threads], "nothing was compared"
            assert [set(each) for each in report[threads]] == [{"entries"}] * len(report[threads]), report[
                threads
            ]
            assert report[threads][0]["entries"] == [len(fed["run7/events"])]
            assert all(each["entries"][0] > 0 for each in report[threads])
        assert report["named"] == 1500
        kept = [event(i) for i in range(3000) if i not in GONE]
        muons = [muon["pt"] for each in kept for muon in each["Muon"]]
        sums = [sum(each["number"] for each in kept), sum(each["MET"]["pt"] for each in kept), sum(muons)]
        assert report["copied"] == sums
        assert report["cached"][0] < report["cached"][1]
        assert report["late"] == sum(range(1500, 2000))
        assert report["counted"] == [sum(i % 2 == 0 and i not in GONE for i in range(2801, 3000)), 1]
    # Names of NanoAOD work without being listed, so that what is written by Snapshot has each column once.
    assert report["types"].pop("") == []
    lists = "ROOT::VecOps::RVec<std::int32_t>"
    assert report["types"] == {
        "_deleted": ["bool", "missing"],
        "maybe.x": [lists, "std::optional<std::int32_t>"],
    }
    absent, refused, inside, wrong_type, corrupt = report["errors"]
    assert "did you mean" in absent or "events" in absent
    assert "use Filter" in refused
    assert "inside a collection" in inside
    assert "the column mass has the type float, not int" in wrong_type
    assert "checksum" in corrupt or "damaged" in corrupt


@pytest.mark.judge
@pytest.mark.skipif(find_spec("ROOT") is None, reason="the extra `judge` is not installed")
def test_frames_that_dask_distributes_read_one_commit(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    # Otherwise ROOT opens files of a server on this machine as local files, in every process.
    (tmp_path / ".rootrc").write_text("Path.ForceRemote: 1\n")
    with written(tmp_path) as fed, serve(fed) as server:
        url = f"{url_of(server)}/run7.root?fb.csn=1"
        command = [sys.executable, str(HERE.parent / "judges" / "root_distributed.py")]
        done = subprocess.run(
            [*command, url, "events", "number"], capture_output=True, text=True, check=False, cwd=tmp_path
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert "_distrdf" in report["class"]
    assert (report["count"], report["sum"]) == (1500, sum(range(1500)))


def snippets(place: str) -> list[str]:
    """The blocks of the page about C++ that are for ROOT's interpreter, over this federation."""
    blocks = re.findall(r"^```cpp root\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return [block.replace('"lhc.fed"', json.dumps(place)) for block in blocks]


def test_conditions_that_go_down_are_comparisons() -> None:
    definition = fb.definition_of(FORM)
    assert _comparisons("(-2 < run) & (name != 'x')", definition) == [("run", 2, -2), ("name", 5, "x")]
    assert _comparisons("len(MET.xs) == 3 and flag == True", definition) == [
        ("MET.xs.#", 4, 3),
        ("flag", 4, 1),
    ]
    for text in ("run == mass", "run > 2 or run < 1", "run in (1, 2)", "not flag", "run + 1 > 2", "run >"):
        with pytest.raises(fb.InvalidError):
            _comparisons(text, definition)


def test_only_whole_containers_are_shown(tmp_path: Path) -> None:
    with written(tmp_path) as fed:
        view = fed["run7/events"]
        for arguments in ((view[:10],), (view[[0, -1]],), (view, "run7/events"), (str(fed.path),)):
            with pytest.raises(fb.InvalidError):
                fb.root.FromFemtobarn(*arguments)
        with pytest.raises(fb.InvalidError):
            fb.root.FromFemtobarn(str(fed.path), "run7/events", tag="before", csn=1)

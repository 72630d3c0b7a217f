"""The command line: text for people, JSON for machines, one line and an exit code for errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb
from femtobarn._exchange.tree_imports import split_place
from femtobarn.cli import EXIT_CODES, main


@fb.persistent
class Track:
    pt: fb.float32


@fb.persistent
class Event:
    run: fb.uint32
    met: float = fb.field(description="missing energy [GeV]")
    name: str
    tracks: list[Track]
    previous: fb.link[Event] = None


@pytest.fixture
def location(tmp_path: Path) -> str:
    path = tmp_path / "lhc.fed"
    with fb.create(path) as fed, fed.transaction(message="run 7\nwith details") as txn:
        events = txn.database("run7", create=True).container("events", Event, create=True)
        previous = None
        for n in range(5):
            tracks = [Track(pt=k) for k in range(n)]
            met = float("nan") if n == 4 else n / 2
            previous = events.append(Event(run=7, met=met, name=f"e{n}", tracks=tracks, previous=previous))
    return str(path)


class Command:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def text(self, *arguments: str) -> str:
        assert main(arguments) == 0
        out, err = self.capsys.readouterr()
        assert err == ""
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def error(self, *arguments: str) -> tuple[int, str]:
        code = main(arguments)
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return code, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_create(run: Command, tmp_path: Path) -> None:
    path = str(tmp_path / "a.fed")
    assert run.text("create", path) == f"created federation a at {path}\n"
    assert run.error("create", path)[0] == EXIT_CODES["exists"]
    assert run.json("create", str(tmp_path / "b.fed"), "--name", "bee")["name"] == "bee"


def test_ls(run: Command, location: str) -> None:
    assert "run7/events" in run.text("ls", location)
    (row,) = run.json("ls", location)
    assert (row["container"], row["entries"], row["state"]) == ("events", 5, "open")
    assert run.json("ls", location, "run7") == [row]
    assert run.error("ls", location, "run8")[0] == EXIT_CODES["not-found"]


def test_info(run: Command, location: str) -> None:
    assert "objects" in run.text("info", location)
    assert run.json("info", location)["objects"] == 5
    assert run.json("info", location, "run7/events")["class"] == "Event"
    assert run.json("info", location, "--csn", "0")["objects"] == 0


def test_schema(run: Command, location: str) -> None:
    text = run.text("schema", location, "run7/events")
    assert "tracks.pt" in text
    assert "missing energy [GeV]" in text
    assert run.json("schema", location, "run7/events")["fields"][0] == {"name": "run", "type": "uint32"}
    assert "Event" in run.text("schema", location)


def test_cat_prints_one_object_per_line(run: Command, location: str) -> None:
    lines = [json.loads(line) for line in run.text("cat", location, "run7/events", "--json").splitlines()]
    assert lines[2] == {
        "run": 7, "met": 1.0, "name": "e2", "tracks": [{"pt": 0.0}, {"pt": 1.0}], "previous": "1-1-1",
    }  # fmt: skip
    assert lines[0]["previous"] is None
    assert lines[4]["met"] is None
    assert run.text("cat", location, "run7/events", "name", "-n", "1") == 'name="e0"\n'
    selected = run.text(
        "cat", location, "run7/events", "name", "--where", "ntracks > 1", "--start", "3", "-n", "1"
    )
    assert selected == 'name="e3"\n'


def test_advise_measures_every_field_with_every_compression(run: Command, location: str) -> None:
    advice = run.json("advise", location, "run7/events", "--bandwidth", "1 B")
    assert {field["path"] for field in advice["fields"]} >= {"run", "met", "name", "tracks.pt"}
    assert all(set(field["packed"]) == {"none", "lz4", "zstd"} for field in advice["fields"])
    sizes = {name: packed["stored"] for name, packed in advice["packed"].items()}
    assert advice["best"] == min(sizes, key=sizes.__getitem__)  # From such storage, bytes alone count.
    text = run.text("advise", location, "run7/events")
    assert "tracks.pt" in text
    assert 'the option compression="' in text


def test_advised_sizes_are_those_of_stored_containers(tmp_path: Path) -> None:
    fields = [{"name": name, "type": name} for name in ("float16", "float32", "int32")]
    values = np.random.default_rng(1).normal(10, 3, 50_000).astype(np.float32)
    columns = {"float16": values, "float32": values, "int32": values.astype(np.int32)}
    with fb.create(tmp_path / "packed.fed") as federation:
        for compression in ("none", "lz4", "zstd"):
            with federation.transaction() as txn:
                database = txn.database("d", create=True)
                form = {"name": "Numbers", "fields": fields}
                database.container(compression, form, create=True, compression=compression).extend(columns)
            advice = federation[f"d/{compression}"].advise()
            assert {f.path: f.packed[compression].stored for f in advice.fields} == {
                f.path: f.stored for f in advice.fields
            }


def test_history(run: Command, location: str) -> None:
    text = run.text("history", location)
    assert "run 7" in text
    assert "with details" not in text
    (commit,) = run.json("history", location, "-n", "1")
    assert (commit["csn"], commit["message"]) == (1, "run 7\nwith details")


def test_seal_and_attach(run: Command, location: str, tmp_path: Path) -> None:
    (sealed,) = run.json("seal", location, "run7")
    other = str(tmp_path / "other.fed")
    run.text("create", other)
    assert "attached" in run.text("attach", other, sealed["file"], "--name", "again")
    assert [row["database"] for row in run.json("ls", other)] == ["again"]
    assert run.error("attach", other, str(tmp_path / "none.root"))[0] == EXIT_CODES["not-found"]


def test_import_of_a_tree(run: Command, location: str, tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    path = str(tmp_path / "nano.root")
    with uproot.recreate(path) as file:
        file.mktree("Events", {"run": "int32", "met": "float32"})
        file["Events"].extend({"run": np.arange(10, dtype=np.int32), "met": np.ones(10, np.float32)})
        file.mktree("Runs", {"sum": "float64"})
        file["Runs"].extend({"sum": np.ones(2)})
        file["spectrum"] = np.histogram(np.arange(10))
    said = run.text("import", location, path)
    assert "imported 10 objects of class Events into nano/Events" in said
    assert "imported 2 objects of class Runs into nano/Runs" in said
    assert "left out spectrum: a TH1D, not a tree" in said
    assert run.error("import", location, path)[0] == EXIT_CODES["exists"]
    options = ["--database", "d", "--container", "c", "--class-name", "Muons", "--again"]
    (row,) = run.json("import", location, f"{path}:Events", *options)
    assert (row["container"], row["class"], row["entries"]) == ("d/c", "Muons", 10)
    assert row["left_out"]["Runs"] == "not asked for"
    assert run.text("cat", location, "nano/Events", "run", "-n", "1") == "run=0\n"
    assert run.error("import", location, str(tmp_path / "none.root"))[0] == EXIT_CODES["not-found"]


@pytest.mark.parametrize("csn", ["-1", str(2**64)])
def test_commit_out_of_range_is_invalid(run: Command, location: str, csn: str) -> None:
    for command in (["info", location], ["tag", location, "v1"], ["conditions", "ls", location]):
        code, text = run.error(*command, "--csn", csn)
        assert code == EXIT_CODES["invalid"]
        assert csn in text


def test_errors_are_one_line_with_the_code_of_their_kind(run: Command, location: str, tmp_path: Path) -> None:
    code, text = run.error("cat", location, "run7/event")
    assert code == EXIT_CODES["not-found"]
    assert text.startswith("femtobarn: container ")
    code, text = run.error("cat", location, "run7/events", "--where", "tracks.pt > 1", "--json")
    assert code == EXIT_CODES["invalid"]
    assert json.loads(text)["error"]["kind"] == "invalid"
    assert run.error("ls", str(tmp_path / "none.fed"))[0] == EXIT_CODES["not-found"]


def test_json_may_stand_before_the_command(run: Command, location: str, tmp_path: Path) -> None:
    assert run.text("--json", "ls", location) == run.text("ls", location, "--json")
    series = ["conditions", "ls", location]
    assert run.text("--json", *series) == run.text(*series, "--json") == "[]\n"
    code, text = run.error("--json", "ls", str(tmp_path / "none.fed"))
    assert code == EXIT_CODES["not-found"]
    assert json.loads(text)["error"]["kind"] == "not-found"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["lss"], "femtobarn: there is no command 'lss'; did you mean 'ls'?\n"),
        (["conditions", "lst"], "femtobarn conditions: there is no command 'lst'; did you mean 'ls'?\n"),
        (["xyz"], "femtobarn: there is no command 'xyz'; see femtobarn --help\n"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], line: list[str], error: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert ended.value.code == 2
    assert capsys.readouterr().err == error


@pytest.mark.parametrize(("line", "command"), [([], "rebuild-catalogue"), (["conditions"], "job-file")])
def test_help_is_the_error_without_a_command(
    capsys: pytest.CaptureFixture[str], line: list[str], command: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(line)
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(" ".join(["usage: femtobarn", *line]))
    assert f"    {command}" in err


def test_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cta"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.root", ("a.root", None)),
        ("a.root:Events", ("a.root", "Events")),
        ("root://host//a.root", ("root://host//a.root", None)),
        ("root://host//a.root:Events", ("root://host//a.root", "Events")),
    ],
)
def test_tree_may_follow_the_file(text: str, parts: tuple[str, str | None]) -> None:
    assert split_place(text) == parts


def test_module_runs_and_a_closed_pipe_is_not_an_error(location: str) -> None:
    program = [sys.executable, "-m", "femtobarn"]
    version = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"femtobarn {fb.__version__}\n"
    with subprocess.Popen(
        [*program, "cat", location, "run7/events"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_export_and_import_again(run: Command, location: str, tmp_path: Path) -> None:
    for suffix in ("root", "parquet", "feather"):
        file = str(tmp_path / f"large.{suffix}")
        said = run.text("export", location, "run7/events", file, "--field", "met", "--where", "ntracks > 1")
        assert said == f"exported 3 objects to {file}\n"
        more = ["--ntuples"] if suffix == "root" else []
        (row,) = run.json("import", location, file, "--database", suffix, "--container", "c", *more)
        assert (row["container"], row["entries"]) == (f"{suffix}/c", 3)
        assert fb.open(location)[f"{suffix}/c"]["met"].to_list()[:2] == [1.0, 1.5]
    assert run.json("export", location, "run7", str(tmp_path / "all.root"))["entries"] == 5
    assert run.error("export", location, "run7", str(tmp_path / "all.root"))[0] == EXIT_CODES["exists"]


def test_import_of_several_kinds_of_files(run: Command, location: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "t.csv").write_text("a,b\n1,x\n")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["points/x"], file["points/note"] = np.arange(4), "four"
    said = run.text("import", location, f"{tmp_path}/t.csv", f"{tmp_path}/t.h5:points/x")
    assert said == ("imported 1 objects of class t into t/t\nimported 4 objects of class x into t/x\n")
    assert run.error("import", location, f"{tmp_path}/t.h5:point")[0] == EXIT_CODES["not-found"]
    text = run.error("import", location, f"{tmp_path}/t.csv", f"{tmp_path}/t.h5", "--database", "d")[1]
    assert "several tables go into one database only with --container" in text


def test_find(run: Command, location: str) -> None:
    assert run.text("find", location, "run7/events", "name=e1").startswith("1-1-1  run=7  met=0.5")
    lines = run.text("find", location, "run7/events", "run=7", "-n", "2", "--json").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["e0", "e1"]
    assert 'name="e3"' in run.text("find", location, "run7/events", "previous=1-1-2")
    code, text = run.error("find", location, "run7/events", "run=seven")
    assert code == EXIT_CODES["invalid"]
    assert "invalid value 'seven' of field 'run', which is uint32" in text
    assert "write FIELD=VALUE" in run.error("find", location, "run7/events", "run")[1]


def test_rename_and_drop(run: Command, location: str) -> None:
    assert run.text("rename", location, "run7/events", "all") == "renamed run7/events to all\n"
    run.text("rename", location, "run7", "run8")
    assert fb.open(location).keys() == ["run8/all"]
    assert run.text("drop", location, "run8").startswith("dropped run8; snapshots before commit 4 keep")
    assert fb.open(location).keys() == []
    assert run.error("drop", location, "run8")[0] == EXIT_CODES["not-found"]

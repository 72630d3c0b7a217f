"""Importing files into a federation: all trees, once, as one class, in order, or not at all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("uproot", reason="the extra `io` is not installed")

import uproot

import femtobarn as fb

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

Trees = dict[str, dict[str, Any]]


def write(path: Path, trees: Trees, **others: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    with uproot.recreate(path) as file:
        for name, columns in trees.items():
            file.mktree(name, {field: ak.Array(values).type.content for field, values in columns.items()})
            file[name].extend(columns)
        for name, value in others.items():
            file[name] = value
    return path


def damage(path: Path, branch: str) -> None:
    """Overwrite the stored bytes of the first basket of a branch of Events."""
    with uproot.open(path) as file:
        start = int(file["Events"][branch].member("fBasketSeek")[0]) + 200
    with path.open("r+b") as raw:
        raw.seek(start)
        raw.write(bytes(2000))


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    return fb.create(tmp_path / "lhc.fed")


@pytest.fixture
def nano(tmp_path: Path) -> Path:
    """A file with the trees of a NanoAOD."""
    events = {"run": np.array([1, 1, 2]), "HLT_Mu8": np.array([True, False, True])}
    trees = {"Events": events, "Runs": {"run": np.array([1, 2]), "genEventSumw": np.array([2.5, 3.5])}}
    return write(tmp_path / "nano.root", trees, spectrum=np.histogram(np.arange(10)))


def test_every_tree_of_a_file_is_imported_and_other_objects_are_listed(
    fed: fb.Federation, nano: Path
) -> None:
    # Runs, with the normalisation of the events, was silently left out.
    done = fed.import_trees(nano)
    assert [(each.tree, each.container, each.entries) for each in done] == [
        ("Events", "nano/Events", 3),
        ("Runs", "nano/Runs", 2),
    ]
    assert done[0].left_out == {"spectrum": "a TH1D, not a tree"}
    assert fed["nano/Runs"]["genEventSumw"].to_list() == [2.5, 3.5]


def test_trees_that_are_not_named_are_listed_as_left_out(fed: fb.Federation, nano: Path) -> None:
    made = fed.import_tree(nano, "Runs")
    assert (made.container, made.left_out["Events"]) == ("nano/Runs", "not asked for")
    assert fed.import_tree(nano, "Events").entries == 3
    with pytest.raises(fb.NotFoundError, match="has no tree 'Run'; did you mean 'Runs'"):
        fed.import_trees(f"{nano}:Run")


def test_trees_without_matching_branches_are_listed_as_left_out(fed: fb.Federation, nano: Path) -> None:
    (made,) = fed.import_trees(nano, only=["HLT_*"])
    assert made.container == "nano/Events"
    assert made.left_out["Runs"] == "tree 'Runs' has no branch that can be imported: no branch matches"
    with pytest.raises(fb.NotFoundError, match=r"no branch matches 'HTL_\*'"):
        fed.import_trees(nano, only=["HLT_*", "HTL_*"])


def test_importing_a_file_twice_is_refused(fed: fb.Federation, nano: Path) -> None:
    # Importing a file twice silently doubled its data.
    fed.import_trees(nano)
    with pytest.raises(fb.ExistsError, match=r"imported already: 3 objects are in nano/Events; again=True"):
        fed.import_trees(nano)
    copy = shutil.copy(nano, nano.with_name("copy.root"))
    with pytest.raises(fb.ExistsError, match=r"copy.root was imported already as .*nano\.root"):
        fed.import_trees(copy, database="elsewhere")
    assert list(fed) == ["nano/Events", "nano/Runs", "nano/imports"]
    fed.import_trees(copy, database="nano", again=True)
    assert len(fed["nano/Events"]) == 6
    rows = fed["nano/imports"].arrays(["tree", "container", "first", "entries"]).to_list()
    assert [tuple(row.values()) for row in rows] == [
        ("Events", 1, 0, 3),
        ("Runs", 2, 0, 2),
        ("Events", 1, 3, 3),
        ("Runs", 2, 2, 2),
    ]


def test_importing_copies_of_a_file_is_refused(fed: fb.Federation, nano: Path) -> None:
    copy = shutil.copy(nano, nano.with_name("copy.root"))
    with pytest.raises(fb.ExistsError, match="is the same file as"):
        fed.import_trees([nano, copy], database="d")
    assert list(fed) == []


def test_dropped_container_can_be_imported_again(fed: fb.Federation, nano: Path) -> None:
    fed.import_trees(nano)
    with fed.transaction() as txn:
        txn.rename("nano/Runs", "sums")
        txn.drop("nano/Events")
    fed.import_tree(nano, "Events")
    with pytest.raises(fb.ExistsError, match="2 objects are in nano/sums"):
        fed.import_tree(nano, "Runs")


def test_imported_files_are_recognised_after_a_catalogue_rebuild(fed: fb.Federation, nano: Path) -> None:
    fed.import_trees(nano)
    fed.close()
    fb.rebuild_catalogue(fed.path)
    with pytest.raises(fb.ExistsError, match="imported already"):
        fb.open(fed.path).import_trees(nano)


def test_file_without_uuid_is_identified_by_its_bytes(fed: fb.Federation, nano: Path) -> None:
    data = nano.read_bytes()
    uuid = uproot.open(nano).file.uuid.bytes
    assert uuid in data
    nano.write_bytes(data.replace(uuid, bytes(16)))
    fed.import_trees(nano)
    assert fed["nano/imports"][0].identity.startswith("sha256:")
    with pytest.raises(fb.ExistsError):
        fed.import_trees(nano)


def test_importing_a_table_twice_is_refused(fed: fb.Federation, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pd.DataFrame({"n": [1, 2]}).to_parquet(tmp_path / "t.parquet")
    fed.import_file(tmp_path / "t.parquet", class_name="Numbers")
    assert fed["t/t"].definition.name == "Numbers"
    with pytest.raises(fb.ExistsError, match=r"t\.parquet was imported already: 2 objects are in t/t"):
        fed.import_file(tmp_path / "t.parquet")
    fed.import_file(tmp_path / "t.parquet", again=True, class_name="Numbers")
    assert fed["t/t"]["n"].to_list() == [1, 2, 1, 2]


def test_failed_import_leaves_nothing(fed: fb.Federation, nano: Path) -> None:
    bad = write(nano.with_name("worse.root"), {"Events": {"run": np.random.default_rng(1).random(5000)}})
    damage(bad, "run")
    with pytest.raises(fb.CorruptError, match=r"branch 'run' of .*worse\.root cannot be read"):
        fed.import_trees([f"{nano}:Events", bad])
    assert fed.databases() == []
    assert len(fed.import_trees(nano)) == 2


def triggers(folder: Path) -> list[Path]:
    """Two files of one class with unlike triggers and collections; one has a single trigger."""
    first = {
        "run": np.array([1, 2], np.int32),
        "nMuon": np.array([1, 0], np.uint32),
        "Muon_pt": ak.Array([[5.0], []]),
        "HLT_Mu8": np.array([True, False]),
        "HLT_Mu9": np.array([False, False]),
    }
    second = {
        "run": np.array([3], np.int64),
        "nMuon": np.array([2], np.uint32),
        "Muon_pt": ak.Array([[6.0, 7.0]]),
        "Muon_eta": ak.Array([[0.5, 0.6]]),
        "HLT_Mu9": np.array([True]),
    }
    return [
        write(folder / "a" / f"{n}.root", {"Events": columns}) for n, columns in enumerate((first, second))
    ]


EVENTS = [
    {"run": 1, "Muon": [{"pt": 5.0, "eta": None}], "HLT": {"Mu8": True, "Mu9": False}},
    {"run": 2, "Muon": [], "HLT": {"Mu8": False, "Mu9": False}},
    {"run": 3, "Muon": [{"pt": 6.0, "eta": 0.5}, {"pt": 7.0, "eta": 0.6}], "HLT": {"Mu8": None, "Mu9": True}},
]


def test_files_with_different_triggers_get_one_class(fed: fb.Federation, tmp_path: Path) -> None:
    triggers(tmp_path)
    done = fed.import_trees(str(tmp_path / "**" / "*.root"), database="mu", class_name="MuonEvents")
    assert [(Path(each.file).name, each.container) for each in done] == [
        ("0.root", "mu/Events"),
        ("1.root", "mu/Events"),
    ]
    view = fed["mu/Events"]
    assert view.arrays().to_list() == EVENTS
    assert (view.definition.name, view.definition.version) == ("MuonEvents", 1)
    assert str(view.definition.resolve("run")) == "int64"


def test_file_with_other_triggers_evolves_the_class_of_the_container(
    fed: fb.Federation, tmp_path: Path
) -> None:
    first, second = triggers(tmp_path)
    fed.import_tree(first, database="mu")
    fed.import_tree(second, database="mu")
    view = fed["mu/Events"]
    assert view.arrays().to_list() == EVENTS
    assert view.definition.version == 2
    fed.import_tree(first, database="mu", again=True)
    assert fed["mu/Events"].definition.version == 2


@pytest.mark.parametrize("is_together", [True, False])
def test_file_without_a_collection_joins_a_container_that_has_it(
    fed: fb.Federation, tmp_path: Path, is_together: bool
) -> None:
    """One after the other it was refused: 'a list may have several items'."""
    muons = {"nMuon": np.array([2, 0], np.uint32), "Muon_pt": ak.Array([[5.0, 6.0], []])}
    files = [
        write(
            tmp_path / "with.root", {"Events": {"run": np.array([1, 2]), "x": ak.Array([[1], []]), **muons}}
        ),
        write(tmp_path / "without.root", {"Events": {"run": np.array([3])}}),
    ]
    for part in [files] if is_together else [[file] for file in files]:
        fed.import_trees(part, database="mu")
    view = fed["mu/Events"]
    assert view.arrays(["run", "x", "Muon"]).to_list() == [
        {"run": 1, "x": [1], "Muon": [{"pt": 5.0}, {"pt": 6.0}]},
        {"run": 2, "x": [], "Muon": []},
        {"run": 3, "x": None, "Muon": None},
    ]
    if not is_together:
        assert view[:2].as_class(1).arrays("x").x.to_list() == [[1], []]
        with pytest.raises(fb.InvalidError, match="value 0 has 0 items"):
            view[2:].as_class(1).arrays("x")


def test_trees_with_conflicting_fields_are_refused(fed: fb.Federation, tmp_path: Path) -> None:
    one = write(tmp_path / "one.root", {"t": {"x": np.arange(2), "n": np.arange(2)}})
    two = write(tmp_path / "two.root", {"t": {"x": np.arange(2), "n": np.array([0.5])[[0, 0]]}})
    other = write(tmp_path / "three.root", {"t": {"y": np.arange(2)}})
    with pytest.raises(
        fb.InvalidError, match=r"field 'n' is int64 in .*one.root:t and float64 in .*two.root:t"
    ):
        fed.import_trees([one, two], database="d")
    with pytest.raises(fb.InvalidError, match="have no field in common"):
        fed.import_trees([one, other], database="d")
    fed.import_trees([one, two, other])
    with pytest.raises(fb.InvalidError, match="container one/t has objects of class t, not u"):
        fed.import_trees(one, database="one", class_name="u", again=True)


def test_one_name_for_several_trees_is_refused_with_advice(fed: fb.Federation, nano: Path) -> None:
    with pytest.raises(
        fb.InvalidError, match=r"\(Events, Runs\), which class 'DY' cannot hold.*'DY_\{tree\}'"
    ):
        fed.import_trees(nano, class_name="DY")
    done = fed.import_trees(nano, class_name="DY_{tree}", container="{tree}_2018")
    assert [(each.container, each.class_name) for each in done] == [
        ("nano/Events_2018", "DY_Events"),
        ("nano/Runs_2018", "DY_Runs"),
    ]


def test_empty_tree_gets_an_empty_container(fed: fb.Federation, tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.root", {"t": {"n": np.arange(0)}})
    full = write(tmp_path / "full.root", {"t": {"n": np.arange(2)}})
    fed.import_trees([empty, full])
    assert [fed["empty/t"]["n"].to_list(), fed["full/t"]["n"].to_list()] == [[], [0, 1]]
    fed.import_trees([empty, full], database="both", again=True)
    rows = fed["both/imports"].arrays()
    assert (rows.entries.to_list(), int(rows.first[1])) == ([0, 2], 0)


def test_glob_of_branches_may_match_in_one_file_only(fed: fb.Federation, tmp_path: Path) -> None:
    first, second = triggers(tmp_path)
    fed.import_trees([first, second], database="mu", only=["run", "HLT_Mu8"])
    assert fed["mu/Events"].arrays().to_list() == [
        {"run": 1, "HLT": {"Mu8": True}},
        {"run": 2, "HLT": {"Mu8": False}},
        {"run": 3, "HLT": None},
    ]
    with pytest.raises(fb.NotFoundError, match=r"no branch matches 'HTL_Mu8'.*did you mean 'HLT_Mu8'"):
        fed.import_trees([first, second], database="wrong", only=["run", "HTL_Mu8"])


def test_trees_whose_valid_names_are_equal_stay_separate(fed: fb.Federation, tmp_path: Path) -> None:
    trees = {name: {"n": np.array([n])} for n, name in enumerate(("a-b", "a_b", "a+b"))}
    done = fed.import_trees(write(tmp_path / "x.root", trees))
    assert {each.tree: each.container for each in done} == {
        "a-b": "x/a_b",
        "a_b": "x/a_b_2",
        "a+b": "x/a_b_3",
    }
    assert [fed[each.container]["n"].to_list() for each in done] == [[0], [1], [2]]


def test_file_given_twice_is_refused(fed: fb.Federation, nano: Path) -> None:
    with pytest.raises(fb.ExistsError, match=r"nano\.root is given twice"):
        fed.import_trees([nano, f"{nano}:Events"])
    assert fed.databases() == []


def test_import_into_the_container_of_origins_is_refused(fed: fb.Federation, tmp_path: Path) -> None:
    imports = write(tmp_path / "x.root", {"imports": {"n": np.arange(2)}})
    with pytest.raises(fb.InvalidError, match=r"x/imports is reserved for .*; give container="):
        fed.import_trees(imports)
    fed.import_trees(imports, container="numbers")

    @fb.persistent
    class Mine:
        n: fb.int32

    with fed.transaction() as txn:
        txn.database("y", create=True).container("imports", Mine, create=True)
    with pytest.raises(fb.InvalidError, match="y/imports has objects of class Mine"):
        fed.import_trees(imports, container="numbers", database="y", again=True)


def test_concurrent_imports_into_one_database_both_commit(fed: fb.Federation, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.root", {f"t{n}": {"n": np.arange(2)}}) for n in range(2)]
    with fed.transaction() as txn:
        txn.database("d", create=True)
    other = fb.open(fed.path)
    began: list[int] = []

    def import_the_other(done: int, total: int) -> None:
        if not began:
            began.append(done)
            other.import_trees(files[1], database="d")

    fed.import_trees(files[0], database="d", progress=import_the_other)
    assert sorted(fed["d/imports"]["tree"].to_list()) == ["t0", "t1"]


def test_imports_reuse_a_registered_version_of_a_class(fed: fb.Federation, tmp_path: Path) -> None:
    first, second = triggers(tmp_path)
    for database in ("a", "b"):
        fed.import_tree(first, database=database, again=True)
        fed.import_tree(second, database=database, again=True)
    assert [fed[f"{name}/Events"].definition.version for name in "ab"] == [2, 2]


def test_different_trees_of_one_name_are_separate_classes(fed: fb.Federation, tmp_path: Path) -> None:
    first = write(tmp_path / "hzz.root", {"events": {"n": np.arange(2)}})
    second = write(tmp_path / "ild.root", {"events": {"x": np.arange(2.0)}})
    names = [done.class_name for done in fed.import_trees([first, second])]
    assert names == ["events", "events@ild"]
    fed.import_tree(second, database="again", again=True)
    view = fed["again/events"]
    assert (view.definition.name, view.definition.version) == ("events@ild", 1)

    @fb.persistent(name="events")
    class Events:
        x: fb.float64

    with fed.transaction() as txn:
        txn.database("again").container("events", Events).append(Events(x=2.5))
    assert fed["again/events"]["x"].to_list() == [0, 1, 2.5]


def test_files_of_one_name_do_not_share_a_database_by_default(fed: fb.Federation, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder / "x.root", {"t": {"n": np.arange(2)}})
    with pytest.raises(fb.InvalidError, match="would both go into database 'x'; give database="):
        fed.import_trees(tmp_path / "*" / "x.root")
    with pytest.raises(fb.InvalidError, match="would both go into database 'x'; give database="):
        fed.import_trees(tmp_path / "*" / "x.root", container="{tree}_raw")
    with pytest.raises(fb.NotFoundError, match=r"no file matches .*\*\.rot"):
        fed.import_trees(tmp_path / "*.rot")


def test_import_with_processes_equals_import_with_a_thread(fed: fb.Federation, tmp_path: Path) -> None:
    for n in range(3):
        columns = {"i": np.arange(1000 * n, 1000 * (n + 1)), "x": np.linspace(0, 1, 1000)}
        write(
            tmp_path / "in" / f"{n}.root", {"Events": columns | ({"HLT_A": np.ones(1000, bool)} if n else {})}
        )
    told: list[tuple[int, int]] = []
    for jobs in (1, 2):
        fed.import_trees(
            tmp_path / "in" / "*.root",
            database=f"j{jobs}",
            again=True,
            jobs=jobs,
            batch_bytes=4000,
            progress=lambda *at: told.append(at),
        )
    one, two = (fed[f"j{jobs}/Events"].arrays() for jobs in (1, 2))
    assert ak.array_equal(one, two)
    np.testing.assert_array_equal(two.i, np.arange(3000))
    assert two.HLT_A[[0, 1000]].to_list() == [None, True]
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    assert told == sorted(told[: len(told) // 2]) * 2
    assert told[-1] == (3000, 3000)


def test_error_in_a_reading_process_stops_the_import(fed: fb.Federation, tmp_path: Path, nano: Path) -> None:
    values = np.random.default_rng(1).random(4000)
    bad = write(tmp_path / "bad.root", {"Events": {"x": values}})
    damage(bad, "x")
    with pytest.raises(fb.CorruptError, match="branch 'x' of"):
        fed.import_trees(bad, jobs=2, batch_bytes=4000)
    assert fed.databases() == []
    with pytest.raises(fb.InvalidError, match="invalid jobs 0"):
        fed.import_trees(nano, jobs=0)


def test_script_without_main_guard_gets_an_error_instead_of_hanging(tmp_path: Path, files: Samples) -> None:
    # Its class is larger than a pipe holds.
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import femtobarn as fb\n"
        f"with fb.create({str(tmp_path / 'lhc.fed')!r}) as fed:\n"
        f"    fed.import_trees({str(files.path('nano_dy.root'))!r}, jobs=2, batch_bytes=100_000)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "StorageError: a worker process of the import ended" in done.stderr
    assert "without `if __name__ == '__main__':`" in done.stderr


def test_interrupted_import_leaves_nothing(fed: fb.Federation, nano: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    stop: Callable[[int, int], None] = interrupt
    with pytest.raises(KeyboardInterrupt):
        fed.import_trees(nano, progress=stop)
    assert fed.databases() == []
    fed.import_trees(nano)

"""Real ROOT and uproot against the `rntuple` crate, in both directions, over every type.

All values cross as JSON lines, whose form tests/judges/README.md fixes. ROOT runs in processes of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import pytest
from compare import differences, lines, plain
from written import Written, manifest

import femtobarn as fb

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

ROOT = Path(__file__).resolve().parent.parent.parent
JUDGES = ROOT / "tests" / "judges"
SHOWN_DIFFERENCES_MAX = 12

# Fields that uproot 5.7 cannot read or reads wrongly, by the name of their file.
UPROOT_CANNOT = {
    # The index of a variant is not made relative to its cluster.
    "completed": {"either"},
    "empty": {"optional_variant"},
    "everything": {"optional_variant", "variant_int32_string", "variant_three", "vector_variant"},
    # A representation that changes between clusters.
    "representations": {"x", "list"},
    # Objects in ROOT's own serialisation.
    "streamed": {"point"},
}
# uproot decodes quantised columns in single precision, whatever the precision of their fields.
UPROOT_LOSS = 2.0**-23
# Metadata that are split over several keys.
UPROOT_REFUSES = {"many_keys"}

# Fields with base classes, or with records without members.
SHOWN = ["track", "vector_track", "array_track", "seed", "vector_seed", "empty", "vector_empty"]
SHOWN += ["vector_vector_empty", "array_empty", "optional_empty"]
# The base classes of the judges' classes, by the names of their fields.
BASES = {":_0": "judge::Point", ":_1": "judge::Tagged", ":_2": "judge::Empty"}

pytestmark = pytest.mark.judge


def run(*command: str | Path) -> str:
    """The standard output of a command that has to succeed."""
    return complete(*command).stdout


def complete(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command that has succeeded."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stderr}"
    return done


def dumped(script: str, wanted: list[Written], folder: Path, *, silent: bool = False) -> dict[str, Path]:
    """Dumps of all RNTuples by one judge, in one process; with `silent` a warning is a failure, too."""
    targets = {each.name: folder / f"{each.name}.{script}.jsonl" for each in wanted}
    jobs = [
        {"file": str(each.file), "ntuple": each.ntuple, "target": str(targets[each.name])} for each in wanted
    ]
    batch = folder / f"{script}.json"
    batch.write_text(json.dumps(jobs))
    said = complete(sys.executable, "-W", "ignore", JUDGES / f"{script}.py", "--batch", batch).stderr
    assert not (silent and said), said
    return targets


@pytest.fixture(scope="module")
def root_of_root(by_root: list[Written], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """ROOT's own files as ROOT reads them."""
    found = dumped("root_read", by_root, tmp_path_factory.mktemp("root-of-root"))
    return {name: lines(path) for name, path in found.items()}


@pytest.fixture(scope="session")
def by_us(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """RNTuples that the crate wrote."""
    folder = tmp_path_factory.mktemp("by-us")
    run(examples / "ntuple_make", folder)
    return manifest(folder)


@pytest.fixture(scope="session")
def by_revision(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    """RNTuples that the crate revised from older versions."""
    folder = tmp_path_factory.mktemp("by-revision")
    run(examples / "ntuple_revise", folder)
    return manifest(folder)


@pytest.fixture(scope="session")
def real_files(shared_data: Path | None, examples: Path) -> list[Written]:
    """The RNTuples of the folder of real files."""
    assert shared_data is not None, "conftest.py deselects these tests where there is no folder of real files"
    return by_others(examples, sorted(shared_data.glob("*.root")))


def by_others(examples: Path, files: Iterable[Path]) -> list[Written]:
    """All RNTuples in files of other programs; their expected values come from ROOT."""
    return [
        Written(f"{path.stem}.{ntuple}", path, ntuple, Path("unknown"), {})
        for path in files
        for ntuple in run(examples / "ntuple_dump", path).split()
    ]


def check(
    wanted: list[tuple[str, list[Any]]],
    found: dict[str, list[Any]],
    lossy: dict[str, dict[str, float]] | None = None,
) -> None:
    """Compare the dumps one by one, and show the first differences of each."""
    wrong = []
    for name, values in wanted:
        texts = differences(values, found[name], (lossy or {}).get(name))
        wrong += [f"{name}: {text}" for text in texts[:SHOWN_DIFFERENCES_MAX]]
    assert not wrong, "\n".join(wrong)


def as_uproot_has_it(name: str, entries: list[Any]) -> list[Any]:
    """The values without the fields that uproot cannot read, in the form in which it gives the others."""
    of_file = (fields for prefix, fields in UPROOT_CANNOT.items() if name.startswith(prefix))
    hidden: set[str] = set().union(*of_file)
    return [
        {key: uproot_value(key, value) for key, value in flat(entry).items() if key not in hidden}
        for entry in entries
    ]


def uproot_value(field: str, value: Any) -> Any:
    """A value of a field that uproot shows in another form."""
    # A unique pointer reads as a list of no or one item.
    if field == "unique_point":
        return [] if value is None else [value]
    if field == "vector_unique_double":
        return [[] if each is None else [each] for each in value]
    return value


def flat(value: Any) -> Any:
    """The value with the members of base classes beside its own; clashing names get the base as a prefix."""
    if isinstance(value, list):
        return [flat(each) for each in value]
    if not isinstance(value, dict):
        return value
    own = {key: flat(each) for key, each in value.items() if key not in BASES}
    bases = {name: flat(value[key]) for key, name in BASES.items() if key in value}
    names = Counter(name for members in (own, *bases.values()) for name in members)
    for base, members in bases.items():
        own |= {name if names[name] == 1 else f"{base}::{name}": each for name, each in members.items()}
    return own


def without(entries: list[Any], known: list[Any]) -> list[Any]:
    """The entries with only those fields that `known` has."""
    return [
        {k: v for k, v in entry.items() if k in other} for entry, other in zip(entries, known, strict=True)
    ]


# ---- ROOT wrote


def test_root_reads_its_own_files_back(by_root: list[Written], root_of_root: dict[str, list[Any]]) -> None:
    """All other tests compare with these values."""
    lossy = {each.name: each.lossy for each in by_root}
    check([(each.name, lines(each.values)) for each in by_root], root_of_root, lossy)


def test_we_read_files_of_root(
    by_root: list[Written], root_of_root: dict[str, list[Any]], examples: Path
) -> None:
    """Bit for bit as ROOT reads it, lossy columns included."""
    found = {each.name: dump_by_us(examples, each) for each in by_root}
    check([(each.name, flat(root_of_root[each.name])) for each in by_root], found)


def dump_by_us(examples: Path, wanted: Written) -> list[Any]:
    """The entries of an RNTuple by the crate."""
    output = run(examples / "ntuple_dump", wanted.file, wanted.ntuple)
    return [json.loads(line) for line in output.splitlines()]


def test_uproot_reads_files_of_root(by_root: list[Written], tmp_path: Path) -> None:
    """Shows which values of uproot can be trusted as a judge of our files."""
    readable = [each for each in by_root if each.name not in UPROOT_REFUSES]
    found = dumped("uproot_read", readable, tmp_path)
    wanted = [(each.name, as_uproot_has_it(each.name, lines(each.values))) for each in readable]
    values = {name: lines(path) for name, path in found.items()}
    visible = {name: without(values[name], entries) for name, entries in wanted}
    check(wanted, visible, {each.name: each.lossy for each in by_root})


def test_a_federation_shows_the_classes_of_root_as_uproot_does(
    by_root: list[Written], tmp_path: Path
) -> None:
    """Base classes were members `:_0`; collections of records without members were left out."""
    uproot = pytest.importorskip("uproot")
    written = next(each for each in by_root if each.name == "everything_zstd")
    entries = [flat(entry) for entry in lines(written.values)]
    with fb.create(tmp_path / "lhc.fed") as fed:
        assert fed.attach(written.file, "root").ignored == []
        view = fed[f"root/{written.ntuple}"]
        same(view.arrays(SHOWN), entries)
        with uproot.open(f"{written.file}:{written.ntuple}") as by_uproot:
            same(view.arrays(SHOWN), records(by_uproot.arrays(SHOWN).to_list()))
        tags = [[seed["tag"] for seed in entry["vector_seed"]] for entry in entries]
        assert view.arrays("vector_seed.tag").vector_seed.tag.to_list() == tags
        seeds = [entry["seed"]["tag"] for entry in entries]
        assert [view[n].seed.tag for n in range(len(view))] == seeds
        assert len(view.arrays("int32_t", where="seed.tag > 0")) == sum(tag > 0 for tag in seeds)
        assert fed.check(full=True).problems == []


def test_records_without_members_are_counted_in_every_library(by_root: list[Written], tmp_path: Path) -> None:
    written = next(each for each in by_root if each.name == "everything_zstd")
    sizes = [len(entry["vector_empty"]) for entry in lines(written.values)]
    with fb.create(tmp_path / "lhc.fed") as fed:
        fed.attach(written.file, "root")
        view = fed[f"root/{written.ntuple}"]
        array = view.arrays("vector_empty").vector_empty
        assert (array.ndim, array.fields) == (2, [])
        assert ak.num(array).to_list() == sizes
        assert [len(view[n].vector_empty) for n in range(len(view))] == sizes
        assert [len(each) for each in view.arrays("vector_empty", library="np")["vector_empty"]] == sizes
        assert view.arrays("vector_empty", library="pd").vector_empty.map(len).to_list() == sizes
        table = view.arrays("vector_empty", library="pa")
        assert [len(each) for each in table.column(0).to_pylist()] == sizes
        with pytest.raises(fb.UnsupportedError, match="records without members"):
            view.export(tmp_path / "x.parquet", "vector_empty")


def test_classes_of_root_are_exported_as_they_are_shown(by_root: list[Written], tmp_path: Path) -> None:
    written = next(each for each in by_root if each.name == "everything_zstd")
    # An array of records has no name in ROOT, and an optional one is a list of at most one.
    names = [name for name in SHOWN if not name.startswith(("array", "optional"))]
    wanted = [{name: flat(entry)[name] for name in names} for entry in lines(written.values)]
    path = tmp_path / "exported.root"
    with fb.create(tmp_path / "lhc.fed") as fed:
        fed.attach(written.file, "root")
        fed[f"root/{written.ntuple}"].export(path, names)
        assert fed.attach(path).ignored == []
        same(fed[f"exported/{written.ntuple}"].arrays(), wanted)
    exported = [Written("exported", path, written.ntuple, path, {})]
    for script in ("root_read", "uproot_read"):
        check([("exported", wanted)], {"exported": lines(dumped(script, exported, tmp_path)["exported"])})


def same(array: ak.Array, entries: list[Any]) -> None:
    """Compare the fields of an array with those of entries."""
    wanted = [plain({name: entry[name] for name in array.fields}) for entry in entries]
    assert differences(wanted, [plain(entry) for entry in array.to_list()]) == []


def records(value: Any) -> Any:
    """The value with records without members where uproot has tuples."""
    if isinstance(value, list):
        return [records(each) for each in value]
    if isinstance(value, dict):
        return {name: records(each) for name, each in value.items()}
    return {} if value == () else value


# ---- we wrote


def test_root_reads_our_files(by_us: list[Written], tmp_path: Path) -> None:
    found = dumped("root_read", by_us, tmp_path, silent=True)
    lossy = {each.name: each.lossy for each in by_us}
    check(
        [(each.name, lines(each.values)) for each in by_us],
        {name: lines(path) for name, path in found.items()},
        lossy,
    )


def test_uproot_reads_our_files(by_us: list[Written], tmp_path: Path) -> None:
    found = dumped("uproot_read", by_us, tmp_path)
    wanted = [(each.name, as_uproot_has_it(each.name, lines(each.values))) for each in by_us]
    values = {name: lines(path) for name, path in found.items()}
    visible = {name: without(values[name], entries) for name, entries in wanted}
    lossy = {each.name: {k: max(v, UPROOT_LOSS) for k, v in each.lossy.items()} for each in by_us}
    check(wanted, visible, lossy)


def test_we_read_our_own_files(by_us: list[Written], examples: Path) -> None:
    lossy = {each.name: each.lossy for each in by_us}
    found = {each.name: dump_by_us(examples, each) for each in by_us}
    check([(each.name, lines(each.values)) for each in by_us], found, lossy)


# ---- other programs wrote


def test_we_read_real_files_as_root_does(real_files: list[Written], examples: Path, tmp_path: Path) -> None:
    compare_with_root(real_files, examples, tmp_path)


@pytest.mark.network
def test_we_read_the_events_of_experiments_as_root_does(
    files: Samples, examples: Path, tmp_path: Path
) -> None:
    paths = [files.path(sample.file) for sample in files if sample.kind == "RNTuple"]
    compare_with_root(by_others(examples, paths), examples, tmp_path)


def compare_with_root(ntuples: list[Written], examples: Path, folder: Path) -> None:
    """Every entry of every RNTuple, bit for bit."""
    expected = dumped("root_read", ntuples, folder)
    found = {each.name: dump_by_us(examples, each) for each in ntuples}
    check([(each.name, flat(lines(expected[each.name]))) for each in ntuples], found)


# ---- we revised older versions


def test_root_reads_revised_ntuples(by_revision: list[Written], tmp_path: Path) -> None:
    """Numbers of two widths, defaults, single values as lists, marked deletions."""
    found = dumped("root_read", by_revision, tmp_path, silent=True)
    check(
        [(each.name, lines(each.values)) for each in by_revision],
        {name: lines(path) for name, path in found.items()},
    )


def test_uproot_reads_revised_ntuples_with_one_width(by_revision: list[Written], tmp_path: Path) -> None:
    """The other revised files have numbers of several widths, which uproot silently reads wrongly."""
    completed = [each for each in by_revision if each.name.startswith("completed")]
    found = dumped("uproot_read", completed, tmp_path)
    dumps = {name: lines(path) for name, path in found.items()}
    check(
        [(each.name, as_uproot_has_it(each.name, lines(each.values))) for each in completed],
        {name: as_uproot_has_it(name, dump) for name, dump in dumps.items()},
    )

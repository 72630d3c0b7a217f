"""Sealed and exported files, read as physicists read them: all readers see the same numbers in every column.

Each reader once read files of ours wrong without an error: coffea all lists and texts (it takes 32-bit
offsets for pairs of numbers), JSROOT all but the first commits. So the sums of columns and the sizes of lists
are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import jsroot
import numpy as np
import pytest
import sums

import femtobarn as fb

if TYPE_CHECKING:
    from written import Written

    from femtobarn.importers.samples import Samples

pytestmark = pytest.mark.judge

JUDGES = Path(__file__).resolve().parent.parent / "judges"
TREES = {
    "uproot-HZZ.root": None,
    "uproot-Zmumu.root": None,
    "nano_dy.root": [
        "run",
        "event",
        "nMuon",
        "Muon_*",
        "nGenPart",
        "GenPart_*",
        "nLHEPdf*",
        "LHEPdf*",
        "MET_*",
        "HLT_Iso*",
    ],
}
# Imported whole; some of their fields are exported.
WHOLE = (
    "nano_dimuon.root",
    "nano_tt_v15.root",
    "PHYSLITE_example.root",
    "edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root",
    "test_FCC_Winter2023.root",
    "delphes.root",
)
NTUPLES = ("nano_dimuon_rntuple.root", "nano_dy_rntuple.root", "pfnano_rntuple.root")
# Written by ROOT itself; test_rntuple_judges.py exports some fields of its file with all types.
BY_ROOT = ("clusters", "encodings", "lossy", "extended", "projected", "untyped", "representations", "large")
# Exported fields of a file, evenly chosen: NanoAOD has 1,500.
FIELDS_MAX = 40
FRAME_COLUMNS_MAX = 40
# coffea reads a whole list of records anew for each of their members.
COFFEA_MEMBERS_MAX = 12
# Fields that JSROOT reads wrongly, in ROOT's files, too: text outside ASCII, numbers quantised to 32 bits.
JSROOT_CANNOT = {"text", "quantised_float_32", "quantised_double_32"} | {
    f"text_k{split}Index{bits}" for split in ("", "Split") for bits in (32, 64)
}
COMMITS, ENTRIES = 7, 300


@fb.persistent
class Hit:
    x: fb.float32
    cells: list[fb.uint16]


@fb.persistent
class Event:
    number: fb.uint64
    name: str
    small: fb.int8
    flag: bool
    weight: float
    half: fb.float16
    axes: fb.array[fb.float32, Literal[3]]
    raw: bytes
    words: list[str]
    grid: list[list[fb.int32]]
    hits: list[Hit]
    vertex: Hit
    best: fb.float32 | None
    first: Hit | None


@fb.persistent(version=2, name="Event")
class Event2(Event):
    small: fb.int32
    late: fb.float64 = fb.field(default=0.5)
    later: list[fb.float64]


@dataclass(frozen=True)
class Case:
    """An RNTuple in a file, with the types and sums of its columns."""

    name: str
    file: Path | str
    ntuple: str
    types: dict[str, str]
    expected: sums.Sums

    def fields(self) -> list[str]:
        """The top-level fields."""
        return list(dict.fromkeys(path.split(".")[0] for path in self.types))

    def optional(self) -> list[str]:
        """The top-level fields that are or hold something optional."""
        return sorted({path.split(".")[0] for path, text in self.types.items() if "| None" in text})

    def large(self) -> list[str]:
        """The top-level fields with many members."""
        roots = [path.split(".")[0] for path in self.types]
        return [root for root, count in Counter(roots).items() if count > COFFEA_MEMBERS_MAX]

    def undivided(self) -> list[str]:
        """The top-level fields that JSROOT shows as they are: no records, no optional or streamed values."""
        roots = [path.split(".")[0] for path in self.types]
        parts = [part for path in self.types for part in path.split(".")]
        return [
            root
            for root in self.fields()
            if roots.count(root) == 1 and parts.count(root) == 1 and "|" not in self.types[root]
        ]


def expected_of(view: fb.View) -> sums.Sums:
    """The sums of a container in the federation."""
    return sums.of_layout(ak.to_layout(view.arrays()))


def event(cls: type[Any], n: int, **more: Any) -> Any:
    hits = [Hit(x=n + i / 4, cells=list(range(i))) for i in range(n % 4)]
    return cls(
        number=n,
        name=f"n{n}",
        small=n % 100 - 50,
        flag=n % 3 == 0,
        weight=n / 7,
        half=n % 8 / 4,
        axes=[n, 0, -n],
        raw=b"abc"[: n % 4],
        words=["x" * i for i in range(n % 3)],
        grid=[[n] * i for i in range(n % 5)],
        hits=hits,
        vertex=Hit(x=n, cells=[n % 9]),
        best=None if n % 3 else n / 2,
        first=hits[0] if hits else None,
        **more,
    )


def changed(fed: fb.Federation) -> sums.Sums:
    """Make a container of many commits, two class versions and deletions; return sums before deletion."""
    for first in range(0, COMMITS * ENTRIES, ENTRIES):
        with fed.transaction() as txn:
            events = txn.database("changed", create=True).container("events", Event, create=True)
            events.extend([event(Event, n) for n in range(first, first + ENTRIES)])
    with fed.transaction() as txn:
        events = txn.database("changed").container("events", Event2, evolve=True)
        events.extend([event(Event2, n, late=n, later=[n, n]) for n in range(ENTRIES)])
    expected = expected_of(fed["changed/events"])
    deleted = list(range(5, COMMITS * ENTRIES, 13))
    with fed.transaction() as txn:
        txn.database("changed").container("events").delete(deleted)
    return {**expected, "_deleted": [(COMMITS + 1) * ENTRIES, len(deleted), len(deleted)]}


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> fb.Federation:
    return fb.create(tmp_path_factory.mktemp("readers") / "r.fed")


@pytest.fixture(scope="module")
def cases(
    fed: fb.Federation, files: Samples, by_root: list[Written], tmp_path_factory: pytest.TempPathFactory
) -> list[Case]:
    """Sealed databases that were imported or changed, and exports of imported or attached containers."""
    folder = tmp_path_factory.mktemp("exported")
    found: list[Case] = []
    views: dict[str, sums.Sums] = {}
    for name, only in TREES.items():
        imported = fed.import_tree(files.path(name), only=only)
        views[imported.container] = expected_of(fed[imported.container])
    views["changed/events"] = changed(fed)
    for path, expected in views.items():
        database, container = path.split("/")
        types = fed[path].typenames()
        fed.seal(database)
        file = next(Path(row["path"]) for row in fed.databases() if row["name"] == database)
        found.append(Case(f"sealed {database}", file, container, types, expected))
    for name in NTUPLES:
        fed.attach(files.path(name), Path(name).stem)
        found.append(exported(fed[f"{Path(name).stem}/Events"], folder / f"exported_{name}"))
    for written in by_root:
        if written.name in BY_ROOT:
            fed.attach(written.file, written.name)
            view = fed[f"{written.name}/{written.ntuple}"]
            found.append(exported(view, folder / f"exported_{written.name}.root"))
    for name in WHOLE:
        imported = fed.import_tree(files.path(name))
        found.append(exported(fed[imported.container], folder / f"exported_{name}"))
    found.append(exported(fed["nano_dy/Events"], folder / "exported_nano_dy.root"))
    return found


def exported(view: fb.View, file: Path) -> Case:
    """Export some of the fields to a file."""
    fields = list(dict.fromkeys(path.split(".")[0] for path in view.typenames()))
    fields = fields[:: -(-len(fields) // FIELDS_MAX)]
    view.export(file, fields)
    types = {path: text for path, text in view.typenames().items() if path.split(".")[0] in fields}
    expected = sums.of_layout(ak.to_layout(view.arrays(fields)))
    return Case(file.stem, file, view.name.split("/")[-1], types, expected)


def judged(command: list[str], jobs: list[dict[str, Any]], folder: Path) -> list[Any]:
    """Run a judge on jobs; return its output files in the same order."""
    for at, job in enumerate(jobs):
        job["target"] = str(folder / f"{at}.out")
    (folder / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run([*command, str(folder / "jobs.json")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Path(job["target"]) for job in jobs]


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", str(JUDGES / script), *arguments]


def assert_same(found: list[tuple[Case, str, sums.Sums]]) -> None:
    """Fail unless every reader found, for each case that it read, all columns with the expected sums."""
    wrong = []
    for case, reader, actual in found:
        texts = sums.differences(case.expected, actual)
        wrong += [f"{case.name}, {reader}: {text}" for text in texts[:5]]
    assert not wrong, "\n".join(wrong)


def test_uproot_and_coffea_read_every_column_with_its_sum(cases: list[Case], tmp_path: Path) -> None:
    assert_columnar(cases, tmp_path)


def test_uproot_and_coffea_read_every_column_over_root_urls(
    fed: fb.Federation, cases: list[Case], tmp_path: Path
) -> None:
    sealed = {case.name.removeprefix("sealed "): case for case in cases}
    attached = {case.name.removeprefix("exported_"): case for case in cases}
    wanted = [(name, sealed[name]) for name in ("uproot-HZZ", "changed")]
    wanted += [(name, attached[name]) for name in ("nano_dimuon_rntuple", "extended")]
    with fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="read") as server:
        remote = [replace(case, file=server.url(f"/r.fed/{name}.root")) for name, case in wanted]
        assert_columnar(remote, tmp_path)


def assert_columnar(cases: list[Case], folder: Path) -> None:
    """Fail unless uproot and coffea have all sums; coffea does not read optional and large fields."""
    jobs = [
        {
            "file": str(case.file),
            "ntuple": case.ntuple,
            "fields": case.fields(),
            "without": case.optional() + case.large(),
        }
        for case in cases
    ]
    targets = judged(python("columnar_sums.py"), jobs, folder)
    found = []
    for case, target in zip(cases, targets, strict=True):
        for reader, actual in json.loads(target.read_text()).items():
            assert isinstance(actual, dict), f"{case.name}: {reader}: {actual}"
            left_out = case.optional() + case.large() if reader.startswith("coffea") else []
            fields = [field for field in case.fields() if field not in left_out]
            found.append((restricted(case, fields), reader, actual))
    assert_same(found)


def restricted(case: Case, fields: list[str]) -> Case:
    """The case with only some of its top-level fields."""
    wanted = {path: each for path, each in case.expected.items() if root_of(path) in fields}
    return replace(case, expected=wanted)


def root_of(path: str) -> str:
    """The top-level field of a path."""
    return path.split(".")[0].rstrip("#")


def test_root_reader_and_rdataframe_read_every_column_with_its_sum(cases: list[Case], tmp_path: Path) -> None:
    columns = [summable(case) for case in cases]
    jobs = [
        {"file": str(case.file), "ntuple": case.ntuple, "columns": wanted}
        for case, wanted in zip(cases, columns, strict=True)
    ]
    found = [json.loads(target.read_text()) for target in judged(python("root_sums.py"), jobs, tmp_path)]
    assert_same([(case, "RNTupleReader", each["reader"]) for case, each in zip(cases, found, strict=True)])
    for case, wanted, each in zip(cases, columns, found, strict=True):
        by_frame = each["frame"]
        # RDataFrame adds up NaN, too; RNTupleReader has compared the other values of such columns.
        finite = [column for column in wanted if np.isfinite(by_frame[column])]
        assert finite or not wanted
        for column in finite:
            near = pytest.approx(case.expected[column][1], rel=1e-5, abs=1e-5 * case.expected[column][2])
            assert by_frame[column] == near, f"{case.name}: {column}"


def summable(case: Case) -> list[str]:
    """Columns of numbers and of lists of numbers, evenly chosen."""
    optional = case.optional()
    numbers = [
        path
        for path in case.expected
        if not path.endswith("#")
        and path.split(".")[0] not in optional
        and is_number(case.types.get(path, ""), case.types.get(path.rpartition(".")[0], ""))
    ]
    return numbers[:: max(1, len(numbers) // FRAME_COLUMNS_MAX)]


def is_number(text: str, parent: str) -> bool:
    """Whether RDataFrame adds up fields of this type, inside a parent of that type."""
    numbers = [f"{kind}int{bits}" for kind in ("", "u") for bits in (16, 32, 64)] + ["float32", "float64"]
    if parent.startswith("list[list") or parent.count("list") > 1:
        return False
    return text in numbers or (not parent and text in [f"list[{number}]" for number in numbers])


@pytest.fixture(scope="module")
def modules(project: Path) -> Path:
    """The packages of JSROOT."""
    reason = jsroot.absent()
    if reason:
        pytest.skip(reason)
    try:
        return jsroot.install(project / ".cache")
    except OSError as error:
        pytest.skip(str(error))


def test_jsroot_reads_all_fields_without_records_with_their_sums(
    cases: list[Case], modules: Path, tmp_path: Path
) -> None:
    wanted = {case.name: [each for each in case.undivided() if each not in JSROOT_CANNOT] for case in cases}
    cases = [case for case in cases if wanted[case.name]]
    jobs: list[dict[str, Any]] = [
        {"file": str(case.file), "ntuple": case.ntuple, "fields": wanted[case.name]} for case in cases
    ]
    assert sum(len(job["fields"]) for job in jobs) > 100
    targets = judged(["node", str(JUDGES / "jsroot_sums.mjs"), str(modules)], jobs, tmp_path)
    found = []
    for case, job, target in zip(cases, jobs, targets, strict=True):
        found.append((restricted(case, job["fields"]), "JSROOT", json.loads(target.read_text())))
    assert_same(found)


def test_metadata_in_several_keys_are_refused(fed: fb.Federation, by_root: list[Written]) -> None:
    written = next(each for each in by_root if each.name == "many_keys")
    with pytest.raises(fb.UnsupportedError, match="metadata in several keys of at most 1024 bytes"):
        fed.attach(written.file, "many_keys")


def test_coffea_refuses_optional_fields_of_root_and_of_femtobarn(tmp_path: Path) -> None:
    """docs/guide.md has the workaround: name the wanted fields."""
    done = subprocess.run([*python("root_optional.py"), str(tmp_path / "root.root")], check=False)
    assert done.returncode == 0
    fed = fb.create(tmp_path / "o.fed")

    @fb.persistent
    class Weighted:
        number: fb.int32
        weight: fb.float32 | None

    with fed.transaction() as txn:
        txn.database("run", create=True).container("ntuple", Weighted, create=True).extend(
            {"number": np.zeros(1, np.int32), "weight": [None]}
        )
    fed["run/ntuple"].export(tmp_path / "ours.root")
    jobs: list[dict[str, Any]] = [
        {
            "file": str(tmp_path / name),
            "ntuple": "ntuple",
            "fields": ["number", "weight"],
            "without": without,
        }
        for name in ("root.root", "ours.root")
        for without in ([], ["weight"])
    ]
    (by_root, named_by_root, ours, named) = (
        json.loads(target.read_text()) for target in judged(python("columnar_sums.py"), jobs, tmp_path)
    )
    assert by_root == ours
    assert "Only boolean NumpyArrays" in ours["coffea virtual"]
    assert named_by_root == named
    assert named["coffea virtual"] == {"number": [1, 0.0, 0.0]}

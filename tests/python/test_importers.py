"""Importing trees: every kind of branch, real files of experiments, and damaged or wrong files."""

from __future__ import annotations

import functools
import hashlib
import zipfile
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("uproot", reason="the extra `io` is not installed")

import uproot

from femtobarn import CorruptError, InvalidError, NotFoundError, StorageError
from femtobarn._schema.names import identifier
from femtobarn.importers import TreeSource, baskets, open_tree, samples
from femtobarn.importers.baskets import Baskets
from femtobarn.importers.files import TreeFile
from femtobarn.importers.samples import SAMPLES, Sample, Samples
from femtobarn.importers.types import normalise


def types_of(source: TreeSource) -> dict[str, Any]:
    return {entry["name"]: entry["type"] for entry in source.definition["fields"]}


def members_of(type_: Any) -> dict[str, Any]:
    """The members of a record, or of a list of records."""
    record = type_.get("list", type_)["record"]
    return {entry["name"]: entry["type"] for entry in record["fields"]}


def write(path: Path, columns: dict[str, Any], *, tree: str = "Events") -> Path:
    with uproot.recreate(path) as file:
        file.mktree(tree, {name: ak.Array(values).type.content for name, values in columns.items()})
        file[tree].extend(columns)
    return path


@pytest.fixture
def nano(tmp_path: Path) -> Path:
    """A small NanoAOD as uproot writes it."""
    muons = ak.Array([[1.5, 2.5], [], [3.5]])
    with uproot.recreate(tmp_path / "nano.root") as file:
        types = {
            "run": np.uint32,
            "Muon": "var * {pt: float32, charge: int32}",
            "LHEPdfWeight": "var * float32",
            "MET_pt": np.float32,
            "MET_phi": np.float32,
            "HLT_IsoMu24": bool,
            "fixedGridRho": np.float32,
        }
        file.mktree("Events", types)
        pt = ak.values_astype(muons, np.float32)
        file["Events"].extend(
            {
                "run": np.array([1, 1, 2], np.uint32),
                "Muon": ak.zip({"pt": pt, "charge": ak.values_astype(ak.ones_like(pt), np.int32)}),
                "LHEPdfWeight": ak.values_astype(ak.Array([[1.0], [2.0, 3.0], []]), np.float32),
                "MET_pt": np.array([10, 20, 30], np.float32),
                "MET_phi": np.array([0, 1, 2], np.float32),
                "HLT_IsoMu24": np.array([True, False, True]),
                "fixedGridRho": np.array([5, 6, 7], np.float32),
            }
        )
    return tmp_path / "nano.root"


def test_nanoaod_counters_make_collections_and_prefixes_make_records(nano: Path) -> None:
    source = open_tree(nano)
    types = types_of(source)
    assert set(types) == {"run", "Muon", "LHEPdfWeight", "MET", "HLT_IsoMu24", "fixedGridRho"}
    assert members_of(types["Muon"]) == {"pt": "float32", "charge": "int32"}
    assert types["Muon"]["list"]["record"]["class"] == "Muon"
    assert types["LHEPdfWeight"] == {"list": "float32"}
    assert members_of(types["MET"]) == {"pt": "float32", "phi": "float32"}
    (batch,) = source.batches()
    assert batch.Muon.pt.to_list() == [[1.5, 2.5], [], [3.5]]
    assert batch.MET.pt.to_list() == [10, 20, 30]
    assert batch.LHEPdfWeight.to_list() == [[1.0], [2.0, 3.0], []]


def test_without_grouping_every_branch_is_a_field(nano: Path) -> None:
    types = types_of(open_tree(nano, grouping=False))
    assert {"nMuon", "Muon_pt", "MET_pt", "MET_phi"} <= set(types)
    assert types["Muon_pt"] == {"list": "float32"}


def test_only_matching_branches_are_imported(nano: Path) -> None:
    source = open_tree(nano, only=["Muon_*", "nMuon", "run"])
    assert set(types_of(source)) == {"run", "Muon"}
    with pytest.raises(NotFoundError, match=r"no branch matches 'Moun_pt'; did you mean 'Muon_pt'"):
        open_tree(nano, only=["Moun_pt"])


def test_batches_cover_the_tree_once_and_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "long.root", {"i": np.arange(1000), "x": np.linspace(0, 1, 1000)})
    batches = list(open_tree(path).batches(size=1600))
    assert 9 <= len(batches) <= 12
    np.testing.assert_array_equal(ak.concatenate(batches).i, np.arange(1000))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"],
)
def test_numbers_of_every_width_keep_type_and_value(tmp_path: Path, dtype: str) -> None:
    values = np.array([0, 1, 1], dtype) if dtype == "bool" else np.array([0, 7, 100], dtype)
    source = open_tree(write(tmp_path / "n.root", {"x": values, "a": np.stack([values] * 3, axis=1)}))
    assert types_of(source) == {"x": dtype, "a": {"array": {"of": dtype, "size": 3}}}
    batch = source.read(0, 3)
    np.testing.assert_array_equal(batch.x, values)
    np.testing.assert_array_equal(batch.a[:, 2], values)


def test_nan_infinity_and_empty_trees_are_imported(tmp_path: Path) -> None:
    odd = np.array([np.nan, np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(open_tree(write(tmp_path / "odd.root", {"x": odd})).read(0, 3).x, odd)
    empty = open_tree(write(tmp_path / "empty.root", {"x": np.array([], np.int16)}))
    assert (empty.entries, types_of(empty)) == (0, {"x": "int16"})
    assert list(empty.batches()) == []


@pytest.mark.parametrize("kind", [None, "ZLIB", "LZMA", "LZ4", "ZSTD"])
def test_baskets_of_numbers_are_read_as_uproot_reads_them(tmp_path: Path, kind: str | None) -> None:
    counts = np.random.default_rng(1).integers(0, 4, 1000)
    lists = ak.unflatten(np.arange(counts.sum(), dtype=np.float32), counts)
    columns = {"n": np.arange(1000), "m": np.arange(3000, dtype=np.int16).reshape(1000, 3), "x": lists}
    compression = None if kind is None else getattr(uproot, kind)(1)
    with uproot.recreate(tmp_path / "b.root", compression=compression) as made:
        made.mktree("t", {"n": np.int64, "m": np.dtype((np.int16, (3,))), "x": "var * float32"})
        for start in range(0, 1000, 300):
            made["t"].extend({name: values[start : start + 300] for name, values in columns.items()})
    file = TreeFile(tmp_path / "b.root")
    assert file.data is not None
    found = {n: of for n, name in enumerate(columns) if (of := Baskets.of(file.tree("t")[name])) is not None}
    assert len(found) == len(columns)
    for threads, (start, stop) in enumerate([(0, 1000), (299, 301), (300, 600), (950, 1000), (0, 0)]):
        layouts = baskets.read(file.data, found, start, stop, threads=threads)
        for n, values in enumerate(columns.values()):
            assert ak.array_equal(ak.Array(layouts[n]), values[start:stop], dtype_exact=True)
    assert baskets.read(file.data, found, 0, 1001, threads=2) == {}


def test_damaged_baskets_are_left_to_uproot(tmp_path: Path) -> None:
    """Whichever byte changes, either the right values are read or none; LZ4 has checksums."""
    lists = ak.unflatten(np.arange(60, dtype=np.float32), [0, 3, 2] * 12)
    with uproot.recreate(tmp_path / "b.root", compression=uproot.LZ4(1)) as made:
        made.mktree("t", {"x": "var * float32"})
        made["t"].extend({"x": lists})
    file = TreeFile(tmp_path / "b.root")
    assert file.data is not None
    branch = Baskets.of(file.tree("t")["x"])
    assert branch is not None
    found, start = {0: branch}, int(branch.places[0])
    size = int.from_bytes(file.data[start : start + 4], "big")
    left = 0
    for at in range(start, start + size):
        damaged = bytearray(file.data)
        damaged[at] ^= 0x55
        layouts = baskets.read(memoryview(damaged), found, 0, 36, threads=1)
        left += 0 not in layouts
        assert 0 not in layouts or ak.array_equal(ak.Array(layouts[0]), lists)
    assert left > size / 2


def test_invalid_names_are_made_valid_and_stay_distinct(tmp_path: Path) -> None:
    path = write(tmp_path / "names.root", {"a-b": np.arange(2), "a+b": np.arange(2) * 2})
    source = open_tree(path)
    assert list(types_of(source)) == ["a_b", "a_b_2"]
    assert source.read(0, 2).a_b_2.to_list() == [0, 2]
    assert identifier("class") == "class"


def test_fixed_arrays_of_records_become_lists() -> None:
    # Delphes has fixed arrays of four-vectors; RNTuple has none of records without a C++ name.
    records = ak.Array([[{"x": 1.0}, {"x": 2.0}], [{"x": 3.0}, {"x": 4.0}]])
    type_, layout = normalise(ak.to_regular(records).layout, "Vector")
    assert type_ == {"list": {"record": {"class": "Vector", "fields": [{"name": "x", "type": "float64"}]}}}
    assert ak.Array(layout).to_list() == records.to_list()


def test_missing_file_is_not_found_with_near_misses(nano: Path) -> None:
    with pytest.raises(NotFoundError, match=r"did you mean 'nano\.root'"):
        open_tree(nano.with_name("nani.root"))


def test_file_that_is_not_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.root").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(CorruptError, match="is not a ROOT file: it begins with b'PAR1'"):
        open_tree(tmp_path / "x.root")
    (tmp_path / "none.root").write_bytes(b"")
    with pytest.raises(CorruptError, match="is not a ROOT file"):
        open_tree(tmp_path / "none.root")
    with pytest.raises(InvalidError, match="is a folder"):
        open_tree(tmp_path)


def test_truncated_file_is_refused(nano: Path) -> None:
    nano.write_bytes(nano.read_bytes()[:-200])
    with pytest.raises(CorruptError, match=r"is truncated: it has \d+ of the \d+ bytes"):
        open_tree(nano)


def test_garbled_files_raise_only_errors_of_femtobarn(nano: Path, tmp_path: Path) -> None:
    good, random = nano.read_bytes(), np.random.default_rng(1)
    for number in range(40):
        bad = bytearray(good)
        for at in random.integers(100, len(bad), 20):
            bad[at] = random.integers(256)
        path = tmp_path / f"bad{number}.root"
        path.write_bytes(bad)
        try:
            for _ in open_tree(path).batches():
                pass
        except (CorruptError, InvalidError, NotFoundError):
            pass
        except Exception as error:
            if type(error).__name__ != "UnsupportedError":
                raise


def test_missing_or_ambiguous_tree_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.root"
    with uproot.recreate(path) as file:
        for name in ("signal", "background"):
            file.mktree(name, {"x": np.int64}).extend({"x": np.arange(3)})
        file["spectrum"] = np.histogram(np.arange(10))
    with pytest.raises(InvalidError, match=r"several trees \(background, signal\); name one"):
        open_tree(path)
    with pytest.raises(NotFoundError, match="has no tree 'sginal'; did you mean 'signal'"):
        open_tree(path, "sginal")
    with pytest.raises(InvalidError, match="'spectrum' is a TH1D, not a tree"):
        open_tree(path, "spectrum")
    assert open_tree(path, "signal").entries == 3


def test_import_of_an_rntuple_as_a_tree_advises_to_attach(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "n.root") as file:
        file.mkrntuple("Events", {"x": np.arange(3)})
    with pytest.raises(InvalidError, match="attach the file"):
        open_tree(tmp_path / "n.root")


@functools.cache
def opened(path: Path) -> TreeSource:
    """A sample, opened once for all tests."""
    return open_tree(path)


def test_real_dimuon_events_of_cms_are_imported(files: Samples) -> None:
    source = opened(files.path("uproot-Zmumu.root"))
    assert source.entries == 2304
    types = types_of(source)
    assert (types["Type"], types["Run"], types["M"]) == ("string", "int32", "float64")
    (batch,) = source.batches()
    assert batch.Type[0] == "GT"
    assert abs(float(np.median(batch.M)) - 90.0) < 3.0


def test_real_nanoaod_of_cms_is_imported(files: Samples) -> None:
    source = opened(files.path("nano_dimuon.root"))
    types = types_of(source)
    assert len(members_of(types["Muon"])) == 49
    assert members_of(types["HLT"])["Dimuon0_Jpsi"] == "bool"
    assert "nMuon" not in types
    (batch,) = source.batches()
    tree = uproot.open(files.path("nano_dimuon.root"))["Events"]
    np.testing.assert_array_equal(ak.num(batch.Muon), tree["nMuon"].array())
    assert ak.array_equal(batch.Muon.pt, tree["Muon_pt"].array())


def test_branches_with_their_own_counters_are_grouped(files: Samples) -> None:
    types = types_of(opened(files.path("nano_tt_v15.root")))
    assert "nJet_pt" not in types
    assert members_of(types["Jet"])["pt"] == "float32"


def test_branch_with_its_own_counter_is_not_a_collection(files: Samples) -> None:
    # Muon_mvaMuID_WP became a list Muon_mvaMuID{WP}, since there is a counter nMuon_mvaMuID, too.
    types = types_of(opened(files.path("nano_tt_v15.root")))
    assert {"mvaMuID", "mvaMuID_WP"} <= set(members_of(types["Muon"]))
    assert not [name for name in types if name.startswith("Muon_")]


def skim(path: Path, *, with_counter: bool) -> Path:
    """Branches of muons and electrons as a skim has them: single arrays, each with a counter."""
    counts = {"Muon": [2, 0, 1], "Electron": [0, 1, 1]}
    members = {"Muon": ["pt", "mvaMuID", "mvaMuID_WP"], "Electron": ["pt", "cutBased"]}
    columns: dict[str, Any] = {"run": np.arange(3)}
    for name, lengths in counts.items():
        if with_counter:
            columns[f"n{name}"] = np.array(lengths, np.uint32)
        for number, member in enumerate(members[name]):
            values = np.arange(sum(lengths), dtype=np.float32) + number
            columns[f"{name}_{member}"] = ak.unflatten(values, lengths)
    return write(path, columns)


@pytest.mark.parametrize("with_counter", [True, False])
def test_a_skim_is_grouped_as_the_original(tmp_path: Path, with_counter: bool) -> None:
    source = open_tree(skim(tmp_path / "skim.root", with_counter=with_counter))
    types = types_of(source)
    assert set(types) == {"run", "Muon", "Electron"}
    assert members_of(types["Muon"]) == dict.fromkeys(["pt", "mvaMuID", "mvaMuID_WP"], "float32")
    assert source.read(0, 3).Muon.mvaMuID_WP.to_list() == [[2, 3], [], [4]]


def test_lists_with_a_common_prefix_and_different_lengths_stay_separate(tmp_path: Path) -> None:
    columns = {"good_jets": ak.Array([[1.0], [], []]), "good_muons": ak.Array([[], [], [2.0]])}
    types = types_of(open_tree(write(tmp_path / "x.root", columns)))
    assert types == {"good_jets": {"list": "float64"}, "good_muons": {"list": "float64"}}


def test_podio_collections_and_relations_are_imported(files: Samples) -> None:
    path = files.path("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root")
    source = opened(path)
    types = types_of(source)
    assert types["MCParticles"]["list"]["record"]["class"] == "MCParticleData"
    assert members_of(members_of(types["MCParticles"])["momentum"]) == dict.fromkeys("xyz", "float64")
    index = {"of": "int32", "is": "element", "name": "collectionID", "members": [["MCParticles", 2714477136]]}
    parents = {"index": {"meaning": index}, "collectionID": "uint32"}
    assert members_of(types["_MCParticles_parents"]) == parents
    assert source.skipped_line == ""
    (batch,) = source.batches()
    branch = uproot.open(path)["events"]["MCParticles/MCParticles.momentum.x"]
    assert ak.array_equal(batch.MCParticles.momentum.x, branch.array())


def test_atlas_collections_are_imported_and_unreadable_branches_skipped(files: Samples) -> None:
    source = opened(files.path("PHYSLITE_example.root"))
    types = types_of(source)
    assert members_of(types["AnalysisElectrons"])["pt"] == "float32"
    assert members_of(types["EventInfo"])["runNumber"] == "uint32"
    assert "branches cannot be read" in source.skipped_line
    assert "\n" not in source.skipped_line


def test_split_objects_and_references_are_imported(files: Samples) -> None:
    types = types_of(opened(files.path("delphes.root")))
    jet = members_of(types["Jet"])
    assert jet["PT"] == "float32"
    assert jet["Tau"] == {"array": {"of": "float32", "size": 5}}
    assert "fBits" not in jet


@pytest.mark.parametrize("file", [each.file for each in SAMPLES if each.kind == "TTree"])
def test_every_tree_among_the_samples_can_be_imported(files: Samples, file: str) -> None:
    source = opened(files.path(file))
    assert sum(len(batch) for batch in source.batches()) == source.entries
    assert len({entry["name"] for entry in source.definition["fields"]}) == len(source.definition["fields"])


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of one wheel with one sample in it."""
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    path = downloads / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("toy/data/a.root", b"root")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    toy = samples._Archive("toy-does-not-exist==1.0", ("--no-index",), path.name, digest, "toy/data", 1)
    monkeypatch.setattr(samples, "SAMPLES", (Sample("a.root", 4, "TTree", "t", "a toy", toy),))
    return downloads


def test_samples_are_fetched_once(archive: Path, tmp_path: Path) -> None:
    files = Samples(tmp_path / "cache")
    with pytest.raises(NotFoundError, match="call fetch"):
        files.path("a.root")
    files.fetch(downloads=archive, progress=False)
    assert files.path("a.root").read_bytes() == b"root"
    (archive / "toy-1.0-py3-none-any.whl").unlink()
    files.fetch(progress=False)
    with pytest.raises(NotFoundError, match=r"did you mean 'a\.root'"):
        files.path("a.roof")


def test_sample_archive_with_another_checksum_is_refused(archive: Path, tmp_path: Path) -> None:
    wheel = archive / "toy-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(CorruptError, match="has SHA-256"):
        Samples(tmp_path / "cache").fetch(downloads=archive, progress=False)
    assert list((tmp_path / "cache").iterdir()) == []


def test_fetch_without_network_is_a_storage_error(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"pip cannot download toy-does-not-exist==1\.0: "):
        Samples(tmp_path / "cache").fetch(progress=False)

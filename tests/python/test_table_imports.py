"""Importing CSV and HDF5 files: types, missing values, times, slices, and errors with their places."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="the extra `io` is not installed")
pytest.importorskip("h5py", reason="the extra `io` is not installed")

import h5py
import pandas as pd

import femtobarn as fb
from femtobarn._exchange import csv_files, hdf5_files
from femtobarn._exchange.tree_imports import split_place


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    return fb.create(tmp_path / "lhc.fed")


def types(view: fb.View) -> dict[str, str]:
    return {name: text for name, text in view.typenames().items() if "." not in name}


def write_csv(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_of_csv_have_the_narrowest_type_of_all_values(fed: fb.Federation, tmp_path: Path) -> None:
    text = """n,x,big,flag,day,when,local,label,late
1,2.5,18446744073709551615,true,2026-01-02,2026-01-02T03:04:05Z,2026-01-02 03:04:05,a,7
-2, 3 ,4,false,2026-01-03,2026-01-02T03:04:05.25+01:00,2026-01-02,"b, ""c""
d",x
3,nan,5,true,2026-01-04,2026-01-02T03:04:05Z,2026-01-02 03:04:06,7,8
"""
    view = fed[fed.import_file(write_csv(tmp_path, text)).container]
    assert types(view) == {
        "n": "int64",
        "x": "float64",
        "big": "uint64",
        "flag": "bool",
        "day": "date",
        "when": "datetime",
        "local": "datetime",
        "label": "string",
        "late": "string",
    }
    second = view[1]
    assert (view[0].big, second.n, second.x, second.day) == (2**64 - 1, -2, 3.0, date(2026, 1, 3))
    assert second.when == datetime(2026, 1, 2, 2, 4, 5, 250_000, UTC)
    assert second.local == datetime(2026, 1, 2, tzinfo=UTC)
    assert (second.label, second.late, np.isnan(view[2].x)) == ('b, "c"\nd', "x", True)


def test_type_of_a_csv_column_is_that_of_values_far_behind_the_first(
    fed: fb.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 1000)
    rows = [f"{n},{n % 2},," for n in range(5000)]
    path = write_csv(tmp_path, "\n".join(["a,b,c,empty", *rows, "0.5,true,2026-01-01,"]))
    done: list[tuple[int, int]] = []
    view = fed[fed.import_file(path, progress=lambda *at: done.append(at)).container]
    assert types(view) == {"a": "float64", "b": "string", "c": "date | None", "empty": "string | None"}
    expected = pd.read_csv(path)
    assert view["a"].to_list() == expected["a"].to_list()
    assert view["c"].to_list() == [None] * 5000 + [date(2026, 1, 1)]
    assert len(done) > 10
    assert done[-1] == (path.stat().st_size, path.stat().st_size)
    assert [at for at, _ in done] == sorted(at for at, _ in done)


def test_numbers_may_be_between_spaces_and_other_values_are_text_there(
    fed: fb.Federation, tmp_path: Path
) -> None:
    text = "n,x,flag,day,when\n 1 , 2.5 , true , 2026-01-02 , 2026-01-02T03:04:05 \n"
    view = fed[fed.import_file(write_csv(tmp_path, text)).container]
    texts = {"flag": " true ", "day": " 2026-01-02 ", "when": " 2026-01-02T03:04:05 "}
    assert view.arrays().to_list() == [{"n": 1, "x": 2.5, **texts}]


def test_missing_values_of_csv_are_none(fed: fb.Federation, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": ["x", None, "NA"]})
    frame.to_csv(tmp_path / "t.csv")
    view = fed[fed.import_file(tmp_path / "t.csv").container]
    rows = [(0, 1, "x"), (1, None, None), (2, 3, None)]
    assert view.arrays().to_list() == [{"index": n, "a": a, "b": b} for n, a, b in rows]


def test_compressed_and_tab_separated_text_is_imported_once(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_csv(tmp_path, gzip.compress(b"a\tb c\n1\t2,5\n"), "table.tsv.gz")
    done = fed.import_file(path, expressions="b_c")
    assert (done.container, done.class_name) == ("table/table", "table")
    assert fed["table/table"].arrays().to_list() == [{"b_c": "2,5"}]
    copy = path.rename(tmp_path / "copy.tsv.gz")
    with pytest.raises(fb.ExistsError, match="1 objects are in table/table"):
        fed.import_file(copy)
    fed.import_file(
        copy, database="table", container="table", expressions="b_c", class_name="table", again=True
    )
    assert len(fed["table/table"]) == 2


def test_semicolons_separate_values_where_there_is_no_comma(fed: fb.Federation, tmp_path: Path) -> None:
    fed.import_file(write_csv(tmp_path, 'a;"b c"\n1;x\n'))
    assert fed["t/t"].arrays().to_list() == [{"a": 1, "b_c": "x"}]
    fed.import_file(write_csv(tmp_path, '"a;b"\n1\n', "one.csv"))
    assert fed["one/one"].arrays().to_list() == [{"a_b": 1}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,x\n2,"y\n3,z\n4,w\n', 3),
        ('a,b\n1,"x\n2,y\n3,"z"\n4,w\n', 2),
        ('a,b\n1,"x\ny"\n"2,z\n3,w\n', 4),
        ('a,b\n1,x\n2,"y', 3),
        ('a,b\n1,"x\n' + 5000 * "2,y\n", 2),
        ('a,b\n1,"' + 150_000 * "x" + "\n2,y\n", 2),
        ('a,"b\n1,x\n', 1),
    ],
    ids=[
        *("to the end", "to another quote", "in the first column", "in the last line", "over several blocks"),
        *("over more than the limit of the module csv", "in the names of columns"),
    ],
)
def test_a_quote_that_is_not_closed_is_refused_with_its_line(
    fed: fb.Federation, tmp_path: Path, text: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 1000)
    for path in (write_csv(tmp_path, text), write_csv(tmp_path, gzip.compress(text.encode()), "t.csv.gz")):
        with pytest.raises(fb.CorruptError, match=rf"line {line} of .* opens a quote that is not closed"):
            fed.import_file(path)
    assert fed.databases() == []


def test_quotes_inside_values_of_csv_are_characters(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_csv(tmp_path, 'a,b\n1,5" pipe\n2,"y\nz"\n3,"a ""b"" c"\n')
    assert fed[fed.import_file(path).container]["b"].to_list() == ['5" pipe', "y\nz", 'a "b" c']


def test_wrong_line_of_csv_is_named(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_csv(tmp_path, 'a,b\n1,2\n\n"x\ny",3\n4,5,6\n7,8\n')
    with pytest.raises(
        fb.InvalidError, match=r"line 6 of .*t\.csv has 3 values, but there are 2 col.*'4,5,6'"
    ):
        fed.import_file(path)
    with pytest.raises(fb.CorruptError, match=r"line 3 of .* cannot be read: .*invalid UTF8"):
        fed.import_file(write_csv(tmp_path, b"a\nb\n\xff\n"))
    for text in ("é,b\n1,2\n".encode("latin-1"), "a,b\n1,2\n".encode("utf-16")):
        with pytest.raises(fb.CorruptError, match=r"line 1 of .* is not UTF-8"):
            fed.import_file(write_csv(tmp_path, text))
    with pytest.raises(fb.InvalidError, match=r"several columns 'a'; rename them"):
        fed.import_file(write_csv(tmp_path, "a,a\n1,2\n"))
    with pytest.raises(fb.InvalidError, match=r"line 1 of .* has numbers in the place of the names"):
        fed.import_file(write_csv(tmp_path, "1,2.5\n3,4\n"))
    with pytest.raises(fb.InvalidError, match="is empty; its first line must have the names"):
        fed.import_file(write_csv(tmp_path, ""))
    with pytest.raises(fb.CorruptError, match="was not written to its end"):
        fed.import_file(write_csv(tmp_path, gzip.compress(b"a\n1\n" * 1000)[:-9], "cut.csv.gz"))
    assert fed.databases() == []
    assert fed.import_file(write_csv(tmp_path, "a,b\n")).entries == 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file as programs of experiments write them."""
    path = tmp_path / "store.h5"
    jets = np.zeros(5, [("pt", "f4"), ("id", ">i4"), ("cov", "f8", (2, 2))])
    jets["pt"], jets["id"], jets["cov"] = np.arange(5) + 0.5, np.arange(5), np.arange(20).reshape(5, 2, 2)
    tracks = np.zeros((5, 3), [("d0", "f4"), ("valid", "?")])
    tracks["d0"] = np.arange(15).reshape(5, 3)
    with h5py.File(path, "w") as file:
        file["events/jets"], file["events/tracks"] = jets, tracks
        file["events/image"] = np.arange(60, dtype="u1").reshape(5, 3, 4)
        file["events/label"] = np.array(["b", "c", "light", "", "é"], object)
        file["events/code"] = np.array([b"a", b"bc", b"", b"d", b"e"])
        hits = file.create_dataset("events/hits", 5, h5py.vlen_dtype(np.float32))
        for n in range(5):
            hits[n] = np.arange(n)
        swapped = file.create_dataset("events/swapped", 5, h5py.vlen_dtype(np.dtype(">i4")))
        swapped[0] = np.array([1, 2], ">i4")
        file["events/phase"] = np.arange(5) * 1j
        file["events/version"] = 3
        file["runs/number"], file["runs/begin"] = np.arange(2), np.arange(3)
        file["loop"] = h5py.SoftLink("/nowhere")
    return path


def test_datasets_of_one_length_are_fields(
    fed: fb.Federation, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_files, "BATCH_ROWS", 2)
    done = fed.import_file(f"{store}:events")
    assert (done.container, done.class_name, done.entries, done.tree) == (
        "store/events",
        "events",
        5,
        "events",
    )
    assert done.skipped == {
        "phase": "complex128 cannot be stored",
        "swapped": "h5py reads lists of numbers of another byte order wrongly",
        "version": "it is a single value",
    }
    view = fed["store/events"]
    assert types(view) == {
        "code": "string",
        "hits": "list[float32]",
        "image": "array[array[uint8, 4], 3]",
        "jets": "jets",
        "label": "string",
        "tracks": "list[tracks]",
    }
    assert view["jets.id"].to_list() == [0, 1, 2, 3, 4]
    last = view[4]
    assert (last.jets.pt, last.label, view[1].code) == (4.5, "é", "bc")
    assert np.asarray(last.jets.cov).tolist() == [[16, 17], [18, 19]]
    assert np.asarray(last.image).tolist() == np.arange(48, 60).reshape(3, 4).tolist()
    assert view["tracks.d0"].to_list() == np.arange(15.0).reshape(5, 3).tolist()
    assert view["hits"].to_list() == [list(range(n)) for n in range(5)]


def test_compound_dataset_is_a_table(fed: fb.Federation, store: Path) -> None:
    done = fed.import_file(f"{store}:events/jets", expressions=["pt", "id"])
    assert fed[done.container].arrays().to_list()[3] == {"pt": 3.5, "id": 3}
    assert fed.import_file(f"{store}:events/label").container == "store/label"
    with pytest.raises(fb.ExistsError, match=r"tree 'events/jets' of .* was imported already"):
        fed.import_file(store, ntuple="events/jets")


def test_table_of_hdf5_is_named_where_there_are_several(fed: fb.Federation, store: Path) -> None:
    with pytest.raises(fb.InvalidError, match=r"has tables .*events, .*name one, as in store\.h5:"):
        fed.import_file(store)
    with pytest.raises(fb.NotFoundError, match="has no table 'event'; did you mean 'events'"):
        fed.import_file(f"{store}:event")
    with pytest.raises(fb.InvalidError, match=r"of 'runs' in .* unlike lengths: begin has 3, number has 2"):
        fed.import_file(f"{store}:runs")
    with pytest.raises(fb.InvalidError, match=r"'events/version' in .* is a single value, not a table"):
        fed.import_file(f"{store}:events/version")
    with pytest.raises(fb.InvalidError, match=r"t\.csv cannot have an RNTuple or a dataset 'x'"):
        fed.import_file(write_csv(store.parent, "a\n1\n"), ntuple="x")
    store.write_bytes(store.read_bytes()[:3000])
    with pytest.raises(fb.CorruptError, match="is not an HDF5 file, or is damaged"):
        fed.import_file(store)
    with pytest.raises(fb.NotFoundError, match=r"did you mean 'store\.h5'"):
        fed.import_file(store.with_name("stores.h5"))


def test_datasets_without_a_group_are_named_by_a_slash(fed: fb.Federation, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["x"], file["y"], file["g/z"] = np.arange(3), np.arange(3.0), np.arange(2)
    assert split_place("a/flat.h5:/") == ("a/flat.h5", "/")
    assert split_place("root://host:1094//flat.h5") == ("root://host:1094//flat.h5", None)
    done = fed.import_file(f"{tmp_path}/flat.h5:/")
    assert (done.container, fed[done.container]["y"].to_list()) == ("flat/flat", [0, 1, 2])


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A file that pandas 3.1 wrote with PyTables 3.11: the data frame of `FRAME` in each format."""
    path = tmp_path / "frames.h5"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("pandas_frames.h5.gz").read_bytes()))
    return path


FRAME = {
    "index": [7, 8, 9],
    "n": [1, 2, 3],
    "x": [0.5, None, 2.5],
    "flag": [True, False, True],
    "y": [1.0, 1.0, 1.0],
    "when": [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(2026, 1, 3, tzinfo=UTC)],
    "label": ["a", "bc", "d"],
}


@pytest.mark.parametrize("name", ["fixed", "table", "appended", "series"])
def test_data_frames_of_pandas_have_their_columns(fed: fb.Federation, frames: Path, name: str) -> None:
    with pytest.raises(fb.InvalidError, match="has tables appended, fixed, series, table; name one"):
        fed.import_file(frames)
    done = fed.import_file(f"{frames}:{name}")
    pickled = {"label": "its values are pickled; write it with format='table'"}
    assert done.skipped == (pickled if name == "fixed" else {})
    expected = {"index", "x"} if name == "series" else FRAME.keys() - done.skipped.keys()
    view = fed[f"frames/{name}"]
    assert set(view.keys()) == expected
    for column in expected:
        found = [getattr(row, column) for row in view]
        assert [None if each != each else each for each in found] == FRAME[column], column


def test_empty_frames_and_categories_of_pandas_are_not_taken_for_numbers(
    fed: fb.Federation, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file:
        for name in ("empty", "levels"):
            frame = file.create_group(name)
            frame.attrs["pandas_type"], frame.attrs["nblocks"] = np.bytes_("frame"), 1
            frame["block0_values"] = np.array([[1.0, 2.0]])
        empty = file["empty/block0_values"].attrs
        empty["shape"], empty["value_type"] = np.bytes_("(I2\nI0\ntp0\n."), np.bytes_("float64")
        table = file.create_group("table")
        table.attrs["pandas_type"] = np.bytes_("frame_table")
        table["table"] = np.ones(2, [("index", "i8"), ("kind", "i1")])
        table["table"].attrs["kind_meta"] = np.bytes_("category")
    with pytest.raises(fb.InvalidError, match="pandas has stored it without a row"):
        fed.import_file(f"{tmp_path}/t.h5:empty")
    done = fed.import_file(f"{tmp_path}/t.h5:table")
    assert done.skipped == {"kind": "its values are numbers of categories; write these as texts"}
    fed.import_file(f"{tmp_path}/t.h5:levels")
    assert fed["t/levels"].arrays().to_list() == [{"block0_0": 1.0, "block0_1": 2.0}]


def test_pickled_names_of_columns_run_no_code(fed: fb.Federation, tmp_path: Path) -> None:
    code = b"cos\nmkdir\n(V%s\ntR." % str(tmp_path / "made").encode()
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.create_group("df").attrs["pandas_type"] = np.bytes_("frame_table")
        file["df/table"] = np.ones(2, [("index", "i8"), ("values_block_0", "f8", 2)])
        file["df/table"].attrs["values_block_0_kind"] = np.bytes_(code)
    fed.import_file(tmp_path / "t.h5")
    assert fed["t/df"].keys() == ["index", "values_block_0_0", "values_block_0_1"]
    assert not (tmp_path / "made").exists()

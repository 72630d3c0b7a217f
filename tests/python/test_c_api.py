"""The C API: its header tells all, a C program uses it, and pyarrow judges its Arrow structures."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from damaged_files import damaged

import femtobarn as fb
from femtobarn import _femtobarn

pa = pytest.importorskip("pyarrow", reason="the extra `io` is not installed")

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent.parent / "crates" / "femtobarn-c" / "src"

C_TYPES = {
    "c_char": "char",
    "c_int": "fb_status",
    "u64": "uint64_t",
    "i64": "int64_t",
    "usize": "size_t",
    "COptions": "fb_options",
    "CFederation": "fb_federation",
    "CSnapshot": "fb_snapshot",
    "CNames": "fb_names",
    "CView": "fb_view",
    "CTransaction": "fb_transaction",
    "CCondition": "fb_condition",
    "ArrowSchema": "struct ArrowSchema",
    "ArrowArray": "struct ArrowArray",
    "ArrowArrayStream": "struct ArrowArrayStream",
}


def in_c(rust: str) -> str:
    """A type of Rust as C writes it."""
    pointed = re.fullmatch(r"\*(const|mut) (.*)", rust)
    if not pointed:
        return C_TYPES[rust]
    inner = in_c(pointed[2])
    if pointed[1] == "mut":
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    return f"{inner}const *" if inner.endswith("*") else f"const {inner} *"


def declared_by_rust() -> set[str]:
    """The functions of the crate, as the header has to declare them."""
    found = set()
    pattern = r'pub (?:unsafe )?extern "C" fn (\w+)\(([^)]*)\)(?: -> ([^{]+))? \{'
    for path in SOURCES.rglob("*.rs"):
        for name, arguments, result in re.findall(pattern, path.read_text()):
            parts = [part.strip().split(": ") for part in arguments.split(",") if part.strip()]
            shown = ", ".join(joined(in_c(of), argument) for argument, of in parts) or "void"
            found.add(joined(in_c(result.strip()) if result else "void", f"{name}({shown});"))
    return found


def joined(of: str, name: str) -> str:
    return f"{of}{name}" if of.endswith("*") else f"{of} {name}"


def test_the_header_declares_every_function_of_the_library() -> None:
    text = (fb.root.include_folder() / "femtobarn.h").read_text()
    declared = set(re.findall(r"^[\w ]*?\**\w[\w ]* \**fb_\w+\(.*?\);", text, re.M))
    assert declared == declared_by_rust()
    assert len(declared) > 30
    numbers = dict(re.findall(r"^   FB_(\w+) = (\d+)", text, re.M))
    library.fb_status_name.restype = ctypes.c_char_p
    for name, number in numbers.items():
        told = library.fb_status_name(int(number)).decode()
        assert told == {"FULL": "storage", "IO": "storage"}.get(name, name.lower().replace("_", "-"))


def output_of(source: Path, libraries: Path, *arguments: Path) -> str:
    """Compile and link a program, run it in its folder, and return what it prints."""
    is_c = source.suffix == ".c"
    compiler = (
        [os.environ.get("CC", "cc"), "-std=c11"] if is_c else [os.environ.get("CXX", "c++"), "-std=c++17"]
    )
    strict = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    program = source.with_suffix(".program")
    command = [*compiler, *strict, f"-I{fb.root.include_folder()}", str(source), "-o", str(program)]
    subprocess.run([*command, f"-L{libraries}", "-lfemtobarn_c", f"-Wl,-rpath,{libraries}"], check=True)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=source.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_c_program_uses_the_library(examples: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(HERE / "c_api.c", tmp_path))
    assert output_of(source, examples.parent, tmp_path / "lhc.fed") == "ok\n"
    with fb.open(tmp_path / "lhc.fed") as fed:
        assert fed["run7/events"].arrays("pt", where="run == 8").pt.tolist()[5] == [5, 5]
        assert not fed.check(full=True).problems


def test_the_programs_of_the_page_run(examples: Path, tmp_path: Path) -> None:
    fields = [{"name": "number", "type": "uint64"}, {"name": "mass", "type": "float32"}]
    mass = [0.5, 300.0, 201.0, 0.25, 100.0]
    with fb.create(tmp_path / "lhc.fed") as fed, fed.transaction() as txn:
        container = txn.database("run7", create=True).container(
            "events", {"name": "E", "fields": fields}, create=True
        )
        container.extend({"number": range(5), "mass": mass})
    page = (HERE.parent.parent / "docs" / "cpp.md").read_text()
    for kind, suffix, expected in (
        ("c", "c", "2 heavy ones\n"),
        ("cpp program", "cpp", "run7/events as of 1\n501\nnot-found: "),
    ):
        [code] = re.findall(rf"^```{kind}\n(.*?)^```", page, re.M | re.S)
        source = tmp_path / f"page.{suffix}"
        source.write_text(code)
        assert output_of(source, examples.parent).startswith(expected)
    with fb.open(tmp_path / "lhc.fed") as fed:
        assert fed["skim/light"].arrays("number").number.tolist() == [0, 3]


# ---- Arrow, judged by pyarrow in this process: the extension module has the functions, too

library = ctypes.CDLL(str(_femtobarn.__file__))
library.fb_last_error.restype = ctypes.c_char_p

FIELDS: dict[str, Any] = {
    "flag": "bool",
    "tiny": "int8",
    "small": "uint16",
    "number": "int64",
    "huge": "uint64",
    "half": "float16",
    "mass": "float64",
    "letter": "char",
    "raw": "byte",
    "name": "string",
    "axes": {"array": {"of": "float32", "size": 3}},
    "bits": {"bitset": 9},
    "weights": {"list": "float32"},
    "names": {"list": "string"},
    "grid": {"list": {"list": "int16"}},
    "best": {"optional": "float32"},
    "title": {"optional": "string"},
    "maybe": {"optional": {"record": {"class": "P", "fields": [{"name": "x", "type": "int32"}]}}},
    "hits": {
        "list": {
            "record": {
                "class": "H",
                "fields": [{"name": "e", "type": "float32"}, {"name": "ok", "type": {"optional": "bool"}}],
            }
        }
    },
    "any": {"variant": ["int32", "string"]},
}
FORM = {"name": "All", "fields": [{"name": name, "type": of} for name, of in FIELDS.items()]}


def row(i: int) -> dict[str, Any]:
    """An object with values of every type, some missing."""
    return {
        "flag": i % 3 == 0, "tiny": -i % 100, "small": i, "number": -(2**53) - i, "huge": 2**63 + i,
        "half": i / 2, "mass": i / 3, "letter": 65 + i % 26, "raw": i % 256, "name": "ü" * (i % 4),
        "axes": [i, -i, 0.5], "bits": [(i >> bit) % 2 == 1 for bit in range(9)], "weights": [i] * (i % 3),
        "names": ["a", str(i)][: i % 3], "grid": [[i], [], [1, 2]][: i % 4], "best": None if i % 2 else i,
        "title": None if i % 5 == 0 else f"t{i}", "maybe": None if i % 3 else {"x": i},
        "hits": [{"e": i, "ok": None if i % 2 else i % 4 == 0}] * (i % 3), "any": f"v{i}" if i % 2 else i,
    }  # fmt: skip


def done(status: int) -> None:
    assert status == 0, library.fb_last_error().decode()


class Handles:
    """Handles of the C API, freed at the end."""

    def __init__(self) -> None:
        self.freed: list[tuple[str, ctypes.c_void_p]] = []

    def made(self, function: str, kind: str, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        done(getattr(library, function)(*arguments, ctypes.byref(handle)))
        self.freed.append((f"fb_{kind}_free", handle))
        return handle


@pytest.fixture
def handles() -> Iterator[Handles]:
    made = Handles()
    yield made
    for function, handle in reversed(made.freed):
        getattr(library, function)(handle)


@pytest.fixture
def written(tmp_path: Path) -> fb.Federation:
    fed = fb.create(tmp_path / "lhc.fed")
    with fed.transaction() as txn:
        container = txn.database("d", create=True).container(
            "all", FORM, create=True, page_size=4096, cluster_size=4096
        )
        for i in range(120):
            container.append(row(i))
        container.delete([7, 8, 30])
    return fed


def opened(handles: Handles, fed: fb.Federation) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    federation = handles.made("fb_open", "federation", str(fed.path).encode(), None)
    return federation, handles.made("fb_snapshot_newest", "snapshot", federation)


def streamed(view: ctypes.c_void_p) -> Any:
    """All objects, as pyarrow reads the stream."""
    stream = (ctypes.c_byte * 64)()
    done(library.fb_view_stream(view, None, 0, None, 0, stream))
    reader = pa.RecordBatchReader._import_from_c(ctypes.addressof(stream))
    table = reader.read_all()
    table.validate(full=True)
    return table


def test_pyarrow_reads_every_type(written: fb.Federation, handles: Handles) -> None:
    _, snapshot = opened(handles, written)
    table = streamed(handles.made("fb_view_open", "view", snapshot, b"d/all"))
    assert table.column("mass").num_chunks > 1
    kept = [row(i) for i in range(120) if i not in (7, 8, 30)]
    for name in FIELDS:
        assert table.column(name).to_pylist() == [each[name] for each in kept], name
    assert str(table.schema.field("letter").metadata) == "{b'femtobarn.type': b'char'}"


def test_pyarrow_batches_are_appended(written: fb.Federation, handles: Handles) -> None:
    """Slices, so that offsets of arrays count; what does not fit is refused with the field's name."""
    federation, snapshot = opened(handles, written)
    table = streamed(handles.made("fb_view_open", "view", snapshot, b"d/all")).combine_chunks()
    transaction = handles.made("fb_transaction_begin", "transaction", federation, b"copies")
    [batch] = table.slice(5, 41).to_batches()
    assert appended(transaction, batch) == 0, library.fb_last_error()
    nulls = batch.set_column(6, "mass", pa.array([None, *range(40)], pa.float64()))
    assert appended(transaction, nulls) == 7
    assert b"mass: value 0 is null" in library.fb_last_error()
    narrow = batch.set_column(3, "number", pa.array(range(41), pa.int32()))
    assert appended(transaction, narrow) == 7
    assert b'number: it has Arrow\'s format "i"' in library.fb_last_error()
    assert appended(transaction, batch.drop_columns(["mass"])) == 7
    done(library.fb_transaction_commit(transaction, None))
    _, snapshot = opened(handles, written)
    assert len(written["d/all"]) == 117 + 41
    copies = streamed(handles.made("fb_view_open", "view", snapshot, b"d/all")).slice(117)
    for name in FIELDS:
        assert copies.column(name).to_pylist() == batch.column(name).to_pylist(), name


class Constant(ctypes.Union):
    _fields_ = [("integer", ctypes.c_int64), ("text", ctypes.c_char_p)]


class Condition(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("comparison", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("value", Constant),
    ]


def test_clusters_that_statistics_exclude_are_not_read(tmp_path: Path, handles: Handles) -> None:
    with damaged(tmp_path) as fed:
        _, snapshot = opened(handles, fed)
        view = handles.made("fb_view_open", "view", snapshot, b"d/marked")
        late = Condition(b"number", 3, 0, Constant(integer=1500))
        array, rows = (ctypes.c_byte * 80)(), (ctypes.c_int64 * 2000)()
        paths = (ctypes.c_char_p * 1)(b"marker")
        everything = (view, paths, ctypes.c_size_t(1), ctypes.c_uint64(0), ctypes.c_uint64(2000))
        assert library.fb_view_read(*everything, None, ctypes.c_size_t(0), array) == 8, "corrupt"
        done(library.fb_view_read(*everything, ctypes.byref(late), ctypes.c_size_t(1), array))
        assert ctypes.c_int64.from_buffer(array).value == 500
        release = ctypes.c_void_p.from_buffer(array, 64).value
        assert release is not None
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release)(ctypes.addressof(array))
        range_of_rows = (view, ctypes.c_uint64(0), ctypes.c_uint64(2000))
        done(library.fb_view_rows(*range_of_rows, ctypes.byref(late), ctypes.c_size_t(1), rows))
        assert list(rows) == [-1] * 1500 + list(range(1500, 2000))


def appended(transaction: ctypes.c_void_p, batch: Any) -> int:
    """The status of appending a batch."""
    array, schema = (ctypes.c_byte * 80)(), (ctypes.c_byte * 72)()
    batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    status: int = library.fb_transaction_append(transaction, b"d/all", schema, array, None)
    # The exported batch still belongs to the exporter: importing it releases it.
    pa.RecordBatch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))
    return status

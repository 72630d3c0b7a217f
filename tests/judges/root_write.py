"""Writes RNTuples of every kind with real ROOT, and the values that they hold.

    python root_write.py FOLDER

Each file NAME.root comes with NAME.jsonl, the values that were given to ROOT, in the format of README.md.
`manifest.json` lists them: name, file, ntuple, and the fields that lose precision, with their largest
relative error. All values are drawn from one seed, so two runs write the same.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import dictionary
import kinds
from compare import plain
from kinds import DOUBLE, FLOAT, INT32, INTEGERS, Kind, Nullable, Real, Text, vector

COMPRESSIONS = {"none": 0, "zlib": 101, "lzma": 207, "lz4": 404, "zstd": 505}
SEED = 20260101
STREAMED_LIST_VERSION = 10
Json = Any


@dataclass
class Field:
    """A field to write; `setting` is C++ that changes the field `f` before the model is created."""

    name: str
    kind: Kind
    setting: str = ""
    loss: float | None = None


@dataclass
class File:
    """An RNTuple to write by generated code."""

    name: str
    fields: list[Field]
    entries: int
    compressions: tuple[str, ...] = ("zstd",)
    cluster: int = 0
    options: str = ""
    ntuple: str = "ntuple"
    after_clusters: str = ""
    values: list[dict[str, Json]] = field(default_factory=list)

    def fill(self, random: Random) -> None:
        """Draw the values."""
        self.values = [{f.name: f.kind.random(random) for f in self.fields} for _ in range(self.entries)]

    def stored(self) -> bytes:
        """The values for the generated code, entry by entry."""
        return b"".join(f.kind.stored(value[f.name]) for value in self.values for f in self.fields)

    def lossy(self) -> dict[str, float]:
        """The fields that lose precision."""
        return {f.name: f.loss for f in self.fields if f.loss is not None}


def main(folder: Path) -> None:
    """Write everything into the folder."""
    import ROOT

    folder.mkdir(parents=True, exist_ok=True)
    dictionary.load(ROOT, "write.hxx")
    manifest = []
    for file in generated_files():
        file.fill(Random(f"{SEED} {file.name}"))
        declare(ROOT, program(file))
        stored = folder / f"{file.name}.bytes"
        stored.write_bytes(file.stored())
        for compression in file.compressions:
            name = file.name if len(file.compressions) == 1 else f"{file.name}_{compression}"
            path = folder / f"{name}.root"
            getattr(ROOT.judge, f"write_{file.name}")(str(path), COMPRESSIONS[compression], str(stored))
            manifest.append(keep(folder, name, path.name, file.ntuple, file.values, file.lossy()))
    for name, ntuple, values in special_files():
        path = folder / f"{name.split('.')[0]}.root"
        if "." not in name:
            getattr(ROOT.judge, f"write_{name}")(str(path))
        manifest.append(keep(folder, name, path.name, ntuple, values, {}))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def declare(root: Any, code: str) -> None:
    """Compile C++ code in ROOT's interpreter."""
    if not root.gInterpreter.Declare(code):
        raise SystemExit("generated code does not compile")


def keep(
    folder: Path, name: str, file: str, ntuple: str, values: list[Json], lossy: dict[str, float]
) -> dict[str, Json]:
    """Write the values beside the file; return the file's entry in the manifest."""
    text = "".join(json.dumps(plain(value), allow_nan=False) + "\n" for value in values)
    (folder / f"{name}.jsonl").write_text(text)
    return {"name": name, "file": file, "ntuple": ntuple, "values": f"{name}.jsonl", "lossy": lossy}


# ---- files by generated code


def program(file: File) -> str:
    """Generate a C++ function that writes the file."""
    fields = "\n".join(
        f'{{ auto f = ROOT::RFieldBase::Create("{f.name}", "{f.kind.cpp}").Unwrap();'
        f" {f.setting} model->AddField(std::move(f)); }}"
        for f in file.fields
    )
    pointers = "\n".join(
        f'auto *p{i} = static_cast<{f.kind.cpp} *>(entry.GetPtr<void>("{f.name}").get());'
        for i, f in enumerate(file.fields)
    )
    taken = "\n".join(f"take_into(bytes, *p{i});" for i in range(len(file.fields)))
    return f"""
#pragma cling optimize(0)
namespace judge {{
void write_{file.name}(const char *path, int compression, const char *stored)
{{
   auto model = ROOT::RNTupleModel::Create();
   {fields}
   ROOT::RNTupleWriteOptions options;
   options.SetCompression(compression);
   {file.options}
   auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "{file.ntuple}", path, options);
   auto &entry = const_cast<ROOT::REntry &>(writer->GetModel().GetDefaultEntry());
   {pointers}
   Bytes bytes(stored);
   for (int entries = 1; entries <= {file.entries}; ++entries) {{
      {taken}
      writer->Fill();
      {ending(file)}
   }}
   bytes.end();
}}
}} // namespace judge
"""


def ending(file: File) -> str:
    """C++ statements that end the cluster after its last entry."""
    if not file.cluster:
        return ""
    # Every second cluster ends a cluster group, too.
    return f"""
      if (entries % {file.cluster} == 0) {{
         const int clusters = entries / {file.cluster};
         writer->CommitCluster(clusters % 2 == 0);
         {file.after_clusters}
      }}
"""


def generated_files() -> Iterator[File]:
    """The files of generated code, which differ in fields and options."""
    everything = [Field(name, kind) for name, kind in kinds.everything()]
    yield File("everything", everything, entries=13, compressions=tuple(COMPRESSIONS), cluster=5)
    yield File("empty", everything, entries=0)
    few = [
        Field("id", INT32),
        Field("values", vector(FLOAT)),
        Field("text", Text()),
        Field("flag", kinds.Bool()),
    ]
    yield File("clusters", few, entries=330, cluster=7)
    small_pages = "options.SetInitialUnzippedPageSize(32); options.SetMaxUnzippedPageSize(64);"
    yield File("small_pages", few, entries=150, cluster=60, options=small_pages)
    yield File("no_checksums", few, entries=40, options="options.SetEnablePageChecksums(false);")
    # Header, page list and footer each take several keys; no page does.
    keys = "ROOT::Internal::RNTupleWriteOptionsManip::SetMaxKeySize(options, 1024);"
    keys += "options.SetInitialUnzippedPageSize(64); options.SetMaxUnzippedPageSize(512);"
    yield File("many_keys", everything, entries=13, compressions=("none",), cluster=5, options=keys)
    yield File("encodings", list(encodings()), entries=40, cluster=15)
    yield File("lossy", list(lossy()), entries=40, cluster=15)
    yield File("representations", representations(), entries=40, cluster=10, after_clusters=SWITCH)
    same = [Field("a", Real("float", low=1, high=1)), Field("b", Real("float", low=1, high=1))]
    yield File("same_pages", same, entries=100, compressions=("none",), cluster=30)


def encodings() -> Iterator[Field]:
    """Every column type with a plain or split encoding, independent of the compression."""
    number = {"int8_t": "Int8", "uint8_t": "UInt8"}
    for bits in (16, 32, 64):
        number |= {f"int{bits}_t": f"Int{bits}", f"uint{bits}_t": f"UInt{bits}"}
    for kind in INTEGERS:
        column = number[kind.cpp.removeprefix("std::")]
        yield Field(f"plain_{column}", kind, representation(f"k{column}"))
        if kind.bits > 8:
            yield Field(f"split_{column}", kind, representation(f"kSplit{column}"))
    for column in ("kReal32", "kSplitReal32"):
        yield Field(f"float_{column}", FLOAT, representation(column))
        yield Field(f"double_{column}", Real("double", finite=True), representation(column), loss=1e-7)
    for column in ("kReal64", "kSplitReal64"):
        yield Field(f"double_{column}", DOUBLE, representation(column))
    for column in ("kIndex32", "kIndex64", "kSplitIndex32", "kSplitIndex64"):
        yield Field(f"list_{column}", vector(INT32), representation(column))
        yield Field(f"optional_{column}", Nullable("std::optional", INT32), representation(column))
        yield Field(f"text_{column}", Text(), representation(column, "kChar"))


def lossy() -> Iterator[Field]:
    """Floating-point numbers in reduced precision, alone and in collections."""
    for cpp in ("float", "double"):
        small = Real(cpp, finite=True, low=-1000, high=1000)
        cast = f"auto &r = *dynamic_cast<ROOT::RField<{cpp}> *>(f.get());"
        yield Field(f"half_{cpp}", small, f"{cast} r.SetHalfPrecision();", loss=1e-3)
        for bits in (10, 12, 16, 17, 24, 31):
            loss = 2.0 ** -(bits - 10)
            yield Field(f"truncated_{cpp}_{bits}", small, f"{cast} r.SetTruncated({bits});", loss=loss)
        for bits in (1, 7, 8, 12, 20, 24, 32):
            loss = 2100 * 2.0**-bits
            setting = f"{cast} r.SetQuantized({bits}, {{-1000, 1000}});"
            yield Field(f"quantised_{cpp}_{bits}", small, setting, loss=loss)
    inner = "auto *i = f->GetMutableSubfields()[0]; auto &r = *dynamic_cast<ROOT::RField<float> *>(i);"
    items = vector(Real("float", finite=True, low=-9, high=9), most=60)
    yield Field("halves", items, f"{inner} r.SetHalfPrecision();", loss=1e-3)
    yield Field("truncateds", items, f"{inner} r.SetTruncated(14);", loss=2.0**-4)
    yield Field("quantiseds", items, f"{inner} r.SetQuantized(11, {{-9, 9}});", loss=19 * 2.0**-11)


SWITCH = """
for (const char *name : {"x", "list"}) {
   auto &f = const_cast<ROOT::RFieldBase &>(writer->GetModel().GetConstField(name));
   ROOT::Internal::RFieldRepresentationModifier::SetPrimaryColumnRepresentation(f, clusters % 3);
}
"""


def representations() -> list[Field]:
    """Fields whose column types change from cluster to cluster, with values that fit all of them."""
    exact_in_half = kinds.Enumeration("float", tuple(range(-40, 40)), "f")
    reals = representation("kReal32", more=("kReal16", "kSplitReal32"))
    lists = representation("kSplitIndex64", more=("kIndex32", "kIndex64"))
    return [Field("x", exact_in_half, reals), Field("list", vector(INT32), lists), Field("id", INT32)]


def representation(*columns: str, more: tuple[str, ...] = ()) -> str:
    """C++ that sets the column types of a field; `more` are further representations of one column."""
    sets = [columns, *[(each,) for each in more]]
    texts = ["{" + ", ".join(f"ROOT::ENTupleColumnType::{column}" for column in each) + "}" for each in sets]
    return f"f->SetColumnRepresentatives({{{', '.join(texts)}}});"


# ---- files written by write.hxx, whose formulas are repeated here


def special_files() -> Iterator[tuple[str, str, list[Json]]]:
    """Name, RNTuple and values of each; a name with a dot is a further RNTuple in the file before the dot."""
    makers: list[Callable[[], Iterator[tuple[str, str, list[Json]]]]] = [
        extended, projected, untyped, streamed, several, large, described,
    ]  # fmt: skip
    for maker in makers:
        yield from maker()


def extended() -> Iterator[tuple[str, str, list[Json]]]:
    """Fields that were added after the first entries, which read as zero or empty for those."""
    entries = []
    for i in range(30):
        late, later = i >= 10, i >= 20
        entries.append(
            {
                "id": i,
                "late_float": i / 2 if late else 0.0,
                "late_list": [i, i + 1] if late else [],
                "late_text": f"late {i}" if late else "",
                "late_point": {"x": i * 1.0, "y": i * 2.0, "hits": [i]}
                if late
                else {"x": 0.0, "y": 0.0, "hits": []},
                "later_array": [i, -i] if later else [0, 0],
                "later_optional": i if later else None,
                "later_id": i,
            }
        )
    yield "extended", "ntuple", entries


def projected() -> Iterator[tuple[str, str, list[Json]]]:
    """Projected fields, and the sizes of collections."""
    entries = []
    for i in range(25):
        points = [{"x": k + 0.5, "y": k * 3.0, "hits": list(range(k))} for k in range(i % 4)]
        entries.append(
            {
                "points": points,
                "same_id": i,
                "id": i,
                "points_x": [point["x"] for point in points],
                "n_points": len(points),
                "n_points_64": len(points),
            }
        )
    yield "projected", "ntuple", entries


def untyped() -> Iterator[tuple[str, str, list[Json]]]:
    """Records and collections that belong to no class."""
    entries = [
        {
            "record": {"a": i, "b": i / 4, "c": {"d": f"deep {i}"}},
            "collection": [{"e": i * 10 + k, "f": k / 8} for k in range(i % 5)],
            "lists": [[k] * k for k in range(i % 4)],
        }
        for i in range(20)
    ]
    yield "untyped", "ntuple", entries


def streamed() -> Iterator[tuple[str, str, list[Json]]]:
    """Objects in ROOT's own serialisation (streamer fields)."""
    yield "streamed", "ntuple", [{"id": i, "point": point_bytes(i)} for i in range(10)]


def point_bytes(i: int) -> list[int]:
    """A `judge::Streamed` as ROOT serialises it: each part after its byte count and its version."""
    size = i % 3
    values = struct.pack(f">i{size}d", size, *range(size))
    body = struct.pack(">Hif", 3, i, i / 2) + counted(struct.pack(">H", STREAMED_LIST_VERSION) + values)
    return list(counted(body))


def counted(body: bytes) -> bytes:
    """Bytes after their count, which has ROOT's byte-count mark."""
    return struct.pack(">I", 0x40000000 | len(body)) + body


def several() -> Iterator[tuple[str, str, list[Json]]]:
    """Three RNTuples in one file, one of them in a folder, filled by turns."""
    yield "several", "first", [{"id": i} for i in range(12)]
    yield "several.second", "second", [{"x": i / 2} for i in range(12)]
    yield "several.inner", "folder/inner", [{"text": str(i)} for i in range(12)]


def large() -> Iterator[tuple[str, str, list[Json]]]:
    """Lists of a hundred thousand items between empty lists; pages of the largest usual size."""
    entries = []
    for i in range(8):
        size = 100_000 if i % 3 == 1 else 0
        entries.append({"values": [(i * 31 + k) % 1009 for k in range(size)], "id": i})
    yield "large", "ntuple", entries


def described() -> Iterator[tuple[str, str, list[Json]]]:
    """Descriptions, and names that are not those of C++ variables."""
    yield "described", "ntuple_näme", [{"p_T[GeV]": i * 1.0, "größe": i} for i in range(3)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

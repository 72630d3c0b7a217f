"""Reads a file as podio's RNTupleReader does, with real ROOT, and prints what it has as JSON.

    python podio_read.py FILE CATEGORY

podio itself needs C++20, which the package of ROOT lacks. The classes of its data models are declared to
ROOT's interpreter from the definitions in the file, as podio's generator declares them, and the calls are
those of ``RNTupleReader::openFiles``, ``initCategory`` and ``readEntry``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = Any

MEMBER = re.compile(r"\s*(std::array\s*<[^>]*>|[\w:]+(?:\s+(?:int|long|short))*)\s+(\w+)")

LISTS = """
#include <limits>
#include <sstream>
#include <ROOT/RNTupleDescriptor.hxx>
#include <ROOT/RNTupleModel.hxx>
#include <ROOT/RNTupleReader.hxx>
namespace judge {
template <typename T>
void json(std::ostream &out, const std::vector<T> &items) {
  out << "[";
  for (std::size_t n = 0; n < items.size(); ++n) {
    if (n) out << ", ";
    json(out, static_cast<const T &>(items[n]));
  }
  out << "]";
}
template <typename T, std::size_t size>
void json(std::ostream &out, const std::array<T, size> &items) {
  json(out, std::vector<T>(items.begin(), items.end()));
}
template <typename T>
void view(std::ostream &out, ROOT::RNTupleReader &reader, const std::string &name, std::uint64_t entry) {
  auto values = reader.GetView<T>(name);
  out << '"' << name << "\\": ";
  json(out, values(entry));
}
std::ostringstream text() {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  return out;
}
}
"""

METADATA = """
std::string judge_metadata(const char *file, const char *category) {
  auto reader = ROOT::RNTupleReader::Open("podio_metadata", file);
  auto out = judge::text();
  out << "{";
  judge::view<std::vector<std::uint16_t>>(out, *reader, "PodioBuildVersion", 0);
  out << ", ";
  judge::view<std::vector<std::tuple<std::string, std::string>>>(out, *reader, "EDMDefinitions", 0);
  out << ", ";
  judge::view<std::vector<std::string>>(out, *reader, "availableCategories", 0);
  out << ", ";
  const auto name = std::string(category) + "___CollectionTypeInfo";
  judge::view<std::vector<podio::root_utils::CollectionWriteInfo>>(out, *reader, name, 0);
  out << ", \\"entries\\": " << reader->GetNEntries() << "}";
  return out.str();
}
"""

PARAMETERS = {"Int": "int", "Float": "float", "Double": "double", "String": "std::string"}


def main(file: str, category: str) -> None:
    """Print the metadata, and then each entry of the category."""
    import ROOT

    header = Path(__file__).resolve().parent / "podio.hxx"
    declare(ROOT, f'#include "{header}"')
    declare(ROOT, LISTS + METADATA)
    metadata = json.loads(str(ROOT.judge_metadata(file, category)))
    models = [json.loads(text) for _, text in metadata["EDMDefinitions"]]
    model = {
        kind: {name: form for each in models for name, form in each.get(kind, {}).items()}
        for kind in ("components", "datatypes")
    }
    fields = {
        name: type_
        for info in metadata[f"{category}___CollectionTypeInfo"]
        for name, type_ in fields_of(info, model["datatypes"])
    }
    used = {
        info["dataType"].removesuffix("Collection") for info in metadata[f"{category}___CollectionTypeInfo"]
    }
    declare(ROOT, "\n".join(classes(model, used)))
    declare(ROOT, reading(fields))
    print(json.dumps(metadata))
    print(str(ROOT.judge_entries(file, category)), end="")


def declare(root: Any, code: str) -> None:
    """Compile C++ code in ROOT's interpreter."""
    if not root.gInterpreter.Declare(code):
        raise SystemExit("generated code does not compile")


def members(form: Json, section: str) -> list[tuple[str, str]]:
    """The types and names of declared members."""
    found = [MEMBER.match(text) for text in form.get(section) or []]
    return [(match[1], match[2]) for match in found if match is not None]


def classes(model: Json, used: set[str]) -> Iterator[str]:
    """The components of a model, and its datatypes as they are stored."""
    for name, form in model["components"].items():
        yield from structure(name, members(form, "Members"))
    for name in sorted(used & set(model["datatypes"])):
        form = model["datatypes"][name]
        many = members(form, "VectorMembers") + members(form, "OneToManyRelations")
        ends = [("unsigned int", f"{each}_{end}") for _, each in many for end in ("begin", "end")]
        yield from structure(f"{name}Data", members(form, "Members") + ends)


def structure(name: str, fields: list[tuple[str, str]]) -> Iterator[str]:
    """A class, and its objects as JSON."""
    space, _, plain = name.rpartition("::")
    body = " ".join(f"{type_} {each}{{}};" for type_, each in fields)
    parts = (f'out << "\\"{each}\\": "; json(out, value.{each});' for _, each in fields)
    comma = ' out << ", "; '
    shown = f'using judge::json; out << "{{"; {comma.join(parts)} out << "}}";'
    code = f"struct {plain} {{ {body} }}; void json(std::ostream &out, const {plain} &value) {{ {shown} }}"
    yield f"namespace {space} {{ {code} }}" if space else code


def fields_of(info: Json, datatypes: Json) -> Iterator[tuple[str, str]]:
    """The fields that podio reads of a collection, and the types that it binds to them."""
    name, ids = info["name"], "std::vector<podio::ObjectID>"
    if info["isSubset"]:
        yield f"{name}_objIdx", ids
        return
    yield name, info["storageType"]
    form = datatypes.get(info["dataType"].removesuffix("Collection"), {})
    for type_, each in members(form, "VectorMembers"):
        yield f"_{name}_{each}", f"std::vector<{type_}>"
    relations = members(form, "OneToManyRelations") + members(form, "OneToOneRelations")
    is_link = info["dataType"].startswith("podio::Link")
    for each in ("from", "to") if is_link else (relation for _, relation in relations):
        yield f"_{name}_{each}", ids


def reading(fields: dict[str, str]) -> str:
    """A function that binds all fields, loads each entry, and returns what was read."""
    numbered = dict(enumerate(fields.items()))
    bind = "".join(
        f'{type_} v{n}; entry->BindRawPtr("{name}", &v{n});\n' for n, (name, type_) in numbered.items()
    )
    show = "".join(
        f'out << "\\"{name}\\": "; judge::json(out, v{n}); out << ", ";\n'
        for n, (name, _) in numbered.items()
    )
    parameters = [
        f'judge::view<std::vector<{of}>>(out, *reader, "GP{kind}{part}", n);'
        for kind, type_ in PARAMETERS.items()
        for part, of in (("Keys", "std::string"), ("Values", f"std::vector<{type_}>"))
    ]
    return f"""
std::string judge_entries(const char *file, const char *category) {{
  ROOT::RNTupleDescriptor::RCreateModelOptions options;
  options.SetEmulateUnknownTypes(true);
  auto reader = ROOT::RNTupleReader::Open(options, category, file);
  auto entry = reader->GetModel().CreateEntry();
  {bind}
  auto out = judge::text();
  for (std::uint64_t n = 0; n < reader->GetNEntries(); ++n) {{
    reader->LoadEntry(n, *entry);
    out << "{{";
    {show}
    {' out << ", "; '.join(parameters)}
    out << "}}\\n";
  }}
  return out.str();
}}
"""


if __name__ == "__main__":
    main(*sys.argv[1:])

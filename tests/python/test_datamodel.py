"""Data models written for podio: the stored type of each part, and the errors for malformed models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot

import femtobarn as fb
from femtobarn.datamodel.members import parse_member
from femtobarn.importers.samples import Samples

TOY = """
options:
  getSyntax: true
schema_version: 3
components:
  toy::Box:
    Members:
      - toy::Point low
      - toy::Point high
      - std::array<toy::Point, 2> marks
  toy::Point:
    Description: "A place"
    Members:
      - float x [mm] // across
      - float y{1.5f} [mm]
    ExtraCode:
      declaration: "float sum() const { return x + y; }"
datatypes:
  toy::Hit:
    Description: "A hit"
    Author: "Nobody"
    Members:
      - std::uint64_t cellID // of the readout
      - unsigned long long   time{42} [ns]
      - std::array<float, 3> errors{1, 2, 3} // per axis
      - toy::Point at{2.0, 3.0}
      - bool good{true}
      - std::string label{"none"}
      - int limit{std::numeric_limits<int>::max()} /// only a compiler can tell
    VectorMembers:
      - toy::Box boxes
      - std::int16_t samples // of the pulse
  toy::OtherHit:
    Description: "Another hit"
    Author: "Nobody"
    Members: [int n]
  toy::Track:
    Description: "A track"
    Author: "Nobody"
    OneToOneRelations:
      - toy::Track previous // segment
    OneToManyRelations:
      - toy::AnyHit hits // on the track
interfaces:
  toy::AnyHit:
    Description: "Hit of any kind"
    Author: "Nobody"
    Members: [int n]
    Types: [toy::Hit, toy::OtherHit]
links:
  toy::HitTrackLink:
    Description: "Which track a hit is of"
    Author: "Nobody"
    From: toy::Hit
    To: toy::Track
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    return fb.create(tmp_path / "model.fed")


def test_each_part_of_a_model_is_stored_as_its_type(toy: Path) -> None:
    model = fb.load_model(toy)
    assert list(model) == ["toy::Hit", "toy::OtherHit", "toy::Track", "toy::HitTrackLink"]
    assert model.interfaces == {"toy::AnyHit": ("toy::Hit", "toy::OtherHit")}
    hit = model.definitions["toy::Hit"]
    assert hit.version == 3
    assert {field.name: str(field.type) for field in hit.fields} == {
        "cellID": "uint64",
        "time": "uint64",
        "errors": "array[float32, 3]",
        "at": "toy::Point",
        "good": "bool",
        "label": "string",
        "limit": "int32",
        "boxes": "list[toy::Box]",
        "samples": "list[int16]",
    }
    track = {field.name: str(field.type) for field in model.definitions["toy::Track"].fields}
    assert track == {"previous": "link[toy::Track]", "hits": "list[link[toy::AnyHit]]"}
    link = {field.name: str(field.type) for field in model.definitions["toy::HitTrackLink"].fields}
    assert link == {"from": "link[toy::Hit]", "to": "link[toy::Track]", "weight": "float32"}
    assert str(hit.resolve("boxes.marks")) == "list[toy::Point]"


def test_comments_units_and_defaults_are_kept(toy: Path) -> None:
    fields = {field.name: field for field in fb.load_model(toy).definitions["toy::Hit"].fields}
    assert fields["samples"].description == "of the pulse"
    assert fields["time"].description == "[ns]"
    assert fields["limit"].description == "only a compiler can tell"
    assert (fields["time"].default, fields["good"].default, fields["label"].default) == (42, True, "none")
    assert fields["limit"].default is None


def test_objects_have_the_defaults_of_the_model(toy: Path) -> None:
    model = fb.load_model(toy)
    hit = model.Hit(cellID=7)
    assert (hit.cellID, hit.time, hit.errors, hit.good, hit.limit, hit.samples) == (
        7,
        42,
        [1, 2, 3],
        True,
        0,
        [],
    )
    assert hit.at == model.Point(x=2.0, y=3.0)
    assert model.Box().low == model["toy::Point"](x=0.0, y=1.5)
    assert len(model.Box().marks) == 2
    assert model.Hit().samples is not model.Hit().samples
    with pytest.raises(fb.InvalidError, match=r"toy::Hit has no member 'tme'; did you mean 'time'"):
        model.Hit(tme=1)
    with pytest.raises(AttributeError, match="no class 'Hot'"):
        _ = model.Hot


def test_objects_are_stored_and_read_with_their_relations(toy: Path, fed: fb.Federation) -> None:
    model = fed.define(toy)
    with fed.transaction() as txn:
        run = txn.database("run", create=True)
        hits = run.container("hits", model.Hit, create=True)
        others = run.container("others", model.OtherHit, create=True)
        tracks = run.container("tracks", model.Track, create=True)
        links = run.container("links", model.HitTrackLink, create=True)
        boxes = [model.Box(high=model.Point(x=9.0)), model.Box()]
        first = hits.append(model.Hit(cellID=1, boxes=boxes, samples=[1, -2]))
        second = others.append(model.OtherHit(n=5))
        track = tracks.append(model.Track(hits=[first, second]))
        tracks.append(model.Track(previous=track))
        links.append(model.HitTrackLink(**{"from": first, "to": track}))
    view = fed["run/tracks"]
    assert [hit.get().class_name for hit in view[0].hits] == ["toy::Hit", "toy::OtherHit"]
    assert view[0].hits[0].boxes.high.x.tolist() == [9.0, 0.0]
    assert view[0].hits[0].boxes.marks.y.tolist() == [[1.5, 1.5]] * 2
    assert view[0].hits[0].samples.tolist() == [1, -2]
    assert view[1].previous.get() == view[0]
    assert (fed["run/links"][0]["from"].cellID, fed["run/links"][0].weight) == (1, 1.0)


def test_define_twice_changes_nothing(toy: Path, fed: fb.Federation) -> None:
    fed.define(toy)
    head = fed.head()
    assert fed.define(toy).definitions == fed.define(fb.load_model(toy)).definitions
    assert fed.head() == head
    assert {each["name"]: each["version"] for each in fed.classes()} == dict.fromkeys(fb.load_model(toy), 3)


def changed(toy: Path, *changes: tuple[str, str]) -> Path:
    text = TOY
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    toy.write_text(text)
    return toy


def test_changed_class_needs_a_higher_schema_version(toy: Path, fed: fb.Federation) -> None:
    fed.define(toy)
    more = ("Members: [int n]\n  toy::Track", "Members: [int n, int m]\n  toy::Track")
    with pytest.raises(
        fb.InvalidError, match=r"toy::OtherHit differs from version 3.*schema_version above 3"
    ):
        fed.define(changed(toy, more))
    model = fed.define(changed(toy, more, ("schema_version: 3", "schema_version: 5")))
    versions = {name: definition.version for name, definition in model.definitions.items()}
    assert versions == {"toy::Hit": 3, "toy::OtherHit": 5, "toy::Track": 3, "toy::HitTrackLink": 3}


def test_stored_objects_evolve_with_the_model(toy: Path, fed: fb.Federation) -> None:
    model = fed.define(toy)
    with fed.transaction() as txn:
        hits = txn.database("run", create=True).container("hits", model.Hit, create=True)
        hits.append(model.Hit(cellID=1, at=model.Point(x=4.0)))
    more = ("- bool good{true}", "- bool good{true}\n      - int quality{-3} // of the fit")
    newer = fed.define(changed(toy, more, ("schema_version: 3", "schema_version: 4")))
    with fed.transaction() as txn:
        hits = txn.database("run").container("hits", newer.Hit, evolve=True)
        hits.append(newer.Hit(cellID=2, quality=9))
    view = fed["run/hits"]
    assert view["quality"].to_list() == [-3, 9]
    assert (view[0].at.x, view[1].at.y, view.definition.version) == (4.0, 3.0, 4)


def test_changed_comment_needs_no_new_version(toy: Path, fed: fb.Federation) -> None:
    fed.define(toy)
    head = fed.head()
    fed.define(changed(toy, ("of the readout", "of the whole readout")))
    assert fed.head() == head


def test_a_model_may_use_the_types_of_another(toy: Path, fed: fb.Federation, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "datatypes:\n  mine::Thing:\n    Description: d\n    Author: a\n"
        "    Members: [toy::Point at]\n    OneToOneRelations: [toy::AnyHit hit]\n"
    )
    with pytest.raises(fb.InvalidError, match="'toy::Point', which is not a component"):
        fed.define(mine)
    model = fed.define(mine, upstream=toy)
    assert list(model) == ["mine::Thing"]
    assert model.Thing().at.y == 1.5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            ("toy::Point low", "toy::Pint low"),
            r"'toy::Pint', which is not a component; did you mean 'toy::Point'",
        ),
        (("toy::Point low", "toy::Box low"), "component toy::Box contains itself"),
        (("toy::Point low", "toy::Hit low"), "use a relation for objects of a datatype"),
        (("toy::Track previous", "toy::Truck previous"), "'toy::Truck', which is not a datatype"),
        (("bool good{true}", "bool time"), "two members have the name 'time'"),
        (("bool good{true}", "bool"), "'bool' cannot be read"),
        (("bool good{true}", "[1]"), r"declarations must be strings, not \[1\]"),
        (("std::array<float, 3>", "std::array<float, 0>"), "an array of size 0"),
        (("VectorMembers", "VectorMember"), "'VectorMember' does not exist; did you mean 'VectorMembers'"),
        (("From: toy::Hit", "Frm: toy::Hit"), "'None', which is not a datatype"),
        (("toy::HitTrackLink:", "toy::Hit:"), "class toy::Hit is both a datatype and a link"),
        (("toy::HitTrackLink:", "toy::Box:"), "class toy::Box is both a component and a link"),
        (("toy::Track:", "toy::Box:"), "class toy::Box is both a component and a datatype"),
        (("interfaces:", "interface:"), "section 'interface' does not exist; did you mean 'interfaces'"),
        (("schema_version: 3", "schema_version: new"), "invalid schema_version 'new'"),
        (("Members: [int n]", "Members: 7"), "Members must be a list, not 7"),
        (("components:", "components: ["), "is not YAML: "),
    ],
)
def test_malformed_model_is_refused_with_class_and_declaration(
    toy: Path, change: tuple[str, str], reason: str
) -> None:
    with pytest.raises(fb.InvalidError, match=reason):
        fb.load_model(changed(toy, change))


def test_files_that_are_not_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edm.yaml").write_text("just: text")
    with pytest.raises(fb.InvalidError, match="is not a data model"):
        fb.load_model(tmp_path / "edm.yaml")
    with pytest.raises(fb.NotFoundError, match=r"did you mean 'edm\.yaml'"):
        fb.load_model(tmp_path / "edn.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(fb.InvalidError, match="is not a text file"):
        fb.load_model(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(fb.InvalidError, match="is not YAML"):
        fb.load_model(tmp_path / "y.yaml")


@pytest.mark.parametrize("of", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merges"])
def test_aliases_that_stand_for_too_much_are_refused(of: str, tmp_path: Path) -> None:
    """A file of a kilobyte took all memory: each line stands for ten of the line before."""
    lines = ["a0: &a0 {x: 1}"]
    for number in range(1, 20):
        lines.append(f"a{number}: &a{number} " + of.format(", ".join([f"*a{number - 1}"] * 10)))
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    with pytest.raises(fb.InvalidError, match="aliases stand for more than"):
        fb.load_model(tmp_path / "bomb.yaml")
    (tmp_path / "itself.yaml").write_text("components: &all [*all]")
    with pytest.raises(fb.InvalidError, match="aliases stand for more than"):
        fb.load_model(tmp_path / "itself.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    with pytest.raises(fb.InvalidError, match="is not YAML: it is nested too deeply"):
        fb.load_model(tmp_path / "deep.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(fb.InvalidError, match="more than 1,048,576 bytes"):
        fb.load_model(tmp_path / "large.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "!!bool perhaps",
        "!!int x",
        "!!timestamp x",
        "2026-99-99",
        "1" * 5000,
        "? [a]\n: b",
        "'\\0'",
        "\0",
        "!!float []",
    ],
)
def test_values_that_yaml_cannot_have_are_refused(text: str, tmp_path: Path) -> None:
    """The errors of PyYAML for numbers, dates and words behind tags were let through as they are."""
    (tmp_path / "wrong.yaml").write_text(f"components:\n  {text}\n")
    with pytest.raises(fb.InvalidError):
        fb.load_model(tmp_path / "wrong.yaml")


@pytest.mark.parametrize("leaf_first", [True, False])
def test_components_that_stand_for_too_much_are_refused(leaf_first: bool) -> None:
    """A kilobyte of components, each with two of the next, took all memory, and a long chain the stack."""
    doubling = {f"C{n}": {"Members": [f"C{n + 1} a", f"C{n + 1} b"]} for n in range(30)}
    chain = {f"C{n}": {"Members": [f"C{n + 1} a"]} for n in range(5000)}
    for components, why in ((doubling, "is too large"), (chain, "nested in more than|is too large")):
        components[f"C{len(components)}"] = {"Members": ["float x"]}
        names = sorted(components, key=lambda name: int(name[1:]), reverse=leaf_first)
        with pytest.raises(fb.InvalidError, match=why):
            fb.load_model({"components": {name: components[name] for name in names}})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("std::array<float, 4000000000> x", "array of size 4000000000: must be 1 to 100,000"),
        ("std::array<C, 100000000000> x", "must be 1 to 100,000"),
        ("float x" + " " * 3900 + "!", "cannot be read"),
        ("float x // " + "y" * 4000, "more than 4,000 characters"),
    ],
)
def test_declarations_that_take_too_much_are_refused(text: str, why: str) -> None:
    """Arrays were made in memory, and the time to refuse a text grew with the fourth power of its blanks."""
    components = {"C": {"Members": ["float y"]}, "D": {"Members": [text]}}
    with pytest.raises(fb.InvalidError, match=why):
        fb.load_model({"components": components})


@pytest.mark.parametrize("item", ["C", "float"])
@pytest.mark.parametrize("section", ["Members", "VectorMembers"])
def test_arrays_that_take_too_much_together_are_refused(item: str, section: str) -> None:
    """Each array of 30 bytes of YAML took 38 MB: 300 of a component took 11 GB, and were no error."""
    components = {"C": {"Members": ["float y"]}, "D": {"Members": [f"std::array<{item}, 60000> a"]}}
    form = {section: [f"std::array<{item}, 40000> b"]}
    fb.load_model({"components": components, "datatypes": {"E": form}})
    form[section].append(f"std::array<{item}, 1> c")
    with pytest.raises(fb.InvalidError, match=r"E: with .* c', the arrays of .* have 100,001 items"):
        fb.load_model({"components": components, "datatypes": {"E": form}})


@pytest.mark.parametrize(
    ("text", "type_", "name", "default"),
    [
        ("unsigned long  n", "unsigned long", "n", None),
        ("long long int_", "long long", "int_", None),
        ("::a::B b", "a::B", "b", None),
        ("float x{-1e-3f}", "float", "x", -1e-3),
        ("int x{}", "int", "x", None),
        ("int x{0x10}// hex", "int", "x", 16),
        ("std::array<int,2> x{1, 2} [e]", "int", "x", (1, 2)),
        ("float x[GeV]//", "float", "x", None),
    ],
)
def test_declarations_are_parsed(text: str, type_: str, name: str, default: Any) -> None:
    member = parse_member(text, "here")
    assert (member.type, member.name, member.default) == (type_, name, default)


@pytest.mark.network
def test_edm4hep_is_defined_and_stored(files: Samples, fed: fb.Federation, tmp_path: Path) -> None:
    """EDM4hep as it stands in a file that podio wrote."""
    with uproot.open(files.path("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root")) as file:
        text = file["podio_metadata"]["EDMDefinitions/EDMDefinitions._1"].array(library="np")[0][0]
    path = tmp_path / "edm4hep.yaml"
    path.write_text(text)
    model = fed.define(path)
    body = json.loads(text)
    assert list(model) == [*body["datatypes"], *body["links"]]
    assert len(model) > 20
    values = {name: an_object(cls) for name, cls in model.items()}
    with fed.transaction() as txn:
        database = txn.database("event", create=True)
        for name, cls in model.items():
            container = database.container(name.replace("::", "_"), cls, create=True)
            assert container.append(values[name]).entry == 0
        particles = database.container("edm4hep_MCParticle")
        mother = fb.Oid(particles.database_id, particles.container_id, 0)
        particles.append(model.MCParticle(parents=[mother], momentum=model.Vector3d(x=1.0)))
        states = [model.TrackState(D0=0.5), model.TrackState(D0=1.5)]
        tracks = database.container("edm4hep_Track")
        track = tracks.append(model.Track(trackStates=states, subdetectorHitNumbers=[3, 4]))
        links = database.container("edm4hep_TrackMCParticleLink")
        links.append(model.TrackMCParticleLink(**{"from": track, "to": mother}, weight=0.25))
    for name, cls in model.items():
        read = fed[f"event/{name.replace('::', '_')}"][0]
        for field in cls._makers:
            assert plain(read[field]) == plain(getattr(values[name], field)), (name, field)
    particle = fed["event/edm4hep_MCParticle"][1]
    assert (particle.parents[0].PDG, particle.momentum.x, particle.helicity) == (11, 1.0, 9)
    link = fed["event/edm4hep_TrackMCParticleLink"][1]
    assert link["from"].trackStates.D0.tolist() == [0.5, 1.5]
    assert (link["from"].subdetectorHitNumbers.tolist(), link.to.get().oid) == ([3, 4], mother)


def an_object(cls: Callable[..., Any]) -> Any:
    """An object with its numbers counted up from 11."""
    made = cls()
    for count, (name, value) in enumerate(vars(made).items(), 11):
        if isinstance(value, bool | int | float):
            setattr(made, name, type(value)(count))
    return made


def plain(value: Any) -> Any:
    """A value as Python's own types."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if type(value).__module__.startswith("femtobarn.datamodel"):
        return {name: plain(each) for name, each in vars(value).items()}
    return (
        list(value)
        if isinstance(value, list) or (hasattr(value, "__len__") and not isinstance(value, str))
        else value
    )

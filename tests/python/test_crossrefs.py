"""Links by indices to elements of the same object: NanoAOD's, podio's and ATLAS's, imported and followed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

pytest.importorskip("uproot", reason="the extra `io` is not installed")

import uproot

import femtobarn as fb
from femtobarn._objects.behaviours import object_class
from femtobarn._schema.types import Definition, Record
from femtobarn._schema.unions import union
from femtobarn._views.view import View
from femtobarn.cli import main
from femtobarn.definitions import list_of, record

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

MUONS: dict[str, list[Any]] = {"pt": [[50.0, 20.0], [30.0], []], "jetIdx": [[1, -1], [0], []]}
JETS: dict[str, list[Any]] = {"pt": [[80.0, 60.0], [], [40.0]], "muonIdx1": [[-1, 0], [], [0]]}


def write(path: Path, dtype: Any = np.int32, **collections: dict[str, list[Any]]) -> Path:
    """Write a NanoAOD of collections, and an index of the event itself."""
    fields: dict[str, Any] = {"run": np.array([1, 2, 3]), "leading_jetIdx": np.array([0, -1, 0], np.int32)}
    for name, members in collections.items():
        arrays = {each: ak.Array(values) for each, values in members.items()}
        typed = {
            each: ak.values_astype(values, np.float32 if each == "pt" else dtype)
            for each, values in arrays.items()
        }
        fields[name] = ak.zip(typed)
    with uproot.recreate(path) as file:
        file.mktree("Events", {name: ak.Array(values).type.content for name, values in fields.items()})
        file["Events"].extend(fields)
    return path


@pytest.fixture
def events(fed: fb.Federation, tmp_path: Path) -> View:
    fed.import_tree(write(tmp_path / "nano.root", Muon=MUONS, Jet=JETS))
    return fed["nano/Events"]


def test_links_of_all_objects_are_followed_at_once(events: View) -> None:
    assert events["Muon.jet.pt"].to_list() == [[60.0, None], [None], []]
    assert events.arrays("Muon.jet").Muon.jet.to_list()[0] == [{"pt": 60.0, "muonIdx1": 0}, None]
    assert events["Jet.muon1.jet.pt"].to_list() == [[None, 60.0], [], [None]]
    assert events["leading_jet.pt"].to_list() == [80.0, None, 40.0]


def test_conditions_and_computed_columns_lead_through_links(events: View) -> None:
    assert events.entries("any(Muon.jet.pt > 50)").tolist() == [0]
    assert events.entries("Muon[0].jet.pt > 50").tolist() == [0]
    assert events.entries("any(Muon[Muon.jet.pt > 50].pt > 10)").tolist() == [0]
    assert events.entries("leading_jet is None").tolist() == [1]
    # The selected objects are not neighbours, so that awkward has them as indices of all.
    selected = events.arrays(["Muon.jet.pt", "Jet.muon1.pt"], where="any(Jet.pt > 0)")
    assert selected.Muon.jet.pt.to_list() == [[60.0, None], []]
    assert selected.Jet.muon1.pt.to_list() == [[None, 50.0], [None]]
    ratios = events.arrays("ratio", aliases={"ratio": "max(Muon.pt / Muon.jet.pt)"})
    assert ratios.ratio.to_list() == [pytest.approx(50 / 60), None, None]


def test_links_are_those_of_vectors_too_of_which_components_are_missing(events: View) -> None:
    @fb.persistent
    class Muon(fb.vector):
        pt: float
        eta: float
        phi: float
        mass: float

    assert issubclass(events._collections._behavior_now()["*", "Muon"], Muon)  # type: ignore[union-attr]
    assert events[0].Muon.jet.pt.to_list() == [60.0, None]
    assert events[0].Muon[0].jet.pt == 60.0


def test_explanations_list_the_fields_behind_links(fed: fb.Federation, events: View) -> None:
    for view in (events, fed.collection("nano/Events"), fed.collection("nano/Events")[[2, 0]]):
        told = view.explain(["run", "Muon.jet.pt"], "run > 0 and any(Muon.jet.pt > 50)")
        assert told.fields == ("run", "Muon.jetIdx", "Jet.pt")
        assert told.later == ("Muon.jetIdx", "Jet.pt")


def test_links_of_a_friend_lead_to_its_own_collections(fed: fb.Federation, tmp_path: Path) -> None:
    fed.import_tree(write(tmp_path / "nano.root", Muon=MUONS, Jet=JETS))
    jets = JETS | {"pt": [[8.0, 6.0], [], [4.0]]}
    fed.import_tree(write(tmp_path / "new.root", Muon=MUONS, Jet=jets))
    both = fed.friend("nano/Events", new="new/Events")
    assert both["Muon.jet.pt"].to_list() == [[60.0, None], [None], []]
    assert both["new.Muon.jet.pt"].to_list() == [[6.0, None], [None], []]
    assert both["new.Jet.muon1.jet.pt"].to_list() == [[None, 6.0], [], [None]]
    assert both.entries("new.leading_jet.pt < Jet[0].pt and any(new.Muon.jet.pt < 7)").tolist() == [0]
    assert both.hist({"new.Muon.jet.pt": [0, 5, 10]}, where="any(Muon.jet.pt > 50)").values().tolist() == [
        0,
        1,
    ]
    assert both[0].new.Muon.jet.pt.to_list() == [6.0, None]
    assert both[0].Muon.jet.pt.to_list() == [60.0, None]
    several = fb.concat([both, both[:1]])
    assert several["new.Muon.jet.pt"].to_list() == [[6.0, None], [None], [], [6.0, None]]


def test_histograms_count_fields_of_elements_with_those_of_their_owners(events: View) -> None:
    assert events.hist({"Muon.jet.pt": [0, 50, 100]}).values().tolist() == [0, 1]
    both = events.hist({"Muon.pt": [0, 40, 60], "Muon.jet.pt": [0, 50, 100]})
    assert both.values().tolist() == [[0, 0], [0, 1]]
    assert events.hist({"Muon.jet.pt": [0, 100]}, weight="Muon.pt").values().tolist() == [50]


def test_fields_of_elements_are_written_to_files(events: View, tmp_path: Path) -> None:
    wanted, behind = ["run", "Muon.pt", "Muon.jet.pt"], [[60.0, None], [None], []]
    for suffix in ("parquet", "root"):
        path = tmp_path / f"events.{suffix}"
        assert events.export(path, wanted) == 3
        assert events.export(tmp_path / f"alone.{suffix}", "Muon.jet.pt", "any(Muon.jet.pt > 30)") == 1
        with fb.create(tmp_path / f"{suffix}.fed") as other:
            assert other[other.import_file(path).container]["Muon_jet_pt"].to_list() == behind
            alone = other[other.import_file(tmp_path / f"alone.{suffix}").container]
            assert alone["Muon.jet.pt"].to_list() == [[60.0, None]]


def test_a_link_of_one_object_leads_to_its_element(events: View) -> None:
    event = events[0]
    assert event.Muon[0].jet.pt == 60.0
    assert event.Muon[1].jet is None
    assert event.Muon.jet.pt.to_list() == [60.0, None]
    assert event.Muon[::-1].jet.pt.to_list() == [None, 60.0]
    assert event.Muon[0].jet.muon1.pt == 50.0
    assert event.leading_jet.pt == 80.0
    assert events[1].leading_jet is None
    assert [each.Muon.jet.pt.to_list() for each in events] == [[60.0, None], [None], []]


def test_objects_with_links_are_of_the_class_of_other_objects(events: View) -> None:
    """A class of theirs in Python between made reading a number three times as slow."""
    event: Any = events[0]
    # Whichever class of this name another test has declared.
    assert type(event) is object_class(events.definition)
    assert event["Muon"][0].jet.pt == 60.0
    assert not hasattr(event, "trailing_jet")
    with pytest.raises(AttributeError, match="did you mean"):
        _ = event.Mion
    with pytest.raises(fb.NotFoundError):
        _ = event["leading_jet"]


def test_an_earlier_import_gets_links_when_its_class_evolves(fed: fb.Federation) -> None:
    """Indices were plain numbers in the classes of imports before they became links."""
    jets, pt = list_of(record("Jet", ("pt", "float32"))), {"pt": 60.0}
    muons = [list_of(record("Muon", ("jetIdx", of))) for of in ("int16", element("int16", "Jet"))]
    old = store(fed, "Event", {"Jet": jets, "Muon": muons[0]}, {"Jet": [[pt]], "Muon": [[{"jetIdx": 0}]]})
    with pytest.raises(AttributeError, match="jet"):
        _ = old[0].Muon[0].jet
    form = old.definition.to_json() | {"version": 2}
    form["fields"][1]["type"] = muons[1]
    with fed.transaction() as txn:
        txn.database("d").container("Event", form, evolve=True)
    assert fed["d/Event"][0].Muon[0].jet.pt == 60.0
    assert fed["d/Event"]["Muon.jet.pt"].to_list() == [[60.0]]


def test_indices_are_read_and_pickled_as_the_numbers_that_they_are(events: View) -> None:
    assert events["Muon.jetIdx"].to_list() == MUONS["jetIdx"]
    assert events[0].Muon.jetIdx.to_list() == [1, -1]
    assert events[0].to_dict()["Muon"][0] == {"pt": 50.0, "jetIdx": 1}
    assert pickle.loads(pickle.dumps(events[0].Muon)).jetIdx.to_list() == [1, -1]
    assert pickle.loads(pickle.dumps(events[0])).Muon[0].jet.pt == 60.0
    assert events.entries("any(Muon.jetIdx >= 0)").tolist() == [0, 1]


def element(of: str, collection: str, keys: list[list[Any]] | None = None) -> Any:
    form = {"of": of, "is": "element", "name": collection}
    return {"meaning": form | ({"members": keys} if keys else {})}


def store(fed: fb.Federation, name: str, fields: dict[str, Any], values: dict[str, Any]) -> View:
    form = {"name": name, "fields": [{"name": each, "type": type_} for each, type_ in fields.items()]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container(name, form, create=True).extend(values)
    return fed[f"d/{name}"]


def test_collections_of_one_class_lead_each_to_its_own_elements(fed: fb.Federation) -> None:
    fields: dict[str, Any] = {}
    for name in ("Seeds", "Tracks"):
        ends = [("hits_begin", element("uint32", f"_{name}_hits")), ("hits_end", "uint32")]
        fields[name] = list_of(record("TrackData", *ends))
        fields[f"_{name}_hits"] = list_of("float32")
    track = {"hits_begin": 1, "hits_end": 2}
    values = {"Seeds": [[track]], "_Seeds_hits": [[1, 2]], "Tracks": [[track]], "_Tracks_hits": [[3, 4]]}
    view = store(fed, "Event", fields, values)
    event = view[0]
    assert (event.Seeds.hits.to_list(), event.Tracks.hits.to_list()) == ([[2.0]], [[4.0]])
    assert event.Tracks[0].hits.to_list() == view["Tracks.hits"][0][0].to_list() == [4.0]


def test_members_of_different_collections_lead_no_further(fed: fb.Federation) -> None:
    pairs = [("index", element("int32", "key", [["A", 1], ["B", 2]])), ("key", "int32")]
    fields: dict[str, Any] = {"ids": list_of(record("Id", *pairs))}
    for name in "AB":
        part = record("Part", ("jetIdx", element("int32", f"{name}Jets")))
        fields |= {name: list_of(record("Hit", ("part", part))), f"{name}Jets": list_of("float32")}
    hits = [[{"part": {"jetIdx": 0}}]]
    ids = [[{"index": 0, "key": 1}, {"index": 0, "key": 2}]]
    event = store(fed, "Event", fields, {"ids": ids, "A": hits, "B": hits, "AJets": [[1]], "BJets": [[2]]})[0]
    assert (event.ids[0].part.jet, event.ids[1].part.jet) == (1.0, 2.0)
    assert event.ids.part.jetIdx.to_list() == [0, 0]
    with pytest.raises(AttributeError, match="jet"):
        _ = event.ids.part.jet


def test_conditions_compare_values_behind_indices_by_their_meaning(fed: fb.Federation) -> None:
    when = {"meaning": {"of": "int64", "is": "datetime"}}
    quality = {
        "meaning": {"of": "int32", "is": "enum", "name": "Quality", "members": [["GOOD", 4], ["BAD", 7]]}
    }
    fields = {
        "Muon": list_of(record("Muon", ("jetIdx", element("int16", "Jet")))),
        "Jet": list_of(record("Jet", ("when", when), ("quality", quality))),
    }
    early, late = (np.datetime64(f"1970-01-01T00:00:0{second}") for second in (1, 3))
    jets = [[{"when": early, "quality": 4}], [{"when": late, "quality": 7}]]
    view = store(fed, "Event", fields, {"Muon": [[{"jetIdx": 0}], [{"jetIdx": 0}]], "Jet": jets})
    assert view.entries("any(Muon.jet.when > '1970-01-01 00:00:02')").tolist() == [1]
    assert view.entries("any(Muon.jet.quality == 'GOOD')").tolist() == [0]


def test_links_to_a_missing_collection_lead_nowhere(fed: fb.Federation) -> None:
    jets = {"optional": list_of(record("Jet", ("pt", "float32")))}
    muons = list_of(record("Muon", ("jetIdx", element("int16", "Jet"))))
    values = {"Jet": [None, [{"pt": 5.0}]], "Muon": 2 * [[{"jetIdx": 0}]]}
    view = store(fed, "Event", {"Jet": jets, "Muon": muons}, values)
    assert view["Muon.jet.pt"].to_list() == [[None], [5.0]]
    assert [each.Muon.jet.pt.to_list() for each in view] == [[None], [5.0]]
    assert view[0].Muon[0].jet is None


def test_keys_that_stand_for_other_collections_in_another_file_are_numbers() -> None:
    def of(*keys: list[Any]) -> Record:
        form = record(
            "Id", ("index", element("int32", "collectionID", list(keys))), ("collectionID", "int32")
        )
        fields = [{"name": "ids", "type": list_of(form)}]
        return Definition.from_json({"name": "Event", "fields": fields}).record

    ours = of(["A", 1], ["B", 2])
    agreeing: Any = union([("one", ours), ("other", of(["C", 3]))]).by_name["ids"]
    assert str(agreeing.item.by_name["index"]) == "element[A | B | C]"
    for theirs in (of(["B", 1]), of(["A", 2]), of(["A", 3])):
        merged: Any = union([("one", ours), ("other", theirs)]).by_name["ids"]
        assert str(merged.item.by_name["index"]) == "int32"


def test_misspelt_members_of_elements_are_refused_with_near_misses(events: View) -> None:
    with pytest.raises(fb.NotFoundError, match="'ptt' does not exist in Jet; did you mean 'pt'"):
        events.arrays("Muon.jet.ptt")
    with pytest.raises(fb.NotFoundError, match=r"where .*'jett' does not exist in Muon"):
        events.entries("any(Muon.jett.pt > 1)")
    with pytest.raises(AttributeError, match="jett"):
        _ = events[0].Muon.jett


def test_objects_of_a_declared_class_have_its_methods_and_lead_to_each_other(events: View) -> None:
    @fb.persistent(name="Muon")
    class Declared:
        pt: fb.float32
        jetIdx: fb.int32

        def isolation(self) -> Any:
            jet: Any = getattr(self, "jet")  # noqa: B009 - no member that a checker knows
            return self.pt / jet.pt

    assert Declared.__name__ == "Declared"
    assert events[0].Muon[0].isolation() == pytest.approx(50 / 60)


def test_links_beyond_the_collection_lead_nowhere_and_are_counted(fed: fb.Federation, tmp_path: Path) -> None:
    muons = MUONS | {"jetIdx": [[1, 2], [0], []]}
    done = fed.import_tree(write(tmp_path / "nano.root", Muon=muons, Jet=JETS))
    assert done.lost == {"Muon.jetIdx": 2, "Jet.muonIdx1": 1}
    assert fed["nano/Events"]["Muon.jet.pt"].to_list() == [[60.0, None], [None], []]
    assert fed["nano/Events"]["Muon.jetIdx"].to_list() == muons["jetIdx"]


def test_indices_without_a_collection_stay_numbers_for_a_reason(fed: fb.Federation, tmp_path: Path) -> None:
    muons = {"pt": MUONS["pt"]} | dict.fromkeys(["jetIdx", "jetIdxG", "svIdx", "tkIdx"], MUONS["jetIdx"])
    done = fed.import_tree(write(tmp_path / "nano.root", Muon=muons, SV={"pt": JETS["pt"]}))
    assert done.links == {}
    assert list(done.unlinked) == ["leading_jetIdx", *(f"Muon.{each}" for each in list(muons)[1:])]
    assert done.unlinked["Muon.tkIdx"] == "the tree has no collection 'tk'"
    assert "all events" in done.unlinked["Muon.jetIdxG"]
    assert "before" in done.unlinked["Muon.svIdx"]


def test_a_member_overrides_a_link_of_the_same_name(fed: fb.Federation, tmp_path: Path) -> None:
    muons = MUONS | {"jet": MUONS["jetIdx"]}
    done = fed.import_tree(write(tmp_path / "nano.root", Muon=muons, Jet=JETS))
    assert done.unlinked == {"Muon.jetIdx": "Muon has a member 'jet'"}
    assert fed["nano/Events"]["Muon.jet"].to_list() == MUONS["jetIdx"]


def test_without_links_the_class_has_numbers_alone(fed: fb.Federation, tmp_path: Path) -> None:
    done = fed.import_tree(write(tmp_path / "nano.root", Muon=MUONS, Jet=JETS), links=False)
    assert (done.links, done.unlinked, done.lost) == ({}, {}, {})
    assert fed["nano/Events"].typenames()["Muon.jetIdx"] == "int32"


def test_files_with_indices_of_other_widths_have_the_same_links(fed: fb.Federation, tmp_path: Path) -> None:
    old = write(tmp_path / "old.root", np.int32, Muon=MUONS, Jet=JETS)
    new = write(tmp_path / "new.root", np.int16, Muon=MUONS, Jet=JETS)
    without = write(tmp_path / "without.root", np.int16, Muon=MUONS)
    fed.import_trees([old, new], database="both")
    assert fed["both/Events"]["Muon.jet.pt"].to_list() == 2 * [[60.0, None], [None], []]
    done = fed.import_trees([old, without], database="some", again=True)
    assert fed["some/Events"].typenames()["Muon.jetIdx"] == "int32"
    assert "Muon.jetIdx" not in done[0].links
    assert done[0].unlinked["Muon.jetIdx"] == "it is not a link in other objects of some/Events"


def test_the_command_reports_fields_that_became_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, place = write(tmp_path / "nano.root", Muon=MUONS, Jet=JETS), str(tmp_path / "lhc.fed")
    fb.create(place).close()
    main(["import", place, str(path)])
    text = capsys.readouterr().out
    assert "linked 3 fields to elements of the same object" in text
    assert "links to missing elements in Muon.jetIdx: 1" in text
    main(["import", place, str(path), "--no-links", "--again", "--database", "plain", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["links"] == {}


def test_links_of_nanoaod_agree_with_indexing_by_awkward(fed: fb.Federation, files: Samples) -> None:
    done = fed.import_tree(files.path("nano_dy.root"), "Events", database="dy")
    view = fed["dy/Events"]
    assert len(done.links) == 21
    assert not done.unlinked
    for link in ("Muon.jetIdx", "Jet.genJetIdx", "GenPart.genPartIdxMother", "FatJet.subJetIdx1"):
        owner, name = link.split(".")
        target = done.links[link]
        arrays = view.arrays(list({owner, target}))
        index = arrays[owner][name]
        valid = ak.mask(index, (index >= 0) & (index < ak.num(arrays[target])))
        followed = view[f"{owner}.{name.replace('Idx', '')}.eta"]
        assert followed.to_list() == arrays[target][valid].eta.to_list()
    event = next(each for each in view if len(each.Muon) and each.Muon[0].jet is not None)
    assert event.Muon[0].jet.pt == event.Jet.pt[event.Muon.jetIdx[0]]


def test_relations_of_podio_lead_to_their_collections(fed: fb.Federation, files: Samples) -> None:
    path = files.path("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root")
    done = fed.import_tree(path, "events", database="ild")
    view = fed["ild/events"]
    arrays = view.arrays(["MCParticles", "_MCParticles_parents"], entry_stop=2)
    parents = view.arrays("MCParticles.parents.PDG", entry_stop=2).MCParticles.parents.PDG
    particles, related = arrays.MCParticles, arrays._MCParticles_parents
    begins, ends = particles.parents_begin, particles.parents_end
    for entry in range(2):
        spans = zip(begins[entry], ends[entry], strict=True)
        expected = [particles.PDG[entry][related.index[entry][begin:end]].to_list() for begin, end in spans]
        assert parents[entry].to_list() == expected
    assert view[0].MCParticles[13].parents.PDG.to_list() == parents[0][13].to_list()
    assert done.links["_RecoMCTruthLink_to"] == "MCParticles"
    assert done.links["MCParticles.parents"] == "_MCParticles_parents"
    found = view[0]._RecoMCTruthLink_to[0]
    assert view[0].MCParticles.PDG[found.index] == found.PDG
    assert view["PandoraPFOs.clusters.energy"][0][0].to_list() == [view[0].PandoraClusters.energy[0]]
    assert not done.lost


def test_element_links_of_atlas_lead_to_containers_of_the_file(fed: fb.Federation, files: Samples) -> None:
    done = fed.import_tree(files.path("PHYSLITE_example.root"), database="lite")
    view = fed["lite/CollectionTree"]
    assert done.links["AnalysisMuons.inDetTrackParticleLink"] == "InDetTrackParticles"
    assert done.links["AnalysisPhotons.TruthLink"] == "TruthElectrons | TruthPhotons"
    assert done.unlinked["AnalysisElectrons.truthParticleLink"].endswith("are not in the tree")
    between = view["AnalysisMuons.inDetTrackParticleLink.phi"] - view["AnalysisMuons.phi"]
    assert ak.mean(abs(between) < 0.01) > 0.9
    event = next(each for each in view if len(each.AnalysisMuons))
    assert abs(event.AnalysisMuons[0].inDetTrackParticleLink.phi - event.AnalysisMuons[0].phi) < 0.01
    several = view["AnalysisPhotons.TruthLink.px"]
    keys, places = (view[f"AnalysisPhotons.TruthLink.m_pers{each}"] for each in ("Key", "Index"))
    electrons, photons = view["TruthElectrons.px"], view["TruthPhotons.px"]
    for entry in range(len(view)):
        for place, key, px in zip(places[entry], keys[entry], several[entry], strict=True):
            targets = {394100163: electrons, 13267281: photons}.get(key)
            assert px == (None if targets is None else targets[entry][place])


@pytest.mark.parametrize(
    ("index", "name", "reason"),
    [
        (element("int32", "Jett"), "jetIdx", "'Muon.jetIdx' leads to 'Jett', which is not a field; .* 'Jet'"),
        (element("int32", "run"), "jetIdx", "leads to 'run', which is int32 and not a list"),
        (element("int32", ""), "jetIdx", "leads to '', which is not a field"),
        (element("float32", "Jet"), "jetIdx", "the index of an element is an integer, not 'float32'"),
        (element("int32", "Jet"), "jet", "'Muon.jet' has no name for its link; call it jetIdx"),
        (element("int32", "Jet"), "jet_begin", "needs 'jet_end', which is not an integer field beside it"),
        (element("int32", "key", [["Jet", 1]]), "jetIdx", "has its key in 'key', which is not an integer"),
        (element("int32", "n", [["Jett", 1]]), "jetIdx", "leads to 'Jett', which is not a field"),
        (element("int32", "n", [["Jet", "one"]]), "jetIdx", "keys of collections are integers"),
        (element("int32", "n", [["Jet"]]), "jetIdx", "pairs of a name and a value"),
        (
            {"meaning": {"of": "int32"}},
            "jetIdx",
            "must have the keys 'of', the type of its values, and 'is', its kind",
        ),
        ({"meaning": {"of": "int32", "is": "element", "name": 7}}, "jetIdx", "must be a string, not 7"),
    ],
)
def test_links_that_lead_nowhere_are_refused_where_they_are_declared(
    fed: fb.Federation, index: Any, name: str, reason: str
) -> None:
    fields = {
        "run": "int32",
        "Jet": list_of(record("Jet", ("pt", "float32"))),
        "Muon": list_of(record("Muon", (name, index), ("n", "int32"))),
    }
    with pytest.raises(fb.InvalidError, match=reason):
        store(fed, "Event", fields, {})
    assert fed.classes() == []

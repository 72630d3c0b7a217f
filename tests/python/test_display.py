"""Drawings of the event display: of GIOD's model, of EDM4hep, of NanoAOD, and of classes of users."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("fastjet", reason="the extra `demo` is not installed")
pytest.importorskip("uproot", reason="the extra `io` is not installed")

import display_events
import uproot

import femtobarn as fb
import femtobarn.display
from femtobarn.cli import main
from femtobarn.definitions import define, list_of, record
from femtobarn.display import RULES, Rule
from femtobarn_demo.sources.detector.geometry import ECAL, HCAL

if TYPE_CHECKING:
    from femtobarn.importers.samples import Samples

ILD = "edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev"


def scene(found: Any, **options: Any) -> dict[str, Any]:
    (only,) = found.display(**options).scenes
    return dict(only)


def group(scene: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in scene["groups"] if each["name"] == name or each["class"] == name)


def linked(scene: dict[str, Any], name: str, source: str) -> dict[str, list[tuple[int, int]]]:
    """The links of a member of a collection, by the collections that they lead to."""
    groups, found = scene["groups"], {}
    for link in scene["links"]:
        if link["name"] == name and groups[link["source"]]["name"] == source:
            target = groups[link["target"]]
            pairs = iter(link["pairs"])
            found[target["class"]] = list(zip(pairs, pairs, strict=True))
    return found


def test_tag_of_giod_shows_all_that_its_links_lead_to(fed: fb.Federation) -> None:
    shown = scene(display_events.store(fed)[0])
    assert shown["title"] == "run1/tags 0"
    forms = {(each["class"], each["form"], each["count"]) for each in shown["groups"] if each["form"]}
    assert forms == {
        ("Tag", "arrow", 1), ("Track", "track", 2), ("Vertex", "point", 1), ("PixelHit", "point", 6),
        ("EcalCell", "tower", 2), ("Cluster", "tower", 1), ("Jet", "cone", 2),
    }  # fmt: skip
    assert group(shown, "Tag")["geometry"] == {"pt": [33.0], "phi": [2.5]}
    assert group(shown, "jets")["table"]["mass"] == [9.0, 3.0]
    assert linked(shown, "tracks", "jets") == {"Track": [(0, 0)]}
    assert linked(shown, "clusters", "jets") == {"Cluster": [(0, 0)]}
    assert linked(shown, "ecal", "clusters") == {"EcalCell": [(0, 0), (0, 1)]}
    assert linked(shown, "pixels", "tracks") == {"PixelHit": [(n // 3, n) for n in range(6)]}


def test_drawn_helix_passes_through_the_hits_of_its_track(fed: fb.Federation) -> None:
    shown = scene(display_events.store(fed)[0])
    track, hits = group(shown, "tracks")["geometry"], group(shown, "PixelHit")["geometry"]
    for number, hit in linked(shown, "pixels", "tracks")["PixelHit"]:
        curvature, phi = track["curvature"][number], track["phi"][number]
        radius = np.hypot(hits["x"][hit], hits["y"][hit])
        length = 2 * np.arcsin(radius * curvature / 2) / curvature
        # The page goes along the circle as this does: to the right if the curvature is positive.
        x = (np.sin(phi) - np.sin(phi - curvature * length)) / curvature
        y = (np.cos(phi - curvature * length) - np.cos(phi)) / curvature
        at = [x, y, track["cot"][number] * length]
        np.testing.assert_allclose(at, [hits[axis][hit] for axis in "xyz"], atol=1e-4)


def test_cells_of_giod_lie_where_the_geometry_of_the_demo_has_them(fed: fb.Federation) -> None:
    cells = group(scene(display_events.store(fed)[0]), "EcalCell")["geometry"]
    eta, phi = display_events.cell_direction()
    np.testing.assert_allclose([cells["eta"][0], cells["phi"][0]], [eta, phi], atol=1e-5)
    np.testing.assert_allclose(cells["pt"][0], 20 / np.cosh(eta), rtol=1e-4)
    rules = {rule.names: rule for rule in RULES}
    assert (ECAL.eta_max, ECAL.cells_phi, HCAL.eta_max, HCAL.cells_phi) == (3.0, 360, 5.0, 72)
    assert rules["HcalCell"].columns is not None


def test_raw_event_shows_referring_objects_on_request(fed: fb.Federation) -> None:
    display_events.store(fed)
    raw = fed["run1/raw_events"][1]
    assert {each["class"] for each in scene(raw)["groups"]} >= {"RawEvent", "PixelHit"}
    assert "Jet" not in {each["class"] for each in scene(raw)["groups"]}
    assert group(scene(raw, referrers=True), "Jet")["geometry"]["pt"] == [121.0, 25.0]


def test_nanoaod_shows_leptons_jets_and_missing_momentum(files: Samples, fed: fb.Federation) -> None:
    path = files.path("nano_dy.root")
    only = [f"*{name}*" for name in ("Jet", "MET", "Electron", "Muon", "PV", "GenPart", "SV")]
    view = fed[fed.import_tree(path, "Events", only=only).container]
    columns = ["Jet_pt", "Jet_phi", "Jet_eta", "MET_pt", "Electron_jetIdx", "Muon_charge", "PV_z"]
    with uproot.open(path) as file:
        wanted = file["Events"].arrays(columns)
    with_muons = next(n for n, charges in enumerate(wanted["Muon_charge"]) if len(charges))
    for entry in (0, 1, with_muons):
        shown, event = scene(view[entry]), wanted[entry]
        jets = group(shown, "Jet")
        assert (jets["form"], jets["kind"]) == ("cone", "jet")
        for name in ("pt", "eta", "phi"):
            np.testing.assert_allclose(jets["geometry"][name], event[f"Jet_{name}"], atol=1e-5)
        assert group(shown, "MET")["geometry"]["pt"] == pytest.approx([event["MET_pt"]], abs=1e-5)
        assert group(shown, "PV")["geometry"]["z"] == pytest.approx([event["PV_z"] / 100], abs=1e-5)
        indices = [(n, int(jet)) for n, jet in enumerate(event["Electron_jetIdx"]) if jet >= 0]
        assert linked(shown, "jetIdx", "Electron").get("Jet", []) == indices
    muons = group(shown, "Muon")
    assert (muons["form"], muons["shown"], group(shown, "GenPart")["shown"]) == ("track", True, False)
    bent = np.sign(muons["geometry"]["curvature"])
    assert bent.tolist() == event["Muon_charge"].to_list()


def test_edm4hep_shows_tracks_clusters_and_the_particles_made_of_them(
    files: Samples, fed: fb.Federation
) -> None:
    path = files.path(f"{ILD}.root")
    fed.import_trees(path, trees=["events", "podio_metadata"], database="ild")
    shown = scene(fed["ild/events"][1])
    with uproot.open(path) as file:
        events = file["events"]
        x = events["PandoraClusters/PandoraClusters.position.x"].array()[1]
        omega = events["_SiTracks_Refitted_trackStates/_SiTracks_Refitted_trackStates.omega"].array()[1]
        begin = events["SiTracks_Refitted/SiTracks_Refitted.trackStates_begin"].array()[1]
    clusters, tracks = group(shown, "PandoraClusters"), group(shown, "SiTracks_Refitted")
    assert (clusters["form"], clusters["count"], tracks["form"], tracks["count"]) == (
        "tower",
        49,
        "track",
        30,
    )
    np.testing.assert_allclose(clusters["geometry"]["x"], np.asarray(x) / 1000, atol=1e-5)
    np.testing.assert_allclose(tracks["geometry"]["curvature"], np.asarray(omega)[begin] * 1000, atol=1e-5)
    particles = group(shown, "PandoraPFOs")
    assert [kind[0] for kind in particles["kinds"] if kind and kind[0] == "muon"] == ["muon", "muon"]
    assert len(linked(shown, "clusters", "PandoraPFOs")["ClusterData"]) == 49
    for particle, track in linked(shown, "tracks", "PandoraPFOs")["TrackData"]:
        momentum = [particles["geometry"][name][particle] for name in ("phi", "curvature")]
        np.testing.assert_allclose(np.sign(momentum[1]), np.sign(tracks["geometry"]["curvature"][track]))
    generated = linked(shown, "RecoMCTruthLink", "PandoraPFOs")["MCParticleData"]
    codes = group(shown, "MCParticles")["table"]["PDG"]
    muons = [n for n, kind in enumerate(particles["kinds"]) if kind and kind[0] == "muon"]
    assert {abs(codes[to]) for particle, to in generated if particle in muons} == {13}
    assert 1.5 < shown["outline"]["radius"] < 2.5


def test_older_edm4hep_shows_the_constituents_of_jets(files: Samples, fed: fb.Federation) -> None:
    """Its file lacks the names of collections."""
    fed.import_trees(files.path("test_FCC_Winter2023.root"), database="fcc")
    shown = scene(fed["fcc/events"][1])
    jets = linked(shown, "particles", "Jet")["ReconstructedParticleData"]
    particles, geometry = group(shown, "ReconstructedParticles"), group(shown, "Jet")["geometry"]
    for jet in range(2):
        chosen = [constituent for number, constituent in jets if number == jet]
        x = sum(particles["table"]["momentum.x"][each] for each in chosen)
        assert x == pytest.approx(geometry["pt"][jet] * np.cos(geometry["phi"][jet]), abs=0.01)
    tracks = group(shown, "EFlowTrack")["geometry"]
    for particle, track in linked(shown, "tracks", "ReconstructedParticles")["TrackData"]:
        # Both are bent by the 2 T that the event says.
        assert particles["geometry"]["curvature"][particle] == pytest.approx(
            tracks["curvature"][track], rel=0.05
        )


def test_class_of_a_user_is_drawn_by_its_fields_or_by_a_rule_of_the_user(
    fed: fb.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    @fb.persistent
    class Shower:
        energy: fb.float32
        x: fb.float32
        y: fb.float32
        z: fb.float32

    @fb.persistent
    class Beam:
        showers: list[Shower]
        px: fb.float32
        py: fb.float32
        pz: fb.float32

    with fed.transaction() as txn:
        beams = txn.database("d", create=True).container("beams", Beam, create=True)
        beams.append(Beam(showers=[Shower(energy=5, x=100, y=0, z=0)], px=3, py=4, pz=0))
    shown = scene(fed["d/beams"][0])
    assert group(shown, "showers")["geometry"] == {"x": [100.0], "y": [0.0], "z": [0.0]}
    assert group(shown, "Beam")["geometry"]["pt"] == [5.0]
    monkeypatch.setattr(
        femtobarn.display.rules, "RULES", [Rule("shower", "tower", "Shower", "#00ff00", unit=0.01)]
    )
    shower = group(scene(fed["d/beams"][0]), "showers")
    assert (shower["form"], shower["kind"]) == ("tower", "shower")
    assert shower["geometry"]["x"] == [1.0]
    assert shower["geometry"]["pt"] == [5.0]


def test_outline_has_the_size_of_points_in_any_unit(fed: fb.Federation) -> None:
    dot = record("Dot", ("x", "float32"), ("y", "float32"), ("z", "float32"))
    form = define("Cloud", ("dots", list_of(dot)))
    dots = [{"x": 900.0 * np.cos(turn), "y": 900.0 * np.sin(turn), "z": 100.0} for turn in range(8)]
    with fed.transaction() as txn:
        txn.database("d", create=True).container("clouds", form, create=True).extend({"dots": [dots]})
    shown = scene(fed["d/clouds"][0])
    assert shown["outline"]["radius"] == pytest.approx(990, rel=1e-3)
    assert group(shown, "dots")["kind"] == "item"


def test_indices_lead_only_to_the_collections_of_their_class(fed: fb.Federation) -> None:
    momentum = [(name, "float32") for name in ("pt", "eta", "phi")]
    index: Any = {"meaning": {"of": "int16", "is": "element", "name": "FatJet"}}
    constituents = record("PFCand", *momentum, ("jetIdx", index), ("svIdx", "int16"))
    lists = [(name, list_of(record(name, *momentum))) for name in ("Jet", "FatJet", "SV")]
    form = define("Event", *lists, ("PFCand", list_of(constituents)))
    one = {"pt": 5, "eta": 0, "phi": 1}
    values = {name: [[one]] for name, _ in lists} | {"PFCand": [[one | {"jetIdx": 0, "svIdx": 0}]]}
    with fed.transaction() as txn:
        txn.database("d", create=True).container("events", form, create=True).extend(values)
    shown = scene(fed["d/events"][0])
    assert linked(shown, "jetIdx", "PFCand") == {"FatJet": [(0, 0)]}
    assert linked(shown, "svIdx", "PFCand") == {}


def test_times_are_shown_as_times(fed: fb.Federation) -> None:
    @fb.persistent
    class Shift:
        begin: datetime
        end: datetime | None

    with fed.transaction() as txn:
        shifts = txn.database("d", create=True).container("shifts", Shift, create=True)
        shifts.append(Shift(begin=datetime(2026, 5, 4, 6, tzinfo=UTC), end=None))
    table = scene(fed["d/shifts"][0])["groups"][0]["table"]
    assert table == {"begin": ["2026-05-04T06:00:00.000000000"], "end": [None]}


def test_wrong_rules_are_refused_with_the_closest_valid_form() -> None:
    with pytest.raises(fb.InvalidError, match="no form 'cones'; did you mean 'cone'"):
        Rule("jet", "cones", "Jet", "#ffffff")
    with pytest.raises(fb.InvalidError, match="not a regular expression"):
        Rule("jet", "cone", "Jet(", "#ffffff")


def test_selection_and_neighbours_make_one_display(fed: fb.Federation) -> None:
    tags = display_events.store(fed)
    titles = [each["title"] for each in tags.display().scenes]
    assert titles == ["run1/tags 0", "run1/tags 1"]
    assert [each["title"] for each in tags.display("met > 40").scenes] == titles[1:]
    assert [each["title"] for each in tags.display(count=1).scenes] == titles[:1]
    with pytest.raises(fb.InvalidError, match="no object to display"):
        tags.display("met > 1000")
    with pytest.raises(fb.InvalidError, match="count=-1"):
        tags.display(count=-1)


def test_field_and_method_called_display_go_first(fed: fb.Federation) -> None:
    @fb.persistent
    class Screen:
        display: int

    @fb.persistent
    class Lamp:
        watts: int

        def display(self) -> str:
            return f"{self.watts} W"

    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        database.container("screens", Screen, create=True).append(Screen(display=7))
        database.container("lamps", Lamp, create=True).append(Lamp(watts=60))
    screen: Any = fed["d/screens"][0]
    lamp: Any = fed["d/lamps"][0]
    assert screen.display == 7
    assert lamp.display() == "60 W"


def test_deleted_targets_and_values_that_json_lacks_are_no_obstacle(fed: fb.Federation) -> None:
    tags = display_events.store(fed)
    with fed.transaction() as txn:
        txn.database("run1").container("jets").delete(tags[0].jets.oid)
    assert "Jet" not in {each["class"] for each in scene(fed["run1/tags"][0])["groups"]}

    @fb.persistent
    class Point:
        x: float
        y: float
        z: float
        nanoseconds: int

    with fed.transaction() as txn:
        points = txn.database("d", create=True).container("points", Point, create=True)
        points.append(Point(x=float("nan"), y=float("inf"), z=0.0, nanoseconds=2**60 + 1))
        points.append(Point(x=sys.float_info.max, y=1.0, z=0.0, nanoseconds=0))
    shown = scene(fed["d/points"][0])["groups"][0]
    assert shown["table"]["nanoseconds"] == ["1152921504606846977"]
    assert shown["geometry"] == {"x": [None], "y": [None], "z": [0.0]}
    assert scene(fed["d/points"][1])["groups"][0]["geometry"] == {"x": [None], "y": [1.0], "z": [0.0]}
    assert json.dumps(shown, allow_nan=False)


def test_command_writes_one_file(
    fed: fb.Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    display_events.store(fed)
    file = tmp_path / "event.html"
    assert main(["display", str(fed.path), "run1/tags", "1", "-o", str(file)]) == 0
    assert "run1/tags 1" in capsys.readouterr().out
    page = file.read_text()
    assert "<title>run1/tags 1</title>" in page
    assert not re.findall(r'(?:src|href)="', page), "it refers to no other file"
    assert main(["display", str(fed.path), "run1/tags", "--where", "met > 0", "-o", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objects"] == 2
    assert main(["display", str(fed.path), "run1/tags", "2", "-o", str(file)]) == 3
    assert "object 2 does not exist: run1/tags has 2 objects" in capsys.readouterr().err


def test_vendored_library_is_the_published_one() -> None:
    folder = Path(femtobarn.display.__file__).parent / "three"
    named = dict(re.findall(r"\| `([\w.]+)` \| `(\w{64})` \|", (folder / "README.md").read_text()))
    assert set(named) == {"three.module.min.js", "LICENSE"}
    for name, checksum in named.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum

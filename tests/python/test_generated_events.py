"""Importing LHE and HepMC files: as pylhe and pyhepmc read them, in parts, to the end or not at all."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import awkward as ak
import pytest

pytest.importorskip("pylhe", reason="the extra `generators` is not installed")
pytest.importorskip("pyhepmc", reason="the extra `generators` is not installed")

import pyhepmc
import pylhe

import femtobarn as fb
from femtobarn._exchange import hepmc_files, lhe_files

PARTICLE = ("id", "status", "color1", "color2")
MOMENTUM = ("px", "py", "pz", "e", "m", "lifetime", "spin")


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    return fb.create(tmp_path / "lhc.fed")


def lhe_event(number: int) -> Any:
    """A top quark pair; later events have a weight that is not in the header."""
    rows = [(21, -1, 0, 0, 501, 502), (21, -1, 0, 0, 502, 503), (6, 1, 1, 2, 501, 0), (-6, 1, 1, 2, 0, 503)]
    particles = [pylhe.LHEParticle(*row, 1.0 * number, 2.5, -3.0, 173.5, 0.0, 0.0, 9.0) for row in rows]
    weights = {"1001": 1.0 + number, "1002": 2.0} if number < 2 else {"1002": 3.0, "extra": 4.0}
    count = 4 - number % 2
    return pylhe.LHEEvent(
        pylhe.LHEEventInfo(count, 1, 0.5 + number, 91.25, 0.0078125, 0.125),
        particles[:count],
        weights if number != 3 else {},
        {"muf": 91.0} if number == 0 else {},
        {"npLO": "1"} if number == 0 else {},
        ["# a comment"] if number == 1 else [],
    )


def write_lhe(path: Path, events: int) -> Path:
    weights = [pylhe.LHEInitRWGTWeight("1001", "muR=1"), pylhe.LHEInitRWGTWeight("1002", "muR=2")]
    group = pylhe.LHEInitRWGTWeightGroup(name="scales", combine="envelope", weights=weights)
    card = ElementTree.Element("slha")
    card.text = "BLOCK mass 173"
    header = pylhe.LHEHeader(pylhe.LHEFile.fromstring(EMPTY).header.initrwgt, [card])
    header.initrwgt.entries.append(group)
    init = pylhe.LHEInit(
        pylhe.LHEInitInfo(2212, 2212, 6500.0, 6500.0, 0, 0, 247000, 247000, -4, 1),
        [pylhe.LHEProcInfo(505.7, 0.8, 505.7, 1)],
        [pylhe.LHEGenerator("MadGraph5_aMC@NLO", "3.5.1", "cite it")],
    )
    pylhe.LHEFile(init, map(lhe_event, range(events)), header, "a run card").tofile(path)
    return path


EMPTY = """<LesHouchesEvents version="3.0"><header></header><init>
2212 2212 1 1 0 0 0 0 1 0
</init></LesHouchesEvents>"""


@pytest.mark.parametrize("name", ["tt.lhe", "tt.lhe.gz"])
def test_lhe_events_are_as_pylhe_reads_them(
    fed: fb.Federation, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lhe_files, "BATCH_VALUES", 8)
    path = write_lhe(tmp_path / name, 5)
    steps: list[tuple[int, int]] = []
    done = fed.import_file(path, progress=lambda *at: steps.append(at))
    assert (done.container, done.class_name, done.entries) == ("tt/events", "LHEEvent", 5)
    assert len(steps) > 1
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    stored = list(fed["tt/events"])
    for event, read in zip(stored, pylhe.LHEFile.fromfile(path).events, strict=True):
        info = read.eventinfo
        assert (event.pid, event.weight, event.scale) == (info.pid, info.weight, info.scale)
        assert (event.aqed, event.aqcd) == (info.aqed, info.aqcd)
        assert (event.scales, event.attributes) == (read.scales, read.attributes)
        assert list(event.comments) == read.optional
        for name in (*PARTICLE, *MOMENTUM):
            assert [getattr(each, name) for each in event.particles] == [
                getattr(each, name) for each in read.particles
            ]
        for number in "12":
            indices = [getattr(each, f"motherIdx{number}") for each in event.particles]
            assert indices == [getattr(each, f"mother{number}") - 1 for each in read.particles]
        ids = event.run.weights["id"]
        found = dict(zip(ids, event.weights, strict=False))
        assert {key: value for key, value in found.items() if not math.isnan(value)} == read.weights


def test_mothers_of_lhe_particles_are_links_to_them(fed: fb.Federation, tmp_path: Path) -> None:
    fed.import_file(write_lhe(tmp_path / "tt.lhe", 2))
    events = fed["tt/events"]
    assert events["particles.mother1.id"].to_list() == [[None, None, 21, 21], [None, None, 21]]
    assert events["particles.mother2.color1"].to_list() == [[None, None, 502, 502], [None, None, 502]]
    assert events.entries("any(particles.mother2.px > 0)").tolist() == [1]
    top = events[0].particles[2]
    assert (top.mother1.color1, top.mother2.color1) == (501, 502)
    assert events[0].particles[0].mother1 is None


def test_the_header_of_an_lhe_file_is_an_object_that_events_link_to(
    fed: fb.Federation, tmp_path: Path
) -> None:
    path = write_lhe(tmp_path / "tt.lhe", 3)
    fed.import_file(path)
    fed.import_file(write_lhe(tmp_path / "more.lhe", 1), database="tt")
    runs = fed["tt/runs"]
    assert [Path(run.file).name for run in runs] == ["tt.lhe", "more.lhe"]
    assert fed["tt/events"].arrays("run").run.entry.to_list() == [0, 0, 0, 1]
    run = fed["tt/events"][2].run
    assert (run.version, run.beamA, run.energyB, run.PDFsetA) == ("3.0", 2212, 6500.0, 247000)
    assert (run.processes[0].xSection, run.processes[0].error) == (505.7, 0.8)
    assert (run.generators[0].name, run.comment) == ("MadGraph5_aMC@NLO", "a run card")
    assert [(each.id, each.name, each.group) for each in run.weights] == [
        ("1001", "muR=1", "scales"),
        ("1002", "muR=2", "scales"),
        ("extra", "", ""),
    ]
    assert (run.header[0].tag, "BLOCK mass 173" in run.header[0].xml) == ("slha", True)
    assert [len(runs[0].weights), len(runs[1].weights)] == [3, 2]


def test_names_that_the_user_gives_hold_also_for_the_run(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_lhe(tmp_path / "tt.lhe", 2)
    done = fed.import_file(path, database="mc", container="lhe", class_name="TopPair", expressions="weight")
    assert (done.container, fed["mc/lhe"].definition.name) == ("mc/lhe", "TopPair")
    assert fed["mc/lhe"].keys() == ["weight"]
    assert len(fed["mc/lhe_runs"]) == 1
    with pytest.raises(fb.ExistsError, match="2 objects are in mc/lhe"):
        fed.import_file(path)
    assert fed.import_file(path, again=True).container == "tt/events"


def test_damaged_lhe_files_are_refused(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_lhe(tmp_path / "tt.lhe", 3)
    text = path.read_text()
    wrong: dict[str, tuple[str | bytes, str]] = {
        "cut.lhe": (text[: len(text) // 2], "not written to its end: Parse Error: no element found: line "),
        "cut.lhe.gz": (gzip.compress(text.encode())[:-20], "not written to its end"),
        "number.lhe": (text.replace("-6   1   1   2", "-6   1   x   2", 1), "damaged after 0 events: .*'x'"),
        "short.lhe": (text.replace("501   0", "", 1), "damaged after 0 events"),
        "lost.lhe": (text.replace(" 4 ", " 5 ", 1), "damaged after 0 events: .* 4 particles, .* says 5"),
        "other.lhe": ("run,event", "is not an LHE file"),
        "empty.lhe": ("", "is not an LHE file"),
        "large.lhe": (text.replace(" 503 ", " 5030000000 ", 1), "color2"),
    }
    for name, (content, reason) in wrong.items():
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises((fb.CorruptError, fb.InvalidError), match=reason):
            fed.import_file(file)
    assert fed.databases() == []


def hepmc_event(number: int, run: Any) -> Any:
    """Two beams, a decay in flight, and in odd events units of MeV and cm."""
    units = (pyhepmc.Units.MEV, pyhepmc.Units.CM) if number % 2 else (pyhepmc.Units.GEV, pyhepmc.Units.MM)
    event = pyhepmc.GenEvent(run, *units)
    event.event_number = 10 + number
    particles = [
        pyhepmc.GenParticle((0.5 * n, -1.0, 2.0, 90.0 + n), pid, status)
        for n, (pid, status) in enumerate([(2212, 4), (2212, 4), (23, 2), (13, 1), (-13, 1)])
    ]
    hard, decay = pyhepmc.GenVertex(), pyhepmc.GenVertex((0.5, 0.25, -1.0, 2.0))
    for particle in particles[:2]:
        hard.add_particle_in(particle)
    hard.add_particle_out(particles[2])
    decay.add_particle_in(particles[2])
    for particle in particles[3:]:
        decay.add_particle_out(particle)
    event.add_vertex(hard)
    event.add_vertex(decay)
    decay.status = 7
    particles[3].generated_mass = 0.105
    event.weights = [1.0, 2.0 + number]
    event.attributes["event_scale"] = 91.25
    particles[2].attributes["flow1"] = 501
    decay.attributes["note"] = "in flight"
    if number:
        event.cross_section = section = pyhepmc.GenCrossSection()
        section.set_cross_section(500.0 + number, 2.0, number, 2 * number)
        event.pdf_info = pdf = pyhepmc.GenPdfInfo()
        pdf.parton_id1, pdf.x1, pdf.scale = 21, 0.125, 91.0
    return event


def write_hepmc(path: Path, events: int, format: str = "hepmc3") -> Path:
    run = pyhepmc.GenRunInfo()
    run.tools = [("Pythia8", "8.317", "showers")]
    run.weight_names = ["nominal", "up"]
    run.attributes["tune"] = "14"
    with pyhepmc.open(path, "w", format=format) as file:
        for number in range(events):
            file.write(hepmc_event(number, run))
    return path


def position(item: Any) -> int | None:
    """The position of a particle or vertex; missing for the vertex that stands for none."""
    return abs(item.id) - 1 if item is not None and item.id else None


@pytest.mark.parametrize("name", ["z.hepmc3", "z.hepmc.gz", "z.hepmc"])
def test_hepmc_events_are_as_pyhepmc_reads_them(
    fed: fb.Federation, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hepmc_files, "BATCH_VALUES", 20)
    path = write_hepmc(tmp_path / name, 5, "hepmc2" if name == "z.hepmc" else "hepmc3")
    steps: list[tuple[int, int]] = []
    done = fed.import_file(path, progress=lambda *at: steps.append(at))
    assert (done.container, done.class_name, done.entries) == ("z/events", "HepMCEvent", 5)
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    with pyhepmc.open(path) as file:
        for event, read in zip(fed["z/events"], file, strict=True):
            read.set_units(pyhepmc.Units.GEV, pyhepmc.Units.MM)
            assert (event.event_number, list(event.weights)) == (read.event_number, list(read.weights))
            assert set(event.attributes) >= {"event_scale"}
            for one, other in zip(event.particles, read.particles, strict=True):
                assert (one.pid, one.status) == (other.pid, other.status)
                assert (one.px, one.py, one.pz, one.e) == pytest.approx(tuple(other.momentum), rel=1e-14)
                assert one.generated_mass == pytest.approx(other.generated_mass, rel=1e-14)
                assert one.production_vertexIdx == position(other.production_vertex)
                assert one.end_vertexIdx == position(other.end_vertex)
            for one, other in zip(event.vertices, read.vertices, strict=True):
                assert one.status == other.status
                assert (one.x, one.y, one.z, one.t) == pytest.approx(tuple(other.position), rel=1e-14)
                assert list(one.particles_inIdx) == [position(each) for each in other.particles_in]
                assert list(one.particles_outIdx) == [position(each) for each in other.particles_out]


def test_facts_of_hepmc_events_and_runs_are_kept(fed: fb.Federation, tmp_path: Path) -> None:
    fed.import_file(write_hepmc(tmp_path / "z.hepmc3", 3))
    first, last = fed["z/events"][0], fed["z/events"][2]
    assert (first.cross_section, first.pdf_info) == (None, None)
    assert (list(last.cross_section.xsec), last.cross_section.attempted_events) == ([502.0, 502.0], 4)
    assert (last.pdf_info.parton_id1, last.pdf_info.x1) == (21, 0.125)
    assert last.attributes == {"event_scale": "91.25"}
    read = fed["z/events"].arrays(["particles", "vertices"])[2]
    flow, note = {"_0": "flow1", "_1": "501"}, {"_0": "note", "_1": "in flight"}
    assert read.particles.attributes.to_list() == [[], [], [flow], [], []]
    assert read.vertices.attributes.to_list() == [[], [note]]
    run = last.run
    assert (run.tools[0].name, list(run.weight_names)) == ("Pythia8", ["nominal", "up"])
    assert run.attributes == {"tune": "14"}


def test_particles_and_vertices_of_hepmc_are_links_to_each_other(fed: fb.Federation, tmp_path: Path) -> None:
    events = fed[fed.import_file(write_hepmc(tmp_path / "z.hepmc3", 2)).container]
    assert events["particles.end_vertex.status"].to_list() == 2 * [[0, 0, 7, None, None]]
    assert events["vertices.particles_out.pid"].to_list() == 2 * [[[23], [13, -13]]]
    parents = "particles.production_vertex.particles_in.pid"
    assert events[parents].to_list() == 2 * [[None, None, [2212, 2212], [23], [23]]]
    assert events.entries("any(particles.production_vertex.t > 10)").tolist() == [1]
    muon = events[0].particles[3]
    assert muon.production_vertex.particles_in[0].pid == 23
    assert (muon.end_vertex, events[0].vertices[1].particles_out[0].pid) == (None, 13)


def test_positions_index_arrays_of_particles_and_vertices(fed: fb.Federation, tmp_path: Path) -> None:
    events = fed[fed.import_file(write_hepmc(tmp_path / "z.hepmc3", 2)).container].arrays()
    decays: Any = events.vertices[events.particles.end_vertexIdx]
    assert decays.status.to_list() == [[0, 0, 7, None, None]] * 2
    products = events.particles[events.vertices.particles_outIdx[:, 1]]
    assert products.pid.to_list() == [[13, -13]] * 2
    assert ak.all(ak.isclose(decays.t[:, 2], [2.0, 20.0]))


def test_damaged_hepmc_files_are_refused(fed: fb.Federation, tmp_path: Path) -> None:
    """The readers of HepMC end silently where they cannot read on."""
    text = write_hepmc(tmp_path / "z.hepmc3", 3).read_text()
    last = text.rindex("\nE ")
    wrong: dict[str, tuple[str | bytes, str]] = {
        "cut.hepmc3": (text[: last + 200], "is damaged, or was not written to its end: 2 events can be read"),
        "between.hepmc3": (text[: last + 1], "was not written to its end"),
        "cut.hepmc.gz": (gzip.compress(text.encode())[:-50], "was not written to its end"),
        "other.hepmc": ("run,event", "is not a HepMC file of text: it begins with b'run,event'"),
        "empty.hepmc": ("", "is not a HepMC file of text"),
    }
    for name, (content, reason) in wrong.items():
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(fb.CorruptError, match=reason):
            fed.import_file(file)
    assert fed.databases() == []


def test_hepmc_event_without_particles_does_not_end_the_file(fed: fb.Federation, tmp_path: Path) -> None:
    path = write_hepmc(tmp_path / "z.hepmc3", 3)
    head, first, _, last = path.read_text().split("\nE ")
    path.write_text("\nE ".join([head, first, "11 0 0 @ 1 2 3 4\nU GEV CM\nW 1 1", last]))
    fed.import_file(path, expressions=["run", "particles", "event_pos"])
    assert fed["z/events"]["event_pos.z"].to_list() == [0, 30, 0]
    assert fed["z/events"].arrays("nparticles").nparticles.to_list() == [5, 0, 5]

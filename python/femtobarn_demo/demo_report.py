"""Step (h): the report of a finished run, with pictures of its data."""

from __future__ import annotations

import os
import platform

import awkward as ak
import numpy as np

import femtobarn
from femtobarn.jagged import Array
from femtobarn_demo.calibration import FINAL, PROMPT
from femtobarn_demo.report import (
    Report,
    draw_dimuon_spectrum,
    draw_event,
    draw_jet_momenta,
    draw_jet_response,
    draw_rates,
    draw_residuals,
    draw_responses,
    draw_timelines,
    draw_z_peak,
    invariant_mass,
)
from femtobarn_demo.sources import START
from femtobarn_demo.sources.detector.geometry import ECAL_SECTORS
from femtobarn_demo.steps import DIMUON_NTUPLE, SELECTION, Run, database_name
from femtobarn_reports.page import Picture
from femtobarn_reports.style import png, style, svg

__all__ = ["make_report"]


def make_report(run: Run) -> Report:
    """Return the report of a finished run."""
    objects, size = run.totals()
    writing = next(stage for stage in run.stages if stage.name == "write raw events")
    with style():
        pictures = [*_event(run), *_rates(run), *_muons(run.fed.snapshot()), *_jets(run)]
        conditions = _conditions(run)
    return Report(
        title="Femtobarn: collision events in an object database",
        summary=(
            "Real events of CMS and ATLAS and simulated ones of ILD and FCC were imported or attached; "
            f"{run.plan.runs} processes streamed simulated LHC events into one federation at once; other "
            "processes reconstructed them with conditions; a selection by tags led by links back to the raw "
            "data."
        ),
        tiles=[
            (f"{writing.events:,}", "raw events written"),
            (f"{objects:,}", "objects in the federation"),
            (f"{size / 1e6:,.0f} MB", "in their database files"),
            (f"{writing.megabytes_per_second:,.0f} MB/s", f"by {writing.processes} writers at once"),
            (f"{writing.cpu_per_100_megabytes:.2f} s", "CPU to write 100 MB"),
            (f"{run.facts['selected']:,}", "events selected by tag"),
        ],
        stages=run.stages,
        pictures=pictures,
        conditions=_facts_of_conditions(run),
        timelines=conditions,
        storage=_storage(run),
        movements=run.facts["round"].movements,
        notes=_notes(run),
    )


def _event(run: Run) -> list[Picture]:
    caption = (
        f"One of the events with {SELECTION}. Points and towers are its raw objects, reached by the links "
        "of its tag; curves are reconstructed tracks and cones are jets. Reconstruction does not read the "
        "simulation's truth."
    )
    return [
        Picture(
            "One event, from its tag to its space points",
            caption,
            png(draw_event(run.facts["display"])),
            True,
        )
    ]


def _rates(run: Run) -> list[Picture]:
    caption = "Rates by elapsed time, on logarithmic axes. The clock starts when all processes are ready."
    timed = [stage for stage in run.stages if stage.seconds > 0]
    return [Picture("Rates of the stages", caption, svg(draw_rates(timed)), True)]


def _muons(snapshot: femtobarn.Snapshot) -> list[Picture]:
    """Mass spectra of the real muon pairs in the federation."""
    pictures = []
    if "Zmumu/events" in snapshot:
        masses = _z_masses(snapshot["Zmumu/events"])
        caption = f"{len(masses):,} events that CMS recorded, imported from a TTree; the first pair of each."
        pictures.append(Picture("Real muon pairs: the Z boson", caption, svg(draw_z_peak(masses))))
    name = f"{database_name(DIMUON_NTUPLE)}/Events"
    if name in snapshot:
        masses = _pair_masses(snapshot[name])
        caption = (
            f"{len(masses):,} pairs of opposite charge, CMS Open Data of 2012, read from an attached RNTuple."
        )
        pictures.append(Picture("Real muon pairs: from J/ψ to Z", caption, svg(draw_dimuon_spectrum(masses))))
    return pictures


def _z_masses(view: femtobarn.View) -> Array:
    """Masses from the energies and momenta of the two muons (GeV)."""
    pairs = view.arrays(["Run", "Event", "E1", "px1", "py1", "pz1", "E2", "px2", "py2", "pz2"])
    # The file has a row for each way in which the two muons were reconstructed.
    _, first = np.unique(np.stack([pairs.Run, pairs.Event]), axis=1, return_index=True)
    pairs = pairs[first]
    energy, px, py, pz = (
        ak.to_numpy(pairs[f"{name}1"] + pairs[f"{name}2"]) for name in ("E", "px", "py", "pz")
    )
    masses: Array = np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0.0))
    return masses


def _pair_masses(view: femtobarn.View) -> Array:
    """Masses (GeV) in the events with exactly two muons, of opposite charge."""
    muons = view.arrays([f"Muon_{name}" for name in ("pt", "eta", "phi", "mass", "charge")])
    muons = muons[ak.num(muons.Muon_pt) == 2]
    muons = muons[ak.sum(muons.Muon_charge, axis=1) == 0]
    first, second = (
        {name: ak.to_numpy(muons[f"Muon_{name}"][:, which]) for name in ("pt", "eta", "phi", "mass")}
        for which in (0, 1)
    )
    return invariant_mass(first, second)


def _jets(run: Run) -> list[Picture]:
    facts = run.facts
    return [
        Picture(
            "Jets",
            f"{len(facts['jets']):,} jets of {len(facts['leading']):,} events (each generated event once), "
            "anti-kT with radius 0.4 on tracks and calorimeter clusters.",
            svg(draw_jet_momenta(facts["leading"], facts["jets"])),
        ),
        Picture(
            "Jet response",
            "Transverse momentum of the hardest jet divided by that of the simulated hard process.",
            svg(draw_jet_response(facts["leading"], facts["scales"])),
        ),
    ]


def _facts_of_conditions(run: Run) -> list[str]:
    facts = run.facts
    return [
        f"The first pass reads the conditions of the global tag {PROMPT!r}: a gain of 1 for each of the "
        f"{ECAL_SECTORS} sectors of the electromagnetic calorimeter, and no shift of the strip tracker.",
        "The simulated detector is worse: all gains fall, one sector works at a lower voltage for some "
        "hours, and the two barrels of the strip tracker move.",
        "The calibration measures gains from the energies of cells, and shifts from the residuals of "
        "tracks. It puts them with validities, where they hide the first ones. Both tags are frozen.",
        f"The second pass reads the conditions of the tag {FINAL!r}, for {facts['second']:,} events.",
        f"After that the job of the first pass ran again for {facts['repeated']:,} events. All columns have "
        f"the same bytes as before (SHA-256 {facts['digest'][:16]}…).",
    ]


def _conditions(run: Run) -> list[Picture]:
    """Constants by time, and their effect on events."""
    passes = run.facts["passes"]
    start = np.datetime64(START, "ns")
    return [
        Picture(
            f"Conditions of {start.astype('datetime64[D]')}",
            "Each bar is a condition, drawn from the beginning to the end of its validity.",
            svg(draw_timelines(run.facts["timelines"], int(str(start)[11:13]))),
            True,
        ),
        Picture(
            "Energies before and after",
            f"Electromagnetic energies of {len(passes.responses[1]):,} clusters above 5 GeV, divided by "
            "those in a detector with a gain of 1.",
            svg(draw_responses(*passes.responses)),
        ),
        Picture(
            "Residuals before and after",
            "Mean distances of points from their tracks, by azimuth, in the first layer of the outer barrel "
            f"of the strip tracker ({passes.residuals[1].shape[1]:,} tracks).",
            svg(draw_residuals(*passes.residuals)),
        ),
    ]


def _storage(run: Run) -> list[str]:
    facts = run.facts
    return [
        f"A sealed database was copied to an object store (rclone's S3 server on this machine): "
        f"{facts['round'].where}. Then its file was removed from the disk.",
        f"The selection {SELECTION} was made again for that run, and followed the links of the "
        f"{facts['brought_back']:,} tags to their raw events. That brought the file back, compared it with "
        "its checksum, and gave the same points as before.",
    ]


def _notes(run: Run) -> list[str]:
    plan = run.plan
    return [
        f"Machine: {os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}, "
        f"Femtobarn {femtobarn.__version__}.",
        f"Raw events come from a pool of {plan.pool_events:,} (Pythia 8, proton-proton at 14 TeV with "
        "pile-up, and a toy detector) and are repeated under new numbers: sizes and rates are real, and "
        "spectra count each event of the pool once.",
        "MB are payload: bytes of arrays passed to the database or received from it. CPU time includes the "
        "Python code around it: for imports the reading of trees with thousands of branches; for "
        "reconstruction nearly all of it is physics.",
        "Attaching copies nothing, sealing writes a few keys at the end of the file, and a selection reads "
        "two short columns, so these stages have no MB.",
        f"Sealed: {run.facts['sealed']}.",
        *[f"Events of experiments: {line}." for line in run.facts.get("samples", [])],
    ]

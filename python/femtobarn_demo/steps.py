"""The steps of the demo on an open federation; each adds its rows to the table of stages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from tqdm import tqdm

import femtobarn
from femtobarn.importers import Samples
from femtobarn_demo.acquisition import (
    Block,
    blocks_of,
    database_of,
    prepare_reconstruction,
    prepare_writer,
)
from femtobarn_demo.calibration import (
    FINAL,
    PROMPT,
    calibrate,
    put_nominal,
    timelines,
    typical_errors,
)
from femtobarn_demo.external_readers import root_entries, total, uproot_sum
from femtobarn_demo.object_store import round_trip, s3_server
from femtobarn_demo.reconstruction import CONTAINERS as RECONSTRUCTED
from femtobarn_demo.report import EventPicture, Stage
from femtobarn_demo.reprocessing import combined, compare_passes, prepare_reprocessing
from femtobarn_demo.sources import CONTAINERS, PARTS, START, EventPool
from femtobarn_demo.sources.detector.state import HOUR
from femtobarn_demo.workers import cpu_seconds, run_workers

__all__ = ["DIMUON_NTUPLE", "SELECTION", "Plan", "Run", "database_name"]

TREES = (
    "uproot-Zmumu.root",
    "uproot-HZZ.root",
    "nano_dimuon.root",
    "PHYSLITE_example.root",
    "edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root",
    "test_FCC_Winter2023.root",
)
"""Samples that are imported."""

NTUPLES = ("nano_dimuon_rntuple.root", "nano_dy_rntuple.root", "pfnano_rntuple.root")
"""Samples that are attached without a copy."""

DIMUON_NTUPLE = "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root"
"""CMS Open Data of 2012, which no package ships; attached if the folder of extra data has it."""

NO_ROOT = "not checked with ROOT, which is not installed; make setup installs it (570 MB)"
"""Printed where ROOT is not installed."""

RUN_HOURS = 12
"""Time over which the raw events are spread."""

SECOND_PASS_EVERY, REPEATED_EVERY = 8, 16
"""Distances between the blocks of the second pass, and between the blocks that repeat the first pass."""

SELECTION = "n_jets >= 4 and lead_jet_pt > 90"
"""Condition on the tags of the selected events."""


@dataclass(frozen=True)
class Plan:
    """The size of a demo, and its folders.

    Parameters
    ----------
    folder
        Folder of the federation and the report.
    cache
        Folder of samples and the pool of events, kept between runs.
    extra
        A folder with more real files, if there is one.
    events, runs
        Total number of raw events, and the runs (writer processes, databases) that they are divided into.
    pool_events
        Events to generate; all others repeat them under new numbers.
    clients
        Number of processes that reconstruct.
    progress
        Show progress bars.
    """

    folder: Path
    cache: Path
    extra: Path | None
    events: int = 2000
    runs: int = 4
    pool_events: int = 250
    clients: int = 2
    progress: bool = True

    @property
    def federation(self) -> str:
        """Path of the federation."""
        return str(self.folder / "events.fed")


@dataclass
class Run:
    """A running demo: the federation, the stages measured so far, and facts for the report."""

    plan: Plan
    fed: femtobarn.Federation
    stages: list[Stage] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def import_samples(self) -> list[str]:
        """Step (a): import and attach files of experiments; returns lines to print, like all steps."""
        files = Samples(self.plan.cache / "samples")
        try:
            files.fetch(progress=self.plan.progress)
        except femtobarn.StorageError as error:
            if os.environ.get("CI", "").lower() == "true":
                raise
            return [f"skipped: {error}"]
        imported = self._import(files)
        attached = self._attach(files)
        return [imported, attached]

    def _import(self, files: Samples) -> str:
        with self._measure("import trees of experiments") as done:
            for file in tqdm(
                TREES, desc="importing", unit="file", disable=not self.plan.progress, leave=False
            ):
                made = self.fed.import_tree(files.path(file), database=database_name(file))
                done.events += made.entries
                done.bytes += self._bytes_in(database_name(file))
            done.objects = done.events
        return f"{done.events:,} events of {len(TREES)} files imported (CMS, ATLAS, ILD, FCC)"

    def _attach(self, files: Samples) -> str:
        paths = [files.path(file) for file in NTUPLES]
        if self.plan.extra is not None and (self.plan.extra / DIMUON_NTUPLE).exists():
            paths.append(self.plan.extra / DIMUON_NTUPLE)
        with self._measure("attach ntuples of experiments") as done:
            for path in paths:
                made = self.fed.attach(path, database_name(path.name))
                snapshot = self.fed.snapshot()
                done.events += sum(len(snapshot[f"{made.name}/{name}"]) for name in made.containers)
            done.objects = done.events
        return f"{done.events:,} events of {len(paths)} RNTuple files attached, no byte copied"

    def write_raw_events(self) -> list[str]:
        """Step (b): several processes write raw events."""
        plan = self.plan
        EventPool.load(plan.cache, events=plan.pool_events, progress=plan.progress)
        each = plan.events // plan.runs
        period = RUN_HOURS * HOUR // (each * plan.runs)
        arguments = [
            (plan.federation, plan.cache, plan.pool_events, run, each, period)
            for run in range(1, plan.runs + 1)
        ]
        done = run_workers(
            prepare_writer, arguments, total=each * plan.runs, label="writing", progress=plan.progress
        )
        stage = Stage(
            "write raw events",
            plan.runs,
            each * plan.runs,
            sum(objects for objects, _ in done.results),
            sum(size for _, size in done.results),
            done.seconds,
            done.cpu_seconds,
        )
        self.stages.append(stage)
        return [
            f"{stage.events:,} events, {stage.megabytes:,.0f} MB by {plan.runs} processes, each into its own "
            f"database: {stage.megabytes_per_second:,.0f} MB/s"
        ]

    def reconstruct(self) -> list[str]:
        """Step (c): several processes reconstruct the raw events with nominal constants."""
        plan = self.plan
        put_nominal(self.fed, START)
        runs = self._blocks()
        arguments = [
            (plan.federation, [block for run in runs[client :: plan.clients] for block in run], PROMPT)
            for client in range(plan.clients)
        ]
        events = plan.events // plan.runs * plan.runs
        done = run_workers(
            prepare_reconstruction, arguments, total=events, label="reconstructing", progress=plan.progress
        )
        stage = Stage(
            "reconstruct",
            plan.clients,
            events,
            sum(objects for objects, _ in done.results),
            sum(size for _, size in done.results),
            done.seconds,
            done.cpu_seconds,
        )
        self.stages.append(stage)
        milliseconds = 1e3 * stage.cpu_seconds / max(events, 1)
        return [
            f"{events:,} events by {plan.clients} processes: tracks, clusters, jets and tags, "
            f"{milliseconds:.0f} ms of CPU time per event"
        ]

    def calibrate(self) -> list[str]:
        """Step (d): measure constants by intervals of the run, and put them with validities."""
        plan = self.plan
        runs = range(1, plan.runs + 1)
        raw = [f"{database_of(run)}/{CONTAINERS['RawEvent']}" for run in runs]
        tracks = [self._reconstructed("Tracks", run) for run in runs]
        with self._measure("calibrate") as done:
            done.events = plan.events // plan.runs * plan.runs
            done.objects = calibrate(self.fed, raw, tracks, RUN_HOURS)
        before, after = (typical_errors(self.fed.conditions(tag), RUN_HOURS) for tag in (PROMPT, FINAL))
        self.facts["timelines"] = timelines(self.fed, RUN_HOURS)
        return [
            f"{done.objects} constants with validities, put as a correction",
            f"gains were wrong by {before[0]:.1%}, now by {after[0]:.1%}; shifts of the tracker by "
            f"{1e6 * before[1]:.0f} µm, now by {1e6 * after[1]:.0f} µm",
        ]

    def reprocess(self) -> list[str]:
        """Step (d): reconstruct some events with the new constants, and repeat the first pass on some."""
        plan = self.plan
        clients = range(plan.clients)
        blocks = [block for run in self._blocks() for block in run]
        second, repeated = (
            blocks[min(every, len(blocks)) // 2 :: every] for every in (SECOND_PASS_EVERY, REPEATED_EVERY)
        )
        # One process has all blocks of a run, since it writes them into one database.
        shares = [
            [
                [block for block in chosen if block.run % plan.clients == client]
                for chosen in (second, repeated)
            ]
            for client in clients
        ]
        arguments = [(plan.federation, mine, FINAL, again, PROMPT) for mine, again in shares]
        events, again = (sum(map(len, chosen)) for chosen in (second, repeated))
        done = run_workers(
            prepare_reprocessing, arguments, total=events + again, label="second pass", progress=plan.progress
        )
        objects, size = (sum(getattr(each, name) for each in done.results) for name in ("objects", "bytes"))
        self.stages.append(
            Stage(
                "second pass, and repeat",
                plan.clients,
                events + again,
                objects,
                size,
                done.seconds,
                done.cpu_seconds,
            )
        )
        found = combined(done.results)
        self.facts |= {"second": events, "repeated": again, "digest": found}
        self.facts["passes"] = compare_passes(self.fed, second)
        return [
            f"{events:,} events with the tag {FINAL!r}",
            f"{again:,} events again with the tag {PROMPT!r}: all columns as before, SHA-256 {found[:12]}",
        ]

    def _blocks(self) -> list[list[Block]]:
        """The blocks of each run."""
        each = self.plan.events // self.plan.runs
        return [blocks_of(run, each) for run in range(1, self.plan.runs + 1)]

    def select_events(self) -> list[str]:
        """Step (e): select events by tag, and follow links to their raw data."""
        snapshot = self.fed.snapshot()
        with self._measure("select by tag") as done:
            views = [snapshot[self._reconstructed("Tag", run)] for run in range(1, self.plan.runs + 1)]
            selected = [view.arrays(where=SELECTION) for view in views]
            tags = ak.concatenate(selected)
            done.events = done.objects = sum(len(view) for view in views)
        points = 0
        if len(tags):
            with self._measure("follow links to raw hits") as following:
                points, following.bytes = _follow(snapshot, tags)
                following.events, following.objects = len(tags), len(tags) * (1 + len(PARTS))
        self.facts["selected"] = len(tags)
        hardest = self._choose_display(snapshot, tags)
        self._read_spectra(snapshot)
        return [
            f"{len(tags):,} of {done.events:,} events have {SELECTION}; links lead to {points:,} points",
            hardest,
        ]

    def _choose_display(self, snapshot: femtobarn.Snapshot, tags: ak.Array) -> str:
        """Choose the hardest selected event for the picture, and check its hits object by object."""
        if len(tags) == 0:
            tags = snapshot[self._reconstructed("Tag", 1)].arrays()
        best = int(ak.argmax(tags.ht))
        tag = tags[best : best + 1]
        header = snapshot.fetch(tag["raw"])
        raw = {part: snapshot.fetch(header[link])[0] for part, link in PARTS.items()}
        tracks, jets = snapshot.fetch(tag["tracks"])[0], snapshot.fetch(tag["jets"])[0]
        self.facts["display"] = EventPicture.from_objects(raw, tracks, jets)
        event: Any = tags[best].raw.get()
        by_object = len(event.pixels.hits)
        if by_object != len(raw["PixelHits"].hits):
            raise RuntimeError(f"{by_object} pixel hits by object, {len(raw['PixelHits'].hits)} by column")
        return (
            f"the hardest is event {event.event:,} of run {event.run}: "
            f"tag.raw.pixels.hits has {by_object:,} hits"
        )

    def _read_spectra(self, snapshot: femtobarn.Snapshot) -> None:
        """Read the momenta of jets, in the first occurrence of each event of the pool."""
        leading, scales, every = [], [], []
        for run in range(1, self.plan.runs + 1):
            where = f"event < {self.plan.pool_events}"
            tags = snapshot[self._reconstructed("Tag", run)].arrays(["lead_jet_pt", "raw", "jets"], where)
            leading.append(ak.to_numpy(tags.lead_jet_pt))
            if len(tags):
                scales.append(ak.to_numpy(snapshot.fetch(tags["raw"], ["momentum_scale"]).momentum_scale))
                every.append(ak.to_numpy(ak.flatten(snapshot.fetch(tags["jets"], ["jets.pt"]).jets.pt)))
        self.facts["leading"] = np.concatenate(leading)
        self.facts["scales"] = np.concatenate(scales)
        self.facts["jets"] = np.concatenate(every)

    def seal_database(self) -> list[str]:
        """Step (f): seal a database, and read its file with uproot and ROOT."""
        name = database_of(1)
        snapshot = self.fed.snapshot()
        view = snapshot[f"{name}/{CONTAINERS['PixelHits']}"]
        expected = total(view.arrays(["hits.x"]).hits.x)
        with self._measure("seal a database") as done:
            self.fed.seal(name)
            done.events = len(view)
            done.objects = sum(entry["entries"] for entry in snapshot.containers(name))
        path = Path(next(entry["path"] for entry in self.fed.databases() if entry["name"] == name))
        entries, found = uproot_sum(path, CONTAINERS["PixelHits"], "hits.x")
        if entries != len(view) or not np.isclose(found, expected, rtol=1e-12, atol=1e-9):
            raise RuntimeError(f"uproot reads {found} from {entries} entries instead of {expected}")
        lines = [
            f"{path.name}, {path.stat().st_size / 1e6:,.0f} MB: uproot reads the same {entries:,} events"
        ]
        root = root_entries(path, CONTAINERS["RawEvent"])
        lines.append(f"ROOT {root[0]} reads {root[1]:,} events" if root else NO_ROOT)
        self.facts["sealed"] = "; ".join(lines)
        return lines

    def move_to_object_store(self) -> list[str]:
        """Step (g): copy the sealed database to an object store, and read it by a selection of tags."""

        def select() -> tuple[int, int]:
            """Return the numbers of selected events of the database, and of their points."""
            snapshot = self.fed.snapshot()
            view = snapshot[self._reconstructed("Tag", 1)]
            tags = view.arrays(where=SELECTION)
            # Of a small demo no event may be selected.
            tags = tags if len(tags) else view.arrays()
            return len(tags), _follow(snapshot, tags)[0]

        expected = select()
        with s3_server(self.plan.folder / "objects") as url:
            done = round_trip(self.fed, database_of(1), url, select)
        if done.found != expected:
            raise RuntimeError(f"the selection gives {done.found} events and points instead of {expected}")
        self.facts |= {"round": done, "brought_back": expected[0]}
        return [
            "; ".join(
                f"{each.name}: {each.state}" + f", {each.seconds:.1f} s" * bool(each.bytes)
                for each in done.movements
            ),
            f"while it was away: {done.where}",
        ]

    def totals(self) -> tuple[int, int]:
        """Numbers of objects in the federation, and of the bytes of files that they take."""
        snapshot = self.fed.snapshot()
        containers = [
            entry for database in snapshot.databases() for entry in snapshot.containers(database["name"])
        ]
        return sum(entry["entries"] for entry in containers), sum(entry["bytes"] for entry in containers)

    def _reconstructed(self, class_name: str, run: int) -> str:
        return f"{database_of(run, PROMPT)}/{RECONSTRUCTED[class_name]}"

    def _bytes_in(self, database: str) -> int:
        return sum(int(entry["bytes"]) for entry in self.fed.snapshot().containers(database))

    @contextmanager
    def _measure(self, name: str) -> Iterator[_StageCounts]:
        """Measure a block in this process, and add it to the stages."""
        done = _StageCounts()
        started, before = time.perf_counter(), cpu_seconds()
        yield done
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - before
        self.stages.append(Stage(name, 1, done.events, done.objects, done.bytes, seconds, cpu))


@dataclass
class _StageCounts:
    """The counts of a stage, filled in by the measured block."""

    events: int = 0
    objects: int = 0
    bytes: int = 0


def _follow(snapshot: femtobarn.Snapshot, tags: ak.Array) -> tuple[int, int]:
    """Read the raw events that tags link to; return the numbers of their space points, and of bytes read."""
    headers = snapshot.fetch(tags["raw"])
    parts = {part: snapshot.fetch(headers[link]) for part, link in PARTS.items()}
    points = sum(ak.sum(ak.num(parts[part].hits)) for part in ("PixelHits", "StripHits"))
    return int(points), int(headers.nbytes) + sum(int(part.nbytes) for part in parts.values())


def database_name(file: str) -> str:
    """A short name for the database of a file."""
    known = {
        "uproot-Zmumu.root": "Zmumu",
        "uproot-HZZ.root": "HZZ",
        DIMUON_NTUPLE: "dimuon-2012",
        "edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root": "ILD",
        "test_FCC_Winter2023.root": "FCC",
        "PHYSLITE_example.root": "PHYSLITE",
    }
    return known.get(file, file.removesuffix(".root"))

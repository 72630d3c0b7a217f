"""A run of the soak: start, the time under load, and the verdict."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from machines import SERVERS, Site

import femtobarn as fb
from femtobarn_testbed.resources import machine

from . import judge
from .clients import KINDS, LEDGERS, prepare
from .log import Operation
from .operators import Operators
from .pool import ClientPool, Registers
from .samples import FILE_KINDS, ProcessSample, Sample, Sampler
from .slopes import Rule, Series, Trend, trend_of

__all__ = ["BUSY_THREADS", "FOREIGN_SHARE", "Settings", "is_judged", "run_soak"]

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Path(__file__).with_name("soak.toml")
REGISTERS = Path(os.environ.get("FEMTOBARN_EXAMPLES", ROOT / "target/debug/examples")) / "registers"
LATENCY_POINTS = 40
TRIES = 3
"""Of a kind of deed, one has to succeed."""
LONG_SECONDS = 600.0
"""A run of more than this tells what grows."""
WARM_UP = 0.25
"""Share of the run that is not looked at for slopes."""
FOREIGN_SHARE = 0.1
"""The share of the processors above which other processes may be the reason for slower operations."""
BUSY_THREADS = 5
"""How many times as much the threads of servers may grow then: each request has its thread for longer."""

# What may grow over the rest of the run: a share of the median, or an amount.
MEMORY, DESCRIPTORS, THREADS = Rule(0.1, 8e6), Rule(0.1, 5), Rule(0.1, 3)
CONNECTIONS = Rule(0.1, 5)
VERSIONS = Rule(0.1, 8e6 + (128 << 20))
"""For memory of a client whose cache of open versions, of 128 MiB, may not be full when a short run ends."""
CACHES = {"http": MEMORY, "conditions": Rule(0.1, 8e6 + (384 << 20))}
"""Of other clients: `http` has no cache, and `conditions` one of timelines, too, of 256 MiB."""
FULL_SECONDS = 1800.0
"""A run of more than this is not short."""
SERVED = {"sockets": Rule(0.5, 25), "files": Rule(0.5, 12)}
"""Of one server: clients of one that fails go to another one, and stay there, with the files they have open.
All servers together may have no more than `DESCRIPTORS`."""
DISK, CATALOGUE = Rule(0.15, 0.3), Rule(0.15, 200)
MEDIAN, SLOWEST = Rule(0.25, 0.005), Rule(0.5, 0.05)


@dataclass(frozen=True)
class Settings:
    """How long a run takes, and how hard it tries."""

    minutes: float
    pause: float
    """Seconds between two operations of a client."""
    rest: float
    """Seconds between two deeds of operators."""
    interval: float
    """Seconds between two samples."""
    out: Path


def run_soak(settings: Settings) -> dict[str, Any]:
    """Run the soak, and return all that its report has; whatever fails, the site's logs are kept."""
    started = datetime.now(UTC)
    settings.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as place, Site(Path(place), SETTINGS, rights="") as site:
        folder = Path(place)
        try:
            site.start_federation()
            prepare(site.url(SERVERS[0]))
            result = under_load(site, folder, settings)
        except BaseException:
            keep_logs(folder, settings.out)
            raise
        if result["faults"]:
            keep_logs(folder, settings.out)
    result |= {"started": started.isoformat(), "machine": machine(), "version": fb.__version__}
    (settings.out / "soak.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def under_load(site: Site, folder: Path, settings: Settings) -> dict[str, Any]:
    """Run clients and operators for the time, then judge."""
    urls = tuple(map(site.url, SERVERS))
    disks = {name: folder / name / "lhc.fed/databases" for name in SERVERS}
    round_seconds = max(2, min(20, int(settings.minutes * 15)))
    registers = Registers(REGISTERS, urls, folder, round_seconds)
    began = time.monotonic()
    try:
        with ClientPool(urls, folder, settings.pause) as clients:
            operators = Operators(site, clients, registers, began + 30 * settings.minutes)
            postgres = site.postgres / "data"
            with Sampler(urls[0], site.pid, clients.pids, disks, postgres, settings.interval) as sampler:
                registers.start()
                for name, act in deeds_until(operators, began + 60 * settings.minutes):
                    operators.do(name, act)
                    time.sleep(settings.rest)
                ended = clients.ended()
                late = clients.stop()
            seconds = time.monotonic() - began
            faults = [f"client {kind} has ended by itself" for kind in ended]
            faults += [f"client {kind} did not end in order" for kind in {*late} - {*ended}]
            registers.finish(operators.wrong)
            faults += operators.wrong
            operations = clients.operations()
    finally:
        registers.end()
    faults += final_faults(operators, operations)
    if not any(sample.postgres_connections for sample in sampler.samples):
        faults.append("no connection of PostgreSQL was counted")
    trends = [
        trend_of(series, WARM_UP * seconds)
        for series in series_of(sampler.samples, operations, began, seconds)
    ]
    judged = [each for each in sampler.samples if each.time - began >= WARM_UP * seconds]
    foreign = float(np.median([sample.foreign_share for sample in judged or sampler.samples]))
    faults += [str(it) for it in trends if it.verdict == "grows" and is_judged(it, foreign)]
    if seconds > LONG_SECONDS:
        # Each server and client is left alone for half of the time, and PostgreSQL's rows are always there.
        processes = (*(f"server {name}" for name in SERVERS), *(f"client {kind}" for kind in KINDS))
        watched = (*processes, "each commit")
        faults += [
            f"too few samples: {it}" for it in trends if it.verdict == "short" and it.name.endswith(watched)
        ]
    return {
        "seconds": seconds,
        "foreign_share": foreign,
        "faults": faults,
        "registers": registers.committed,
        "operations": counts_of(operations),
        "deeds": [asdict(deed) | {"began": deed.began - began} for deed in operators.deeds],
        "samples": [asdict(sample) | {"time": sample.time - began} for sample in sampler.samples],
        "latencies": {series.name: asdict(series) for series in latencies(operations, began, seconds)},
        "trends": [asdict(trend) for trend in trends],
    }


def is_judged(trend: Trend, foreign_share: float) -> bool:
    """Return whether a growing trend is a fault; other processes may have made the machine slower."""
    if foreign_share <= FOREIGN_SHARE:
        return True
    if trend.name.startswith("threads of server"):
        return trend.growth > BUSY_THREADS * trend.allowed
    return trend.unit != "s"


def deeds_until(operators: Operators, until: float) -> Iterator[tuple[str, Any]]:
    """Yield deeds again and again until a time, but each at least once."""
    deeds = operators.all()
    for number, deed in enumerate(itertools.cycle(deeds)):
        if number >= len(deeds) and time.monotonic() >= until:
            return
        yield deed


def final_faults(operators: Operators, operations: Sequence[Operation]) -> Iterator[str]:
    """Yield what is wrong with deeds, with what clients saw, and with the federation that is left."""
    for deed in operators.deeds:
        if deed.is_fault:
            yield f"{deed.name}: {deed.outcome}: {deed.text}"
    for name, count in Counter(deed.name for deed in operators.deeds).items():
        if count >= TRIES and not any(it.name == name and it.outcome == "ok" for it in operators.deeds):
            yield f"{name}: it was tried {count} times and never succeeded"
    yield from judge.operation_faults(operations)
    with fb.open(operators.url) as fed:
        yield from judge.check_ledgers(fed, operations)
        yield from judge.check_bulk(fed)
        yield from judge.check_money(fed)
    yield from judge.check_folders(map(operators.folder, SERVERS))
    for kind in LEDGERS:
        if not any(each.kind == kind and each.outcome == "ok" for each in operations):
            yield f"no operation of the client {kind} was acknowledged"


def series_of(
    samples: Sequence[Sample], operations: Sequence[Operation], began: float, seconds: float
) -> Iterator[Series]:
    """Yield all series that have to be flat."""
    for server in SERVERS:
        of_server = [(each.time - began, each.servers[server]) for each in samples if server in each.servers]
        yield from series_of_process(f"server {server}", of_server, MEMORY, SERVED)
    complete = [each for each in samples if len(each.servers) == len(SERVERS)]
    for kind in SERVED:
        times = [each.time - began for each in complete]
        sums = [sum(server.open_files[kind] for server in each.servers.values()) for each in complete]
        yield Series(f"{kind} of all servers", "", DESCRIPTORS, times, sums, [0] * len(complete))
    for kind in KINDS:
        of_client = [(each.time - began, each.clients[kind]) for each in samples if kind in each.clients]
        memory = MEMORY if seconds > FULL_SECONDS else CACHES.get(kind, VERSIONS)
        yield from series_of_process(f"client {kind}", of_client, memory, {})
    times, lives = [each.time - began for each in samples], [0] * len(samples)
    shares = [each.disk_bytes / max(each.live_bytes, 1) for each in samples]
    yield Series("disk for each live byte", "B", DISK, times, shares, lives)
    connections = [each.postgres_connections for each in samples]
    yield Series("connections of PostgreSQL", "", CONNECTIONS, times, connections, lives)
    rows = [each.postgres_bytes / max(each.commits, 1) for each in samples]
    yield Series("PostgreSQL for each commit", "B", CATALOGUE, times, rows, lives)
    yield from latencies(operations, began, seconds)


def series_of_process(
    name: str,
    samples: Sequence[tuple[float, ProcessSample]],
    memory: Rule,
    descriptors: Mapping[str, Rule],
) -> Iterator[Series]:
    """Yield the series of a process, whose samples have their times (s)."""
    times, lives = [time for time, _ in samples], [sample.pid for _, sample in samples]
    private = [sample.private_bytes for _, sample in samples]
    yield Series(f"memory of {name}", "B", memory, times, private, lives)
    yield Series(f"threads of {name}", "", THREADS, times, [sample.threads for _, sample in samples], lives)
    for kind in FILE_KINDS:
        counts = [sample.open_files[kind] for _, sample in samples]
        rule = descriptors.get(kind, DESCRIPTORS)
        yield Series(f"{kind} of {name}", "", rule, times, counts, lives)


def latencies(operations: Sequence[Operation], began: float, seconds: float) -> Iterator[Series]:
    """Yield the median and the 99th percentile of the seconds of each kind of client, by time."""
    for kind in sorted({each.kind for each in operations}):
        done = [
            (each.ended - began, each.seconds)
            for each in operations
            if each.kind == kind and each.outcome == "ok"
        ]
        if not done:
            continue
        times, took = np.array(done).T
        places = np.minimum(times * LATENCY_POINTS // seconds, LATENCY_POINTS - 1)
        there = sorted(set(places.tolist()))
        middles = [(place + 0.5) * seconds / LATENCY_POINTS for place in there]
        for share, name, rule in ((0.5, "median", MEDIAN), (0.99, "99 %", SLOWEST)):
            values = [float(np.quantile(took[places == place], share)) for place in there]
            yield Series(f"{kind}, {name}", "s", rule, middles, values, [0] * len(there))


def counts_of(operations: Sequence[Operation]) -> dict[str, dict[str, Any]]:
    """Return for each kind of client how its operations ended, and how long they took."""
    found = {}
    for kind in sorted({each.kind for each in operations}):
        mine = [each for each in operations if each.kind == kind]
        took = sorted(each.seconds for each in mine if each.outcome == "ok")
        quantiles = {
            name: took[min(math.floor(share * len(took)), len(took) - 1)] if took else 0.0
            for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0))
        }
        found[kind] = {"outcomes": dict(Counter(each.outcome for each in mine)), **quantiles}
    return found


def keep_logs(folder: Path, out: Path) -> None:
    """Copy what servers, clients and PostgreSQL have told."""
    for path in (*folder.glob("*.log"), *folder.glob("*.jsonl"), *folder.glob("*.errors")):
        shutil.copy(path, out)
    print(f"the logs are kept in {os.fspath(out)}", flush=True)

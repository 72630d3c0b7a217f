"""The command `plan`: the hardware of an experiment, a simulated site, the errors of predictions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._exceptions import InvalidError
from . import simulation
from .output import emit, table

__all__ = ["arguments", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``plan``."""
    parser.add_argument("experiment", metavar="NAME|FILE.toml", nargs="?")
    parser.add_argument("--list", action="store_true", help="list the bundled experiments")
    parser.add_argument("--show", action="store_true", help="print the experiment's file, to copy it")
    text = "run of `femtobarn testbed run profile` on the kind of machine to plan with"
    parser.add_argument("--profile", metavar="RUN", nargs="+", type=Path, default=[], help=text)
    text = "plan with the write rate of this folder's disk, which is measured first"
    parser.add_argument("--disk", metavar="FOLDER", type=Path, help=text)
    text = "predict these runs, and print the errors"
    parser.add_argument("--check", metavar="RUN", nargs="+", type=Path, default=[], help=text)
    text = "simulate a site with more machines than there are; with --check, predict rates by simulation"
    parser.add_argument("--simulate", action="store_true", help=text)
    parser.add_argument("--seed", type=int, default=1, help="seed of the simulation's random numbers (1)")
    text = "write the simulation's report, with pictures, into this folder"
    parser.add_argument("--out", metavar="FOLDER", type=Path, help=text)


def run(options: argparse.Namespace) -> None:
    """Print the plan, or the output that the options select instead."""
    if options.list:
        simulation.list_sites(options) if options.simulate else _list(options)
        return
    if options.experiment is None and not options.check:
        raise InvalidError("plan needs an experiment, --list, or --check with runs")
    if options.show:
        simulation.show_site(options) if options.simulate else _show(options)
        return
    if not options.profile:
        raise InvalidError("plan needs --profile RUN.json; `femtobarn testbed run profile` makes one")
    from femtobarn_testbed import latest, read
    from femtobarn_testbed.costs import fit

    costs = fit([read(path) for path in latest(options.profile)])
    if options.check:
        _check(options, costs)
    elif options.simulate:
        simulation.simulate_site(options, costs)
    else:
        _plan(options, costs)


def _list(options: argparse.Namespace) -> None:
    from femtobarn_testbed.planning import EXPERIMENTS, load_experiment

    titles = {name: load_experiment(path).title for name, path in EXPERIMENTS.by_name().items()}
    facts = [{"name": name, "title": title} for name, title in titles.items()]
    emit(options, facts, table(["experiment", "title"], [[n, t] for n, t in titles.items()]))


def _show(options: argparse.Namespace) -> None:
    from femtobarn_testbed.planning import EXPERIMENTS

    if options.experiment is None:
        raise InvalidError("--show needs an experiment")
    text = EXPERIMENTS.path_of(options.experiment).read_text().rstrip()
    emit(options, {"file": text}, text)


def _plan(options: argparse.Namespace, costs: Any) -> None:
    from femtobarn_testbed.disk import written_bytes_per_second
    from femtobarn_testbed.planning import load_experiment, plan

    experiment = load_experiment(options.experiment)
    if options.disk is not None:
        hardware = replace(experiment.hardware, disk_bytes_per_second=written_bytes_per_second(options.disk))
        experiment = replace(experiment, hardware=hardware)
    done = plan(experiment, costs)
    emit(options, done, "\n\n".join([done["experiment"], _needs(done), _activities(done), _costs(done)]))


def _needs(done: Mapping[str, Any]) -> str:
    rows = [
        [
            need["what"],
            f"{need['needed']:,}",
            need["limit"],
            f"{need['used']:,.4g}",
            f"{need['margin']:.0%}",
            need["formula"],
        ]
        for need in done["needs"]
    ]
    head = ["resource", "needed", "because of", "used", "free", "used is"]
    total = done["totals"]
    rate, stored = total["bytes_per_second"] / 1e6, total["stored_bytes_per_year"] / 1e12
    have = done["hardware"]
    return table(head, rows, right={1, 3, 4}) + (
        f"\nneeded: used / (1 - {done['margin']:g}), rounded up; network: {rate:,.4g} MB/s"
        f"; new data: {stored:,.4g} TB a year, {done['duty']:g} of which data are taken"
        f"\na disk: {have['disk_bytes_per_second'] / 1e6:,.4g} MB/s, {have['disk_bytes'] / 1e12:,.4g} TB"
        f"; a server: {have['server_cores']} cores, {have['network_bytes_per_second'] / 1e6:,.4g} MB/s"
    )


def _activities(done: Mapping[str, Any]) -> str:
    rows = [
        [
            row["name"],
            f"{row['events_per_second']:,.4g}",
            f"{row['physics_cpus']:,.4g}",
            f"{row['client_cpus']:,.4g}",
            f"{row['server_cpus']:,.4g}",
            f"{row['bytes_per_second'] / 1e6:,.4g}",
            ", ".join(f"{count:,.4g} {term}" for term, count in row["work"].items()),
        ]
        for row in done["activities"]
    ]
    head = ["activity", "events/s", "CPUs", "clients' I/O", "servers", "MB/s", "work of an event"]
    return table(head, rows, right={1, 2, 3, 4, 5})


def _costs(done: Mapping[str, Any]) -> str:
    from femtobarn_testbed.costs import RESOURCES, TERMS

    costs = done["costs"]
    rows = [
        [name, TERMS[name], *(f"{costs[resource][name] * 1e6:,.4g}" for resource in RESOURCES)]
        for name in costs["client"]
    ]
    head = ["cost of", "meaning", *(f"{text}, us" for text in RESOURCES.values())]
    return table(head, rows, right={2, 3, 4}) + (
        f"\non an idle machine; if only the margin is free, CPU costs are {done['growth']:.3g} times as high"
    )


def _check(options: argparse.Namespace, costs: Any) -> None:
    from femtobarn_testbed import latest, read
    from femtobarn_testbed.prediction import predict

    throughput = simulation.queued() if options.simulate else None
    rows = []
    for path in latest(options.check):
        done = read(path)
        rows += [{"workload": done["workload"], **row} for row in predict(costs, done, throughput)]
    cells = [
        [
            f"{row['workload']}: {row['variant']}",
            str(row["clients"]),
            f"{row['predicted_cores']:.3g}",
            f"{row['cores']:.3g}",
            _percent(row["cores_error"]),
            f"{row['predicted_bytes_per_second'] / 1e6:,.4g}",
            f"{row['bytes_per_second'] / 1e6:,.4g}",
            _percent(row["bytes_error"]),
            row["predicted_limit"],
        ]
        for row in rows
    ]
    head = ["point", "clients", "predicted cores", "cores", "error"]
    head += ["predicted MB/s", "MB/s", "error", "predicted limit"]
    emit(options, rows, table(head, cells, right=set(range(1, 8))))


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.0%}"

"""The command `plan --simulate`: a simulated site, larger than the machines at hand, and its bottleneck."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .._exceptions import InvalidError, UnsupportedError
from .output import emit, table

__all__ = ["list_sites", "queued", "show_site", "simulate_site"]


def list_sites(options: argparse.Namespace) -> None:
    """Print the bundled sites."""
    from femtobarn_testbed.simulation.site_file import SITES, load_site

    titles = {name: load_site(path).title for name, path in SITES.by_name().items()}
    facts = [{"name": name, "title": title} for name, title in titles.items()]
    emit(options, facts, table(["site", "title"], [[n, t] for n, t in titles.items()]))


def show_site(options: argparse.Namespace) -> None:
    """Print a site's file."""
    from femtobarn_testbed.simulation.site_file import SITES

    if options.experiment is None:
        raise InvalidError("--show needs a site")
    text = SITES.path_of(options.experiment).read_text().rstrip()
    emit(options, {"file": text}, text)


def simulate_site(options: argparse.Namespace, costs: Any) -> None:
    """Simulate a site, print the tables, and write the report if a folder is given."""
    _need_simpy()
    from femtobarn_testbed.simulation.page import write_site_report
    from femtobarn_testbed.simulation.site_file import load_site
    from femtobarn_testbed.simulation.study import study
    from femtobarn_testbed.simulation.tables import loads_table, recalls_table, scenarios_table

    site = load_site(options.experiment)
    done = study(site, costs, seed=options.seed, progress=_progress())
    parts = [
        done["site"],
        _gives_first(done),
        _text(scenarios_table(done)),
        f"as described, over the number of clients:\n{_text(loads_table(done))}",
        _text(recalls_table(done)),
    ]
    if options.out is not None:
        page = write_site_report(done, options.out)
        parts.append(f"wrote {page}")
        done["report"] = str(page)
    emit(options, done, "\n\n".join(parts))


def queued() -> Any:
    """Return the prediction of rates by simulation."""
    _need_simpy()
    from femtobarn_testbed.simulation.queueing import queued_throughput

    return queued_throughput


def _gives_first(done: Mapping[str, Any]) -> str:
    knee, clients = done["scenarios"][0]["knee"], done["clients"]
    if knee["load"] is None:
        return f"no limit is reached by {done['scenarios'][0]['points'][-1]['clients']:,.0f} clients"
    return (
        f"first limit: {knee['resource']}, with {knee['load'] * clients:,.0f} clients"
        f" ({clients:,} are described)"
    )


def _text(of: tuple[list[str], list[list[str]]]) -> str:
    head, rows = of
    return table(head, rows, right=set(range(1, len(head))))


def _progress() -> Callable[[str], None]:
    """Show each step on standard error, over the one before, if that is a terminal."""

    def show(text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()

    return show if sys.stderr.isatty() else lambda _: None


def _need_simpy() -> None:
    try:
        import simpy  # noqa: F401
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "simulations need SimPy, which is not installed: pip install 'femtobarn[plan]'"
        ) from error

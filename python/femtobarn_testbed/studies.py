"""Studies: workloads without scenarios of clients, each a package of its own, and the table of all of them.

A workload's file with the table of a study has cases, one for each variant, instead of scenarios. To add a
study, write a package with the modules `workload`, `tables` and `page`, and put it into :data:`STUDIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .eviction import tables as eviction_tables
from .eviction.workload import parse_replay, run_replays
from .hot import tables as hot_tables
from .hot.workload import parse_hot_file, run_hot_files
from .recall import tables as recall_tables
from .recall.workload import parse_recalls, run_recalls
from .toml_parser import Parser

__all__ = ["STUDIES", "Measured", "Study", "study_of"]

Run = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
Measured = Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]
"""Of each case its name, facts about it, and its points, as soon as they are measured."""


@dataclass(frozen=True)
class Study:
    """A kind of workload."""

    package: str
    """In this package; its module `page` has `parts`, which makes the part of a report about a run."""
    table: str
    """Of a workload's file, which no other study has."""
    facts: str
    """Member of a run with facts about each case, which no other study has."""
    parse: Callable[[str, Parser, Mapping[str, Any]], Any]
    """Makes a case of the name of a variant, the study's table and the variant's settings."""
    measure: Callable[[Sequence[Any], Path, int, Callable[[str], None]], Measured]
    """Runs cases, with a folder that it may make and is removed afterwards, a seed, and a function that
    receives lines about the progress."""
    tables: Sequence[Callable[[Run], Table]]
    """Of a run, as the command prints them."""
    did: str
    """The verb of an error about one of its runs, which have no scenarios of clients."""

    def parts(self, run: Run, stem: str, out: Path) -> Iterator[str]:
        """Yield the parts of a report about a run, and write its pictures into a folder.

        Parameters
        ----------
        stem
            The beginning of the pictures' names.
        """
        # Only pages need Matplotlib.
        page = import_module(f".{self.package}.page", __package__)
        yield from page.parts(run, stem, out)


STUDIES = (
    Study(
        package="eviction",
        table="replay",
        facts="traces",
        parse=parse_replay,
        measure=run_replays,
        tables=(eviction_tables.ratio_table, eviction_tables.staged_table),
        did="replayed traces",
    ),
    Study(
        package="recall",
        table="recall",
        facts="libraries",
        parse=parse_recalls,
        measure=run_recalls,
        tables=(recall_tables.mounts_table, recall_tables.clients_table),
        did="recalled files",
    ),
    Study(
        package="hot",
        table="hot",
        facts="sites",
        parse=parse_hot_file,
        measure=run_hot_files,
        tables=(hot_tables.rates_table, hot_tables.phases_table, hot_tables.servers_table),
        did="read a hot file",
    ),
)


def study_of(run: Run) -> Study | None:
    """Return the study that a run belongs to, or None if it has scenarios of clients."""
    return next((study for study in STUDIES if study.facts in run), None)

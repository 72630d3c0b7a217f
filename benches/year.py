"""What a year does to the federation of a small experiment: 365 days with a thousandth of their commits.

    year.py run FOLDER [WAY] > YEAR.json    commit below FOLDER, with each way of upkeep or with one
    year.py draw YEAR.json PICTURE          draw `docs/scalability/year.svg`
    year.py table YEAR.json                 print the table of `docs/scalability.md`

A commit adds one object with two numbers to a container with an index. After every five days there is a night
with upkeep. Everything is done by the public API in this process; times are CPU times of the process.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import femtobarn as fb
from femtobarn_reports.style import BLUE, CORAL, TEAL, clean
from femtobarn_reports.style import picture as empty
from pictures import drawing, svg

DAYS_BETWEEN, NIGHTS = 5, 73
COMMITS_BETWEEN = 500
"""Commits of five days, a thousandth of 100,000 a day."""
KEPT_DAYS = 30
LOOKS = 5
"""Objects that are read after each of the days that a night follows."""
FORM = {"name": "Reading", "fields": [{"name": "n", "type": "uint64"}, {"name": "x", "type": "float64"}]}


@dataclass(frozen=True)
class Day:
    """The last of some days: the commits of these, what they left, and the night after it."""

    day: int
    commit_us: float
    """CPU time of a commit, the mean of these days."""
    open_us: float
    """CPU time of opening the federation and reading an object of the year, the median of some."""
    find_us: float
    """The same of finding an object by its key."""
    catalogue_bytes: int
    log_bytes: int
    """Length of the catalogue's write-ahead log."""
    file_bytes: int
    """Bytes on the disk of all database files."""
    night_s: float
    """CPU time of the night's upkeep."""
    versions: int
    """Versions that the night deleted."""
    freed_bytes: int


class Year:
    """A federation, and the objects that were put into it."""

    def __init__(self, path: Path, *, is_divided: bool) -> None:
        self.path, self.is_divided = path, is_divided
        self.objects = 0

    def place(self, night: int) -> str:
        """The database of the days before a night."""
        return f"days{night}" if self.is_divided else "readings"

    def commits(self, federation: fb.Federation, night: int) -> None:
        """The commits of the days before a night."""
        place = self.place(night)
        if self.is_divided or night == 0:
            with federation.transaction() as txn:
                container = txn.database(place, create=True).container("slow", FORM, create=True)
                container.create_index("n", ["n"], unique=True)
        for _ in range(COMMITS_BETWEEN):
            with federation.transaction() as txn:
                container = txn.database(place).container("slow")
                container.extend({"n": np.array([self.objects], np.uint64), "x": np.zeros(1)})
            self.objects += 1

    def read(self, number: int) -> None:
        """Open the federation, and read an object."""
        with fb.open(self.path) as federation:
            container = federation[f"{self.place(number // COMMITS_BETWEEN)}/slow"]
            assert container[number % COMMITS_BETWEEN if self.is_divided else number].n == number

    def find(self, number: int) -> None:
        """Open the federation, and find an object by its key."""
        with fb.open(self.path) as federation:
            assert federation.find(f"{self.place(number // COMMITS_BETWEEN)}/slow", n=number).n == number


Upkeep = Callable[[fb.Federation, Year, int], list[fb.VacuumReport]]


def nothing(*_: object) -> list[fb.VacuumReport]:
    """The upkeep of a federation in which nothing is set."""
    return []


def tidy(federation: fb.Federation, year: Year, night: int) -> list[fb.VacuumReport]:
    """Keep a month of history, and merge small clusters."""
    if night == 0:
        federation.set_retention(keep_commits=KEPT_DAYS // DAYS_BETWEEN * COMMITS_BETWEEN)
    return [federation.tidy(year.place(night))[1]]


def tidy_and_seal(federation: fb.Federation, year: Year, night: int) -> list[fb.VacuumReport]:
    """The same, and seal the database whose history vacuum has just given up."""
    reports = tidy(federation, year, night)
    closed = night - KEPT_DAYS // DAYS_BETWEEN - 1
    if closed >= 0:
        federation.seal(year.place(closed))
    return reports


WAYS: dict[str, tuple[Upkeep, bool]] = {
    "nothing set": (nothing, False),
    "retention, tidy": (tidy, False),
    "retention, tidy, databases sealed": (tidy_and_seal, True),
}
COLOURS = dict(zip(WAYS, (CORAL, BLUE, TEAL), strict=True))


def main() -> None:
    """Run one command."""
    command, *rest = sys.argv[1:]
    if command == "run":
        chosen = rest[1:] or list(WAYS)
        print(json.dumps({way: [asdict(day) for day in lived(Path(rest[0]), way)] for way in chosen}))
        return
    run = json.loads(Path(rest[0]).read_text())
    ways = {way: [Day(**day) for day in days] for way, days in run.items()}
    if command == "draw":
        Path(rest[1]).write_text(drawn(ways) + "\n")
    else:
        print("\n".join(table(ways)))


# ---- the year


def lived(folder: Path, way: str) -> Iterator[Day]:
    """The days before each night of a year that is looked after in one way."""
    upkeep, is_divided = WAYS[way]
    year = Year(folder / f"{list(WAYS).index(way)}.fed", is_divided=is_divided)
    random = np.random.default_rng(1)
    fb.create(year.path).close()
    for night in range(NIGHTS):
        with fb.open(year.path) as federation:
            commit_s = cpu(year.commits, federation, night)
            log_bytes = size(year.path.glob("catalogue.sqlite-wal"))
        numbers = [int(number) for number in random.integers(year.objects, size=LOOKS)]
        open_s = statistics.median(cpu(year.read, number) for number in numbers)
        find_s = statistics.median(cpu(year.find, number) for number in numbers)
        with fb.open(year.path) as federation:
            started = time.process_time()
            reports = upkeep(federation, year, night)
            night_s = time.process_time() - started
        yield Day(
            day=(night + 1) * DAYS_BETWEEN,
            commit_us=commit_s / COMMITS_BETWEEN * 1e6,
            open_us=open_s * 1e6,
            find_us=find_s * 1e6,
            catalogue_bytes=size(year.path.glob("catalogue.sqlite")),
            log_bytes=log_bytes,
            file_bytes=size(year.path.glob("databases/*")),
            night_s=night_s,
            versions=sum(report.versions for report in reports),
            freed_bytes=sum(report.version_bytes + report.garbage_bytes for report in reports),
        )


def cpu(work: Callable[..., object], *arguments: object) -> float:
    """CPU seconds of work."""
    started = time.process_time()
    work(*arguments)
    return time.process_time() - started


def size(files: Iterable[Path]) -> int:
    """Bytes of files on the disk, without holes."""
    return sum(file.stat().st_blocks * 512 for file in files)


# ---- pictures and tables


PANELS: dict[str, Callable[[Day], float]] = {
    "catalogue, MB": lambda day: day.catalogue_bytes / 1e6,
    "database files, MB": lambda day: day.file_bytes / 1e6,
    "upkeep at night, CPU s": lambda day: day.night_s,
    "a commit, CPU us": lambda day: day.commit_us,
    "open and read, CPU us": lambda day: day.open_us,
    "open and find, CPU us": lambda day: day.find_us,
}
SMOOTHED = 5
"""Nights whose median is a point of a curve of times."""


def drawn(ways: dict[str, list[Day]]) -> str:
    """The picture as SVG: a panel for each quantity, a curve for each way."""
    with drawing():
        figure = empty(10.5, 5.4)
        panels = figure.subplots(2, 3).flat
        for axes, (title, value) in zip(panels, PANELS.items(), strict=True):
            for way, days in ways.items():
                values = [value(day) for day in days]
                if "CPU" in title:
                    values = smoothed(values)
                axes.plot([day.day for day in days], values, color=COLOURS[way], label=way)
            clean(axes, title=title)
            axes.set_ylim(bottom=0)
            axes.set_xticks([0, 100, 200, 300])
        for axes in figure.axes[3:]:
            axes.set_xlabel(f"days of {COMMITS_BETWEEN // DAYS_BETWEEN} commits")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return svg(figure)


def smoothed(values: list[float]) -> list[float]:
    """Medians of neighbouring values."""
    reach = SMOOTHED // 2
    return [statistics.median(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]


def table(ways: dict[str, list[Day]]) -> Iterator[str]:
    """A line for each quantity: on the first days, and on the last ones of each way."""
    yield f"| | first days | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 2) + "|"
    first = next(iter(ways.values()))[:SMOOTHED]
    for title, value in PANELS.items():
        ends = [statistics.median(map(value, days[-SMOOTHED:])) for days in ways.values()]
        cells = [f"{number:.3g}" for number in (statistics.median(map(value, first)), *ends)]
        yield f"| {title} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

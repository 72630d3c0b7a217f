"""Shows which figure of how many is being measured, and when the run will be done.

On a terminal a line says what is being done; otherwise a line is printed as each longer step begins.
"""

from __future__ import annotations

import shutil
import sys
import time
from datetime import datetime, timedelta

from framework import Figure


class Progress:
    """The progress of a run of rounds of figures.

    After the first round no figure begins once the time limit is over.
    """

    def __init__(self, figures: list[Figure], rounds: int, limit: float) -> None:
        self.names = [figure.name for figure in figures]
        self.sides = [len(figure.sides) for figure in figures]
        self.rounds, self.limit = rounds, limit
        self.begun = time.monotonic()
        self.done = 0.0
        self.label = ""

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    def begin(self, figure: Figure, turn: int) -> None:
        """Begin a figure in a round, the first of which has the number 0."""
        at = self.names.index(figure.name)
        self.done = turn + sum(self.sides[:at]) / sum(self.sides)
        self.label = f"round {turn + 1} of {self.rounds}, figure {at + 1} of {len(self.names)}, {figure.name}"
        announce(f"{self.label}; {self.when()}")

    def side(self, key: str) -> None:
        """Begin a side of the figure."""
        show(f"{self.when()}; {self.label}: {key}")
        self.done += 1 / sum(self.sides)

    def when(self) -> str:
        """The time of day at which the run will be done, as far as what was done tells."""
        if not self.done:
            return f"begun at {datetime.now():%H:%M}"
        left = seconds_in_all(self.spent(), self.done, self.rounds, self.limit) - self.spent()
        return f"done at about {datetime.now() + timedelta(seconds=max(left, 0.0)):%H:%M}"


def seconds_in_all(spent: float, rounds_done: float, rounds: int, limit: float) -> float:
    """How long a run takes, of which a number of rounds, and parts of one, took some seconds.

    >>> seconds_in_all(60.0, 0.5, 3, 1000.0)
    360.0
    >>> seconds_in_all(60.0, 0.5, 3, 200.0)
    200.0
    >>> seconds_in_all(600.0, 0.5, 3, 200.0)
    1200.0
    """
    one = spent / rounds_done
    return max(one, min(rounds * one, limit))


def announce(text: str) -> None:
    """Show the beginning of a longer step; a line of its own if there is no terminal."""
    if sys.stderr.isatty():
        show(text)
    else:
        print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Show the current step on a terminal, in place of the step before."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{text:<{width}.{width}}", end="" if text else "\r", file=sys.stderr, flush=True)

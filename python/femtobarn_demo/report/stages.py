"""The stages of a run: their measurements, a table with a row for each, and a picture of their rates."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from femtobarn_reports.style import BLUE, GREY, INK, TEAL, clean, picture

__all__ = ["Movement", "Stage", "draw_rates", "movements_table", "table"]

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Stage:
    """The measurements of a stage.

    Parameters
    ----------
    name
        For readers, such as "write raw events".
    processes
        Number of concurrent processes.
    events, objects, bytes
        Events, objects of the federation, and payload bytes that were processed.
    seconds, cpu_seconds
        Elapsed time, and CPU time of all processes.
    """

    name: str
    processes: int
    events: int
    objects: int
    bytes: int
    seconds: float
    cpu_seconds: float

    @property
    def megabytes(self) -> float:
        """Payload (MB)."""
        return self.bytes / MEGABYTE

    @property
    def megabytes_per_second(self) -> float:
        """Payload per elapsed second (MB/s)."""
        return self.megabytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def events_per_second(self) -> float:
        """Events per elapsed second (1/s)."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    @property
    def cpu_per_100_megabytes(self) -> float:
        """CPU seconds per 100 MB."""
        return 100.0 * self.cpu_seconds / self.megabytes if self.bytes > 0 else 0.0


HEADINGS = ("stage", "processes", "events", "objects", "MB", "seconds", "MB/s", "events/s", "CPU s / 100 MB")


def table(stages: list[Stage]) -> list[tuple[str, ...]]:
    """Return the numbers as text, a row for each stage, in the order of `HEADINGS`."""
    return [
        (
            stage.name,
            str(stage.processes),
            f"{stage.events:,}",
            f"{stage.objects:,}",
            f"{stage.megabytes:,.1f}" if stage.bytes else "-",
            f"{stage.seconds:,.2f}",
            f"{stage.megabytes_per_second:,.0f}" if stage.bytes else "-",
            f"{stage.events_per_second:,.0f}",
            f"{stage.cpu_per_100_megabytes:,.2f}" if stage.bytes else "-",
        )
        for stage in stages
    ]


@dataclass(frozen=True)
class Movement:
    """A step of a database's file from the disk to a store and back.

    Parameters
    ----------
    name
        The operation.
    state
        Its place after that, as `Federation.where` reports it.
    bytes, seconds
        Bytes that were moved, and elapsed time.
    """

    name: str
    state: str
    bytes: int = 0
    seconds: float = 0.0


MOVEMENTS = ("the file was", "then it is", "MB", "seconds", "MB/s")


def movements_table(movements: list[Movement]) -> list[tuple[str, ...]]:
    """Return the steps as text, a row for each, in the order of `MOVEMENTS`."""
    return [
        (
            each.name,
            each.state,
            f"{each.bytes / MEGABYTE:,.1f}" if each.bytes else "-",
            f"{each.seconds:,.2f}" if each.seconds else "-",
            f"{each.bytes / MEGABYTE / each.seconds:,.0f}" if each.bytes else "-",
        )
        for each in movements
    ]


def draw_rates(stages: list[Stage]) -> Figure:
    """Draw bars of MB/s and of events/s, a row for each stage, on logarithmic axes."""
    figure = picture(10.0, 1.1 + 0.46 * len(stages))
    left, right = figure.subplots(1, 2, sharey=True)
    names = [stage.name for stage in stages]
    panels = (
        (left, [stage.megabytes_per_second for stage in stages], "MB/s", BLUE),
        (right, [stage.events_per_second for stage in stages], "events/s", TEAL),
    )
    for axes, values, unit, colour in panels:
        axes.barh(names, values, height=0.58, color=colour)
        axes.set_xscale("log")
        positive = [value for value in values if value > 0]
        if positive:
            axes.set_xlim(min(positive) / 3, max(positive) * 5)
        for row, value in enumerate(values):
            if value > 0:
                axes.text(value * 1.12, row, f"{value:,.0f}", va="center", fontsize=10, color=INK)
        clean(axes, x=unit, grid="x")
        axes.spines["left"].set_visible(False)
    left.invert_yaxis()
    left.tick_params(axis="y", labelcolor=INK, labelsize=10.5)
    left.set_title("Payload")
    right.set_title("Events")
    for axes in (left, right):
        axes.tick_params(axis="x", which="both", length=0, labelcolor=GREY)
    return figure

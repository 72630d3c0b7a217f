"""Pictures of series: the lines that Matplotlib draws are what the look-ups answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import femtobarn as fb

HOUR = 3_600_000_000_000
DAY_LENGTH = 24 * HOUR
"""The unit of an axis of time."""
DAY = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""


@fb.persistent
class Voltage:
    volts: fb.float64
    name: str = ""


@fb.persistent
class Spot:
    x: fb.float32
    y: fb.float32


@pytest.fixture
def axes() -> Axes:
    return Figure().subplots()


def at_line(axes: Axes, line: int, place: float) -> float | None:
    """The value of a line at a place inside one of its steps; None where the line is cut."""
    x, y = (np.asarray(values, float) for values in axes.lines[line].get_data(orig=False))
    for left, right, low, high in zip(x, x[1:], y, y[1:], strict=False):
        if left < place < right and low == high:
            return float(low)
    return None


def test_line_has_the_value_of_every_moment_and_gaps(fed: fb.Federation, axes: Axes) -> None:
    with fed.transaction() as txn:
        volts = txn.series("tpc/hv", Voltage, create=True)
        volts.put(Voltage(volts=400.0), since=DAY, until=DAY + 10 * HOUR)
        volts.put(Voltage(volts=380.0), since=DAY + 4 * HOUR, until=DAY + 5 * HOUR)
        volts.put(Voltage(volts=410.0), since=DAY + 12 * HOUR)
        volts.put(Voltage(volts=90.0), since=DAY, until=DAY + HOUR, channel=7)
    series = fed.conditions()["tpc/hv"]
    series.plot("volts", axes=axes)
    assert [line.get_label() for line in axes.lines] == ["channel 0", "channel 7"]
    for line, channel in enumerate((0, 7)):
        for moment in range(DAY - HOUR // 4, DAY + 12 * HOUR, HOUR // 2):
            found = series.at(moment, channel=channel)
            assert at_line(axes, line, moment / DAY_LENGTH) == (found and found.volts), (channel, moment)
    edges = (DAY - 0.6 * HOUR, DAY + 12.6 * HOUR)
    assert axes.get_xlim() == pytest.approx([edge / DAY_LENGTH for edge in edges])


def test_runs_are_on_the_axis_with_their_blocks(fed: fb.Federation, axes: Axes) -> None:
    with fed.transaction() as txn:
        spots = txn.series("beam/spot", Spot, create=True, clock="run")
        spots.put(Spot(x=1.0, y=0.0), since=(7, 0), until=(7, 3))
        spots.put(Spot(x=2.0, y=0.0), since=(8, 0), until=(9, 0))
    fed.conditions()["beam/spot"].plot("x", (7, 0), (9, 0), channel=0, axes=axes)
    assert [at_line(axes, 0, place) for place in (7.5, 7.9, 8.5)] == [1.0, None, 2.0]
    assert axes.get_xlim() == (7.0, 9.0)
    assert axes.get_xlabel() == "run"


def test_channels_and_open_ends_share_the_places_of_blocks(fed: fb.Federation, axes: Axes) -> None:
    with fed.transaction() as txn:
        spots = txn.series("beam/spot", Spot, create=True, clock="run")
        spots.put(Spot(x=1.0, y=0.0), since=(7, 1))
        spots.put(Spot(x=2.0, y=0.0), since=(7, 1), until=(8, 9), channel=1)
    fed.conditions()["beam/spot"].plot("x", axes=axes)
    assert [np.asarray(line.get_xdata())[0] for line in axes.lines] == [7.1, 7.1]


def test_plots_of_invalid_fields_and_channels_are_refused(fed: fb.Federation, axes: Axes) -> None:
    with fed.transaction() as txn:
        txn.series("beam/spot", Spot, create=True, clock="run").put(Spot(x=1.0, y=0.0), since=(7, 0))
        hv = txn.series("tpc/hv", Voltage, create=True)
        for channel in range(11):
            hv.put(Voltage(volts=1.0), since=DAY, channel=channel)
    job = fed.conditions()
    for series, arguments, what in (
        ("beam/spot", {}, "numbers are ['x', 'y']"),
        ("tpc/hv", {"field": "name"}, "is not a number; numbers are ['volts']"),
        ("tpc/hv", {}, "has 11 channels: name some"),
    ):
        keywords: dict[str, Any] = arguments
        with pytest.raises(fb.InvalidError) as refused:
            job[series].plot(axes=axes, **keywords)
        assert what in str(refused.value)
    with pytest.raises(fb.NotFoundError):
        job["tpc/hv"].plot("voltage", axes=axes)
    job["tpc/hv"].plot(channel=range(10), axes=axes)
    assert len(axes.lines) == 10


def test_empty_series_and_new_picture(fed: fb.Federation, tmp_path: Path) -> None:
    with fed.transaction() as txn:
        txn.series("tpc/hv", Voltage, create=True)
    axes = fed.conditions()["tpc/hv"].plot()
    plt.savefig(tmp_path / "empty.png")
    assert (axes.get_title(), axes.get_ylabel()) == ("tpc/hv", "volts")
    plt.close("all")


def test_without_matplotlib_plots_fail_with_the_package_to_install(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        txn.series("tpc/hv", Voltage, create=True)
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import femtobarn as fb\n"
        f"try: fb.open({str(fed.path)!r}).conditions()['tpc/hv'].plot()\n"
        "except fb.UnsupportedError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'femtobarn[plots]'" in ran.stdout

"""Histograms of views, compared with those that hist and NumPy make of the arrays."""

from __future__ import annotations

from typing import Any

import awkward as ak
import hist
import numpy as np
import pytest

import femtobarn as fb
from femtobarn._views import scans

FIELDS = [
    {"name": "run", "type": "int32"},
    {"name": "w", "type": "float64"},
    {"name": "pt", "type": {"list": "float32"}},
    {"name": "eta", "type": {"list": "float32"}},
    {"name": "z", "type": {"optional": "float64"}},
    {"name": "tag", "type": "string"},
]


@pytest.fixture
def events(fed: fb.Federation, monkeypatch: pytest.MonkeyPatch) -> fb.View:
    monkeypatch.setattr(scans, "CHUNK_ENTRIES", 64)  # Several parts and threads.
    generator = np.random.default_rng(7)
    counts = generator.poisson(2, 1000)
    items = {
        "pt": generator.exponential(30, counts.sum()).astype("f4"),
        "eta": generator.normal(0, 2, counts.sum()).astype("f4"),
    }
    with fed.transaction() as txn:
        form = {"name": "Event", "fields": FIELDS}
        events = txn.database("d", create=True).container("events", form, create=True)
        events.extend(
            {name: ak.unflatten(each, counts) for name, each in items.items()}
            | {
                "run": np.arange(1000) % 10,
                "w": generator.random(1000),
                "z": ak.Array([None, 1.0, 2.5, 4.0])[np.arange(1000) % 4],
                "tag": ak.Array(["a", "b"])[np.arange(1000) % 2],
            }
        )
    with fed.transaction() as txn:
        txn.database("d").container("events").delete(where="run == 3")
    return fed["d/events"]


def test_each_value_is_counted(events: fb.View) -> None:
    expected, _ = np.histogram(ak.to_numpy(ak.flatten(events["pt"])), 20, (0, 100))
    assert (events.hist({"pt": (20, 0, 100)}).values() == expected).all()
    assert (events.hist({"pt": [0, 10, 100]}).values() == [expected[:2].sum(), expected[2:].sum()]).all()


def test_values_of_an_object_go_together_with_weights(events: fb.View) -> None:
    found = events.hist({"pt": (10, 0, 100), "eta": (8, -4, 4)}, where="run < 5", weight="w")
    arrays = events.arrays(where="run < 5")
    expected = hist.Hist(
        hist.axis.Regular(10, 0, 100), hist.axis.Regular(8, -4, 4), storage=hist.storage.Weight()
    )
    weights = ak.flatten(ak.broadcast_arrays(arrays.w, arrays.pt)[0])
    expected.fill(ak.flatten(arrays.pt), ak.flatten(arrays.eta), weight=weights)
    assert np.allclose(found.values(flow=True), expected.values(flow=True))
    assert np.allclose(found.variances(flow=True), expected.variances(flow=True))


def test_bins_that_are_not_given_hold_all_values(events: fb.View) -> None:
    pt = events.hist("pt")
    values = ak.flatten(events["pt"])
    assert pt.sum() == pt.sum(flow=True) == len(values)
    assert pt.axes[0].size == 50
    assert pt.axes[0].edges[0] == min(values)
    assert pt.axes[0].label == "pt"
    runs = events.hist("run")
    assert runs.axes[0].edges.tolist() == list(range(11))
    assert runs.values().tolist() == [100, 100, 100, 0] + [100] * 6
    assert events.hist({"run": 5}).axes[0].edges.tolist() == [0, 2, 4, 6, 8, 10]


def test_the_greatest_value_is_in_the_last_bin_however_its_place_is_rounded(events: fb.View) -> None:
    # hist divides by the width of all bins, and the quotient of the greatest value must stay below 1.
    for factor in range(1, 60):
        filled = events.hist("scaled", aliases={"scaled": f"(w - 0.5) * {factor}"})
        assert filled.sum() == len(events), factor


def test_missing_values_are_not_counted(events: fb.View) -> None:
    assert events.hist("z").sum() == ak.count(events["z"])
    found = events.hist({"z": (3, 0, 3), "run": [0, 5, 10]})
    arrays = events.arrays(where="z is not None")
    expected, _, _ = np.histogram2d(ak.to_numpy(arrays.z).data, arrays.run, ([0, 1, 2, 3], [0, 5, 10]))
    assert np.array_equal(found.values()[:2], expected[:2])


def test_several_histograms_are_filled_at_once(events: fb.View) -> None:
    count, run, both = events.hist("npt", {"run": (2, 0, 10)}, ["pt", "eta"], where=lambda ev: ev.w > 0.5)
    arrays = events.arrays(where="w > 0.5")
    assert count.values().tolist() == np.bincount(ak.num(arrays.pt)).tolist()
    assert run.sum() == len(arrays)
    assert both.sum() == ak.count(arrays.pt)


def test_texts_are_counted_on_an_axis_of_categories(events: fb.View) -> None:
    found = events.hist({"tag": hist.axis.StrCategory([], growth=True, name="tag")})
    assert {tag: found[tag] for tag in found.axes[0]} == {"a": 500, "b": 400}


def test_parts_of_a_view_are_counted(events: fb.View) -> None:
    assert events[10:30].hist({"run": (10, 0, 10)}).sum() == 20
    assert events[[5, 4, 5]].hist({"run": (10, 0, 10)}).values()[[5, 6]].tolist() == [1, 2]
    assert events[:0].hist("pt").sum(flow=True) == 0


@pytest.mark.parametrize(
    ("axes", "weight", "error", "reason"),
    [
        ([], None, fb.InvalidError, "takes the name of a field"),
        ([3], None, fb.InvalidError, "takes the name of a field"),
        (["tag"], None, fb.InvalidError, "'tag' has no numbers"),
        (["ptt"], None, fb.NotFoundError, "did you mean 'pt'"),
        ([{"pt": (1, 2)}], None, fb.InvalidError, "the bins of 'pt' are"),
        ([{"pt": 0}], None, fb.InvalidError, "the bins of 'pt' are"),
        ([{"pt": "x"}], None, fb.InvalidError, "the bins of 'pt' are"),
        ([{"pt": -3}], None, fb.InvalidError, "a number of 1 or more, .*, not -3$"),
        ([{"pt": (2.5, 0, 1)}], None, fb.InvalidError, r"not \(2.5, 0, 1\)$"),
        ([{"pt": [2, 1]}], None, fb.InvalidError, r"rising edges, .*, not \[2, 1\]$"),
        ([{"tag": (2, 0, 1)}], None, fb.InvalidError, "hist cannot count tag"),
        (["pt"], "tag", fb.InvalidError, "hist cannot count pt"),
        ([["pt", "ww"]], None, fb.NotFoundError, "'ww' does not exist"),
    ],
)
def test_invalid_axes_and_weights_are_refused(
    events: fb.View, axes: list[Any], weight: str | None, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        events.hist(*axes, weight=weight)


def test_a_notebook_shows_the_first_objects(events: fb.View) -> None:
    page = events._repr_html_()
    assert "d/events: 900 objects of class Event" in page
    assert page.count("<tr>") == 6
    assert "<th>run<br><small>int32</small></th>" in page
    assert "<td>None</td>" in page

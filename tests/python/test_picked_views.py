"""Views of objects picked by masks and positions: they pick what NumPy picks, and read lazily."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pandas as pd
import pytest

import femtobarn as fb
from femtobarn._query.selection import Selection

FORM = {
    "name": "Number",
    "fields": [{"name": "n", "type": "int32"}, {"name": "x", "type": {"list": "float32"}}],
}
COUNT = 600


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fb.Federation]:
    """One container of the numbers 0 to 599 from which 3 and 4 were deleted, and one of all of them."""
    with fb.create(tmp_path_factory.mktemp("picked") / "lhc.fed") as federation:
        values = {"n": np.arange(COUNT), "x": [[float(n)] * (n % 3) for n in range(COUNT)]}
        with federation.transaction() as txn:
            database = txn.database("d", create=True)
            database.container("all", FORM, create=True).extend(values)
            database.container("some", FORM, create=True).extend(values)
        with federation.transaction() as txn:
            txn.database("d").container("some").delete([3, 4])
        yield federation


@pytest.fixture(params=["d/all", "d/some"])
def view(fed: fb.Federation, request: pytest.FixtureRequest) -> fb.View:
    return fed[request.param]


def picks(count: int) -> list[Any]:
    """Every kind of index that NumPy takes, for a sequence of a length."""
    mask = np.arange(count) % 7 == 2
    return [
        mask, mask.tolist(), ak.Array(mask), pd.Series(mask), np.zeros(count, bool),
        [1, 2], [-1, 0, 5, 5], [], np.array([4, 3], np.uint64), ak.Array([7, -2]), range(2, 5),
        np.arange(100, 500), slice(None, None, 2), slice(None, None, -1), slice(50, 10, -7),
    ]  # fmt: skip


def test_views_are_indexed_like_numpy_arrays(view: fb.View) -> None:
    """`view[mask]` and `view[[1, 2]]` said that range indices must be integers."""
    numbers = np.asarray(view["n"])
    for pick in picks(len(view)):
        chosen = pick if isinstance(pick, slice) else np.asarray(pick, None if len(pick) else int)
        expected = numbers[chosen]
        part = view[pick]
        assert len(part) == part.num_entries == len(expected)
        assert part["n"].to_list() == [each.n for each in part] == expected.tolist()
        assert [each.entry for each in part.oids] == expected.tolist()
        assert part.entries().tolist() == expected.tolist()


def test_picked_view_supports_every_read(view: fb.View) -> None:
    part = view[[9, 2, 8, 2, 5]]
    numbers = np.asarray(view["n"])[[9, 2, 8, 2, 5]]
    assert part[1].n == part[-2].n == numbers[1]
    assert part[1:4]["n"].to_list() == part[[1, 2, 3]]["n"].to_list() == numbers[1:4].tolist()
    assert part[numbers > 5]["n"].to_list() == numbers[numbers > 5].tolist()
    assert part.arrays("n", "n > 5")["n"].to_list() == numbers[numbers > 5].tolist()
    assert part.arrays(["n"], "nx == 2", entry_stop=3)["n"].to_list() == [
        n for n in numbers[:3].tolist() if n % 3 == 2
    ]
    assert [batch.n.to_list() for batch in part.iterate("n", step_size=2)] == [
        numbers[start : start + 2].tolist() for start in (0, 2, 4)
    ]
    assert part.find(n=int(numbers[2])).n == numbers[2]
    assert [each.n for each in part.find_all(n=int(numbers[1]))] == [numbers[1]] * 2
    assert part.as_class(1)["n"].to_list() == numbers.tolist()
    assert pickle.loads(pickle.dumps(part))["n"].to_list() == numbers.tolist()
    with pytest.raises(fb.NotFoundError):
        part.find(n=500)
    with pytest.raises(IndexError, match=r"position 5 is out of range: .* has 5 objects here"):
        part[5]


def test_entries_of_a_picked_view_are_copies(view: fb.View) -> None:
    part = view[[9, 2]]
    expected = part["n"].to_list()
    part.entries()[:] = 0
    part.oids.entries[:] = 0
    assert part["n"].to_list() == expected


def test_picked_view_evaluates_a_condition_once_for_each_entry(
    view: fb.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch evaluated it for all entries between the first and the last of the view."""
    evaluated: list[int] = []
    evaluate = Selection.evaluate

    def counted(self: Selection, columns: Any, length: int) -> Any:
        evaluated.append(length)
        return evaluate(self, columns, length)

    monkeypatch.setattr(Selection, "evaluate", counted)
    part = view[::2]
    chosen = [n for batch in part.iterate("n", "n > 50", step_size=30) for n in batch.n.to_list()]
    assert chosen == [n for n in part["n"].to_list() if n > 50]
    assert sum(evaluated) <= len(view)
    assert part[[]].arrays("n", "n > 50")["n"].to_list() == []


def test_picked_view_can_be_exported(view: fb.View, tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    assert view[[5, 1]].export(path) == 2
    assert pd.read_parquet(path)["n"].tolist() == np.asarray(view["n"])[[5, 1]].tolist()


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        ([True], IndexError, "a mask of 1 values"),
        (np.zeros(0, bool), IndexError, "a mask of 0 values"),
        ([600], IndexError, "position 600 is out of range"),
        ([-601], IndexError, "position -601 is out of range"),
        ([0.5], TypeError, "takes a position, a slice, a mask"),
        (["a"], TypeError, "takes a position, a slice, a mask"),
        ([[1], [2]], TypeError, "takes a position, a slice, a mask"),
        ((1, 2), TypeError, "takes a position, a slice, a mask"),
        (1.5, TypeError, "takes a position, a slice, a mask"),
        (None, TypeError, "not None"),
    ],
)
def test_invalid_indexes_are_refused(fed: fb.Federation, index: Any, error: type, text: str) -> None:
    view = fed["d/all"]
    for sequence in (view, view.oids, view.oids[::2], view[::2]):
        with pytest.raises(error, match=text if len(sequence) == COUNT else None):
            sequence[index]


def test_oid_ranges_are_indexed_like_numpy_arrays(fed: fb.Federation) -> None:
    """`oids[E]` said that only integer scalar arrays can be converted to a scalar index."""
    oids = fed["d/all"].oids
    chosen = oids[np.array([5, -1, 5])]
    assert list(chosen) == [oids[5], oids[-1], oids[5]]
    assert chosen == fb.OidArray(oids.database, oids.container, [5, 599, 5])
    assert fed.snapshot().fetch(chosen, "n").n.to_list() == [5, 599, 5]
    assert oids[10:20][[True, False] * 5][1] == oids[12]
    with fed.transaction() as txn:
        numbers = txn.database("d").container("all")
        numbers.update(chosen[:2], n=np.array([-5, -599]))
        assert numbers.view()[[5, 599]]["n"].to_list() == [-5, -599]
        assert numbers.delete(oids[[7, 8]]) == 2
        txn.rollback()

"""Lazy frames of Polars over views: only needed data are read, and the answers are those of Polars."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="the extra `io` is not installed")

import duckdb
import polars as pl
from polars import col

import femtobarn as fb
from femtobarn._views.columns import Columns

LARGE = 2**63 + 5


@fb.persistent
class Event:
    n: fb.int32
    number: fb.uint64
    huge: fb.uint64
    half: fb.float32
    real: float
    maybe: fb.int16 | None
    flag: bool
    tag: str
    pt: list[fb.float32]


@pytest.fixture
def view(fed: fb.Federation) -> fb.View[Event]:
    odd = [0.1, np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, 5.0, -5.0, 2.5]
    real = np.array(odd * 10)
    for first in range(0, 400, 100):  # Clusters of 100.
        numbers = np.arange(first, first + 100)
        with fed.transaction() as txn:
            txn.database("d", create=True).container("events", Event, create=True).extend(
                {
                    "n": numbers,
                    "number": numbers,
                    "huge": np.where(numbers % 10, np.uint64(LARGE), numbers.astype(np.uint64)),
                    "half": np.clip(real, -1e30, 1e30),
                    "real": real,
                    "maybe": [None if number % 3 else number for number in numbers.tolist()],
                    "flag": numbers % 2 == 0,
                    "tag": [f'it\'s "{number % 5}"\n' for number in numbers.tolist()],
                    "pt": [[1.0] * (number % 3) for number in numbers.tolist()],
                }
            )
    return fed["d/events"].of(Event)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The fields and conditions that were read."""
    found: list[tuple[Any, Any]] = []
    original = Columns.to_arrow

    def noted(self: Columns, expressions: Any = None, where: Any = None, **options: Any) -> Any:
        found.append((expressions, where))
        return original(self, expressions, where, **options)

    monkeypatch.setattr(Columns, "to_arrow", noted)
    return found


PUSHED = {
    "n > 5": col("n") > 5,
    "n <= 7": col("n").le(7),
    "number == 3": col("number") == 3,
    "n != 3": col("n") != 3,
    "n <= 5": ~(col("n") > 5),
    "flag": col("flag"),
    "tag == ": col("tag") == 'it\'s "3"\n',
    "maybe >= 30": col("maybe") >= 30,
    "(n > 5) and (n < 9)": (col("n") > 5) & (col("n") < 9),
    "(n > 390) or (n < 9)": (col("n") > 390) | (col("n") < 9),
    "not (real < 0.5)": col("real") > 0.5,
    "real <= 0.5": col("real") < 0.5,
    "half >= 0.1": col("half") == 0.1,
    "n > 300": (col("n") > 300) & (col("tag").str.len_bytes() > 3),
    "not (half < ": col("half") >= 0.1,
    "half <= ": col("half") <= 0.1,
}
KEPT = {
    "huge": col("huge") == LARGE,
    "is in": col("n").is_in([3, 4]),
    "texts in order": col("tag") > "it's \"3",
    "computed": col("n") * 2 > 700,
    "lists": col("pt").list.len() > 1,
    "missing": col("maybe").is_null(),
    "no NaN": col("real").is_not_nan(),
    "NaN": col("real") == float("nan"),
    "one side": (col("n") > 390) | (col("n") * 2 < 9),
    "function": col("n").map_elements(lambda n: len(str(n)) > 2, return_dtype=pl.Boolean),
}


@pytest.mark.parametrize("where", PUSHED)
def test_conditions_that_where_knows_are_pushed_down(
    view: fb.View, asked: list[tuple[Any, Any]], where: str
) -> None:
    expected = pl.DataFrame(view).filter(PUSHED[where])
    asked.clear()
    found = view.lazy().filter(PUSHED[where]).collect()
    assert found.equals(expected, null_equal=True)
    assert 0 < len(found) < len(view)
    texts = [condition for _, condition in asked if condition is not None]
    assert len(texts) == 1
    assert where in texts[0]
    selected = len(view.entries(texts[0]))
    assert len(found) <= selected < len(view)


@pytest.mark.parametrize("name", KEPT)
def test_other_conditions_are_applied_by_polars(
    view: fb.View, asked: list[tuple[Any, Any]], name: str
) -> None:
    expected = pl.DataFrame(view).filter(KEPT[name])
    asked.clear()
    assert view.lazy().filter(KEPT[name]).collect().equals(expected, null_equal=True)
    assert all(condition is None for _, condition in asked)


def test_columns_that_a_query_does_not_use_are_not_read(view: fb.View, asked: list[tuple[Any, Any]]) -> None:
    frame = view.lazy()
    asked.clear()
    found = frame.filter(col("n") > 300).group_by("tag").agg(col("number").sum()).sort("tag").collect()
    assert len(found) == 5
    [(columns, where)] = asked
    assert set(columns) == {"n", "number", "tag"}
    assert "n > 300" in where
    assert frame.select(pl.len()).collect().item() == len(view)
    assert frame.select(col("real").max()).collect().item() is not None
    assert frame.collect().equals(pl.DataFrame(view), null_equal=True)


def test_the_first_rows_are_read_without_the_rest(view: fb.View) -> None:
    frame = view.lazy()
    whole = pl.DataFrame(view)
    assert frame.head(3).collect().equals(whole.head(3), null_equal=True)
    assert frame.head(3).filter(col("n") > 0).collect()["n"].to_list() == [1, 2]
    assert frame.filter(col("n") > 300).head(3).collect()["n"].to_list() == [301, 302, 303]
    assert frame.slice(397, 10).collect()["n"].to_list() == [397, 398, 399]


def test_duckdb_scans_a_lazy_frame_and_reads_the_columns_of_its_query(
    view: fb.View, asked: list[tuple[Any, Any]]
) -> None:
    tables: dict[str, Any] = {"frame": view.lazy(), "whole": pl.DataFrame(view)}
    query = "SELECT tag, sum(number) AS total FROM frame WHERE n > 300 GROUP BY tag ORDER BY tag"
    asked.clear()
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.sql(query).fetchall()
        assert found == connection.sql(query.replace("frame", "whole")).fetchall()
    assert len(found) == 5
    assert all(set(columns) == {"n", "number", "tag"} for columns, _ in asked)
    assert asked


def test_a_lazy_frame_is_pickled_without_its_data_and_read_where_it_arrives(view: fb.View) -> None:
    frame = view.lazy().filter(col("n") > 396).select("n", "pt")
    data = pickle.dumps(frame)
    assert len(data) < 10_000
    assert pickle.loads(data).collect()["n"].to_list() == [397, 398, 399]
    collection = fb.concat([view[:2], view[398:]])
    assert collection.lazy().select("n", "source").collect()["n"].to_list() == [0, 1, 398, 399]
    assert view[[5, 3]].lazy().collect()["n"].to_list() == [5, 3]
    assert view[:0].lazy().collect().is_empty()

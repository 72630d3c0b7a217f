"""A federation of three small runs, and containers of numbers."""

from __future__ import annotations

from typing import Any

import femtobarn as fb


@fb.persistent
class Muon:
    pt: float


@fb.persistent
class Event:
    run: fb.int32
    name: str
    muons: list[Muon]


OTHER = {"name": "Other", "fields": [{"name": "run", "type": "int64"}, {"name": "extra", "type": "float32"}]}


def with_runs(fed: fb.Federation) -> fb.Federation:
    """Three runs of four events, the second of run 2 deleted, and objects of another class."""
    with fed.transaction() as txn:
        for run in (1, 2, 3):
            container = txn.database(f"run{run}", create=True).container("events", Event, create=True)
            for i in range(4):
                container.append(
                    Event(run=run, name="abcd"[i], muons=[Muon(pt=10.0 * j + i) for j in range(i)])
                )
        txn.database("other", create=True).container("things", OTHER, create=True).extend(
            {"run": [9, 9], "extra": [1, 2]}
        )
    with fed.transaction() as txn:
        txn.database("run2").container("events").delete(1)
    return fed


def numbers(fed: fb.Federation, path: str, form: Any, values: Any, *, name: str = "N") -> fb.View:
    """Return a new container of a class with the given fields."""
    fields = [{"name": each, "type": type_} for each, type_ in form.items()]
    database, container = path.split("/")
    with fed.transaction() as txn:
        made = txn.database(database, create=True).container(
            container, {"name": name, "fields": fields}, create=True
        )
        made.extend(values)
    return fed[path]

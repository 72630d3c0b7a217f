"""Random operations on a federation, checked against plain Python lists.

Hypothesis shrinks a failure to the shortest sequence of operations, and prints it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import femtobarn as fb


@fb.persistent
class Item:
    number: fb.uint32
    name: str
    values: list[fb.float32]
    previous: fb.link[Item]


numbers = st.integers(0, 2**32 - 1)
values = st.lists(st.floats(width=32, allow_nan=False), max_size=4)
names = st.text(max_size=4)
rows = st.tuples(numbers, names, values)

CONTAINERS = ("a/one", "a/two", "b/one")


class FederationModel(RuleBasedStateMachine):
    """A federation beside what it should hold: for each container the rows of each commit."""

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="femtobarn-model-"))
        self.fed = fb.create(self.folder / "model.fed")
        self.txn: fb.Transaction | None = None
        self.committed: dict[str, list[Any]] = {}
        self.pending: dict[str, list[Any]] = {}
        self.snapshots: list[tuple[fb.Snapshot, dict[str, list[Any]]]] = []

    def teardown(self) -> None:
        if hasattr(self, "fed"):
            if self.txn is not None:
                self.txn.rollback()
            self.fed.close()
            shutil.rmtree(self.folder)

    def writer(self, name: str) -> fb.ContainerWriter:
        assert self.txn is not None
        database, container = name.split("/")
        writer = self.txn.database(database, create=True).container(container, Item, create=True)
        self.pending.setdefault(name, list(self.committed.get(name, [])))
        return writer

    @precondition(lambda self: self.txn is None)
    @rule()
    def begin(self) -> None:
        self.txn = self.fed.transaction()

    @precondition(lambda self: self.txn is not None)
    @rule(name=st.sampled_from(CONTAINERS), row=rows)
    def append(self, name: str, row: tuple[Any, ...]) -> None:
        writer, held = self.writer(name), self.pending[name]
        previous = fb.Oid(*self.place(writer), len(held) - 1) if held else None
        oid = writer.append(Item(number=row[0], name=row[1], values=row[2], previous=previous))
        assert oid.entry == len(held)
        held.append((*row, previous))

    @precondition(lambda self: self.txn is not None)
    @rule(name=st.sampled_from(CONTAINERS), batch=st.lists(rows, max_size=5))
    def extend(self, name: str, batch: list[tuple[Any, ...]]) -> None:
        writer, held = self.writer(name), self.pending[name]
        columns = {
            "number": np.array([row[0] for row in batch], np.uint32),
            "name": [row[1] for row in batch],
            "values": [row[2] for row in batch],
            "previous": [None] * len(batch),
        }
        oids = writer.extend(columns)
        assert (oids.start, oids.stop) == (len(held), len(held) + len(batch))
        held.extend((*row, None) for row in batch)

    @precondition(lambda self: self.txn is not None)
    @rule(name=st.sampled_from(CONTAINERS))
    def refuse(self, name: str) -> None:
        writer, held = self.writer(name), self.pending[name]
        for wrong in ({"number": -1, "name": "", "values": [], "previous": None}, {"number": 1}, 7):
            try:
                writer.append(wrong)
            except fb.InvalidError:
                continue
            raise AssertionError("a wrong object was taken")
        assert len(writer) == len(held)

    @precondition(lambda self: self.txn is not None)
    @rule(ending=st.sampled_from(["commit", "rollback", "raise"]))
    def end(self, ending: str) -> None:
        assert self.txn is not None
        if ending == "commit":
            csn = self.txn.commit()
            assert csn == self.fed.head()
            self.committed |= self.pending
        elif ending == "rollback":
            self.txn.rollback()
        else:
            self.txn.__exit__(RuntimeError, RuntimeError(), None)
        self.txn, self.pending = None, {}

    @precondition(lambda self: len(self.snapshots) < 4)
    @rule()
    def keep_snapshot(self) -> None:
        self.snapshots.append((self.fed.snapshot(), dict(self.committed)))

    @precondition(lambda self: self.txn is None)
    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.fed.close()
        self.fed = fb.open(self.folder / "model.fed")

    @invariant()
    def newest_snapshot_is_what_was_committed(self) -> None:
        if hasattr(self, "fed"):
            self.check(self.fed.snapshot(), self.committed)

    @invariant()
    def older_snapshots_have_not_changed(self) -> None:
        for snapshot, expected in getattr(self, "snapshots", []):
            self.check(snapshot, expected)

    def check(self, snapshot: fb.Snapshot, expected: dict[str, list[Any]]) -> None:
        assert sorted(snapshot) == sorted(expected)
        for name, held in expected.items():
            view = snapshot[name]
            assert len(view) == len(held)
            arrays = view.arrays()
            assert arrays.number.to_list() == [row[0] for row in held]
            assert arrays.name.to_list() == [row[1] for row in held]
            assert arrays["values"].to_list() == [row[2] for row in held]
            if held:
                last = view[-1]
                assert (last.number, last.name, last["values"].tolist()) == held[-1][:3]
                assert (last.previous and last.previous.oid) == held[-1][3]
                assert last.previous is None or last.previous.number == held[-2][0]
                large = view.arrays("number", "number >= 1000")
                assert ak.sum(large.number >= 1000) == sum(row[0] >= 1000 for row in held)

    @staticmethod
    def place(writer: fb.ContainerWriter) -> tuple[int, int]:
        return writer.database_id, writer.container_id


TestFederation = FederationModel.TestCase
TestFederation.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)

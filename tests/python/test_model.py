"""Random operations on a federation, checked against plain Python lists.

Hypothesis shrinks a failure to the shortest sequence of operations, and prints it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


State = dict[str, list[Any]]
"""For each container its rows by entry; None where the object was deleted."""


def copied(state: State) -> State:
    return {name: list(held) for name, held in state.items()}


class FederationModel(RuleBasedStateMachine):
    """A federation beside what it should hold."""

    @initialize(keep_commits=st.sampled_from([None, 1, 3]))
    def create(self, keep_commits: int | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="femtobarn-model-"))
        self.fed = fb.create(self.folder / "model.fed")
        self.txn: fb.Transaction | None = None
        self.committed: State = {}
        self.pending: State = {}
        self.savepoints: list[tuple[fb.Savepoint, State]] = []
        self.snapshots: list[tuple[fb.Snapshot, State]] = []
        self.tags: dict[str, State] = {}
        self.fed.set_retention(keep_commits=keep_commits)

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
        self.pending.setdefault(name, [])
        return writer

    def chosen(self, name: str, data: st.DataObject) -> list[int]:
        """Some of the entries that have objects."""
        live = [entry for entry, row in enumerate(self.pending.get(name, [])) if row is not None]
        return data.draw(st.lists(st.sampled_from(live), unique=True, max_size=4)) if live else []

    @precondition(lambda self: self.txn is None)
    @rule()
    def begin(self) -> None:
        self.txn, self.pending = self.fed.transaction(), copied(self.committed)

    @precondition(lambda self: self.txn is not None)
    @rule(name=st.sampled_from(CONTAINERS), row=rows)
    def append(self, name: str, row: tuple[Any, ...]) -> None:
        writer, held = self.writer(name), self.pending[name]
        previous = fb.Oid(*self.ids_of(writer), len(held) - 1) if held else None
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
    @rule(name=st.sampled_from(CONTAINERS), data=st.data())
    def update(self, name: str, data: st.DataObject) -> None:
        writer, held = self.writer(name), self.pending[name]
        entries = self.chosen(name, data)
        new = data.draw(st.lists(rows, min_size=len(entries), max_size=len(entries)))
        if data.draw(st.booleans()):
            columns = {"number": [row[0] for row in new], "values": [row[2] for row in new]}
            writer.update(entries, columns)
        else:
            for entry, row in zip(entries, new, strict=True):
                writer.update(fb.Oid(*self.ids_of(writer), entry), number=row[0], values=row[2])
        for entry, row in zip(entries, new, strict=True):
            held[entry] = (row[0], held[entry][1], row[2], held[entry][3])

    @precondition(lambda self: self.txn is not None)
    @rule(name=st.sampled_from(CONTAINERS), data=st.data())
    def delete(self, name: str, data: st.DataObject) -> None:
        writer, held = self.writer(name), self.pending[name]
        if data.draw(st.booleans()):
            entries = self.chosen(name, data)
            assert writer.delete(entries) == len(entries)
        else:
            least = data.draw(numbers)
            entries = [entry for entry, row in enumerate(held) if row is not None and row[0] >= least]
            assert writer.delete(where=f"number >= {least}") == len(entries)
        for entry in entries:
            held[entry] = None

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
        for entry in [len(held), *(entry for entry, row in enumerate(held) if row is None)][:3]:
            with pytest.raises(fb.NotFoundError):
                writer.delete(entry)
            with pytest.raises(fb.NotFoundError):
                writer.update(entry, number=1)
        assert len(writer) == len(held)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), new=st.sampled_from(["one", "two", "three"]))
    def rename(self, data: st.DataObject, new: str) -> None:
        assert self.txn is not None
        name = data.draw(st.sampled_from(sorted(self.pending)))
        target = f"{name.split('/')[0]}/{new}"
        if target in self.pending:
            with pytest.raises(fb.ExistsError):
                self.txn.rename(name, new)
        else:
            self.txn.rename(name, new)
            self.pending[target] = self.pending.pop(name)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        assert self.txn is not None
        name = data.draw(st.sampled_from(sorted(self.pending)))
        self.txn.drop(name)
        del self.pending[name]

    @precondition(lambda self: self.txn is not None and len(self.savepoints) < 3)
    @rule()
    def savepoint(self) -> None:
        assert self.txn is not None
        self.savepoints.append((self.txn.savepoint(), copied(self.pending)))

    @precondition(lambda self: self.savepoints)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.savepoints) - 1))
        savepoint, state = self.savepoints[number]
        savepoint.rollback()
        self.pending = copied(state)
        for later, _ in self.savepoints[number + 1 :]:
            with pytest.raises(fb.InvalidError):
                later.rollback()
        del self.savepoints[number + 1 :]

    @precondition(lambda self: self.txn is not None)
    @rule()
    def checkpoint(self) -> None:
        assert self.txn is not None
        assert self.txn.checkpoint() == self.fed.head()
        self.committed = copied(self.pending)
        self.savepoints.clear()

    @precondition(lambda self: self.txn is not None)
    @rule(ending=st.sampled_from(["commit", "rollback", "raise"]))
    def end(self, ending: str) -> None:
        assert self.txn is not None
        if ending == "commit":
            csn = self.txn.commit()
            assert csn == self.fed.head()
            self.committed = self.pending
        elif ending == "rollback":
            self.txn.rollback()
        else:
            self.txn.__exit__(RuntimeError, RuntimeError(), None)
        self.txn, self.pending = None, {}
        self.savepoints.clear()

    @precondition(lambda self: len(self.snapshots) < 4)
    @rule()
    def keep_snapshot(self) -> None:
        self.snapshots.append((self.fed.snapshot(), copied(self.committed)))

    @precondition(lambda self: self.fed.head() > 0)
    @rule(name=st.sampled_from(["first", "second"]))
    def tag(self, name: str) -> None:
        if name in self.tags:
            self.fed.untag(name)
            del self.tags[name]
        else:
            assert self.fed.tag(name) == self.fed.head()
            self.tags[name] = copied(self.committed)

    @rule()
    def vacuum(self) -> None:
        assert self.fed.vacuum().complete

    @precondition(lambda self: self.txn is None and self.committed)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.committed)))
        self.fed.compact(
            name if data.draw(st.booleans()) else name.split("/")[0], all=data.draw(st.booleans())
        )

    @rule()
    def check_all(self) -> None:
        report = self.fed.check(full=True)
        assert report.sound, "\n".join(map(str, report.problems))

    @precondition(lambda self: self.txn is None)
    @rule()
    def reopen(self) -> None:
        self.snapshots.clear()
        self.fed.close()
        self.fed = fb.open(self.folder / "model.fed")

    @invariant()
    def newest_snapshot_is_what_was_committed(self) -> None:
        if hasattr(self, "fed"):
            snapshot = self.fed.snapshot()
            assert sorted(snapshot) == sorted(self.committed)
            self.check(snapshot, self.committed)

    @invariant()
    def a_transaction_sees_its_own_changes(self) -> None:
        if getattr(self, "txn", None) is not None:
            assert self.txn is not None
            self.check(self.txn.snapshot(), self.pending)

    @invariant()
    def older_snapshots_have_not_changed(self) -> None:
        for snapshot, expected in getattr(self, "snapshots", []):
            assert sorted(snapshot) == sorted(expected)
            self.check(snapshot, expected)

    @invariant()
    def tagged_snapshots_have_not_changed(self) -> None:
        for name, expected in getattr(self, "tags", {}).items():
            snapshot = self.fed.snapshot(tag=name)
            assert sorted(snapshot) == sorted(expected)
            self.check(snapshot, expected)

    def check(self, snapshot: fb.Snapshot, expected: State) -> None:
        for name, held in expected.items():
            live = [row for row in held if row is not None]
            view = snapshot[name]
            assert len(view) == len(live)
            arrays = view.arrays()
            assert arrays.number.to_list() == [row[0] for row in live]
            assert arrays.name.to_list() == [row[1] for row in live]
            assert arrays["values"].to_list() == [row[2] for row in live]
            large = view.arrays("number", "number >= 1000")
            assert large.number.to_list() == [row[0] for row in live if row[0] >= 1000]
            assert [each.number for each in view] == [row[0] for row in live]
            assert view.entries().tolist() == [entry for entry, row in enumerate(held) if row is not None]
            if live:
                self.check_last(view, held)

    @staticmethod
    def check_last(view: fb.View, held: list[Any]) -> None:
        last = view[-1]
        row = held[last.entry]
        assert (last.number, last.name, last["values"].tolist()) == row[:3]
        assert (last.previous and last.previous.oid) == row[3]
        if last.previous is not None and held[row[3].entry] is not None:
            assert last.previous.number == held[row[3].entry][0]
        elif last.previous is not None:
            with pytest.raises(fb.NotFoundError, match="was deleted"):
                _ = last.previous.get()

    @staticmethod
    def ids_of(writer: fb.ContainerWriter) -> tuple[int, int]:
        return writer.database_id, writer.container_id


TestFederation = FederationModel.TestCase
TestFederation.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)

"""Federations that are followed, and their changes, for the tests of copies."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from server_settings import QUICK_STOP

import femtobarn as fb

__all__ = ["Changes", "Hit", "assert_same", "contents", "put", "serve", "url_of", "writer"]


@fb.persistent
class Hit:
    x: fb.float64
    hits: list[fb.int32]


def serve(fed: fb.Federation) -> fb.Server:
    return fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP)


def url_of(server: fb.Server, port: int | None = None) -> str:
    return f"root://127.0.0.1:{port or server.port}/{server.exports[0]}"


def writer(txn: fb.Transaction, path: str) -> fb.ContainerWriter:
    database, container = path.split("/")
    return txn.database(database).container(container)


def put(fed: fb.Federation, path: str, count: int, seed: int = 0) -> int:
    generator = np.random.default_rng(seed)
    database, container = path.split("/")
    with fed.transaction() as txn:
        target = txn.database(database, create=True).container(container, Hit, create=True)
        lengths = generator.integers(0, 5, count)
        hits = ak.unflatten(generator.integers(0, 1000, lengths.sum(), np.int32), lengths)
        target.extend({"x": generator.random(count), "hits": hits})
    return fed.snapshot().csn


def contents(snapshot: fb.Snapshot) -> dict[str, Any]:
    """All that a snapshot shows."""
    return {
        f"{database['name']} {database['state']}": {
            container["name"]: snapshot[f"{database['name']}/{container['name']}"].arrays().tolist()
            for container in snapshot.containers(database["name"])
        }
        for database in snapshot.databases()
    }


def assert_same(copy: fb.Federation, fed: fb.Federation, csn: int) -> None:
    assert copy.snapshot().csn == csn
    assert contents(copy.snapshot()) == contents(fed.snapshot(csn=csn))


class Changes:
    """Random changes of all kinds."""

    def __init__(self, fed: fb.Federation, seed: int, outside: Path) -> None:
        self.fed = fed
        self.random = random.Random(seed)
        self.outside = outside
        self.count = 0

    def make(self) -> None:
        self.count += 1
        kinds = [self.append] * 6 + [self.update, self.delete] * 2
        kinds += [self.seal, self.drop, self.rename, self.tag, self.vacuum, self.compact, self.attach]
        self.random.choice(kinds)()

    def open_containers(self) -> list[str]:
        snapshot = self.fed.snapshot()
        return [
            f"{database['name']}/{container['name']}"
            for database in snapshot.databases()
            if database["state"] == "open"
            for container in snapshot.containers(database["name"])
        ]

    def append(self) -> None:
        path = f"run{self.random.randrange(4)}-{self.count // 40}/c{self.random.randrange(2)}"
        sealed = [it["name"] for it in self.fed.snapshot().databases() if it["state"] != "open"]
        if path.split("/")[0] not in sealed:
            put(self.fed, path, self.random.choice([1, 10, 3000]), self.count)

    def update(self) -> None:
        for path in self.open_containers()[:1]:
            # Object 0 may be deleted.
            with contextlib.suppress(fb.NotFoundError), self.fed.transaction() as txn:
                writer(txn, path).update([0], x=[float(self.count)])

    def delete(self) -> None:
        for path in self.open_containers()[-1:]:
            with self.fed.transaction() as txn:
                writer(txn, path).delete(where="x < 0.1")

    def seal(self) -> None:
        names = [it["name"] for it in self.fed.snapshot().databases() if it["state"] == "open"]
        if names:
            self.fed.seal(self.random.choice(names))

    def drop(self) -> None:
        names = [it["name"] for it in self.fed.snapshot().databases()]
        if len(names) > 3:
            with self.fed.transaction() as txn:
                txn.drop(self.random.choice(names))

    def rename(self) -> None:
        names = [it["name"] for it in self.fed.snapshot().databases()]
        if names:
            with self.fed.transaction() as txn:
                txn.rename(self.random.choice(names), f"renamed{self.count}")

    def tag(self) -> None:
        if self.fed.snapshot().csn:
            self.fed.tag(f"tag{self.count}")

    def vacuum(self) -> None:
        self.fed.vacuum(keep_from=self.fed.snapshot().csn)

    def compact(self) -> None:
        for path in self.open_containers()[:1]:
            self.fed.compact(path)

    def attach(self) -> None:
        with fb.create(self.outside / f"other{self.count}.fed") as other:
            put(other, "there/c0", 50, self.count)
            path = self.outside / f"file{self.count}.root"
            other.export("there/c0", path)
        self.fed.attach(path)

"""A snapshot that its server gave up while a client was away: every kind of read reports that.

The server was stopped, a vacuum freed what no other snapshot has, and the server came back. Single objects,
indexes and statistics reported damage then, and lists had no names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from server_settings import QUICK_STOP
from waiting import free_port

import femtobarn as fb

EVENTS = 20_000
Read = Callable[[Any, Any], Any]


@fb.persistent
class Vertex:
    z: fb.float64


@fb.persistent
class Hit:
    number: fb.uint64
    x: fb.float64
    best: fb.link[Vertex]


READS: dict[str, Read] = {
    "databases and containers": lambda snapshot, _: list(snapshot),
    "rows of containers": lambda snapshot, _: snapshot.containers("run7"),
    "existence of a container": lambda snapshot, _: "run7/vertices" in snapshot,
    "a container": lambda snapshot, _: snapshot["run7/vertices"],
    "arrays": lambda _, hits: hits.arrays(["x"]),
    "a condition": lambda _, hits: hits.arrays(["number"], where="x > 0.5"),
    "statistics": lambda _, hits: hits.entries(where="number == 17"),
    "an index": lambda _, hits: hits.find(number=17),
    "all indexes": lambda _, hits: hits.indexes(),
    "live entries": lambda _, hits: len(hits.entries()),
    "a field of an object": lambda _, hits: hits[100].x,
    "a link": lambda _, hits: hits[100].best.z,
    "objects by OIDs": lambda snapshot, hits: snapshot.fetch([hits.oid(5), hits.oid(500)], ["x"]),
    "referrers": lambda snapshot, hits: snapshot.referrers(fb.Oid(1, 1, 0)),
    "iteration": lambda _, hits: [hit.x for hit in hits],
}


def fill(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        run = txn.database("run7", create=True)
        vertices = run.container("vertices", Vertex, create=True)
        oids = vertices.extend({"z": np.arange(10.0)})
        hits = run.container("hits", Hit, create=True, compression="none")
        numbers = np.arange(EVENTS, dtype="u8")
        best = [oids[number % 10] for number in range(EVENTS)]
        hits.extend({"number": numbers, "x": numbers / EVENTS, "best": best})
        hits.create_index("number", ["number"])
        run.container("other", Vertex, create=True).append(Vertex(z=1.0))
    with fed.transaction() as txn:
        txn.database("run7").container("hits").delete([3, 9_000])


def test_every_kind_of_read_reports_that_its_snapshot_was_given_up(tmp_path: Path) -> None:
    port = free_port()
    with fb.create(tmp_path / "lhc.fed") as fed:
        fill(fed)

        def serve() -> fb.Server:
            return fb.serve(fed.path, port=port, address="127.0.0.1", anonymous="all", config=QUICK_STOP)

        server = serve()
        remotes = {name: fb.open(server.url("/lhc.fed"), timeout=20) for name in READS}
        try:
            snapshots = {name: remote.snapshot() for name, remote in remotes.items()}
            views = {name: snapshot["run7/hits"] for name, snapshot in snapshots.items()}
            server.stop()
            with fed.transaction() as txn:
                txn.drop("run7/hits")
                txn.drop("run7/vertices")
            fed.vacuum(keep_from=fed.head())
            with fed.transaction() as txn:
                txn.database("run7").container("other").extend({"z": np.full(100_000, 7.0)})
            server = serve()
            wrong = {}
            for name, read in READS.items():
                try:
                    wrong[name] = repr(read(snapshots[name], views[name]))[:200]
                except fb.ConflictError as error:
                    if "was given up while its server could not be reached" not in str(error):
                        wrong[name] = repr(error)
                except Exception as error:
                    wrong[name] = repr(error)
            assert wrong == {}
        finally:
            for remote in remotes.values():
                remote.close()
            server.stop()

"""Dask reads partitions of views and writes for one transaction, also when its workers are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages_apart import installed

pytest.importorskip("dask", reason="the extra `dask` is not installed")

import dask.dataframe as dd
from distributed import Client, LocalCluster

import femtobarn as fb
from femtobarn._views.partitions import Partition

FORM = {
    "name": "Event",
    "fields": [
        {"name": "n", "type": "int64"},
        {"name": "x", "type": "float64"},
        {"name": "tag", "type": "string"},
    ],
}
COUNT = 20_000

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A cluster of two processes on this machine."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def view(fed: fb.Federation) -> fb.View:
    numbers = np.arange(COUNT)
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container("events", FORM, create=True)
        events.extend({"n": numbers, "x": numbers / 2, "tag": [f"t{number % 3}" for number in numbers]})
    return fed["d/events"]


def total(part: Partition) -> int:
    return int(part.arrays("n", library="np")["n"].sum())


def copy_large(part: Partition, task: fb.Task) -> None:
    task["d/large"].extend(part.arrays(where="n >= 5000"))


def copy_or_die(part: Partition, task: fb.Task) -> None:
    """Copy; the first run of the second partition kills its worker in the middle."""
    task["d/large"].extend(part.arrays())
    mark = mark_of(part)
    if part.view._window.start == 5000 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def mark_of(part: Partition) -> Path:
    return Path(part.view.snapshot.federation.path) / "killed"


def new_container(fed: fb.Federation, txn: fb.Transaction) -> None:
    txn.database("d").container("large", FORM, create=True)


def test_partitions_are_mapped_over_workers(view: fb.View, client: Client) -> None:
    parts = view.partitions(5000)
    assert all(len(pickle.dumps(part)) < 2000 for part in parts)
    futures = client.map(total, parts)
    assert sum(client.gather(futures)) == COUNT * (COUNT - 1) // 2
    again = client.map(total, view.partitions(5000))
    assert [future.key for future in again] == [future.key for future in futures], "equal parts, equal keys"


@pytest.mark.parametrize("scheduler", ["distributed", "threads", "sync"])
def test_a_data_frame_reads_the_columns_that_are_used(view: fb.View, client: Client, scheduler: str) -> None:
    frame = view.to_dask_dataframe(size=5000)
    assert isinstance(frame, dd.DataFrame)
    assert frame.npartitions == 4
    options: dict[str, Any] = {} if scheduler == "distributed" else {"scheduler": scheduler}
    expected = view.arrays(library="pd")
    found = frame.groupby("tag").n.sum().compute(**options).sort_index()
    assert found.to_dict() == expected.groupby("tag").n.sum().to_dict()
    assert frame.compute(**options).to_dict("list") == expected.to_dict("list")
    few = view.to_dask_dataframe(["n", "x"], where="n >= 19_998", size=5000)
    assert few.compute(**options).n.tolist() == [19_998, 19_999]
    assert view[:0].to_dask_dataframe().compute(**options).empty


def test_columns_that_a_computation_does_not_use_are_not_read(
    view: fb.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    arrays = Partition.arrays

    def noted(self: Partition, expressions: Any = None, *rest: Any, **options: Any) -> Any:
        read.append(expressions)
        return arrays(self, expressions, *rest, **options)

    monkeypatch.setattr(Partition, "arrays", noted)
    frame = view.to_dask_dataframe(size=5000)
    frame[["x"]].sum().compute(scheduler="sync")
    assert read == [["x"]] * 4


def test_tasks_write_for_one_transaction(fed: fb.Federation, view: fb.View, client: Client) -> None:
    with fed.transaction() as txn:
        new_container(fed, txn)
        assert fb.dask.write(txn, copy_large, view.partitions(3000)) == 15_000
        assert "d/large" not in fed
    assert fed["d/large"]["n"].to_list() == list(range(5000, COUNT))
    frame = view.to_dask_dataframe(size=5000)
    with fed.transaction() as txn:
        txn.database("d").container("large")
        doubled = frame.assign(n=frame.n * 2)
        assert fb.dask.write(txn, lambda part, task: task["d/large"].extend(part), doubled) == COUNT
    assert fed["d/large"]["n"].to_list()[15_000:] == list(range(0, 2 * COUNT, 2))
    assert fed.check(full=True).problems == []


def test_tasks_of_a_cluster_write_several_of_many_partitions(
    fed: fb.Federation, view: fb.View, client: Client
) -> None:
    def write(number: int, task: fb.Task) -> None:
        from distributed import get_worker

        columns = {"n": [number], "x": [float(task.key == f"part {number}")]}
        task["d/large"].extend(columns | {"tag": [str(get_worker().get_current_task())]})

    with fed.transaction() as txn:
        new_container(fed, txn)
        assert fb.dask.write(txn, write, range(100)) == 100
    found = fed["d/large"].arrays()
    assert found.n.to_list() == list(range(100))
    assert found.x.to_list() == [1.0] * 100
    assert 8 < len(set(found.tag.to_list())) <= 32, "two threads have 16 tasks each"


def test_a_worker_that_is_killed_while_it_writes_counts_once(
    fed: fb.Federation, view: fb.View, client: Client
) -> None:
    with fed.transaction() as txn:
        new_container(fed, txn)
        assert fb.dask.write(txn, copy_or_die, view.partitions(5000)) == COUNT
        assert mark_of(view.partitions(5000)[0]).exists(), "a worker was killed"
    assert fed["d/large"]["n"].to_list() == list(range(COUNT))
    assert fed.check(full=True).problems == []
    assert fed.vacuum().garbage_bytes > 0


def test_a_task_that_fails_leaves_the_transaction_as_it_was(
    fed: fb.Federation, view: fb.View, client: Client
) -> None:
    def fail(part: Partition, task: fb.Task) -> None:
        task["d/large"].extend(part.arrays())
        raise ValueError("no")

    with fed.transaction() as txn:
        new_container(fed, txn)
        with pytest.raises(ValueError, match="no"):
            fb.dask.write(txn, fail, view.partitions(5000))
        with pytest.raises(fb.InvalidError, match="no partitions"):
            fb.dask.write(txn, fail, [])
        assert fb.dask.write(txn, copy_large, view.partitions(5000)) == 15_000
    assert len(fed["d/large"]) == 15_000


def test_executors_of_coffea_run_on_a_cluster(view: fb.View, client: Client) -> None:
    processor = pytest.importorskip("coffea.processor", reason="the extra `judge` is not installed")
    from coffea.nanoevents import BaseSchema

    def total(events: Any) -> dict[str, int]:
        return {events.metadata["dataset"]: int(events.n.to_numpy().sum())}

    executor = processor.DaskExecutor(client=client, status=False)
    datasets = {"all": view, "half": view[: COUNT // 2].partitions(3000)}
    found = fb.coffea.run(total, datasets, executor=executor, schemaclass=BaseSchema, size=5000)
    assert found == {"all": sum(range(COUNT)), "half": sum(range(COUNT // 2))}


def test_arrays_of_dask_awkward_read_the_columns_and_objects_that_are_used(
    fed: fb.Federation, project: Path
) -> None:
    hit = {
        "record": {
            "class": "Hit",
            "fields": [{"name": "x", "type": "float64"}, {"name": "y", "type": "int32"}],
        }
    }
    types = {"n": "int64", "hits": {"list": hit}, "raw": {"link": "Event"}}
    form = {"name": "Selected", "fields": [{"name": name, "type": types[name]} for name in types]}
    with fed.transaction() as txn:
        database = txn.database("d", create=True)
        raw = database.container("raw", FORM, create=True).extend({"n": [5, 6], "x": [0, 0], "tag": ["", ""]})
        events = database.container("events", form, create=True)
        events.extend(
            [
                {"n": n, "hits": [{"x": n / 2, "y": n}] * (n % 3), "raw": [None, *raw][n % 3]}
                for n in range(100)
            ]
        )
    # An older Dask than that of the other tests; what it needs beside is here.
    versions = ["dask==2025.3.0", "dask-awkward==2026.2.1"]
    folder = installed("dask-awkward", ["--no-deps", *versions], project)
    paths = os.pathsep.join([str(folder), str(project / "python")])
    script = project / "tests" / "judges" / "dask_awkward_reads.py"
    done = subprocess.run(
        [sys.executable, script, fed.path],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["versions"] == [version.split("==")[1] for version in versions]
    assert found["partitions"] == 4
    assert found["sum"] == {
        "value": sum(n / 2 * (n % 3) for n in range(100)),
        "read": [[["hits.x"], None]] * 4,
    }
    assert found["counts"]["value"] == [n % 3 for n in range(100)]
    assert all(len(columns) == 1 and columns[0].startswith("hits.") for columns, _ in found["counts"]["read"])
    assert found["length"]["value"] == 100
    assert found["heavy"] == {"value": list(range(90, 100)), "read": [[["n"], "n >= 90"]] * 4}
    assert found["selected"]["value"] == [[0.5], []]
    assert found["links"]["value"] == json.loads(
        json.dumps(fed["d/events"].arrays("raw").raw[:3].to_list(), default=str)
    )
    assert {column.split(".")[0] for column in found["links"]["read"][-1][0]} == {"raw"}
    assert found["in processes"] == sum(range(100))
    assert found["empty"]["value"] == []

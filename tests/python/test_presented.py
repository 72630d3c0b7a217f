"""Open databases, as seen by programs that know nothing of Femtobarn.

The server shows an open database as a complete ROOT file. Here real ROOT and uproot read it while a
transaction writes to the database, and must find the same values as in the file once it is sealed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compare import differences, lines

import femtobarn as fb

pytestmark = pytest.mark.judge

ENTRIES = 3000
CONTAINERS = ("events", "hits", "packed", "none")


@fb.persistent
class Hit:
    cell: fb.uint16
    energy: fb.float32


@fb.persistent
class Event:
    number: fb.uint64
    name: str
    hits: list[Hit]
    previous: fb.link[Event]


@fb.persistent(version=2, name="Event")
class Event2:
    number: fb.uint64
    title: str = fb.field(was="name")
    hits: list[Hit]
    weight: fb.float64 = fb.field(default=1.5)
    previous: fb.link[Event]


def events(first: int, last: int) -> dict[str, Any]:
    """Events with these numbers, by field."""
    numbers = range(first, last)
    return {
        "number": list(numbers),
        "name": [f"n{n}" for n in numbers],
        "hits": [[{"cell": i, "energy": n + i / 4} for i in range(n % 4)] for n in numbers],
    }


def fill(writer: fb.ContainerWriter, first: int, last: int) -> None:
    """Append events one by one."""
    for n in range(first, last):
        hits = [Hit(cell=i, energy=n + i / 4) for i in range(n % 4)]
        writer.append(Event(number=n, name=f"n{n}", hits=hits, previous=None))


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> fb.Federation:
    """Containers that were appended to, updated, deleted from and given a newer class."""
    fed = fb.create(tmp_path_factory.mktemp("presented") / "p.fed")
    with fed.transaction() as txn:
        run = txn.database("run", create=True)
        for name, how in (("events", "none"), ("hits", "none"), ("packed", "zstd"), ("none", "none")):
            run.container(name, Event, create=True, compression=how, page_size=4096, cluster_size=16384)
        for name in CONTAINERS[:3]:
            fill(run.container(name), 0, ENTRIES)
    with fed.transaction() as txn:
        run = txn.database("run")
        touched = list(range(0, ENTRIES, 7))
        longer = [[{"cell": n % 100, "energy": 0.5}] * 6 for n in touched]
        run.container("events").update(touched, {"hits": longer})
        run.container("packed").delete([n for n in range(ENTRIES) if n % 11 == 3 or n < 500])
        run.container("hits").update(fb.Oid(1, 2, 5), previous=fb.Oid(1, 1, 17))
    with fed.transaction() as txn:
        newer = txn.database("run").container("events", Event2, evolve=True)
        newer.append(Event2(number=2**40, title="new", hits=[], weight=2.5, previous=None))
        newer.delete([1, 2])
    return fed


@pytest.fixture(scope="module")
def present(examples: Path) -> Path:
    """The program that copies a database as the server shows it."""
    return examples / "present"


def shown(present: Path, fed: fb.Federation, target: Path, opaque: str = "") -> Path:
    """A file with the database as the server shows it."""
    command = [str(present), str(fed.path), "run", str(target), *([opaque] if opaque else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def files(fed: fb.Federation, present: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The database while it is written, as of its first commit, and when it is sealed."""
    folder = tmp_path_factory.mktemp("files")
    with fed.transaction() as txn:
        fill(txn.database("run").container("hits"), ENTRIES, 10 * ENTRIES)
        first = shown(present, fed, folder / "first.root", "fb.csn=1")
        now = shown(present, fed, folder / "shown.root")
        txn.rollback()
    fed.seal("run")
    sealed = next(Path(row["path"]) for row in fed.databases())
    return {"first": first, "shown": now, "sealed": sealed}


def dumps(
    judge: str, project: Path, files: dict[str, Path], folder: Path
) -> dict[tuple[str, str], list[Any]]:
    """The values that a judge finds in each container of each file, without any warning."""
    jobs = [
        {"file": str(path), "ntuple": name, "target": str(folder / f"{judge}-{file}-{name}.jsonl")}
        for file, path in files.items()
        for name in CONTAINERS
    ]
    (folder / f"{judge}.json").write_text(json.dumps(jobs))
    script = project / "tests" / "judges" / f"{judge}.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), "--batch", str(folder / f"{judge}.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    keys = [(file, name) for file in files for name in CONTAINERS]
    return {key: lines(Path(job["target"])) for key, job in zip(keys, jobs, strict=True)}


@pytest.mark.parametrize("judge", ["root_read", "uproot_read"])
def test_open_database_is_shown_as_it_is_when_sealed(
    judge: str, project: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    found = dumps(judge, project, files, tmp_path)
    for name in CONTAINERS:
        assert differences(found["sealed", name], found["shown", name]) == [], name
    assert [len(found["shown", name]) for name in CONTAINERS] == [ENTRIES + 1, ENTRIES, ENTRIES, 0]
    evolved = found["shown", "events"]
    assert evolved[-1]["title"] == "new"
    assert (evolved[14]["weight"], evolved[14]["title"], len(evolved[14]["hits"])) == (1.5, "n14", 6)
    assert [n for n, entry in enumerate(evolved) if entry["_deleted"]] == [1, 2]
    assert found["shown", "hits"][5]["previous"] == {"database": 0, "container": 1, "entry": 17}
    deleted = [n for n, entry in enumerate(found["shown", "packed"]) if entry["_deleted"]]
    assert deleted == [n for n in range(ENTRIES) if n % 11 == 3 or n < 500]
    # As of the first commit nothing of that has happened.
    for name in CONTAINERS[:3]:
        first = found["first", name]
        assert [entry["number"] for entry in first] == list(range(ENTRIES))
        expected = events(0, ENTRIES)
        assert [entry["name"] for entry in first] == expected["name"]
        assert [entry["hits"] for entry in first] == expected["hits"]


def test_copy_of_a_shown_database_can_be_attached(
    fed: fb.Federation, files: dict[str, Path], tmp_path: Path
) -> None:
    with fb.create(tmp_path / "other.fed") as other:
        attached = other.attach(files["shown"], "copy")
        assert attached.containers == list(CONTAINERS)
        for name in CONTAINERS:
            ours, theirs = fed[f"run/{name}"], other[f"copy/{name}"]
            assert theirs["number"].to_list() == ours["number"].to_list()
            assert theirs["hits"].to_list() == ours["hits"].to_list()

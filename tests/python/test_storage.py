"""Databases in stores: another disk, real S3 servers, a site's commands; read here and through a server."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from s3_servers import S3_SERVERS, s3_server
from stored_points import ENTRIES, VALUES, Point, files, fill, is_right

import femtobarn as fb


def folder_store(fed: fb.Federation, more: str = "") -> Path:
    """Give a federation the store `mirror`, a folder beside it."""
    store = Path(fed.path).parent / "mirror"
    store.mkdir(exist_ok=True)
    settings = f"[stores.mirror]\nkind = 'folder'\npath = '{store}'\n{more}"
    (Path(fed.path) / "storage.toml").write_text(settings)
    return store


def run(*arguments: str | Path, code: int = 0) -> str:
    """Run a command of ours, which ends with this code; returns its output and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "femtobarn", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_readers_bring_back_databases_that_are_only_in_a_store(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    folder_store(fed)
    view = fed["run7/points"]
    (copy,) = fed.migrate("run7", "mirror")
    size = (tmp_path / "lhc.fed/databases/run7.root").stat().st_size
    assert (copy.size, copy.state, fed.where("run7")[0].state) == (size, "complete", "both")
    assert fed.evict("run7") == size
    assert (fed.where("run7")[0].state, files(fed)) == ("nearline", [])
    unwilling = fb.open(fed.path, stage=False)
    with pytest.raises(
        fb.UnavailableError, match=r'"run7" is not on the disk, but in store "mirror"; stage it'
    ):
        unwilling["run7/points"]
    assert len(view.arrays("x")) == 1000, "a view that was open before"
    assert fed.where("run7")[0].state == "both"
    assert unwilling["run7/points"][999].x == VALUES[999]


def test_links_lead_to_databases_that_come_back(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)

    @fb.persistent
    class Tag:
        point: fb.link[Point]

    with fed.transaction() as txn:
        tags = txn.database("tags", create=True).container("tags", Tag, create=True)
        tags.append(Tag(point=fed["run7/points"][7].oid))
    folder_store(fed)
    fed.migrate("run7", "mirror")
    fed.evict("run7")
    assert fed.check(full=True).problems == []
    assert fb.open(fed.path)["tags/tags"][0].point.x == VALUES[7]


def test_operations_on_the_file_require_staging(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=1000)
    folder_store(fed)
    fed.migrate("run7", "mirror")
    fed.evict("run7")
    with pytest.raises(fb.UnavailableError, match="stage it first"):
        fed.detach("run7")
    report = fed.backup(tmp_path / "backup")
    assert report.nearline == ["run7"]
    assert fed.check().nearline == 1
    assert fed.vacuum().complete
    restored = fb.restore(tmp_path / "backup", tmp_path / "restored.fed")
    with pytest.raises(fb.NotFoundError, match=r"not in storage.toml"):
        restored["run7/points"]
    shutil.copy(tmp_path / "lhc.fed/storage.toml", tmp_path / "restored.fed")
    assert len(restored["run7/points"].arrays("x")) == 1000
    # The restored federation removes nothing of the original's.
    restored.discard_copy("run7", "mirror")
    assert len(fed["run7/points"].arrays("x")) == 1000


def test_a_lost_catalogue_is_rebuilt_from_copies_of_the_stores_objects(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run6", "run7", entries=1000)
    store = folder_store(fed)
    copies = fed.migrate(["run6", "run7"], "mirror")
    fed.evict(["run6", "run7"])
    fed.close()
    (tmp_path / "lhc.fed/catalogue.sqlite").unlink()
    for copy in copies:
        shutil.copy(store / copy.key, tmp_path / "lhc.fed/databases")
    assert fb.rebuild_catalogue(fed.path)["left_out"] == []
    with fb.open(fed.path) as rebuilt:
        assert [is_right(rebuilt, name, 1000) for name in ("run6", "run7")] == [True, True]
        assert {it.state for it in rebuilt.where()} == {"online"}
        # The objects are not those of the new catalogue, so other ones are made.
        (new,) = rebuilt.migrate("run7", "mirror")
        assert new.key != copies[1].key


def test_commands_of_the_shell(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "raw-1", "raw-2", "other", entries=1000)
    rules = "[[rules]]\ndatabases = 'raw-*'\nstores = ['mirror']\n"
    folder_store(fed, rules + "[disk]\nhigh_percent = 0.001\nlow_percent = 0.001")
    assert run("pin", fed.path, "raw-1", "--hours", "2", "--holder", "ann").startswith(
        "raw-1: online, pinned by ann"
    )
    text = run("apply-rules", fed.path)
    assert "copied raw-1 to mirror" in text
    assert "evicted raw-2" in text
    assert "evicted raw-1" not in text
    states = {row["database"]: row["state"] for row in json.loads(run("where", fed.path, "--json"))}
    assert states == {"raw-1": "both", "raw-2": "nearline", "other": "online"}
    assert '"raw-1" is pinned by ann; unpin it first' in run("evict", fed.path, "raw-1", code=12)
    run("unpin", fed.path, "raw-1", "--holder", "ann")
    assert "gave back" in run("evict", fed.path, "raw-1")
    assert run("stage", fed.path, "raw-?").splitlines() == ["raw-1: both", "raw-2: both"]
    assert "no copy" not in run("migrate", fed.path, "other", "--to", "mirror")
    assert "there are: mirror" in run("migrate", fed.path, "other", "--to", "tape", code=3)
    assert "does not exist; there are other, raw-1, raw-2" in run("stage", fed.path, "xyz", code=3)
    for command in (["where"], ["stage"], ["evict"], ["pin"], ["migrate", "--to", "mirror"]):
        name, *more = command
        assert "; did you mean 'other'?" in run(name, fed.path, "othre", *more, code=3)
    (Path(fed.path) / "storage.toml").write_text("[stores.tape]\nkind = 'tape'")
    assert "storage.toml" in run("migrate", fed.path, "other", "--to", "tape", code=2)


def test_databases_in_a_store_alone_get_further_copies_when_they_are_staged(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "raw-1", "raw-2", entries=100)
    folder_store(fed)
    fed.migrate("raw-1", "mirror")
    fed.evict("raw-1")
    (tmp_path / "second").mkdir()
    second = f"[stores.second]\nkind = 'folder'\npath = '{tmp_path / 'second'}'\n"
    folder_store(fed, second + "[[rules]]\ndatabases = '*'\nstores = ['mirror', 'second']\n")
    text = run("migrate", fed.path, "raw-*", "--to", "second", code=2)
    assert "second has raw-2: " in text
    assert '"raw-1" is not on the disk; stage it first' in text
    assert fed.apply_storage_rules().not_on_disk == [("raw-1", "second")]
    assert "raw-1 gets its copy in second when it is staged" in run("apply-rules", fed.path)
    fed.stage("raw-1")
    done = fed.apply_storage_rules()
    assert (done.migrated, done.not_on_disk) == ([("raw-1", "second")], [])


def test_pins_end(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7", entries=10)
    folder_store(fed)
    fed.migrate("run7", "mirror")
    fed.pin("run7", holder="ann", until=datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(fb.DeniedError, match="pinned by ann"):
        fed.evict("run7")
    fed.pin("run7", holder="ann", until=datetime.now(UTC) - timedelta(seconds=1))
    assert fed.evict("run7") > 0


@pytest.mark.parametrize("kind", S3_SERVERS)
def test_s3(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_NAME", "ann")
    monkeypatch.setenv("STORE_KEY", "a secret")
    fed = fill(tmp_path / "lhc.fed", "small", entries=1000)
    with fed.transaction() as txn:
        points = txn.database("large", create=True).container("points", Point, create=True)
        for _ in range(16):
            points.extend({"x": VALUES})
    fed.seal("large")
    with s3_server(kind, tmp_path / "s3") as url:
        settings = (
            f"[stores.bucket]\nkind = 's3'\nurl = '{url}'\nbucket = 'lhc'\nprefix = 'raw/one'\n"
            "key_variables = ['STORE_NAME', 'STORE_KEY']\n"
        )
        (Path(fed.path) / "storage.toml").write_text(settings)
        done: list[int] = []
        copies = fed.migrate(["small", "large"], "bucket", progress=lambda *told: done.append(told[2]))
        assert len({*done}) > 3, "a large file is sent in parts"
        assert all((tmp_path / "s3/lhc/raw/one" / copy.key).stat().st_size == copy.size for copy in copies)
        fed.evict("*")
        assert is_right(fed, "small", 1000)
        assert len(fed["large/points"].arrays("x")) == 16 * ENTRIES
        fed.discard_copy("small", "bucket")
        assert not (tmp_path / "s3/lhc/raw/one" / copies[0].key).exists()
        fed.evict("large")
        with (tmp_path / "s3/lhc/raw/one" / copies[1].key).open("r+b") as file:
            file.seek(20_000_000)
            file.write(b"other bytes")
        with pytest.raises(fb.CorruptError, match="adler32"):
            fed.stage("large")
        assert fed.where("large")[0].state == "lost"
        monkeypatch.setenv("STORE_KEY", "another secret")
        with pytest.raises(fb.DeniedError):
            fed.migrate("small", "bucket")
    monkeypatch.delenv("STORE_KEY")
    with pytest.raises(fb.InvalidError, match="STORE_KEY"):
        fed.migrate("small", "bucket")


def test_a_killed_process_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    fed = fill(tmp_path / "lhc.fed", "run7")
    store = folder_store(fed)
    script = (
        "import femtobarn as fb, os, sys\n"
        "calls = []\n"
        "def die(*told):\n"
        "    calls.append(told)\n"
        "    if len(calls) == 2: os.kill(os.getpid(), 9)\n"
        f"fed = fb.open({str(fed.path)!r})\n"
        "{operation}\n"
    )

    def killed(operation: str) -> None:
        done = subprocess.run([sys.executable, "-c", script.replace("{operation}", operation)], timeout=60)
        assert done.returncode == -signal.SIGKILL

    killed("fed.migrate('run7', 'mirror', progress=die)")
    assert fed.where("run7")[0].state == "migrating"
    with pytest.raises(fb.DeniedError):
        fed.evict("run7")
    fed.migrate("run7", "mirror")
    fed.evict("run7")
    killed("fed.stage('run7', progress=die)")
    assert fed.where("run7")[0].state == "staging"
    assert is_right(fed, "run7")
    assert files(fed) == ["run7.root"]
    fed.apply_storage_rules()
    assert [path.suffix for path in store.rglob("*.root")] == [".root"]

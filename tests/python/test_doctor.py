"""The command `doctor`: each fault is found, with a remedy and the exit code of the error that it causes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from waiting import free_port, wait_for

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main
from femtobarn.cli.doctor.disk import FileSystem, file_systems, look_at_space, look_at_type
from femtobarn.cli.doctor.finding import Finding
from femtobarn.cli.doctor.installation import EXTRAS

Doctor = Callable[..., dict[str, Finding]]


@fb.persistent
class Hit:
    x: fb.float32


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the command, and returns its findings by their subjects, those that are wrong first."""

    def run(federation: str | None = None, *, code: str | None = None) -> dict[str, Finding]:
        named = [] if federation is None else [federation]
        assert main(["doctor", *named, "--json"]) == (0 if code is None else EXIT_CODES[code])
        findings = [Finding(**each) for each in json.loads(capsys.readouterr().out)]
        worst = sorted(findings, key=lambda finding: ("wrong", "note", "ok").index(finding.verdict))
        return {finding.subject: finding for finding in reversed(worst)}

    return run


@pytest.fixture
def fed(tmp_path: Path) -> fb.Federation:
    """A federation with one database, `run7`."""
    fed = fb.create(tmp_path / "lhc.fed")
    fill(fed)
    return fed


def fill(fed: fb.Federation, count: int = 1000) -> None:
    with fed.transaction() as txn:
        hits = txn.database("run7", create=True).container("hits", Hit, create=True)
        hits.extend({"x": [float(n) for n in range(count)]})


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, *requirements: str) -> None:
    """Install metadata of the package, which pip would find before all other."""
    lines = ["Metadata-Version: 2.1", "Name: femtobarn", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
    (folder / "femtobarn-0.dist-info").mkdir()
    (folder / "femtobarn-0.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(folder)


# ---- the installation


def test_packages_are_compared_with_the_installed_metadata(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extras = ['awkward>=2 ; extra == "io"', 'no-such-package>=1 ; extra == "plots"']
    install(tmp_path, monkeypatch, fb.__version__, "numpy>=2", *extras, 'numpy>=999 ; extra == "hist"')
    found = doctor(code="unsupported")
    assert (found["femtobarn"].verdict, found["packages"].verdict) == ("ok", "ok")
    assert found["extra io"].fact.startswith("awkward 2.")
    assert found["extra plots"].verdict == "note"
    assert "no-such-package is not installed" in found["extra plots"].fact
    assert (found["extra hist"].verdict, found["extra hist"].kind) == ("wrong", "unsupported")
    assert found["extra hist"].fact.endswith("must be >=999")
    assert found["extra hist"].remedy == "pip install --upgrade 'femtobarn[hist]'"


def test_sources_that_are_not_installed_are_named_by_the_folder_with_the_makefile(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata.Distribution, "from_name", _not_found)
    found = doctor()["femtobarn"]
    root = Path(__file__).parents[2]
    assert found.fact.startswith(f"run from its sources in {root}, ")
    assert (root / "Makefile").exists()


def _not_found(name: str) -> None:
    raise metadata.PackageNotFoundError(name)


def test_the_extras_of_users_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"].keys()
    assert extras - EXTRAS.keys() == {"demo", "test", "docs", "judge", "release", "bench"}


def test_a_required_package_that_is_absent_is_wrong(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, fb.__version__, "no-such-package>=1")
    assert doctor(code="unsupported")["packages"].fact == "no-such-package is not installed"


def test_an_extension_module_of_another_version_is_wrong(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "999.1")
    found = doctor(code="unsupported")["femtobarn"]
    assert (found.verdict, "version 999.1" in found.fact, fb.__version__ in found.fact) == (
        "wrong",
        True,
        True,
    )


def test_a_low_limit_of_open_files_is_noted(doctor: Doctor) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        found = doctor()["limits"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (found.verdict, "512 files" in found.fact) == ("note", True)


# ---- a federation in a folder


def test_nothing_is_wrong_with_a_sound_federation(doctor: Doctor, fed: fb.Federation) -> None:
    found = doctor(fed.path)
    assert "commit 1 of" in found["federation"].fact
    assert "format 7" in found["federation"].fact
    assert found["rights"].fact == "this user may read and write"
    assert found["files"].fact == "1 online, none shorter than in the catalogue"
    assert "check --full" in found["pages"].fact
    assert not [each for each in found.values() if each.kind is not None]


def test_the_settings_of_a_folder_that_may_not_be_written_are_known(doctor: Doctor, tmp_path: Path) -> None:
    folder = tmp_path / "lhc.fed"
    # At its end a process removes the log of the catalogue.
    subprocess.run([sys.executable, "-m", "femtobarn", "create", folder], check=True, capture_output=True)
    folder.chmod(0o555)
    try:
        assert "format 2" in doctor(str(folder))["federation"].fact
    finally:
        folder.chmod(0o755)


def test_every_finding_is_one_line(fed: fb.Federation, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(fed.databases()[0]["path"])
    # Until then the catalogue has all bytes of the file, and makes it again.
    fed.close()
    file.unlink()
    assert main(["doctor", fed.path]) == EXIT_CODES["corrupt"]
    shown, error = capsys.readouterr()
    assert {line.split()[0] for line in shown.splitlines()} <= {"ok", "note", "wrong"}
    assert [line.split(":")[0] for line in shown.splitlines() if "wrong " in line] == ["wrong  files"]
    assert error.startswith("femtobarn: 1 check failed")


def test_a_folder_without_a_federation_is_not_found(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor(str(tmp_path), code="not-found")["federation"].verdict == "wrong"


def test_a_damaged_catalogue_is_a_finding(doctor: Doctor, fed: fb.Federation) -> None:
    fed.close()
    catalogue = Path(fed.path) / "catalogue.sqlite"
    catalogue.write_bytes(b"\xff" * catalogue.stat().st_size)
    found = doctor(fed.path, code="corrupt")["federation"]
    assert "rebuild-catalogue" in found.remedy


def test_files_that_are_missing_or_short_are_damage(doctor: Doctor, fed: fb.Federation) -> None:
    file = Path(fed.databases()[0]["path"])
    fed.close()
    content = file.read_bytes()
    file.write_bytes(content[:1000])
    assert doctor(fed.path, code="corrupt")["files"].fact == (
        f"{file} is shorter than its objects in the catalogue"
    )
    file.unlink()
    assert doctor(fed.path, code="corrupt")["files"].fact == f"{file} is missing"
    file.write_bytes(content)
    assert doctor(fed.path)["files"].verdict == "ok"


def test_doctor_names_the_process_that_waits_for_a_lock(doctor: Doctor, fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        txn.database("run7").container("hits")

        def write() -> None:
            with fb.open(fed.path).transaction(lock_timeout=60) as second:
                second.database("run7").container("hits")

        writer = threading.Thread(target=write)
        writer.start()
        wait_for(lambda: len(fed.waits()) == 1)
        found = doctor(fed.path)["locks"]
    writer.join()
    assert found.verdict == "note"
    assert "1 waited for" in found.fact
    assert "waits for run7/hits" in found.fact


def test_a_snapshot_that_keeps_vacuum_from_its_work_is_noted(doctor: Doctor, fed: fb.Federation) -> None:
    snapshot = fed.snapshot()
    fill(fed, 1)
    fill(fed, 1)
    assert doctor(fed.path)["snapshots"].verdict == "ok"
    fed.set_retention(keep_commits=2)
    found = doctor(fed.path)["snapshots"]
    assert found.verdict == "note"
    assert found.fact.startswith(
        f"commit {snapshot.csn} is open, the newest is 3, and retention keeps from 2"
    )
    del snapshot
    assert doctor(fed.path)["snapshots"].verdict == "ok"


def test_doctor_reports_how_far_a_copy_is_behind(doctor: Doctor, fed: fb.Federation, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.fed")
    with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
        with fb.follow(server.url("/lhc.fed"), copy) as follower:
            follower.catch_up()
        assert "has all commits" in doctor(copy)["leader"].fact
        assert "it follows root://" in doctor(copy)["rights"].fact
        fill(fed, 1)
        assert "lacks 1 of the commits" in doctor(copy)["leader"].fact
    assert "cannot be reached" in doctor(copy)["leader"].fact


def test_stores_that_do_not_answer_are_unavailable(
    doctor: Doctor, fed: fb.Federation, tmp_path: Path
) -> None:
    (tmp_path / "mirror").mkdir()
    (Path(fed.path) / "storage.toml").write_text(f"""
        [stores.mirror]
        kind = "folder"
        path = "{tmp_path}/mirror"
        [stores.gone]
        kind = "folder"
        path = "{tmp_path}/gone"
        [stores.eos]
        kind = "xrootd"
        url = "root://127.0.0.1:{free_port()}//eos"
        [stores.tape]
        kind = "commands"
        migrate = ["no-such-program"]
    """)
    found = doctor(fed.path, code="unavailable")
    assert found["store mirror"].verdict == "ok"
    assert "does not exist" in found["store gone"].fact
    assert "does not answer" in found["store eos"].fact
    assert found["store tape"].fact == "no-such-program cannot be run"


@pytest.mark.parametrize(
    ("settings", "subject", "fact"),
    [
        (b"stores = 3", "stores", "has a store that is not a table"),
        (b"[stores]\nmirror = 3", "stores", "has a store that is not a table"),
        (b"# \xff", "stores", "cannot be read"),
        (b'[stores.mirror]\nkind = "folder"', "store mirror", "None is not the path of a folder"),
    ],
)
def test_settings_of_stores_that_cannot_be_understood_are_invalid(
    doctor: Doctor, fed: fb.Federation, settings: bytes, subject: str, fact: str
) -> None:
    (Path(fed.path) / "storage.toml").write_bytes(settings)
    assert fact in doctor(fed.path, code="invalid")[subject].fact


def test_a_store_that_has_copies_must_have_its_mark(
    doctor: Doctor, fed: fb.Federation, tmp_path: Path
) -> None:
    store = tmp_path / "mirror"
    store.mkdir()
    settings = Path(fed.path) / "storage.toml"
    settings.write_text(f'[stores.mirror]\nkind = "folder"\npath = "{store}"\n')
    fed.seal("run7")
    fed.migrate("run7", "mirror")
    assert doctor(fed.path)["files"].fact.startswith("1 both")
    (store / ".femtobarn-store").unlink()
    assert "not the store that has the copies" in doctor(fed.path, code="unavailable")["store mirror"].fact
    settings.unlink()
    assert "copies are in mirror" in doctor(fed.path, code="invalid")["stores"].fact


@pytest.mark.parametrize(
    ("type", "verdict"),
    [("ext4", "ok"), ("xfs", "ok"), ("nfs4", "note"), ("lustre", "note"), ("tmpfs", "note")],
)
def test_file_systems_of_several_machines_are_noted(type: str, verdict: str) -> None:
    assert look_at_type(FileSystem(Path("/data"), type)).verdict == verdict


def test_the_type_of_a_file_system_is_that_of_the_mount() -> None:
    assert [system.type for system in file_systems([Path("/proc"), Path("/proc/sys")]).values()] == ["proc"]


def test_space_that_does_not_last_is_noted(tmp_path: Path) -> None:
    (system,) = file_systems([tmp_path]).values()
    a_month_ago = time.time() - 30 * 86400
    assert "lasts" not in look_at_space(system, a_month_ago).fact
    system.bytes = 1 << 60
    found = look_at_space(system, a_month_ago)
    assert found.verdict != "ok"
    assert "lasts for" in found.fact

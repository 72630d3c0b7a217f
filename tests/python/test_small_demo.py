"""The command `demo`: the base installation makes a sound federation, and the printed commands run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import femtobarn as fb
import femtobarn_demo.small_federation
from femtobarn.cli import EXIT_CODES, main, parser
from femtobarn_demo.calibration import FINAL, PROMPT, typical_errors
from femtobarn_demo.small_federation import HOURS, RUN_EVENTS, SNAPSHOT_TAG, make_federation

# Packages of the extras; the command has to work without them.
EXTRAS = ("fastjet", "matplotlib", "pandas", "pyarrow", "pythia8mc", "uproot", "vector")
WITHOUT_EXTRAS = f"""
import sys
sys.modules |= dict.fromkeys({EXTRAS})
from femtobarn.cli import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the command has run, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-W", "error", "-c", WITHOUT_EXTRAS, "demo"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def demo(made: tuple[Path, str]) -> fb.Federation:
    """The federation that the command made."""
    return fb.open(made[0] / "femtobarn-demo")


def test_the_federation_is_sound(demo: fb.Federation) -> None:
    report = demo.check(full=True)
    assert report.sound, report
    assert report.links > 6 * 2 * RUN_EVENTS


def test_links_lead_from_tags_to_raw_points(demo: fb.Federation) -> None:
    tag: Any = demo["run2-prompt/tags"][3]
    assert (tag.raw.run, tag.raw.event) == (tag.run, tag.event) == (2, RUN_EVENTS + 3)
    track = max(tag.tracks.tracks, key=lambda track: track.pt)
    assert track.pt == pytest.approx(tag.lead_track_pt)
    assert {tag.raw.pixels.hits[index].particle for index in track.pixels} != {-1}


def test_a_tag_names_the_first_pass_and_a_later_commit_has_constants(demo: fb.Federation) -> None:
    before, now = demo.snapshot(tag=SNAPSHOT_TAG), demo.snapshot()
    assert before["run2-prompt/tags"].arrays().to_list() == now["run2-prompt/tags"].arrays().to_list()
    assert len(before["ecal/gain"]) < len(now["ecal/gain"])
    (gain, shift), (final_gain, final_shift) = (
        typical_errors(demo.conditions(name), HOURS) for name in (PROMPT, FINAL)
    )
    assert final_gain < 0.9 * gain
    assert final_shift < 0.5 * shift


def test_the_printed_program_finds_the_z_boson(made: tuple[Path, str]) -> None:
    folder, text = made
    program = textwrap.dedent(text.partition("  python\n")[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pairs, mass = int(done.stdout.split()[0]), float(done.stdout.split()[-2])
    assert pairs > 50
    assert mass == pytest.approx(91.2, abs=1.0)


def test_the_printed_commands_run(made: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = made
    commands = re.findall(r"^  femtobarn (.*)$", text, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["ls", "cat", "cat", "serve"]
    with chdir(folder):
        for command in commands[:-1]:
            assert main(shlex.split(command)) == 0
            assert len(capsys.readouterr().out.splitlines()) >= 3, command
        parser().parse_args(shlex.split(commands[-1]))


def test_a_folder_that_is_not_empty_is_refused(
    made: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = made[0] / "femtobarn-demo"
    before = fb.open(place).head()
    assert main(["demo", str(place)]) == EXIT_CODES["exists"]
    assert "exists already; open it, or choose another folder" in capsys.readouterr().err
    assert fb.open(place).head() == before


def test_the_command_prints_json_for_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(femtobarn_demo.small_federation, "RUN_EVENTS", 12)
    place = tmp_path / "my demo"
    assert main(["demo", str(place), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(place)
    assert facts["databases"][0]["objects"] == 7 * 12
    assert facts["commands"][0] == f"femtobarn ls '{place}'"
    assert f"fb.open({str(place)!r})" in facts["program"]


def test_a_demo_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(femtobarn_demo.small_federation, "put_nominal", fail)
    with pytest.raises(OSError, match="the disk is full"):
        make_federation(tmp_path / "demo", progress=False)
    assert not (tmp_path / "demo").exists()

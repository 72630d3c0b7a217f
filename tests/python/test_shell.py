"""Support for shells: completions, asked of real shells, and the manual page."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from femtobarn.cli import commands, main

CASES = [
    ("che", "check"),
    ("check --fu", "--full"),
    ("conditions rec", "record"),
    ("completion z", "zsh"),
    ("check lh", "lhc.fed"),
    ("stage lh", "lhc.fed"),
]
"""The start of a line after ``femtobarn``, and its only completion. ``lhc.txt`` is no folder."""

ZSH_START = """
PS1= PROMPT_EOL_MARK=
autoload -U compinit; compinit -u -D
eval "$(cat completions)"
show() { print -r -- "line=<$BUFFER>"; exit }
zle -N show; bindkey '^X' show
"""
"""Shows the line as completed, and ends, at Control-X."""

BASH_SCRIPT = """
. ./completions
COMP_WORDS=(femtobarn $1) COMP_LINE="femtobarn $1"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_POINT=${#COMP_LINE}
function=$(complete -p femtobarn | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
$function femtobarn "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of a shell."""
    (tmp_path / "lhc.fed").mkdir()
    (tmp_path / "lhc.txt").touch()
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def start(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Write the completions for a shell, and return where the shell is."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "completions").write_text(printed(capsys, "completion", shell))
    return program


@pytest.mark.parametrize(("line", "completed"), CASES)
def test_bash_completes(line: str, completed: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = start("bash", folder, capsys)
    command = [program, "--norc", "-c", BASH_SCRIPT, "bash", line]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [completed]


@pytest.mark.parametrize(("line", "completed"), CASES)
def test_fish_completes(line: str, completed: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = start("fish", folder, capsys)
    script = '. ./completions; complete -C "femtobarn $argv"'
    command = [program, "--no-config", "-c", script, "--", line]
    home = os.environ | {"HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True, check=True)
    names = [each.partition("\t")[0].rstrip("/") for each in done.stdout.splitlines()]
    assert names == [completed]


@pytest.mark.parametrize(("line", "completed"), CASES[:2] + CASES[-1:])
def test_zsh_completes(line: str, completed: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = start("zsh", folder, capsys)
    (folder / ".zshrc").write_text(ZSH_START)
    controller, terminal = pty.openpty()
    shell = subprocess.Popen(
        [program, "-i"],
        cwd=folder,
        env=os.environ | {"TERM": "dumb", "ZDOTDIR": str(folder)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    os.write(controller, f"femtobarn {line}\t\x18".encode())
    shown = ""
    while (found := re.search("line=<(.*?)>", shown)) is None:
        shown += os.read(controller, 4096).decode()
    shell.wait()
    os.close(controller)
    assert found[1].split()[-1].rstrip("/") == completed


def test_the_manual_page_has_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "femtobarn.1"
    page.write_text(printed(capsys, "man"))
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    width = os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    shown = subprocess.run(
        ["man", "-l", str(page)], env=width, capture_output=True, text=True, check=True
    ).stdout
    assert "femtobarn - an object database for physics events" in shown
    assert [command.name for command in commands.ALL if f"femtobarn {command.name}'" not in shown] == []
    assert "'femtobarn conditions record'" in shown


def test_mandoc_finds_nothing_wrong_with_the_manual_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    page = tmp_path / "femtobarn.1"
    page.write_text(printed(capsys, "man"))
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True
    )
    assert lint.stdout == ""

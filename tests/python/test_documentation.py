"""The documents: their links have targets, and their Python examples run unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Every Markdown file of the project."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def with_examples() -> list[Path]:
    """The documents that show Python code."""
    return [path for path in documents() if examples(path)]


def examples(path: Path) -> list[str]:
    """The Python code of a document, block by block."""
    return [code for language, code in FENCE.findall(path.read_text()) if language == "python"]


def headings(text: str) -> set[str]:
    """The anchors that a document's headings make."""
    lines = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_targets(path: Path) -> None:
    for plain, image in LINK.findall(FENCE.sub("", path.read_text())):
        target, _, anchor = unquote(plain or image).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{path.name} links to {target}, which does not exist"
        if anchor and there.suffix == ".md":
            assert anchor in headings(there.read_text()), (
                f"{path.name} links to {target}#{anchor}: no such heading"
            )


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path: Path) -> None:
    named = re.findall(
        r"`((?:crates|deploy|docs|examples|python|tests/python|tools)/[\w./-]+)`", (ROOT / path).read_text()
    )
    absent = [each for each in named if not (ROOT / each).exists() and not (ROOT / f"{each}.rs").exists()]
    assert not absent, f"{path} names {', '.join(absent)}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_named_tests_exist(path: Path) -> None:
    """A document names a test as ``folder/file.rs::test``, with as many folders as tell the file."""
    listed = subprocess.run(
        ["git", "ls-files", "*.rs", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    sources = [f"/{name}" for name in listed.stdout.split()]
    for file, test in re.findall(r"`([\w/]+\.(?:rs|py))::(\w+)`", path.read_text()):
        found = [name for name in sources if name.endswith(f"/{file}")]
        kind = "fn" if file.endswith(".rs") else "def"
        there = any(re.search(rf"\b{kind} {test}\b", (ROOT / name[1:]).read_text()) for name in found)
        assert there, f"{path.name} names {file}::{test}"


@pytest.mark.parametrize("path", with_examples(), ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_run_unchanged(path: Path, tmp_path: Path) -> None:
    """All blocks of a document are one program, in an empty folder."""
    pytest.importorskip("femtobarn", reason="the package is not built")
    program = tmp_path / "example.py"
    program.write_text("\n".join(examples(path)))
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reference_has_every_public_name() -> None:
    fb = pytest.importorskip("femtobarn", reason="the package is not built")
    words = set(re.findall(r"\w+", (ROOT / "docs" / "api.md").read_text()))
    assert set(fb.__all__) - {"__version__"} <= words

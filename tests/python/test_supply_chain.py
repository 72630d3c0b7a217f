"""Parts of the project: crates that `deny.toml` allows, packages with known hashes, little unsafe code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from test_house import ROOT, of_kind, text_of

# Places with `unsafe` by crate; a number may only go down. Most are at the border to C, and in what
# stands between programs and the C library in the crash lab and in simulations.
UNSAFE = {
    "femtobarn": 3,
    "femtobarn-archive": 1,
    "femtobarn-bench": 4,
    "femtobarn-c": 211,
    "femtobarn-catalog": 8,
    "femtobarn-faults": 215,
    "femtobarn-python": 11,
    "femtobarn-server": 14,
    "femtobarn-web": 11,
    "rntuple": 10,
    "xrd": 1,
}


@cache
def policy() -> dict[str, Any]:
    """The rules for crates, as cargo-deny reads them."""
    return tomllib.loads(text_of(Path("deny.toml")))


@cache
def crates() -> list[dict[str, Any]]:
    """The crates that are built on Linux, of the workspace and of others."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
    told = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    built = {node["id"] for node in told["resolve"]["nodes"]}
    return [crate for crate in told["packages"] if crate["id"] in built]


def is_allowed(license_: str, allowed: set[str]) -> bool:
    """Whether an expression of SPDX is met by licences that are allowed."""
    words = re.findall(r"[()]|AND|OR|[\w.+-]+(?: WITH [\w.-]+)?", license_.replace("/", " OR "))
    known = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return bool(eval(" ".join(known.get(word, str(word in allowed)) for word in words)))


def test_licences_are_read_as_spdx_defines_them() -> None:
    allowed = {"MIT", "Apache-2.0 WITH LLVM-exception"}
    for good in (
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT/Apache-2.0",
        "(A OR MIT) AND Apache-2.0 WITH LLVM-exception",
    ):
        assert is_allowed(good, allowed), good
    for bad in ("GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0", "A OR B AND MIT"):
        assert not is_allowed(bad, allowed), bad


def test_crates_have_allowed_licences() -> None:
    allowed = set(policy()["licenses"]["allow"])
    others = [
        f"{crate['name']}: {crate['license']}"
        for crate in crates()
        if not is_allowed(crate["license"] or "none", allowed)
    ]
    assert others == []


def test_crates_come_from_the_registry_alone() -> None:
    assert policy()["sources"] == {"unknown-registry": "deny", "unknown-git": "deny"}
    registry = "registry+https://github.com/rust-lang/crates.io-index"
    locked = tomllib.loads(text_of(Path("Cargo.lock")))["package"]
    for crate in locked:
        assert crate.get("source", registry) == registry, crate["name"]
        assert len(crate.get("checksum", "")) == 64 or "source" not in crate, (
            f"{crate['name']} has no checksum"
        )
    wanted = [need for crate in crates() if crate["source"] is None for need in crate["dependencies"]]
    assert [need["name"] for need in wanted if need["req"] == "*" and need["source"]] == []


def test_no_more_crates_are_there_in_two_versions() -> None:
    locked = tomllib.loads(text_of(Path("Cargo.lock")))["package"]
    versions = Counter(crate["name"] for crate in locked)
    assert policy()["bans"]["multiple-versions"] == "deny"
    known = {skipped["crate"].partition("@")[0] for skipped in policy()["bans"]["skip"]}
    assert {name for name, count in versions.items() if count > 1} == known


def compiled(*arguments: str) -> set[str]:
    """The crates that Cargo compiles for packages, each with its features."""
    tree = ["cargo", "tree", "--quiet", "--locked", "--offline", "--prefix", "none"]
    told = subprocess.run(
        [*tree, "--format", "{p} [{f}]", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return {line.removesuffix(" (*)") for line in told.stdout.splitlines()}


def test_the_extension_alone_is_made_of_what_is_compiled_for_tests() -> None:
    """Other features of six crates made `make demo` compile all of ours again after `make test`."""
    named = text_of(Path("Makefile")).partition("\nEXTENSION := ")[2].partition("\nextension:")[0]
    words = named.replace("\\\n", " ").split()
    arguments = [word for word in words if word not in ("--lib", "--locked", "--quiet")]
    extension = compiled("--edges", "normal", *arguments)
    tests = compiled("--edges", "all", "--workspace", "--exclude", "femtobarn-fuzz")
    assert len(extension) > 100
    assert extension - tests == set(), "crates/femtobarn-python/Cargo.toml adds the features that tests use"


def test_packages_are_installed_by_their_hashes() -> None:
    pins = re.split(r"\n(?=\w)", text_of(Path("requirements/constraints.txt")).strip())
    assert len(pins) > 100
    for pin in pins:
        assert re.fullmatch(r"[\w.-]+==[\w.!+]+( ;[^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", pin), pin[
            :100
        ]
    for name in ("tools/install", "deploy/container/Containerfile"):
        assert "--require-hashes" in text_of(Path(name)), name


def test_a_bill_of_materials_has_crates_packages_and_javascript(tmp_path: Path) -> None:
    crate = {"type": "library", "bom-ref": "a", "name": "rntuple", "version": "0.1.0"}
    wheel, output = tmp_path / "femtobarn.whl", tmp_path / "femtobarn.cdx.json"
    with zipfile.ZipFile(wheel, "w") as archive:
        named = "femtobarn-0.1.0.dist-info/sboms/femtobarn-python.cyclonedx.json"
        archive.writestr(named, json.dumps({"bomFormat": "CycloneDX", "components": [crate]}))
    command: list[str | Path] = [sys.executable, ROOT / "tools/sbom.py", wheel, sys.executable, output]
    subprocess.run(command, check=True, timeout=60)
    bill = json.loads(output.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    urls = [component.get("purl", "") for component in bill["components"]]
    assert len(urls) == len({component["bom-ref"] for component in bill["components"]})
    for name in ("pypi/numpy@", "pypi/awkward@", "npm/three@"):
        assert any(f"pkg:{name}" in url for url in urls), name
    assert bill["components"][0] == crate


def test_no_code_becomes_unsafe() -> None:
    found: Counter[str] = Counter()
    for path in of_kind(".rs"):
        for line in text_of(path).splitlines():
            code = line.split("//")[0]
            count = len(re.findall(r"\bunsafe (?=\{|(?:fn|impl|extern|trait)\b)|#\[unsafe\(", code))
            found[path.parts[1] if path.parts[0] == "crates" else path.parts[0]] += count
    assert +found == UNSAFE, "lower the number that fell; find a safe way for what is new"
